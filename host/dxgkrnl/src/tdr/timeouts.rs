//! Detection of timeouts, and the recovery steps that run once no DDI runs.

use alloc::format;
use alloc::vec::Vec;

use super::back_off::PATIENCE_NS;
use super::{Cause, Recovery, Watch};
use crate::ddi::{EngineId, HwContext, RunningContext};
use crate::effects::Effects;
use crate::ids::earliest;
use crate::kernel::Kernel;
use crate::vidsch::{OnEngine, QUANTUM_NS, Submitted, Submitter, VM_SLICE_NS};
use crate::{AdapterConfig, Nanos, VidSchCaps};

impl Kernel {
    /// Whether timeouts are detected at all (TDR-005, TDR-006).
    pub(super) fn detects_timeouts(&self) -> bool {
        self.config.tdr.level != 0 && self.tdr.debug_mode != 1 && self.tdr.bugcheck.is_none()
    }

    /// Whether the oldest submission of an engine is exempt from timeouts (SCH-016): not while another VM waits.
    fn is_exempt(&self, engine: &OnEngine) -> bool {
        let exempt = |one: &Submitted| self.has_no_timeout(one) && !engine.is_wanted_by_other(one.vm);
        engine.submitted.front().is_some_and(exempt)
    }

    /// Whether a submission has DisableGpuTimeout, or is of a paused VM.
    fn has_no_timeout(&self, one: &Submitted) -> bool {
        self.is_queue_exempt(one.queue) || self.is_paused(one.vm)
    }

    /// The VM that a queue's engine time is charged to, and whether the queue is exempt from timeouts.
    pub(crate) fn submitter(&self, queue: u32) -> Submitter {
        let process = self.vidsch.queues()[queue].process;
        Submitter { process, vm: self.process(process).vm, is_exempt: self.is_queue_exempt(queue) }
    }

    /// Whether a queue, its context or its device has DisableGpuTimeout.
    pub(super) fn is_queue_exempt(&self, queue: u32) -> bool {
        let queue = &self.vidsch.queues()[queue];
        let context = self.vidsch.contexts().get(queue.context);
        let of_context = context
            .is_some_and(|context| context.flags.contains(d3dkmt::CreateContextFlags::DISABLE_GPU_TIMEOUT));
        let of_hw_queue = queue
            .hw_queue
            .and_then(|id| self.vidsch.hw_queues().get(id))
            .is_some_and(|hw_queue| hw_queue.flags.contains(d3dkmt::HwQueueFlags::DISABLE_GPU_TIMEOUT));
        of_hw_queue || of_context || self.processes.devices()[queue.device].disable_gpu_timeout
    }

    /// When an engine's watch is next due.
    pub(crate) fn watch_due(&self, id: EngineId) -> Option<Nanos> {
        self.watch_due_of(id, self.vidsch.in_flight().engines.get(&id)?)
    }

    fn watch_due_of(&self, id: EngineId, engine: &OnEngine) -> Option<Nanos> {
        match &engine.watch {
            Watch::Resetting { until, .. } => Some(*until),
            // It is reset with the group of another engine, whose watch is due.
            _ if self.tdr.is_held(id) => None,
            Watch::Running if engine.submitted.is_empty() => None,
            Watch::Running if self.caps(id).contains(VidSchCaps::PREEMPTION_AWARE) => {
                // No preemption is due if no other work is ready and the running work is exempt from timeouts.
                let has_other_work = engine.submitted.len() + engine.ready.len() > 1;
                (has_other_work || self.times_out(engine))
                    .then(|| engine.since.saturating_add(self.slice(engine)))
            }
            Watch::Running => self.times_out(engine).then(|| self.end_of_patience(engine, engine.since)),
            Watch::Preempting { since, .. } => {
                self.times_out(engine).then(|| self.end_of_patience(engine, *since))
            }
            Watch::Held => None,
        }
    }

    pub(super) fn times_out(&self, engine: &OnEngine) -> bool {
        self.detects_timeouts() && !self.is_exempt(engine)
    }

    /// How long the oldest submission runs before the engine is asked to preempt it.
    fn slice(&self, engine: &OnEngine) -> Nanos {
        match engine.submitted.front() {
            Some(one) if engine.is_wanted_by_other(one.vm) => VM_SLICE_NS,
            Some(_) | None => QUANTUM_NS,
        }
    }

