//! What a host needs after a restore to resume its guests: attached VMs and processes, contents of fence memory, and NT
//! handles.

use alloc::vec::Vec;

use d3dkmt::ShareToken;

use crate::effects::{Effects, FenceStore};
use crate::kernel::Kernel;
use crate::process::{HandleTarget, SyncRef};
use crate::sharing::Shared;
use crate::{Nanos, ProcessId, VmId};

/// An attached process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttachedProcess<'a> {
    pub process: ProcessId,
    pub vm: VmId,
    pub pid: u32,
    pub name: &'a str,
    /// Slots of its fence memory.
    pub slots: u32,
}

impl Kernel {
    /// The time of the last input.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Every process, in the order of their numbers.
    pub fn attached_processes(&self) -> impl Iterator<Item = AttachedProcess<'_>> {
        let attached = self.processes.by_id().iter().filter(|(process, _)| !self.is_ending(**process));
        attached.map(|(process, of)| AttachedProcess {
            process: *process,
            vm: of.vm,
            pid: of.pid,
            name: &of.name,
            slots: of.slots.capacity(),
        })
    }

    /// Every VM and its name. The host is not among them.
    pub fn attached_vms(&self) -> impl Iterator<Item = (VmId, &str)> {
        let attached = self.guests.vms().iter().filter(|(vm, _)| !self.is_clearing(**vm));
        attached.map(|(vm, of)| (*vm, of.config.name.as_str()))
    }

    /// NT handles that name an object, with the VM of their broker.
    pub fn named_nt_handles(&self) -> impl Iterator<Item = (VmId, ShareToken)> {
        self.sharing.shares().iter().map(|(token, share)| (share.vm, *token))
    }

    /// Whether the token is of a sync file whose wait is over.
    pub fn is_ready_sync_file(&self, vm: VmId, token: ShareToken) -> bool {
        let share = self.sharing.shares().get(&token).filter(|share| share.vm == vm);
        share.is_some_and(|share| match share.shared {
            Shared::SyncFile(id) => self.sharing.sync_files()[id].wait.is_none(),
            Shared::Sync(_) | Shared::Resource(_) | Shared::Guarded { .. } => false,
        })
    }

    /// The contents of a process's fence memory: each slot in use, and its value.
    pub fn fence_memory(&self, process: ProcessId, each: &mut impl FnMut(u32, u64)) {
        self.stored_values(|one| one == process, &mut |store| each(store.slot, store.value));
    }

    /// Stores every value of a VM's processes again, because its memory was mapped anew.
    pub(crate) fn store_again(&mut self, vm: VmId, effects: &mut Effects) {
        let of_vm = |process| self.processes.get(process).is_some_and(|process| process.vm == vm);
        self.stored_values(of_vm, &mut |store| effects.stores.push(store));
    }

    /// Reports the stored statuses of processes, values of their fences, and statuses of their doorbells.
    fn stored_values(&self, is_of: impl Fn(ProcessId) -> bool, each: &mut impl FnMut(FenceStore)) {
        for (process, of) in self.processes.by_id().iter().filter(|(process, _)| is_of(**process)) {
            if let Some(slot) = of.slots.status() {
                each(FenceStore { process: *process, slot, value: of.devices_stopped });
            }
        }
        let (mut opens, mut hw_queues) = (Vec::new(), Vec::new());
        for (process, of) in self.processes.by_id().iter().filter(|(process, _)| is_of(**process)) {
            hw_queues.extend(self.hw_queues_of_process(*process));
            for (_, target) in of.handles.iter() {
                match target {
                    HandleTarget::Sync(SyncRef { open, .. }) => opens.push(open),
                    // A queue that drains has none.
                    HandleTarget::HwQueue(_)
                    | HandleTarget::Adapter(_)
                    | HandleTarget::Device(_)
                    | HandleTarget::Context(_)
                    | HandleTarget::KeyedMutex(_)
                    | HandleTarget::PagingQueue(_)
                    | HandleTarget::Resource(_)
                    | HandleTarget::Allocation(_) => {}
                }
            }
        }
        opens.sort_unstable();
        hw_queues.sort_unstable();
        for open in opens {
            let open = &self.sync.opens()[open];
            if let Some(slot) = open.slot {
                each(FenceStore {
                    process: open.process,
                    slot,
                    value: self.sync.objects().value(open.object),
                });
            }
        }
        for queue in hw_queues {
            let queue = &self.vidsch.hw_queues()[queue];
            if let Some(doorbell) = &queue.doorbell {
                let (slot, value) = (doorbell.slot, doorbell.status as u64);
                each(FenceStore { process: queue.process, slot, value });
            }
        }
    }
}
