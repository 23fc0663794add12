//! Detection of timeouts, and the recovery steps that run once no DDI runs.

use alloc::format;
use alloc::vec::Vec;

use super::back_off::PATIENCE_NS;
use super::bugcheck::VIDEO_TDR_FAILURE;
use super::{Cause, Recovery, Watch};
use crate::ddi::{EngineId, HwContext, RunningContext};
use crate::effects::Effects;
use crate::ids::earliest;
use crate::kernel::Kernel;
use crate::vidsch::{OnEngine, QUANTUM_NS, Queue, Submitted, Submitter, VM_SLICE_NS};
use crate::{AdapterConfig, Nanos, VidSchCaps, VmId};

impl Kernel {
    /// Whether timeouts are detected at all (TDR-005, TDR-006).
    pub(super) fn detects_timeouts(&self) -> bool {
        self.config.tdr.level != 0 && self.tdr.debug_mode != 1 && self.tdr.bugcheck.is_none()
    }

    /// The VM of the work that an engine runs, if that work is exempt from timeouts (SCH-016): it has DisableGpuTimeout,
    /// or its VM is paused. What waits for the engine does not matter. `suspected` is the answer for a driver that does not
    /// tell what runs.
    fn exempt_vm(
        &self,
        id: EngineId,
        engine: &OnEngine,
        suspected: impl FnOnce() -> Option<VmId>,
    ) -> Option<VmId> {
        match self.miniport.running_context(id) {
            RunningContext::Context(HwContext(context)) => self.exempt_vm_of(engine, context),
            RunningContext::None | RunningContext::Unknown => suspected(),
        }
    }

    /// The VM of a context that an engine runs, if what runs is exempt. The driver names no queue: one exempt hardware
    /// queue of the context with work there is enough.
    fn exempt_vm_of(&self, engine: &OnEngine, id: u32) -> Option<VmId> {
        let context = self.vidsch.contexts().get(id)?;
        let vm = self.process(context.process).vm;
        let is_of_it = |one: &Submitted| self.vidsch.queues()[one.queue].context == id;
        let is_exempt = self.is_paused(vm)
            || self.is_queue_exempt(context.queue)
            || match engine.hw_work.has_work_of(id) || engine.submitted.iter().any(is_of_it) {
                true => engine.hw_work.has_exempt_of(id),
                // A buffer runs on that wrote its progress fence before its end.
                false => context.hardware.exempt_queues > 0,
            };
        is_exempt.then_some(vm)
    }

    /// The VM of the oldest submission, if that is exempt.
    pub(super) fn exempt_vm_of_oldest(&self, engine: &OnEngine) -> Option<VmId> {
        let is_exempt = |one: &&Submitted| self.is_queue_exempt(one.queue) || self.is_paused(one.vm);
        engine.submitted.front().filter(is_exempt).map(|one| one.vm)
    }

    /// From when on the time of an engine counts that makes no progress since `since`. Exempt work has its time from the
    /// arrival of another VM that wants the engine; `None` as long as there is none.
    pub(super) fn counts_since(
        &self,
        id: EngineId,
        engine: &OnEngine,
        since: Nanos,
        suspected: impl FnOnce() -> Option<VmId>,
    ) -> Option<Nanos> {
        if !self.detects_timeouts() {
            return None;
        }
        match self.exempt_vm(id, engine, suspected) {
            Some(vm) => engine.is_wanted_by_other(vm).then(|| since.max(engine.contended_since)),
            None => Some(since),
        }
    }

    /// [`Kernel::counts_since`] of submissions: if the driver does not tell what runs, the oldest one does.
    fn submissions_count_since(&self, id: EngineId, engine: &OnEngine, since: Nanos) -> Option<Nanos> {
        self.counts_since(id, engine, since, || self.exempt_vm_of_oldest(engine))
    }

