//! The host side of the backends without a daemon: the kernel, its clock, the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};

use d3dkmt::{Call, NtStatus, ShareToken};
use drivers::{Drivers, Registry};
use dxgkrnl::{Effects, Input, Kernel, Nanos, Note, PlantedBug, ProcessId, VmId};

use crate::checker::{Checker, InputSummary};
use crate::memory::Memory;
use crate::nt_handle_owners::{Closed, NtHandleOwners};
use crate::program::{Process, Program, Vm};

/// Slots of fence memory per grant, as in one page.
pub const SLOTS: u32 = 64;

/// State size for a restore before each step; a state of twice the size is restored before each second step.
const RESTORED_EACH_STEP_BYTES: usize = 4096;

/// Returns the system time at this time after the start of a scenario, in units of 100 ns since 1601. A scenario starts
/// with the year 2026.
pub fn utc_100ns(since_start: Nanos) -> i64 {
    const START_100NS: i64 = 134_116_992_000_000_000;
    START_100NS + (since_start / 100) as i64
}

/// The methods of a [`World`](crate::world::World) that its field `host` answers: memory, snapshots, notes, the log.
macro_rules! answered_by_host {
    () => {
        fn find_other(
            &mut self,
            process: Process,
            allocation: Handle,
            range: (u64, Option<u64>),
            word: u32,
        ) -> Done<Result<Option<(u64, u32)>, d3dkmt::NtStatus>> {
            let process = self.host.id(process);
            Ok(self.host.memory().find_other(process, allocation, range, word))
        }

        fn process_number(&self, process: Process) -> u32 {
            self.host.id(process).0
        }

        fn snapshot(&mut self) -> dxgkrnl::Snapshot {
            self.host.kernel.snapshot()
        }

        fn why(&mut self, process: Process) -> dxgkrnl::why::Why {
            let question = dxgkrnl::why::Question::unlimited(Some(self.process_number(process)));
            self.host.kernel.why(&dxgkrnl::why::Question { now: self.host.now, ..question })
        }

        fn next_deadline(&self) -> Option<dxgkrnl::Nanos> {
            self.host.kernel.next_deadline().map(|due| due.saturating_sub(self.host.now))
        }

        fn take_notes(&mut self) -> Vec<dxgkrnl::Note> {
            std::mem::take(&mut self.host.notes)
        }

        fn take_violations(&mut self) -> Vec<String> {
            self.host.take_violations()
        }

        fn keep_log(&mut self) {
            self.host.log = Some(String::new());
        }

        fn log(&mut self) -> Option<&mut String> {
            self.host.log.as_mut()
        }
    };
}
pub(crate) use answered_by_host;

/// What a kernel of a run did from its start, as a trace has it.
#[derive(Debug)]
pub struct KernelRun {
    pub steps: Vec<(Nanos, Input, Effects)>,
    /// Digest of the state after them.
    pub digest: u64,
}

