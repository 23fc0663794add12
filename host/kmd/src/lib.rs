//! The simulated miniport: engines that run the command packets of [`d3dkmt::isa`].
//!
//! It sees the kernel only through [`dxgkrnl::ddi`] and its configuration.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod engine;

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use d3dkmt::{NtStatus, isa};
use dxgkrnl::ddi::{
    BadCommands, Callback, EngineId, EngineState, EngineStatus, HwContext, Invalidation, Miniport,
    PageFaultFlags, PendingFaults, ResetFailed, Submission,
};
use dxgkrnl::{Config, Nanos};

use engine::Engine;

/// See the crate. One engine for each node of each adapter.
#[derive(Default)]
pub struct SimulatedMiniport {
    engines: BTreeMap<EngineId, Engine>,
}

impl Miniport for SimulatedMiniport {
    fn start(&mut self, config: &Config) {
        self.engines.clear();
        for (adapter, config) in config.adapters.iter().enumerate() {
            for (id, config) in config.engines(adapter as u32) {
                self.engines.insert(id, Engine::new(id, config));
            }
        }
    }

    fn validate(&self, commands: &[u8]) -> Result<(), BadCommands> {
        isa::decode(commands).map(drop).map_err(|error| BadCommands(error.to_string()))
    }

    fn submit_command(
        &mut self,
        now: Nanos,
        submission: Submission,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        let engine = self.engines.get_mut(&submission.engine).ok_or(NtStatus::INVALID_PARAMETER)?;
        engine.submit(now, submission, callbacks);
        Ok(())
    }

    fn preempt_command(
        &mut self,
        _now: Nanos,
        engine: EngineId,
        preemption_fence_id: u64,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        let engine = self.engines.get_mut(&engine).ok_or(NtStatus::INVALID_PARAMETER)?;
        engine.preempt(preemption_fence_id, callbacks);
        Ok(())
    }

    /// Responsive if it has nothing to do: whatever it runs did not end in time.
    fn query_engine_status(&mut self, engine: EngineId, _callbacks: &mut Vec<Callback>) -> EngineStatus {
        EngineStatus { responsive: self.engine_state(engine) == EngineState::Idle }
    }

    fn reset_engine(
        &mut self,
        _now: Nanos,
        engine: EngineId,
        _callbacks: &mut Vec<Callback>,
    ) -> Result<u64, ResetFailed> {
        self.engines.get_mut(&engine).ok_or(ResetFailed)?.reset()
    }

    fn reset_hw_engine(
        &mut self,
        _now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), ResetFailed> {
        // Contexts do not share hardware state here: nobody is in the way of another.
        if let Some(context) = self.engines.get_mut(&engine).ok_or(ResetFailed)?.reset_hw()? {
            callbacks.push(Callback::InvalidateHwContext { context, reason: Invalidation::Culprit });
        }
        Ok(())
    }

    fn resume_hw_engine(&mut self, _now: Nanos, engine: EngineId) -> Result<(), ResetFailed> {
        self.engines.get_mut(&engine).ok_or(ResetFailed)?.resume();
        Ok(())
    }

    fn page_fault(
        &mut self,
        now: Nanos,
        engine: EngineId,
        gpu_address: u64,
        flags: PageFaultFlags,
        callbacks: &mut Vec<Callback>,
    ) {
        if let Some(engine) = self.engines.get_mut(&engine) {
            engine.page_fault(now, gpu_address, flags, callbacks);
        }
    }

    fn fail_reset(&mut self, engine: EngineId) {
        if let Some(engine) = self.engines.get_mut(&engine) {
            engine.fail_reset();
        }
    }

    fn destroy_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        submitted: Option<(EngineId, u64)>,
        callbacks: &mut Vec<Callback>,
    ) {
        if let Some((engine, submission_fence_id)) = submitted
            && let Some(engine) = self.engines.get_mut(&engine)
        {
            engine.drop_submission(now, submission_fence_id, callbacks);
        }
        for engine in self.engines.values_mut() {
            engine.drop_saved(context);
        }
    }

    fn stop_device(&mut self, adapter: u32, _callbacks: &mut Vec<Callback>) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            engine.stop();
        }
    }

    fn lose_interrupt(&mut self, engine: EngineId) {
        if let Some(engine) = self.engines.get_mut(&engine) {
            engine.lose_interrupt();
        }
    }

    fn hang_engine(&mut self, engine: EngineId) {
        if let Some(engine) = self.engines.get_mut(&engine) {
            engine.hang();
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.engines.values().filter_map(Engine::busy_until).min()
    }

    fn deadline(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        // Engines move on in the order of their times, so that effects come in the order they happen.
        while let Some(engine) = self
            .engines
            .values_mut()
            .filter(|engine| engine.busy_until().is_some_and(|until| until <= now))
            .min_by_key(|engine| engine.busy_until())
        {
            engine.finish_packet(callbacks);
        }
    }

    fn engine_state(&self, engine: EngineId) -> EngineState {
        self.engines.get(&engine).map_or(EngineState::Idle, Engine::state)
    }

    fn pending_faults(&self, engine: EngineId) -> PendingFaults {
        self.engines.get(&engine).map_or(PendingFaults::default(), Engine::faults)
    }
}