    /// The process, context and VM that the work of a queue is of, and whether the queue is exempt from timeouts.
    pub(crate) fn submitter(&self, queue: u32) -> Submitter {
        let is_exempt = self.is_queue_exempt(queue);
        let &Queue { process, context, .. } = &self.vidsch.queues()[queue];
        Submitter { process, context, vm: self.process(process).vm, is_exempt }
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
    pub(super) fn watch_due(&self, id: EngineId) -> Option<Nanos> {
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
                (has_other_work || self.submissions_count_since(id, engine, engine.since).is_some())
                    .then(|| engine.since.saturating_add(self.slice(engine)))
            }
            Watch::Running => self.end_of_patience(id, engine, engine.since),
            Watch::Preempting { since, .. } => self.end_of_patience(id, engine, *since),
            Watch::Held => None,
        }
    }

    /// How long the oldest submission runs before the engine is asked to preempt it.
    fn slice(&self, engine: &OnEngine) -> Nanos {
        match engine.submitted.front() {
            Some(one) if engine.is_wanted_by_other(one.vm) => VM_SLICE_NS,
            Some(_) | None => QUANTUM_NS,
        }
    }

    /// When submissions without progress since `since` time out: after TdrDelay. Work of a VM that is backed off has less.
    fn end_of_patience(&self, id: EngineId, engine: &OnEngine, since: Nanos) -> Option<Nanos> {
        let counts_since = self.submissions_count_since(id, engine, since)?;
        let in_time = counts_since.saturating_add(self.config.tdr.delay_ns);
        match engine.submitted.front() {
            Some(one) if self.tdr.is_backed_off(one.vm, self.now) && engine.is_wanted_by_other(one.vm) => {
                let contended_since = since.max(engine.contended_since);
                Some(in_time.min(contended_since.saturating_add(PATIENCE_NS)))
            }
            Some(_) | None => Some(in_time),
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

    /// Whether an engine answered neither of two preemption requests in a row and runs nothing, as far as its driver tells.
    /// A lost answer is repeated at the second; a driver that answers with other ids would never give its submissions back.
    pub(super) fn ignores_preemption(&self, id: EngineId) -> bool {
        let Some(engine) = self.vidsch.in_flight().engines.get(&id) else { return false };
        let Watch::Preempting { is_repeated: true, is_misanswered, .. } = engine.watch else { return false };
        let is_late = self.watch_due(id).is_some_and(|due| due <= self.now);
        is_late
            && match self.miniport.running_context(id) {
                RunningContext::None => true,
                RunningContext::Unknown => is_misanswered,
                RunningContext::Context(_) => false,
            }
    }

    /// When an engine times out that keeps giving back its submissions without beginning one.
    pub(super) fn unserved_due(&self, id: EngineId) -> Option<Nanos> {
        self.unserved_due_of(id, self.vidsch.in_flight().engines.get(&id)?)
    }

    fn unserved_due_of(&self, id: EngineId, engine: &OnEngine) -> Option<Nanos> {
        let since = engine.unserved_since?;
        if engine.submitted.is_empty() || self.is_held(id) {
            return None;
        }
        let counts_since = self.submissions_count_since(id, engine, since)?;
        // As late as for a submission that began and was then to be preempted.
        Some(counts_since.saturating_add(QUANTUM_NS).saturating_add(self.config.tdr.delay_ns))
    }

    /// When the next watch of an engine is due.
    pub(crate) fn scheduler_deadline(&self) -> Option<Nanos> {
        if self.tdr.bugcheck.is_some() {
            return None;
        }
        let engines = self.vidsch.in_flight().engines.iter();
        engines.map(|(id, engine)| self.check_due_of(*id, engine)).fold(None, earliest)
    }

    /// When the next watch of this engine is due.
    pub(crate) fn check_due(&self, id: EngineId) -> Option<Nanos> {
        self.check_due_of(id, self.vidsch.in_flight().engines.get(&id)?)
    }

    fn check_due_of(&self, id: EngineId, engine: &OnEngine) -> Option<Nanos> {
        let of_submissions = earliest(self.watch_due_of(id, engine), self.unserved_due_of(id, engine));
        earliest(of_submissions, self.hw_queues_due_of(id, engine))
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
            self.bugcheck(VIDEO_TDR_FAILURE, [0, 0, 0, 0], why, effects);
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
            self.bugcheck(VIDEO_TDR_FAILURE, [0, 0, 0, 0], why, effects);
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
