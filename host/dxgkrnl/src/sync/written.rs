//! Fences that engines of the basic kind wrote and whose waits are not evaluated yet (FEN-017).
//!
//! ```text
//!   an engine's write   marks the fence for each process that has it open, and for the engine's process as its writer
//!   open, close         marks it for one process more, or for one less that did not write it
//!   evaluation          removes the marks of a fence. A completed buffer evaluates the fences marked for its process
//! ```
//! However often a fence is written, it has one mark for each process, and the charge for an open covers it. A writer that
//! closes the fence keeps its mark until a buffer of it completes or is dropped, because others may wait for the value.
//!
//! An evaluation that does not fit a step is *due*: a later step continues it. A fence of it is evaluated before its value
//! changes again, so that no wait misses a value that it had at the interrupt.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ProcessId;

/// Why a fence is marked for a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Mark {
    /// An engine wrote it for the process.
    Wrote,
    /// The process has it open, and an engine wrote it for another one.
    HasOpen,
}

/// The first write of a fence since its waits were evaluated. Fences are evaluated in the order of these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct FirstWrite {
    pub by: ProcessId,
    number: u64,
}

impl FirstWrite {
    const LEAST: FirstWrite = FirstWrite { by: ProcessId(0), number: 0 };
}

/// All written fences, each once.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct WrittenFences {
    /// Number of the last first write.
    writes: u64,
    /// By object.
    first_writes: BTreeMap<u32, FirstWrite>,
    /// By object and process.
    marks: BTreeMap<(u32, ProcessId), Mark>,
    /// The objects of the marks, in the order of their evaluation.
    objects: BTreeMap<(Mark, ProcessId, FirstWrite), u32>,
    /// Processes whose fences are due, those with these marks.
    due: BTreeMap<ProcessId, Mark>,
}

impl WrittenFences {
    pub fn contains(&self, object: u32) -> bool {
        self.first_writes.contains_key(&object)
    }

    /// Marks a fence that an engine wrote for `by`. `having_it_open` are the processes that have it open; it is not iterated
    /// if the fence was written before.
    pub fn note_write(
        &mut self,
        object: u32,
        by: ProcessId,
        having_it_open: impl Iterator<Item = ProcessId>,
    ) {
        if !self.contains(object) {
            self.writes += 1;
            self.first_writes.insert(object, FirstWrite { by, number: self.writes });
            having_it_open.for_each(|process| self.note_open(object, process));
        }
        self.unmark(object, by, Mark::HasOpen);
        self.mark(object, by, Mark::Wrote);
    }

    /// Marks a fence for a process that opens it, if an engine wrote it.
    pub fn note_open(&mut self, object: u32, process: ProcessId) {
        if self.contains(object) && !self.marks.contains_key(&(object, process)) {
            self.mark(object, process, Mark::HasOpen);
        }
    }

    /// Removes the mark of a process that closed its last open of the fence, unless an engine wrote it for the process.
    pub fn note_close(&mut self, object: u32, process: ProcessId) {
        self.unmark(object, process, Mark::HasOpen);
        self.forget_if_unmarked(object);
    }

    /// Removes all marks of a fence. Returns its first write, and how many marks there were.
    pub fn take(&mut self, object: u32) -> Option<(FirstWrite, u32)> {
        let first = self.first_writes.remove(&object)?;
        let mut count = 0;
        while let Some((process, mark)) = self.next_mark(object) {
            self.marks.remove(&(object, process));
            self.objects.remove(&(mark, process, first));
            count += 1;
        }
        Some((first, count))
    }

    /// Makes the fences of a process due, up to these marks.
    pub fn set_due(&mut self, process: ProcessId, up_to: Mark) {
        let due = self.due.entry(process).or_insert(up_to);
        *due = up_to.max(*due);
    }

    /// The fences of a process, up to these marks, are evaluated.
    #[inline]
    pub fn end_due(&mut self, process: ProcessId, up_to: Mark) {
        if self.has_due() && self.due.get(&process).is_some_and(|due| *due <= up_to) {
            self.due.remove(&process);
        }
    }

