//! Work that engines have, and the completions that the miniport reports.
//!
//! An engine gets [`HARDWARE_QUEUE_DEPTH`] submissions at a time; other work waits in the kernel, where priority
//! decides.
//!
//! ```text
//!             ready                 dispatch               DMA_COMPLETED
//!   queue ------------> Ready ---------------> Submitted ----------------> completed id moves
//!                         ^                        |
//!                         `------------------------'
//!              DMA_PREEMPTED, or queued when its engine was reset: a new id (SCH-008, TDR-019)
//! ```
//! An engine's work of hardware queues is separate: the hardware schedules it, it completes in any order, and progress
//! fences report its completion.
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
use crate::ddi::{Agent, EngineId};
use crate::tdr::Watch;
use crate::{Nanos, ProcessId, VmId};

/// An engine's write of a value to a fence.
pub(crate) struct EngineWrite {
    pub engine: EngineId,
    pub process: ProcessId,
    pub open: u32,
    pub gpu_address: u64,
    pub value: u64,
    /// The hardware queue whose commands wrote.
    pub hw_queue: Option<u32>,
    /// The agent whose accesses come before those of agents that see the value, if a driver looks for races.
    pub by: Option<Agent>,
}

/// Submissions that an engine has at a time: one that runs, and one that it can start at once.
pub(crate) const HARDWARE_QUEUE_DEPTH: usize = 2;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Submitted {
    pub id: u64,
    pub vm: VmId,
    /// The queue that it came from.
    pub queue: u32,
    /// Its level when it was submitted.
    pub level: Level,
}

/// The kernel's state of one engine.
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
    /// Since when the engine has submissions of which none completed or was found begun. `None`: it has none, or has
    /// begun one.
    pub unserved_since: Option<Nanos>,
    pub shares: Shares,
    /// When the last VM arrived that found work of another VM here.
    pub contended_since: Nanos,
    pub hw_work: HwWork,
    /// Since when `hw_work` made no progress. `None`: no progress is expected.
    pub hw_since: Option<Nanos>,
}

impl OnEngine {
    pub fn has(&self, submission_fence_id: u64) -> bool {
        self.submitted.binary_search_by_key(&submission_fence_id, |one| one.id).is_ok()
    }

    /// Restarts the clock of hardware work, if there is any.
    pub fn restart_hw_clock(&mut self, now: Nanos) {
        self.hw_since = (!self.hw_work.is_empty()).then_some(now);
        // The engine is at work, though not on submissions that wait to begin.
        self.unserved_since = self.unserved_since.map(|_| now);
    }

    /// Gives the work here its time anew, because the clock of the VM that it is of stood still.
    fn restart_clocks(&mut self, now: Nanos) {
        self.charge_oldest(now);
        self.since = now;
        self.hw_since = self.hw_since.map(|_| now);
        self.unserved_since = self.unserved_since.map(|_| now);
        self.watch.restart(now);
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

    /// Stops the clock of submissions that wait to begin, if there is none and none is ready.
    pub fn note_if_unwanted(&mut self) {
        if self.submitted.is_empty() && self.ready.len() == 0 {
            self.unserved_since = None;
        }
    }

    /// Notes that a VM is about to have work here, of its contexts or in hardware.
    pub fn arrives(&mut self, vm: VmId, now: Nanos) {
        if !self.is_contended() && self.is_wanted_by_other(vm) {
            self.contended_since = now;
        }
    }

    /// [`Self::arrives`] for the queue of a context, whose engine time is charged.
    pub fn joins(&mut self, vm: VmId, now: Nanos) {
        self.arrives(vm, now);
        if !self.context_vms().any(|other| other == vm) {
            self.shares.join(vm);
        }
    }

    /// Charges the time of the oldest submission so far to its VM.
    pub fn charge_oldest(&mut self, now: Nanos) {
        if let Some(Submitted { vm, .. }) = self.submitted.front().copied() {
            let alone = !self.is_wanted_by_other(vm);
            self.shares.charge(vm, now.saturating_sub(self.since), alone);
        }
    }

    /// Forgets the engine's work, none of which will complete.
    pub fn forget_work(&mut self) {
        self.submitted.clear();
        self.unserved_since = None;
        self.hw_work = HwWork::default();
        self.hw_since = None;
    }

    /// Notes progress: the oldest submission has changed, or there is none.
    pub(super) fn moved_on(&mut self, now: Nanos) {
        self.since = now;
        self.unserved_since = (!self.submitted.is_empty()).then_some(now);
        self.hw_since = self.hw_since.map(|_| now);
        match self.watch {
            Watch::Preempting { .. } if self.submitted.is_empty() => self.watch = Watch::Running,
            _ => self.watch.restart(now),
        }
    }
}

/// The state of each engine that was ever used.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct InFlight {
    pub engines: BTreeMap<EngineId, OnEngine>,
    /// The last number of a ready buffer's turn, or of a preemption request.
    pub turns: u64,
}

