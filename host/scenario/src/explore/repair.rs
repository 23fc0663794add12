//! Repairs a program from which parts were removed: steps that depend on them are removed too.
//!
//! The result obeys the language's rules: names are declared before use, ended or frozen processes take no steps, and
//! only a frozen process is thawed.

use super::parts;
use crate::program::{
    Act, Action, Binding, Expectation, Fault, HandleRef, Outcome, Piece, Process, Program, Step, Thread,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Unborn,
    Alive,
    Frozen,
    Ended,
}

/// State while the steps are checked in order.
struct Validator<'a> {
    program: &'a mut Program,
    vms: Vec<bool>,
    paused: Vec<bool>,
    processes: Vec<Life>,
    held: Vec<bool>,
    threads: Vec<bool>,
    bindings: Vec<bool>,
}

/// Returns the program without steps whose prerequisites are gone.
pub(super) fn repair(mut program: Program) -> Program {
    let steps = std::mem::take(&mut program.steps);
    let race = program.race.take();
    let mut sieve = Validator {
        vms: vec![false; program.vms.len()],
        paused: vec![false; program.vms.len()],
        processes: vec![Life::Unborn; program.processes.len()],
        held: vec![false; program.processes.len()],
        threads: vec![false; program.threads.len()],
        bindings: vec![false; program.bindings.len()],
        program: &mut program,
    };
    let mut kept = Vec::new();
    for Step { line, mut action } in steps {
        if sieve.keeps(&mut action) {
            kept.push(Step { line, action });
        }
    }
    let race = race.map(|mut race| {
        race.columns.retain(|column| sieve.able(column.thread));
        for column in &mut race.columns {
            column.steps.retain_mut(|(_, act)| sieve.keeps_act(act));
        }
        race.allowed.retain(|outcome| sieve.knows_all(outcome));
        race.forbidden.retain(|outcome| sieve.knows_all(outcome));
        race
    });
    program.steps = kept;
    program.race = race;
    program
}

