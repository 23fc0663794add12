//! The reset of one engine with its dependent engines (TDR-012 to TDR-021).

use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{CreateContextFlags, DeviceExecutionState};

use super::hardware::LostWork;
use super::{Cause, Loss, Watch};
use crate::ddi::{EngineId, Invalidation, ResetFailed, RunningContext, engine_bit};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::tdr::bugcheck::{INVALID_ABORTED_FENCE, INVALID_NODE_MASK, VIDEO_SCHEDULER_INTERNAL_ERROR};
use crate::vidsch::Context;
use crate::{Nanos, ProcessId, VidSchCaps};

/// Time that dependent engines get for preemption (TDR-018).
const DEPENDENTS_NS: Nanos = 500_000_000;

impl Kernel {
    /// The steps up to ResetEngine (TDR-012). [`Kernel::reset_group`] completes the reset once the dependent engines
    /// are ready.
    pub(super) fn begin_engine_reset(&mut self, engine: EngineId, cause: Cause, effects: &mut Effects) {
        if self.tdr.bugcheck.is_some()
            || self.tdr.stopped_adapters.contains(&engine.adapter)
            || self.is_held(engine)
        {
            return;
        }
        // The driver may answer a request while it is asked.
        let is_responsive = !cause.is_certain && self.is_responsive(engine, effects);
        if is_responsive && !self.is_over_patience(engine) && !self.ignores_preemption(engine) {
            let what = match self.miniport.running_context(engine) {
                RunningContext::None => {
                    "runs nothing; it has work that waits, or whose progress fence was not written"
                }
                RunningContext::Context(_) | RunningContext::Unknown => "is slow but at work",
            };
            self.note_host(format!("engine {}.{} {what}", engine.adapter, engine.node), effects);
            self.grant_another_delay(engine, effects);
            return;
        }
        // The snapshot: later reports of the engine do not change what is lost.
        if !cause.is_certain && !self.has_work(engine) {
            let state = self.vidsch.engine_mut(engine);
            (state.watch, state.hw_since) = (Watch::Running, None);
            self.vidsch.work_mut().dispatch(engine);
            return;
        }
        let (now, group) = (self.now, Vec::new());
        self.vidsch.engine_mut(engine).watch = Watch::Resetting { until: now, group, cause: cause.clone() };
        self.run_dpc(engine.adapter, effects);
        // No mask names an engine that only pages.
        if engine_bit(engine) == 0 {
            let guilty = self.devices_at_work(engine);
            return self.reset_adapter(engine.adapter, &guilty, &cause, effects);
        }
        let Some(group) = self.dependents(engine, effects) else { return };
        self.tdr.held_engines.extend(&group);
        self.tdr.held_engines.insert(engine);
        let mut until = now;
        for dependent in &group {
            let state = self.vidsch.engine_mut(*dependent);
            if *dependent == engine || state.submitted.is_empty() {
                continue;
            }
            until = now.saturating_add(DEPENDENTS_NS);
            let is_preempting = state.watch != Watch::Running;
            if !is_preempting && self.caps(*dependent).contains(VidSchCaps::PREEMPTION_AWARE) {
                self.request_preemption(*dependent, false, effects);
            }
        }
        self.vidsch.engine_mut(engine).watch = Watch::Resetting { until, group, cause };
        self.tdr.waiting.push(engine);
    }

    /// Gives another TdrDelay to an engine that did not answer in time but is at work.
    fn grant_another_delay(&mut self, engine: EngineId, effects: &mut Effects) {
        let now = self.now;
        let is_due = |due: Option<Nanos>| due.is_some_and(|due| due <= now);
        let watch_is_due = is_due(self.watch_due(engine));
        let unserved_is_due = is_due(self.unserved_due(engine));
        let can_preempt = self.caps(engine).contains(VidSchCaps::PREEMPTION_AWARE);
        let runs = self.miniport.running_context(engine);
        let state = self.vidsch.engine_mut(engine);
        // If nothing runs, work of hardware queues waits in hardware or never reports completion. Then no progress is
        // expected before the next submission or store.
        state.hw_since = state.hw_since.filter(|_| runs != RunningContext::None).map(|_| now);
        if unserved_is_due {
            state.unserved_since = Some(now);
        }
        match state.watch {
            // The answer was lost: an engine that is at work does not delay a preemption for so long.
            Watch::Preempting { time_is_up, .. } if watch_is_due => {
                self.request_preemption(engine, time_is_up, effects);
            }
            Watch::Running if watch_is_due && !can_preempt => {
                state.charge_oldest(now);
                state.since = now;
            }
            Watch::Running | Watch::Preempting { .. } | Watch::Resetting { .. } | Watch::Held => {}
        }
    }

