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

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::ready::{Level, Ready};
use crate::Nanos;
use crate::ddi::EngineId;
use crate::tdr::Watch;

/// How many submissions an engine has at a time: one that runs, and one for it to go on with at once.
pub(crate) const HARDWARE_QUEUE_DEPTH: usize = 2;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Submitted {
    pub id: u64,
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
    /// What it has of hardware queues: ids, which grow, and their queues.
    pub of_hw_queues: VecDeque<(u64, u32)>,
    /// Queues of user-mode submission that were rung and whose progress fence is below the last-queued value.
    pub rings: BTreeSet<u32>,
    /// Since when nothing happened to either. `None`: it is not expected that anything does.
    pub hw_since: Option<Nanos>,
}

impl OnEngine {
    pub fn has(&self, submission_fence_id: u64) -> bool {
        self.submitted.binary_search_by_key(&submission_fence_id, |one| one.id).is_ok()
    }

    pub fn has_hw_work(&self) -> bool {
        !self.of_hw_queues.is_empty() || !self.rings.is_empty()
    }

    /// The oldest submission is another one, or there is none: that is progress.
    pub(super) fn moved_on(&mut self, now: Nanos) {
        self.since = now;
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
        engine.submitted.push_back(Submitted { id, queue, level });
        id
    }

    /// The next `SubmissionFenceId` of an engine for the queue of a hardware queue.
    pub fn begin_hw(&mut self, engine: EngineId, now: Nanos, queue: u32) -> u64 {
        let engine = self.engine(engine);
        engine.last += 1;
        engine.of_hw_queues.push_back((engine.last, queue));
        engine.hw_since.get_or_insert(now);
        engine.last
    }

    /// One of a hardware queue is over.
    pub fn end_hw(&mut self, engine: EngineId, now: Nanos, submission_fence_id: u64) {
        let Some(engine) = self.engines.get_mut(&engine) else { return };
        engine.of_hw_queues.retain(|(id, _)| *id != submission_fence_id);
        engine.hw_since = engine.has_hw_work().then_some(now);
    }

    /// The ring of this queue has work.
    pub fn ring_has_work(&mut self, engine: EngineId, now: Nanos, queue: u32) {
        let engine = self.engine(engine);
        engine.rings.insert(queue);
        engine.hw_since.get_or_insert(now);
    }

    /// The work in the ring of this queue made progress, or is over.
    pub fn ring_progressed(&mut self, engine: EngineId, now: Nanos, queue: u32, is_over: bool) {
        let Some(engine) = self.engines.get_mut(&engine).filter(|engine| engine.rings.contains(&queue))
        else {
            return;
        };
        if is_over {
            engine.rings.remove(&queue);
        }
        engine.hw_since = engine.has_hw_work().then_some(now);
    }

    /// Something was stored that work in hardware may wait for.
    pub fn expect_hw_progress(&mut self, adapter: u32, now: Nanos) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            if engine.has_hw_work() {
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
        let oldest = engine.submitted.pop_front();
        engine.moved_on(now);
        oldest
    }

    /// This one will not complete.
    pub fn forget(&mut self, engine: EngineId, now: Nanos, submission_fence_id: u64) {
        let Some(engine) = self.engines.get_mut(&engine) else { return };
        if let Ok(at) = engine.submitted.binary_search_by_key(&submission_fence_id, |one| one.id) {
            engine.submitted.remove(at);
            if at == 0 {
                engine.moved_on(now);
            }
        }
    }

    /// Nothing of this adapter will complete.
    pub fn forget_adapter(&mut self, adapter: u32) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            engine.submitted.clear();
            engine.watch = Watch::default();
            engine.of_hw_queues.clear();
            engine.rings.clear();
            engine.hw_since = None;
        }
    }
}
