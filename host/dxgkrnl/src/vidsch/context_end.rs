//! The end of a context.
//!
//! ```text
//!   DestroyContext ─▶ its queues are idle ───────────────────────────────▶ owns no mutex ─▶ ended, answered
//!                  └▶ they are not: the call waits, the handle stays ─▶ idle ─┘         └▶ INVALID_PARAMETER, it stays
//! ```
//! Windows documents both: the call blocks until the context has finished what is queued to it, and fails if the context
//! owns a synchronization object (`pfnDestroyContextCb`). Policy `destroyed_context` drops the work instead.
//!
//! A queue is idle when it has no packet and no submission; a queue of user-mode submission, when its progress fence has
//! the last queued value. Each queue has to be idle once: what other threads submit after that is dropped with the context.
//! The contexts of a lost device, of a device that is destroyed and of a process that ends do not wait.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{Handle, Reply};

use super::backlog::Task;
use super::context::WaitingEnd;
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
        let is_active = self.require_active(self.vidsch.contexts[id].device).is_ok();
        if !is_active || self.config.policy.destroyed_context == DestroyedContext::AtOnce {
            self.end_context(id, effects);
            return Ok(Reply::None);
        }
        if self.vidsch.waiting_ends.contains_key(&id) {
            return invalid(format!("another call destroys context {handle}, and waits for its work"));
        }
        let busy: BTreeSet<u32> =
            self.queues_of_context(id).into_iter().filter(|queue| self.is_busy(*queue)).collect();
        if busy.is_empty() {
            return self.end_if_no_owner(id, effects);
        }
        let text = format!("the call waits until context {handle} has done its queued work");
        self.note(process, text, effects);
        self.begin_call(process, RestOfCall::DestroyContext { context: id, busy }, effects)
    }

    /// Keeps a call until these queues of its context were idle.
    pub(crate) fn await_end_of_context(&mut self, context: u32, request: u64, busy: BTreeSet<u32>) {
        for queue in &busy {
            if let Some(hw_queue) = self.vidsch.queues[*queue].hw_queue {
                self.mark_monitored(self.vidsch.hw_queues[hw_queue].progress);
            }
        }
        self.vidsch.waiting_ends.insert(context, WaitingEnd { request, busy });
    }

    /// Its own queue, those of its hardware queues, and that of its address space updates.
    fn queues_of_context(&self, id: u32) -> Vec<u32> {
        let context = &self.vidsch.contexts[id];
        let hw_queues = context.hardware.queues.iter().map(|hw_queue| self.vidsch.hw_queues[*hw_queue].queue);
        let paging = self.vidmm.paging_contexts().get(&id).map(|paging| self.vidsch.contexts[*paging].queue);
        hw_queues.chain(paging).chain([context.queue]).collect()
    }

    fn is_busy(&self, id: u32) -> bool {
        let queue = &self.vidsch.queues[id];
        !queue.packets.is_empty()
            || !queue.is_idle()
            || queue.hw_queue.is_some_and(|hw_queue| self.drains(hw_queue))
    }

    /// A queue may have become idle: the call that waits for it, if there is one, goes on.
    #[inline]
    pub(crate) fn look_for_waiting_end(&mut self, queue: u32) {
        if !self.vidsch.waiting_ends.is_empty()
            && self.vidsch.queues.get(queue).is_some()
            && !self.is_busy(queue)
        {
            self.await_no_longer(queue);
        }
    }

    /// Nothing waits for the work of this queue any more: it is done, or dropped with its device or queue.
    pub(crate) fn await_no_longer(&mut self, queue: u32) {
        if self.vidsch.waiting_ends.is_empty() {
            return;
        }
        let process = self.vidsch.queues[queue].process;
        let own = self.vidsch.queues[queue].context;
        // The context of address space updates has the handle of the context that they are for.
        let context = match &self.vidsch.contexts[own] {
            paging if paging.paging.is_some() => self.context(process, paging.handle).unwrap_or(own),
            _ => own,
        };
        let Some(end) = self.vidsch.waiting_ends.get_mut(&context) else { return };
        if end.busy.remove(&queue) && end.busy.is_empty() {
            self.leave(process, Task::EndContext(context));
        }
    }

    /// Ends a context whose call has waited for its work, unless it has ended otherwise.
    pub(super) fn continue_end_of_context(&mut self, id: u32, effects: &mut Effects) {
        let has_waited = |end: &&WaitingEnd| end.busy.is_empty();
        let Some(request) = self.vidsch.waiting_ends.get(&id).filter(has_waited).map(|end| end.request)
        else {
            return;
        };
        let process = self.vidsch.contexts[id].process;
        if let Err(refusal) = self.end_if_no_owner(id, effects) {
            self.vidsch.waiting_ends.remove(&id);
            self.answer(process, request, Err(refusal), effects);
        }
    }

    fn end_if_no_owner(&mut self, id: u32, effects: &mut Effects) -> CallResult {
        let (process, handle) = (self.vidsch.contexts[id].process, self.vidsch.contexts[id].handle);
        if self.owns_mutex(process, handle) {
            return invalid(format!(
                "context {handle} owns a mutex: queue its release before the context is destroyed"
            ));
        }
        self.end_context(id, effects);
        Ok(Reply::None)
    }

    /// Ends a context with everything queued in it; a command on the engine is dropped as well. Answers the call that waits
    /// for its work.
    pub(crate) fn end_context(&mut self, id: u32, effects: &mut Effects) {
        let waiting = self.vidsch.waiting_ends.remove(&id);
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
        if let Some(WaitingEnd { request, .. }) = waiting
            && !self.is_ending(process)
        {
            self.answer(process, request, Ok(Reply::None), effects);
        }
    }
}
