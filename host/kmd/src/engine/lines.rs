//! Buffers of an engine that do not run: one line for each hardware queue, and one for all contexts without.
//!
//! ```text
//!   first of its line, and does not wait for a native fence:  startable
//!                                                               |   ^
//!                                        it is to run, and      v   |  resumed
//!                                        its context is       suspended
//! ```
//! The oldest startable buffer runs. Each line is listed as startable, suspended or waiting, so that no lookup walks
//! all lines: the buffers that one client queues do not slow down the steps of another (attack C5).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use dxgkrnl::ProcessId;
use dxgkrnl::ddi::{HwContext, HwQueueId};
use serde::{Deserialize, Serialize};

use super::Job;

/// Bytes of buffers, by process.
#[derive(Default, Serialize, Deserialize)]
struct Held(BTreeMap<ProcessId, usize>);

impl Held {
    fn add(&mut self, job: &Job) {
        *self.0.entry(job.process).or_default() += job.weight();
    }

    fn remove(&mut self, job: &Job) {
        if let Some(bytes) = self.0.get_mut(&job.process) {
            *bytes -= job.weight();
            if *bytes == 0 {
                self.0.remove(&job.process);
            }
        }
    }

    fn of(&self, process: ProcessId) -> usize {
        self.0.get(&process).copied().unwrap_or(0)
    }
}

/// Key of a line: its hardware queue, or `None` for all contexts without one.
pub(super) type Line = Option<HwQueueId>;

/// A hardware wait: the process and the GPU address of the fence in it.
type WaitAddress = (ProcessId, u64);

/// The lines of one engine. Older buffers have smaller numbers.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Lines {
    lines: BTreeMap<Line, VecDeque<(i64, Job)>>,
    startable: BTreeMap<i64, Line>,
    suspended: BTreeMap<HwContext, BTreeMap<i64, Line>>,
    waiting: BTreeMap<WaitAddress, BTreeMap<i64, Line>>,
    /// Submission fence ids of buffers that have not started.
    unbegun: BTreeSet<u64>,
    held: Held,
    next: i64,
    first: i64,
    len: usize,
}

