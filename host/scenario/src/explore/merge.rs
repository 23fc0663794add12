//! Shrinking: merges two threads, processes or handles into one.

use super::parts;
use super::shrink::Shrinker;
use crate::program::{Act, Action, Binding, Process, Program, Step, Thread};

/// Moves the steps of a thread to an earlier thread of its process, except steps while that is in a call.
pub(super) fn threads(shrinker: &mut Shrinker<'_>) -> bool {
    let mut shrunk = false;
    let mut at = shrinker.best.threads.len();
    while at > 0 {
        at -= 1;
        let Some(process) = shrinker.best.threads.get(at).map(|thread| thread.process) else { continue };
        let Some(earlier) = (0..at).find(|other| shrinker.best.threads[*other].process == process) else {
            continue;
        };
        let (thread, earlier) = (Thread(at as u32), Thread(earlier as u32));
        if has_column(&shrinker.best, thread) {
            continue;
        }
        let mut candidate = shrinker.best.clone();
        candidate.steps.retain(|step| step.action != Action::StartThread(thread));
        acts(&mut candidate, &mut |act| {
            if act.thread == thread {
                act.thread = earlier;
            }
        });
        shrunk |= shrinker.takes(candidate);
    }
    shrunk
}

/// Moves the steps of a process to an earlier process: to its first thread, or to a new one.
pub(super) fn processes(shrinker: &mut Shrinker<'_>) -> bool {
    let mut shrunk = false;
    let mut at = shrinker.best.processes.len();
    while at > 0 {
        at -= 1;
        let Some(main) = shrinker.best.processes.get(at).map(|process| process.main) else { continue };
        let process = Process(at as u32);
        if has_column(&shrinker.best, main) {
            continue;
        }
        let earlier = (0..at as u32).map(Process);
        for (earlier, is_thread) in earlier.flat_map(|earlier| [(earlier, false), (earlier, true)]) {
            let mut candidate = shrinker.best.clone();
            for step in &mut candidate.steps {
                if is_thread && step.action == Action::StartProcess(process) {
                    step.action = Action::StartThread(main);
                }
            }
            candidate.steps.retain(|step| step.action != Action::StartProcess(process));
            for thread in candidate.threads.iter_mut().filter(|thread| thread.process == process) {
                thread.process = earlier;
            }
            let other = candidate.processes[earlier.index()].main;
            acts(&mut candidate, &mut |act| {
                if act.thread == main && !is_thread {
                    act.thread = other;
                }
            });
            if shrinker.takes(candidate) {
                shrunk = true;
                break;
            }
        }
    }
    shrunk
}

/// Replaces a name by an earlier one of its kind in its process, and removes its declaration. The name of another process
/// would make another process the one that acts.
pub(super) fn bindings(shrinker: &mut Shrinker<'_>) -> bool {
    let mut shrunk = false;
    let mut at = shrinker.best.bindings.len();
    while at > 0 {
        at -= 1;
        let Some(kind) = shrinker.best.bindings.get(at).map(|binding| binding.kind) else { continue };
        let later = Binding(at as u32);
        let is_like = |other: &usize| {
            let of_process = shrinker.best.owner(Binding(*other as u32)) == shrinker.best.owner(later);
            of_process && shrinker.best.bindings[*other].kind == kind
        };
        let alike: Vec<usize> = (0..at).filter(is_like).collect();
        for earlier in alike {
            let mut candidate = shrinker.best.clone();
            candidate.steps.retain(|step| !declares(step, later));
            acts(&mut candidate, &mut |act| {
                parts::bindings(&mut act.operation, &mut |binding| {
                    if *binding == later {
                        *binding = Binding(earlier as u32);
                    }
                });
            });
            if shrinker.takes(candidate) {
                shrunk = true;
                break;
            }
        }
    }
    shrunk
}

fn declares(step: &Step, binding: Binding) -> bool {
    matches!(&step.action, Action::Act(act) if act.binding == Some(binding))
}

fn has_column(program: &Program, thread: Thread) -> bool {
    let mut columns = program.race.iter().flat_map(|race| &race.columns);
    columns.any(|column| column.thread == thread)
}

/// Visits every act of the program, including those of a race.
fn acts(program: &mut Program, each: &mut dyn FnMut(&mut Act)) {
    for step in &mut program.steps {
        if let Action::Act(act) = &mut step.action {
            each(act);
        }
    }
    let columns = program.race.iter_mut().flat_map(|race| &mut race.columns);
    columns.flat_map(|column| &mut column.steps).for_each(|(_, act)| each(act));
}
