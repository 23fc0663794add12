//! Callbacks and interrupts of drivers, and the completions that they report. See `engine.rs` for the rules.

use alloc::collections::VecDeque;
use alloc::format;

use d3dkmt::SyncObjectType;

use super::engine::{EngineWrite, Submitted};
use super::{HwQueue, Task};
use crate::ddi::{Agent, Callback, EngineId, EngineStore, HwQueueId, Interrupt, SignalEffect};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::sync::written::Mark;
use crate::{DmaOp, MemoryRef, ProcessId};

/// Interrupts of one adapter that wait for NotifyDpc at most. One or a few do at a driver that calls it.
const INTERRUPTS_PER_ADAPTER_MAX: usize = 4096;

impl Kernel {
    /// Handles a callback of a miniport. Calls no DDI of the scheduler's class: those run when the present DDI has
    /// returned.
    pub(crate) fn callback(&mut self, callback: Callback, effects: &mut Effects) {
        match callback {
            Callback::GpuStore { engine, process, gpu_address, value } => {
                self.gpu_store(engine, process, gpu_address, value, None, effects);
            }
            Callback::GpuLoad { engine, process, gpu_address, to } => {
                self.gpu_load(engine, process, gpu_address, to, effects);
            }
            Callback::HwQueueStore { engine, hw_queue, gpu_address, value } => {
                let Some(HwQueue { process, .. }) = self.vidsch.hw_queues.get(hw_queue.0) else { return };
                self.gpu_store(engine, *process, gpu_address, value, Some(hw_queue.0), effects);
            }
            Callback::Dma { engine, moved } => self.move_data(engine, moved, effects),
            Callback::NativeFenceLogWrite(write) => self.native_fence_log_written(&write),
            Callback::DisconnectDoorbell { hw_queue, reason } => {
                self.driver_disconnects(hw_queue, reason, effects);
            }
            Callback::NotifyInterrupt(interrupt) => self.record_interrupt(interrupt, effects),
            Callback::NotifyDpc { adapter } => self.process_interrupts(adapter, effects),
            Callback::InvalidateHwContext { context, reason } => {
                self.context_invalidated(context.0, reason, effects);
            }
            Callback::SignalEvent { adapter, signal } => self.driver_signals(adapter, signal, effects),
            Callback::DebugPrint { adapter, process, text } => {
                self.debug_print(adapter, process, &text, effects);
            }
            Callback::Violation { adapter, what } => self.violation(adapter, &what, effects),
            Callback::Stuck { nanos } => self.driver_was_stuck(nanos, effects),
        }
    }

    /// Records an interrupt until the driver calls NotifyDpc. A driver that never does loses the next ones.
    fn record_interrupt(&mut self, interrupt: Interrupt, effects: &mut Effects) {
        let (adapter, recorded) = (interrupt.adapter(), &self.vidsch.interrupts);
        let is_full = recorded.len() >= INTERRUPTS_PER_ADAPTER_MAX
            && recorded.iter().filter(|one| one.adapter() == adapter).count() >= INTERRUPTS_PER_ADAPTER_MAX;
        if !is_full {
            return self.vidsch.interrupts.push_back(interrupt);
        }
        let number = interrupt.number();
        let problem = format!(
            "interrupt {number} is dropped, because {INTERRUPTS_PER_ADAPTER_MAX} earlier ones wait for DxgkCbNotifyDpc"
        );
        self.violation(adapter, &problem, effects);
    }

    fn process_interrupts(&mut self, adapter: u32, effects: &mut Effects) {
        let mut others = VecDeque::new();
        while let Some(interrupt) = self.vidsch.interrupts.pop_front() {
            if interrupt.adapter() == adapter {
                self.interrupt(interrupt, effects);
            } else {
                others.push_back(interrupt);
            }
        }
        self.vidsch.interrupts = others;
    }

    /// Whether the kernel ignores this engine's interrupts, because it is about to be reset (TDR-012).
    fn is_masked(&self, engine: EngineId) -> bool {
        self.vidsch.in_flight.engines.get(&engine).is_some_and(|engine| engine.watch.is_masked())
    }

    /// Forgets what was recorded of the work of engines that were reset.
    pub(crate) fn forget_interrupts_of(&mut self, is_reset: impl Fn(EngineId) -> bool) {
        self.vidsch.interrupts.retain(|one| !one.engine_of_work().is_some_and(&is_reset));
    }

