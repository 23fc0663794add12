//! Shrinking: finds the smallest program that still fails in the same way.
//!
//! A candidate is the program with something removed or made smaller, then repaired, printed and read. So every result
//! is a scenario file, and one that fails. Passes go from big to small - processes, ranges of steps, single steps,
//! items, settings, values, names - until none succeeds. Every accepted candidate is smaller, and nothing is random:
//! the same program shrinks in the same way everywhere.

use std::collections::HashSet;

use super::merge;
use super::parts;
use super::repair::repair;
use super::shrink_names;
use super::shrink_values;
use crate::program::{Act, Action, AdapterNumber, Expected, Operation, Program};
use crate::run::Ended;
use crate::script::{parse, print};

/// Runs a program, and returns its result if it failed in the wanted way.
pub type StillFails<'a> = &'a mut dyn FnMut(&Program) -> Option<Ended>;

/// Shrinks a failing program. A program that does not fail after printing and reading is returned unchanged.
pub fn shrink(program: &Program, still_fails: StillFails<'_>) -> Program {
    let Some(first) = read_back(program) else { return program.clone() };
    let Some(ended) = still_fails(&first) else { return program.clone() };
    let mut shrinker = Shrinker { best: first, ended, tried: HashSet::new(), still_fails };
    shrinker.free();
    loop {
        let mut shrunk = shrinker.head();
        shrunk |= shrinker.actors();
        shrunk |= shrinker.stretches();
        shrunk |= shrinker.items();
        shrunk |= merge::threads(&mut shrinker);
        shrunk |= merge::processes(&mut shrinker);
        shrunk |= merge::bindings(&mut shrinker);
        shrunk |= shrink_values::settings(&mut shrinker);
        shrunk |= shrink_values::values(&mut shrinker);
        if !shrunk {
            break;
        }
    }
    shrink_names::finish(&mut shrinker);
    shrinker.best
}

/// Resets the engines to their defaults.
fn plain_engines(program: &mut Program) {
    for adapter in &mut program.setting.kernel.adapters {
        adapter.nodes = dxgkrnl::AdapterConfig::default().nodes;
    }
}

/// Resets to one default adapter, which all devices use.
fn one_plain_adapter(program: &mut Program) {
    program.setting.kernel.adapters = dxgkrnl::Config::default().adapters;
    for step in &mut program.steps {
        if let Action::Act(Act { operation: Operation::Device { adapter }, .. }) = &mut step.action {
            *adapter = AdapterNumber(0);
        }
    }
}

/// Returns the program as parsed from its own text.
pub(super) fn read_back(program: &Program) -> Option<Program> {
    parse(&print(program)).ok()?.pop()
}

/// The smallest program so far, and the test for candidates.
pub(super) struct Shrinker<'a> {
    pub best: Program,
    /// Result of its run.
    pub ended: Ended,
    /// Texts that were tried: passes repeat, but most of their candidates do not.
    tried: HashSet<String>,
    still_fails: StillFails<'a>,
}