    fn is_responsive(&mut self, engine: EngineId, effects: &mut Effects) -> bool {
        let mut status = crate::ddi::EngineStatus::default();
        self.run_ddi(effects, |miniport, now, callbacks| {
            status = miniport.query_engine_status(now, engine, callbacks);
        });
        status.responsive
    }

    /// The engines that are reset with this one, including itself, in their order; `None` after the bugcheck for a group
    /// that leaves the engine itself out (TDR-018).
    fn dependents(&mut self, engine: EngineId, effects: &mut Effects) -> Option<Vec<EngineId>> {
        let mut mask = 0;
        self.run_ddi(effects, |miniport, _, _| mask = miniport.query_dependent_engine_group(engine));
        if mask & engine_bit(engine) == 0 {
            let EngineId { adapter, node } = engine;
            let why = format!("the group {mask:#x} of engine {adapter}.{node} leaves the engine itself out");
            let parameters = [INVALID_NODE_MASK, mask, node.into(), 0];
            self.bugcheck(VIDEO_SCHEDULER_INTERNAL_ERROR, parameters, why, effects);
            return None;
        }
        let adapter = &self.config.adapters[engine.adapter as usize];
        let engines = adapter.engines(engine.adapter).map(|(id, _)| id);
        Some(engines.filter(|id| mask & engine_bit(*id) != 0).collect())
    }

    /// Whether the dependent engines have given back their work, or their time for that is over.
    pub(super) fn group_is_ready(&self, engine: EngineId) -> bool {
        match self.vidsch.in_flight().engines.get(&engine).map(|engine| &engine.watch) {
            Some(Watch::Resetting { until, group, .. }) => {
                let quiet = |id: &EngineId| {
                    *id == engine
                        || self.vidsch.in_flight().engines.get(id).is_none_or(|one| one.submitted.is_empty())
                };
                *until <= self.now || group.iter().all(quiet)
            }
            _ => true,
        }
    }

    /// ResetEngine of a group, in the order of its engines.
    pub(super) fn reset_group(&mut self, engine: EngineId, effects: &mut Effects) {
        let watch = core::mem::take(&mut self.vidsch.engine_mut(engine).watch);
        let Watch::Resetting { group, cause, .. } = watch else { return };
        let mut released = Vec::new();
        for id in &group {
            let watch = core::mem::replace(&mut self.vidsch.engine_mut(*id).watch, Watch::Held);
            // A member whose own reset waits is reset now, and its group is held no longer.
            if let Watch::Resetting { group: own, .. } = watch {
                self.tdr.waiting.retain(|waiting| waiting != id);
                released.extend(own.into_iter().filter(|other| !group.contains(other)));
            }
        }
        let mut reset = true;
        for id in &group {
            let cause = if *id == engine { cause.clone() } else { Cause { timeout: false, ..cause.clone() } };
            reset = reset && self.reset_one(*id, &cause, effects);
        }
        for id in &group {
            self.tdr.held_engines.remove(id);
            let state = self.vidsch.engine_mut(*id);
            // Otherwise the adapter's reset follows, which takes the engines as they are.
            if reset {
                state.watch = Watch::Running;
                self.reset_is_over(*id, effects);
            }
        }
        for id in released {
            self.tdr.held_engines.remove(&id);
            self.vidsch.work_mut().dispatch(id);
        }
    }

    /// Resets one engine. False if the adapter has to be reset instead.
    fn reset_one(&mut self, engine: EngineId, cause: &Cause, effects: &mut Effects) -> bool {
        let hardware_scheduled = self.is_hardware_scheduled(engine);
        let result = if hardware_scheduled {
            self.reset_hardware_scheduled(engine, effects)
        } else {
            self.reset_by_the_kernel(engine, effects)
        };
        let hit = match result {
            Ok(Some(hit)) => hit,
            // A bugcheck.
            Ok(None) => return false,
            Err(ResetFailed) => {
                let guilty = self.devices_at_work(engine);
                let cause = Cause {
                    why: Cow::Borrowed("TdrReason 9: the reset of an engine failed"),
                    ..cause.clone()
                };
                self.reset_adapter(engine.adapter, &guilty, &cause, effects);
                return false;
            }
        };
        *self.tdr.engine_resets.entry(engine.adapter).or_default() += 1;
        let EngineId { adapter, node } = engine;
        let count = hit.len();
        let text =
            format!("engine {adapter}.{node} is reset (0x141, {}): {count} submissions lost", cause.why);
        self.note_host(text, effects);
        self.aborted(engine, &hit, cause, effects)
    }

