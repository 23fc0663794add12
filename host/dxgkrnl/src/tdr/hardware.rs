//! Timeouts and resets of hardware queues.
//!
//! The hardware schedules them itself, so nothing is preempted first. If an engine's work of hardware queues makes no
//! progress for TdrDelay, the kernel calls QueryEngineStatus:
//!
//! ```text
//!   responsive       runs nothing: its work waits in hardware, or never writes its progress fence. The kernel asks
//!                    again only after something was submitted, done or stored on the adapter
//!                    runs something, for less than TdrDelay: the engine gets another TdrDelay
//!   not responsive   ResetHwEngine: the driver names culprits and collateral (TDR-020); work of other contexts
//!                    stays in the hardware and continues after ResumeHwEngine (TDR-021)
//! ```
//! The kernel asks the driver which context runs. If that has a queue with DisableGpuTimeout (SCH-016) and work there,
//! there is no timeout, unless another VM has work there. If the driver cannot tell, any such queue may run. The kernel
//! does not see the contents of user-mode rings, but knows two values. A ring has work while its progress fence is below
//! the last-queued value (SCH-030), and a greater value of that fence is progress. The documents have no separate rule
//! for rings; TDR-001 is for all work of an engine.

use alloc::vec::Vec;

use super::{Cause, Recovery};
use crate::ddi::{EngineId, HwQueueId, Invalidation};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::vidsch::{HwQueue, HwSubmission, OnEngine, Submitted};
use crate::{Nanos, VmId};

/// Work that a reset hit: a submission, or the hardware queues of a context.
#[derive(Debug)]
pub(super) struct LostWork {
    /// The devices that submitted it.
    pub devices: Vec<u32>,
    pub reason: Invalidation,
    pub is_paging: bool,
}

impl Kernel {
    pub(super) fn hit(&self, submitted: &Submitted, reason: Invalidation) -> LostWork {
        let devices = alloc::vec![self.vidsch.queues()[submitted.queue].device];
        LostWork { devices, reason, is_paging: submitted.level.is_paging() }
    }

    fn hw_queues_of(&self, engine: EngineId) -> impl Iterator<Item = (u32, &HwQueue)> {
        self.vidsch
            .hw_queues()
            .iter()
            .filter(move |(_, queue)| self.vidsch.contexts()[queue.context].engine == engine)
    }

    pub(super) fn has_hw_queues(&self, engine: EngineId) -> bool {
        self.hw_queues_of(engine).next().is_some()
    }

    /// Whether an engine has work, rings included.
    pub(crate) fn has_work(&self, engine: EngineId) -> bool {
        let state = self.vidsch.in_flight().engines.get(&engine);
        state.is_some_and(|engine| !engine.submitted.is_empty() || engine.hw_work.submissions_count() > 0)
            || self.hw_queues_of(engine).any(|(id, _)| self.miniport.ring_bytes(HwQueueId(id)) > 0)
    }

    pub(super) fn oldest_hw_device(&self, engine: EngineId) -> Option<u32> {
        let queue = self.vidsch.in_flight().engines.get(&engine)?.hw_work.queues().next()?;
        Some(self.vidsch.queues()[queue].device)
    }

    /// When an engine's work of hardware queues times out.
    pub(super) fn hw_queues_due(&self, id: EngineId) -> Option<Nanos> {
        self.hw_queues_due_of(id, self.vidsch.in_flight().engines.get(&id)?)
    }

    pub(super) fn hw_queues_due_of(&self, id: EngineId, engine: &OnEngine) -> Option<Nanos> {
        let since = engine.hw_since?;
        if self.is_held(id) {
            return None;
        }
        let suspected = || self.exempt_vm_of_oldest(engine).or_else(|| self.exempt_vm_in_hardware(engine));
        let counts_since = self.counts_since(id, engine, since, suspected)?;
        Some(counts_since.saturating_add(self.config.tdr.delay_ns))
    }

    /// A VM with work of hardware queues there, if some of that work is exempt from timeouts.
    fn exempt_vm_in_hardware(&self, engine: &OnEngine) -> Option<VmId> {
        let mut vms = engine.hw_work.vms();
        match engine.hw_work.any_exempt() {
            true => vms.next(),
            false => vms.find(|vm| self.is_paused(*vm)),
        }
    }

    /// Recovers from a suspend that was not acknowledged in time.
    pub(crate) fn suspend_is_overdue(&mut self, context: u32, engine: EngineId) {
        let context = &self.vidsch.contexts()[context];
        let hw_queues = context.hardware.queues.iter().map(|id| self.vidsch.hw_queues()[*id].queue);
        let is_exempt = hw_queues.chain([context.queue]).any(|queue| self.is_queue_exempt(queue));
        if self.detects_timeouts() && !is_exempt {
            self.vidsch.work_mut().recover(Recovery::Timeout { engine, cause: Cause::SUSPEND });
        }
    }

    /// Empties the hardware queues of contexts that the driver named in ResetHwEngine.
    pub(super) fn invalidate_hw_queues(
        &mut self,
        engine: EngineId,
        invalidated: &[(u32, Invalidation)],
        hit: &mut Vec<LostWork>,
    ) {
        for (id, reason) in invalidated {
            let Some(context) = self.vidsch.contexts().get(*id).filter(|context| context.engine == engine)
            else {
                continue;
            };
            if context.hardware.queues.is_empty() {
                continue;
            }
            hit.push(LostWork { devices: alloc::vec![context.device], reason: *reason, is_paging: false });
            let queues: Vec<u32> =
                context.hardware.queues.iter().map(|id| self.vidsch.hw_queues()[*id].queue).collect();
            for queue in queues {
                for submission in core::mem::take(&mut self.vidsch.queue_mut(queue).in_flight) {
                    self.vidsch.in_flight_mut().end_hw(engine, self.now, submission.submission_fence_id);
                }
                self.reach_passed_mark(queue);
            }
        }
    }

    /// Ends one buffer of a hardware queue on its engine; buffers of other queues continue.
    pub(super) fn abort_hw_submission(&mut self, hw_queue: HwQueueId, progress_fence_id: u64) {
        let Some(hw_queue) = self.vidsch.hw_queues().get(hw_queue.0) else { return };
        let id = hw_queue.queue;
        let queue = self.vidsch.queue_mut(id);
        let is_it = |one: &HwSubmission| one.progress_fence_id == progress_fence_id;
        let Some(at) = queue.in_flight.iter().position(is_it) else { return };
        let engine = queue.engine;
        if let Some(submission) = queue.in_flight.remove(at) {
            self.vidsch.in_flight_mut().end_hw(engine, self.now, submission.submission_fence_id);
        }
        self.reach_passed_mark(id);
    }

    /// Gives an engine work again after a reset.
    pub(super) fn reset_is_over(&mut self, engine: EngineId, effects: &mut Effects) {
        self.vidsch.work_mut().dispatch(engine);
        self.reset_ends_suspends(engine, effects);
        let now = self.now;
        let state = self.vidsch.engine_mut(engine);
        state.restart_hw_clock(now);
        let queues: Vec<u32> = self.hw_queues_of(engine).map(|(_, queue)| queue.queue).collect();
        queues.into_iter().for_each(|queue| self.vidsch.work_mut().run_queue(queue));
    }
}
