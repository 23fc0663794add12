//! Work of one engine of a driver outside, until it is complete: one line for each hardware queue, and one for all contexts'
//! own queues, of which the kernel gives an engine two submissions at a time.
//!
//! Sums and ends of lines answer every query, so the buffers that one client has in flight do not make the steps of
//! others longer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dxgkrnl::ProcessId;
use dxgkrnl::ddi::HwContext;
use serde::{Deserialize, Serialize};

/// A submission that has not completed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Work {
    pub submission_fence_id: u64,
    pub context: HwContext,
    pub process: ProcessId,
    /// Bytes of its command buffer.
    pub bytes: usize,
    /// Its hardware queue and progress fence value.
    pub queue: Option<(u32, u64)>,
    /// Whether it is a buffer of the queue's ring, which has no number and no progress fence value.
    pub is_ring: bool,
    /// Whether the driver was not asked to run it: it faults when the work before it is complete.
    pub is_refused: bool,
}

/// Bytes that a buffer in a ring counts besides its commands, as the kernel counts it.
const RING_BUFFER_BYTES: usize = 64;

impl Work {
    /// Bytes charged for it. The number is the same in every build, because saved states and replays depend on it.
    fn weight(&self) -> usize {
        const WORK_BYTES: usize = 256;
        const { assert!(4 * size_of::<Work>() <= WORK_BYTES, "entries of trees are half empty") };
        WORK_BYTES + self.bytes
    }

    fn ring_bytes(&self) -> usize {
        if self.is_ring { self.bytes + RING_BUFFER_BYTES } else { 0 }
    }

    fn line(&self) -> Line {
        self.queue.map(|(queue, _)| queue)
    }
}

/// Key of a line: its hardware queue, or `None` for contexts' own queues.
pub(super) type Line = Option<u32>;

/// Arrivals of the work of a line, oldest first. In a hardware queue, progress fence values grow with them.
#[derive(Default, Serialize, Deserialize)]
struct Arrivals {
    numbers: VecDeque<u64>,
    ring_bytes: usize,
}

/// The work of one engine.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct WorkLines {
    /// By arrival.
    all: BTreeMap<u64, Work>,
    lines: BTreeMap<Line, Arrivals>,
    /// Bytes charged to each process.
    held: BTreeMap<ProcessId, usize>,
    next: u64,
}

impl WorkLines {
    /// Adds work. Returns its arrival, which no other work has.
    pub fn push(&mut self, work: Work) -> u64 {
        let number = self.next;
        self.next += 1;
        let line = self.lines.entry(work.line()).or_default();
        line.numbers.push_back(number);
        line.ring_bytes += work.ring_bytes();
        *self.held.entry(work.process).or_default() += work.weight();
        self.all.insert(number, work);
        number
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, number: u64) -> Option<&Work> {
        self.all.get(&number)
    }

    /// The oldest work of all, and its arrival.
    pub fn first(&self) -> Option<(u64, &Work)> {
        self.all.first_key_value().map(|(number, work)| (*number, work))
    }

    /// Bytes charged to a process.
    pub fn held_bytes(&self, process: ProcessId) -> usize {
        self.held.get(&process).copied().unwrap_or(0)
    }

    /// Bytes of the buffers of a queue's ring.
    pub fn ring_bytes(&self, hw_queue: u32) -> usize {
        self.lines.get(&Some(hw_queue)).map_or(0, |line| line.ring_bytes)
    }

    /// Removes the newest work of all.
    pub fn pop_newest(&mut self) {
        if let Some((_, work)) = self.all.last_key_value() {
            let (line, at) = (work.line(), self.count_of(work.line()).saturating_sub(1));
            self.remove(line, at);
        }
    }

    /// Removes the oldest work of a line if it is of this kind.
    pub fn pop_first(&mut self, line: Line, is_it: impl FnOnce(&Work) -> bool) -> Option<Work> {
        if is_it(self.work_at(line, 0)?) { self.remove(line, 0) } else { None }
    }

    /// Removes the buffer of a hardware queue with this progress fence value, which the ring's do not have.
    pub fn remove_buffer(&mut self, hw_queue: u32, progress_fence_id: u64) {
        let Some(line) = self.lines.get(&Some(hw_queue)) else { return };
        let id = |number: &u64| self.all.get(number).filter(|work| !work.is_ring)?.queue.map(|(_, id)| id);
        if let Ok(at) = line.numbers.binary_search_by_key(&Some(progress_fence_id), id) {
            self.remove(Some(hw_queue), at);
        }
    }

    /// Removes work of contexts' own queues, and returns it. There is little of it.
    pub fn take_of_contexts(&mut self, is_gone: impl Fn(&Work) -> bool) -> Vec<Work> {
        let mut gone = Vec::new();
        for at in (0..self.count_of(None)).rev() {
            if self.work_at(None, at).is_some_and(&is_gone) {
                gone.extend(self.remove(None, at));
            }
        }
        gone
    }

    /// Removes all work of a hardware queue.
    pub fn remove_line(&mut self, hw_queue: u32) {
        while self.remove(Some(hw_queue), 0).is_some() {}
    }

    /// Removes all work of the hardware queues of these contexts.
    pub fn remove_lines_of(&mut self, contexts: &BTreeSet<HwContext>) {
        let lines = self.lines.iter().filter_map(|(line, arrivals)| {
            let first = self.all.get(arrivals.numbers.front()?)?;
            line.filter(|_| contexts.contains(&first.context))
        });
        for line in lines.collect::<Vec<_>>() {
            self.remove_line(line);
        }
    }

    fn work_at(&self, line: Line, at: usize) -> Option<&Work> {
        self.all.get(self.lines.get(&line)?.numbers.get(at)?)
    }

    fn count_of(&self, line: Line) -> usize {
        self.lines.get(&line).map_or(0, |line| line.numbers.len())
    }

    /// Removes the work at this place of a line.
    fn remove(&mut self, key: Line, at: usize) -> Option<Work> {
        let line = self.lines.get_mut(&key)?;
        let work = self.all.remove(&line.numbers.remove(at)?)?;
        line.ring_bytes -= work.ring_bytes();
        if line.numbers.is_empty() {
            self.lines.remove(&key);
        }
        if let Some(bytes) = self.held.get_mut(&work.process) {
            *bytes -= work.weight();
            if *bytes == 0 {
                self.held.remove(&work.process);
            }
        }
        Some(work)
    }
}