    /// Whether the engine has hardware queues, or its oldest submission is of a context of hardware scheduling.
    fn is_hardware_scheduled(&self, engine: EngineId) -> bool {
        let oldest = self.vidsch.in_flight().engines.get(&engine).and_then(|engine| engine.submitted.front());
        match oldest {
            Some(submitted) => {
                let context = self.vidsch.contexts().get(self.vidsch.queues()[submitted.queue].context);
                let is_hardware =
                    |context: &Context| context.flags.contains(CreateContextFlags::HW_QUEUE_SUPPORTED);
                context.is_some_and(is_hardware) || self.has_hw_queues(engine)
            }
            None => self.has_hw_queues(engine),
        }
    }

    /// ResetEngine. Returns the aborted submissions, with [`Invalidation::Culprit`]; `None` after a bugcheck.
    fn reset_by_the_kernel(
        &mut self,
        engine: EngineId,
        effects: &mut Effects,
    ) -> Result<Option<Vec<LostWork>>, ResetFailed> {
        let (completed, last) = {
            let state = self.vidsch.engine_mut(engine);
            (state.completed, state.last)
        };
        let mut result = Err(ResetFailed);
        self.run_ddi(effects, |miniport, now, callbacks| {
            result = miniport.reset_engine(now, engine, callbacks);
        });
        let aborted = result?;
        let is_outstanding = self.vidsch.engine_mut(engine).has(aborted);
        if !is_outstanding && !(completed..=last).contains(&aborted) {
            let why = format!("ResetEngine: LastAbortedFenceId {aborted} is not in {completed} to {last}");
            self.bugcheck(
                VIDEO_SCHEDULER_INTERNAL_ERROR,
                [INVALID_ABORTED_FENCE, aborted, completed, last],
                why,
                effects,
            );
            return Ok(None);
        }
        self.forget_interrupts_of(|one| one == engine);
        let now = self.now;
        let state = self.vidsch.engine_mut(engine);
        state.charge_oldest(now);
        state.unserved_since = None;
        state.completed = completed.max(aborted);
        let hit = state.submitted.partition_point(|one| one.id <= aborted);
        let surviving = state.submitted.split_off(hit);
        let hit = core::mem::take(&mut state.submitted);
        self.requeue_returned(engine, surviving, false);
        Ok(Some(hit.iter().map(|one| self.hit(one, Invalidation::Culprit)).collect()))
    }

    /// ResetHwEngine and ResumeHwEngine (TDR-020, TDR-021).
    fn reset_hardware_scheduled(
        &mut self,
        engine: EngineId,
        effects: &mut Effects,
    ) -> Result<Option<Vec<LostWork>>, ResetFailed> {
        let mut result = Err(ResetFailed);
        self.tdr.in_reset_hw_engine = Some(engine.adapter);
        self.run_ddi(effects, |miniport, now, callbacks| {
            result = miniport.reset_hw_engine(now, engine, callbacks);
        });
        self.tdr.in_reset_hw_engine = None;
        let invalidated = core::mem::take(&mut self.tdr.invalidated);
        result?;
        let (mut hit, mut surviving) = (Vec::new(), VecDeque::new());
        let now = self.now;
        let state = self.vidsch.engine_mut(engine);
        state.charge_oldest(now);
        state.unserved_since = None;
        for submitted in core::mem::take(&mut state.submitted) {
            let context = self.vidsch.queues()[submitted.queue].context;
            match invalidated.iter().find(|(id, _)| *id == context) {
                Some((_, reason)) => hit.push((submitted, *reason)),
                None => surviving.push_back(submitted),
            }
        }
        let state = self.vidsch.engine_mut(engine);
        if let Some((last, _)) = hit.last() {
            state.completed = state.completed.max(last.id);
        }
        let mut hit: Vec<LostWork> =
            hit.iter().map(|(submitted, reason)| self.hit(submitted, *reason)).collect();
        self.forget_interrupts_of(|one| one == engine);
        self.requeue_returned(engine, surviving, false);
        self.invalidate_hw_queues(engine, &invalidated, &mut hit);
        let mut resumed = Err(ResetFailed);
        self.run_ddi(effects, |miniport, now, callbacks| {
            resumed = miniport.resume_hw_engine(now, engine, callbacks);
        });
        if resumed.is_err() {
            // Their devices are lost with the other devices of the adapter.
            let guilty: Vec<u32> = hit.iter().flat_map(|hit| hit.devices.clone()).collect();
            let cause = Cause { why: Cow::Borrowed("the engine cannot be resumed"), ..Cause::TIMEOUT };
            self.reset_adapter(engine.adapter, &guilty, &cause, effects);
            return Ok(None);
        }
        Ok(Some(hit))
    }

