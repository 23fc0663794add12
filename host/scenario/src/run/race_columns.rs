//! Races: runs columns concurrently, and checks their outcome.

use d3dkmt::NtStatus;

use crate::choose::Choose;
use crate::program::{Act, Backend, Column, HandleRef, Outcome, Term};
use crate::script;
use crate::world::World;

use super::{Checked, Run, failed};

impl<'a, W: World> Run<'a, W> {
    /// Runs the columns of a race, one choice after another.
    pub(super) fn race(&mut self, columns: &'a [Column], choose: &mut dyn Choose) -> Checked {
        let mut next = vec![0; columns.len()];
        let live = matches!(self.world.backend(), Backend::Local | Backend::Vm);
        loop {
            let ready = |run: &Self, at: usize, next: &[usize]| {
                next[at] < columns[at].steps.len() && run.busy[columns[at].thread.index()].is_none()
            };
            let able: Vec<usize> = (0..columns.len()).filter(|at| ready(self, *at, &next)).collect();
            let moves = self.world.moves();
            if able.is_empty() && moves == 0 {
                break;
            }
            if live {
                // All columns at once: the machine decides the order.
                for at in able {
                    let (line, act) = &columns[at].steps[next[at]];
                    self.line = *line;
                    next[at] += 1;
                    self.begin(act)?;
                }
                self.run_to_idle(choose)?;
            } else {
                let choice = self.choose(choose, able.len() + moves);
                match able.get(choice) {
                    Some(at) => {
                        let (line, act) = &columns[*at].steps[next[*at]];
                        self.line = *line;
                        next[*at] += 1;
                        self.log_line(|program| {
                            let thread = &program.threads[act.thread.index()].name;
                            format!("> {thread}  {}", script::write_act(program, act))
                        });
                        self.begin(act)?;
                    }
                    None => self.world.make_move(choice - able.len())?,
                }
                self.world.rest()?;
                // The moves of a call that follows are alternatives of this race too.
                while self.collect_once()? {
                    self.world.rest()?;
                }
            }
            self.check_violations()?;
        }
        Ok(())
    }

    /// Checks a call when it returns, if it is of the race.
    pub(super) fn judge_of_race(&mut self, act: &Act, status: NtStatus) -> Checked {
        let Some(race) = &self.program.race else { return Ok(()) };
        let mut steps = race.columns.iter().flat_map(|column| &column.steps);
        match steps.find(|(_, step)| std::ptr::eq(step, act)) {
            Some((line, _)) => {
                self.line = *line;
                self.judge(act, Some(status))
            }
            None => Ok(()),
        }
    }

    /// Returns which allowed outcomes hold: at least one, unless the file allows any.
    pub(super) fn outcomes(&mut self, allowed: &[Outcome], forbidden: &[Outcome]) -> Checked<Vec<usize>> {
        for outcome in forbidden {
            if self.holds(outcome)? {
                self.line = outcome.line;
                return failed(format!(
                    "the race ended in the forbidden outcome {}",
                    script::write_outcome(self.program, outcome)
                ));
            }
        }
        let mut held = Vec::new();
        for (at, outcome) in allowed.iter().enumerate() {
            if self.holds(outcome)? {
                held.push(at);
            }
        }
        if allowed.is_empty() || !held.is_empty() {
            return Ok(held);
        }
        let ended = self.ended_in(&allowed[0])?;
        failed(format!("the race ended in {ended}, which is not allowed"))
    }

    pub(super) fn holds(&mut self, outcome: &Outcome) -> Checked<bool> {
        for term in &outcome.terms {
            let holds = match *term {
                Term::Register { register, value } => self.bound[register.index()].value == Some(value),
                Term::Asleep { call, asleep: true } => self.is_under_way(call),
                Term::Asleep { call, asleep: false } => self.bound[call.index()].answer.is_some(),
                Term::Status { call, status } => self.bound[call.index()].answer == Some(status),
                Term::Value { object, value } => {
                    let line = std::mem::replace(&mut self.line, outcome.line);
                    let found = self.memory_value(self.program.owner(object), HandleRef::Bound(object))?;
                    self.line = line;
                    found == Some(value)
                }
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the actual outcome in the terms of the file, with the calls that never started.
    pub(super) fn ended_in(&mut self, like: &Outcome) -> Checked<String> {
        let (mut terms, mut never) = (Vec::new(), Vec::new());
        for term in &like.terms {
            let found = match *term {
                Term::Register { register, .. } => {
                    let value = self.bound[register.index()].value;
                    value.map(|value| Term::Register { register, value }).ok_or(register)
                }
                Term::Asleep { call, .. } | Term::Status { call, .. } => {
                    match self.bound[call.index()].answer {
                        None if self.is_under_way(call) => Ok(Term::Asleep { call, asleep: true }),
                        None => Err(call),
                        Some(status) => Ok(Term::Status { call, status }),
                    }
                }
                Term::Value { object, .. } => {
                    let handle = self.bound[object.index()].handle;
                    let value = self.world.value(self.program.owner(object), handle)?.unwrap_or_default();
                    Ok(Term::Value { object, value })
                }
            };
            match found {
                Ok(term) => terms.push(term),
                Err(binding) => never.push(format!("{} never started", self.program.name(binding))),
            }
        }
        let ended =
            (!terms.is_empty()).then(|| script::write_outcome(self.program, &Outcome { line: 0, terms }));
        Ok(ended.into_iter().chain(never).collect::<Vec<_>>().join(" and "))
    }
}
