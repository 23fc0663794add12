//! Runs a recording's steps in an order that is not the recorded one.
//!
//! A process of a recording went on because its call was over or its wait had ended. In another order it goes on when
//! the same has happened there, and its steps are postponed until then. What never ends is a hang.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dxgkrnl::Nanos;

use super::calls::event_of;
use super::{AtEnd, Checked, Ended, Run, failed, run_looking};
use crate::choose::Choose;
use crate::program::{Act, Action, Binding, Fault, Operation, Process, Program, Thread};
use crate::world::World;

/// Times that a run lets time pass for its postponed steps, at most.
const ADVANCES_MAX: u32 = 1000;

/// A call that has to be over, or whose wait has to have ended, before its process takes its next step. Calls and steps
/// are named by their lines, which a program with fewer steps keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prerequisite {
    pub process: Process,
    /// The first line of the process that depends on it.
    pub from: u32,
    /// The call's line.
    pub call: u32,
    /// For a call with an event: number of times that the event has to be set.
    pub times: u64,
}

/// What becomes of a step whose prerequisites are not met.
#[derive(Clone, Copy, Debug)]
pub enum Unmet<'o> {
    /// It is postponed, with its stream and all that depends on it: the stream of each step, and the steps that each
    /// depends on.
    Postpone { streams: &'o [usize], behind: &'o [Vec<usize>] },
    /// The run fails.
    Fail,
    /// The step is taken. The prerequisite is reported, because this program does not meet what the recording met.
    Ignore,
}

/// An order of a program's steps.
#[derive(Clone, Copy, Debug)]
pub struct Order<'o> {
    pub steps: &'o [usize],
    pub prerequisites: &'o [Prerequisite],
    pub unmet: Unmet<'o>,
}

/// What a run in an order did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    pub steps: Vec<TakenStep>,
    /// Prerequisites that were not met: of [`Unmet::Ignore`].
    pub unmet: Vec<Prerequisite>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenStep {
    /// The index of a step of the program.
    Step(usize),
    /// Time passed, because nothing else could happen.
    Advance(Nanos),
}

/// Runs a program's steps in an order, and adds them to `taken`. The state is that before the processes were ended.
pub fn run_in_order<W: World>(
    program: &Program,
    world: &mut W,
    choose: &mut dyn Choose,
    order: Order<'_>,
    taken: &mut Taken,
) -> (Ended, Option<AtEnd>) {
    let mut at_end = None;
    let ended = run_looking(program, world, choose, Some((order, taken)), &mut |run| {
        at_end = Some(run.at_end()?);
        Ok(())
    });
    (ended, at_end)
}

/// The state of a run in an order.
struct State<'o> {
    order: Order<'o>,
    /// Step of each line that a prerequisite names.
    lines: BTreeMap<u32, usize>,
    /// By process: prerequisites that are not known to be met, by line.
    unmet: Vec<VecDeque<Prerequisite>>,
    done: Vec<bool>,
    /// By stream.
    postponed: BTreeMap<usize, VecDeque<usize>>,
    /// Number of times that each event was set.
    sets: BTreeMap<Binding, u64>,
    /// Lines whose call was refused; answers up to `answers_read` are known.
    refused: BTreeSet<u32>,
    answers_read: usize,
}

impl<'o> State<'o> {
    fn new(program: &Program, order: Order<'o>) -> State<'o> {
        let mut unmet = vec![VecDeque::new(); program.processes.len()];
        let mut sorted = order.prerequisites.to_vec();
        sorted.sort_by_key(|one| one.from);
        sorted.iter().for_each(|one| unmet[one.process.index()].push_back(*one));
        let named: BTreeSet<u32> = sorted.iter().map(|one| one.call).collect();
        let lines = program.steps.iter().enumerate().map(|(at, step)| (step.line, at));
        State {
            order,
            lines: lines.filter(|(line, _)| named.contains(line)).collect(),
            unmet,
            done: vec![false; program.steps.len()],
            postponed: BTreeMap::new(),
            sets: BTreeMap::new(),
            refused: BTreeSet::new(),
            answers_read: 0,
        }
    }
}

impl<'a, W: World> Run<'a, W> {
    /// Runs the steps in this order.
    pub(super) fn run_ordered(
        &mut self,
        order: Order<'_>,
        choose: &mut dyn Choose,
        taken: &mut Taken,
    ) -> Checked {
        let mut state = State::new(self.program, order);
        for at in order.steps {
            self.take_or_postpone(*at, &mut state, choose, taken)?;
            self.take_postponed(&mut state, choose, taken)?;
        }
        for _ in 0..ADVANCES_MAX {
            if state.postponed.is_empty() {
                break;
            }
            let Some(nanos) = self.time_until_more_ends() else { break };
            self.world.advance(nanos)?;
            self.run_to_idle(choose)?;
            self.check_violations()?;
            taken.steps.push(TakenStep::Advance(nanos));
            self.take_postponed(&mut state, choose, taken)?;
        }
        Ok(())
    }

    fn take_or_postpone(
        &mut self,
        at: usize,
        state: &mut State<'_>,
        choose: &mut dyn Choose,
        taken: &mut Taken,
    ) -> Checked {
        match state.order.unmet {
            Unmet::Postpone { streams, .. } => {
                let stream = streams[at];
                if state.postponed.contains_key(&stream) || !self.is_able(at, state)? {
                    state.postponed.entry(stream).or_default().push_back(at);
                    return Ok(());
                }
            }
            Unmet::Fail => {
                if !self.is_able(at, state)? {
                    return failed("a process goes on before its call is over");
                }
            }
            Unmet::Ignore => {
                while let Some(unmet) = self.first_unmet(at, state)? {
                    taken.unmet.push(unmet);
                    state.unmet[unmet.process.index()].pop_front();
                }
            }
        }
        self.take(at, state, choose, taken)
    }

