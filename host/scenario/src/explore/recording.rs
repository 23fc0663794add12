//! Treats recordings as programs: finds their failures, and the smallest program with the same failures.
//!
//! ```text
//!   recording ──from_trace──▶ Program ──plain──▶ no expectations, time passes in as few steps as possible
//!                                │ coarse: removes actors, then ranges of steps; without printing and reading
//!                                ▼
//!                             some hundred steps ──shrink──▶ as for any other program ──with_failures──▶ text
//! ```
//! Removing a step also removes the steps that depend on it (`repair`): so each candidate is causally closed.

use std::collections::BTreeSet;
use std::fmt;

use drivers::Registry;
use dxgkrnl::why;

use super::repair::repair;
use super::shrink_names::renamed;
use super::{FailureMode, failure, shrink};
use crate::choose::First;
use crate::from_trace::Converted;
use crate::model::ModelWorld;
use crate::program::{Action, Binding, Expectation, Expected, Process, Program, Step};
use crate::run::{AtEnd, Ended, Order, Prerequisite, Taken, Unmet, Waiting, run_in_order};
use crate::script::{parse, print};

/// A failure of a recording that must be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kept {
    /// This wait is at the end.
    Wait(StuckWait),
    /// Any process waits at the end with this verdict: one of [`why::Verdict::NAMES`].
    Verdict(&'static str),
    /// A note contains this text.
    Note(String),
    /// An invariant of the model is broken, or the kernel panics.
    Broken(FailureMode),
}

impl Kept {
    /// Describes it with the handles in the trace behind the names of the converted program.
    pub fn in_words(&self, converted: &Converted) -> String {
        match self {
            Kept::Wait(wait) => wait.in_words(converted),
            Kept::Verdict(_) | Kept::Note(_) | Kept::Broken(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::Wait(wait) => write!(f, "{wait}"),
            Kept::Verdict(verdict) => f.write_str(verdict),
            Kept::Note(text) => write!(f, "note={text}"),
            Kept::Broken(mode) => f.write_str(mode.class.name()),
        }
    }
}

/// A wait at the end of a run, by the names of its program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StuckWait {
    pub process: String,
    /// One of [`why::Verdict::NAMES`].
    pub verdict: &'static str,
    /// Root of the wait: a fence and its value.
    pub root: Option<(String, u64)>,
    /// Root of the wait: a keyed mutex and the key that is acquired.
    pub mutex: Option<(String, u64)>,
    /// The processes of a cycle.
    pub members: BTreeSet<String>,
}

impl StuckWait {
    pub(super) fn of(waiting: &Waiting, program: &Program) -> StuckWait {
        let Waiting { process, verdict, root, mutex, members, needs: _ } = waiting;
        let name = |process: Process| program.processes[process.index()].name.clone();
        let named = |root: &Option<(Binding, u64)>| {
            root.map(|(object, value)| (program.name(object).to_owned(), value))
        };
        StuckWait {
            process: name(*process),
            verdict: verdict.name(),
            root: named(root),
            mutex: named(mutex),
            members: members.iter().map(|process| name(*process)).collect(),
        }
    }

    /// Describes it with the numbers and handles in the trace behind the names of the converted program.
    pub fn in_words(&self, converted: &Converted) -> String {
        let object = |root: &Option<(String, u64)>| {
            root.as_ref().map(|(name, value)| (converted.name_in_trace(name), *value))
        };
        let process = |name: &String| converted.process_in_trace(name);
        StuckWait {
            process: process(&self.process),
            verdict: self.verdict,
            root: object(&self.root),
            mutex: object(&self.mutex),
            members: self.members.iter().map(process).collect(),
        }
        .to_string()
    }

    /// The same wait in a copy of the program with other names.
    fn renamed(&self, program: &Program, copy: &Program) -> Option<StuckWait> {
        let process = |name: &String| {
            let at = program.processes.iter().position(|process| process.name == *name)?;
            Some(copy.processes.get(at)?.name.clone())
        };
        let object = |root: &Option<(String, u64)>| match root {
            Some((name, value)) => {
                let at = program.bindings.iter().position(|named| named.name == *name)?;
                Some(Some((copy.bindings.get(at)?.name.clone(), *value)))
            }
            None => Some(None),
        };
        Some(StuckWait {
            process: process(&self.process)?,
            verdict: self.verdict,
            root: object(&self.root)?,
            mutex: object(&self.mutex)?,
            members: self.members.iter().map(process).collect::<Option<_>>()?,
        })
    }
}

