//! What is with the miniport, and what it reports.
//!
//! An engine gets [`HARDWARE_QUEUE_DEPTH`] submissions at a time; the rest waits here, so that priority decides.
//!
//! ```text
//!             ready                 dispatch               DMA_COMPLETED
//!   queue ------------> Ready ---------------> Submitted ----------------> completed id moves
//!                         ^                        |
//!                         `------------------------'
//!              DMA_PREEMPTED, or queued when its engine was reset: a new id (SCH-008, TDR-019)
//! ```
//! What an engine has of hardware queues is beside that: the hardware schedules it, it ends in any order, and the
//! progress fences tell of its end.
//!
//! Paging buffers are the memory manager's: they go before everything else, one at a time, and keep their ids.
//!
//! The last completed id moves with a completion, a reset of the engine that succeeds (to what the driver says it
//! aborted), and a reset of the adapter (to the last submitted one); a preemption does not move it (SCH-007).

use alloc::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::hw_work::{HwWork, Submitter};
use super::ready::{Level, Ready};
use super::shares::Shares;
use crate::ddi::EngineId;
use crate::tdr::Watch;
use crate::{Nanos, VmId};

/// How many submissions an engine has at a time: one that runs, and one for it to go on with at once.
pub(crate) const HARDWARE_QUEUE_DEPTH: usize = 2;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Submitted {
    pub id: u64,
    pub vm: VmId,
    /// Whose it is.
    pub queue: u32,
    /// Of when it was submitted.
    pub level: Level,
}

/// What is known of one engine.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct OnEngine {
    pub last: u64,
    /// The last completed id (SCH-007).
    pub completed: u64,
    /// In the order of their ids, which grow.
    pub submitted: VecDeque<Submitted>,
    pub ready: Ready,
    /// Since when the oldest submission runs without progress.
    pub since: Nanos,
    pub watch: Watch,
    /// Since when it has submissions and did nothing for the kernel: none ended, and none was found begun. `None`: it has
    /// none, or is at one.
    pub unserved_since: Option<Nanos>,
    pub shares: Shares,
    /// When the last VM came that was not alone here.
    pub contended_since: Nanos,
    pub hw_work: HwWork,
    /// Since when nothing happened to that. `None`: it is not expected that anything does.
    pub hw_since: Option<Nanos>,
}

impl OnEngine {
    pub fn has(&self, submission_fence_id: u64) -> bool {
        self.submitted.binary_search_by_key(&submission_fence_id, |one| one.id).is_ok()
    }

    /// Its clock of hardware work begins again, if it has any.
    pub fn restart_hw_clock(&mut self, now: Nanos) {
        self.hw_since = (!self.hw_work.is_empty()).then_some(now);
        // It is at work, if not at what waits to begin.
        self.unserved_since = self.unserved_since.map(|_| now);
    }

    /// VMs with work here or ready for it, some perhaps more than once.
    pub fn vms(&self) -> impl Iterator<Item = VmId> {
        self.context_vms().chain(self.hw_work.vms())
    }

    /// VMs whose contexts have work here or ready for it, some perhaps more than once.
    pub fn context_vms(&self) -> impl Iterator<Item = VmId> {
        self.submitted.iter().map(|one| one.vm).chain(self.ready.vms())
    }

    /// Whether a VM beside this one has work here or ready for it.
    pub fn is_wanted_by_other(&self, vm: VmId) -> bool {
        self.vms().any(|other| other != vm)
    }

    /// Whether more than one VM has work here or ready for it.
    pub fn is_contended(&self) -> bool {
        self.vms().next().is_some_and(|first| self.is_wanted_by_other(first))
    }

    /// Nothing is expected of it while it has no submission and none is ready for it.
    pub fn note_if_unwanted(&mut self) {
        if self.submitted.is_empty() && self.ready.len() == 0 {
            self.unserved_since = None;
        }
    }

    /// A VM is about to have work here, for its contexts or in hardware.
    pub fn arrives(&mut self, vm: VmId, now: Nanos) {
        if !self.is_contended() && self.is_wanted_by_other(vm) {
            self.contended_since = now;
        }
    }

    /// The same for the queue of a context, whose engine time counts.
    pub fn joins(&mut self, vm: VmId, now: Nanos) {
        self.arrives(vm, now);
        if !self.context_vms().any(|other| other == vm) {
            self.shares.join(vm);
        }
    }

    /// The time of the oldest submission so far is its VM's.
    pub fn charge_oldest(&mut self, now: Nanos) {
        if let Some(Submitted { vm, .. }) = self.submitted.front().copied() {
            let alone = !self.is_wanted_by_other(vm);
            self.shares.charge(vm, now.saturating_sub(self.since), alone);
        }
    }

    /// Nothing that it has will complete.
    pub fn forget_work(&mut self) {
        self.submitted.clear();
        self.unserved_since = None;
        self.hw_work = HwWork::default();
        self.hw_since = None;
    }

