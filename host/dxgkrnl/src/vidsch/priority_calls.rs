//! The calls that set and query priorities of contexts and processes.

use alloc::format;

use d3dkmt::{Handle, NtStatus, Reply};

use super::priority::CLASS_NORMAL;
use crate::ProcessId;
use crate::effects::Effects;
use crate::error::{CallResult, invalid, refuse};
use crate::kernel::Kernel;
use crate::vidmm::{QueuePosition, RestOfCall};

const CLASS_REALTIME: u32 = 5;

/// Range of both priorities of a context.
const PRIORITIES: core::ops::RangeInclusive<i32> = -7..=7;

impl Kernel {
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
        let priority_field =
            if in_process { &mut context.in_process_priority } else { &mut context.priority };
        *priority_field = priority;
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

    /// `SetProcessSchedulingPriorityClass`. Classes above NORMAL are for VMs with
    /// [`crate::VmConfig::raised_priorities`].
    pub(crate) fn set_process_priority_class(
        &mut self,
        process: ProcessId,
        class: u32,
        effects: &mut Effects,
    ) -> CallResult {
        if class > CLASS_REALTIME {
            return invalid(format!("priority class {class} is not one of IDLE 0 to REALTIME 5"));
        }
        if class > CLASS_NORMAL && !self.vm_config(self.process(process).vm).raised_priorities {
            let why = "the VM has no priorities above NORMAL: `raised_priorities` is off";
            return refuse(NtStatus::ACCESS_DENIED, why);
        }
        self.process_mut(process).priority_class = class;
        self.begin_call(process, RestOfCall::PriorityClass(QueuePosition::default()), effects)
    }

    /// Moves the ready command buffers of a process's queues after a change of its class, from this position on. True if
    /// these are all.
    pub(crate) fn replace_ready_of(&mut self, process: ProcessId, position: &mut QueuePosition) -> bool {
        while let Some((index, device)) = self.process(process).devices.range(position.device..).next() {
            if self.is_spent() {
                return false;
            }
            let index = *index;
            let from = if index == position.device { position.queue } else { 0 };
            let queue = self.processes.devices()[*device].queues.range(from..).next().copied();
            self.spend(1);
            *position = match queue {
                Some(queue) => QueuePosition { device: index, queue: queue + 1 },
                None => QueuePosition { device: index + 1, queue: 0 },
            };
            queue.into_iter().for_each(|queue| self.replace_ready(queue));
        }
        true
    }

    pub(crate) fn process_priority_class(&mut self, process: ProcessId) -> CallResult {
        Ok(Reply::Priority(self.process(process).priority_class as i32))
    }
}