    /// When work without progress since `since` times out: after TdrDelay. Exempt work has TdrDelay from the arrival of
    /// another VM; work of a VM that is backed off has less.
    fn end_of_patience(&self, engine: &OnEngine, since: Nanos) -> Nanos {
        let delay = self.config.tdr.delay_ns;
        let in_time = since.saturating_add(delay);
        let contended_since = since.max(engine.contended_since);
        match engine.submitted.front() {
            Some(one) if self.tdr.is_backed_off(one.vm, self.now) && engine.is_wanted_by_other(one.vm) => {
                in_time.min(contended_since.saturating_add(PATIENCE_NS))
            }
            Some(one) if self.has_no_timeout(one) => contended_since.saturating_add(delay),
            Some(_) | None => in_time,
        }
    }

    /// Whether an engine is too slow to give up work of a VM that is backed off. Such work does not get TdrDelay while
    /// other VMs wait.
    pub(super) fn is_over_patience(&self, id: EngineId) -> bool {
        let Some(engine) = self.vidsch.in_flight().engines.get(&id) else { return false };
        let Watch::Preempting { since, .. } = engine.watch else { return false };
        let is_early = self.now < since.saturating_add(self.config.tdr.delay_ns);
        is_early
            && self.watch_due(id).is_some_and(|due| due <= self.now)
            && self.miniport.running_context(id) != RunningContext::None
    }

    /// When an engine times out that keeps giving back its submissions without beginning one.
    pub(super) fn unserved_due(&self, id: EngineId) -> Option<Nanos> {
        self.unserved_due_of(id, self.vidsch.in_flight().engines.get(&id)?)
    }

    fn unserved_due_of(&self, id: EngineId, engine: &OnEngine) -> Option<Nanos> {
        let since = engine.unserved_since?;
        let is_watched = !engine.submitted.is_empty() && !self.is_held(id) && self.times_out(engine);
        // As late as for a submission that began and was then to be preempted.
        is_watched.then(|| since.saturating_add(QUANTUM_NS).saturating_add(self.config.tdr.delay_ns))
    }

    /// When the next watch of an engine is due.
    pub(crate) fn scheduler_deadline(&self) -> Option<Nanos> {
        if self.tdr.bugcheck.is_some() {
            return None;
        }
        let due = |(id, engine): (&EngineId, &OnEngine)| {
            let of_hw_queues = self.hw_queues_due_of(*id, engine);
            earliest(
                earliest(self.watch_due_of(*id, engine), of_hw_queues),
                self.unserved_due_of(*id, engine),
            )
        };
        self.vidsch.in_flight().engines.iter().map(due).fold(None, earliest)
    }

    /// Acts on the engines whose watch is due.
    pub(crate) fn scheduler_due(&mut self, effects: &mut Effects) {
        let engines: Vec<EngineId> = self.vidsch.in_flight().engines.keys().copied().collect();
        for engine in engines {
            let now = self.now;
            let is_due = |due: Option<Nanos>| due.is_some_and(|due| due <= now);
            let is_unserved = is_due(self.unserved_due(engine)) && !self.has_begun_oldest(engine);
            if is_due(self.hw_queues_due(engine)) || is_unserved {
                self.vidsch.work_mut().recover(Recovery::Timeout { engine, cause: Cause::TIMEOUT });
                continue;
            }
            if !is_due(self.watch_due(engine)) {
                continue;
            }
            let can_preempt = self.caps(engine).contains(VidSchCaps::PREEMPTION_AWARE);
            match self.vidsch.engine_mut(engine).watch {
                Watch::Running if can_preempt => {
                    self.request_preemption(engine, true, effects);
                }
                Watch::Running | Watch::Preempting { .. } => {
                    self.vidsch.work_mut().recover(Recovery::Timeout { engine, cause: Cause::TIMEOUT });
                }
                // `reset_ready_group` checks whether the time is over.
                Watch::Resetting { .. } | Watch::Held => {}
            }
        }
    }

    /// Whether an engine has begun its oldest submission. If so, only [`Kernel::watch_due`] watches its time.
    fn has_begun_oldest(&mut self, engine: EngineId) -> bool {
        let oldest = self.vidsch.engine_mut(engine).submitted.front().map(|one| one.id);
        let has_begun = oldest.is_none_or(|id| self.miniport.has_begun(engine, id));
        if has_begun {
            self.vidsch.engine_mut(engine).unserved_since = None;
        }
        has_begun
    }

