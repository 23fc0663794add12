//! The host's side of the backends that have no daemon: the kernel, its clock, the checker.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use d3dkmt::{Call, NtStatus, ShareToken};
use drivers::{Drivers, Registry};
use dxgkrnl::{Effects, Input, Kernel, Nanos, PlantedBug, ProcessId, VmId};

use crate::checker::{Checker, InputSummary};
use crate::memory::Memory;
use crate::nt_handle_owners::{Closed, NtHandleOwners};
use crate::program::{Process, Program, Vm};

/// Slots of fence memory that a process gets at a time, as a page of it has.
pub const SLOTS: u32 = 64;

/// A state of this length is restored before each step, one of twice that before each second step.
const RESTORED_EACH_STEP_BYTES: usize = 4096;

/// What the system's clock says so long after the start of a scenario, in units of 100 ns since 1601: it starts
/// with the year 2026.
pub fn utc_100ns(since_start: Nanos) -> i64 {
    const START_100NS: i64 = 134_116_992_000_000_000;
    START_100NS + (since_start / 100) as i64
}

/// A kernel under the checker's eyes.
pub struct Host<'a> {
    program: &'a Program,
    planted: Option<PlantedBug>,
    /// Processes of earlier daemons: numbers are not used twice.
    first_process: u32,
    registry: Registry,
    pub kernel: Kernel<Drivers>,
    pub checker: Checker,
    /// The checker looks at each step.
    pub checks: bool,
    pub now: Nanos,
    /// Of the last step.
    pub effects: Effects,
    pub notes: Vec<String>,
    /// Who has which NT handle, those of an earlier daemon left out, and of which VM each is.
    nt_handle_owners: NtHandleOwners<ProcessId>,
    vm_of_handle: BTreeMap<ShareToken, VmId>,
    pub memory: Memory,
    /// What moves could not do.
    pub not_moved: Vec<String>,
    /// What the system's clock was set to, since the start, and when it was.
    clock: (Nanos, Nanos),
    /// The kernel gives way to one that is restored from its saved state, before each step while that is small.
    pub restores: bool,
    /// Steps until the next time.
    restores_in: usize,
    /// What went in and what came of it, a line each with its time, if anybody wants it.
    pub log: Option<String>,
    /// The same as a trace has it.
    pub steps: Option<Vec<(Nanos, Input, Effects)>>,
}

