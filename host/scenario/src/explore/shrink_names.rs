//! The last pass of shrinking: conventional names, the statuses that were observed, and no unused names.

use super::shrink::{ActPosition, Shrinker, act_at};
use crate::program::{Action, Expected, Kind, Program, fence_name};

const PROCESSES: [&str; 4] = ["p", "q", "r", "s"];
const THREADS: [&str; 4] = ["t", "u", "v", "w"];
const VMS: [&str; 2] = ["A", "B"];

/// First names of each kind. Further names are the first one's letter and a number.
const fn names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Adapter => &["L"],
        Kind::Device => &["D", "E"],
        Kind::Context => &["C", "K"],
        Kind::Object => &["F", "G", "H"],
        Kind::KeyedMutex => &["M"],
        Kind::PagingQueue => &["P"],
        Kind::HwQueue => &["Q", "R"],
        Kind::Allocation => &["A", "B"],
        Kind::Resource => &["R", "S"],
        Kind::List => &["L"],
        Kind::Messages => &["M"],
        Kind::Doorbell => &["Z"],
        Kind::Address => &["V"],
        Kind::Share => &["N", "O"],
        Kind::Event => &["e", "f"],
        Kind::Call => &["W", "X", "Y"],
        Kind::Register => &["x", "y", "z"],
    }
}

pub(super) fn finish(shrinker: &mut Shrinker<'_>) {
    fill(shrinker);
    for at in 0..shrinker.best.steps.len() {
        let position = ActPosition::Step(at);
        let unnamed = |act: &crate::program::Act| act.binding.is_some() && act.expected != Expected::Blocks;
        if act_at(&mut shrinker.best, position).is_some_and(|act| unnamed(act)) {
            shrinker.takes_act(position, |act| act.binding = None);
        }
    }
    let candidate = renamed(&shrinker.best);
    shrinker.takes(candidate);
}

fn name(from: &[&str], at: usize) -> String {
    from.get(at).map_or_else(|| format!("{}{at}", from[0]), |name| (*name).into())
}

/// Returns a copy of the program with conventional names.
pub(super) fn renamed(program: &Program) -> Program {
    let mut candidate = program.clone();
    for (at, vm) in candidate.vms.iter_mut().enumerate() {
        *vm = name(&VMS, at);
    }
    let kernel = &mut candidate.setting.kernel;
    let granted = kernel.grants.iter_mut().flat_map(|grant| &mut grant.vms);
    for vm in granted.chain(kernel.vms.iter_mut().map(|vm| &mut vm.name)) {
        if let Some(at) = program.vms.iter().position(|old| old == vm) {
            *vm = name(&VMS, at);
        }
    }
    let mut threads = 0;
    for at in 0..candidate.threads.len() {
        let process = candidate.threads[at].process.index();
        let is_main = candidate.processes[process].main.index() == at;
        candidate.threads[at].name = if is_main {
            name(&PROCESSES, process)
        } else {
            threads += 1;
            name(&THREADS, threads - 1)
        };
    }
    for at in 0..candidate.processes.len() {
        candidate.processes[at].name = name(&PROCESSES, at);
    }
    let kinds: Vec<Kind> = candidate.bindings.iter().map(|binding| binding.kind).collect();
    let of_queue = |at: usize| at > 0 && kinds[at - 1].has_fence();
    for at in 0..kinds.len() {
        let earlier = (0..at).filter(|other| kinds[*other] == kinds[at] && !of_queue(*other)).count();
        candidate.bindings[at].name = match of_queue(at) {
            true => fence_name(&candidate.bindings[at - 1].name),
            false => name(names(kinds[at]), earlier),
        };
    }
    candidate
}

/// Makes the observed results the expected ones: for all calls, or else for those that can be expressed.
fn fill(shrinker: &mut Shrinker<'_>) {
    let mut filled = shrinker.best.clone();
    for at in 0..filled.steps.len() {
        if let Some(expected) = observed(shrinker, at)
            && let Some(act) = act_at(&mut filled, ActPosition::Step(at))
        {
            act.expected = expected;
        }
    }
    if shrinker.takes(filled) {
        return;
    }
    for at in 0..shrinker.best.steps.len() {
        if let Some(expected) = observed(shrinker, at) {
            shrinker.takes_act(ActPosition::Step(at), |act| act.expected = expected);
        }
    }
}

/// Returns the observed result of a call without an expectation.
fn observed(shrinker: &Shrinker<'_>, at: usize) -> Option<Expected> {
    let step = shrinker.best.steps.get(at)?;
    match &step.action {
        Action::Act(act) if act.expected == Expected::Any => {}
        _ => return None,
    }
    let (_, status) = shrinker.ended.answers.iter().find(|(line, _)| *line == step.line)?;
    Some(status.map_or(Expected::Blocks, Expected::Status))
}
