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
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::SyncObjectType;
use serde::{Deserialize, Serialize};

use super::HwQueue;
use super::ready::{Level, Ready};
use crate::ddi::{Callback, EngineId, HwQueueId, Interrupt, Miniport, Orderer};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::tdr::Watch;
use crate::{Nanos, ProcessId};

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
    fn moved_on(&mut self, now: Nanos) {
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
        (queue, level): (u32, Level),
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

impl<M: Miniport> Kernel<M> {
    /// What a miniport asked for. Calls no DDI of the scheduler's class: those are called when this DDI is over.
    pub(crate) fn callback(&mut self, callback: Callback, effects: &mut Effects) {
        match callback {
            Callback::GpuStore { engine, process, gpu_address, value } => {
                self.gpu_store(engine, process, (gpu_address, value), None, effects);
            }
            Callback::HwQueueStore { engine, hw_queue, gpu_address, value } => {
                let Some(HwQueue { process, .. }) = self.hw_queues.get(hw_queue.0) else { return };
                self.gpu_store(engine, *process, (gpu_address, value), Some(hw_queue.0), effects);
            }
            Callback::MoveData { engine, moved } => self.move_data(engine, moved, effects),
            Callback::NativeFenceLogWrite(write) => self.native_fence_log_written(&write),
            Callback::DisconnectDoorbell { hw_queue, reason } => {
                self.driver_disconnects(hw_queue, reason, effects);
            }
            Callback::NotifyInterrupt(interrupt) => self.interrupts.push_back(interrupt),
            Callback::NotifyDpc { adapter } => self.work_off_interrupts(adapter, effects),
            Callback::InvalidateHwContext { context, reason } => {
                self.tdr.invalidated.push((context.0, reason));
            }
            Callback::SignalEvent { adapter, signal } => self.driver_signals(adapter, signal, effects),
            Callback::DebugPrint { adapter, process, text } => {
                self.debug_print(adapter, process, &text, effects);
            }
            Callback::Violation { adapter, what } => self.violation(adapter, &what, effects),
            Callback::Stuck { nanos } => self.driver_was_stuck(nanos, effects),
        }
    }

    fn work_off_interrupts(&mut self, adapter: u32, effects: &mut Effects) {
        let mut others = VecDeque::new();
        while let Some(interrupt) = self.interrupts.pop_front() {
            if interrupt.adapter() == adapter {
                self.interrupt(interrupt, effects);
            } else {
                others.push_back(interrupt);
            }
        }
        self.interrupts = others;
    }

    /// True while the kernel does not listen to this engine: it is about to be reset (TDR-012).
    fn is_masked(&self, engine: EngineId) -> bool {
        self.in_flight.engines.get(&engine).is_some_and(|engine| engine.watch.is_masked())
    }

    fn interrupt(&mut self, interrupt: Interrupt, effects: &mut Effects) {
        match interrupt {
            Interrupt::MonitoredFenceSignaled { .. } => self.evaluate_all_written(effects),
            Interrupt::SuspendContextCompleted { context, suspend_fence, .. } => {
                self.suspend_acknowledged(context, suspend_fence, effects);
            }
            Interrupt::NativeFenceSignaled { engine, signaled } => {
                self.native_fences_signaled(engine, signaled, effects);
            }
            Interrupt::EngineToF1 { engine } => self.disconnect_engine(engine, effects),
            Interrupt::CrtcVsync { .. } | Interrupt::SchedulingLog { .. } => {}
            Interrupt::PeriodicMonitoredFenceSignaled { adapter, vidpn_target, notification_id } => {
                self.periodic_fence_signaled(adapter, vidpn_target, notification_id, effects);
            }
            Interrupt::DmaCompleted { engine, submission_fence_id } if !self.is_masked(engine) => {
                if self.is_submitted_id(engine, submission_fence_id, effects) {
                    self.completed_up_to(engine, submission_fence_id, effects);
                }
            }
            Interrupt::DmaPreempted { engine, preemption_fence_id, last_completed_fence_id }
                if !self.is_masked(engine) =>
            {
                if self.is_submitted_id(engine, last_completed_fence_id, effects) {
                    self.completed_up_to(engine, last_completed_fence_id, effects);
                    self.preempted(engine, preemption_fence_id);
                }
            }
            Interrupt::DmaFaulted { engine, faulted_fence_id } if !self.is_masked(engine) => {
                self.dma_faulted(engine, faulted_fence_id, effects);
            }
            Interrupt::DmaPageFaulted { engine, faulted_fence_id, gpu_address, flags }
                if !self.is_masked(engine) =>
            {
                self.dma_page_faulted(engine, faulted_fence_id, gpu_address, flags, effects);
            }
            Interrupt::HwQueuePageFaulted { engine, work, gpu_address, flags } if !self.is_masked(engine) => {
                self.hw_queue_page_faulted(engine, work, gpu_address, flags, effects);
            }
            Interrupt::GpuEngineTimeout { engine } if !self.is_masked(engine) => {
                self.engine_timed_out(engine, effects);
            }
            masked => {
                let number = masked.number();
                self.note_host(format!("interrupt {number} of an engine under reset is ignored"), effects);
            }
        }
    }

    /// Completes what was submitted to an engine up to this id.
    pub(crate) fn completed_up_to(&mut self, engine: EngineId, id: u64, effects: &mut Effects) {
        while let Some(Submitted { queue: id, level, .. }) = self.in_flight.complete(engine, self.now, id) {
            let queue = &mut self.queues[id];
            queue.running = None;
            let process = queue.process;
            self.runnable.push_back(id);
            self.evaluate_written(process, effects);
            self.evaluate_written_by_others(process, effects);
            if level.is_paging() {
                self.paged.push_back(id);
            }
        }
        self.touched.insert(engine);
    }

    /// An interrupt named an engine, not a fence: whatever was written anywhere is looked at.
    pub(crate) fn evaluate_all_written(&mut self, effects: &mut Effects) {
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for process in processes {
            self.evaluate_written(process, effects);
        }
    }

    /// An engine wrote to memory: the value is visible at once; waits are looked at on an interrupt. `hw_queue` is the
    /// hardware queue whose commands did.
    fn gpu_store(
        &mut self,
        engine: EngineId,
        process: ProcessId,
        (gpu_address, value): (u64, u64),
        hw_queue: Option<u32>,
        effects: &mut Effects,
    ) {
        if self.tdr.resetting.contains(&engine.adapter) {
            let text = format!("adapter {} stored to memory after its reset: ignored", engine.adapter);
            self.note_host(text, effects);
            return;
        }
        let open = self.open_to_write(engine, process, gpu_address).and_then(|open| {
            let may = self.may_store(hw_queue, self.opens[open].object);
            may.then_some(open).ok_or_else(|| "user-mode submission reaches native fences only".into())
        });
        match open {
            Ok(open) => {
                let object = self.opens[open].object;
                if let Some(paging_queue) = self.opens[open].mapping.paging_queue {
                    self.paging_reached(paging_queue, value);
                }
                if self.ignores_value(object, value, effects) {
                    return;
                }
                self.note_unannounced(hw_queue, object, value, effects);
                self.note_ring_progress(hw_queue, object, value);
                let value = self.written_value(process, object, value, effects);
                self.written_by_gpu(open, object, engine.adapter, value);
                self.write_native_memory(open, object, value);
                self.in_flight.expect_hw_progress(engine.adapter, self.now);
                if self.edges.on {
                    let running = self.in_flight.engine(engine).submitted.front().map(|one| one.queue);
                    let context = running.filter(|queue| self.queues.get(*queue).is_some());
                    let by = match hw_queue {
                        Some(hw_queue) => Some(Orderer::HwQueue(HwQueueId(hw_queue))),
                        None => context.map(|queue| self.orderer(queue)),
                    };
                    by.into_iter().for_each(|by| self.tell_signaled(by, object, value));
                }
                self.store_value(object, value, effects);
            }
            Err(why) => {
                let node = engine.node;
                let text = format!(
                    "node {node} stored to GPU address {gpu_address:#x}: nothing it may write is there ({why})"
                );
                self.note(process, text, effects);
            }
        }
    }

    /// A buffer of this process is done: its fences are looked at, also those that the engines of others wrote and have
    /// not told of (FEN-017, F-29: the process that completes decides which fences, not the one that wrote).
    fn evaluate_written_by_others(&mut self, process: ProcessId, effects: &mut Effects) {
        let opened = |object: &u32| {
            let state = self.objects.get(*object);
            state.is_some_and(|state| state.opens().any(|open| self.opens[open].process == process))
        };
        let others: Vec<ProcessId> = self.wrote_shared.iter().copied().filter(|id| *id != process).collect();
        let written_by = |id: &ProcessId| self.process(*id).written.iter().copied();
        let written: Vec<u32> = others.iter().flat_map(written_by).filter(opened).collect();
        if written.is_empty() {
            return;
        }
        for other in others {
            self.process_mut(other).written.retain(|object| !written.contains(object));
        }
        for object in written {
            self.propagate_current_value(object, None, effects);
            self.evaluate(object, effects);
        }
    }

    /// Commands of a queue of user-mode submission reach native fences only (FEN-118).
    fn may_store(&self, hw_queue: Option<u32>, object: u32) -> bool {
        let user_mode = hw_queue.and_then(|id| self.hw_queues.get(id)).is_some_and(HwQueue::user_mode);
        !user_mode || self.objects[object].object_type == SyncObjectType::NATIVE_FENCE
    }

    /// The last-queued value comes before the buffer (SCH-030): progress beyond it was not announced.
    fn note_unannounced(&self, hw_queue: Option<u32>, object: u32, value: u64, effects: &mut Effects) {
        let Some(queue) = hw_queue.and_then(|id| self.hw_queues.get(id)) else { return };
        if queue.user_mode() && queue.progress == object && value > queue.last_queued {
            let (handle, last_queued) = (queue.handle, queue.last_queued);
            let text = format!(
                "hardware queue {handle} made progress {value}, the last-queued value is {last_queued}: store it before the buffer"
            );
            self.note(queue.process, text, effects);
        }
    }

    /// A queue of user-mode submission wrote its progress fence.
    fn note_ring_progress(&mut self, hw_queue: Option<u32>, object: u32, value: u64) {
        let Some(hw_queue) = hw_queue.and_then(|id| self.hw_queues.get(id)) else { return };
        if hw_queue.user_mode() && hw_queue.progress == object {
            let (queue, is_over) = (hw_queue.queue, value >= hw_queue.last_queued);
            self.in_flight.ring_progressed(self.queues[queue].engine, self.now, queue, is_over);
        }
    }

    pub(crate) fn evaluate_written(&mut self, process: ProcessId, effects: &mut Effects) {
        let Some(owner) = self.processes.get_mut(&process) else { return };
        self.wrote_shared.remove(&process);
        for object in core::mem::take(&mut owner.written) {
            // It may be gone by now; whoever has its place loses nothing by being looked at.
            if self.objects.get(object).is_some() {
                self.propagate_current_value(object, None, effects);
                self.evaluate(object, effects);
            }
        }
    }
}
