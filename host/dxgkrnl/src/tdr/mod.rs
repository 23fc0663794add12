//! Timeout detection and recovery.
//!
//! ```text
//!   Running --quantum, or a higher priority--> Preempting --answer--> Running
//!                                                  |  no progress for TdrDelay, and the work is not exempt
//!                                                  v
//!                     TdrLevel 1, 2: bugcheck 0x116        QueryEngineStatus: responsive --> Preempting
//!                                                  |
//!     queue empty --> Running              Resetting: interrupts of the engine are ignored from here on
//!                                                  |  flush the DPC; dependent engines get 500 ms to preempt
//!                                                  v
//!                ResetEngine, or ResetHwEngine and ResumeHwEngine, of the group in the order of engines
//!                          |                                      |  it fails, or a paging packet was hit
//!                          v                                      v
//!        the devices of what was aborted are lost        ResetFromTimeout, eviction, RestartFromTimeout:
//!        (HUNG), the rest is submitted again             every device of the adapter is lost
//! ```
//! Nothing here calls a DDI from inside of another: what is to be done stands in [`Tdr::due`] until the kernel is
//! out of the driver.
//!
//! `engine.rs` resets engines, `hardware.rs` is what that is for hardware queues, `adapter.rs` resets adapters,
//! `device.rs` is what a lost device costs, `poison.rs` what becomes of its fences, `page_fault.rs` has the faults,
//! `test_hooks.rs` what a test may force.

mod adapter;
mod device;
mod engine;
mod hardware;
mod page_fault;
mod poison;
mod test_hooks;

use alloc::borrow::Cow;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{DeviceExecutionState, PageFaultState};

pub(crate) use device::Loss;
use serde::{Deserialize, Serialize};

use crate::ddi::{EngineId, Invalidation, Miniport};
use crate::effects::Effects;
use crate::kernel::{Kernel, earliest};
use crate::vidsch::QUANTUM_NS;
use crate::{AdapterConfig, Nanos, VidSchCaps};

/// What the kernel waits for from one engine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Watch {
    /// Nothing was asked of it.
    #[default]
    Running,
    /// It was asked to preempt and has not answered.
    Preempting { preemption_fence_id: u64, since: Nanos, time_is_up: bool },
    /// It timed out: its interrupts are ignored, dependent engines are preempted until that time.
    Resetting { until: Nanos, group: Vec<EngineId>, cause: Cause },
    /// Its adapter is being reset, or its contexts may not run: it is given nothing.
    Held,
}

impl Watch {
    /// Whether DMA interrupts of the engine are ignored.
    pub fn is_masked(&self) -> bool {
        matches!(self, Watch::Resetting { .. } | Watch::Held)
    }
}

/// Why an engine is reset, and what that makes of the device that it hits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Cause {
    pub why: Cow<'static, str>,
    pub state: DeviceExecutionState,
    pub page_fault: Option<PageFaultState>,
    /// It is a timeout: it counts against the process.
    pub timeout: bool,
    /// The engine is not asked whether it is at work after all.
    pub is_certain: bool,
}

impl Cause {
    const TIMEOUT: Cause = Cause {
        why: Cow::Borrowed("timeout"),
        state: DeviceExecutionState::HUNG,
        page_fault: None,
        timeout: true,
        is_certain: false,
    };
    const SUSPEND: Cause =
        Cause { why: Cow::Borrowed("a suspend is not acknowledged"), is_certain: true, ..Cause::TIMEOUT };
}

/// What is to be done as soon as no DDI runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Recovery {
    /// After a bugcheck.
    StopEverything,
    /// An engine did not answer in time.
    Timeout {
        engine: EngineId,
        cause: Cause,
    },
    ResetEngine {
        engine: EngineId,
        cause: Cause,
    },
    ResetAdapter {
        adapter: u32,
        guilty: Vec<u32>,
        cause: Cause,
    },
    /// As if the whole adapter had timed out.
    ForcedTimeout {
        adapter: u32,
    },
    Lose(Loss),
}

/// What the recovery remembers.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Tdr {
    pub due: VecDeque<Recovery>,
    /// Engines that are `Resetting`.
    pub waiting: Vec<EngineId>,
    /// They, and the engines that depend on them.
    pub held: BTreeSet<EngineId>,
    /// Adapters between ResetFromTimeout and RestartFromTimeout.
    pub resetting: BTreeSet<u32>,
    /// What the driver said in the ResetHwEngine that runs: contexts and why.
    pub invalidated: Vec<(u32, Invalidation)>,
    /// When adapters were reset, for TdrLimitCount.
    pub recoveries: VecDeque<Nanos>,
    pub engine_resets: u64,
    pub adapter_resets: u64,
    /// TdrDebugMode: the configuration's, until TDRDBGCTRL says otherwise.
    pub debug_mode: u32,
}

