//! One VM loses an adapter or gets one while it runs; the other VMs keep theirs.
//!
//! ```text
//!   removed   for its processes a surprise removal, as if the adapter had stopped for them alone:
//!               devices on it are STOPPED, their queued work is dropped, CPU waits on it end with DEVICE_REMOVED;
//!               work that runs on an engine completes there, as that of any lost device does
//!               EnumAdapters lists it no more; handles of it and all that is on it answer DEVICE_REMOVED for ever
//!               objects and resources on it that no other VM has are dead; the others go on in those VMs
//!               its virtual function is free
//!             destroy and close still work. The driver keeps the VM's worker process until it has no other of the VM
//!   added     EnumAdapters lists it again, with the same LUID and another number of arrival; new handles work
//! ```
//! The number of an arrival that a process sees counts the starts of the adapter and its removals from the VM. So what
//! is from before either has another number.
//!
//! The host removes and adds adapters: no message of a guest does. It may add one that the VM is not configured for.

use alloc::format;
use alloc::string::String;

use d3dkmt::limits;

use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::{ProcessId, VmId};

impl Kernel {
    /// The number of an adapter's arrival in a VM; in the host, of its starts.
    pub(crate) fn arrival_in(&self, vm: VmId, adapter: u32) -> u32 {
        let removals = self.guests.vms.get(&vm).map_or(0, |vm| vm.removals_of(adapter));
        self.tdr.arrival(adapter) + removals
    }

    /// The number of an adapter's arrival as a process sees it.
    #[inline]
    pub(crate) fn arrival_for(&self, process: ProcessId, adapter: u32) -> u32 {
        match self.guests.has_removals() {
            true => self.arrival_in(self.process(process).vm, adapter),
            false => self.tdr.arrival(adapter),
        }
    }

    /// Whether a VM has seen so many arrivals of an adapter that another start has no number.
    pub(crate) fn arrivals_are_used_up(&self, adapter: u32) -> bool {
        let of_vms = self.guests.vms.keys().map(|vm| self.arrival_in(*vm, adapter));
        of_vms.chain([self.tdr.arrival(adapter)]).any(|arrival| arrival >= limits::ADAPTER_ARRIVALS_MAX)
    }

    /// Why an adapter cannot be added to a VM, or removed from it; `None` if it can.
    pub fn vm_adapter_refusal(&self, vm: VmId, adapter: u32, added: bool) -> Option<String> {
        let number = vm.0;
        let Some(attached) = self.guests.vms.get(&vm).filter(|_| self.may_attach(vm)) else {
            return Some(match vm {
                VmId::HOST => "the host is no VM: it has every adapter".into(),
                _ => format!("there is no VM {number}"),
            });
        };
        if self.config.adapters.get(adapter as usize).is_none() {
            return Some(format!("there is no adapter {adapter}"));
        }
        match (added, attached.adapters.contains(&adapter)) {
            (true, true) => Some(format!("VM {number} has adapter {adapter} already")),
            (false, false) => Some(format!("VM {number} has no adapter {adapter}")),
            (true, false) if self.tdr.stopped_adapters().contains(&adapter) => {
                Some(format!("adapter {adapter} is stopped"))
            }
            (true, false) => self.adapter_shortage(adapter),
            (false, true) if self.arrival_in(vm, adapter) >= limits::ADAPTER_ARRIVALS_MAX => {
                Some(format!("adapter {adapter} was removed or started too often"))
            }
            (false, true) => None,
        }
    }

    pub(crate) fn add_adapter(&mut self, vm: VmId, adapter: u32, effects: &mut Effects) {
        if let Some(why) = self.vm_adapter_refusal(vm, adapter, true) {
            return self.note_host(format!("VM {} does not get adapter {adapter}: {why}", vm.0), effects);
        }
        if self.give_attached(vm, adapter, effects) {
            self.wake_watchers(adapter, Some(vm), effects);
            self.note_host(format!("adapter {adapter} is added to VM {}", vm.0), effects);
        }
    }

    pub(crate) fn remove_adapter(&mut self, vm: VmId, adapter: u32, effects: &mut Effects) {
        if let Some(why) = self.vm_adapter_refusal(vm, adapter, false) {
            return self.note_host(format!("VM {} does not lose adapter {adapter}: {why}", vm.0), effects);
        }
        if let Some(attached) = self.guests.vms.get_mut(&vm) {
            attached.adapters.remove(&adapter);
            *attached.removals.entry(adapter).or_default() += 1;
            self.guests.removals += 1;
        }
        let waits = self.stop_adapter_in(vm, adapter, effects);
        self.end_unused_worker(vm, adapter, effects);
        self.wake_watchers(adapter, Some(vm), effects);
        let text = format!("adapter {adapter} is removed from VM {}: {waits} waits ended", vm.0);
        self.note_host(text, effects);
    }

    /// Destroys the worker process of a VM at the driver of an adapter that was removed, once the driver has no other
    /// process of the VM.
    pub(super) fn end_unused_worker(&mut self, vm: VmId, adapter: u32, effects: &mut Effects) {
        let Some(attached) = self.guests.vms.get(&vm) else { return };
        let is_used = |process: &ProcessId| self.processes.get(*process).is_some_and(|one| one.vm == vm);
        if attached.adapters.contains(&adapter)
            || !attached.workers.contains(&adapter)
            || self
                .guests
                .driver_ids
                .of_process
                .keys()
                .any(|(process, on)| *on == adapter && is_used(process))
        {
            return;
        }
        let worker = attached.worker;
        if let Some(attached) = self.guests.vms.get_mut(&vm) {
            attached.workers.remove(&adapter);
        }
        self.run_ddi(effects, |miniport, _, callbacks| {
            miniport.destroy_process(adapter, worker, callbacks);
        });
    }

    /// Whether a driver lacks the worker process of a VM that has its adapter or processes there.
    pub(super) fn workers_miscounted(&self) -> bool {
        let lacks = |vm: &super::VirtualMachine| !vm.adapters.is_subset(&vm.workers);
        let without_worker = |(process, adapter): &(ProcessId, u32)| {
            self.vm_of(*process).is_some_and(|vm| !vm.workers.contains(adapter))
        };
        self.guests.vms.values().any(lacks) || self.guests.driver_ids.of_process.keys().any(without_worker)
    }
}
