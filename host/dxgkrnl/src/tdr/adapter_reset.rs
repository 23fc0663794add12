//! The reset of a whole adapter (TDR-008 to TDR-011).
//!
//! ```text
//!   ResetFromTimeout      engines drop everything; after it returns, stores of the GPU are ignored; a failure, as that
//!                         of RestartFromTimeout, is bugcheck 0x116
//!   memory_evicted        the contents of video memory are lost, saved states of contexts included
//!   RestartFromTimeout
//!   completed ids         move to the last submitted id of each engine (SCH-007)
//!   devices               all of the adapter are lost: those at fault get the state of the cause, the others RESET
//!   allocations           in LOCAL are not resident any more (TDR-011)
//! ```

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{DeviceExecutionState, NtStatus};

use super::bugcheck::VIDEO_TDR_FAILURE;
use super::{Cause, Loss, Watch};
use crate::ddi::EngineId;
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::vidsch::OnEngine;

impl Kernel {
    pub(super) fn reset_adapter(
        &mut self,
        adapter: u32,
        guilty: &[u32],
        cause: &Cause,
        effects: &mut Effects,
    ) {
        // A driver that has died in a reset of its engine takes its own adapter only; that is no recovery.
        self.stop_dead_drivers(effects);
        if self.tdr.bugcheck.is_some() || self.tdr.stopped_adapters.contains(&adapter) {
            return;
        }
        if !self.may_recover(effects) {
            return;
        }
        self.note_host(format!("adapter {adapter} is reset: {}", cause.why), effects);
        *self.tdr.adapter_resets.entry(adapter).or_default() += 1;
        self.each_engine(adapter, |engine| engine.watch = Watch::Held);
        let mut result = Ok(());
        self.run_ddi(effects, |miniport, _, callbacks| {
            result = miniport.reset_from_timeout(adapter, callbacks);
        });
        if !self.is_recovered("ResetFromTimeout", result, effects) {
            return;
        }
        self.tdr.resetting.insert(adapter);
        self.release_staging_buffers(adapter, effects);
        self.run_ddi(effects, |miniport, _, callbacks| miniport.memory_evicted(adapter, callbacks));
        self.run_ddi(effects, |miniport, _, callbacks| {
            result = miniport.restart_from_timeout(adapter, callbacks);
        });
        self.tdr.forget_adapter(adapter);
        if !self.is_recovered("RestartFromTimeout", result, effects) {
            return;
        }
        self.forget_interrupts_of(|one| one.adapter == adapter);
        self.each_engine(adapter, |engine| {
            engine.forget_work();
            engine.completed = engine.last;
        });
        let on_adapter = self.processes.devices().iter().filter(|(_, device)| device.adapter == adapter);
        let (guilty, others): (Vec<u32>, Vec<u32>) =
            on_adapter.map(|(id, _)| id).partition(|id| guilty.contains(id));
        if let Some(device) = guilty.first().filter(|_| cause.timeout) {
            let vm = self.process(self.processes.devices()[*device].process).vm;
            self.tdr.back_offs.timed_out(vm, self.now, self.config.tdr.delay_ns);
        }
        let on_adapter: Vec<u32> = guilty.iter().chain(&others).copied().collect();
        let (state, page_fault) = (cause.state, cause.page_fault);
        self.lose(Loss { devices: guilty, state, page_fault, poisons: true }, effects);
        let (state, page_fault) = (DeviceExecutionState::RESET, None);
        self.lose(Loss { devices: others, state, page_fault, poisons: true }, effects);
        on_adapter.into_iter().for_each(|device| self.lose_memory(device));
        self.each_engine(adapter, |engine| engine.watch = Watch::Running);
        self.vidsch.dispatch_all_of(adapter);
        let engines = self.config.adapters[adapter as usize].engines(adapter);
        let engines: Vec<EngineId> = engines.map(|(engine, _)| engine).collect();
        for engine in engines {
            self.reset_is_over(engine, effects);
        }
    }

    /// Whether a DDI of the recovery succeeded; raises the bugcheck if not.
    fn is_recovered(&mut self, ddi: &str, result: Result<(), NtStatus>, effects: &mut Effects) -> bool {
        if let Err(status) = result {
            let why = format!("DxgkDdi{ddi} failed with {status}");
            self.bugcheck(VIDEO_TDR_FAILURE, [0, 0, status.0.into(), 0], why, effects);
        }
        result.is_ok()
    }

    fn each_engine(&mut self, adapter: u32, change: impl Fn(&mut OnEngine)) {
        let engines = self.vidsch.in_flight_mut().engines.iter_mut().filter(|(id, _)| id.adapter == adapter);
        for (_, engine) in engines {
            change(engine);
        }
    }

    /// Counts a recovery; one more than TdrLimitCount within TdrLimitTime is a bugcheck (TDR-003).
    fn may_recover(&mut self, effects: &mut Effects) -> bool {
        let (now, tdr) = (self.now, &self.config.tdr);
        let (most, window) = (tdr.limit_count as usize, tdr.limit_time_ns);
        let unconditional = self.tdr.debug_mode == 3;
        self.tdr.recoveries.retain(|time| now - *time < window);
        if !unconditional && self.tdr.recoveries.len() >= most {
            let why = format!("adapters were recovered {most} times within {window} ns, the limit");
            self.bugcheck(VIDEO_TDR_FAILURE, [0, 0, 0, 0], why, effects);
            return false;
        }
        // With TdrDebugMode 3 nothing else bounds the list.
        if self.tdr.recoveries.len() >= most {
            self.tdr.recoveries.pop_front();
        }
        self.tdr.recoveries.push_back(now);
        true
    }
}
