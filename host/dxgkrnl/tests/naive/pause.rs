//! Paused VMs: their processes get no wakes, their time limits stand still.

use super::{Naive, Wake};

impl Naive {
    pub(super) fn is_paused(&self, vm: u32) -> bool {
        self.paused.iter().any(|(paused, _)| *paused == vm)
    }

    pub(super) fn is_paused_process(&self, process: u32) -> bool {
        self.is_paused(self.vm_of(process))
    }

    /// Sorts the new wakes: those of paused VMs are held, each once.
    fn sort_woken(&mut self) {
        for wake in std::mem::take(&mut self.woken) {
            if !self.is_paused_process(wake.0) {
                self.delivered.push(wake);
            } else if !self.held.contains(&wake) {
                self.held.push(wake);
            }
        }
    }

    /// The wakes that were delivered since the last call.
    pub fn take_delivered(&mut self) -> Vec<Wake> {
        self.sort_woken();
        std::mem::take(&mut self.delivered)
    }

    pub fn pause_vm(&mut self, vm: u32) {
        self.sort_woken();
        if !self.is_paused(vm) {
            self.paused.push((vm, self.now));
        }
    }

    /// The held wakes come by process. Time limits of acquires go on with what was left; engines with the VM's work have
    /// their whole limit again.
    pub fn resume_vm(&mut self, vm: u32) {
        self.sort_woken();
        let Some(at) = self.paused.iter().position(|(paused, _)| *paused == vm) else { return };
        let (_, since) = self.paused.remove(at);
        let (mut of_vm, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|wake| self.vm_of(wake.0) == vm);
        self.held = others;
        of_vm.sort_by_key(|(process, ..)| *process);
        self.delivered.extend(of_vm);
        self.put_off_acquires(vm, since);
        for engine in 0..self.engines.len() {
            let oldest = self.oldest_vm(engine) == Some(vm);
            if oldest || self.hw_vms_on(engine).contains(&vm) {
                let now = self.now;
                self.charge(engine, now);
                let state = &mut self.engines[engine];
                state.since = now;
                state.hw_since = state.hw_since.map(|_| now);
                state.idle_since = state.idle_since.map(|_| now);
                state.preempt_request = state.preempt_request.map(|(_, over)| (now, over));
            }
        }
        self.end_late_acquires();
    }

    pub(super) fn forget_pause(&mut self, vm: u32) {
        self.paused.retain(|(paused, _)| *paused != vm);
    }

    /// The VM of the oldest context buffer of an engine, if it is paused.
    pub(super) fn unlimited_oldest(&self, engine: usize) -> Option<u32> {
        self.oldest_vm(engine).filter(|vm| self.is_paused(*vm))
    }
}
