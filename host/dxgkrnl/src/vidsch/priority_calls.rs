//! The calls that set and query priorities of contexts and processes.

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{Handle, Reply};

use crate::ProcessId;
use crate::ddi::Miniport;
use crate::error::{CallResult, invalid};
use crate::kernel::Kernel;

const CLASS_REALTIME: u32 = 5;

/// Of a context, both kinds.
const PRIORITIES: core::ops::RangeInclusive<i32> = -7..=7;

impl<M: Miniport> Kernel<M> {
    /// `SetContextSchedulingPriority` and `SetContextInProcessSchedulingPriority`.
    pub(crate) fn set_context_priority(
        &mut self,
        process: ProcessId,
        context: Handle,
        priority: i32,
        in_process: bool,
    ) -> CallResult {
        let id = self.context(process, context)?;
        if !PRIORITIES.contains(&priority) {
            return invalid(format!("context priority {priority} is not one of -7 to 7"));
        }
        let context = &mut self.vidsch.contexts[id];
        let place = if in_process { &mut context.in_process_priority } else { &mut context.priority };
        *place = priority;
        self.replace_queues(|owner| owner == id);
        Ok(Reply::None)
    }

    pub(crate) fn context_priority(
        &mut self,
        process: ProcessId,
        context: Handle,
        in_process: bool,
    ) -> CallResult {
        let context = &self.vidsch.contexts[self.context(process, context)?];
        Ok(Reply::Priority(if in_process { context.in_process_priority } else { context.priority }))
    }

    /// `SetProcessSchedulingPriorityClass`. There are no privileges here: everybody may be REALTIME.
    pub(crate) fn set_process_priority_class(&mut self, process: ProcessId, class: u32) -> CallResult {
        if class > CLASS_REALTIME {
            return invalid(format!("priority class {class} is not one of IDLE 0 to REALTIME 5"));
        }
        self.process_mut(process).priority_class = class;
        let own: Vec<u32> = self.contexts_of(process);
        self.replace_queues(|owner| own.binary_search(&owner).is_ok());
        Ok(Reply::None)
    }

    pub(crate) fn process_priority_class(&mut self, process: ProcessId) -> CallResult {
        Ok(Reply::Priority(self.process(process).priority_class as i32))
    }

    fn contexts_of(&self, process: ProcessId) -> Vec<u32> {
        let own = self.vidsch.contexts.iter().filter(|(_, context)| context.process == process);
        own.map(|(id, _)| id).collect()
    }

    fn replace_queues(&mut self, of_context: impl Fn(u32) -> bool) {
        let waiting = |queue: &super::Queue| queue.ready.is_some() && of_context(queue.context);
        let queues = self.vidsch.queues.iter().filter(|(_, queue)| waiting(queue));
        let queues: Vec<u32> = queues.map(|(id, _)| id).collect();
        for queue in queues {
            self.replace_ready(queue);
        }
    }
}
