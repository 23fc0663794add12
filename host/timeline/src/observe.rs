//! A filter driver for replays that logs the DDI calls of the kernel and the runs of the engines.
//!
//! A trace has the kernel's inputs and answers. The runs of engines, and the queue that a value comes from, are visible
//! only between the kernel and its drivers, where this driver observes them. It changes nothing. The kernel reports
//! happens-before relations only if its configuration has race detection on. So that is switched on for the kernel
//! only: the drivers start with the trace's own configuration.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use d3dkmt::NtStatus;
use drivers::{Drivers, FilterDriver};
use dxgkrnl::ddi::{
    Agent, Callback, CurrentValueUpdate, EngineId, EngineState, HappensBefore, HwContext, HwQueueId,
    HwQueueSubmission, Interrupt, Miniport, NewHwQueue, PageFaultFlags, ResetFailed, Submission, Suspend,
};
use dxgkrnl::{Config, Nanos};

/// One observation; they are in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Observation {
    Context {
        engine: EngineId,
        context: HwContext,
    },
    HwQueue {
        engine: EngineId,
        hw_queue: HwQueueId,
    },
    Submitted {
        at: Nanos,
        engine: EngineId,
        queue: Agent,
        id: u64,
        resubmits: Option<u64>,
    },
    /// The engine runs this submission from now on, or none.
    Running {
        at: Nanos,
        engine: EngineId,
        id: Option<u64>,
        hung: bool,
    },
    /// An interrupt reported this submission as complete.
    Completed {
        at: Nanos,
        engine: EngineId,
        id: u64,
    },
    /// A reset, a page fault or a stop.
    Disruption {
        at: Nanos,
        adapter: u32,
        engine: Option<EngineId>,
        what: String,
    },
    /// An adapter stopped: all its queues are emptied.
    Stopped {
        adapter: u32,
    },
    HappensBefore {
        at: Nanos,
        edge: HappensBefore,
    },
}

/// Observations since the last step; shared by the observer and the builder.
#[derive(Default)]
pub(crate) struct Log {
    observations: Mutex<Vec<Observation>>,
    /// The latest time of a DDI call of this step; 0 before the first.
    at: AtomicU64,
}

impl Log {
    /// Begins a step.
    pub fn reset_time(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    pub fn take(&self) -> Vec<Observation> {
        std::mem::take(&mut *self.observations.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, observation: Observation) {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner).push(observation);
    }
}

pub(crate) struct Observer {
    drivers: Drivers,
    /// The trace's own configuration.
    config: Config,
    races: bool,
    log: Arc<Log>,
    /// The submission that each engine runs, and whether it hangs.
    engines: Vec<(EngineId, Option<u64>, bool)>,
}

impl Observer {
    pub fn new(drivers: Drivers, config: Config, log: Arc<Log>) -> Self {
        let adapters = (0..).zip(&config.adapters);
        let engines = adapters.flat_map(|(ordinal, adapter)| {
            let nodes = adapter.engines(ordinal).map(|(engine, _)| engine);
            let engines = nodes.chain(adapter.own_paging_engine(ordinal));
            engines.map(|engine| (engine, None, false)).collect::<Vec<_>>()
        });
        let engines = engines.collect();
        let races = config.adapters.iter().any(|adapter| adapter.hazards);
        Observer { drivers, config, races, log, engines }
    }

    fn observe(&self, observation: Observation) {
        self.log.push(observation);
    }

    fn at(&self) -> Nanos {
        self.log.at.load(Ordering::Relaxed)
    }

    /// Records the time of a DDI call.
    fn record_time(&self, now: Nanos) {
        self.log.at.fetch_max(now, Ordering::Relaxed);
    }

    /// Logs the current run of an engine, or of all, if it changed.
    fn record_engines(&mut self, engine_filter: Option<EngineId>) {
        let at = self.at();
        for (engine, running, hung) in &mut self.engines {
            if engine_filter.is_some_and(|engine_filter| engine_filter != *engine) {
                continue;
            }
            let (id, hangs) = match self.drivers.engine_state(*engine) {
                EngineState::Idle => (None, false),
                EngineState::Running { submission_fence_id, .. } => (Some(submission_fence_id), false),
                EngineState::Hung { submission_fence_id, .. } => (Some(submission_fence_id), true),
            };
            if (*running, *hung) != (id, hangs) {
                (*running, *hung) = (id, hangs);
                let observation = Observation::Running { at, engine: *engine, id, hung: hangs };
                self.log.push(observation);
            }
        }
    }

