//! Waits that later steps end, because more end together than fit one step: see `vidsch/backlog.rs`. They need nothing
//! more.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};

use d3dkmt::Handle;

use super::index::WaitIndex;
use crate::ProcessId;
use crate::kernel::Kernel;
use crate::sync::waits::{WaitId, WaitItem, WaitOwner};
use crate::tdr::LostFences;
use crate::vidsch::Task;

/// The part of the backlog that ends waits, collected once.
#[derive(Default)]
pub(super) struct Leftovers {
    /// By object, and the open if only waits through it end: waits with a lower number end.
    ended: BTreeMap<(u32, Option<u32>), u64>,
    /// Objects that a lost device has yet to poison, which satisfies all waits.
    poisoned: BTreeSet<u32>,
    /// Owners of mutexes that are to be freed.
    abandoning: BTreeSet<(ProcessId, Handle)>,
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
        left
    }
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
                    named.is_some_and(|device| backlog.loses_fences(device, LostFences::WaitsEnd))
                        || device.is_some_and(|device| backlog.is_ending_device(device))
                        || self.is_ended(id, item.object, item.open)
                        || self.is_ended(id, item.object, None)
                };
                items.iter().any(is_ended)
            }
        }
    }

    /// Whether later steps drop the packets of a queue without effect.
    pub(super) fn drops_packets(&self, queue: u32) -> bool {
        let state = &self.kernel.vidsch.queues()[queue];
        self.kernel.vidsch.work().backlog().is_ending(state.process, state.device)
    }

    /// Whether later steps count an item of a wait as satisfied.
    pub(super) fn is_satisfied_later(&self, id: WaitId, item: WaitItem) -> bool {
        self.kernel.vidsch.work().backlog().has_reached(item.object, item.value, id.number)
            || self.left.poisoned.contains(&item.object)
            || self.is_ended(id, item.object, None)
    }

    fn is_ended(&self, id: WaitId, object: u32, open: Option<u32>) -> bool {
        self.left.ended.get(&(object, open)).is_some_and(|before| id.number < *before)
    }

    /// Whether later steps free the mutexes of an owner.
    pub(super) fn abandons(&self, process: ProcessId, by: Handle) -> bool {
        self.left.abandoning.contains(&(process, by))
    }
}