impl Lines {
    /// Bytes of the queued buffers of a process.
    pub fn held_bytes(&self, process: ProcessId) -> usize {
        self.held.of(process)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// All buffers, oldest first. For inspection only: it sorts them.
    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        let mut all: Vec<&(i64, Job)> = self.lines.values().flatten().collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, job)| job)
    }

    pub fn push_back(&mut self, job: Job) {
        let (number, line) = (self.next, job.hw_queue());
        self.next += 1;
        self.counted(number, &job);
        let jobs = self.lines.entry(line).or_default();
        jobs.push_back((number, job));
        if jobs.len() == 1 {
            self.enlist(line);
        }
    }

    /// Puts back a buffer that ran: it counts as the oldest of all.
    pub fn push_front(&mut self, job: Job) {
        let line = job.hw_queue();
        self.first -= 1;
        self.counted(self.first, &job);
        self.unlist(line);
        self.lines.entry(line).or_default().push_front((self.first, job));
        self.enlist(line);
    }

    /// Removes and returns the oldest buffer that may start.
    pub fn take_startable(&mut self, is_suspended: impl Fn(HwContext) -> bool) -> Option<Job> {
        loop {
            let (number, line) = self.startable.pop_first()?;
            let Some(jobs) = self.lines.get_mut(&line) else { continue };
            let Some(context) = jobs.front().filter(|front| front.0 == number).map(|(_, job)| job.context)
            else {
                continue;
            };
            if is_suspended(context) {
                self.suspended.entry(context).or_default().insert(number, line);
                continue;
            }
            let (number, job) = jobs.pop_front()?;
            self.uncounted(number, &job);
            self.enlist(line);
            return Some(job);
        }
    }

    /// Makes the lines of a resumed context startable again.
    pub fn resume(&mut self, context: HwContext) {
        self.startable.extend(self.suspended.remove(&context).unwrap_or_default());
    }

    /// Removes a whole line and returns its buffers, oldest first.
    pub fn take_line(&mut self, line: Line) -> impl Iterator<Item = Job> + use<> {
        self.unlist(line);
        let jobs = self.lines.remove(&line).unwrap_or_default();
        jobs.iter().for_each(|(number, job)| self.uncounted(*number, job));
        jobs.into_iter().map(|(_, job)| job)
    }

    /// The lines of a context's hardware queues.
    pub fn lines_of(&self, context: HwContext) -> Vec<Line> {
        let of_context =
            |jobs: &VecDeque<(i64, Job)>| jobs.front().is_some_and(|(_, job)| job.context == context);
        let lines = self.lines.iter().filter(|(line, jobs)| line.is_some() && of_context(jobs));
        lines.map(|(line, _)| *line).collect()
    }

    /// Removes and returns the buffer with this id of a context without hardware queues.
    pub fn remove(&mut self, submission_fence_id: u64) -> Option<Job> {
        let jobs = self.lines.get(&None)?;
        let is_it = |(_, job): &(i64, Job)| job.submission_fence_id == submission_fence_id;
        let at = jobs.iter().position(is_it)?;
        self.unlist(None);
        let (number, job) = self.lines.get_mut(&None).and_then(|jobs| jobs.remove(at))?;
        self.uncounted(number, &job);
        self.enlist(None);
        Some(job)
    }

    /// All buffers, to be dropped.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.lines.values_mut().flatten().map(|(_, job)| job)
    }

    /// Calls `reached` for each buffer that waits at this address of the process, oldest first. A buffer for which it
    /// returns true waits no longer. A preempted buffer may wait behind others of its line.
    pub fn check_waits(&mut self, address: WaitAddress, mut reached: impl FnMut(&mut Job) -> bool) {
        for (number, line) in self.waiting.get(&address).cloned().unwrap_or_default() {
            let jobs = self.lines.get_mut(&line).into_iter().flatten();
            let Some((_, job)) = jobs.into_iter().find(|(one, _)| *one == number) else { continue };
            if reached(job) {
                job.waits_for = None;
                self.forget_wait(address, number);
                // The first of a line may be listed as suspended: it is listed again only if it has waited.
                if self.lines.get(&line).and_then(VecDeque::front).is_some_and(|(first, _)| *first == number)
                {
                    self.enlist(line);
                }
            }
        }
    }

    /// The buffer with this id in this line.
    pub fn find(&self, line: Line, submission_fence_id: u64) -> Option<&Job> {
        let mut jobs = self.lines.get(&line)?.iter().map(|(_, job)| job);
        jobs.find(|job| job.submission_fence_id == submission_fence_id)
    }

    /// Whether the buffer with this id is queued here and has not started.
    pub fn has_unbegun(&self, submission_fence_id: u64) -> bool {
        self.unbegun.contains(&submission_fence_id)
    }

    fn counted(&mut self, number: i64, job: &Job) {
        self.len += 1;
        self.held.add(job);
        if !job.begun && job.submission_fence_id != 0 {
            self.unbegun.insert(job.submission_fence_id);
        }
        if let Some((gpu_address, ..)) = job.waits_for {
            self.waiting.entry((job.process, gpu_address)).or_default().insert(number, job.hw_queue());
        }
    }

    fn uncounted(&mut self, number: i64, job: &Job) {
        self.len -= 1;
        self.held.remove(job);
        self.unbegun.remove(&job.submission_fence_id);
        if let Some((gpu_address, ..)) = job.waits_for {
            self.forget_wait((job.process, gpu_address), number);
        }
    }

    fn forget_wait(&mut self, address: WaitAddress, number: i64) {
        if let Some(numbers) = self.waiting.get_mut(&address) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.waiting.remove(&address);
            }
        }
    }

    /// Lists the first buffer of a line as startable unless it waits; removes an empty line.
    fn enlist(&mut self, line: Line) {
        let Some(jobs) = self.lines.get(&line) else { return };
        match jobs.front() {
            None => drop(self.lines.remove(&line)),
            Some((number, job)) if job.waits_for.is_none() => drop(self.startable.insert(*number, line)),
            Some(_) => {}
        }
    }

    /// Removes the first buffer of a line from the startable or suspended buffers.
    fn unlist(&mut self, line: Line) {
        let Some((number, job)) = self.lines.get(&line).and_then(VecDeque::front) else { return };
        if self.startable.remove(number).is_none()
            && let Some(lines) = self.suspended.get_mut(&job.context)
        {
            lines.remove(number);
            if lines.is_empty() {
                self.suspended.remove(&job.context);
            }
        }
    }
}

