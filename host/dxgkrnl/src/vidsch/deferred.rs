//! Leaves work that does not fit a step, and continues it in later steps. See `backlog.rs` for the rules.

use alloc::vec::Vec;

use super::backlog::{Task, Turn};
use crate::effects::Effects;
use crate::history::Ending;
use crate::kernel::Kernel;
use crate::{Input, ProcessId, VmId};

impl Kernel {
    /// Whether steps have left work. [`Input::Deadline`] continues it, and is due at once.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        !self.vidsch.work.backlog().is_empty()
    }

    /// Whether timed work that is due did not fit a step: time is then behind. Only [`Input::Deadline`] continues such
    /// work, so that a call costs what its own process has. False while an answered signal comes before the next call.
    pub fn is_late(&self) -> bool {
        self.vidsch.work.backlog().is_late() && self.sync.answered().is_empty()
    }

    /// Whether work of this process is left. Its next call comes after that work: a host that passes the call earlier
    /// has one step do all of it.
    pub fn is_behind(&self, process: ProcessId) -> bool {
        self.has_backlog() && self.vidsch.work.backlog().has_tasks(self.turn_of(process))
    }

    /// Whether a process has ended and is still being cleared away. Its queues do not run, and it gets no effects.
    pub fn is_ending(&self, process: ProcessId) -> bool {
        self.vidsch.work.backlog().ending_processes().contains_key(&process)
    }

    /// Whether a VM of this number was detached and is still being cleared away. The next one comes after that.
    pub fn is_clearing(&self, vm: VmId) -> bool {
        self.vidsch.work.backlog().is_detached(vm)
    }

    /// Units of work that were ever done: see [`d3dkmt::limits::WORK_UNITS_PER_STEP`].
    pub fn work_units(&self) -> u64 {
        self.vidsch.work.backlog().spent()
    }

    /// The most units of work that the step of one input has spent, since the kernel was created or restored.
    pub fn longest_step(&self) -> u64 {
        self.vidsch.work.backlog().longest_step()
    }

    /// For tests: sets the units of work of a step, and those for heads of queues, so that little work already leaves
    /// tasks.
    #[doc(hidden)]
    pub fn set_work_units_per_step(&mut self, units: u32, heads: u32) {
        self.vidsch.work.backlog_mut().set_units(units, heads);
    }

    /// For tests: does all work that steps have left, at the present time.
    #[doc(hidden)]
    pub fn finish_backlog(&mut self, effects: &mut Effects) {
        while self.has_backlog() {
            self.begin_work();
            self.work_on_backlog(effects);
        }
    }

    pub(crate) fn turn_of(&self, process: ProcessId) -> Turn {
        Turn { vm: self.processes.get(process).map_or(VmId::HOST, |process| process.vm), process }
    }

    /// Begins a step, or a part of one, with its full units of work and no process to act for.
    #[inline]
    pub(crate) fn begin_work(&mut self) {
        let backlog = self.vidsch.work.backlog_mut();
        backlog.begin_step();
        backlog.act_for(None);
    }

    /// Spends units of this step.
    #[inline]
    pub(crate) fn spend(&mut self, units: u32) {
        self.vidsch.work.backlog_mut().spend(units);
    }

    /// Whether the step has spent its units, so that the rest has to be left.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.vidsch.work.backlog().is_spent()
    }

    /// Whether the step has this many units left, and one at least. If not, it does nothing more.
    pub(crate) fn may_spend(&mut self, units: u32) -> bool {
        self.vidsch.work.backlog_mut().may_spend(units)
    }

    #[inline]
    pub(crate) fn act_for(&mut self, process: ProcessId) {
        self.vidsch.work.backlog_mut().act_for(Some(process));
    }

    /// Leaves a task of a process for later steps.
    pub(crate) fn leave(&mut self, process: ProcessId, task: Task) {
        let turn = self.turn_of(process);
        self.vidsch.work.backlog_mut().leave(turn, task);
    }

    /// Leaves the queues for later steps once this one has spent its units.
    pub(super) fn leave_queues_if_spent(&mut self) {
        if !self.vidsch.work.backlog().leaves_heads() {
            return;
        }
        for queue in self.vidsch.work.take_queues() {
            self.leave_queue(queue);
        }
    }

    pub(super) fn leave_queue(&mut self, queue: u32) {
        if let Some(process) = self.vidsch.queues.get(queue).map(|queue| queue.process) {
            self.leave(process, Task::RunQueue(queue));
        }
    }

    /// Continues the work that earlier steps have left, as far as the units of this one reach.
    pub(crate) fn work_on_backlog(&mut self, effects: &mut Effects) {
        while !self.is_over() {
            let Some(turn) = self.vidsch.work.backlog_mut().next_turn() else { break };
            while !self.is_over() && self.run_task(turn, effects) {}
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_spent() || self.vidsch.work.backlog().leaves_heads()
    }

    /// Does all work that comes before an input, however long it takes.
    #[cold]
    pub(crate) fn finish_earlier_work(&mut self, input: &Input, effects: &mut Effects) {
        match input {
            Input::Call { process, .. } | Input::DoorbellRung { process, .. } => {
                self.finish(self.turn_of(*process), effects);
            }
            Input::VmAttached { vm, .. } => {
                let of_vm = self.vidsch.work.backlog().ending_processes().iter();
                let ending: Vec<ProcessId> =
                    of_vm.filter(|(_, of)| **of == *vm).map(|(process, _)| *process).collect();
                for process in ending {
                    self.finish(Turn { vm: *vm, process }, effects);
                }
                self.finish(Turn::of_vm(*vm), effects);
            }
            Input::VmDetached { .. }
            | Input::VmPaused { .. }
            | Input::VmAdapter { .. }
            | Input::MemoryChanged { .. }
            | Input::ProcessAttached { .. }
            | Input::FenceMemoryAdded { .. }
            | Input::FenceMemoryMapped { .. }
            | Input::GuestFeatures { .. }
            | Input::ProcessGone { .. }
            | Input::ProcessFrozen { .. }
            | Input::Deadline
            | Input::Fault(_)
            | Input::SystemTime { .. }
            | Input::NtHandleClosed { .. } => {}
        }
        self.begin_work();
    }

    fn finish(&mut self, turn: Turn, effects: &mut Effects) {
        while self.run_task(turn, effects) {
            self.begin_work();
        }
    }

    /// Does the first task of a process and the work that follows from it; false if there is none.
    fn run_task(&mut self, turn: Turn, effects: &mut Effects) -> bool {
        let Some(task) = self.vidsch.work.backlog_mut().begin_task(turn) else { return false };
        self.act_for(turn.process);
        self.miniport.act_for(self.now, || Some(turn.vm));
        self.do_task(turn.process, task, effects);
        self.run_to_idle(effects);
        self.vidsch.work.backlog_mut().end_task();
        true
    }

    fn do_task(&mut self, process: ProcessId, task: Task, effects: &mut Effects) {
        match task {
            Task::EndProcess(end) => self.continue_end(process, end, effects),
            Task::EndDevice { device, ending } => {
                self.history.set_ending(ending);
                self.continue_end_of_device(device, effects);
                self.history.set_ending(Ending::default());
            }
            Task::CloseAdapter { adapter, from } => self.end_devices_on(process, adapter, from, effects),
            Task::AbandonMutexes(by) => self.abandon_mutexes(process, by, effects),
            Task::EndAcquires(mutex) => self.end_acquires_of_abandoned(process, mutex, effects),
            Task::DropPackets(dropped) => self.continue_drop(process, dropped, effects),
            Task::Wake(object) => self.wake_reached(object, effects),
            Task::Waiters(scan) => {
                self.process_waiters(scan, effects);
            }
            Task::EmptyQueues(loss) => self.empty_queues(loss, effects),
            Task::LoseFences(loss) => self.lose_fences(loss, effects),
            Task::PurgeMemory(loss) => self.purge_memory(loss),
            Task::ServeLine(object) => self.continue_line(object, process, effects),
            Task::EvaluateWritten(up_to) => self.evaluate_written(process, up_to, effects),
            Task::EndShares(vm) => self.end_shares_of(vm, effects),
            Task::RunQueue(queue) => self.vidsch.work.run_queue(queue),
            Task::Dispatch(engine) => self.continue_dispatch(engine, effects),
            Task::EndContext(context) => self.continue_end_of_context(context, effects),
            // The call runs once no other work is left.
            Task::IdleWait => {}
            Task::LongCall(call) => self.continue_call(process, call, effects),
            Task::EndRing(open) => self.end_ring(process, open),
            Task::EnginePages(from) => self.continue_engine_pages(process, from),
            Task::Paging(queue) => self.continue_paging(process, queue, effects),
            Task::Drain(drained) => self.drain(process, drained),
        }
    }

    /// Drops the effects for processes that have ended and are being cleared away.
    pub(crate) fn forget_effects_of_ended(&mut self, effects: &mut Effects) {
        if !self.vidsch.work.backlog().ending_processes().is_empty() {
            self.sync.forget_stores();
            let ending = self.vidsch.work.backlog().ending_processes();
            let memory = self.vidmm.memory();
            let outlives = |process, address| memory.outlives_owner(process, address);
            effects.forget_processes(|process| ending.contains_key(&process), outlives);
        }
    }
}