impl fmt::Display for StuckWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StuckWait { process, verdict, root, mutex, members } = self;
        match (root, mutex) {
            (Some((fence, value)), _) => {
                write!(f, "{process} waits at the end for {fence} to reach {value}: {verdict}")?;
            }
            (None, Some((mutex, key))) => {
                write!(f, "{process} waits at the end for {mutex} with key {key}: {verdict}")?;
            }
            (None, None) => write!(f, "{process} waits at the end: {verdict}")?,
        }
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        if members.len() > 1 { write!(f, " of {}", members.join(", ")) } else { Ok(()) }
    }
}

/// The text names no failure to keep.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no failure to keep: write a verdict ({verdicts}) or note=TEXT", verdicts = why::Verdict::NAMES.join(", "))]
pub struct NothingToKeep(String);

impl std::str::FromStr for Kept {
    type Err = NothingToKeep;

    fn from_str(text: &str) -> Result<Kept, NothingToKeep> {
        let note = text.strip_prefix("note=").filter(|note| !note.is_empty());
        let verdict = why::Verdict::NAMES.into_iter().find(|name| *name == text);
        let kept = note.map(|note| Kept::Note(note.to_owned())).or(verdict.map(Kept::Verdict));
        kept.ok_or_else(|| NothingToKeep(text.to_owned()))
    }
}

/// Returns the program without expectations, in as few steps as possible: what a recording does, whatever the results.
fn plain(program: &Program) -> Program {
    let mut plain = program.clone();
    plain.steps.retain(|step| !matches!(step.action, Action::Expect(_)));
    expect_nothing(&mut plain);
    at_once(&mut plain);
    plain
}

/// Removes all expectations.
pub(super) fn expect_nothing(program: &mut Program) {
    for step in &mut program.steps {
        if let Action::Act(act) = &mut step.action
            && act.operation.is_call()
        {
            act.expected = Expected::Any;
        }
    }
}

/// Merges consecutive advances of time.
fn at_once(program: &mut Program) {
    program.steps.dedup_by(|next, step| match (&next.action, &mut step.action) {
        (Action::Advance(more), Action::Advance(nanos)) => {
            *nanos = nanos.saturating_add(*more);
            true
        }
        _ => false,
    });
}

/// Runs a program without expectations on the model.
pub fn run_unchecked(program: &Program, drivers: &Registry, checked: bool) -> (Ended, Option<AtEnd>) {
    let steps: Vec<usize> = (0..program.steps.len()).collect();
    let order = Order { steps: &steps, prerequisites: &[], unmet: Unmet::Ignore };
    let (ended, at_end, _) = run_steps_in_order(program, drivers, checked, order);
    (ended, at_end)
}

/// As [`run_unchecked`], in an order. The kernel's tables are checked at times, and after each step if that finds a
/// failure: so the failure is that of the first step that has one.
pub(super) fn run_steps_in_order(
    program: &Program,
    drivers: &Registry,
    checked: bool,
    order: Order<'_>,
) -> (Ended, Option<AtEnd>, Taken) {
    let run = |seldom: bool| {
        let world = ModelWorld::with_drivers(program, drivers, None);
        let world = if checked { world } else { world.unchecked() };
        let mut world = if seldom { world.seldom_checked() } else { world };
        let (mut observed, mut taken) = (None, Taken::default());
        let ended = super::caught(|| {
            let (ended, at_end) = run_in_order(program, &mut world, &mut First, order, &mut taken);
            observed = at_end;
            ended
        });
        (ended, observed, taken)
    };
    let result = run(true);
    if checked && failure(&result.0).is_some() { run(false) } else { result }
}

/// Returns the failures of a program without expectations: the broken invariant, or else each stuck wait.
pub fn wrong(program: &Program, drivers: &Registry) -> Vec<Kept> {
    let (ended, at_end) = run_unchecked(program, drivers, true);
    if let Some(failure) = failure(&ended) {
        return vec![Kept::Broken(FailureMode::of(failure, program))];
    }
    let mut wrong = Vec::new();
    for stuck in at_end.iter().flat_map(AtEnd::stuck) {
        let kept = Kept::Wait(StuckWait::of(stuck, program));
        if !wrong.contains(&kept) {
            wrong.push(kept);
        }
    }
    wrong
}

/// Returns what the recording ended with and its program does not, if anything: a scenario cannot express all of a
/// recording.
pub fn difference_at_end(converted: &Converted, drivers: &Registry) -> Option<String> {
    let mut program = converted.program.clone();
    program.steps.truncate(converted.last_ends);
    expect_nothing(&mut program);
    let (_, at_end) = run_unchecked(&program, drivers, false);
    at_end.and_then(|at_end| converted.end.difference(&converted.program, &at_end))
}

/// A reduced recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Smallest {
    pub program: Program,
    /// The scenario file. It passes as long as all kept failures occur; with a broken invariant, it fails with that.
    pub text: String,
    /// The failures, by the names of this program.
    pub kept: Vec<Kept>,
    /// Number of programs that were run.
    pub tried: u64,
}