impl Shrinker<'_> {
    /// Accepts a candidate if it differs and still fails.
    pub fn takes(&mut self, candidate: Program) -> bool {
        let text = print(&repair(candidate));
        if !self.tried.insert(text.clone()) {
            return false;
        }
        let Some(read) = parse(&text).ok().and_then(|mut programs| programs.pop()) else { return false };
        let Some(ended) = (self.still_fails)(&read) else { return false };
        (self.best, self.ended) = (read, ended);
        true
    }

    /// Changes one act in a candidate.
    pub fn takes_act(&mut self, at: ActPosition, change: impl FnOnce(&mut Act)) -> bool {
        let mut candidate = self.best.clone();
        let Some(act) = act_at(&mut candidate, at) else { return false };
        change(act);
        self.takes(candidate)
    }

    /// Returns the positions of all acts.
    pub fn act_positions(&self) -> Vec<ActPosition> {
        let is_act = |action: &Action| matches!(action, Action::Act(_));
        let steps = self.best.steps.iter().enumerate().filter(|(_, step)| is_act(&step.action));
        let mut positions: Vec<ActPosition> = steps.map(|(at, _)| ActPosition::Step(at)).collect();
        for (column, of_race) in self.best.race.iter().flat_map(|race| race.columns.iter().enumerate()) {
            positions.extend((0..of_race.steps.len()).map(|row| ActPosition::Race { column, row }));
        }
        positions
    }

    /// Removes the expectations that are not the failure.
    fn free(&mut self) {
        let mut candidate = self.best.clone();
        candidate.steps.retain(|step| !matches!(step.action, Action::Expect(_)));
        for step in &mut candidate.steps {
            if let Action::Act(act) = &mut step.action {
                free(act);
            }
        }
        let race = candidate.race.iter_mut().flat_map(|race| &mut race.columns);
        race.flat_map(|column| &mut column.steps).for_each(|(_, act)| free(act));
        if self.takes(candidate) {
            return;
        }
        for position in self.act_positions() {
            self.takes_act(position, free);
        }
    }

    /// Simplifies the head of the file: description, hardware, daemon.
    fn head(&mut self) -> bool {
        let mut shrunk = false;
        let changes: [fn(&mut Program); 12] = [
            |program| program.covers.clear(),
            |program| program.tags.clear(),
            |program| program.not_on.clear(),
            |program| program.setting.kernel.policy = Default::default(),
            |program| program.setting.kernel.tdr = Default::default(),
            |program| program.setting.kernel.features = dxgkrnl::Config::default().features,
            |program| program.setting.kernel.grants.clear(),
            |program| program.setting.kernel.vms.clear(),
            |program| program.setting.async_submission = false,
            |program| program.setting.kernel.adapters.truncate(1),
            plain_engines,
            one_plain_adapter,
        ];
        for change in changes {
            let mut candidate = self.best.clone();
            change(&mut candidate);
            shrunk |= candidate != self.best && self.takes(candidate);
        }
        shrunk | self.grants()
    }

    /// Removes a grant, or a VM of one.
    fn grants(&mut self) -> bool {
        let mut shrunk = false;
        for at in (0..self.best.setting.kernel.grants.len()).rev() {
            let mut candidate = self.best.clone();
            candidate.setting.kernel.grants.remove(at);
            if self.takes(candidate) {
                shrunk = true;
                continue;
            }
            for vm in (0..self.best.setting.kernel.grants[at].vms.len()).rev() {
                let mut candidate = self.best.clone();
                candidate.setting.kernel.grants[at].vms.remove(vm);
                shrunk |= self.takes(candidate);
            }
        }
        shrunk
    }

    /// Removes a VM, a process or a thread with all its steps.
    fn actors(&mut self) -> bool {
        let mut shrunk = false;
        let mut at = 0;
        while at < self.best.steps.len() {
            let is_actor = matches!(
                self.best.steps[at].action,
                Action::StartVm(_) | Action::StartProcess(_) | Action::StartThread(_)
            );
            if is_actor && self.takes_without(at, 1) {
                shrunk = true;
            } else {
                at += 1;
            }
        }
        shrunk
    }

    fn takes_without(&mut self, from: usize, count: usize) -> bool {
        let mut candidate = self.best.clone();
        let end = (from + count).min(candidate.steps.len());
        candidate.steps.drain(from..end);
        self.takes(candidate)
    }

    /// Removes ranges of steps: halves, quarters, and so on to single steps. It works from the end, because steps after
    /// a failure are removed most easily.
    fn stretches(&mut self) -> bool {
        let mut shrunk = false;
        let mut length = self.best.steps.len().div_ceil(2).max(1);
        loop {
            let mut end = self.best.steps.len();
            while end > 0 {
                let from = end.saturating_sub(length);
                shrunk |= self.takes_without(from, end - from);
                end = from.min(self.best.steps.len());
            }
            if length == 1 {
                return shrunk;
            }
            length = length.div_ceil(2);
        }
    }

    /// Removes an item of a list, or a step of a race.
    fn items(&mut self) -> bool {
        let mut shrunk = false;
        for position in self.act_positions().into_iter().rev() {
            if let ActPosition::Race { column, row } = position {
                let mut candidate = self.best.clone();
                if let Some(race) = &mut candidate.race {
                    race.columns[column].steps.remove(row);
                }
                if self.takes(candidate) {
                    shrunk = true;
                    continue;
                }
            }
            let Some(act) = act_at(&mut self.best, position) else { continue };
            for item in (0..parts::item_count(&mut act.operation)).rev() {
                let without = |act: &mut Act| parts::retain_items(&mut act.operation, &mut |at| at != item);
                shrunk |= self.takes_act(position, without);
            }
        }
        shrunk
    }
}

/// Position of an act.
#[derive(Clone, Copy, Debug)]
pub(super) enum ActPosition {
    Step(usize),
    Race { column: usize, row: usize },
}

pub(super) fn act_at(program: &mut Program, position: ActPosition) -> Option<&mut Act> {
    match position {
        ActPosition::Step(at) => match program.steps.get_mut(at).map(|step| &mut step.action) {
            Some(Action::Act(act)) => Some(act),
            _ => None,
        },
        ActPosition::Race { column, row } => {
            let column = program.race.as_mut()?.columns.get_mut(column)?;
            column.steps.get_mut(row).map(|(_, act)| act)
        }
    }
}

fn free(act: &mut Act) {
    if act.operation.is_call() {
        act.expected = Expected::Any;
    }
}