impl InFlight {
    pub fn engine(&mut self, engine: EngineId) -> &mut OnEngine {
        self.engines.entry(engine).or_default()
    }

    /// Restarts the clocks of the engines that this VM's work is on.
    pub fn restart_clocks_of(&mut self, vm: VmId, now: Nanos) {
        let of_vm = |engine: &&mut OnEngine| {
            engine.submitted.front().is_some_and(|one| one.vm == vm)
                || engine.hw_work.vms().any(|of| of == vm)
        };
        self.engines.values_mut().filter(of_vm).for_each(|engine| engine.restart_clocks(now));
    }

    pub fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Submits what this queue has ready. Returns the next `SubmissionFenceId` of the engine, or the one that a paging
    /// buffer had.
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

    /// Submits a buffer of a hardware queue, with the next `SubmissionFenceId` of the engine.
    pub fn begin_hw(&mut self, engine: EngineId, now: Nanos, queue: u32, by: Submitter) -> u64 {
        let engine = self.engine(engine);
        engine.last += 1;
        engine.arrives(by.vm, now);
        engine.hw_work.begin(engine.last, queue, by);
        engine.hw_since.get_or_insert(now);
        engine.last
    }

    /// Ends a submission of a hardware queue.
    pub fn end_hw(&mut self, engine: EngineId, now: Nanos, submission_fence_id: u64) {
        let Some(engine) = self.engines.get_mut(&engine) else { return };
        engine.hw_work.end(submission_fence_id);
        engine.restart_hw_clock(now);
    }

    /// Bytes charged to a process for submissions of its hardware queues that engines of an adapter have.
    pub fn hw_bytes(&self, adapter: u32, process: ProcessId) -> usize {
        let engine = |node| EngineId { adapter, node };
        let of_adapter = self.engines.range(engine(0)..=engine(u32::MAX));
        of_adapter.map(|(_, engine)| engine.hw_work.bytes_of(process)).sum()
    }

    /// Notes that the ring of this queue has work.
    pub fn ring_has_work(&mut self, engine: EngineId, now: Nanos, queue: u32, by: Submitter) {
        let engine = self.engine(engine);
        engine.arrives(by.vm, now);
        engine.hw_work.ring(queue, by);
        engine.hw_since.get_or_insert(now);
    }

    /// Notes that the work in the ring of this queue made progress, or is over.
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

    /// Expects progress of work in hardware, which may wait for a value that was stored.
    pub fn expect_hw_progress(&mut self, adapter: u32, now: Nanos) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            if !engine.hw_work.is_empty() {
                engine.hw_since.get_or_insert(now);
            }
        }
    }

    /// Whether software contexts have work on an engine of this adapter.
    pub fn keeps_in_d0(&self, adapter: u32) -> bool {
        let mut on_adapter = self.engines.iter().filter(|(id, _)| id.adapter == adapter);
        on_adapter.any(|(_, engine)| !engine.submitted.is_empty() || engine.ready.len() > 0)
    }

    /// Whether hardware queues have work on an engine of this adapter.
    pub fn has_hw_work(&self, adapter: u32) -> bool {
        let mut on_adapter = self.engines.iter().filter(|(id, _)| id.adapter == adapter);
        on_adapter.any(|(_, engine)| !engine.hw_work.is_empty())
    }

    /// Takes out the oldest submission of an engine up to this one.
    ///
    /// Ids grow on each engine (SCH-005) and there is one last completed id of it (SCH-007). So the report of one id
    /// also reports all earlier ones, whose interrupts may be lost.
    pub fn complete(&mut self, engine: EngineId, now: Nanos, submission_fence_id: u64) -> Option<Submitted> {
        let engine = self.engines.get_mut(&engine)?;
        engine.completed = engine.completed.max(submission_fence_id);
        engine.submitted.front().filter(|oldest| oldest.id <= submission_fence_id)?;
        engine.charge_oldest(now);
        let oldest = engine.submitted.pop_front();
        engine.moved_on(now);
        oldest
    }

    /// Forgets a submission that will not complete.
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

    /// Forgets the work of an adapter, none of which will complete.
    pub fn forget_adapter(&mut self, adapter: u32) {
        for (_, engine) in self.engines.iter_mut().filter(|(id, _)| id.adapter == adapter) {
            engine.forget_work();
            engine.watch = Watch::default();
        }
    }
}