/// Above this number of steps, ranges are removed without printing and reading.
const FEW_STEPS: usize = 64;

struct Reducer<'a> {
    best: Program,
    kept: &'a [Kept],
    drivers: &'a Registry,
    /// For a failure that must not occur in the order of the lines: what each step depends on.
    by_order: Option<&'a [Prerequisite]>,
    tried: u64,
}

/// Reason why there is no reduced program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReduced {
    #[error("the recording, run as a scenario, does not show {0}")]
    Otherwise(String),
    #[error("its failure cannot be expressed in a scenario")]
    NotSaid,
}

/// Returns the smallest program with these failures.
pub fn reduce(program: &Program, kept: &[Kept], drivers: &Registry) -> Result<Smallest, NotReduced> {
    let mut reducer = Reducer { best: plain(program), kept, drivers, by_order: None, tried: 0 };
    for one in kept {
        let alone = std::slice::from_ref(one);
        let ended = run_with_failures(&reducer.best, alone, None, drivers);
        ended.ok_or_else(|| NotReduced::Otherwise(one.to_string()))?;
    }
    reducer.coarse();
    let coarse = reducer.best.clone();
    let small = shrink(&coarse, &mut |candidate: &Program| reducer.keeps(candidate));
    let as_they_are = || Some((with_failures(&small, kept, drivers)?, kept.to_vec()));
    let shown = with_usual_names(&small, kept, drivers).or_else(as_they_are);
    let ((program, text), kept) = shown.ok_or(NotReduced::NotSaid)?;
    Ok(Smallest { program, text, kept, tried: reducer.tried })
}

/// As [`with_failures`], with conventional names, by which the failures are returned, too. Shrinking keeps the names of a
/// wait that must stay.
fn with_usual_names(
    program: &Program,
    kept: &[Kept],
    drivers: &Registry,
) -> Option<((Program, String), Vec<Kept>)> {
    let copy = renamed(program);
    let in_copy = |kept: &Kept| match kept {
        Kept::Wait(wait) => wait.renamed(program, &copy).map(Kept::Wait),
        Kept::Verdict(_) | Kept::Note(_) | Kept::Broken(_) => Some(kept.clone()),
    };
    let kept = kept.iter().map(in_copy).collect::<Option<Vec<Kept>>>()?;
    Some((with_failures(&copy, &kept, drivers)?, kept))
}

/// Returns the smallest scenario with this failure in the program's order, and not in the order of its lines; `None` if
/// it cannot be expressed.
pub(super) fn reduce_order(
    program: &Program,
    kept: &Kept,
    prerequisites: &[Prerequisite],
    drivers: &Registry,
) -> Option<String> {
    let (kept, by_order) = (std::slice::from_ref(kept), Some(prerequisites));
    let mut reducer = Reducer { best: program.clone(), kept, drivers, by_order, tried: 0 };
    if reducer.keeps(program).is_some() {
        reducer.coarse();
    }
    Some(with_failures(&reducer.best, kept, drivers)?.1)
}

/// Returns the result of a program that has all these failures, and whose processes go on only if the prerequisites are
/// met.
fn run_with_failures(
    program: &Program,
    kept: &[Kept],
    prerequisites: Option<&[Prerequisite]>,
    drivers: &Registry,
) -> Option<Ended> {
    let checked = kept.iter().any(|kept| matches!(kept, Kept::Broken(_)));
    let steps: Vec<usize> = (0..program.steps.len()).collect();
    let unmet = if prerequisites.is_some() { Unmet::Fail } else { Unmet::Ignore };
    let order = Order { steps: &steps, prerequisites: prerequisites.unwrap_or_default(), unmet };
    let (ended, at_end, _) = run_steps_in_order(program, drivers, checked, order);
    let failed = failure(&ended).map(|failed| FailureMode::of(failed, program));
    let happens = |kept: &Kept| match kept {
        Kept::Broken(mode) => failed.as_ref() == Some(mode),
        Kept::Wait(wait) => at_end.as_ref().is_some_and(|at_end| find(at_end, wait, program).is_some()),
        Kept::Verdict(verdict) => {
            at_end.as_ref().is_some_and(|at_end| with_verdict(at_end, verdict).is_some())
        }
        Kept::Note(text) => {
            at_end.as_ref().is_some_and(|at_end| at_end.notes.iter().any(|note| note.contains(text)))
        }
    };
    // A run that fails differently has another failure.
    let only_so = failed.is_none() || checked;
    (only_so && kept.iter().all(happens)).then_some(ended)
}

