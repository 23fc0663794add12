//! Writes a program as text: `parse(print(program))` returns the program.

mod list_lines;
mod operation_line;

pub use list_lines::{write_barrier, write_packet};

use std::collections::BTreeSet;
use std::fmt::Write as _;

use d3dkmt::text::is_printable;
use dxgkrnl::{Config, HOST_NAME};

use crate::program::{
    Act, Action, Column, EngineIs, EventCount, Expectation, Expected, Fault, Outcome, Piece, Program, Term,
    WantedMessage,
};
use crate::script::words::{
    DEVICE_STATES, DOORBELL_STATUSES, PAGE_FAULT_FLAGS, named_or_number, write_duration, write_engine,
    write_number, write_status,
};
use crate::script::{escapes, settings};

/// Writes a program as a scenario file. The case of a matrix becomes a file of its own.
pub fn print(program: &Program) -> String {
    let printer = Printer { program };
    let mut text = printer.head();
    for step in &program.steps {
        let _ = writeln!(text, "{}", printer.action(&step.action));
    }
    if program.race.is_some() {
        text += &printer.race();
    }
    text
}

/// Number of rule ids in one line.
const COVERS_IN_LINE: usize = 12;

/// Writes a text in quotes, as [`super::token`] reads it.
pub(in crate::script) fn quoted(text: &str) -> String {
    let letters = text.chars().map(|letter| if is_printable(letter) { letter } else { ' ' });
    let mut quoted = String::from("\"");
    for letter in letters {
        if matches!(letter, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted + "\""
}

pub(super) struct Printer<'a> {
    pub(super) program: &'a Program,
}

impl Printer<'_> {
    fn head(&self) -> String {
        let program = self.program;
        let word = if program.race.is_some() { "litmus" } else { "scenario" };
        let case = if program.case.is_empty() { String::new() } else { format!(", {}", program.case) };
        let mut head = format!("{word} {}\n", quoted(&format!("{}{case}", program.title)));
        for ids in program.covers.chunks(COVERS_IN_LINE) {
            let _ = writeln!(head, "covers {}", ids.join(" "));
        }
        if !program.tags.is_empty() {
            let _ = writeln!(head, "tags {}", program.tags.join(" "));
        }
        for (backend, reason) in &program.not_on {
            let _ = writeln!(head, "skip {} {}", backend.name(), quoted(reason));
        }
        head += &settings::write(&kernel_config(program));
        if program.setting.async_submission {
            head += "config async_submission\n";
        }
        let defaults = dxgkrnl::Policy::default().values();
        for ((switch, value), (_, default)) in program.setting.kernel.policy.values().zip(defaults) {
            if value != default {
                let _ = writeln!(head, "config {switch} = {value}");
            }
        }
        head
    }

    fn action(&self, action: &Action) -> String {
        let program = self.program;
        match action {
            Action::StartVm(vm) => format!("vm {}", program.vms[vm.index()]),
            Action::StartProcess(process) => {
                let info = &program.processes[process.index()];
                let in_vm = info.vm.map(|vm| format!(" in {}", program.vms[vm.index()])).unwrap_or_default();
                format!("process {}{in_vm}", info.name)
            }
            Action::StartThread(thread) => {
                let info = &program.threads[thread.index()];
                format!("thread {} in {}", info.name, self.process(info.process))
            }
            Action::Act(act) => format!("{}  {}", program.threads[act.thread.index()].name, self.act(act)),
            Action::Record { list, command } => {
                format!("{}  {}", program.name(*list), self.list_command(command))
            }
            Action::Advance(nanos) => format!("+{}", write_duration(*nanos)),
            Action::Exit(process) => format!("exit {}", self.process(*process)),
            Action::Fault(fault) => format!("fault {}", self.fault(fault)),
            Action::Expect(expectation) => format!("expect {}", self.expectation(expectation)),
        }
    }

    fn process(&self, process: crate::program::Process) -> &str {
        &self.program.processes[process.index()].name
    }

    fn act(&self, act: &Act) -> String {
        let name =
            act.binding.map(|binding| format!("{} = ", self.program.name(binding))).unwrap_or_default();
        let expected = match (&act.operation, act.expected) {
            (operation, _) if !operation.is_call() => String::new(),
            (_, Expected::Status(status)) => format!(" -> {}", write_status(status)),
            (_, Expected::Blocks) => " -> blocks".into(),
            (_, Expected::Any) => " -> anything".into(),
        };
        format!("{name}{}{expected}", self.operation(&act.operation))
    }

    fn fault(&self, fault: &Fault) -> String {
        match *fault {
            Fault::Kill(process) => format!("kill {}", self.process(process)),
            Fault::Freeze(process) => format!("freeze {}", self.process(process)),
            Fault::Thaw(process) => format!("thaw {}", self.process(process)),
            Fault::Cut(process) => format!("cut {}", self.process(process)),
            Fault::Hold(process) => format!("hold {}", self.process(process)),
            Fault::Release(process) => format!("release {}", self.process(process)),
            Fault::Delay(process, nanos) => {
                format!("delay {} {}", self.process(process), write_duration(nanos))
            }
            Fault::Reorder => "reorder".into(),
            Fault::CrashVm(vm) => format!("crash {}", self.program.vms[vm.index()]),
            Fault::PauseVm(vm) => format!("pause {}", self.program.vms[vm.index()]),
            Fault::ResumeVm(vm) => format!("resume {}", self.program.vms[vm.index()]),
            Fault::VmAdapter { vm, adapter, added } => {
                let word = if added { "add_adapter" } else { "remove_adapter" };
                format!("{word} {adapter} {}", self.program.vms[vm.index()])
            }
            Fault::Hardware(fault) => self.hardware_fault(fault),
            Fault::SetClock(nanos) => format!("clock {}", write_duration(nanos)),
            Fault::Fill(context) => format!("fill {}", self.program.name(context)),
            Fault::RestartDaemon => "restart daemon".into(),
        }
    }

    fn hardware_fault(&self, fault: dxgkrnl::Fault) -> String {
        use dxgkrnl::Fault::*;
        let of = |engine| write_engine(engine, &self.program.setting.kernel);
        match fault {
            LoseInterrupt { engine } => format!("lose_interrupt {}", of(engine)),
            Hang { engine } => format!("hang {}", of(engine)),
            StopAdapter { adapter } => format!("stop_adapter {adapter}"),
            StartAdapter { adapter } => format!("start_adapter {adapter}"),
            UpdateDriver { adapter, version } => format!("update_driver {adapter} {version}"),
            PageFault { engine, gpu_address, flags } => {
                let named = PAGE_FAULT_FLAGS.iter().filter(|(_, bit)| flags & bit != 0);
                let names: String = named.clone().map(|(name, _)| format!(" {name}")).collect();
                let rest = named.fold(flags, |rest, (_, bit)| rest & !bit);
                let rest = if rest == 0 { String::new() } else { format!(" flags={rest:#x}") };
                format!("page_fault {} at={gpu_address:#x}{names}{rest}", of(engine))
            }
            ResetFails { engine } => format!("reset_fails {}", of(engine)),
            Power { adapter, on } => format!("power {adapter} {}", if on { "on" } else { "off" }),
            EngineToF1 { engine } => format!("f1 {}", of(engine)),
            ObjectGoesBad { adapter, usage } => format!("object_bad {adapter} usage={usage}"),
        }
    }

    fn expectation(&self, expectation: &Expectation) -> String {
        let name = |binding| self.program.name(binding);
        match expectation {
            Expectation::Value { object, value } => format!("{} = {}", name(*object), write_number(*value)),
            Expectation::Blocked { call } => format!("{} blocked", name(*call)),
            Expectation::Returned { call, status } => {
                format!("{} returned {}", name(*call), write_status(*status))
            }
            Expectation::Event { event, count } => match count {
                EventCount::Clear => format!("{} clear", name(*event)),
                EventCount::Set => format!("{} set", name(*event)),
                EventCount::Times(times) => format!("{} set {times}", name(*event)),
            },
            Expectation::Data { call, data } => {
                let handle = |handle| self.handle(handle);
                format!("{} data{}", name(*call), escapes::write_pieces(data, &handle))
            }
            Expectation::Doorbell { doorbell, status } => {
                let status = named_or_number(&DOORBELL_STATUSES, *status);
                format!("{} status {status}", name(*doorbell))
            }
            Expectation::DeviceState { device, state } => {
                format!("{} state {}", name(*device), named_or_number(&DEVICE_STATES, *state))
            }
            Expectation::Engine { engine, is } => {
                let is = match is {
                    EngineIs::Idle => "idle",
                    EngineIs::Running => "running",
                    EngineIs::Hung => "hung",
                };
                format!("engine {} {is}", write_engine(*engine, &self.program.setting.kernel))
            }
            Expectation::Report { text } => format!("report {}", quoted(text)),
            Expectation::NoReport => "no report".into(),
            Expectation::Words { allocation, first, count, word } => {
                format!("{} words{} = {word}", name(*allocation), list_lines::word_range(*first, *count))
            }
            Expectation::Message(wanted) => self.wanted_message(wanted),
            Expectation::NoMessage { messages } => format!("{} no message", name(*messages)),
            Expectation::Race { texts } => {
                let texts: String = texts.iter().map(|text| format!(" {}", quoted(text))).collect();
                format!("race{texts}")
            }
            Expectation::NoRace => "no race".into(),
            Expectation::Messages { process, count } => {
                format!("messages {} = {count}", self.process(*process))
            }
            Expectation::Wakes { process, count } => format!("wakes {} = {count}", self.process(*process)),
            Expectation::Waits { count } => format!("waits = {count}"),
            Expectation::Why { process, verdict, root: None } => {
                format!("why {} {verdict}", self.process(*process))
            }
            Expectation::Why { process, verdict, root: Some((object, value)) } => {
                let (process, value) = (self.process(*process), write_number(*value));
                format!("why {process} {verdict} {}>={value}", self.program.name(*object))
            }
            Expectation::NothingLeft { process: None } => "nothing left".into(),
            Expectation::NothingLeft { process: Some(process) } => {
                format!("nothing left of {}", self.process(*process))
            }
        }
    }

    fn race(&self) -> String {
        let Some(race) = &self.program.race else { return String::new() };
        let threads: Vec<&str> = race
            .columns
            .iter()
            .map(|column| self.program.threads[column.thread.index()].name.as_str())
            .collect();
        let mut text = format!("race {}\n", threads.join(" | "));
        for row in rows(&race.columns) {
            let cell = |(column, step): (&Column, Option<usize>)| {
                step.and_then(|at| column.steps.get(at)).map(|(_, act)| self.act(act)).unwrap_or_default()
            };
            let cells: Vec<String> = race.columns.iter().zip(row).map(cell).collect();
            let _ = writeln!(text, "     {}", cells.join(" | "));
        }
        for (word, outcomes) in [("allowed", &race.allowed), ("forbidden", &race.forbidden)] {
            for outcome in outcomes {
                let _ = writeln!(text, "{word} {}", self.outcome(outcome));
            }
        }
        text
    }

    /// Writes an outcome: `r0=1 W=asleep`.
    pub fn outcome(&self, outcome: &Outcome) -> String {
        let terms: Vec<String> = outcome.terms.iter().map(|term| self.term(*term)).collect();
        terms.join(" ")
    }

    fn term(&self, term: Term) -> String {
        let name = |binding| self.program.name(binding);
        match term {
            Term::Register { register, value } => format!("{}={}", name(register), write_number(value)),
            Term::Value { object, value } => format!("{}={}", name(object), write_number(value)),
            Term::Asleep { call, asleep: true } => format!("{}=asleep", name(call)),
            Term::Asleep { call, asleep: false } => format!("{}=returned", name(call)),
            Term::Status { call, status } => format!("{}={}", name(call), write_status(status)),
        }
    }
}