impl<'a> Host<'a> {
    pub fn new(program: &'a Program, registry: Registry, planted: Option<PlantedBug>) -> Host<'a> {
        let config = program.setting.kernel.clone();
        let drivers = Drivers::new(&registry, &config);
        let mut kernel = Kernel::new(config, drivers);
        if let Some(bug) = planted {
            kernel.plant(bug);
        }
        let mut host = Host {
            program,
            planted,
            first_process: 1,
            registry,
            kernel,
            checker: Checker::default(),
            checks: true,
            now: 0,
            effects: Effects::default(),
            notes: Vec::new(),
            restores: false,
            restores_in: 0,
            log: None,
            steps: None,
            nt_handle_owners: NtHandleOwners::default(),
            vm_of_handle: BTreeMap::new(),
            memory: Memory::default(),
            not_moved: Vec::new(),
            clock: (0, 0),
        };
        host.tell_time();
        host
    }

    /// What the system's clock says, which the kernel is told at its start.
    fn time_told(&self) -> Input {
        let (said, at) = self.clock;
        Input::SystemTime { utc_100ns: utc_100ns(said + (self.now - at)) }
    }

    fn tell_time(&mut self) {
        let told = self.time_told();
        self.kernel.handle(self.now, told, &mut self.effects);
        self.effects.clear();
    }

    /// Keeps what the kernel is told from its start on.
    pub fn keep_steps(&mut self) {
        self.steps = Some(vec![(self.now, self.time_told(), Effects::default())]);
    }

    /// A call of the last step was answered, and not refused.
    fn was_accepted(&self, process: ProcessId, request: u64) -> bool {
        self.effects.answer_to(process, request).is_some_and(|answer| answer.status.is_success())
    }

    /// The process has the NT handle by which a call opens something, from somebody else if need be.
    pub fn has_handle_for(&mut self, process: ProcessId, call: &Call) -> bool {
        let Some(token) = call.nt_handle_opened() else { return true };
        if self.nt_handle_owners.lacks(token, process) {
            self.nt_handle_owners.give(token, process);
        }
        self.nt_handle_owners.has(token, process)
    }

    fn handle_closed(&self, token: ShareToken) -> Option<Input> {
        let vm = *self.vm_of_handle.get(&token)?;
        Some(Input::NtHandleClosed { vm, token })
    }

    /// A process closes its NT handle: how that went, and what the broker tells the host then.
    pub fn close(&mut self, process: ProcessId, token: ShareToken) -> (NtStatus, Option<Input>) {
        match self.nt_handle_owners.close(token, process) {
            Closed::None => (NtStatus::INVALID_HANDLE, None),
            Closed::One => (NtStatus::SUCCESS, None),
            Closed::Last => (NtStatus::SUCCESS, self.handle_closed(token)),
        }
    }

    /// What the end of a process closes: NT handles that nobody else has. Its memory is there until the kernel knows of the
    /// end: the last handle of a fence may let work go on that moves its bytes.
    pub fn closes(&mut self, process: ProcessId) -> Vec<Input> {
        let closed = self.nt_handle_owners.end(process);
        closed.into_iter().filter_map(|token| self.handle_closed(token)).collect()
    }

    /// Somebody sets the system's clock.
    pub fn clock_set(&mut self, since_start: Nanos) -> Input {
        self.clock = (since_start, self.now);
        Input::SystemTime { utc_100ns: utc_100ns(since_start) }
    }

    /// The daemon ends and starts anew: only the time and the log go on.
    pub fn restart(&mut self) {
        let first_process = self.first_process + self.program.processes.len() as u32;
        let Host { now, clock, restores, checks, .. } = *self;
        let (log, steps) = (self.log.take(), self.steps.take());
        let not_moved = std::mem::take(&mut self.not_moved);
        let anew = Host::new(self.program, self.registry.clone(), self.planted);
        *self = Host { first_process, now, log, steps, clock, restores, checks, not_moved, ..anew };
        self.tell_time();
    }

    /// The kernel's number of a process.
    pub fn id(&self, process: Process) -> ProcessId {
        ProcessId(self.first_process + process.0)
    }

    /// Which process of the program has this number; past the last one for one of an earlier daemon.
    pub fn index_of(&self, id: ProcessId) -> usize {
        id.0.wrapping_sub(self.first_process) as usize
    }

    fn vm_of(&self, process: ProcessId) -> VmId {
        let info = self.program.processes.get(self.index_of(process));
        info.and_then(|info| info.vm).map_or(VmId::HOST, vm_id)
    }

    pub fn vm_attached(&self, vm: Vm) -> Input {
        Input::VmAttached { vm: vm_id(vm), name: self.program.vms[vm.index()].clone() }
    }

    pub fn vm_detached(&self, vm: Vm) -> Input {
        Input::VmDetached { vm: vm_id(vm) }
    }

    /// The process attaches, with the memory it begins with.
    pub fn process_attached(&self, process: Process) -> [Input; 2] {
        let info = &self.program.processes[process.index()];
        let id = self.id(process);
        let (vm, name) = (self.vm_of(id), info.name.clone());
        [
            Input::ProcessAttached { process: id, vm, pid: 1000 + process.0, name },
            Input::FenceMemoryAdded { process: id, slots: SLOTS },
        ]
    }

    /// The kernel gives way to one that is restored from its state. Panics if that is not the same: a bug of ours.
    fn restore(&mut self) {
        let state = self.kernel.save().expect("every driver of these tests can be saved");
        let config = self.program.setting.kernel.clone();
        let drivers = Drivers::new(&self.registry, &config);
        let restored = Kernel::restore(config, drivers, &state).expect("its own state");
        assert!(restored.save().as_ref() == Ok(&state), "what was restored is saved as something else");
        self.kernel = restored;
        self.restores_in = state.len() / RESTORED_EACH_STEP_BYTES;
    }

    /// One input, and what the kernel leaves of it for later steps. What it leads to is in `effects`.
    pub fn input(&mut self, input: Input) {
        self.step(input);
        while self.kernel.has_backlog() {
            let mut effects = std::mem::take(&mut self.effects);
            self.step(Input::Deadline);
            effects.append(std::mem::take(&mut self.effects));
            self.effects = effects;
        }
    }

    fn step(&mut self, input: Input) {
        let told = self.checks.then(|| InputSummary::of(&input));
        let (made, asked) = (handle_made_by(&input), Memory::asked(&input));
        if let Input::VmDetached { vm } = input {
            self.vm_of_handle.retain(|_, of| *of != vm);
        }
        if let Some(log) = &mut self.log {
            log_line(log, self.now, &input);
        }
        match self.restores_in.checked_sub(1) {
            Some(left) => self.restores_in = left,
            None if self.restores => self.restore(),
            None => {}
        }
        self.effects.clear();
        let kept = self.steps.is_some().then(|| input.clone());
        self.kernel.handle(self.now, input, &mut self.effects);
        if let (Some(steps), Some(input)) = (&mut self.steps, kept) {
            steps.push((self.now, input, self.effects.clone()));
        }
        self.not_moved.extend(self.memory.step(asked, &self.effects));
        if let Some(told) = &told {
            self.checker.step(told, &self.effects, &self.kernel);
        }
        if let Some((process, request, token)) = made
            && self.was_accepted(process, request)
        {
            self.nt_handle_owners.give(token, process);
            self.vm_of_handle.insert(token, self.vm_of(process));
        }
        if let Some(log) = &mut self.log {
            let Effects { moves, stores, answers, events, notes } = &self.effects;
            moves.iter().for_each(|one| log_line(log, self.now, one));
            stores.iter().for_each(|store| log_line(log, self.now, store));
            answers.iter().for_each(|answer| log_line(log, self.now, answer));
            events.iter().for_each(|event| log_line(log, self.now, event));
            notes.iter().for_each(|note| log_line(log, self.now, note));
        }
        self.notes.extend(self.effects.notes.drain(..).map(|note| note.text));
    }

    /// What the checkers found since this was last asked.
    pub fn take_violations(&mut self) -> Vec<String> {
        let mut found = self.checker.take_violations();
        found.append(&mut self.not_moved);
        found
    }

    /// The next time before or at `end` that the kernel wants to be told.
    pub fn due(&self, end: Nanos) -> Option<Nanos> {
        self.kernel.next_deadline().filter(|due| *due <= end).map(|due| due.max(self.now))
    }
}

/// The NT handle that a call gives its process, if it succeeds.
fn handle_made_by(input: &Input) -> Option<(ProcessId, u64, ShareToken)> {
    let Input::Call { process, request, call } = input else { return None };
    Some((*process, *request, call.nt_handle_made()?))
}

/// The kernel's number of a VM.
fn vm_id(vm: Vm) -> VmId {
    VmId(vm.0 + 1)
}

/// Characters of a log line: a whole queue of commands is no reading.
const LOG_CHARACTERS_MAX: usize = 300;

fn log_line(log: &mut String, now: Nanos, what: &dyn Display) {
    let text = what.to_string();
    match text.char_indices().nth(LOG_CHARACTERS_MAX) {
        Some((end, _)) => _ = writeln!(log, "  [{now}] {}.. ({} bytes)", &text[..end], text.len()),
        None => _ = writeln!(log, "  [{now}] {text}"),
    }
}
