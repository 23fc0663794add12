//! One engine: command buffers, the one that runs, and those that wait in hardware.
//!
//! ```text
//!           submit                    a Busy packet's time is over, more packets
//!   Idle ------------> Running{until} ------------------------------------------.
//!     ^                  |   ^                                                  |
//!     |  last packet,    |   `--------------------------------------------------'
//!     `------------------'   Hang packet
//!        nothing can run     ------------> Hung (left when its context is destroyed or the adapter stops)
//! ```
//! The engine runs the oldest buffer that may start: its context is not suspended, it does not wait for a native fence,
//! and its queue has no earlier buffer. So each hardware queue is in order, and a queue that waits blocks no other.
//! The buffers of contexts without hardware queues are one queue: only the kernel switches between them, and
//! DMA_COMPLETED of one means that all earlier ones are complete (SCH-005).
//!
//! A suspended context stops at the end of the running packet; then the engine acknowledges the suspend. It never
//! acknowledges the suspend of a context that hangs.
//!
//! Preemption (`preempt`) is for contexts without hardware queues: the engine stops between two packets of a command
//! buffer. A Busy packet runs to its end first, as a draw call does; a Hang packet has no end. The engine saves the
//! rest of the buffer and the buffers queued behind it, as in the save areas of their contexts, until they are
//! submitted again. Then it reports `DMA_PREEMPTED`. An engine that runs no buffer of such a context reports it at
//! once.
//!
//! Reset (`reset`): the running buffer is aborted, and the other buffers of such contexts are saved. Of the hardware
//! queues, only those of the context that ran lose their buffers.
//!
//! Commands of lists run in parallel (`list/`): such a buffer is at a boundary when no command runs. See
//! `engine/lists.rs`.
//!
//! Injected faults:
//! - A hang turns the running packet, or else the next one, into a Hang packet.
//! - A lost interrupt is not called back; nothing else changes.
//! - A page fault aborts the running buffer at its packet. If a reset is to follow, the engine runs nothing until then.
//!
//! An aborted buffer does not write its caches back.

mod commands;
mod foresight;
mod front_end;
mod lines;
mod lists;
mod run;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use d3dkmt::isa::FenceValue;
use dxgkrnl::ddi::{
    Agent, Callback, EngineId, EngineState, FaultedWork, HwContext, HwQueueId, Interrupt, NativeFenceId,
    NativeFenceLogEntry, NativeFenceLogType, PageFaultFlags, PendingFaults, ResetFailed, RunningContext,
    Suspend,
};
use dxgkrnl::policy::{IllegalCommand, Policy};
use dxgkrnl::{Nanos, NodeConfig, ProcessId};
use serde::{Deserialize, Serialize};

use commands::{Commands, Position};
pub(crate) use foresight::of_commands as pending_writes;
use front_end::FrontEnd;
use lines::{Lines, Saved};

use crate::debug::scope_reading;
use crate::engine_tracer::{Ending, EngineTracers};
use crate::list::{Buffer, Lists, Scope};
use crate::page_table::PageFault;
use crate::queues::DdiCall;
use crate::races::agent;

/// How a command buffer was submitted, which decides how its completion is reported.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Origin {
    /// To a context without hardware queues: DMA_COMPLETED reports completion.
    Context,
    /// By the kernel, to a hardware queue: the progress fence reports completion.
    HwQueue { hw_queue: HwQueueId, progress_fence_id: u64 },
    /// From a ring buffer; `bytes` is what the buffer occupies there.
    Ring { hw_queue: HwQueueId, bytes: usize },
}

/// A command buffer as it is submitted to an engine.
pub(crate) struct NewJob {
    pub origin: Origin,
    /// 0 for a buffer from a ring.
    pub submission_fence_id: u64,
    pub context: HwContext,
    pub process: ProcessId,
    pub commands: Vec<u8>,
}