    fn take(
        &mut self,
        at: usize,
        state: &mut State<'_>,
        choose: &mut dyn Choose,
        taken: &mut Taken,
    ) -> Checked {
        let step = &self.program.steps[at];
        state.done[at] = true;
        taken.steps.push(TakenStep::Step(at));
        self.numbered_step(step, choose)
    }

    /// Takes postponed steps until none can be taken.
    fn take_postponed(
        &mut self,
        state: &mut State<'_>,
        choose: &mut dyn Choose,
        taken: &mut Taken,
    ) -> Checked {
        loop {
            let mut next = None;
            for (stream, at) in heads(state) {
                if self.is_able(at, state)? {
                    next = Some((stream, at));
                    break;
                }
            }
            let Some((stream, at)) = next else { return Ok(()) };
            if let Some(steps) = state.postponed.get_mut(&stream) {
                steps.pop_front();
                if steps.is_empty() {
                    state.postponed.remove(&stream);
                }
            }
            self.take(at, state, choose, taken)?;
        }
    }

    /// Whether all that a step depends on has happened.
    fn is_able(&mut self, at: usize, state: &mut State<'_>) -> Checked<bool> {
        if let Unmet::Postpone { behind, .. } = state.order.unmet
            && !behind[at].iter().all(|before| state.done[*before])
        {
            return Ok(false);
        }
        if let Action::Act(act) = &self.program.steps[at].action
            && self.busy[act.thread.index()].is_some()
        {
            return Ok(false);
        }
        Ok(self.first_unmet(at, state)?.is_none())
    }

    /// Returns the first prerequisite of a step that is not met.
    fn first_unmet(&mut self, at: usize, state: &mut State<'_>) -> Checked<Option<Prerequisite>> {
        let step = &self.program.steps[at];
        for process in self.acting(&step.action) {
            while let Some(first) = state.unmet[process.index()].front().copied() {
                if first.from > step.line {
                    break;
                }
                if !self.is_met(first, state)? {
                    return Ok(Some(first));
                }
                state.unmet[process.index()].pop_front();
            }
        }
        Ok(None)
    }

    /// Returns the processes that take this step themselves, or end with it.
    fn acting(&self, action: &Action) -> Vec<Process> {
        match action {
            Action::StartThread(thread) => vec![self.program.process_of(*thread)],
            Action::Act(act) => vec![self.program.process_of(act.thread)],
            Action::Exit(process) | Action::Fault(Fault::Kill(process)) => vec![*process],
            Action::Fault(Fault::CrashVm(vm)) => {
                let of_vm = (0..).zip(&self.program.processes).filter(|(_, info)| info.vm == Some(*vm));
                of_vm.map(|(at, _)| Process(at)).collect()
            }
            Action::StartVm(_)
            | Action::StartProcess(_)
            | Action::Record { .. }
            | Action::Advance(_)
            | Action::Expect(_)
            | Action::Fault(_) => Vec::new(),
        }
    }

    fn is_met(&mut self, one: Prerequisite, state: &mut State<'_>) -> Checked<bool> {
        let new = self.answers.get(state.answers_read..).unwrap_or_default();
        let refused = new.iter().filter(|(_, status)| status.is_some_and(|status| !status.is_success()));
        state.refused.extend(refused.map(|(line, _)| *line));
        state.answers_read = self.answers.len();
        // A smaller program may lack the call.
        let Some(at) = state.lines.get(&one.call).copied() else { return Ok(true) };
        let program = self.program;
        let Action::Act(act) = &program.steps[at].action else { return Ok(true) };
        if state.refused.contains(&one.call) {
            return Ok(true);
        }
        let Some(event) = event_of_act(act) else {
            return Ok(!self.busy.iter().flatten().any(|busy| std::ptr::eq(*busy, act)));
        };
        let new = self.world.take_event(program.process_of(act.thread), event.0)?;
        let sets = state.sets.entry(event).or_default();
        *sets += new;
        Ok(*sets >= one.times)
    }

    /// Returns the time until a pending wait may end; `None` if time ends none.
    fn time_until_more_ends(&mut self) -> Option<Nanos> {
        let next = self.world.next_deadline()?;
        let ends = self.waiting().iter().any(|waiting| waiting.ends_by_itself());
        let is_in_a_call = (0..self.busy.len()).any(|at| self.waits_for_an_answer(Thread(at as u32)));
        (ends || is_in_a_call).then(|| next.max(1))
    }

    /// Whether a thread is in a call that is no acquire: `why` does not know it.
    fn waits_for_an_answer(&self, thread: Thread) -> bool {
        self.busy[thread.index()].is_some_and(|act| match &act.operation {
            Operation::Call(call) => !matches!(call, d3dkmt::CallOf::AcquireKeyedMutex { .. }),
            _ => true,
        })
    }
}

/// The first postponed step of each stream.
fn heads(state: &State<'_>) -> Vec<(usize, usize)> {
    state.postponed.iter().filter_map(|(stream, steps)| Some((*stream, *steps.front()?))).collect()
}

/// Returns the event of an act's call.
fn event_of_act(act: &Act) -> Option<Binding> {
    match &act.operation {
        Operation::Call(call) => event_of(call),
        _ => None,
    }
}