/// Buffers that were preempted, or queued at a reset: as in the save areas of their contexts.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Saved {
    /// By submission fence id.
    jobs: BTreeMap<u64, Job>,
    of_context: BTreeMap<HwContext, BTreeSet<u64>>,
    waiting: BTreeMap<WaitAddress, BTreeSet<u64>>,
    held: Held,
}

impl Saved {
    pub fn insert(&mut self, job: Job) {
        let id = job.submission_fence_id;
        self.of_context.entry(job.context).or_default().insert(id);
        if let Some((gpu_address, ..)) = job.waits_for {
            self.waiting.entry((job.process, gpu_address)).or_default().insert(id);
        }
        self.held.add(&job);
        self.jobs.insert(id, job);
    }

    pub fn remove(&mut self, submission_fence_id: u64) -> Option<Job> {
        let job = self.jobs.remove(&submission_fence_id)?;
        self.held.remove(&job);
        if let Some(ids) = self.of_context.get_mut(&job.context) {
            ids.remove(&submission_fence_id);
            if ids.is_empty() {
                self.of_context.remove(&job.context);
            }
        }
        if let Some((gpu_address, ..)) = job.waits_for {
            self.forget_wait((job.process, gpu_address), submission_fence_id);
        }
        Some(job)
    }

    fn forget_wait(&mut self, address: WaitAddress, submission_fence_id: u64) {
        if let Some(ids) = self.waiting.get_mut(&address) {
            ids.remove(&submission_fence_id);
            if ids.is_empty() {
                self.waiting.remove(&address);
            }
        }
    }

    /// The greatest id of a saved buffer of this context; 0 if there is none.
    pub fn last_of(&self, context: HwContext) -> u64 {
        self.of_context.get(&context).and_then(|ids| ids.last()).copied().unwrap_or(0)
    }

    /// Removes and returns the buffers of a context.
    pub fn take_context(&mut self, context: HwContext) -> Vec<Job> {
        let ids = self.of_context.get(&context).cloned().unwrap_or_default();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Bytes of the saved buffers of a process.
    pub fn held_bytes(&self, process: ProcessId) -> usize {
        self.held.of(process)
    }

    pub fn values(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// All buffers, to be dropped.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.jobs.values_mut()
    }

    /// As [`Lines::check_waits`].
    pub fn check_waits(&mut self, address: WaitAddress, mut reached: impl FnMut(&mut Job) -> bool) {
        for id in self.waiting.get(&address).cloned().unwrap_or_default() {
            if let Some(job) = self.jobs.get_mut(&id)
                && reached(job)
            {
                job.waits_for = None;
                self.forget_wait(address, id);
            }
        }
    }

    /// The buffer with this id.
    pub fn find(&self, submission_fence_id: u64) -> Option<&Job> {
        self.jobs.get(&submission_fence_id)
    }

    /// Whether the buffer with this id is saved here and had not started.
    pub fn has_unbegun(&self, submission_fence_id: u64) -> bool {
        self.jobs.get(&submission_fence_id).is_some_and(|job| !job.begun)
    }
}