/// Returns the step of each column in each row. Rows are kept as parsed, because a step may use a name that a row above
/// it declares in another column. A generated race has a step of each column in each row.
fn rows(columns: &[Column]) -> Vec<Vec<Option<usize>>> {
    let was_read = |column: &Column| column.steps.is_sorted_by(|(one, _), (next, _)| one < next);
    if columns.iter().all(was_read) {
        let lines: BTreeSet<u32> =
            columns.iter().flat_map(|column| &column.steps).map(|(line, _)| *line).collect();
        let in_line = |line: u32| {
            let at = |column: &Column| column.steps.iter().position(|(of, _)| *of == line);
            columns.iter().map(at).collect()
        };
        return lines.into_iter().map(in_line).collect();
    }
    let most = columns.iter().map(|column| column.steps.len()).max().unwrap_or(0);
    (0..most).map(|row| vec![Some(row); columns.len()]).collect()
}

/// Writes the terms of an outcome.
pub(crate) fn write_outcome(program: &Program, outcome: &Outcome) -> String {
    Printer { program }.outcome(outcome)
}

/// Writes a step.
pub(crate) fn write_action(program: &Program, action: &Action) -> String {
    Printer { program }.action(action)
}

/// Writes an act after the actor's name, without the status.
pub(crate) fn write_act(program: &Program, act: &Act) -> String {
    let name = act.binding.map(|binding| format!("{} = ", program.name(binding))).unwrap_or_default();
    format!("{name}{}", Printer { program }.operation(&act.operation))
}

