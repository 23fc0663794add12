//! Paused VMs.
//!
//! ```text
//!   VmPaused     its processes get no wake-ups, as if each were frozen; the kernel holds them
//!                the timeouts of their keyed mutexes stop (absolute ones expire at the resume, if they are past)
//!                TdrDelay does not run for its work, as with DisableGpuTimeout: not while another VM waits for the engine
//!   ...          engines go on with the work that they have, and memory gets their values
//!                a call that was under way is handled; a process that attaches is held, too
//!   resumed      held wake-ups are delivered, timeouts go on with what was left of them, its work has TdrDelay anew
//! ```
//! The host pauses a VM: no message of a guest does.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::{ProcessId, VmId};

impl Kernel {
    /// Whether a VM is paused.
    #[inline]
    pub fn is_paused(&self, vm: VmId) -> bool {
        self.guests.paused.contains_key(&vm)
    }

    /// The VM of a process, if it is paused.
    pub(crate) fn paused_vm_of(&self, process: ProcessId) -> Option<VmId> {
        self.processes.get(process).map(|process| process.vm).filter(|vm| self.is_paused(*vm))
    }

    /// Why a VM cannot be paused, or resumed; `None` if it can.
    pub fn pause_refusal(&self, vm: VmId, paused: bool) -> Option<String> {
        let number = vm.0;
        match (paused, self.is_paused(vm)) {
            _ if vm == VmId::HOST => Some("the host is no VM: its processes can be frozen".into()),
            _ if !self.guests.vms.contains_key(&vm) => Some(format!("there is no VM {number}")),
            (true, true) => Some(format!("VM {number} is paused already")),
            (false, false) => Some(format!("VM {number} is not paused")),
            (true, false) | (false, true) => None,
        }
    }

    /// Pauses a VM, or resumes it and delivers its deferred wake-ups.
    pub(crate) fn set_paused(&mut self, vm: VmId, paused: bool, effects: &mut Effects) {
        if let Some(why) = self.pause_refusal(vm, paused) {
            let what = if paused { "paused" } else { "resumed" };
            return self.note_host(format!("VM {} is not {what}: {why}", vm.0), effects);
        }
        if paused {
            self.guests.paused.insert(vm, self.now);
            for process in self.processes_of_vm(vm) {
                self.hold_if_paused(process);
            }
            self.pause_acquires(vm);
        } else if let Some(since) = self.guests.paused.remove(&vm) {
            for process in self.processes_of_vm(vm) {
                self.release_wakes(process, |held| held.is_paused = false, effects);
            }
            self.resume_acquires(vm, since, effects);
            self.vidsch.restart_clocks_of(vm, self.now);
        }
    }

    /// Holds the wake-ups of a process from now on, if its VM is paused.
    pub(crate) fn hold_if_paused(&mut self, process: ProcessId) {
        if self.paused_vm_of(process).is_some() {
            self.guests.frozen.entry(process).or_default().is_paused = true;
        }
    }

    fn processes_of_vm(&self, vm: VmId) -> Vec<ProcessId> {
        let all = self.processes.by_id().iter();
        all.filter(|(_, process)| process.vm == vm).map(|(id, _)| *id).collect()
    }

    /// As [`Kernel::miscounted`].
    pub(crate) fn pauses_miscounted(&self) -> Option<&'static str> {
        if !self.guests.paused.keys().all(|vm| self.guests.vms.contains_key(vm)) {
            return Some("the paused VMs");
        }
        let is_right = |(process, held): (&ProcessId, &super::DeferredWakes)| {
            held.is_frozen || held.is_paused && self.paused_vm_of(*process).is_some()
        };
        (!self.guests.frozen.iter().all(is_right)).then_some("the processes of paused VMs")
    }
}
