//! The end of a context, and of a paging queue, which is a context of the system.
//!
//! ```text
//!   DestroyContext ─▶ its queues are idle ───────────────────────────────▶ owns no mutex ─▶ ended, answered
//!                  └▶ they are not: the call waits, the handle stays ─▶ idle ─┘         └▶ INVALID_PARAMETER, it stays
//! ```
//! Windows documents both: the call blocks until the context has finished what is queued to it, and fails if the context
//! owns a synchronization object (`pfnDestroyContextCb`). `D3DKMTDestroyPagingQueue` blocks until the queue has finished
//! all of its operations. Policy `destroyed_context` waits for neither.
//!
//! A queue is idle when it has no packet and no submission; a queue of user-mode submission, when its progress fence has
//! what was its last queued value at the call. Each queue has to be idle once: what other threads submit after that is
//! dropped with the context. The contexts of a lost device, of a device that is destroyed and of a process that ends do not
//! wait.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::{Handle, Reply};

use super::backlog::Task;
use super::context::{BusyQueues, Context, WaitingEnd};
use super::queue::Queue;
use crate::ProcessId;
use crate::effects::Effects;
use crate::error::{CallResult, invalid};
use crate::kernel::Kernel;
use crate::policy::DestroyedContext;
use crate::vidmm::RestOfCall;

impl Kernel {
    /// `D3DKMTDestroyContext`.
    pub(crate) fn destroy_context(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.context(process, handle)?;
        self.destroy_behind_work(id, effects)
    }

    /// `D3DKMTDestroyPagingQueue`: and its fence (FEN-091).
    pub(crate) fn destroy_paging_queue(
        &mut self,
        process: ProcessId,
        handle: Handle,
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.paging_queue(process, handle)?;
        self.destroy_behind_work(self.vidmm.paging_queues()[id].context, effects)
    }

    /// Ends a context, or the paging queue whose context it is: at once, or when its work is done.
    fn destroy_behind_work(&mut self, id: u32, effects: &mut Effects) -> CallResult {
        let Context { process, device, .. } = self.vidsch.contexts[id];
        let is_active = self.require_active(device).is_ok();
        if !is_active || self.config.policy.destroyed_context == DestroyedContext::AtOnce {
            self.end_destroyed(id, effects);
            return Ok(Reply::None);
        }
        if self.vidsch.waiting_ends.contains_key(&id) {
            let name = self.name_of_destroyed(id);
            return invalid(format!("another call destroys {name}, and waits for its work"));
        }
        let busy: BusyQueues =
            self.queues_of_context(id).into_iter().filter_map(|queue| self.work_of(queue)).collect();
        if busy.is_empty() {
            return self.end_if_no_owner(id, effects);
        }
        self.require_memory(process, WaitingEnd::weight(&busy))?;
        let name = self.name_of_destroyed(id);
        let text = format!("the call waits until {name} has done its queued work");
        self.note(process, text, effects);
        self.begin_call(process, RestOfCall::DestroyContext { context: id, busy }, effects)
    }

    /// The paging queue of this context, if it is one's.
    fn paging_queue_of(&self, context: u32) -> Option<u32> {
        let Context { process, handle, .. } = self.vidsch.contexts[context];
        self.paging_queue(process, handle).ok()
    }

    /// The handle of what a call destroys, and what it is.
    pub(crate) fn name_of_destroyed(&self, context: u32) -> String {
        let handle = self.vidsch.contexts[context].handle;
        match self.paging_queue_of(context) {
            Some(_) => format!("paging queue {handle}"),
            None => format!("context {handle}"),
        }
    }

    fn end_destroyed(&mut self, context: u32, effects: &mut Effects) {
        match self.paging_queue_of(context) {
            Some(paging_queue) => self.end_paging_queue(paging_queue, effects),
            None => self.end_context(context, effects),
        }
    }