/// A command buffer on the engine, or saved.
#[derive(Serialize, Deserialize)]
pub(crate) struct Job {
    pub origin: Origin,
    /// 0 for a buffer from a ring.
    pub submission_fence_id: u64,
    pub context: HwContext,
    pub process: ProcessId,
    commands: Commands,
    /// When the running packet ends; `None` for a packet that never ends.
    pub until: Option<Nanos>,
    /// The fence wait that blocks it: GPU address, value, and the time since when it waits.
    pub waits_for: Option<(u64, u64, Nanos)>,
    /// Whether the engine has started it; it may wait for a fence since.
    pub begun: bool,
    /// The fence wait that it has passed, or waits for, and that the race detector does not know yet.
    waited: Option<FenceValue>,
    /// The next packet that waits in hardware, up to which the debug layer and the race detector know the buffer.
    observed: Option<Position>,
    /// The command lists that were read and are not complete.
    scope: Option<Box<Scope>>,
    /// Its number for the engine tracer; 0 without a tracer, and once the tracer knows its end.
    number: u64,
}

impl Job {
    /// The same buffer under another submission fence id.
    pub fn resubmitted(self, submission_fence_id: u64) -> Self {
        Job { submission_fence_id, ..self }
    }

    /// Whether it has commands that are not complete.
    fn has_more(&self) -> bool {
        self.scope.is_some() || !self.commands.is_empty()
    }

    /// Whether commands of it run, so that it is not at a boundary.
    fn is_busy(&self) -> bool {
        self.scope.as_ref().is_some_and(|scope| scope.is_running())
    }

    /// Reports to the engine tracer that the buffer is over. Only the first report counts: a buffer that faulted may
    /// stay on its engine until a reset.
    fn report_over(&mut self, ending: Ending, ddi: &DdiCall<'_>) {
        self.report_over_at(Some(ddi.clock), ending, &ddi.shared.tracers);
    }

    fn report_over_at(&mut self, at: Option<Nanos>, ending: Ending, tracers: &EngineTracers) {
        let number = core::mem::take(&mut self.number);
        if number != 0 {
            tracers.over(number, at, ending);
        }
    }

    /// Bytes charged for it. The number is the same in every build, because saved states and replays depend on it.
    fn weight(&self) -> usize {
        const JOB_BYTES: usize = 512;
        const { assert!(size_of::<Job>() <= JOB_BYTES) };
        let read_ahead = self.scope.as_ref().map_or(0, |scope| scope.held_bytes());
        JOB_BYTES + self.commands.bytes().len() + read_ahead
    }

    fn buffer(&self) -> Buffer {
        Buffer { process: self.process, number: self.number }
    }

    /// The queue that it was submitted to.
    fn agent(&self) -> Agent {
        agent(self.origin, self.context)
    }

    /// Its hardware queue. Buffers of one queue run in order, and so do all buffers without one.
    fn hw_queue(&self) -> Option<HwQueueId> {
        match self.origin {
            Origin::Context => None,
            Origin::HwQueue { hw_queue, .. } | Origin::Ring { hw_queue, .. } => Some(hw_queue),
        }
    }

    /// Whether the kernel can preempt it: only contexts without hardware queues are preempted.
    fn is_preemptible(&self) -> bool {
        self.origin == Origin::Context
    }

