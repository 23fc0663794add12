//! Runs other legal orders of a recording, and compares their outcomes with the recorded one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use drivers::Registry;

use super::orders::Orders;
use super::recording::{Kept, StuckWait, expect_nothing, reduce, reduce_order, run_steps_in_order};
use super::{FailureMode, failure};
use crate::choose::Random;
use crate::from_trace::{self, Converted};
use crate::program::{Act, Action, Binding, Expected, Fault, Operation, Program, Step};
use crate::run::{AtEnd, Ended, Failure, Order, Prerequisite, Taken, TakenStep, Unmet, Waiting};
use crate::script;
use crate::script::words::write_status;

/// Number and seed of the orders to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Number of orders besides the recorded one.
    pub orders: u64,
    /// Seed of the drawn orders.
    pub seed: u64,
}

/// How an order differs from the recorded one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is the recorded order.
    None,
    /// The first of these recorded steps was moved after the second.
    Race { first: usize, second: usize },
    /// Priorities of streams: the number of the draw.
    Priorities { draw: u64 },
    /// A race was reversed, but its steps kept their order, because a process had to wait.
    LongerWait,
}

/// An outcome of an order that differs from the recorded one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// At the end, a process waits that does not wait in the recorded order.
    Waits(StuckWait),
    /// An invariant of the model is broken, or the kernel panics.
    Broken { what: String },
    /// Fences with other values: name, recorded, found.
    OtherValues { fences: Vec<(String, u64, u64)> },
}

impl Outcome {
    /// Whether both are of one kind, of which one example is enough: the same fences, whatever their values.
    fn is_like(&self, other: &Outcome) -> bool {
        match (self, other) {
            (Outcome::Waits(wait), Outcome::Waits(other)) => {
                let object = |wait: &StuckWait| {
                    let name = |root: &Option<(String, u64)>| root.as_ref().map(|(name, _)| name.clone());
                    (name(&wait.root), name(&wait.mutex))
                };
                let key = |wait: &StuckWait| (wait.process.clone(), wait.verdict, object(wait));
                key(wait) == key(other)
            }
            (Outcome::OtherValues { fences }, Outcome::OtherValues { fences: others }) => {
                let names = |fences: &[(String, u64, u64)]| -> Vec<String> {
                    fences.iter().map(|(name, ..)| name.clone()).collect()
                };
                names(fences) == names(others)
            }
            (one, other) => one == other,
        }
    }

    /// Describes it with the handles in the trace behind the names of the converted program.
    pub fn in_words(&self, converted: &Converted) -> String {
        match self {
            Outcome::Waits(wait) => wait.in_words(converted),
            Outcome::Broken { .. } => self.to_string(),
            Outcome::OtherValues { fences } => {
                let named = fences.iter().map(|(name, was, is)| (converted.name_in_trace(name), *was, *is));
                Outcome::OtherValues { fences: named.collect() }.to_string()
            }
        }
    }

    /// Whether it is a failure in any program.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Outcome::OtherValues { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Waits(wait) => write!(f, "{wait}"),
            Outcome::Broken { what } => f.write_str(what),
            Outcome::OtherValues { fences } => {
                f.write_str("the final values differ: ")?;
                fences.iter().enumerate().try_for_each(|(at, (fence, recorded, found))| {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{fence} is {found} instead of {recorded}")
                })
            }
        }
    }
}

/// The first order with an outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub outcome: Outcome,
    pub change: Change,
    /// Whether it is only in an order that opens an object by its name before the share that gives it the name. Nothing in a
    /// recording orders the two, so that says nothing about it.
    pub by_name: bool,
    /// Number of orders with this outcome.
    pub orders: u64,
    /// The first call with another answer than recorded, as text with its step: its program might have continued
    /// differently from there.
    pub answered: Option<String>,
    /// The program in that order.
    pub program: Program,
    /// For a failure: the smallest scenario that has it in this order and not in the recorded one. For a failure of the
    /// recorded order: the smallest one that has it.
    pub smallest: Option<String>,
}

/// The result of running other orders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reordered {
    /// Number of unordered pairs of steps on one object.
    pub races: usize,
    /// Number of different orders that were run.
    pub orders: u64,
    /// Each outcome once: failures first, those [by a name](Found::by_name) after the others, otherwise in the order of
    /// discovery.
    pub found: Vec<Found>,
}