impl Tdr {
    /// Nothing is to be recovered.
    pub fn is_settled(&self) -> bool {
        self.due.is_empty() && self.waiting.is_empty()
    }

    /// True for the engines of a group one of which is about to be reset: they are given nothing.
    pub fn holds(&self, engine: EngineId) -> bool {
        self.held.contains(&engine)
    }

    /// Nothing of this adapter is under way any more.
    pub fn forget_adapter(&mut self, adapter: u32) {
        self.waiting.retain(|engine| engine.adapter != adapter);
        self.held.retain(|engine| engine.adapter != adapter);
        self.resetting.remove(&adapter);
    }
}

impl<M: Miniport> Kernel<M> {
    /// Whether timeouts are looked for at all (TDR-005, TDR-006).
    fn detects_timeouts(&self) -> bool {
        self.config.tdr.level != 0 && self.tdr.debug_mode != 1 && self.bugcheck.is_none()
    }

    /// Whether the oldest submission of an engine may take as long as it likes (SCH-016).
    fn is_exempt(&self, engine: EngineId) -> bool {
        let oldest = self.in_flight.engines.get(&engine).and_then(|engine| engine.submitted.front());
        oldest.is_some_and(|one| self.is_queue_exempt(one.queue))
    }

    /// DisableGpuTimeout of a queue, its context or its device.
    fn is_queue_exempt(&self, queue: u32) -> bool {
        let queue = &self.queues[queue];
        let context = self.contexts.get(queue.context);
        let of_context = context
            .is_some_and(|context| context.flags.contains(d3dkmt::CreateContextFlags::DISABLE_GPU_TIMEOUT));
        let of_hw_queue = queue
            .hw_queue
            .and_then(|id| self.hw_queues.get(id))
            .is_some_and(|hw_queue| hw_queue.flags.contains(d3dkmt::HwQueueFlags::DISABLE_GPU_TIMEOUT));
        of_hw_queue || of_context || self.devices[queue.device].disable_gpu_timeout
    }

    /// When an engine's watch is next due.
    pub(crate) fn watch_due(&self, id: EngineId) -> Option<Nanos> {
        let engine = self.in_flight.engines.get(&id)?;
        let delay = self.config.tdr.delay_ns;
        match &engine.watch {
            Watch::Running if engine.submitted.is_empty() => None,
            Watch::Running if self.caps(id).contains(VidSchCaps::PREEMPTION_AWARE) => {
                // Nobody asks for the engine if nobody wants it and the work may take as long as it likes.
                let wanted = engine.submitted.len() + engine.ready.len() > 1;
                (wanted || self.times_out(id)).then(|| engine.since.saturating_add(QUANTUM_NS))
            }
            Watch::Running => self.times_out(id).then(|| engine.since.saturating_add(delay)),
            Watch::Preempting { since, .. } => self.times_out(id).then(|| since.saturating_add(delay)),
            Watch::Resetting { until, .. } => Some(*until),
            Watch::Held => None,
        }
    }

    fn times_out(&self, engine: EngineId) -> bool {
        self.detects_timeouts() && !self.is_exempt(engine)
    }

    /// When the scheduler next wants to look at an engine.
    pub(crate) fn scheduler_deadline(&self) -> Option<Nanos> {
        if self.bugcheck.is_some() {
            return None;
        }
        let engines = self.in_flight.engines.keys();
        let due = |engine: &EngineId| earliest(self.watch_due(*engine), self.hw_queues_due(*engine));
        engines.map(due).fold(None, earliest)
    }

    /// Looks at the engines whose time has come.
    pub(crate) fn scheduler_due(&mut self, effects: &mut Effects) {
        let engines: Vec<EngineId> = self.in_flight.engines.keys().copied().collect();
        for engine in engines {
            let is_due = |due: Option<Nanos>| due.is_some_and(|due| due <= self.now);
            if is_due(self.hw_queues_due(engine)) {
                self.tdr.due.push_back(Recovery::Timeout { engine, cause: Cause::TIMEOUT });
                continue;
            }
            if !is_due(self.watch_due(engine)) {
                continue;
            }
            let can_preempt = self.caps(engine).contains(VidSchCaps::PREEMPTION_AWARE);
            match self.in_flight.engine(engine).watch {
                Watch::Running if can_preempt => {
                    self.request_preemption(engine, true, effects);
                }
                Watch::Running | Watch::Preempting { .. } => {
                    self.tdr.due.push_back(Recovery::Timeout { engine, cause: Cause::TIMEOUT });
                }
                // `recover` finds that the time is over.
                Watch::Resetting { .. } | Watch::Held => {}
            }
        }
    }