/// A kernel that is checked after each step.
pub struct Host<'a> {
    program: &'a Program,
    planted: Option<PlantedBug>,
    /// Number of processes of earlier daemons: numbers are not reused.
    first_process: u32,
    registry: Registry,
    pub kernel: Kernel,
    pub checker: Checker,
    /// Whether the checker runs after each step.
    pub checks: bool,
    /// Whether the checker compares the kernel's tables at times only, so that a run takes time by its steps and not by
    /// its steps times its waits.
    pub seldom: bool,
    /// Steps until the tables are compared next.
    tables_in: usize,
    pub now: Nanos,
    /// Effects of the last step.
    pub effects: Effects,
    pub notes: Vec<Note>,
    /// Owners of NT handles, without those of an earlier daemon, and the VM of each handle.
    nt_handle_owners: NtHandleOwners<ProcessId>,
    vm_of_handle: BTreeMap<ShareToken, VmId>,
    memory: Memory,
    /// DMA operations that failed.
    pub dma_errors: Vec<String>,
    /// The system clock's setting as a time since the start, and the time when it was set.
    clock: (Nanos, Nanos),
    /// Whether the kernel is replaced, before each step while its state is small, by one restored from its saved state.
    pub restores: bool,
    /// Steps until the next restore.
    restores_in: usize,
    /// A log of inputs and effects with their times, one per line, if wanted.
    pub log: Option<String>,
    /// Inputs and effects of this kernel as in a trace, if wanted.
    pub steps: Option<Vec<(Nanos, Input, Effects)>>,
    /// The same of earlier daemons.
    earlier_runs: Vec<KernelRun>,
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
            seldom: false,
            tables_in: 0,
            now: 0,
            effects: Effects::default(),
            notes: Vec::new(),
            restores: false,
            restores_in: 0,
            log: None,
            steps: None,
            earlier_runs: Vec::new(),
            nt_handle_owners: NtHandleOwners::default(),
            vm_of_handle: BTreeMap::new(),
            memory: Memory::default(),
            dma_errors: Vec::new(),
            clock: (0, 0),
        };
        host.set_clock();
        host
    }

    /// Returns the input that sets the kernel's system time.
    fn clock_input(&self) -> Input {
        let (utc, at) = self.clock;
        Input::SystemTime { utc_100ns: utc_100ns(utc + (self.now - at)) }
    }

    fn set_clock(&mut self) {
        let input = self.clock_input();
        self.kernel.handle(self.now, input, &mut self.effects);
        self.effects.clear();
    }

    /// Records the kernel's inputs from its start on.
    pub fn keep_steps(&mut self) {
        self.steps = Some(vec![(self.now, self.clock_input(), Effects::default())]);
    }

    /// Ends the recording of this kernel, if there is one.
    fn end_recording(&mut self) {
        if let Some(steps) = self.steps.take() {
            self.earlier_runs.push(KernelRun { steps, digest: self.kernel.snapshot().digest() });
        }
    }

    /// Returns what was recorded, by daemon.
    pub fn into_runs(mut self) -> Vec<KernelRun> {
        self.end_recording();
        self.earlier_runs
    }

    /// Whether a call of the last step succeeded.
    fn was_accepted(&self, process: ProcessId, request: u64) -> bool {
        self.effects.answer_to(process, request).is_some_and(|answer| answer.status.is_success())
    }

    /// Whether the process has the NT handle that a call opens; gives it one from another owner if possible.
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

    /// Closes a process's NT handle. Returns the status, and the broker's input to the host.
    pub fn close(&mut self, process: ProcessId, token: ShareToken) -> (NtStatus, Option<Input>) {
        match self.nt_handle_owners.close(token, process) {
            Closed::None => (NtStatus::INVALID_HANDLE, None),
            Closed::One => (NtStatus::SUCCESS, None),
            Closed::Last => (NtStatus::SUCCESS, self.handle_closed(token)),
        }
    }

    /// Returns the inputs for NT handles that only this ending process had. Its memory stays until the kernel knows of
    /// the end: the last handle of a fence may release work that moves its bytes.
    pub fn closes(&mut self, process: ProcessId) -> Vec<Input> {
        let closed = self.nt_handle_owners.end(process);
        closed.into_iter().filter_map(|token| self.handle_closed(token)).collect()
    }

    /// Sets the system's clock.
    pub fn clock_set(&mut self, since_start: Nanos) -> Input {
        self.clock = (since_start, self.now);
        Input::SystemTime { utc_100ns: utc_100ns(since_start) }
    }

    /// Restarts the daemon: only the time and the log continue.
    pub fn restart(&mut self) {
        let first_process = self.first_process + self.program.processes.len() as u32;
        let Host { now, clock, restores, checks, seldom, .. } = *self;
        let is_recorded = self.steps.is_some();
        self.end_recording();
        let (log, earlier_runs) = (self.log.take(), std::mem::take(&mut self.earlier_runs));
        let dma_errors = std::mem::take(&mut self.dma_errors);
        let anew = Host::new(self.program, self.registry.clone(), self.planted);
        let continued = Host { first_process, now, clock, restores, checks, seldom, ..anew };
        *self = Host { log, earlier_runs, dma_errors, ..continued };
        self.set_clock();
        if is_recorded {
            self.keep_steps();
        }
    }

    /// Returns the kernel's number of a process.
    pub fn id(&self, process: Process) -> ProcessId {
        ProcessId(self.first_process + process.0)
    }

    /// Returns the program's index of a process; one past the last for a process of an earlier daemon.
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

    pub fn vm_paused(&self, vm: Vm, paused: bool) -> Input {
        Input::VmPaused { vm: vm_id(vm), paused }
    }

    pub fn vm_adapter(&self, vm: Vm, adapter: u32, added: bool) -> Input {
        Input::VmAdapter { vm: vm_id(vm), adapter, added }
    }

    /// Returns the inputs with which a process attaches and gets its first memory.
    pub fn process_attached(&self, process: Process) -> [Input; 2] {
        let info = &self.program.processes[process.index()];
        let id = self.id(process);
        let (vm, name) = (self.vm_of(id), info.name.clone());
        [
            Input::ProcessAttached { process: id, vm, pid: 1000 + process.0, name },
            Input::FenceMemoryAdded { process: id, slots: SLOTS },
        ]
    }

    /// Replaces the kernel by one restored from its state. Panics if the restored state differs, which is a bug.
    fn restore(&mut self) {
        let state = self.kernel.save().expect("every driver of these tests can be saved");
        let config = self.program.setting.kernel.clone();
        let drivers = Drivers::new(&self.registry, &config);
        let restored = Kernel::restore(config, drivers, &state).expect("its own state");
        assert!(restored.save().as_ref() == Ok(&state), "the restored state is saved differently");
        self.kernel = restored;
        self.restores_in = state.len() / RESTORED_EACH_STEP_BYTES;
    }

    /// Handles one input and the backlog that it leaves. Its effects are in `effects`.
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
        let summary = self.checks.then(|| InputSummary::of(&input));
        let (created_handle, requested) = (handle_made_by(&input), Memory::requested(&input));
        if let Input::VmDetached { vm } = input {
            self.vm_of_handle.retain(|_, of| *of != vm);
        }
        if let Some(log) = &mut self.log {
            log_line(log, self.now, &input);
        }
        match self.restores_in.checked_sub(1) {
            Some(remaining) => self.restores_in = remaining,
            None if self.restores => self.restore(),
            None => {}
        }
        self.effects.clear();
        let logged_input = self.steps.is_some().then(|| input.clone());
        self.kernel.handle(self.now, input, &mut self.effects);
        if let (Some(steps), Some(input)) = (&mut self.steps, logged_input) {
            steps.push((self.now, input, self.effects.clone()));
        }
        self.dma_errors.extend(self.memory.step(requested, &self.effects, &self.kernel));
        if let Some(summary) = &summary {
            self.checker.follow(summary, &self.effects, &self.kernel);
            self.check_tables();
        }
        if let Some((process, request, token)) = created_handle
            && self.was_accepted(process, request)
        {
            self.nt_handle_owners.give(token, process);
            self.vm_of_handle.insert(token, self.vm_of(process));
        }
        if let Some(log) = &mut self.log {
            let Effects { moves, stores, answers, events, sync_files, notes, driver_answers } = &self.effects;
            moves.iter().for_each(|one| log_line(log, self.now, one));
            stores.iter().for_each(|store| log_line(log, self.now, store));
            answers.iter().for_each(|answer| log_line(log, self.now, answer));
            events.iter().for_each(|event| log_line(log, self.now, event));
            sync_files.iter().for_each(|ready| log_line(log, self.now, ready));
            notes.iter().for_each(|note| log_line(log, self.now, note));
            driver_answers.iter().for_each(|answer| log_line(log, self.now, answer));
        }
        self.notes.append(&mut self.effects.notes);
    }

    /// Compares the kernel's tables: after each step, or after a number of steps that grows with the tables.
    fn check_tables(&mut self) {
        const ENTRIES_PER_STEP: usize = 64;
        if let Some(remaining) = self.tables_in.checked_sub(1) {
            self.tables_in = remaining;
            return;
        }
        self.checker.check_tables(&self.kernel);
        if self.seldom {
            let mut entries = 0;
            self.kernel.pending_waits(&mut |_| entries += 1);
            self.kernel.fences(&mut |_| entries += 1);
            self.tables_in = entries / ENTRIES_PER_STEP;
        }
    }

    /// The memory of processes now.
    pub fn memory(&mut self) -> &mut Memory {
        if self.memory.has_device_memory() {
            let allocations = self.kernel.snapshot().allocations;
            let handles: BTreeSet<_> = allocations.iter().map(|one| (one.process, one.handle)).collect();
            self.memory.forget_ended(|process, allocation| handles.contains(&(process.0, allocation)));
        }
        &mut self.memory
    }

    /// Removes the memory of an ended process, but what others may use.
    pub fn end_memory(&mut self, process: ProcessId) {
        let Host { kernel, memory, .. } = self;
        memory.end(process, |address| kernel.outlives_detach(process, address));
    }

    /// Returns the violations since the last call.
    pub fn take_violations(&mut self) -> Vec<String> {
        let mut found = self.checker.take_violations();
        found.append(&mut self.dma_errors);
        found
    }

    /// Whether the kernel has work that is due now, as a signal that takes effect after its answer.
    pub fn is_due(&self) -> bool {
        self.due(self.now).is_some()
    }

    /// Returns the kernel's next deadline before or at `end`.
    pub fn due(&self, end: Nanos) -> Option<Nanos> {
        self.kernel.next_deadline().filter(|due| *due <= end).map(|due| due.max(self.now))
    }
}

/// Returns the NT handle that a call creates on success.
fn handle_made_by(input: &Input) -> Option<(ProcessId, u64, ShareToken)> {
    let Input::Call { process, request, call } = input else { return None };
    Some((*process, *request, call.nt_handle_made()?))
}

/// The kernel's number of a VM.
fn vm_id(vm: Vm) -> VmId {
    VmId(vm.0 + 1)
}

/// Maximum characters of a log line: a whole queue of commands is unreadable.
const LOG_CHARACTERS_MAX: usize = 300;

fn log_line(log: &mut String, now: Nanos, what: &dyn Display) {
    let text = what.to_string();
    match text.char_indices().nth(LOG_CHARACTERS_MAX) {
        Some((end, _)) => _ = writeln!(log, "  [{now}] {}.. ({} bytes)", &text[..end], text.len()),
        None => _ = writeln!(log, "  [{now}] {text}"),
    }
}
