//! Creates, fills, runs and ends queues; has the loop that runs all work.

use alloc::collections::VecDeque;

use super::backlog::{DroppedPackets, Task};
use super::queue::{Packet, Queue, commands};
use super::work::{DeferredCallback, Work};
use crate::ProcessId;
use crate::ddi::{Agent, EngineId, FaultedWork, HappensBefore, HwContext, Interrupt};
use crate::effects::Effects;
use crate::kernel::Kernel;
use crate::sync::written::Mark;

impl Kernel {
    /// A queue for a context, or for a hardware queue of it.
    pub(crate) fn new_queue(&mut self, device: u32, engine: EngineId, context: u32) -> u32 {
        let process = self.processes.devices()[device].process;
        let packets = VecDeque::new();
        let id = self.vidsch.queues.insert(Queue {
            process,
            device,
            engine,
            context,
            packets,
            running: None,
            ready: None,
            turn: 0,
            hw_queue: None,
            in_flight: VecDeque::new(),
            passed_mark: None,
        });
        self.processes.device_mut(device).queues.insert(id);
        id
    }

    /// Ends the queue of a context: drops its submission on the engine, and then its queued packets.
    pub(crate) fn end_queue(&mut self, id: u32, effects: &mut Effects) {
        let ready = self.unready(id);
        let queue = self.vidsch.queues.take(id).expect("its owner is live");
        self.processes.device_mut(queue.device).queues.remove(&id);
        let (engine, context) = (queue.engine, queue.context);
        self.vidsch.forget_reports_about(|interrupt| match interrupt {
            Interrupt::SuspendContextCompleted { context: of, .. } => of.0 == context,
            Interrupt::HwQueuePageFaulted { work: FaultedWork::Context(of), .. } => of.0 == context,
            _ => false,
        });
        if let Some(submission_fence_id) = queue.running {
            self.vidsch.in_flight.forget(engine, self.now, submission_fence_id);
            self.vidsch.work.dispatch(engine);
        }
        let resubmitted = ready.as_ref().and_then(|command| command.resubmits);
        let not_submitted = ready.iter().filter(|command| command.resubmits.is_none());
        let not_submitted = not_submitted.map(|command| &command.commands[..]);
        self.cancel_commands(engine, context, not_submitted.chain(commands(&queue.packets)), effects);
        let submitted =
            queue.running.or(resubmitted).map(|submission_fence_id| (engine, submission_fence_id));
        self.run_ddi(effects, |miniport, now, callbacks| {
            miniport.destroy_context(now, HwContext(context), submitted, callbacks);
        });
        self.count_driver_bytes(queue.process, engine.adapter);
        if submitted.is_some() {
            // A dropped buffer will not complete, so its writes are evaluated now.
            self.evaluate_written(queue.process, Mark::Wrote, effects);
        }
        let is_of_context = queue.hw_queue.is_none();
        self.drop_packets_of_ended(id, queue, effects);
        if is_of_context {
            self.edge(HappensBefore::Gone(Agent::Context(HwContext(context))));
        }
    }

    /// Drops the mark and the packets of a queue that has ended, without effect.
    pub(super) fn drop_packets_of_ended(&mut self, id: u32, ended: Queue, effects: &mut Effects) {
        let Queue { process, packets, passed_mark, .. } = ended;
        if let Some((round, _)) = passed_mark {
            self.reach_mark(round);
        }
        self.drop_packets(process, DroppedPackets { packets, queue: Some(id), status: None }, effects);
    }

    pub(crate) fn enqueue(&mut self, queue: u32, packet: Packet) {
        let process = self.vidsch.queues[queue].process;
        self.processes.queue_bytes(process, packet.weight());
        self.vidsch.queues[queue].packets.push_back(packet);
        self.vidsch.work.run_queue(queue);
    }

    /// Puts the rest of a head packet back to the head of its queue.
    pub(super) fn put_back(&mut self, queue: u32, packet: Packet) {
        let process = self.vidsch.queues[queue].process;
        self.processes.queue_bytes(process, packet.weight());
        self.vidsch.queues[queue].packets.push_front(packet);
        self.vidsch.work.run_queue(queue);
    }

    /// Drops packets of a queue of this process: no value changes. Frees the index of a destroyed queue.
    pub(crate) fn drop_packets(
        &mut self,
        process: ProcessId,
        mut dropped: DroppedPackets,
        effects: &mut Effects,
    ) {
        let packets = &mut dropped.packets;
        self.processes.unqueue_bytes(process, packets.iter().map(Packet::weight).sum::<usize>());
        // It stands in lines that others evaluate.
        if let Some(Packet::Acquire(_)) = packets.front()
            && let Some(Packet::Acquire(acquire)) = packets.pop_front()
        {
            self.drop_acquire(acquire);
        }
        self.continue_drop(process, dropped, effects);
    }

    /// Drops packets as far as the units of the step reach, and leaves the others.
    pub(super) fn continue_drop(
        &mut self,
        process: ProcessId,
        mut dropped: DroppedPackets,
        effects: &mut Effects,
    ) {
        let status = dropped.status;
        while let Some(packet) = dropped.packets.pop_front() {
            self.spend(1);
            match packet {
                Packet::Wait(wait) => {
                    self.happens_before.forget(wait);
                    self.end_wait(wait);
                }
                Packet::Acquire(acquire) => self.drop_acquire(acquire),
                Packet::WaitAtHead(items) => {
                    for item in items {
                        self.release_reference(item.object);
                    }
                }
                Packet::Signal(signal) => self.drop_signal(signal, status, effects),
                Packet::Broadcast(broadcast) => {
                    self.vidsch.broadcasts[broadcast].broken = true;
                    self.vidsch.broadcasts[broadcast].status = status;
                    self.reach_broadcast(None, broadcast, effects);
                }
                Packet::Mark(round) => self.reach_mark(round),
                Packet::Command(_) | Packet::HwCommand { .. } | Packet::PageTables(_) => {}
            }
            if self.is_spent() && !dropped.packets.is_empty() {
                self.leave(process, Task::DropPackets(dropped));
                return;
            }
        }
        if let Some(queue) = dropped.queue {
            self.vidsch.queues.free(queue);
        }
    }