    /// The work that interrupt 12 reports as faulted.
    fn faulted_work(&self, flags: PageFaultFlags) -> FaultedWork {
        if flags.contains(PageFaultFlags::FENCE_INVALID) {
            return if flags.contains(PageFaultFlags::HW_CONTEXT_VALID) {
                FaultedWork::Context(self.context)
            } else if flags.contains(PageFaultFlags::PROCESS_HANDLE_VALID) {
                FaultedWork::Process(self.process)
            } else {
                FaultedWork::Unknown
            };
        }
        match self.origin {
            Origin::Context => FaultedWork::Context(self.context),
            Origin::HwQueue { hw_queue, progress_fence_id } => {
                FaultedWork::Queue { hw_queue, progress_fence_id }
            }
            // The kernel does not know which fence values a buffer of a ring writes.
            Origin::Ring { hw_queue, .. } => FaultedWork::Queue { hw_queue, progress_fence_id: 0 },
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Engine {
    id: EngineId,
    signals_at_write: bool,
    /// Whether FenceWrite and markers can store a monitored fence (FEN-015).
    writes_fences: bool,
    releases_progress: bool,
    opaque_packet_ns: Nanos,
    running: Option<Job>,
    /// Since when nothing else could run: the last boundary of a context's buffer, or the start of a hardware queue's
    /// buffer.
    since: Nanos,
    /// Buffers that do not run.
    queue: Lines,
    /// Suspended contexts, with the suspend fences that are not acknowledged yet.
    suspended: BTreeMap<HwContext, Vec<u64>>,
    /// Buffers that were preempted, or queued at a reset.
    saved: Saved,
    /// The pending preemption request.
    preempting: Option<u64>,
    /// The last submission fence id of a context without hardware queues that completed or was aborted by a reset.
    completed: u64,
    /// The greatest submission fence id that was submitted.
    submitted: u64,
    /// Nothing runs until the reset is over (TDR-021).
    halted: bool,
    faults: PendingFaults,
    front_end: FrontEnd,
    lists: Lists,
    illegal_command: IllegalCommand,
}

impl Engine {
    pub fn new(id: EngineId, config: &NodeConfig, policy: &Policy) -> Self {
        Engine {
            id,
            signals_at_write: config.signals_at_write,
            writes_fences: config.writes_fences,
            releases_progress: config.ring_buffer_fence_release,
            opaque_packet_ns: config.opaque_packet_ns,
            running: None,
            since: 0,
            queue: Lines::default(),
            suspended: BTreeMap::new(),
            saved: Saved::default(),
            preempting: None,
            completed: 0,
            submitted: 0,
            halted: false,
            faults: PendingFaults::default(),
            front_end: FrontEnd::default(),
            lists: Lists::new(id, config, scope_reading(policy)),
            illegal_command: policy.illegal_command,
        }
    }

    /// A new command buffer of which nothing has run.
    pub fn job(&self, new: NewJob) -> Job {
        let NewJob { origin, submission_fence_id, context, process, commands } = new;
        Job {
            origin,
            submission_fence_id,
            context,
            process,
            commands: Commands::new(commands, self.opaque_packet_ns),
            until: None,
            waits_for: None,
            begun: false,
            waited: None,
            observed: None,
            scope: None,
            number: 0,
        }
    }

    pub fn submit(&mut self, job: Job, ddi: &mut DdiCall<'_>) {
        self.submitted = self.submitted.max(job.submission_fence_id);
        self.queue.push_back(job);
        self.start_next(ddi);
    }

    /// Removes the saved buffer with this id: one that was preempted, or was queued at a reset.
    pub fn take_saved(&mut self, submission_fence_id: u64) -> Option<Job> {
        self.saved.remove(submission_fence_id)
    }

    /// Preempts the running buffer at its next boundary, or reports at once if there is nothing to preempt (TDR-034).
    pub fn preempt(&mut self, preemption_fence_id: u64, callbacks: &mut Vec<Callback>) {
        self.preempting = Some(preemption_fence_id);
        if !self.running.as_ref().is_some_and(Job::is_preemptible) {
            self.preempted(callbacks);
        }
    }

    /// Saves the queued buffers and reports DMA_PREEMPTED.
    fn preempted(&mut self, callbacks: &mut Vec<Callback>) {
        let Some(preemption_fence_id) = self.preempting.take() else { return };
        self.save_queue();
        let (engine, last_completed_fence_id) = (self.id, self.completed);
        let interrupt = Interrupt::DmaPreempted { engine, preemption_fence_id, last_completed_fence_id };
        self.interrupt(interrupt, callbacks);
    }

    fn save_queue(&mut self) {
        self.queue.take_line(None).for_each(|job| self.saved.insert(job));
    }

    /// `DxgkDdiResetEngine`. Returns the last submission fence id that was aborted.
    pub fn reset(&mut self, ddi: &mut DdiCall<'_>) -> Result<u64, ResetFailed> {
        self.abort(ddi)?;
        Ok(self.completed)
    }

    /// Aborts the running buffer and returns it.
    fn abort(&mut self, ddi: &mut DdiCall<'_>) -> Result<Option<Job>, ResetFailed> {
        if let Some(remaining) = self.faults.resets_failing.checked_sub(1) {
            self.faults.resets_failing = remaining;
            return Err(ResetFailed);
        }
        let mut aborted = self.running.take();
        if let Some(job) = &mut aborted {
            ddi.shared.debug.ended(job.agent());
            job.report_over(Ending::Reset, ddi);
        }
        self.lists.abort(ddi.callbacks);
        if let Some(job) = aborted.as_ref().filter(|job| job.is_preemptible()) {
            self.completed = job.submission_fence_id;
        }
        self.save_queue();
        self.preempting = None;
        (self.faults.hangs_next, self.faults.page_fault) = (false, None);
        Ok(aborted)
    }

    /// `DxgkDdiResetHwEngine`: aborts the running buffer; nothing runs until the engine is resumed. Returns the context
    /// that ran; its hardware queues are emptied. Pending suspends are no longer acknowledged.
    pub fn reset_hw(&mut self, ddi: &mut DdiCall<'_>) -> Result<Option<HwContext>, ResetFailed> {
        let aborted = self.abort(ddi)?;
        self.halted = true;
        self.suspended.values_mut().for_each(Vec::clear);
        let Some(aborted) = aborted else { return Ok(None) };
        let culprit = aborted.context;
        // The kernel discards the other buffers of the culprit.
        self.completed = self.completed.max(self.saved.last_of(culprit));
        ddi.shared.drop_ring_bytes(&aborted);
        for line in self.queue.lines_of(culprit) {
            for mut job in self.queue.take_line(line) {
                ddi.shared.debug.ended(job.agent());
                job.report_over(Ending::Reset, ddi);
                ddi.shared.drop_ring_bytes(&job);
            }
        }
        Ok(Some(culprit))
    }

    /// `DxgkDdiResumeHwEngine`.
    pub fn resume_after_reset(&mut self, ddi: &mut DdiCall<'_>) {
        self.halted = false;
        self.start_next(ddi);
    }

    /// Makes the running packet, or else the next one, fault.
    pub fn page_fault(&mut self, fault: PageFault, ddi: &mut DdiCall<'_>) {
        match self.running.take() {
            Some(job) => {
                let context = job.context;
                self.fault(job, fault, ddi);
                self.acknowledge(context, ddi.callbacks);
                self.start_next(ddi);
            }
            None => self.faults.page_fault = Some((fault.gpu_address, fault.flags.bits())),
        }
    }

    fn fault(&mut self, mut job: Job, PageFault { gpu_address, flags }: PageFault, ddi: &mut DdiCall<'_>) {
        self.lists.abort(ddi.callbacks);
        job.scope = None;
        job.report_over(Ending::PageFault(gpu_address), ddi);
        let (engine, id) = (self.id, job.submission_fence_id);
        let unnamed = flags.contains(PageFaultFlags::FENCE_INVALID);
        let interrupt = if job.is_preemptible() {
            let faulted_fence_id = if unnamed { 0 } else { id };
            Interrupt::DmaPageFaulted { engine, faulted_fence_id, gpu_address, flags }
        } else {
            Interrupt::HwQueuePageFaulted { engine, work: job.faulted_work(flags), gpu_address, flags }
        };
        let stops = PageFaultFlags::FENCE_INVALID
            | PageFaultFlags::ENGINE_RESET_REQUIRED
            | PageFaultFlags::ADAPTER_RESET_REQUIRED
            | PageFaultFlags::FATAL_HARDWARE_ERROR;
        if flags.intersects(stops) {
            job.until = None;
            self.running = Some(job);
        } else {
            ddi.shared.debug.ended(job.agent());
            match job.is_preemptible() {
                true => self.completed = id,
                false => ddi.shared.drop_ring_bytes(&job),
            }
        }
        self.interrupt(interrupt, ddi.callbacks);
    }

    /// Makes one more of the next resets fail.
    pub fn fail_reset(&mut self) {
        self.faults.resets_failing = self.faults.resets_failing.saturating_add(1);
    }

    /// When the running packet ends; `None` if nothing runs or the packet never ends.
    pub fn busy_until(&self) -> Option<Nanos> {
        self.running.as_ref()?.until
    }

    /// Finishes the running packet. The buffer continues from the packet's end time, not from now.
    pub fn finish_packet(&mut self, ddi: &mut DdiCall<'_>) {
        let Some(mut job) = self.running.take() else { return };
        let Some(clock) = job.until.take() else {
            self.running = Some(job);
            return;
        };
        let ddi = &mut ddi.at(clock);
        let context = job.context;
        self.run(job, ddi);
        if self.running.as_ref().is_none_or(|job| job.context != context) {
            self.acknowledge(context, ddi.callbacks);
        }
        self.start_next(ddi);
    }

    fn acknowledge(&mut self, context: HwContext, callbacks: &mut Vec<Callback>) {
        let suspend_fences = self.suspended.get_mut(&context).map(core::mem::take).unwrap_or_default();
        for suspend_fence in suspend_fences {
            let engine = self.id;
            let interrupt = Interrupt::SuspendContextCompleted { engine, context, suspend_fence };
            self.interrupt(interrupt, callbacks);
        }
    }

    /// Drops a buffer of a context without hardware queues. If it was running, the next buffer starts.
    pub fn drop_submission(&mut self, submission_fence_id: u64, ddi: &mut DdiCall<'_>) {
        let queued = self.queue.remove(submission_fence_id);
        let saved = self.saved.remove(submission_fence_id);
        queued.into_iter().chain(saved).for_each(|mut job| job.report_over(Ending::Dropped, ddi));
        let is_it =
            |job: &Job| job.origin == Origin::Context && job.submission_fence_id == submission_fence_id;
        self.drop_running(is_it, ddi);
    }

    /// Drops all buffers of a hardware queue.
    pub fn drop_hw_queue(&mut self, hw_queue: HwQueueId, ddi: &mut DdiCall<'_>) {
        let queued = self.queue.take_line(Some(hw_queue));
        queued.for_each(|mut job| job.report_over(Ending::Dropped, ddi));
        self.drop_running(|job| job.hw_queue() == Some(hw_queue), ddi);
    }

    fn drop_running(&mut self, is_dropped: impl Fn(&Job) -> bool, ddi: &mut DdiCall<'_>) {
        if let Some(mut job) = self.running.take_if(|job| is_dropped(job)) {
            job.report_over(Ending::Dropped, ddi);
            self.lists.abort(ddi.callbacks);
            self.acknowledge(job.context, ddi.callbacks);
        }
        self.start_next(ddi);
    }

    /// Drops the saved buffers of a destroyed context.
    pub fn forget_context(&mut self, context: HwContext, clock: Nanos, tracers: &EngineTracers) {
        self.suspended.remove(&context);
        self.queue.resume(context);
        for mut job in self.saved.take_context(context) {
            job.report_over_at(Some(clock), Ending::Dropped, tracers);
        }
    }

    /// Suspends a context: no buffer of it starts until it is resumed. `Pending` if one runs.
    pub fn suspend(&mut self, context: HwContext, suspend_fence: u64) -> Suspend {
        let suspend_fences = self.suspended.entry(context).or_default();
        match &self.running {
            Some(job) if job.context == context => {
                suspend_fences.push(suspend_fence);
                Suspend::Pending
            }
            _ => Suspend::Suspended,
        }
    }

    pub fn resume(&mut self, context: HwContext, ddi: &mut DdiCall<'_>) {
        self.suspended.remove(&context);
        self.queue.resume(context);
        self.start_next(ddi);
    }

    /// Checks the hardware waits for a fence against its current value, and starts a buffer whose wait is satisfied.
    pub fn check_waits(&mut self, fence: NativeFenceId, ddi: &mut DdiCall<'_>) {
        let Some(current) = ddi.shared.native.value(fence) else { return };
        let locations: Vec<_> = ddi.shared.native.locations_of(fence).collect();
        for (_, process, gpu_address) in
            locations.into_iter().filter(|(adapter, ..)| *adapter == self.id.adapter)
        {
            let mut reached = |job: &mut Job| {
                let Some((_, value, observed)) = job.waits_for.filter(|(_, value, _)| current >= *value)
                else {
                    return false;
                };
                if let Some(hw_queue) = job.hw_queue() {
                    let log = NativeFenceLogType::Waits;
                    let entry = NativeFenceLogEntry {
                        fence,
                        fence_value: value,
                        observed_gpu_timestamp: observed,
                        end_gpu_timestamp: ddi.clock,
                    };
                    ddi.shared.log(hw_queue, log, entry, ddi.callbacks);
                }
                true
            };
            self.queue.check_waits((process, gpu_address), &mut reached);
            self.saved.check_waits((process, gpu_address), &mut reached);
        }
        self.start_next(ddi);
    }

    /// Loses one more of the next interrupts.
    pub fn lose_interrupt(&mut self) {
        self.faults.interrupts_lost = self.faults.interrupts_lost.saturating_add(1);
    }

    /// Makes the running packet, or else the next one, never end.
    pub fn hang(&mut self) {
        match &mut self.running {
            Some(job) => job.until = None,
            None => self.faults.hangs_next = true,
        }
    }

    /// Drops all buffers without a callback. All submissions count as complete, as they do in the kernel (SCH-007).
    pub fn stop(&mut self, tracers: &EngineTracers) {
        let jobs = self.running.iter_mut().chain(self.queue.values_mut()).chain(self.saved.values_mut());
        jobs.for_each(|job| job.report_over_at(None, Ending::Stopped, tracers));
        self.completed = self.submitted;
        self.running = None;
        self.queue = Lines::default();
        self.suspended.clear();
        self.saved = Saved::default();
        self.preempting = None;
        self.halted = false;
        self.faults = PendingFaults::default();
        self.lists.stop();
    }

    pub fn interrupt(&mut self, interrupt: Interrupt, callbacks: &mut Vec<Callback>) {
        match self.faults.interrupts_lost.checked_sub(1) {
            None => callbacks.push(Callback::NotifyInterrupt(interrupt)),
            Some(remaining) => self.faults.interrupts_lost = remaining,
        }
    }

    /// Bytes charged to a process for its buffers.
    pub fn held_bytes(&self, process: ProcessId) -> usize {
        let running = self.running.as_ref().filter(|job| job.process == process).map_or(0, Job::weight);
        running + self.queue.held_bytes(process) + self.saved.held_bytes(process)
    }

    /// Whether a submission has started. A preempted submission counts as started if it ran before the preemption.
    pub fn has_begun(&self, submission_fence_id: u64) -> bool {
        !self.queue.has_unbegun(submission_fence_id) && !self.saved.has_unbegun(submission_fence_id)
    }

    /// Whether nothing runs, or the running buffer blocks the engine for less than `delay`.
    pub fn is_responsive(&self, now: Nanos, delay: Nanos) -> bool {
        self.running.is_none() || now.saturating_sub(self.since) < delay
    }

    pub fn running_context(&self) -> RunningContext {
        self.running.as_ref().map_or(RunningContext::None, |job| RunningContext::Context(job.context))
    }

    pub fn faults(&self) -> PendingFaults {
        self.faults
    }

    pub fn state(&self) -> EngineState {
        let queued = self.queue.len() as u32;
        match &self.running {
            None => EngineState::Idle,
            Some(job) => {
                let submission_fence_id = job.submission_fence_id;
                match job.until {
                    Some(until) => EngineState::Running { submission_fence_id, until, queued },
                    None => EngineState::Hung { submission_fence_id, queued },
                }
            }
        }
    }

    fn start_next(&mut self, ddi: &mut DdiCall<'_>) {
        while self.running.is_none() && !self.halted {
            if self.preempting.is_some() {
                self.preempted(ddi.callbacks);
            }
            let suspended = &self.suspended;
            let next = self.queue.take_startable(|context| suspended.contains_key(&context));
            let Some(job) = next else { return };
            self.since = ddi.clock;
            self.run(job, ddi);
        }
    }
}