    #[inline]
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether a fence is due.
    pub fn is_due(&self, object: u32) -> bool {
        self.marks_of(object).any(|(process, mark)| self.due.get(&process).is_some_and(|due| mark <= *due))
    }

    /// Removes the marks of a process that has ended.
    pub fn forget_process(&mut self, process: ProcessId) {
        self.due.remove(&process);
        while let Some(object) = self.next_of(process, Mark::HasOpen) {
            self.unmark(object, process, Mark::Wrote);
            self.unmark(object, process, Mark::HasOpen);
            self.forget_if_unmarked(object);
        }
    }

    /// The next fence for a process: of those that it wrote, then, with [`Mark::HasOpen`], of the others.
    pub fn next_of(&self, process: ProcessId, up_to: Mark) -> Option<u32> {
        let next = |mark| {
            let ((of_mark, of, _), object) =
                self.objects.range((mark, process, FirstWrite::LEAST)..).next()?;
            ((*of_mark, *of) == (mark, process)).then_some(*object)
        };
        next(Mark::Wrote).or_else(|| next(up_to))
    }

    /// The first process from this one on that wrote a fence, and the first such fence.
    pub fn next_writer(&self, from: ProcessId) -> Option<(ProcessId, u32)> {
        let ((mark, process, _), object) =
            self.objects.range((Mark::Wrote, from, FirstWrite::LEAST)..).next()?;
        (*mark == Mark::Wrote).then_some((*process, *object))
    }

    /// All written fences.
    pub fn fences(&self) -> impl Iterator<Item = u32> {
        self.first_writes.keys().copied()
    }

    /// The processes for which a fence is marked.
    pub fn processes_of(&self, object: u32) -> impl Iterator<Item = ProcessId> {
        self.marks_of(object).map(|(process, _)| process)
    }

    /// Whether the marks disagree with each other, or with the processes that have each fence open.
    pub fn are_wrong<Opens: Iterator<Item = ProcessId>>(&self, opens: impl Fn(u32) -> Opens) -> bool {
        let is_wrong = |(object, first): (&u32, &FirstWrite)| {
            let has_open = |process| opens(*object).any(|other| other == process);
            let lacks_one = opens(*object).any(|process| !self.marks.contains_key(&(*object, process)));
            let is_marked_wrongly = |(process, mark): (ProcessId, Mark)| {
                self.objects.get(&(mark, process, *first)) != Some(object)
                    || (mark == Mark::HasOpen && !has_open(process))
            };
            lacks_one || self.next_mark(*object).is_none() || self.marks_of(*object).any(is_marked_wrongly)
        };
        self.first_writes.iter().any(is_wrong)
            || self.marks.keys().any(|(object, _)| !self.contains(*object))
            || self.marks.len() != self.objects.len()
    }

    fn marks_of(&self, object: u32) -> impl Iterator<Item = (ProcessId, Mark)> {
        let marks = self.marks.range((object, ProcessId(0))..=(object, ProcessId(u32::MAX)));
        marks.map(|((_, process), mark)| (*process, *mark))
    }

    fn next_mark(&self, object: u32) -> Option<(ProcessId, Mark)> {
        self.marks_of(object).next()
    }

    fn mark(&mut self, object: u32, process: ProcessId, mark: Mark) {
        self.marks.insert((object, process), mark);
        self.objects.insert((mark, process, self.first_writes[&object]), object);
    }

    /// Removes this mark of a fence for a process, if it has it.
    fn unmark(&mut self, object: u32, process: ProcessId, mark: Mark) {
        if self.marks.get(&(object, process)) == Some(&mark) {
            self.marks.remove(&(object, process));
            self.objects.remove(&(mark, process, self.first_writes[&object]));
        }
    }

    fn forget_if_unmarked(&mut self, object: u32) {
        if self.next_mark(object).is_none() {
            self.first_writes.remove(&object);
        }
    }
}