    /// Runs all work of the step: see `work.rs`.
    #[inline]
    pub(crate) fn run_to_idle(&mut self, effects: &mut Effects) {
        if !self.is_settled() {
            self.work_until_settled(effects);
        }
    }

    /// Whether there is no work, as after most inputs.
    #[inline]
    pub(super) fn is_settled(&mut self) -> bool {
        self.vidsch.work.is_empty()
            && self.tdr.is_settled()
            && self.native.is_settled()
            && self.vidsch.idle_waits.is_empty()
            && !self.miniport.has_died()
    }

    fn work_until_settled(&mut self, effects: &mut Effects) {
        loop {
            self.process_callbacks(effects);
            self.stop_dead_drivers(effects);
            self.leave_queues_if_spent();
            match self.vidsch.work.next() {
                Some(work) => self.perform(work, effects),
                None if self.reset_ready_group(effects)
                    || self.release_begun()
                    || self.update_monitored_values(effects)
                    || self.serve_idle_waits(effects) => {}
                None => return,
            }
        }
    }

    /// Processes the callbacks of drivers, and the callbacks that follow from them, in their order. Must not be called
    /// while a callback is processed: the code that handles that one does not expect changes by others.
    pub(crate) fn process_callbacks(&mut self, effects: &mut Effects) {
        self.vidsch.work.begin_callbacks();
        loop {
            match self.vidsch.work.next_called() {
                Some(DeferredCallback::Callback(callback)) => self.callback(callback, effects),
                Some(DeferredCallback::IsrSignals { adapter, signal }) => {
                    self.isr_signals(adapter, signal, effects)
                }
                Some(DeferredCallback::Dpc { adapter }) => self.run_dpc(adapter, effects),
                Some(DeferredCallback::LogsAreWritten { engine, hw_queue }) => {
                    self.read_logs(engine, hw_queue, effects)
                }
                None => match self.vidsch.work.next_notification() {
                    Some((object, from)) => self.notify_current_value(object, from, true, effects),
                    None => break,
                },
            }
        }
        self.vidsch.work.end_callbacks();
    }

    fn perform(&mut self, work: Work, effects: &mut Effects) {
        self.spend(1);
        match work {
            Work::EndHwQueue(hw_queue) => self.end_hw_queue(hw_queue, effects),
            Work::EndObject(object) => self.end_object(object, effects),
            Work::Recover(recovery) => self.recover(recovery, effects),
            Work::Dispatch(engine) => self.dispatch_engine(engine, effects),
            Work::RunPaged(queue) => {
                // At least one head of it runs, so that the engine gets nothing else before it.
                if self.run_head(queue, effects) {
                    match self.vidsch.work.backlog().leaves_heads() {
                        true => self.leave_queue(queue),
                        false => self.vidsch.work.rerun_paged(queue),
                    }
                }
            }
            Work::RunQueue(queue) => {
                let has_more = |queue: &Queue| !queue.packets.is_empty();
                if self.run_head(queue, effects) && self.vidsch.queues.get(queue).is_some_and(has_more) {
                    self.vidsch.work.rerun_queue(queue);
                }
            }
        }
    }

    /// Runs the head packet of a queue if it can run; true if it did.
    pub(crate) fn run_head(&mut self, id: u32, effects: &mut Effects) -> bool {
        if self.vidsch.queues.get(id).is_none() {
            return false;
        }
        // Also of a lost device, whose engine completes its last buffer.
        self.reach_passed_mark(id);
        let queue = &self.vidsch.queues[id];
        if self.vidsch.work.backlog().is_ending(queue.process, queue.device) {
            return false;
        }
        let before = self.vidsch.work.backlog_mut().act_for(Some(queue.process));
        let goes_on = self.run_head_of(id, effects);
        self.look_for_waiting_end(id);
        self.vidsch.work.backlog_mut().act_for(before);
        goes_on
    }

    fn run_head_of(&mut self, id: u32, effects: &mut Effects) -> bool {
        if matches!(self.vidsch.queues[id].packets.front(), Some(Packet::Acquire(_))) {
            return self.try_acquire(id, effects);
        }
        if !self.head_is_ready(id) {
            return false;
        }
        if self.parks(id) {
            return false;
        }
        self.report_passed(id);
        let queue = &mut self.vidsch.queues[id];
        let Some(packet) = queue.packets.pop_front() else { return false };
        let process = queue.process;
        self.processes.unqueue_bytes(process, packet.weight());
        match packet {
            Packet::Wait(_) | Packet::Acquire(_) => {}
            Packet::WaitAtHead(items) => self.begin_at_head(id, items),
            Packet::Signal(signal) => self.apply_signal(id, signal, effects),
            Packet::Broadcast(broadcast) => self.reach_broadcast(Some(id), broadcast, effects),
            Packet::Mark(round) => self.pass_mark(id, round),
            Packet::Command(commands) => self.start_command(id, commands, effects),
            Packet::HwCommand { progress_fence_id, commands } => {
                self.start_hw_command(id, progress_fence_id, commands, effects);
            }
            Packet::PageTables(updates) => {
                let rest = self.update_page_tables(id, updates, effects);
                if !rest.is_empty() {
                    self.put_back(id, Packet::PageTables(rest));
                }
            }
        }
        true
    }
}