    /// Calls the drivers and logs the results.
    fn act<T>(
        &mut self,
        now: Nanos,
        engine: Option<EngineId>,
        callbacks: &mut Vec<Callback>,
        ddi: impl FnOnce(&mut Drivers, &mut Vec<Callback>) -> T,
    ) -> T {
        self.record_time(now);
        let before = callbacks.len();
        let answer = ddi(&mut self.drivers, callbacks);
        // An engine starts its next work before it reports completion.
        self.record_engines(engine);
        for callback in &callbacks[before..] {
            if let Callback::NotifyInterrupt(interrupt) = callback {
                self.interrupted(interrupt);
            }
        }
        answer
    }

    fn interrupted(&self, interrupt: &Interrupt) {
        let at = self.at();
        let disruption = |engine: &EngineId, what: String| Observation::Disruption {
            at,
            adapter: engine.adapter,
            engine: Some(*engine),
            what,
        };
        match interrupt {
            Interrupt::DmaCompleted { engine, submission_fence_id } => {
                self.observe(Observation::Completed { at, engine: *engine, id: *submission_fence_id });
            }
            Interrupt::DmaFaulted { engine, faulted_fence_id } => {
                self.observe(disruption(engine, format!("submission {faulted_fence_id} faulted")));
            }
            Interrupt::DmaPageFaulted { engine, gpu_address, .. }
            | Interrupt::HwQueuePageFaulted { engine, gpu_address, .. } => {
                self.observe(disruption(engine, format!("page fault at {gpu_address:#x}")));
            }
            Interrupt::GpuEngineTimeout { engine } => {
                self.observe(disruption(engine, "engine timeout".into()))
            }
            Interrupt::DmaPreempted { .. }
            | Interrupt::CrtcVsync { .. }
            | Interrupt::SchedulingLog { .. }
            | Interrupt::MonitoredFenceSignaled { .. }
            | Interrupt::SuspendContextCompleted { .. }
            | Interrupt::NativeFenceSignaled { .. }
            | Interrupt::EngineToF1 { .. }
            | Interrupt::PeriodicMonitoredFenceSignaled { .. } => {}
        }
    }

    fn observe_disruption(&mut self, adapter: u32, engine: Option<EngineId>, what: &str) {
        self.observe(Observation::Disruption { at: self.at(), adapter, engine, what: what.into() });
        self.record_engines(None);
    }
}

impl FilterDriver for Observer {
    fn inner(&self) -> &dyn Miniport {
        &self.drivers
    }

    fn inner_mut(&mut self) -> &mut dyn Miniport {
        &mut self.drivers
    }

    fn start(&mut self, _with_edges: &Config) {
        self.drivers.start(&self.config);
    }

    fn save(&self) -> Result<Vec<u8>, String> {
        self.drivers.save()
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        self.drivers.restore(state)
    }

    fn happens_before(&mut self, edge: &HappensBefore) -> Vec<String> {
        // A process may read a fence in its memory at any time; that ends no wait.
        if !matches!(edge, HappensBefore::Waited { by: Agent::Process(_), .. } | HappensBefore::Locked { .. })
        {
            self.observe(Observation::HappensBefore { at: self.at(), edge: *edge });
        }
        if self.races { self.drivers.happens_before(edge) } else { Vec::new() }
    }

    fn create_context(&mut self, engine: EngineId, context: HwContext) -> Result<(), NtStatus> {
        self.drivers.create_context(engine, context)?;
        self.observe(Observation::Context { engine, context });
        Ok(())
    }

    fn create_hw_queue(&mut self, new: &NewHwQueue) -> Result<(), NtStatus> {
        self.drivers.create_hw_queue(new)?;
        self.observe(Observation::HwQueue { engine: new.engine, hw_queue: new.hw_queue });
        Ok(())
    }

    fn submit_command(
        &mut self,
        now: Nanos,
        submission: Submission,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        let Submission { engine, context, submission_fence_id: id, resubmits, .. } = submission;
        let queue = Agent::Context(context);
        self.record_time(now);
        self.observe(Observation::Submitted { at: self.at(), engine, queue, id, resubmits });
        self.act(now, Some(engine), callbacks, |drivers, callbacks| {
            drivers.submit_command(now, submission, callbacks)
        })
    }

    fn submit_command_to_hw_queue(
        &mut self,
        now: Nanos,
        submission: HwQueueSubmission,
        callbacks: &mut Vec<Callback>,
    ) {
        let HwQueueSubmission { engine, hw_queue, submission_fence_id: id, .. } = submission;
        let queue = Agent::HwQueue(hw_queue);
        self.record_time(now);
        self.observe(Observation::Submitted { at: self.at(), engine, queue, id, resubmits: None });
        self.act(now, Some(engine), callbacks, |drivers, callbacks| {
            drivers.submit_command_to_hw_queue(now, submission, callbacks);
        });
    }

