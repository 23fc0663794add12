//! A miniport around the simulated one: it writes down which DDIs are called, and misbehaves as it is told.
#![allow(dead_code)]

use std::cell::RefCell;
use std::rc::Rc;

use d3dkmt::{NtStatus, isa};
use dxgkrnl::ddi::{
    BadCommands, Callback, EngineId, EngineState, EngineStatus, HwContext, HwQueueId, HwQueueSubmission,
    Interrupt, Miniport, NewHwQueue, PageFaultFlags, PagingOperation, PendingFaults, PerEngineTdrDdis,
    ResetFailed, SchedulingLogBuffer, SignalMonitoredFence, Submission,
};
use dxgkrnl::{AdapterConfig, Config, FeatureId, Nanos, ProcessId};
use kmd::SimulatedMiniport;

use super::World;

/// What a test and its miniport share.
pub struct Script {
    /// The DDIs that were called, and interrupts as they were reported.
    pub log: Vec<String>,
    /// Submissions as they came.
    pub submissions: Vec<Submission>,
    /// Called back when the DDI of this name is next called.
    pub callbacks: Vec<(&'static str, Vec<Callback>)>,
    /// The next call of the DDI of this name fails.
    pub failing: Option<(&'static str, NtStatus)>,
    /// Nodes beside its own that are reset with an engine; `None`: its own bit is missing too.
    pub dependents: Option<u64>,
    /// What ResetEngine says instead of the truth.
    pub aborted: Option<u64>,
    pub responsive: bool,
    /// Advertised beside what a sound driver does.
    pub advertised: Vec<FeatureId>,
    /// What the paging buffers that are built from now on do before they write the fence.
    pub paging: Vec<isa::Packet>,
    pub resume_fails: bool,
    /// The DPC routine does not call NotifyDpc.
    pub forgets_dpc: bool,
    pub ddis: PerEngineTdrDdis,
    pub scheduling_logs: Vec<(EngineId, SchedulingLogBuffer)>,
    /// A DDI of the scheduler class is on the stack.
    inside: bool,
}

pub type Shared = Rc<RefCell<Script>>;

pub struct Recording {
    script: Shared,
    simulated: SimulatedMiniport,
}

/// A world over such a miniport, and what the test shares with it.
pub fn recorded(config: Config) -> (World<Recording>, Shared) {
    let script = Rc::new(RefCell::new(Script {
        log: Vec::new(),
        submissions: Vec::new(),
        callbacks: Vec::new(),
        failing: None,
        dependents: Some(0),
        aborted: None,
        responsive: false,
        advertised: Vec::new(),
        paging: Vec::new(),
        resume_fails: false,
        forgets_dpc: false,
        ddis: PerEngineTdrDdis::all(),
        scheduling_logs: Vec::new(),
        inside: false,
    }));
    (recorded_by(config, &script), script)
}

pub fn recorded_by(config: Config, script: &Shared) -> World<Recording> {
    let recording = Recording { script: script.clone(), simulated: SimulatedMiniport::default() };
    World::with_miniport(config, recording)
}

/// A configuration of one adapter, whose paging is done by this node.
pub fn paging_on(node: u32) -> Config {
    let adapter = AdapterConfig { paging_node: Some(node), ..AdapterConfig::default() };
    Config { adapters: vec![adapter], ..Config::default() }
}

impl Script {
    /// What was written down since the last time.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// The same without DPCs.
    pub fn ddis(&mut self) -> Vec<String> {
        let log = self.take();
        log.into_iter().filter(|line| !line.contains("DPC") && !line.starts_with("interrupt")).collect()
    }
}

impl Recording {
    /// A DDI of the scheduler class: none of them is ever inside of another.
    fn scheduled<T>(
        &mut self,
        name: &'static str,
        callbacks: &mut Vec<Callback>,
        ddi: impl FnOnce(&mut SimulatedMiniport, &mut Vec<Callback>) -> T,
    ) -> T {
        {
            let mut script = self.script.borrow_mut();
            assert!(!script.inside, "{name} inside of another DDI of its class");
            script.inside = true;
            script.log.push(name.to_owned());
            if let Some(at) = script.callbacks.iter().position(|(of, _)| *of == name) {
                callbacks.extend(script.callbacks.remove(at).1);
            }
        }
        let before = callbacks.len();
        let result = ddi(&mut self.simulated, callbacks);
        self.log_interrupts(&callbacks[before..]);
        self.script.borrow_mut().inside = false;
        result
    }

    fn log_interrupts(&self, callbacks: &[Callback]) {
        for callback in callbacks {
            if let Callback::NotifyInterrupt(interrupt) = callback {
                self.script.borrow_mut().log.push(format!("interrupt {}", interrupt.number()));
            }
        }
    }

    fn failing(&self, name: &'static str) -> Result<(), NtStatus> {
        let mut script = self.script.borrow_mut();
        match script.failing {
            Some((of, status)) if of == name => {
                script.failing = None;
                Err(status)
            }
            _ => Ok(()),
        }
    }
}

impl Miniport for Recording {
    fn start(&mut self, config: &Config) {
        self.simulated.start(config);
    }

    fn validate(&self, commands: &[u8]) -> Result<(), BadCommands> {
        self.simulated.validate(commands)
    }

    fn submit_command(
        &mut self,
        now: Nanos,
        submission: Submission,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        self.failing("SubmitCommand")?;
        self.script.borrow_mut().submissions.push(submission.clone());
        self.scheduled("SubmitCommand", callbacks, |simulated, callbacks| {
            simulated.submit_command(now, submission, callbacks)
        })
    }

    fn patch(&mut self, _: EngineId, _: HwContext, submission_fence_id: u64) -> Result<(), NtStatus> {
        self.failing("Patch")?;
        self.script.borrow_mut().log.push(format!("Patch {submission_fence_id}"));
        Ok(())
    }

    fn preempt_command(
        &mut self,
        now: Nanos,
        engine: EngineId,
        preemption_fence_id: u64,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        self.failing("PreemptCommand")?;
        self.scheduled("PreemptCommand", callbacks, |simulated, callbacks| {
            simulated.preempt_command(now, engine, preemption_fence_id, callbacks)
        })
    }

    fn cancel_command(&mut self, _: HwContext, commands: &[u8]) -> Result<(), NtStatus> {
        self.failing("CancelCommand")?;
        self.script.borrow_mut().log.push(format!("CancelCommand {}", commands.len()));
        Ok(())
    }

    fn dpc_routine(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {
        let mut script = self.script.borrow_mut();
        assert!(!script.inside, "a DPC inside of a DDI");
        script.log.push("DPC".to_owned());
        if !script.forgets_dpc {
            callbacks.push(Callback::NotifyDpc { adapter });
        }
    }

    fn advertised_features(&self, adapter: u32) -> Vec<FeatureId> {
        let sound = self.simulated.advertised_features(adapter);
        sound.into_iter().chain(self.script.borrow().advertised.iter().copied()).collect()
    }

    fn per_engine_tdr_ddis(&self) -> PerEngineTdrDdis {
        self.script.borrow().ddis
    }

    fn set_scheduling_log_buffer(&mut self, engine: EngineId, buffer: SchedulingLogBuffer) {
        self.script.borrow_mut().scheduling_logs.push((engine, buffer));
    }

    fn begin_exclusive_access(&mut self, _: u32) {
        self.script.borrow_mut().log.push("BeginExclusiveAccess".to_owned());
    }

    fn iommu_mapping_changed(&mut self, _: u32, process: ProcessId, added: Option<u32>) {
        self.script.borrow_mut().log.push(format!("mapping of {} changes: {added:?}", process.0));
    }

    fn end_exclusive_access(&mut self, _: u32) {
        self.script.borrow_mut().log.push("EndExclusiveAccess".to_owned());
    }

    fn query_engine_status(&mut self, _: EngineId, callbacks: &mut Vec<Callback>) -> EngineStatus {
        let responsive = self.script.borrow().responsive;
        self.scheduled("QueryEngineStatus", callbacks, |_, _| EngineStatus { responsive })
    }

    fn query_dependent_engine_group(&mut self, engine: EngineId) -> u64 {
        let dependents = self.script.borrow().dependents;
        self.scheduled("QueryDependentEngineGroup", &mut Vec::new(), |_, _| {
            dependents.map_or(0, |others| others | 1 << engine.node)
        })
    }

    fn build_paging_buffer(&mut self, _: &PagingOperation) -> Option<Vec<u8>> {
        Some(isa::encode(&self.script.borrow().paging))
    }

    fn signal_monitored_fence(&mut self, buffer: &mut Vec<u8>, signal: SignalMonitoredFence) {
        self.simulated.signal_monitored_fence(buffer, signal);
    }

    fn has_begun(&self, engine: EngineId, submission_fence_id: u64) -> bool {
        self.simulated.has_begun(engine, submission_fence_id)
    }

    fn reset_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<u64, ResetFailed> {
        let aborted = self.script.borrow().aborted;
        self.script.borrow_mut().log.push(format!("engine {}", engine.node));
        let result = self.scheduled("ResetEngine", callbacks, |simulated, callbacks| {
            simulated.reset_engine(now, engine, callbacks)
        });
        aborted.map_or(result, Ok)
    }

    fn reset_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), ResetFailed> {
        self.scheduled("ResetHwEngine", callbacks, |simulated, callbacks| {
            simulated.reset_hw_engine(now, engine, callbacks)
        })
    }

    fn resume_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), ResetFailed> {
        if self.script.borrow().resume_fails {
            return Err(ResetFailed);
        }
        self.scheduled("ResumeHwEngine", callbacks, |simulated, callbacks| {
            simulated.resume_hw_engine(now, engine, callbacks)
        })
    }

    fn create_hw_queue(&mut self, new: &NewHwQueue) -> Result<(), NtStatus> {
        self.simulated.create_hw_queue(new)
    }

    fn destroy_hw_queue(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) {
        self.simulated.destroy_hw_queue(now, hw_queue, callbacks);
    }

    fn submit_command_to_hw_queue(
        &mut self,
        now: Nanos,
        submission: HwQueueSubmission,
        callbacks: &mut Vec<Callback>,
    ) {
        self.scheduled("SubmitCommandToHwQueue", callbacks, |simulated, callbacks| {
            simulated.submit_command_to_hw_queue(now, submission, callbacks);
        });
    }

    fn reset_from_timeout(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {
        self.scheduled("ResetFromTimeout", callbacks, |simulated, callbacks| {
            simulated.reset_from_timeout(adapter, callbacks);
        });
    }

    fn memory_evicted(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {
        self.scheduled("memory evicted", callbacks, |simulated, callbacks| {
            simulated.memory_evicted(adapter, callbacks);
        });
    }

    fn restart_from_timeout(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {
        self.scheduled("RestartFromTimeout", callbacks, |simulated, callbacks| {
            simulated.restart_from_timeout(adapter, callbacks);
        });
    }

    fn page_fault(
        &mut self,
        now: Nanos,
        engine: EngineId,
        gpu_address: u64,
        flags: PageFaultFlags,
        callbacks: &mut Vec<Callback>,
    ) {
        self.simulated.page_fault(now, engine, gpu_address, flags, callbacks);
    }

    fn fail_reset(&mut self, engine: EngineId) {
        self.simulated.fail_reset(engine);
    }

    fn destroy_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        submitted: Option<(EngineId, u64)>,
        callbacks: &mut Vec<Callback>,
    ) {
        self.script.borrow_mut().log.push("DestroyContext".to_owned());
        self.simulated.destroy_context(now, context, submitted, callbacks);
    }

    fn stop_device(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {
        self.simulated.stop_device(adapter, callbacks);
    }

    fn lose_interrupt(&mut self, engine: EngineId) {
        self.simulated.lose_interrupt(engine);
    }

    fn hang_engine(&mut self, engine: EngineId) {
        self.simulated.hang_engine(engine);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.simulated.next_deadline()
    }

    fn deadline(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        let before = callbacks.len();
        self.simulated.deadline(now, callbacks);
        let script = &mut *self.script.borrow_mut();
        if let Some(at) = script.callbacks.iter().position(|(of, _)| *of == "interrupt") {
            callbacks.extend(script.callbacks.remove(at).1);
        }
        for callback in &callbacks[before..] {
            if let Callback::NotifyInterrupt(interrupt) = callback {
                script.log.push(format!("interrupt {}", interrupt.number()));
            }
        }
    }

    fn engine_state(&self, engine: EngineId) -> EngineState {
        self.simulated.engine_state(engine)
    }

    fn pending_faults(&self, engine: EngineId) -> PendingFaults {
        self.simulated.pending_faults(engine)
    }
}

/// A callback that reports an interrupt.
pub fn interrupt(interrupt: Interrupt) -> Callback {
    Callback::NotifyInterrupt(interrupt)
}
