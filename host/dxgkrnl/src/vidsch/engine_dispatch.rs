//! How a command buffer gets to its engine and back. See `ready_command.rs` for the rules.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::NtStatus;

use super::engine::{HARDWARE_QUEUE_DEPTH, Submitted};
use super::ready::{First, Level, ReadyPosition};
use super::ready_command::ReadyCommand;
use super::{Packet, Queue, Task};
use crate::ddi::{EngineId, HwContext, Submission};
use crate::effects::Effects;
use crate::history::Ending;
use crate::kernel::Kernel;
use crate::tdr::Watch;
use crate::tdr::bugcheck::{
    FAILED_CANCEL_COMMAND, FAILED_PATCH_COMMAND, FAILED_SUBMIT_COMMAND, VIDEO_SCHEDULER_INTERNAL_ERROR,
};
use crate::{Nanos, ProcessId, VidSchCaps, VmId};

enum Next {
    Submit(First),
    Preempt,
}

impl Kernel {
    /// Makes a command buffer ready that has reached the head of its queue.
    pub(super) fn start_command(&mut self, id: u32, commands: Vec<u8>, effects: &mut Effects) {
        self.wake_adapter(self.vidsch.queues[id].engine.adapter, effects);
        let vm = self.vm_of_queue(id);
        self.vidsch.in_flight.engine(self.vidsch.queues[id].engine).joins(vm, self.now);
        let position = self.ready_position(id);
        self.make_ready(id, ReadyCommand { position, commands, resubmits: None });
    }

    fn ready_position(&mut self, queue: u32) -> ReadyPosition {
        let context = &self.vidsch.contexts[self.vidsch.queues[queue].context];
        let class = self.process(context.process).priority_class;
        let level = context.paging.unwrap_or_else(|| Level::new(class, context.priority));
        let in_process = context.in_process_priority;
        ReadyPosition { level, in_process, turn: self.vidsch.in_flight.next_turn() }
    }

    fn make_ready(&mut self, id: u32, command: ReadyCommand) {
        let vm = self.vm_of_queue(id);
        let queue = &mut self.vidsch.queues[id];
        let engine = self.vidsch.in_flight.engine(queue.engine);
        engine.ready.insert(vm, queue.process, id, command.position);
        self.vidsch.work.dispatch(queue.engine);
        queue.ready = Some(command);
    }

    /// Takes back the command buffer that a queue has ready.
    pub(crate) fn unready(&mut self, id: u32) -> Option<ReadyCommand> {
        let queue = self.vidsch.queues.get_mut(id)?;
        let command = queue.ready.take()?;
        let (engine, process) = (queue.engine, queue.process);
        let vm = self.process(process).vm;
        let engine = self.vidsch.in_flight.engine(engine);
        engine.ready.remove(vm, process, id, command.position);
        engine.note_if_unwanted();
        Some(command)
    }

    /// Moves a queue's ready command buffer after a change of its context's priority. It keeps its turn.
    pub(super) fn replace_ready(&mut self, id: u32) {
        if self.vidsch.contexts[self.vidsch.queues[id].context].paging.is_some() {
            return;
        }
        let Some(mut command) = self.unready(id) else { return };
        let position = self.ready_position(id);
        command.position = ReadyPosition { turn: command.position.turn, ..position };
        self.make_ready(id, command);
    }

    /// Gives an engine the next command buffer if it has room, or asks it to preempt.
    pub(super) fn dispatch_engine(&mut self, engine: EngineId, effects: &mut Effects) {
        if self.tdr.bugcheck().is_some() {
            return;
        }
        match self.next_step(engine) {
            None => {}
            Some(Next::Submit(first)) => match self.deferred_drop(engine, first) {
                Some(process) => self.leave(process, Task::Dispatch(engine)),
                None => self.submit_next(engine, first, effects),
            },
            Some(Next::Preempt) => self.request_preemption(engine, false, effects),
        }
    }

    /// Continues a dispatch that an earlier step left. At least one ready buffer is dropped or submitted, even if the step
    /// has units for no more.
    pub(super) fn continue_dispatch(&mut self, engine: EngineId, effects: &mut Effects) {
        self.spend(1);
        match self.next_step(engine).filter(|_| self.tdr.bugcheck().is_none()) {
            Some(Next::Submit(first)) => self.submit_next(engine, first, effects),
            Some(Next::Preempt) | None => self.vidsch.work.dispatch(engine),
        }
    }

    pub(crate) fn caps(&self, engine: EngineId) -> VidSchCaps {
        self.config.adapters.get(engine.adapter as usize).map_or(VidSchCaps::empty(), |adapter| adapter.caps)
    }