    fn preempt_command(
        &mut self,
        now: Nanos,
        engine: EngineId,
        preemption_fence_id: u64,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), NtStatus> {
        self.act(now, Some(engine), callbacks, |drivers, callbacks| {
            drivers.preempt_command(now, engine, preemption_fence_id, callbacks)
        })
    }

    fn ring_doorbell(
        &mut self,
        now: Nanos,
        hw_queue: HwQueueId,
        buffers: Vec<Vec<u8>>,
        callbacks: &mut Vec<Callback>,
    ) {
        self.act(now, None, callbacks, |drivers, callbacks| {
            drivers.ring_doorbell(now, hw_queue, buffers, callbacks);
        });
    }

    fn deadline(&mut self, now: Nanos, callbacks: &mut Vec<Callback>) {
        self.act(now, None, callbacks, |drivers, callbacks| drivers.deadline(now, callbacks));
    }

    fn destroy_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        submitted: Option<(EngineId, u64)>,
        callbacks: &mut Vec<Callback>,
    ) {
        self.act(now, None, callbacks, |drivers, callbacks| {
            drivers.destroy_context(now, context, submitted, callbacks);
        });
    }

    fn destroy_hw_queue(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) {
        self.act(now, None, callbacks, |drivers, callbacks| {
            drivers.destroy_hw_queue(now, hw_queue, callbacks)
        });
    }

    fn reset_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<u64, ResetFailed> {
        let answer = self.act(now, Some(engine), callbacks, |drivers, callbacks| {
            drivers.reset_engine(now, engine, callbacks)
        });
        let what = if answer.is_ok() { "engine reset" } else { "engine reset failed" };
        self.observe_disruption(engine.adapter, Some(engine), what);
        answer
    }

    fn reset_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), ResetFailed> {
        let answer = self.act(now, Some(engine), callbacks, |drivers, callbacks| {
            drivers.reset_hw_engine(now, engine, callbacks)
        });
        let what = if answer.is_ok() { "engine reset" } else { "engine reset failed" };
        self.observe_disruption(engine.adapter, Some(engine), what);
        answer
    }

    fn reset_from_timeout(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) -> Result<(), NtStatus> {
        let answer =
            self.act(0, None, callbacks, |drivers, callbacks| drivers.reset_from_timeout(adapter, callbacks));
        self.observe_disruption(adapter, None, "adapter reset");
        answer
    }

    fn stop_device(&mut self, adapter: u32, callbacks: &mut Vec<Callback>) {
        self.act(0, None, callbacks, |drivers, callbacks| drivers.stop_device(adapter, callbacks));
        self.observe_disruption(adapter, None, "adapter stopped");
        self.observe(Observation::Stopped { adapter });
    }

    fn page_fault(
        &mut self,
        now: Nanos,
        engine: EngineId,
        gpu_address: u64,
        flags: PageFaultFlags,
        callbacks: &mut Vec<Callback>,
    ) {
        self.act(now, Some(engine), callbacks, |drivers, callbacks| {
            drivers.page_fault(now, engine, gpu_address, flags, callbacks);
        });
    }

    fn resume_hw_engine(
        &mut self,
        now: Nanos,
        engine: EngineId,
        callbacks: &mut Vec<Callback>,
    ) -> Result<(), ResetFailed> {
        self.act(now, Some(engine), callbacks, |drivers, callbacks| {
            drivers.resume_hw_engine(now, engine, callbacks)
        })
    }

    fn suspend_context(
        &mut self,
        now: Nanos,
        context: HwContext,
        suspend_fence: u64,
        callbacks: &mut Vec<Callback>,
    ) -> Suspend {
        self.act(now, None, callbacks, |drivers, callbacks| {
            drivers.suspend_context(now, context, suspend_fence, callbacks)
        })
    }

    fn resume_context(&mut self, now: Nanos, context: HwContext, callbacks: &mut Vec<Callback>) {
        self.act(now, None, callbacks, |drivers, callbacks| drivers.resume_context(now, context, callbacks));
    }

    fn notify_work_submission(&mut self, now: Nanos, hw_queue: HwQueueId, callbacks: &mut Vec<Callback>) {
        self.act(now, None, callbacks, |drivers, callbacks| {
            drivers.notify_work_submission(now, hw_queue, callbacks);
        });
    }

    fn update_current_values_from_cpu(
        &mut self,
        now: Nanos,
        updates: &[CurrentValueUpdate],
        callbacks: &mut Vec<Callback>,
    ) {
        self.act(now, None, callbacks, |drivers, callbacks| {
            drivers.update_current_values_from_cpu(now, updates, callbacks);
        });
    }

    fn hang_engine(&mut self, engine: EngineId) {
        self.drivers.hang_engine(engine);
        self.record_engines(Some(engine));
    }
}