    fn interrupt(&mut self, interrupt: Interrupt, effects: &mut Effects) {
        if interrupt.engine_of_work().is_some_and(|engine| self.is_masked(engine)) {
            let text = format!("interrupt {} of an engine under reset is ignored", interrupt.number());
            return self.note_host(text, effects);
        }
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
            Interrupt::DmaCompleted { engine, submission_fence_id } => {
                if self.is_next_id(engine, submission_fence_id, effects)
                    && self.is_news(engine, submission_fence_id)
                {
                    self.completed_up_to(engine, submission_fence_id, effects);
                }
            }
            Interrupt::DmaPreempted { engine, preemption_fence_id, last_completed_fence_id } => {
                // It may be an older one: a reset or a fault moves the kernel's last completed id further than the hardware's.
                if self.is_submitted_id(engine, last_completed_fence_id, effects) {
                    if self.is_news(engine, last_completed_fence_id) {
                        self.completed_up_to(engine, last_completed_fence_id, effects);
                    }
                    self.preempted(engine, preemption_fence_id, effects);
                }
            }
            Interrupt::DmaFaulted { engine, faulted_fence_id } => {
                self.dma_faulted(engine, faulted_fence_id, effects);
            }
            Interrupt::DmaPageFaulted { engine, faulted_fence_id, gpu_address, flags } => {
                self.dma_page_faulted(engine, faulted_fence_id, gpu_address, flags, effects);
            }
            Interrupt::HwQueuePageFaulted { engine, work, gpu_address, flags } => {
                self.hw_queue_page_faulted(engine, work, gpu_address, flags, effects);
            }
            Interrupt::GpuEngineTimeout { engine } => self.engine_timed_out(engine, effects),
        }
    }

    /// Whether the completion of this id tells something. If it was told before, what is outstanding below it is a paging
    /// buffer that came again, and has not run.
    fn is_news(&self, engine: EngineId, id: u64) -> bool {
        let engine = self.vidsch.in_flight.engines.get(&engine);
        engine.is_some_and(|engine| id > engine.completed || engine.has(id))
    }

    /// Completes what was submitted to an engine up to this id.
    pub(crate) fn completed_up_to(&mut self, engine: EngineId, id: u64, effects: &mut Effects) {
        while let Some(Submitted { queue: id, level, .. }) =
            self.vidsch.in_flight.complete(engine, self.now, id)
        {
            let queue = &mut self.vidsch.queues[id];
            queue.running = None;
            let process = queue.process;
            self.count_driver_bytes(process, engine.adapter);
            self.vidsch.work.run_queue(id);
            self.evaluate_written(process, Mark::HasOpen, effects);
            if level.is_paging() {
                self.vidsch.work.run_paged(id);
            }
        }
        self.vidsch.work.dispatch(engine);
    }

    /// Evaluates every fence that an engine wrote, because an interrupt named an engine and no fence. What does not fit
    /// the step is left as tasks of the processes that the engines wrote for.
    pub(crate) fn evaluate_all_written(&mut self, effects: &mut Effects) {
        let mut from = ProcessId(0);
        while let Some((process, object)) = self.sync.written().next_writer(from) {
            if self.vidsch.work.backlog_mut().may_evaluate() {
                self.evaluate_engine_write(object, effects);
                continue;
            }
            self.leave_written(process, Mark::Wrote);
            let Some(next) = process.0.checked_add(1) else { return };
            from = ProcessId(next);
        }
    }

    /// Applies an engine's write to memory. With I/O coherency the value is visible at once; waits are evaluated on an
    /// interrupt. `hw_queue` is the hardware queue whose commands wrote.
    fn gpu_store(
        &mut self,
        engine: EngineId,
        process: ProcessId,
        gpu_address: u64,
        value: u64,
        hw_queue: Option<u32>,
        effects: &mut Effects,
    ) {
        if self.tdr.is_resetting(engine.adapter) {
            let text = format!("adapter {} stored to memory after its reset: ignored", engine.adapter);
            self.note_host(text, effects);
            return;
        }
        let open = self.open_to_write(engine, process, gpu_address).and_then(|open| {
            let may = self.may_store(hw_queue, self.sync.opens()[open].object);
            may.then_some(open).ok_or_else(|| "user-mode submission reaches native fences only".into())
        });
        match open {
            Ok(open) => {
                if let Some(paging_queue) = self.sync.opens()[open].mapping.paging_queue
                    && !self.paging_reached(paging_queue, value)
                {
                    return;
                }
                let by = self.writer(engine, hw_queue);
                let write = EngineWrite { engine, process, open, gpu_address, value, hw_queue, by };
                self.apply_engine_write(write, effects);
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

    /// The queue whose commands an engine runs: this hardware queue, or the one of the running buffer.
    fn writer(&mut self, engine: EngineId, hw_queue: Option<u32>) -> Option<Agent> {
        if !self.happens_before.is_on() {
            return None;
        }
        if let Some(hw_queue) = hw_queue {
            return Some(Agent::HwQueue(HwQueueId(hw_queue)));
        }
        let running = self.vidsch.in_flight.engine(engine).submitted.front().map(|one| one.queue);
        let context = running.filter(|queue| self.vidsch.queues.get(*queue).is_some());
        context.map(|queue| self.agent(queue))
    }

    /// Applies an engine's write to a fence.
    pub(crate) fn apply_engine_write(&mut self, write: EngineWrite, effects: &mut Effects) {
        let EngineWrite { engine, process, open, gpu_address, value, hw_queue, by } = write;
        let object = self.sync.opens()[open].object;
        let objects = self.sync.objects();
        let last = (!objects.is_poisoned(object)).then(|| objects.value(object));
        if self.ignores_value(object, value, effects) {
            return;
        }
        self.note_unannounced(hw_queue, object, value, effects);
        self.note_ring_progress(hw_queue, object, value);
        let stored = EngineStore { adapter: engine.adapter, gpu_address, value };
        let value = self.written_value(process, (object, engine.adapter), (last, value), effects);
        self.written_by_gpu(open, object, engine.adapter, value);
        self.write_native_memory(open, object, value);
        self.vidsch.in_flight.expect_hw_progress(engine.adapter, self.now);
        if let Some(by) = by {
            self.report_signal_of(by, (object, value), SignalEffect::Applied, Some(stored));
        }
        self.store_from_engine(engine.adapter, object, value, effects);
    }

    /// Applies an engine's read of a fence: writes its value to `to`.
    fn gpu_load(
        &mut self,
        engine: EngineId,
        process: ProcessId,
        gpu_address: u64,
        to: MemoryRef,
        effects: &mut Effects,
    ) {
        match self.open_to_read(engine, process, gpu_address) {
            Ok(open) => {
                let value = self.sync.objects().value(self.sync.opens()[open].object);
                for (bytes, pattern) in [(0, value as u32), (4, (value >> 32) as u32)] {
                    let moved = DmaOp::Fill { to: to.ahead(bytes), bytes: 4, pattern };
                    self.move_data(engine, moved, effects);
                }
            }
            Err(why) => {
                let node = engine.node;
                let text =
                    format!("node {node} read GPU address {gpu_address:#x}: no fence is there ({why})");
                self.note(process, text, effects);
            }
        }
    }

    /// Evaluates the fences that engines wrote for this process. With [`Mark::HasOpen`], because one of its buffers
    /// completed, also those that it has open and engines wrote for others (FEN-017, F-29: the process that completes
    /// decides which fences, not the one that wrote).
    pub(crate) fn evaluate_written(&mut self, process: ProcessId, up_to: Mark, effects: &mut Effects) {
        while let Some(object) = self.sync.written().next_of(process, up_to) {
            if !self.vidsch.work.backlog_mut().may_evaluate() {
                return self.leave_written(process, up_to);
            }
            self.evaluate_engine_write(object, effects);
        }
        self.sync.end_due(process, up_to);
    }

    fn leave_written(&mut self, process: ProcessId, up_to: Mark) {
        self.sync.set_due(process, up_to);
        self.leave(process, Task::EvaluateWritten(up_to));
    }

    /// Evaluates a fence that is due before its value changes.
    #[inline(always)]
    pub(crate) fn evaluate_if_due(&mut self, object: u32, effects: &mut Effects) {
        if self.sync.written().has_due() {
            self.evaluate_due(object, effects);
        }
    }

    #[cold]
    fn evaluate_due(&mut self, object: u32, effects: &mut Effects) {
        if self.sync.written().is_due(object) {
            self.evaluate_engine_write(object, effects);
        }
    }

    /// Handles an engine's write to a fence once an interrupt reports it. The process that the engine wrote for pays for
    /// the waits.
    fn evaluate_engine_write(&mut self, object: u32, effects: &mut Effects) {
        let Some((first, marks)) = self.sync.take_written(object) else { return };
        self.spend(marks);
        let payer = Some(first.by).filter(|by| self.processes.get(*by).is_some());
        let before = self.vidsch.work.backlog_mut().act_for(payer);
        self.publish_engine_write(object, effects);
        self.propagate_current_value(object, None);
        self.evaluate(object, effects);
        self.vidsch.work.backlog_mut().act_for(before);
    }

    /// Commands of a queue of user-mode submission reach native fences only (FEN-118).
    fn may_store(&self, hw_queue: Option<u32>, object: u32) -> bool {
        let user_mode = hw_queue.and_then(|id| self.vidsch.hw_queues.get(id)).is_some_and(HwQueue::user_mode);
        !user_mode || self.sync.objects()[object].object_type == SyncObjectType::NATIVE_FENCE
    }

    /// The last-queued value comes before the buffer (SCH-030): progress beyond it was not announced.
    fn note_unannounced(&self, hw_queue: Option<u32>, object: u32, value: u64, effects: &mut Effects) {
        let Some(queue) = hw_queue.and_then(|id| self.vidsch.hw_queues.get(id)) else { return };
        if queue.user_mode() && queue.progress == object && value > queue.last_queued {
            let (handle, last_queued) = (queue.handle, queue.last_queued);
            let text = format!(
                "hardware queue {handle} made progress {value}, the last-queued value is {last_queued}: store it before the buffer"
            );
            self.note(queue.process, text, effects);
        }
    }

    /// Notes progress of a queue of user-mode submission that wrote its progress fence.
    fn note_ring_progress(&mut self, hw_queue: Option<u32>, object: u32, value: u64) {
        let Some(hw_queue) = hw_queue.and_then(|id| self.vidsch.hw_queues.get(id)) else { return };
        if hw_queue.user_mode() && hw_queue.progress == object {
            let (queue, is_over) = (hw_queue.queue, value >= hw_queue.last_queued);
            self.vidsch.in_flight.ring_progressed(self.vidsch.queues[queue].engine, self.now, queue, is_over);
        }
    }
}