    fn next_step(&self, id: EngineId) -> Option<Next> {
        let engine = self.vidsch.in_flight.engines.get(&id)?;
        if engine.watch != Watch::Running || self.tdr.is_held(id) || self.vidsch.idle_waits.holds(id.adapter)
        {
            return None;
        }
        let room = engine.submitted.len() < HARDWARE_QUEUE_DEPTH;
        let can_preempt = self.caps(id).contains(VidSchCaps::PREEMPTION_AWARE);
        let first =
            engine.ready.first(|vm| (self.tdr.is_backed_off(vm, self.now), engine.shares.used(vm)))?;
        let is_paging = |one: &Submitted| one.level.is_paging();
        let makes_way = |one: &Submitted| {
            let higher_of_its_vm =
                || engine.ready.highest_of(one.vm).is_some_and(|highest| one.level < highest);
            !is_paging(one)
                && (first.level.is_paging() || higher_of_its_vm() || self.yields_to(one.vm, first.vm))
        };
        if can_preempt && engine.submitted.iter().any(makes_way) {
            return Some(Next::Preempt);
        }
        // The next paging buffer is chosen when the one before it is done (FEN-092).
        let room = room && !(first.level.is_paging() && engine.submitted.iter().any(is_paging));
        // A buffer that would be preempted at once is not given to an engine that works for others.
        let room = room && !engine.submitted.front().is_some_and(|one| self.yields_to(first.vm, one.vm));
        room.then_some(Next::Submit(first))
    }

    /// Whether work of `other` comes before that of `vm` at once, not only in its turn.
    fn yields_to(&self, vm: VmId, other: VmId) -> bool {
        self.tdr.is_backed_off(vm, self.now) && !self.tdr.is_backed_off(other, self.now)
    }

    /// The VM that a queue's engine time is charged to.
    fn vm_of_queue(&self, queue: u32) -> VmId {
        self.process(self.vidsch.queues[queue].process).vm
    }

    /// Submits the next command buffer, and dispatches the engine again.
    fn submit_next(&mut self, engine: EngineId, first: First, effects: &mut Effects) {
        let Some(id) = self.vidsch.in_flight.engine(engine).ready.take(first) else { return };
        if self.end_instead_of_submit(id, effects) {
            self.vidsch.work.dispatch(engine);
            return;
        }
        let queue = &mut self.vidsch.queues[id];
        let Some(ReadyCommand { position, commands, resubmits }) = queue.ready.take() else { return };
        let (context, process) = (HwContext(queue.context), queue.process);
        let paging = position.level.is_paging();
        let submission_fence_id =
            self.vidsch.in_flight.begin(engine, self.now, first.vm, id, first.counts_as, resubmits);
        (queue.running, queue.turn) = (Some(submission_fence_id), position.turn);
        if matches!(queue.packets.front(), Some(Packet::Signal(_) | Packet::Broadcast(_))) {
            // The signal may take effect at submission.
            self.vidsch.work.run_queue(id);
        }
        let submission =
            Submission { engine, context, process, submission_fence_id, resubmits, paging, commands };
        self.submit(submission, effects);
        self.vidsch.work.dispatch(engine);
    }

    /// The process of the next command buffer, if that is only to be dropped and the step has spent its units. A later
    /// step dispatches the engine again, because any number of such buffers may be ready.
    fn deferred_drop(&self, engine: EngineId, first: First) -> Option<ProcessId> {
        if !self.vidsch.work.backlog().leaves_heads() {
            return None;
        }
        let queue = self.vidsch.in_flight.engines.get(&engine)?.ready.queue_of(first)?;
        self.is_to_end(queue).then(|| self.vidsch.queues[queue].process)
    }

    /// Whether the device or process of this queue is being cleared away.
    fn is_to_end(&self, queue: u32) -> bool {
        let Queue { process, device, context, .. } = self.vidsch.queues[queue];
        let backlog = self.vidsch.work.backlog();
        // Paging work of the system runs as long as the process exists.
        backlog.is_losing(device)
            || backlog.is_ending(process, device) && self.vidsch.contexts[context].paging.is_none()
    }

    /// Ends a queue that is being cleared away instead of submitting its ready buffer; true if it did.
    fn end_instead_of_submit(&mut self, queue: u32, effects: &mut Effects) -> bool {
        if !self.is_to_end(queue) {
            return false;
        }
        let Queue { device, context, .. } = self.vidsch.queues[queue];
        self.spend(1);
        if self.vidsch.work.backlog().is_losing(device) {
            self.empty_queue(queue, effects);
            return true;
        }
        let before = self.history.begin(Ending::Process);
        self.end_context(context, effects);
        self.history.set_ending(before);
        true
    }