impl Validator<'_> {
    fn life(&self, process: Process) -> Life {
        self.processes[process.index()]
    }

    fn is_alive(&self, process: Process) -> bool {
        matches!(self.life(process), Life::Alive | Life::Frozen)
    }

    fn able(&self, thread: Thread) -> bool {
        let process = self.program.process_of(thread);
        self.threads[thread.index()] && self.life(process) == Life::Alive && self.runs(process)
    }

    /// Whether the VM of a process is not paused.
    fn runs(&self, process: Process) -> bool {
        self.program.processes[process.index()].vm.is_none_or(|vm| !self.paused[vm.index()])
    }

    fn knows(&self, binding: Binding) -> bool {
        self.bindings[binding.index()]
    }

    fn becomes(&mut self, process: Process, from: &[Life], to: Life) -> bool {
        let is_so = from.contains(&self.life(process));
        if is_so {
            self.processes[process.index()] = to;
        }
        is_so
    }

    fn keeps(&mut self, action: &mut Action) -> bool {
        match action {
            Action::StartVm(vm) => {
                self.vms[vm.index()] = true;
                true
            }
            Action::StartProcess(process) => {
                let info = &mut self.program.processes[process.index()];
                info.vm = info.vm.filter(|vm| self.vms[vm.index()]);
                self.threads[info.main.index()] = true;
                self.processes[process.index()] = Life::Alive;
                true
            }
            Action::StartThread(thread) => {
                let starts = self.is_alive(self.program.process_of(*thread));
                self.threads[thread.index()] = starts;
                starts
            }
            Action::Act(act) => self.keeps_act(act),
            Action::Record { list, command } => {
                let is_known = |name: &HandleRef| match name {
                    HandleRef::Bound(binding) => self.knows(*binding),
                    HandleRef::Raw(_) => true,
                };
                self.knows(*list) && command.names.iter().all(is_known)
            }
            Action::Advance(_) => true,
            Action::Exit(process) => {
                self.runs(*process) && self.becomes(*process, &[Life::Alive], Life::Ended)
            }
            Action::Fault(fault) => self.keeps_fault(fault),
            Action::Expect(expectation) => self.keeps_expectation(expectation),
        }
    }

    fn keeps_act(&mut self, act: &mut Act) -> bool {
        if !self.able(act.thread) || !parts::retain(&mut act.operation, &|binding| self.knows(binding)) {
            return false;
        }
        let needs_name = act.operation.needs_name();
        if let Some(binding) = act.binding {
            self.bindings[binding.index()] = true;
            if let Some(fence) = self.program.fence_of(binding) {
                self.bindings[fence.index()] = true;
            }
        }
        act.binding.is_some() || !needs_name
    }

    fn keeps_fault(&mut self, fault: &Fault) -> bool {
        match *fault {
            Fault::Kill(process) => self.becomes(process, &[Life::Alive, Life::Frozen], Life::Ended),
            Fault::Freeze(process) => self.becomes(process, &[Life::Alive], Life::Frozen),
            Fault::Thaw(process) => self.becomes(process, &[Life::Frozen], Life::Alive),
            Fault::Cut(process) | Fault::Delay(process, _) => self.is_alive(process),
            Fault::Hold(process) => {
                self.is_alive(process) && !std::mem::replace(&mut self.held[process.index()], true)
            }
            Fault::Release(process) => {
                self.is_alive(process) && std::mem::take(&mut self.held[process.index()])
            }
            Fault::CrashVm(vm) => {
                for at in 0..self.processes.len() {
                    if self.program.processes[at].vm == Some(vm) && self.vms[vm.index()] {
                        self.becomes(Process(at as u32), &[Life::Alive, Life::Frozen], Life::Ended);
                    }
                }
                self.paused[vm.index()] = false;
                std::mem::take(&mut self.vms[vm.index()])
            }
            Fault::PauseVm(vm) => {
                self.vms[vm.index()] && !std::mem::replace(&mut self.paused[vm.index()], true)
            }
            Fault::ResumeVm(vm) => self.vms[vm.index()] && std::mem::take(&mut self.paused[vm.index()]),
            Fault::VmAdapter { vm, .. } => self.vms[vm.index()],
            // Processes outlive the daemon.
            Fault::RestartDaemon => !self.paused.contains(&true),
            Fault::Fill(context) => {
                let owner = self.program.owner(context);
                self.knows(context) && self.able(self.program.processes[owner.index()].main)
            }
            Fault::Reorder | Fault::Hardware(_) | Fault::SetClock(_) => true,
        }
    }

    fn keeps_expectation(&self, expectation: &Expectation) -> bool {
        match expectation {
            Expectation::Value { object: binding, .. }
            | Expectation::Blocked { call: binding }
            | Expectation::Event { event: binding, .. }
            | Expectation::Doorbell { doorbell: binding, .. }
            | Expectation::Words { allocation: binding, .. }
            | Expectation::DeviceState { device: binding, .. } => {
                self.knows(*binding) && self.is_alive(self.program.owner(*binding))
            }
            Expectation::Returned { call, .. } => self.knows(*call),
            Expectation::Message(wanted) => {
                self.knows(wanted.messages) && wanted.resource.is_none_or(|resource| self.knows(resource))
            }
            Expectation::NoMessage { messages } => self.knows(*messages),
            Expectation::Data { call, data } => {
                let mut data = data.clone();
                let names_known = data.iter_mut().flat_map(Piece::bindings).all(|name| self.knows(*name));
                self.knows(*call) && names_known
            }
            Expectation::Messages { process, .. } | Expectation::Wakes { process, .. } => {
                self.is_alive(*process)
            }
            Expectation::Why { process, root, .. } => {
                self.is_alive(*process) && root.is_none_or(|(object, _)| self.knows(object))
            }
            Expectation::NothingLeft { process: Some(process) } => self.life(*process) != Life::Unborn,
            Expectation::Engine { .. }
            | Expectation::Report { .. }
            | Expectation::NoReport
            | Expectation::Race { .. }
            | Expectation::NoRace
            | Expectation::Waits { .. }
            | Expectation::NothingLeft { process: None } => true,
        }
    }

    fn knows_all(&self, outcome: &Outcome) -> bool {
        outcome.terms.iter().all(|term| self.knows(term.binding()))
    }
}