/// Runs other orders of a recording. `progress` is called with the number of orders run.
pub fn reorder(
    converted: &Converted,
    budget: Budget,
    drivers: &Registry,
    progress: &mut dyn FnMut(u64),
) -> Reordered {
    let (program, recorded) = recorded_run(converted, drivers);
    let orders = Orders::new(&program, &woken(converted));
    let mut explorer = Explorer {
        converted,
        program: &program,
        constraints: &orders,
        prerequisites: recorded.prerequisites,
        drivers,
        as_recorded: recorded.result,
        tried_orders: HashSet::from([(0..program.steps.len()).collect()]),
        orders: 0,
        found: Vec::new(),
    };
    explorer.check_recorded();
    // Some orders are drawn by priorities, which find failures that no single race shows.
    let has_races = !(orders.races.is_empty() && orders.name_races.is_empty());
    let of_races = if has_races { budget.orders.div_ceil(2) } else { 0 };
    let mut random = Random::new(budget.seed);
    let mut races = orders.races.clone();
    if races.len() as u64 > of_races {
        for at in (1..races.len()).rev() {
            races.swap(at, random.below(at as u64 + 1) as usize);
        }
    }
    let of_names = (orders.name_races.len() as u64).min(of_races.div_ceil(2));
    let rest = budget.orders - of_names;
    for race in races.into_iter().take((of_races - of_names) as usize) {
        explorer.run(orders.reversed(race), Change::Race { first: race.0, second: race.1 });
        progress(explorer.orders);
    }
    let mut draw = 0;
    // A recording of few steps has few orders.
    while explorer.orders < rest && draw < 2 * rest {
        explorer.run(orders.by_priorities(&mut random, draw % 4), Change::Priorities { draw });
        progress(explorer.orders);
        draw += 1;
    }
    // Last, because an outcome is shown by the first order that has it.
    for race in orders.name_races.iter().take(of_names as usize) {
        explorer.run(orders.reversed(*race), Change::Race { first: race.0, second: race.1 });
        progress(explorer.orders);
    }
    explorer.found.sort_by_key(|found| (!found.outcome.is_failure(), found.by_name));
    let races = orders.races.len() + orders.name_races.len();
    Reordered { races, orders: explorer.orders, found: explorer.found }
}

/// The recorded order, run as a program.
struct RecordedRun {
    result: (Ended, Option<AtEnd>),
    prerequisites: Vec<Prerequisite>,
}

/// Returns the program whose orders are run, with the result of its recorded order. Without the ends of processes at
/// the end of a recording, the waits and values that other orders end with can be seen; they stay if a process then
/// waits that was ended while it waited.
fn recorded_run(converted: &Converted, drivers: &Registry) -> (Program, RecordedRun) {
    let mut program = converted.program.clone();
    expect_nothing(&mut program);
    for (at, step) in program.steps.iter_mut().enumerate() {
        step.line = at as u32 + 1;
    }
    let ends = program.steps.iter().rev().take_while(|step| is_end(step)).count();
    let mut without_ends = program.clone();
    without_ends.steps.truncate(program.steps.len() - ends);
    let run = run_recorded(&without_ends, converted, drivers);
    let waits = run.result.1.iter().any(|at_end| !at_end.waiting.is_empty());
    if ends == 0 || !waits {
        return (without_ends, run);
    }
    let run = run_recorded(&program, converted, drivers);
    (program, run)
}

fn is_end(step: &Step) -> bool {
    match &step.action {
        Action::Exit(_) | Action::Fault(Fault::Kill(_) | Fault::CrashVm(_)) | Action::Advance(_) => true,
        Action::Act(Act { operation, .. }) => matches!(operation, Operation::CloseShare { .. }),
        Action::StartVm(_)
        | Action::StartProcess(_)
        | Action::StartThread(_)
        | Action::Record { .. }
        | Action::Fault(_)
        | Action::Expect(_) => false,
    }
}