    fn submit(&mut self, submission: Submission, effects: &mut Effects) {
        let (adapter, process) = (submission.engine.adapter, submission.process);
        let patches = !self.caps(submission.engine).contains(VidSchCaps::NO_DMA_PATCHING);
        let mut result: (&str, u64, Result<(), NtStatus>) = ("Patch", FAILED_PATCH_COMMAND, Ok(()));
        self.call_ddi(effects, |miniport, now: Nanos, callbacks| {
            let Submission { engine, context, submission_fence_id, resubmits, .. } = submission;
            if patches && resubmits.is_none() {
                result.2 = miniport.patch(engine, context, submission_fence_id);
            }
            if result.2.is_ok() {
                let submitted = miniport.submit_command(now, submission, callbacks);
                result = ("SubmitCommand", FAILED_SUBMIT_COMMAND, submitted);
            }
        });
        if let (ddi, subtype, Err(status)) = result {
            self.ddi_failed(ddi, subtype, status, effects);
        }
        self.count_driver_bytes(process, adapter);
    }

    /// Asks an engine to preempt its submissions, perhaps again. `time_is_up`: the oldest submission goes to the end of its
    /// round.
    pub(crate) fn request_preemption(&mut self, engine: EngineId, time_is_up: bool, effects: &mut Effects) {
        let preemption_fence_id = self.vidsch.in_flight.next_turn();
        let since = self.now;
        let watch = &mut self.vidsch.in_flight.engine(engine).watch;
        let is_repeated = matches!(watch, Watch::Preempting { .. });
        *watch =
            Watch::Preempting { preemption_fence_id, since, time_is_up, is_repeated, is_misanswered: false };
        let mut result = Ok(());
        self.call_ddi(effects, |miniport, now, callbacks| {
            result = miniport.preempt_command(now, engine, preemption_fence_id, callbacks);
        });
        if let Err(status) = result {
            self.ddi_failed("PreemptCommand", FAILED_SUBMIT_COMMAND, status, effects);
        }
    }

    /// Handles the answer to a preemption request: incomplete submissions are ready again.
    pub(super) fn preempted(&mut self, id: EngineId, answered: u64, effects: &mut Effects) {
        let now = self.now;
        let engine = self.vidsch.in_flight.engine(id);
        let Watch::Preempting { preemption_fence_id, time_is_up, ref mut is_misanswered, .. } = engine.watch
        else {
            return;
        };
        if preemption_fence_id != answered {
            *is_misanswered = true;
            let EngineId { adapter, node } = id;
            let text = format!(
                "engine {adapter}.{node} reports preemption {answered}, which gives nothing back: the kernel waits for \
                 {preemption_fence_id}"
            );
            return self.note_host(text, effects);
        }
        engine.watch = Watch::Running;
        if engine.submitted.front().is_some_and(|oldest| self.miniport.has_begun(id, oldest.id)) {
            engine.charge_oldest(now);
            engine.unserved_since = None;
        }
        let given_back = core::mem::take(&mut engine.submitted);
        self.requeue_returned(id, given_back, time_is_up);
    }

    /// Makes submissions that the engine has given up ready again, to be submitted under new ids; paging buffers first
    /// and under their own (SCH-008, TDR-019).
    pub(crate) fn requeue_returned(
        &mut self,
        engine: EngineId,
        given_back: VecDeque<Submitted>,
        time_is_up: bool,
    ) {
        for (at, Submitted { id, vm, queue, level }) in given_back.into_iter().enumerate() {
            let turn = self.vidsch.queues[queue].turn;
            let mut position = self.ready_position(queue);
            if !(time_is_up && at == 0) {
                position.turn = turn;
            }
            if level.is_paging() {
                position.level = Level::PAGING_AGAIN;
            }
            self.vidsch.queues[queue].running = None;
            self.make_ready(queue, ReadyCommand { position, commands: Vec::new(), resubmits: Some(id) });
            if !level.is_paging() && !self.miniport.has_begun(engine, id) {
                self.vidsch.in_flight.engine(engine).ready.came_back(vm, level == Level::OWED);
            }
        }
        self.vidsch.work.dispatch(engine);
    }

    /// Cancels command buffers that will not be submitted (`DxgkDdiCancelCommand`).
    pub(crate) fn cancel_commands<'a>(
        &mut self,
        engine: EngineId,
        context: u32,
        commands: impl Iterator<Item = &'a [u8]>,
        effects: &mut Effects,
    ) {
        if !self.caps(engine).contains(VidSchCaps::CANCEL_COMMAND_AWARE)
            || self.tdr.stopped_adapters().contains(&engine.adapter)
        {
            return;
        }
        for commands in commands {
            if let Err(status) = self.miniport.cancel_command(HwContext(context), commands) {
                self.ddi_failed("CancelCommand", FAILED_CANCEL_COMMAND, status, effects);
            }
        }
    }

    /// Raises the bugcheck for a DDI of the scheduler class that failed (TDR-033).
    fn ddi_failed(&mut self, ddi: &str, subtype: u64, status: NtStatus, effects: &mut Effects) {
        let parameters = [subtype, u64::from(status.0), 0, 0];
        self.bugcheck(
            VIDEO_SCHEDULER_INTERNAL_ERROR,
            parameters,
            format!("DxgkDdi{ddi} failed with {status}"),
            effects,
        );
    }
}