    /// Keeps a call until these queues of its context were idle.
    pub(crate) fn await_end_of_context(&mut self, context: u32, request: u64, busy: BusyQueues) {
        let process = self.vidsch.contexts[context].process;
        self.processes.charge(process, WaitingEnd::weight(&busy));
        for queue in busy.keys() {
            if let Some(hw_queue) = self.vidsch.queues[*queue].hw_queue {
                self.mark_monitored(self.vidsch.hw_queues[hw_queue].progress);
            }
        }
        self.vidsch.waiting_ends.insert(context, WaitingEnd { request, busy });
    }

    /// The call that waits for the end of this context waits no longer. Returns its request number.
    pub(crate) fn take_waiting_end(&mut self, context: u32) -> Option<u64> {
        let WaitingEnd { request, busy } = self.vidsch.waiting_ends.remove(&context)?;
        self.processes.release(self.vidsch.contexts[context].process, WaitingEnd::weight(&busy));
        Some(request)
    }

    /// Its own queue, those of its hardware queues, and that of its address space updates.
    fn queues_of_context(&self, id: u32) -> Vec<u32> {
        let context = &self.vidsch.contexts[id];
        let hw_queues = context.hardware.queues.iter().map(|hw_queue| self.vidsch.hw_queues[*hw_queue].queue);
        let paging = self.vidmm.paging_contexts().get(&id).map(|paging| self.vidsch.contexts[*paging].queue);
        hw_queues.chain(paging).chain([context.queue]).collect()
    }

    /// A queue with work, and the value that its progress fence has to reach.
    fn work_of(&self, id: u32) -> Option<(u32, u64)> {
        let queue = &self.vidsch.queues[id];
        let ring = queue.hw_queue.filter(|hw_queue| self.drains(*hw_queue));
        let has_work = !queue.packets.is_empty() || !queue.is_idle() || ring.is_some();
        has_work.then(|| (id, ring.map_or(0, |hw_queue| self.vidsch.hw_queues[hw_queue].last_queued)))
    }

    /// Whether a queue has work that a call waits for, up to this value of its progress fence.
    fn is_busy(&self, id: u32, up_to: u64) -> bool {
        let queue = &self.vidsch.queues[id];
        let is_behind = |id: u32| {
            let hw_queue = &self.vidsch.hw_queues[id];
            self.sync.objects().value(hw_queue.progress) < up_to.min(hw_queue.last_queued)
        };
        !queue.packets.is_empty() || !queue.is_idle() || queue.hw_queue.is_some_and(is_behind)
    }

    /// The context whose end may wait for this queue.
    fn ends_with(&self, queue: u32) -> u32 {
        let Queue { process, context, .. } = self.vidsch.queues[queue];
        // The context of address space updates has the handle of the context that they are for.
        match &self.vidsch.contexts[context] {
            // That of a paging queue has the handle of the queue, and ends alone.
            paging if paging.paging.is_some() => self.context(process, paging.handle).unwrap_or(context),
            _ => context,
        }
    }

    /// The value of its progress fence up to which a call waits for a queue, 0 without one; `None` if none waits.
    pub(crate) fn awaited_of(&self, queue: u32) -> Option<u64> {
        if self.vidsch.waiting_ends.is_empty() {
            return None;
        }
        self.vidsch.waiting_ends.get(&self.ends_with(queue))?.busy.get(&queue).copied()
    }

    /// A queue may have become idle: the call that waits for it, if there is one, goes on.
    #[inline]
    pub(crate) fn look_for_waiting_end(&mut self, queue: u32) {
        if self.vidsch.waiting_ends.is_empty() || self.vidsch.queues.get(queue).is_none() {
            return;
        }
        if self.awaited_of(queue).is_some_and(|up_to| !self.is_busy(queue, up_to)) {
            self.await_no_longer(queue);
        }
    }

    /// Nothing waits for the work of this queue any more: it is done, or dropped with its device or queue.
    pub(crate) fn await_no_longer(&mut self, queue: u32) {
        if self.vidsch.waiting_ends.is_empty() {
            return;
        }
        let (process, context) = (self.vidsch.queues[queue].process, self.ends_with(queue));
        let Some(end) = self.vidsch.waiting_ends.get_mut(&context) else { return };
        let before = WaitingEnd::weight(&end.busy);
        if end.busy.remove(&queue).is_none() {
            return;
        }
        let (after, is_over) = (WaitingEnd::weight(&end.busy), end.busy.is_empty());
        self.processes.release(process, before - after);
        if is_over {
            self.leave(process, Task::EndContext(context));
        }
    }