/// Runs the recorded order. What it does not meet is no prerequisite: a scenario does not have all of a recording.
fn run_recorded(program: &Program, converted: &Converted, drivers: &Registry) -> RecordedRun {
    let all = prerequisites(converted, program.steps.len());
    let steps: Vec<usize> = (0..program.steps.len()).collect();
    let order = Order { steps: &steps, prerequisites: &all, unmet: Unmet::Ignore };
    let (ended, at_end, taken) = run_steps_in_order(program, drivers, true, order);
    let prerequisites = all.into_iter().filter(|one| !taken.unmet.contains(one)).collect();
    RecordedRun { result: (ended, at_end), prerequisites }
}

/// Returns the calls and waits that were over before a later step of their process.
fn prerequisites(converted: &Converted, steps: usize) -> Vec<Prerequisite> {
    let of_end = |end: &from_trace::CallEnd| {
        let from = converted.origins.partition_point(|origin| *origin <= end.step);
        let (from, call) = (from as u32 + 1, end.call as u32 + 1);
        (end.call < steps).then_some(Prerequisite { process: end.process, from, call, times: end.times })
    };
    converted.ends.iter().filter_map(of_end).collect()
}

/// Returns the program's steps that woke a process. A wake-up while time passes belongs to the step that advances time.
pub(super) fn woken(converted: &Converted) -> Vec<(usize, crate::program::Process)> {
    let Converted { program, origins, wakes, .. } = converted;
    let place_of = |step: usize| {
        let behind = origins.partition_point(|origin| *origin <= step);
        match behind.checked_sub(1).filter(|last| origins[*last] == step) {
            Some(last) => Some(last),
            None => program
                .steps
                .get(behind)
                .filter(|step| matches!(step.action, Action::Advance(_)))
                .map(|_| behind),
        }
    };
    wakes.iter().filter_map(|(step, process)| Some((place_of(*step)?, *process))).collect()
}

/// Returns the program's steps that a run took.
fn taken_steps(taken: &Taken) -> Vec<usize> {
    let step = |taken: &TakenStep| match *taken {
        TakenStep::Step(at) => Some(at),
        TakenStep::Advance(_) => None,
    };
    taken.steps.iter().filter_map(step).collect()
}

struct Explorer<'a> {
    converted: &'a Converted,
    program: &'a Program,
    constraints: &'a Orders,
    prerequisites: Vec<Prerequisite>,
    drivers: &'a Registry,
    as_recorded: (Ended, Option<AtEnd>),
    tried_orders: HashSet<Vec<usize>>,
    orders: u64,
    found: Vec<Found>,
}