    /// Interrupt 16: the hardware found the timeout itself.
    pub(crate) fn engine_timed_out(&mut self, engine: EngineId, effects: &mut Effects) {
        if self.detects_timeouts() {
            self.tdr.due.push_back(Recovery::Timeout { engine, cause: Cause::TIMEOUT });
        } else {
            self.note_host(
                format!("interrupt 16 of node {}: timeouts are not looked for", engine.node),
                effects,
            );
        }
    }

    /// A thread did not come back from the driver for that long (TDR-002).
    pub(crate) fn driver_was_stuck(&mut self, nanos: Nanos, effects: &mut Effects) {
        if self.config.tdr.level != 0 && nanos > self.config.tdr.ddi_delay_ns {
            let why = format!("a thread was inside of the driver for {nanos} ns, longer than TdrDdiDelay");
            self.bugcheck(0x116, [0, 0, 0, 0], why, effects);
        }
    }

    /// Does one thing that is due; true if there was one.
    pub(crate) fn recover(&mut self, effects: &mut Effects) -> bool {
        if let Some(recovery) = self.tdr.due.pop_front() {
            match recovery {
                Recovery::StopEverything => self.stop_everything(effects),
                Recovery::Lose(loss) => self.lose(loss, effects),
                Recovery::ResetAdapter { adapter, guilty, cause } => {
                    self.reset_adapter(adapter, &guilty, &cause, effects);
                }
                Recovery::ForcedTimeout { adapter } => self.forced_timeout(adapter, effects),
                Recovery::ResetEngine { engine, cause } => self.begin_engine_reset(engine, cause, effects),
                Recovery::Timeout { engine, cause } => self.timeout(engine, cause, effects),
            }
            return true;
        }
        let Some(at) = self.tdr.waiting.iter().position(|engine| self.group_is_ready(*engine)) else {
            return false;
        };
        let engine = self.tdr.waiting.remove(at);
        self.reset_group(engine, effects);
        true
    }

    /// TdrLevel and TdrDebugMode decide what a timeout leads to (TDR-005, TDR-006).
    fn timeout(&mut self, engine: EngineId, cause: Cause, effects: &mut Effects) {
        if self.bugcheck.is_some() || self.stopped_adapters.contains(&engine.adapter) || self.is_held(engine)
        {
            return;
        }
        let EngineId { adapter, node } = engine;
        if !self.recovers(&format!("engine {adapter}.{node}"), effects) {
            return;
        }
        // An engine that only pages is no node that could be reset by itself: the adapter is (TDR-014).
        let is_node = node != AdapterConfig::OWN_PAGING_NODE;
        if is_node && self.caps(engine).contains(VidSchCaps::SUPPORT_PER_ENGINE_TDR) {
            self.begin_engine_reset(engine, cause, effects);
        } else {
            let guilty = self.oldest_devices(engine);
            self.reset_adapter(adapter, &guilty, &cause, effects);
        }
    }

    /// Whether what timed out is recovered from; else it is a bugcheck.
    fn recovers(&mut self, what: &str, effects: &mut Effects) -> bool {
        let level = self.config.tdr.level;
        if matches!(level, 1 | 2) {
            let why = format!("{what} timed out at TdrLevel {level}, which does not recover");
            self.bugcheck(0x116, [0, 0, 0, 0], why, effects);
            return false;
        }
        if self.tdr.debug_mode == 0 {
            self.note_host(format!("{what} timed out: here a debugger would break in"), effects);
        }
        true
    }

    /// True while a reset of this engine or its adapter is under way.
    pub(crate) fn is_held(&self, engine: EngineId) -> bool {
        self.tdr.holds(engine)
            || self.in_flight.engines.get(&engine).is_some_and(|engine| engine.watch.is_masked())
    }

    /// Whose work an engine is at.
    fn oldest_devices(&self, engine: EngineId) -> Vec<u32> {
        let oldest = self.in_flight.engines.get(&engine).and_then(|engine| engine.submitted.front());
        match oldest {
            Some(one) => alloc::vec![self.queues[one.queue].device],
            None => self.oldest_hw_device(engine).into_iter().collect(),
        }
    }

    fn stop_everything(&mut self, effects: &mut Effects) {
        self.tdr.due.clear();
        self.tdr.waiting.clear();
        for adapter in 0..self.config.adapters.len() as u32 {
            if !self.stopped_adapters.contains(&adapter) {
                self.stop_adapter(adapter, effects);
            }
        }
    }
}
