//! Command lists on an engine: how a scope is read and run, how it is set aside, and how its failure is reported.

use alloc::boxed::Box;

use d3dkmt::isa::{FenceValue, Packet};
use dxgkrnl::Nanos;
use dxgkrnl::ddi::{Interrupt, PageFaultFlags};
use dxgkrnl::policy::IllegalCommand;

use super::{Engine, Job};
use crate::engine_tracer::Ending;
use crate::list::{ListError, Pace, Progress, begins_scope, is_of_lists};
use crate::page_table::PageFault;
use crate::queues::{DdiCall, Shared};

impl Job {
    /// Whether the next packet belongs to the lists.
    fn lists_go_on(&mut self) -> bool {
        self.commands.peek().is_some_and(is_of_lists)
    }
}

impl Engine {
    /// Whether the buffer must stop at its next boundary, because of a preemption or a suspend.
    pub(super) fn is_to_stop(&self, job: &Job) -> bool {
        self.preempting.is_some() && job.is_preemptible() || self.suspended.contains_key(&job.context)
    }

    pub(super) fn begin_scope(&mut self, packet: Packet, job: &mut Job, shared: &Shared) {
        if begins_scope(&packet) {
            let mut scope = self.lists.begin();
            self.lists.read(job.commands.last(), packet, &mut scope, job.process, shared);
            job.scope = Some(Box::new(scope));
        }
    }

    /// Runs the commands of the lists that can run. Returns the time until which commands run. `None` if the next
    /// packet belongs to no list, or the buffer is to be set aside.
    pub(super) fn run_lists(
        &mut self,
        job: &mut Job,
        ddi: &mut DdiCall<'_>,
    ) -> Result<Option<Nanos>, ListError> {
        let is_stopping = self.is_to_stop(job);
        while let Some(mut scope) = job.scope.take() {
            while !is_stopping
                && self.lists.fill_window(&mut scope, job.process, ddi.shared)
                && scope.has_room()
                && job.lists_go_on()
            {
                let Some((number, packet)) = job.commands.take() else { break };
                self.lists.read(number, packet, &mut scope, job.process, ddi.shared);
            }
            let progress = self.lists.advance(&mut scope, job.buffer(), is_stopping, ddi)?;
            let more = !is_stopping && scope.has_room() && (scope.has_more_ahead() || job.lists_go_on());
            if more || !scope.is_empty() {
                job.scope = Some(scope);
            }
            match progress {
                Progress::Store(_, FenceValue { gpu_address, .. })
                | Progress::Signal(_, FenceValue { gpu_address, .. })
                    if !self.may_write(job, gpu_address, ddi.shared) =>
                {
                    return Err(PageFault { gpu_address, flags: PageFaultFlags::WRITE }.into());
                }
                Progress::Store(packet, store) => self.store(job, Some(packet), store, ddi),
                Progress::Signal(packet, store) => self.store_checked(job, Some(packet), store, ddi),
                Progress::Until(_) | Progress::Rests if more => {}
                Progress::Until(until) => return Ok(Some(until)),
                Progress::Rests => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Stops the buffer at a boundary: writes its caches back, then saves it or queues it again.
    pub(super) fn set_aside(&mut self, job: Job, ddi: &mut DdiCall<'_>) {
        if let Err(error) = self.lists.end(Pace::AtOnce, job.process, ddi) {
            return self.fail(error, job, ddi);
        }
        if self.preempting.is_some() && job.is_preemptible() {
            self.saved.insert(job);
            self.preempted(ddi.callbacks);
        } else {
            self.queue.push_front(job);
        }
    }

    /// Makes the next packet never end.
    pub(super) fn hang_with(&mut self, mut job: Job, ddi: &mut DdiCall<'_>) {
        job.until = None;
        self.store_markers_in(&mut job, ddi);
        self.running = Some(job);
    }

    /// Aborts a buffer that cannot continue, and reports the fault.
    pub(super) fn fail(&mut self, error: ListError, mut job: Job, ddi: &mut DdiCall<'_>) {
        if matches!(error, ListError::Illegal) {
            job.report_over(Ending::Illegal, ddi);
        }
        match error {
            ListError::PageFault(fault) => self.fault(job, fault, ddi),
            ListError::Illegal if self.illegal_command == IllegalCommand::Hangs => {
                job.until = None;
                self.running = Some(job);
            }
            ListError::Illegal if job.is_preemptible() => {
                self.lists.abort(ddi.callbacks);
                let (engine, faulted_fence_id) = (self.id, job.submission_fence_id);
                self.completed = faulted_fence_id;
                self.interrupt(Interrupt::DmaFaulted { engine, faulted_fence_id }, ddi.callbacks);
            }
            // Hardware queues have no other fault interrupt than 12.
            ListError::Illegal => {
                self.fault(job, PageFault { gpu_address: 0, flags: PageFaultFlags::empty() }, ddi);
            }
        }
    }
}