    /// `DxgkCbInvalidateHwContext`, which ResetHwEngine alone may call.
    pub(crate) fn context_invalidated(&mut self, context: u32, reason: Invalidation, effects: &mut Effects) {
        let adapter = self.vidsch.contexts().get(context).map(|context| context.engine.adapter);
        match adapter {
            Some(adapter) if self.tdr.in_reset_hw_engine == Some(adapter) => {
                self.tdr.invalidated.push((context, reason));
            }
            Some(adapter) => {
                let problem = format!(
                    "DxgkCbInvalidateHwContext of context {context} is not called by DxgkDdiResetHwEngine"
                );
                self.violation(adapter, &problem, effects);
            }
            None => {
                self.note_host(format!("DxgkCbInvalidateHwContext: there is no context {context}"), effects);
            }
        }
    }

    /// Loses the devices of the aborted submissions. False if a paging buffer was aborted: the adapter is reset.
    fn aborted(&mut self, engine: EngineId, hit: &[LostWork], cause: &Cause, effects: &mut Effects) -> bool {
        let of_reason = |reason: Invalidation| -> Vec<u32> {
            hit.iter().filter(|hit| hit.reason == reason).flat_map(|hit| hit.devices.clone()).collect()
        };
        let (culprits, collateral) = (of_reason(Invalidation::Culprit), of_reason(Invalidation::Collateral));
        if hit.iter().any(|hit| hit.is_paging) {
            let cause = Cause { why: Cow::Borrowed("a paging buffer was hit"), ..cause.clone() };
            self.reset_adapter(engine.adapter, &culprits, &cause, effects);
            return false;
        }
        let guilty = culprits
            .first()
            .filter(|_| cause.timeout)
            .map(|device| self.processes.devices()[*device].process);
        let (state, page_fault) = (cause.state, cause.page_fault);
        self.lose(Loss { devices: culprits, state, page_fault, poisons: true }, effects);
        let (state, page_fault) = (DeviceExecutionState::RESET, None);
        self.lose(Loss { devices: collateral, state, page_fault, poisons: true }, effects);
        if let Some(process) = guilty {
            self.count_engine_timeout(process, effects);
        }
        true
    }

    /// Counts an engine timeout. Their limit is for each process, one below that of the adapter; a process that exceeds
    /// it is blocked (TDR-004).
    fn count_engine_timeout(&mut self, process: ProcessId, effects: &mut Effects) {
        let (now, tdr) = (self.now, &self.config.tdr);
        let (most, window) = (tdr.limit_count.saturating_sub(1) as usize, tdr.limit_time_ns);
        let unconditional = self.tdr.debug_mode == 3;
        let Some(owner) = self.processes.get_mut(process) else { return };
        self.tdr.back_offs.timed_out(owner.vm, now, tdr.delay_ns);
        owner.engine_timeouts.retain(|time| now - *time < window);
        owner.engine_timeouts.push_back(now);
        if unconditional || owner.engine_timeouts.len() <= most || owner.is_blocked {
            return;
        }
        owner.is_blocked = true;
        let text = format!("0x142: {} engine timeouts, the process can no longer use the GPU", most + 1);
        self.note(process, text, effects);
        let devices = self.process(process).devices.values().copied().collect();
        let (state, page_fault) = (DeviceExecutionState::HUNG, None);
        self.lose(Loss { devices, state, page_fault, poisons: true }, effects);
    }
}
