//! Adds a crash to a file's scenario: some process is killed at some step, and from there on only the checkers judge.

use super::repair::repair;
use crate::choose::Random;
use crate::program::{Act, Action, Expected, Fault, Operation, Process, Program, Race, Step};

/// Returns the program with a crash that the seed draws: a process is killed before one of its steps, or while its
/// stream holds one of its calls. Later expectations and the process's later steps are dropped. The other processes
/// continue, and at the end nothing may be left. The steps of a race get an order that the seed draws, so that a crash
/// can be between any two. Returns `None` if no process runs.
pub fn crashes(program: &Program, seed: u64) -> Option<Program> {
    let mut random = Random::new(Random::new(seed ^ 0x6372_6173_6865_7321).number());
    let mut changed = program.clone();
    if let Some(race) = changed.race.take() {
        flatten(race, &mut changed.steps, &mut random);
    }
    let starts = |step: &Step| matches!(step.action, Action::StartProcess(_));
    let first = changed.steps.iter().position(starts)? + 1;
    let at = first + random.below((changed.steps.len() - first + 1) as u64) as usize;
    let alive = alive(&changed.steps[..at]);
    let victim = *random.pick(&alive)?;
    let rest = changed.steps.split_off(at);
    unblock(&mut changed.steps, &rest);
    let kill = |process| Step { line: 0, action: Action::Fault(Fault::Kill(process)) };
    let mut rest = rest.into_iter();
    if random.one_in(2)
        && let Some(next) = rest.next()
    {
        changed.steps.push(Step { line: 0, action: Action::Fault(Fault::Hold(victim)) });
        changed.steps.extend(free(next));
    }
    changed.steps.push(kill(victim));
    changed.steps.extend(rest.filter_map(free));
    Some(repair(changed))
}

/// Appends the steps of a race one after another. Calls may sleep there, so their results are not checked.
fn flatten(race: Race, steps: &mut Vec<Step>, random: &mut Random) {
    let mut columns: Vec<_> = race.columns.into_iter().map(|column| column.steps.into_iter()).collect();
    while !columns.is_empty() {
        let at = random.below(columns.len() as u64) as usize;
        match columns[at].next() {
            Some((line, act)) => steps.extend(free(Step { line, action: Action::Act(act) })),
            None => drop(columns.remove(at)),
        }
    }
}

fn alive(steps: &[Step]) -> Vec<Process> {
    let mut alive = Vec::new();
    for step in steps {
        match &step.action {
            Action::StartProcess(process) => alive.push(*process),
            Action::Exit(ended) | Action::Fault(Fault::Kill(ended)) => {
                alive.retain(|process| process != ended);
            }
            Action::Fault(Fault::RestartDaemon) => alive.clear(),
            Action::StartVm(_)
            | Action::StartThread(_)
            | Action::Act(_)
            | Action::Record { .. }
            | Action::Advance(_)
            | Action::Fault(_)
            | Action::Expect(_) => {}
        }
    }
    alive
}

/// Replaces `blocks` by `anything` for a thread with later steps. The crash drops the expectations that its call
/// returned, and without them the thread would count as still in the call.
fn unblock(steps: &mut [Step], rest: &[Step]) {
    let goes_on =
        |thread| rest.iter().any(|step| matches!(&step.action, Action::Act(act) if act.thread == thread));
    for step in steps {
        match &mut step.action {
            Action::Act(act) if act.expected == Expected::Blocks && goes_on(act.thread) => {
                act.expected = Expected::Any;
            }
            _ => {}
        }
    }
}

/// Returns the step without its expectations; `None` if it was only an expectation.
fn free(mut step: Step) -> Option<Step> {
    match &mut step.action {
        Action::Expect(_) => return None,
        // Memory that the CPU stores into may be of an allocation that could not be opened.
        Action::Act(Act { operation: Operation::Store { .. }, .. }) => return None,
        Action::Act(Act { operation, expected, .. }) if operation.is_call() => *expected = Expected::Any,
        Action::StartVm(_)
        | Action::StartProcess(_)
        | Action::StartThread(_)
        | Action::Act(_)
        | Action::Record { .. }
        | Action::Advance(_)
        | Action::Exit(_)
        | Action::Fault(_) => {}
    }
    Some(step)
}
