//! The calls that set and query priorities of contexts and processes.

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{Handle, Reply};

use crate::ProcessId;
use crate::ddi::Miniport;
use crate::error::{CallResult, invalid};
use crate::kernel::Kernel;
use crate::process::HandleTarget;

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
        self.replace_ready(self.vidsch.contexts[id].queue);
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
        for context in self.contexts_of(process) {
            self.replace_ready(self.vidsch.contexts[context].queue);
        }
        Ok(Reply::None)
    }

    pub(crate) fn process_priority_class(&mut self, process: ProcessId) -> CallResult {
        Ok(Reply::Priority(self.process(process).priority_class as i32))
    }

    /// Contexts of a process, in the order of their handles.
    fn contexts_of(&self, process: ProcessId) -> Vec<u32> {
        let context = |(_, named)| match named {
            HandleTarget::Context(context) => Some(context),
            HandleTarget::Adapter(_)
            | HandleTarget::Device(_)
            | HandleTarget::Sync(_)
            | HandleTarget::KeyedMutex(_)
            | HandleTarget::HwQueue(_)
            | HandleTarget::PagingQueue(_)
            | HandleTarget::Resource(_)
            | HandleTarget::Allocation(_) => None,
        };
        self.process(process).handles.iter().filter_map(context).collect()
    }
}