    /// The oldest submission is another one, or there is none: that is progress.
    pub(super) fn moved_on(&mut self, now: Nanos) {
        self.since = now;
        self.unserved_since = (!self.submitted.is_empty()).then_some(now);
        self.hw_since = self.hw_since.map(|_| now);
        match &mut self.watch {
            watch @ Watch::Preempting { .. } if self.submitted.is_empty() => *watch = Watch::Running,
            Watch::Preempting { since, .. } => *since = now,
            Watch::Running | Watch::Resetting { .. } | Watch::Held => {}
        }
    }
}

/// Every engine that was ever used.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct InFlight {
    pub engines: BTreeMap<EngineId, OnEngine>,
    /// Numbers the turns of what becomes ready, and preemption requests.
    pub turns: u64,
}

impl InFlight {
    pub fn engine(&mut self, engine: EngineId) -> &mut OnEngine {
        self.engines.entry(engine).or_default()
    }

    pub fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// The next `SubmissionFenceId` of an engine, or the one that a paging buffer had, for what this queue has ready.
    pub fn begin(
        &mut self,
        engine: EngineId,
        now: Nanos,
        vm: VmId,
        queue: u32,
        level: Level,
        resubmits: Option<u64>,
    ) -> u64 {
        let engine = self.engine(engine);
        let id = resubmits.filter(|_| level.is_paging()).unwrap_or_else(|| {
            engine.last += 1;
            engine.last
        });
        if engine.submitted.is_empty() {
            engine.since = now;
        }
        engine.unserved_since.get_or_insert(now);
        engine.shares.serve(vm);
        engine.submitted.push_back(Submitted { id, vm, queue, level });
        id
    }

    /// The next `SubmissionFenceId` of an engine for the queue of a hardware queue.
    pub fn begin_hw(&mut self, engine: EngineId, now: Nanos, queue: u32, by: Submitter) -> u64 {
        let engine = self.engine(engine);
        engine.last += 1;
        engine.arrives(by.vm, now);
        engine.hw_work.begin(engine.last, queue, by);
        engine.hw_since.get_or_insert(now);
        engine.last
    }

    /// One of a hardware queue is over.
    pub fn end_hw(&mut self, engine: EngineId, now: Nanos, submission_fence_id: u64) {
        let Some(engine) = self.engines.get_mut(&engine) else { return };
        engine.hw_work.end(submission_fence_id);
        engine.restart_hw_clock(now);
    }

    /// The ring of this queue has work.
    pub fn ring_has_work(&mut self, engine: EngineId, now: Nanos, queue: u32, by: Submitter) {
        let engine = self.engine(engine);
        engine.arrives(by.vm, now);
        engine.hw_work.ring(queue, by);
        engine.hw_since.get_or_insert(now);
    }

    /// The work in the ring of this queue made progress, or is over.
    pub fn ring_progressed(&mut self, engine: EngineId, now: Nanos, queue: u32, is_over: bool) {
        let Some(engine) = self.engines.get_mut(&engine).filter(|engine| engine.hw_work.has_ring(queue))
        else {
            return;
        };
        if is_over {
            engine.hw_work.end_ring(queue);
        }
        engine.restart_hw_clock(now);
    }

    /// Something was stored that work in hardware may wait for.
    pub fn expect_hw_progress(&mut self, adapter: u32, now: Nanos) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            if !engine.hw_work.is_empty() {
                engine.hw_since.get_or_insert(now);
            }
        }
    }

    /// Whether software contexts have work on an engine of this adapter.
    pub fn keeps_in_d0(&self, adapter: u32) -> bool {
        let mut here = self.engines.iter().filter(|(id, _)| id.adapter == adapter);
        here.any(|(_, one)| !one.submitted.is_empty() || one.ready.len() > 0)
    }

    /// Takes out the oldest submission of an engine up to this one.
    ///
    /// Ids grow on each engine (SCH-005) and there is one last completed id of it (SCH-007): the report of
    /// one is the report of all before it, should theirs have been lost.
    pub fn complete(&mut self, engine: EngineId, now: Nanos, submission_fence_id: u64) -> Option<Submitted> {
        let engine = self.engines.get_mut(&engine)?;
        engine.completed = engine.completed.max(submission_fence_id);
        engine.submitted.front().filter(|oldest| oldest.id <= submission_fence_id)?;
        engine.charge_oldest(now);
        let oldest = engine.submitted.pop_front();
        engine.moved_on(now);
        oldest
    }

    /// This one will not complete.
    pub fn forget(&mut self, engine: EngineId, now: Nanos, submission_fence_id: u64) {
        let Some(engine) = self.engines.get_mut(&engine) else { return };
        if let Ok(at) = engine.submitted.binary_search_by_key(&submission_fence_id, |one| one.id) {
            if at == 0 {
                engine.charge_oldest(now);
            }
            engine.submitted.remove(at);
            if at == 0 {
                engine.moved_on(now);
            }
        }
    }

    /// Nothing of this adapter will complete.
    pub fn forget_adapter(&mut self, adapter: u32) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            engine.forget_work();
            engine.watch = Watch::default();
        }
    }
}