    /// Interrupt 16: the hardware found the timeout itself.
    pub(crate) fn engine_timed_out(&mut self, engine: EngineId, effects: &mut Effects) {
        if self.detects_timeouts() {
            self.vidsch.work_mut().recover(Recovery::Timeout { engine, cause: Cause::TIMEOUT });
        } else {
            self.note_host(
                format!("interrupt 16 of node {}: timeout detection is off", engine.node),
                effects,
            );
        }
    }

    /// A thread was inside the driver for `nanos` (TDR-002).
    pub(crate) fn driver_was_stuck(&mut self, nanos: Nanos, effects: &mut Effects) {
        if self.config.tdr.level != 0 && nanos > self.config.tdr.ddi_delay_ns {
            let why = format!("a thread was inside of the driver for {nanos} ns, longer than TdrDdiDelay");
            self.bugcheck(0x116, [0, 0, 0, 0], why, effects);
        }
    }

    pub(crate) fn recover(&mut self, recovery: Recovery, effects: &mut Effects) {
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
    }

    /// Resets a group of engines that is ready for it; true if there was one.
    pub(crate) fn reset_ready_group(&mut self, effects: &mut Effects) -> bool {
        let ready = self.tdr.waiting.iter().position(|engine| self.group_is_ready(*engine));
        let Some(at) = ready else { return false };
        let engine = self.tdr.waiting.remove(at);
        self.reset_group(engine, effects);
        true
    }

    /// TdrLevel and TdrDebugMode decide what a timeout leads to (TDR-005, TDR-006).
    fn timeout(&mut self, engine: EngineId, cause: Cause, effects: &mut Effects) {
        if self.tdr.bugcheck.is_some()
            || self.tdr.stopped_adapters.contains(&engine.adapter)
            || self.is_held(engine)
        {
            return;
        }
        let EngineId { adapter, node } = engine;
        if !self.may_recover_timeout(&format!("engine {adapter}.{node}"), effects) {
            return;
        }
        // An engine that only pages is no node of its own, so the adapter is reset (TDR-014).
        let is_node = node != AdapterConfig::OWN_PAGING_NODE;
        if is_node && self.caps(engine).contains(VidSchCaps::SUPPORT_PER_ENGINE_TDR) {
            self.begin_engine_reset(engine, cause, effects);
        } else {
            let guilty = self.devices_at_work(engine);
            self.reset_adapter(adapter, &guilty, &cause, effects);
        }
    }

    /// Whether the kernel recovers from a timeout of `subject`; raises a bugcheck if not.
    pub(super) fn may_recover_timeout(&mut self, subject: &str, effects: &mut Effects) -> bool {
        let level = self.config.tdr.level;
        if matches!(level, 1 | 2) {
            let why = format!("{subject} timed out at TdrLevel {level}, which does not recover");
            self.bugcheck(0x116, [0, 0, 0, 0], why, effects);
            return false;
        }
        if self.tdr.debug_mode == 0 {
            self.note_host(format!("{subject} timed out: here a debugger would break in"), effects);
        }
        true
    }

    /// True while a reset of this engine or its adapter is under way.
    pub(crate) fn is_held(&self, engine: EngineId) -> bool {
        self.tdr.is_held(engine)
            || self.vidsch.in_flight().engines.get(&engine).is_some_and(|engine| engine.watch.is_masked())
    }

    /// The devices whose work an engine runs: that of the context it reports as running, or else of the oldest
    /// submission.
    pub(super) fn devices_at_work(&self, engine: EngineId) -> Vec<u32> {
        if let RunningContext::Context(HwContext(context)) = self.miniport.running_context(engine)
            && let Some(context) = self.vidsch.contexts().get(context)
        {
            return alloc::vec![context.device];
        }
        let oldest = self.vidsch.in_flight().engines.get(&engine).and_then(|engine| engine.submitted.front());
        match oldest {
            Some(submitted) => alloc::vec![self.vidsch.queues()[submitted.queue].device],
            None => self.oldest_hw_device(engine).into_iter().collect(),
        }
    }

    fn stop_everything(&mut self, effects: &mut Effects) {
        self.vidsch.work_mut().forget_recoveries();
        self.tdr.waiting.clear();
        for adapter in 0..self.config.adapters.len() as u32 {
            if !self.tdr.stopped_adapters.contains(&adapter) {
                self.stop_adapter(adapter, effects);
            }
        }
    }
}
