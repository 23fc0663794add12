//! Waits that later steps end, because more end together than fit one step: see `vidsch/backlog.rs`. They need nothing
//! more.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};

use d3dkmt::{Handle, SyncObjectFlags};

use super::index::WaitIndex;
use crate::ProcessId;
use crate::kernel::Kernel;
use crate::sync::Open;
use crate::sync::reached::{EndOfWaits, EndedWaits};
use crate::sync::waits::{WaitId, WaitItem, WaitOwner};
use crate::tdr::LostFences;
use crate::vidsch::{Packet, Task};

/// The part of the backlog that ends waits, collected once.
#[derive(Default)]
pub(super) struct Leftovers {
    /// Of these, waits with a lower number end.
    ended: BTreeMap<EndedWaits, u64>,
    /// Objects that a lost device has yet to poison, which satisfies all waits.
    poisoned: BTreeSet<u32>,
    /// Owners of mutexes that are to be abandoned.
    abandoning: BTreeSet<(ProcessId, Handle)>,
    /// Broadcasts without effect, because a queue drops its part.
    broken: BTreeSet<u32>,
}

impl Leftovers {
    pub fn of(kernel: &Kernel) -> Self {
        let mut left = Leftovers::default();
        let backlog = kernel.vidsch.work().backlog();
        for (process, task) in backlog.tasks_by_process() {
            match task {
                Task::Waiters(scan) => {
                    let Some((waits, before)) = scan.ended() else { continue };
                    match left.ended.entry(waits) {
                        Entry::Vacant(entry) => drop(entry.insert(before)),
                        Entry::Occupied(mut entry) => *entry.get_mut() = before.max(*entry.get()),
                    }
                }
                Task::AbandonMutexes(by) => drop(left.abandoning.insert((process, *by))),
                // It is known by the value, the fence, the device or the process: see below.
                Task::Wake(_)
                | Task::EvaluateWritten(_)
                | Task::LoseFences(_)
                | Task::EmptyQueues(_)
                | Task::EndDevice { .. }
                | Task::CloseAdapter { .. }
                | Task::EndProcess(_)
                | Task::EndAcquires(_)
                | Task::ServeLine(_) => {}
                // It ends no wait but by what it goes on with, which the graph has.
                Task::DropPackets(_)
                | Task::PurgeMemory(_)
                | Task::EndShares(_)
                | Task::RunQueue(_)
                | Task::Dispatch(_)
                | Task::EndContext(_)
                | Task::IdleWait
                | Task::LongCall(_)
                | Task::EndRing(_)
                | Task::EnginePages(_)
                | Task::Paging(_)
                | Task::Drain(_) => {}
            }
        }
        for (device, loss) in backlog.losing_fences() {
            left.poisoned.extend(kernel.fences_to_poison(device, loss));
        }
        if !backlog.is_empty() {
            let dropping = kernel.vidsch.queues().iter().filter(|(queue, _)| drops_packets(kernel, *queue));
            let dropped = dropping.flat_map(|(_, queue)| &queue.packets).chain(backlog.packets());
            left.broken.extend(dropped.filter_map(|packet| match packet {
                Packet::Broadcast(broadcast) => Some(*broadcast),
                _ => None,
            }));
        }
        left
    }
}

/// Whether later steps drop the packets of a queue without effect.
fn drops_packets(kernel: &Kernel, queue: u32) -> bool {
    let state = &kernel.vidsch.queues()[queue];
    kernel.vidsch.work().backlog().is_ending(state.process, state.device)
}

impl WaitIndex<'_> {
    /// Whether a wait ends in a later step, whatever its values are.
    pub(super) fn ends_later(&self, id: WaitId) -> bool {
        let kernel = self.kernel;
        if !kernel.has_backlog() {
            return false;
        }
        let (waits, backlog) = (kernel.sync.waits(), kernel.vidsch.work().backlog());
        let wait = waits.at(id.slot);
        let items = waits.items(wait);
        match wait.owner() {
            WaitOwner::Gpu { queue } => self.drops_packets(queue),
            WaitOwner::SyncFile { .. } => false,
            WaitOwner::Cpu { .. } => {
                let foreign = waits.foreign_device(wait);
                let is_ended = |item: WaitItem| {
                    let device = item.open.and_then(|open| kernel.sync.opens().get(open)?.device);
                    let named = foreign.or(device);
                    let is_ended = |open, why| self.is_ended(id, item.object, open, why);
                    named.is_some_and(|device| backlog.loses_fences(device, LostFences::WaitsEnd))
                        || device.is_some_and(|device| backlog.is_ending_device(device))
                            && !self.outlives_opens(item.object)
                        || [item.open, None]
                            .into_iter()
                            .any(|open| is_ended(open, EndOfWaits::FenceDestroyed))
                        || named == device && is_ended(item.open, EndOfWaits::DeviceLost)
                };
                items.iter().any(is_ended)
            }
        }
    }

    /// Whether the waits on an object go on without the open that they were made through, because a handle is left.
    fn outlives_opens(&self, object: u32) -> bool {
        let state = &self.kernel.sync.objects()[object];
        state.flags.contains(SyncObjectFlags::UNWAIT_CPU_WAITERS_ONLY_ON_DESTROY)
            && (state.is_shared() || !self.opens(object).all(|open| self.is_ending(open)))
    }

    /// Whether the process or the device of an open has ended and is still being cleared away.
    pub(super) fn is_ending(&self, open: &Open) -> bool {
        let backlog = self.kernel.vidsch.work().backlog();
        self.kernel.is_ending(open.process)
            || open.device.is_some_and(|device| backlog.is_ending_device(device))
    }

    pub(super) fn drops_packets(&self, queue: u32) -> bool {
        drops_packets(self.kernel, queue)
    }

    pub(super) fn is_broken(&self, broadcast: u32) -> bool {
        self.left.broken.contains(&broadcast)
    }

    /// Whether later steps count an item of a wait as satisfied.
    pub(super) fn is_satisfied_later(&self, id: WaitId, item: WaitItem) -> bool {
        self.kernel.vidsch.work().backlog().has_reached(item.object, item.value, id.number)
            || self.left.poisoned.contains(&item.object)
            || self.is_ended(id, item.object, None, EndOfWaits::FenceDestroyed)
    }

    fn is_ended(&self, id: WaitId, object: u32, open: Option<u32>, why: EndOfWaits) -> bool {
        self.left.ended.get(&(object, open, why)).is_some_and(|before| id.number < *before)
    }

    /// Whether the mutexes of an owner are abandoned in later steps.
    pub(super) fn abandons(&self, process: ProcessId, by: Handle) -> bool {
        self.kernel.is_ending(process) || self.left.abandoning.contains(&(process, by))
    }
}