impl Explorer<'_> {
    /// Reports a broken invariant or a panic of the recorded order itself.
    fn check_recorded(&mut self) {
        let Some(broken) = failure(&self.as_recorded.0) else { return };
        let kept = [Kept::Broken(FailureMode::of(broken, self.program))];
        self.found.push(Found {
            outcome: Outcome::Broken { what: broken.what.clone() },
            change: Change::None,
            by_name: false,
            orders: 1,
            answered: self.answered(&self.as_recorded.0),
            program: self.program.clone(),
            smallest: reduce(self.program, &kept, self.drivers).ok().map(|smallest| smallest.text),
        });
    }

    fn run(&mut self, order: Vec<usize>, change: Change) {
        if !self.tried_orders.insert(order.clone()) {
            return;
        }
        self.orders += 1;
        let behind = match change {
            Change::Race { first, second } => self.constraints.behind_of((first, second)),
            Change::None | Change::Priorities { .. } | Change::LongerWait => {
                Cow::Borrowed(&self.constraints.behind[..])
            }
        };
        let unmet = Unmet::Postpone { streams: &self.constraints.stream, behind: &behind };
        let run = Order { steps: &order, prerequisites: &self.prerequisites, unmet };
        let (ended, at_end, taken) = run_steps_in_order(self.program, self.drivers, true, run);
        let steps = taken_steps(&taken);
        if steps != order && !self.tried_orders.insert(steps.clone()) {
            return;
        }
        let program = self.taken_program(&taken);
        let by_name = self.is_of_name(&change);
        let change = self.change_of(change, &steps);
        for (outcome, kept) in self.outcomes(&ended, at_end.as_ref()) {
            if let Some(same) = self.found.iter_mut().find(|same| same.outcome.is_like(&outcome)) {
                same.orders += 1;
                continue;
            }
            let smallest =
                kept.and_then(|kept| reduce_order(&program, &kept, &self.prerequisites, self.drivers));
            self.found.push(Found {
                outcome,
                change: self.in_recorded_steps(&change),
                by_name,
                orders: 1,
                answered: self.answered(&ended),
                program: program.clone(),
                smallest,
            });
        }
    }

    /// Whether it opens an object by its name before the share that gives it the name.
    fn is_of_name(&self, change: &Change) -> bool {
        match *change {
            Change::Race { first, second } => self.constraints.name_races.contains(&(first, second)),
            Change::None | Change::Priorities { .. } | Change::LongerWait => false,
        }
    }

    /// Returns the program of the steps that were taken. Time that had to pass is behind all recorded steps by its line.
    fn taken_program(&self, taken: &Taken) -> Program {
        let line = self.program.steps.len() as u32 + 1;
        let step = |taken: &TakenStep| match *taken {
            TakenStep::Step(at) => self.program.steps[at].clone(),
            TakenStep::Advance(nanos) => Step { line, action: Action::Advance(nanos) },
        };
        Program { steps: taken.steps.iter().map(step).collect(), ..self.program.clone() }
    }

    /// Returns how the steps that were taken differ from the recorded order.
    fn change_of(&self, change: Change, steps: &[usize]) -> Change {
        let Change::Race { first, second } = change else { return change };
        let at = |step: usize| steps.iter().position(|taken| *taken == step).unwrap_or(usize::MAX);
        if at(second) < at(first) { change } else { Change::LongerWait }
    }

    /// Converts steps of the program to steps of the recording, from 0.
    fn in_recorded_steps(&self, change: &Change) -> Change {
        let origins = &self.converted.origins;
        match *change {
            Change::Race { first, second } => Change::Race { first: origins[first], second: origins[second] },
            Change::None | Change::Priorities { .. } | Change::LongerWait => change.clone(),
        }
    }

    /// Returns the differences from the recorded order, each with the failure that a smaller program must keep.
    fn outcomes(&self, ended: &Ended, at_end: Option<&AtEnd>) -> Vec<(Outcome, Option<Kept>)> {
        let (recorded, at_recorded_end) = &self.as_recorded;
        if let Some(broken) = failure(ended) {
            let mode_of = |failed: &Failure| FailureMode::of(failed, self.program);
            let mode = mode_of(broken);
            let is_known = failure(recorded).map(mode_of).as_ref() == Some(&mode);
            let what = broken.what.clone();
            return if is_known {
                Vec::new()
            } else {
                vec![(Outcome::Broken { what }, Some(Kept::Broken(mode)))]
            };
        }
        let Some(at_end) = at_end else { return Vec::new() };
        // A recorded order that fails has no end to compare with.
        let none = AtEnd::default();
        let before = at_recorded_end.as_ref().unwrap_or(&none);
        let new = at_end.lasting().filter_map(|one| one.other_than(before, self.program));
        let mut all: Vec<_> = new.map(|one| self.waits(&one)).collect();
        let fences: Vec<_> =
            before.values.iter().filter_map(|value| self.other_value(*value, at_end)).collect();
        if all.is_empty() && !fences.is_empty() {
            all.push((Outcome::OtherValues { fences }, None));
        }
        all
    }

    fn waits(&self, waiting: &Waiting) -> (Outcome, Option<Kept>) {
        let wait = StuckWait::of(waiting, self.program);
        (Outcome::Waits(wait.clone()), Some(Kept::Wait(wait)))
    }

    fn other_value(&self, (fence, before): (Binding, u64), at_end: &AtEnd) -> Option<(String, u64, u64)> {
        let (_, found) = at_end.values.iter().find(|(other, _)| *other == fence)?;
        (*found != before).then(|| (self.program.name(fence).to_owned(), before, *found))
    }

    fn answered(&self, ended: &Ended) -> Option<String> {
        let recorded = &self.converted.program.steps;
        ended.answers.iter().find_map(|(line, found)| {
            let at = line.checked_sub(1)? as usize;
            let Action::Act(act) = &recorded.get(at)?.action else { return None };
            let Expected::Status(expected) = act.expected else { return None };
            let found = found.filter(|found| *found != expected)?;
            let call = script::write_act(&self.converted.program, act);
            let (step, found) = (self.converted.origins[at] + 1, write_status(found));
            Some(format!("#{step} {call}: {found} instead of {}", write_status(expected)))
        })
    }
}