/// Writes expected data.
pub(crate) fn write_data(program: &Program, data: &[Piece]) -> String {
    let printer = Printer { program };
    format!("data{}", escapes::write_pieces(data, &|handle| printer.handle(handle)))
}

/// Writes an expected message of the debug layer.
pub(crate) fn write_wanted_message(program: &Program, wanted: &WantedMessage) -> String {
    Printer { program }.wanted_message(wanted)
}

/// Returns the number of lines before the first step.
pub(crate) fn head_lines(program: &Program) -> u32 {
    Printer { program }.head().lines().count() as u32
}

/// Returns the kernel's settings without those of VMs that never start. A recording has settings of VMs that did not
/// come, and a smaller program has lost some of its VMs.
fn kernel_config(program: &Program) -> Config {
    let started = program.steps.iter().filter_map(|step| match step.action {
        Action::StartVm(vm) => Some(program.vms[vm.index()].as_str()),
        _ => None,
    });
    let known: Vec<&str> = started.chain([HOST_NAME]).collect();
    let mut config = program.setting.kernel.clone();
    config.vms.retain(|vm| known.contains(&vm.name.as_str()));
    for grant in &mut config.grants {
        grant.vms.retain(|vm| known.contains(&vm.as_str()));
    }
    config.grants.retain(|grant| !grant.vms.is_empty());
    config
}