    /// Bytes that a process is charged for its calls that wait, counted anew.
    pub(crate) fn waiting_end_bytes(&self, process: ProcessId) -> u64 {
        let own = |(context, _): &(&u32, &WaitingEnd)| self.vidsch.contexts[**context].process == process;
        let ends = self.vidsch.waiting_ends.iter().filter(own);
        ends.map(|(_, end)| WaitingEnd::weight(&end.busy)).sum()
    }

    /// Whether a call waits for a queue that has nothing left to do, or for a context that is gone.
    pub(crate) fn waiting_ends_are_miscounted(&self) -> bool {
        self.vidsch.waiting_ends.iter().any(|(context, end)| {
            let waits_for_none = |(queue, up_to): (&u32, &u64)| {
                self.vidsch.queues.get(*queue).is_none_or(|_| !self.is_busy(*queue, *up_to))
            };
            // Work of the step, and that of later ones, comes first.
            self.vidsch.contexts.get(*context).is_none()
                || !self.has_backlog() && (end.busy.is_empty() || end.busy.iter().any(waits_for_none))
        })
    }

    /// Ends a context whose call has waited for its work, unless it has ended otherwise.
    pub(super) fn continue_end_of_context(&mut self, id: u32, effects: &mut Effects) {
        if self.vidsch.waiting_ends.get(&id).is_none_or(|end| !end.busy.is_empty()) {
            return;
        }
        let process = self.vidsch.contexts[id].process;
        if let Err(refusal) = self.end_if_no_owner(id, effects)
            && let Some(request) = self.take_waiting_end(id)
        {
            self.answer(process, request, Err(refusal), effects);
        }
    }

    fn end_if_no_owner(&mut self, id: u32, effects: &mut Effects) -> CallResult {
        let Context { process, handle, device, .. } = self.vidsch.contexts[id];
        // A lost device releases nothing any more.
        if self.owns_mutex(process, handle) && self.require_active(device).is_ok() {
            return invalid(format!(
                "context {handle} owns a mutex: queue its release before the context is destroyed"
            ));
        }
        self.end_destroyed(id, effects);
        Ok(Reply::None)
    }

    /// Ends a context with everything queued in it; a command on the engine is dropped as well. Answers the call that waits
    /// for its work.
    pub(crate) fn end_context(&mut self, id: u32, effects: &mut Effects) {
        let waiting = self.take_waiting_end(id);
        let queues = core::mem::take(&mut self.vidsch.contexts[id].hardware.queues);
        let mut queues: Vec<u32> = queues.into_iter().collect();
        queues.sort_by_key(|queue| self.vidsch.hw_queues[*queue].handle);
        for queue in queues {
            self.end_hw_queue(queue, effects);
        }
        // Before the context is removed: the engine may give back a buffer of it that ran behind its paging context's.
        self.end_paging_context(id, effects);
        self.forget_suspend(id);
        self.remember_queue(self.vidsch.contexts[id].queue);
        let context = self.vidsch.contexts.remove(id).expect("its owner is live");
        let (process, handle) = (context.process, context.handle);
        self.remove_handle(process, handle);
        self.processes.device_mut(context.device).children.remove(&handle);
        self.process_mut(process).contexts -= 1;
        self.end_queue(context.queue, effects);
        self.abandon_mutexes(process, handle, effects);
        self.enter_d3_if_quiet(context.engine.adapter);
        self.answer_waiting_end(process, waiting, effects);
    }

    /// Answers the call that has waited for the end of a context, if there is one.
    pub(crate) fn answer_waiting_end(
        &mut self,
        process: ProcessId,
        request: Option<u64>,
        effects: &mut Effects,
    ) {
        if let Some(request) = request
            && !self.is_ending(process)
        {
            self.answer(process, request, Ok(Reply::None), effects);
        }
    }
}