impl Reducer<'_> {
    /// Returns the result of a candidate that has all kept failures.
    fn keeps(&mut self, candidate: &Program) -> Option<Ended> {
        self.tried += 1;
        let ended = run_with_failures(candidate, self.kept, self.by_order, self.drivers)?;
        if self.by_order.is_some() {
            let mut by_line = candidate.clone();
            by_line.steps.sort_by_key(|step| step.line);
            let none = run_with_failures(&repair(by_line), self.kept, None, self.drivers).is_none();
            return none.then_some(ended);
        }
        Some(ended)
    }

    fn takes(&mut self, candidate: Program) -> bool {
        let mut candidate = repair(candidate);
        if self.by_order.is_none() {
            at_once(&mut candidate);
        }
        let takes = candidate.steps.len() < self.best.steps.len() && self.keeps(&candidate).is_some();
        if takes {
            self.best = candidate;
        }
        takes
    }

    fn takes_without(&mut self, is_out: impl Fn(usize, &Step) -> bool) -> bool {
        let mut candidate = self.best.clone();
        let mut at = 0;
        candidate.steps.retain(|step| {
            at += 1;
            !is_out(at - 1, step)
        });
        self.takes(candidate)
    }

    /// Removes actors, then ever shorter ranges of steps, until few are left or none can be removed.
    fn coarse(&mut self) {
        loop {
            let before = self.best.steps.len();
            self.actors();
            let mut length = self.best.steps.len().div_ceil(2);
            while length > 1 && (self.by_order.is_some() || self.best.steps.len() > FEW_STEPS) {
                self.stretches(length);
                length = length.div_ceil(2);
            }
            self.stretches(1);
            let after = self.best.steps.len();
            if after == before || (self.by_order.is_none() && after <= FEW_STEPS) {
                return;
            }
        }
    }

    /// Removes halves of the processes, quarters, and so on to single ones.
    fn actors(&mut self) {
        let mut length = self.best.processes.len().div_ceil(2).max(1);
        loop {
            let mut end = self.best.processes.len();
            while end > 0 {
                let from = end.saturating_sub(length);
                let out = from as u32..end as u32;
                self.takes_without(|_, step| {
                    matches!(step.action, Action::StartProcess(Process(process)) if out.contains(&process))
                });
                end = from;
            }
            if length == 1 {
                return;
            }
            length = length.div_ceil(2);
        }
    }

    /// Removes ranges from the end first, because steps after the failure are not needed.
    fn stretches(&mut self, length: usize) {
        let mut end = self.best.steps.len();
        while end > 0 {
            let from = end.saturating_sub(length);
            self.takes_without(|at, _| (from..end).contains(&at));
            end = from.min(self.best.steps.len());
        }
    }
}

/// Returns this wait of a run of the program.
fn find<'a>(at_end: &'a AtEnd, wait: &StuckWait, program: &Program) -> Option<&'a Waiting> {
    at_end.waiting.iter().find(|waiting| StuckWait::of(waiting, program) == *wait)
}

/// Returns a wait with this verdict.
fn with_verdict<'a>(at_end: &'a AtEnd, verdict: &str) -> Option<&'a Waiting> {
    let of = || at_end.waiting.iter().filter(|waiting| waiting.verdict.name() == verdict);
    of().find(|waiting| waiting.root.is_some()).or_else(|| of().next())
}

/// Returns the program with the kept failures as its last lines, and its text. The text was read and run, so it does
/// show them.
pub fn with_failures(program: &Program, kept: &[Kept], drivers: &Registry) -> Option<(Program, String)> {
    let (_, at_end) = run_unchecked(program, drivers, false);
    let mut last = Vec::new();
    let why = |waiting: &Waiting| {
        let Waiting { process, verdict, root, .. } = *waiting;
        Expectation::Why { process, verdict: verdict.name(), root }
    };
    for kept in kept {
        match kept {
            Kept::Wait(wait) => last.push(why(find(at_end.as_ref()?, wait, program)?)),
            Kept::Verdict(verdict) => last.push(why(with_verdict(at_end.as_ref()?, verdict)?)),
            Kept::Note(text) => last.push(Expectation::Report { text: text.clone() }),
            Kept::Broken(_) => {}
        }
    }
    let mut extended = program.clone();
    extended.steps.extend(last.into_iter().map(|one| Step { line: 0, action: Action::Expect(one) }));
    let text = print(&extended);
    let read = parse(&text).ok()?.pop()?;
    let (ended, _) = run_unchecked(&read, drivers, true);
    let broken = failure(&ended).map(|failed| FailureMode::of(failed, &read));
    let expected = kept.iter().find_map(|kept| match kept {
        Kept::Broken(mode) => Some(mode),
        Kept::Wait(_) | Kept::Verdict(_) | Kept::Note(_) => None,
    });
    (broken.as_ref() == expected).then_some((read, text))
}
