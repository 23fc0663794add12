//! The runner: executes a program on a world, step by step, and returns the verdict.

mod at_end;
mod calls;
mod expect;
mod ordered;
mod race_columns;

use std::fmt;

use d3dkmt::isa;
use d3dkmt::list_escape::{self, DebugMessage};
use d3dkmt::{AcquireOutcome, Call, CallOf, Handle, Handles, NtStatus, Reply, ReplyValue};
use dxgkrnl::{Note, ProcessId};

use crate::choose::Choose;
use crate::program::{
    Act, Action, AdapterNumber, Binding, Expected, Fault, HandleRef, Kind, ListCommand, NamedIn, Operation,
    Process, Program, Step, Thread,
};
use crate::script;
use crate::script::words::write_status;
use crate::world::{Answer, BackendError, Request, World, declared_skip};

pub use at_end::{AtEnd, Waiting};
use expect::remains;
pub use ordered::{Order, Prerequisite, Taken, TakenStep, Unmet, run_in_order};

/// A failure of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Line of the file; 0 if no line is to blame.
    pub line: u32,
    pub what: String,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Passed,
    Failed(Failure),
    /// Skipped, with the reason that the file declares.
    Skipped(String),
    /// This machine could not start what the backend needs, so nothing is known about the scenario.
    Error(String),
}

/// The result of a run: the verdict, and the lines that the backend could not check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    pub verdict: Verdict,
    /// Lines that this backend cannot check, each with the reason.
    pub unchecked: Vec<(u32, &'static str)>,
    /// Indices of the allowed outcomes that the race had: several, if their terms do not exclude each other.
    pub outcomes: Vec<usize>,
    /// The status of each act of a step at the start of the next step, by line; `None` if it had none.
    pub answers: Vec<(u32, Option<NtStatus>)>,
}

impl Ended {
    /// Returns a result with only a verdict.
    pub fn of(verdict: Verdict) -> Ended {
        Ended { verdict, unchecked: Vec::new(), outcomes: Vec::new(), answers: Vec::new() }
    }

    /// Returns the result of a skipped run.
    pub fn skipped(reason: impl Into<String>) -> Ended {
        Ended::of(Verdict::Skipped(reason.into()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

/// The current meaning of a name.
#[derive(Clone, Default)]
struct Bound {
    handle: Handle,
    /// The global handle, for objects that have one.
    global: Handle,
    gpu_address: u64,
    /// The value of a register.
    value: Option<u64>,
    /// The number that a call returned: an address, a fence value, a state, a priority.
    number: Option<u64>,
    /// Private runtime data that a call returned.
    data: Option<Vec<u8>>,
    /// Packets that a command list has recorded.
    list: Vec<isa::Packet>,
    /// Messages that were read from the debug layer.
    messages: Vec<DebugMessage>,
    /// For a device: its adapter.
    adapter: Handle,
    /// For a doorbell: the slot of its status in the process's fence memory.
    status_slot: Option<u32>,
    /// The status of the call, once it returned.
    answer: Option<NtStatus>,
}

impl Bound {
    /// Stores the results of a reply.
    fn keep(&mut self, operation: &Operation, reply: &Reply) -> Checked {
        match reply.value() {
            ReplyValue::Nothing => {}
            ReplyValue::Handle(handle) => self.handle = handle,
            ReplyValue::Number(number) => self.number = Some(number),
            ReplyValue::Data(data) => self.keep_data(operation, data),
        }
        match reply {
            Reply::KeyedMutex { shared_handle, private_data, .. } => {
                (self.global, self.data) = (*shared_handle, Some(private_data.clone()));
            }
            Reply::KeyedMutexAcquire { outcome, private_data } => {
                self.number = match outcome {
                    AcquireOutcome::Acquired { fence_value }
                    | AcquireOutcome::TimedOut { fence_value }
                    | AcquireOutcome::Abandoned { fence_value } => Some(*fence_value),
                    AcquireOutcome::Registered => None,
                };
                self.data = Some(private_data.clone());
            }
            Reply::KeyedMutexData { private_data, .. } => self.data = Some(private_data.clone()),
            Reply::Doorbell { status_slot } => self.status_slot = Some(*status_slot),
            Reply::FenceMemoryExhausted => {
                return failed("a caller got FenceMemoryExhausted, which the library must handle");
            }
            // Other replies have only the result that the operation names.
            _ => {}
        }
        Ok(())
    }

    /// Stores the data of an escape.
    fn keep_data(&mut self, operation: &Operation, data: &[u8]) {
        match operation {
            Operation::CreateResource { .. } => self.number = list_escape::number(data).map(u64::from),
            Operation::ReadMessages { .. } => self.messages = list_escape::messages(data),
            _ => {}
        }
        self.data = Some(data.to_vec());
    }
}

/// A run in progress.
struct Run<'a, W> {
    program: &'a Program,
    world: &'a mut W,
    bound: Vec<Bound>,
    /// The address of a process's own memory, by the name of its allocation.
    memory: Vec<u64>,
    /// The current act of each thread.
    busy: Vec<Option<&'a Act>>,
    alive: Vec<bool>,
    frozen: Vec<bool>,
    /// By VM.
    paused: Vec<bool>,
    messages: Vec<u64>,
    wakes: Vec<u64>,
    notes: Vec<Note>,
    /// By thread: number of `notes` when its act began.
    notes_before: Vec<usize>,
    /// Notes about races since races were last checked.
    races: Vec<String>,
    unchecked: Vec<(u32, &'static str)>,
    answers: Vec<(u32, Option<NtStatus>)>,
    /// Number of calls without a name so far.
    unnamed_acts: u32,
    line: u32,
}

type Checked<T = ()> = Result<T, Stop>;

enum Stop {
    Failed(String),
    BackendError(BackendError),
}

impl From<BackendError> for Stop {
    fn from(error: BackendError) -> Stop {
        Stop::BackendError(error)
    }
}

fn failed<T>(what: impl Into<String>) -> Checked<T> {
    Err(Stop::Failed(what.into()))
}

/// Returns a note's report of a race, if it has one: from the driver at a command, or from the kernel.
fn race_in(note: &str) -> Option<&str> {
    let text = match note.strip_prefix("driver of adapter ") {
        Some(rest) => rest.split_once(": ")?.1,
        None => note,
    };
    (text.starts_with("race on ") || text.starts_with("race: ")).then_some(text)
}

/// Runs a program to its verdict.
pub fn run<W: World>(program: &Program, world: &mut W, choose: &mut dyn Choose) -> Ended {
    run_looking(program, world, choose, None, &mut |_| Ok(()))
}

/// As [`run`], and returns the state before the processes were ended, if the run reached its end.
pub fn run_to_end<W: World>(
    program: &Program,
    world: &mut W,
    choose: &mut dyn Choose,
) -> (Ended, Option<AtEnd>) {
    let mut at_end = None;
    let ended = run_looking(program, world, choose, None, &mut |run| {
        at_end = Some(run.at_end()?);
        Ok(())
    });
    (ended, at_end)
}

/// Inspects a run when its steps are done.
type Look<'l, 'a, W> = &'l mut dyn FnMut(&mut Run<'a, W>) -> Checked;

fn run_looking<'a, W: World>(
    program: &'a Program,
    world: &'a mut W,
    choose: &mut dyn Choose,
    order: Option<(Order<'_>, &mut Taken)>,
    look: Look<'_, 'a, W>,
) -> Ended {
    let backend = world.backend();
    if let Some(reason) = declared_skip(program, backend) {
        return Ended::skipped(reason);
    }
    let mut run = Run {
        program,
        world,
        bound: vec![Bound::default(); program.bindings.len()],
        memory: calls::memory_addresses(program),
        busy: vec![None; program.threads.len()],
        alive: vec![false; program.processes.len()],
        frozen: vec![false; program.processes.len()],
        paused: vec![false; program.vms.len()],
        messages: vec![0; program.processes.len()],
        wakes: vec![0; program.processes.len()],
        notes: Vec::new(),
        notes_before: vec![0; program.threads.len()],
        races: Vec::new(),
        unchecked: Vec::new(),
        answers: Vec::new(),
        unnamed_acts: 0,
        line: 0,
    };
    let result = run.run_steps(choose, order, look);
    let line = run.line;
    let (verdict, outcomes) = match result {
        Ok(outcomes) => (Verdict::Passed, outcomes),
        Err(Stop::Failed(what)) => (Verdict::Failed(Failure { line, what }), Vec::new()),
        Err(Stop::BackendError(BackendError::Unsupported(what))) => {
            let name = backend.name();
            let what = format!("the {name} backend {what}: add `skip {name} \"..\"` to the file");
            (Verdict::Failed(Failure { line, what }), Vec::new())
        }
        Err(Stop::BackendError(BackendError::Broken(what))) => (
            Verdict::Failed(Failure { line, what: format!("the {} backend failed: {what}", backend.name()) }),
            Vec::new(),
        ),
        Err(Stop::BackendError(error @ BackendError::TooManyDeadlines)) => {
            (Verdict::Failed(Failure { line, what: error.to_string() }), Vec::new())
        }
        Err(Stop::BackendError(BackendError::NotStarted(what))) => (Verdict::Error(what), Vec::new()),
    };
    Ended { verdict, unchecked: run.unchecked, outcomes, answers: run.answers }
}

impl<'a, W: World> Run<'a, W> {
    fn run_steps(
        &mut self,
        choose: &mut dyn Choose,
        order: Option<(Order<'_>, &mut Taken)>,
        look: Look<'_, 'a, W>,
    ) -> Checked<Vec<usize>> {
        match order {
            Some((order, taken)) => self.run_ordered(order, choose, taken)?,
            None => self.program.steps.iter().try_for_each(|step| self.numbered_step(step, choose))?,
        }
        let outcomes = match &self.program.race {
            Some(race) => {
                self.line = race.line;
                self.race(&race.columns, choose)?;
                self.check_violations()?;
                // The line of the last call depends on the order.
                self.line = race.line;
                self.outcomes(&race.allowed, &race.forbidden)?
            }
            None => Vec::new(),
        };
        self.line = 0;
        look(self)?;
        self.end(choose)?;
        Ok(outcomes)
    }

    /// Takes a step of the program and checks what it did.
    fn numbered_step(&mut self, step: &'a Step, choose: &mut dyn Choose) -> Checked {
        self.line = step.line;
        self.log_line(|program| format!("> {}", script::write_action(program, &step.action)));
        self.step(&step.action, choose)?;
        self.check_violations()
    }

    fn step(&mut self, action: &'a Action, choose: &mut dyn Choose) -> Checked {
        match action {
            Action::StartVm(vm) => self.world.start_vm(*vm)?,
            Action::StartProcess(process) => {
                self.world.start_process(*process)?;
                self.alive[process.index()] = true;
            }
            Action::StartThread(thread) => self.world.start_thread(*thread)?,
            Action::Act(act) => return self.act(act, choose),
            Action::Record { list, command } => self.record(*list, command),
            Action::Advance(nanos) => {
                self.world.advance(*nanos)?;
                self.run_to_idle(choose)?;
            }
            Action::Exit(process) => {
                self.world.exit(*process)?;
                self.end_process(*process);
                self.run_to_idle(choose)?;
            }
            Action::Fault(fault) => {
                self.fault(fault, choose)?;
                self.run_to_idle(choose)?;
            }
            Action::Expect(expectation) => return self.expect(expectation),
        }
        Ok(())
    }

    /// Writes a line to the log, if one is kept.
    fn log_line(&mut self, text: impl FnOnce(&Program) -> String) {
        let program = self.program;
        if let Some(log) = self.world.log() {
            log.push_str(&text(program));
            log.push('\n');
        }
    }

    /// Chooses one of this many `alternatives`.
    fn choose(&mut self, choose: &mut dyn Choose, alternatives: usize) -> usize {
        let choice = choose.choose(alternatives);
        if alternatives > 1 {
            self.log_line(|_| format!("  way {choice} of {alternatives}"));
        }
        choice
    }

    /// Has the world make all its moves.
    fn make_moves(&mut self, choose: &mut dyn Choose) -> Checked {
        loop {
            match self.world.moves() {
                0 => return Ok(self.world.rest()?),
                moves => {
                    let choice = self.choose(choose, moves);
                    self.world.make_move(choice)?;
                }
            }
        }
    }

    fn end_process(&mut self, process: Process) {
        self.alive[process.index()] = false;
        self.frozen[process.index()] = false;
        for (at, thread) in self.program.threads.iter().enumerate() {
            if thread.process == process {
                self.busy[at] = None;
            }
        }
    }

    /// Whether a thread is in this call.
    fn is_under_way(&self, call: Binding) -> bool {
        self.busy.iter().flatten().any(|act| act.binding == Some(call))
    }

    /// Runs until nothing more happens by itself.
    fn run_to_idle(&mut self, choose: &mut dyn Choose) -> Checked {
        self.make_moves(choose)?;
        self.collect(choose)
    }

    /// Collects the answers that have arrived, and those to calls that follow from them.
    fn collect(&mut self, choose: &mut dyn Choose) -> Checked {
        while self.collect_once()? {
            self.make_moves(choose)?;
        }
        Ok(())
    }

    /// Collects the answers that have arrived. Returns whether a thread makes another call: `device` is two calls.
    fn collect_once(&mut self) -> Checked<bool> {
        let mut goes_on = false;
        for at in 0..self.busy.len() {
            let Some(act) = self.busy[at] else { continue };
            let Some(answer) = self.world.returned(Thread(at as u32)) else { continue };
            if let (Operation::Device { .. }, Reply::Adapter(adapter)) = (&act.operation, &answer.reply) {
                self.create_device(act, *adapter)?;
                goes_on = true;
                continue;
            }
            self.busy[at] = None;
            self.bind(act, &answer)?;
            self.judge_of_race(act, answer.status)?;
        }
        Ok(goes_on)
    }

    fn act(&mut self, act: &'a Act, choose: &mut dyn Choose) -> Checked {
        if self.busy[act.thread.index()].is_some() {
            return self.cannot(act);
        }
        if let Operation::Device { adapter } = act.operation {
            return self.device(act, adapter, choose);
        }
        let answer = self.perform(act, choose)?;
        self.answers.push((self.line, answer));
        self.judge(act, answer)
    }

    /// Handles a step of a thread that is in a call: an error, or skipped if any result is allowed.
    fn cannot(&mut self, act: &Act) -> Checked {
        match (&act.operation, act.expected) {
            (operation, expected) if !operation.is_call() || expected == Expected::Any => {
                self.log_line(|_| "  the thread is in a call".into());
                Ok(())
            }
            _ => {
                let thread = &self.program.threads[act.thread.index()].name;
                failed(format!("expected that {thread} takes a step, found: it is in a call"))
            }
        }
    }

    fn judge(&mut self, act: &Act, answer: Option<NtStatus>) -> Checked {
        match (act.expected, answer) {
            (Expected::Any, _) | (Expected::Blocks, None) => Ok(()),
            (Expected::Status(expected), Some(status)) if expected == status => Ok(()),
            (Expected::Status(expected), found) => {
                let why = self.reason(act, found);
                let found = found.map_or_else(
                    || "it does not return".into(),
                    |status| format!("answers {}", write_status(status)),
                );
                failed(format!("expected {}, found: {found}{why}", write_status(expected)))
            }
            (Expected::Blocks, Some(status)) => {
                let why = self.reason(act, Some(status));
                failed(format!("expected that it blocks, found: answers {}{why}", write_status(status)))
            }
        }
    }

    /// Returns the kernel's note on a refused call. A call that the library refused has none; if several notes fit, no one
    /// knows which it is.
    fn reason(&mut self, act: &Act, status: Option<NtStatus>) -> String {
        self.collect_notes();
        let process = ProcessId(self.world.process_number(self.program.process_of(act.thread)));
        let new = self.notes.get(self.notes_before[act.thread.index()]..).unwrap_or_default();
        let is_reason =
            |note: &&Note| note.process == Some(process) && status.is_some() && note.refused_with() == status;
        let mut reasons = new.iter().filter(is_reason);
        match (reasons.next(), reasons.next()) {
            (Some(note), None) => format!(" ({})", note.text),
            _ => String::new(),
        }
    }

    /// Remembers which notes there are before an act begins.
    fn count_notes(&mut self, thread: Thread) {
        self.collect_notes();
        self.notes_before[thread.index()] = self.notes.len();
    }

    /// Collects new notes.
    fn collect_notes(&mut self) {
        let new = self.world.take_notes();
        self.races.extend(new.iter().filter_map(|note| race_in(&note.text)).map(str::to_owned));
        self.notes.extend(new);
    }

    /// Records a line of a list, with its names replaced by their current numbers.
    fn record(&mut self, list: Binding, command: &ListCommand) {
        let of = |named: NamedIn, name: HandleRef| match name {
            HandleRef::Raw(raw) => raw.into(),
            HandleRef::Bound(binding) => {
                let bound = &self.bound[binding.index()];
                let is_number = named == NamedIn::Resource
                    || self.program.bindings[binding.index()].kind == Kind::Address;
                if is_number { bound.number.unwrap_or_default() } else { bound.gpu_address }
            }
        };
        let packet = command.packet(of);
        self.bound[list.index()].list.push(packet);
    }

    /// Opens an adapter and creates a device on it.
    fn device(&mut self, act: &'a Act, adapter: AdapterNumber, choose: &mut dyn Choose) -> Checked {
        self.count_notes(act.thread);
        let call = Call::OpenAdapterFromLuid { luid: self.luid(adapter) };
        let opened = self.one_call(act.thread, call, choose)?;
        let Some(Answer { status: NtStatus::SUCCESS, reply: Reply::Adapter(adapter) }) = opened else {
            // A call that sleeps opens the adapter later, and `collect` creates the device then.
            self.busy[act.thread.index()] = opened.is_none().then_some(act);
            let status = opened.map(|answer| answer.status);
            if let Some(binding) = act.binding {
                self.bound[binding.index()].answer = status;
            }
            self.answers.push((self.line, status));
            return self.judge(act, status);
        };
        self.create_device(act, adapter)?;
        let status = self.answer_of(act, choose)?;
        self.answers.push((self.line, status));
        self.judge(act, status)
    }

    fn create_device(&mut self, act: &'a Act, adapter: Handle) -> Checked {
        if let Some(binding) = act.binding {
            self.bound[binding.index()].adapter = adapter;
        }
        self.busy[act.thread.index()] = Some(act);
        let call = Call::CreateDevice { adapter, flags: 0 };
        Ok(self.world.begin(act.thread, Request::Call { call, event: None })?)
    }

    fn one_call(&mut self, thread: Thread, call: Call, choose: &mut dyn Choose) -> Checked<Option<Answer>> {
        self.world.begin(thread, Request::Call { call, event: None })?;
        self.make_moves(choose)?;
        let answer = self.world.returned(thread);
        self.collect(choose)?;
        Ok(answer)
    }

    /// Starts an act and runs the world until it is idle. Returns the status if the act has returned.
    fn perform(&mut self, act: &'a Act, choose: &mut dyn Choose) -> Checked<Option<NtStatus>> {
        self.begin(act)?;
        if let Operation::Read { .. } | Operation::NewList { .. } = act.operation {
            return Ok(Some(NtStatus::SUCCESS));
        }
        self.answer_of(act, choose)
    }

    /// Returns the status of a started act, if it has returned when the world is idle.
    fn answer_of(&mut self, act: &'a Act, choose: &mut dyn Choose) -> Checked<Option<NtStatus>> {
        self.make_moves(choose)?;
        let answer = self.world.returned(act.thread);
        if let Some(answer) = &answer {
            self.busy[act.thread.index()] = None;
            self.bind(act, answer)?;
        }
        self.collect(choose)?;
        Ok(answer.map(|answer| answer.status))
    }

    fn begin(&mut self, act: &'a Act) -> Checked {
        self.count_notes(act.thread);
        if let Operation::Read { object } = act.operation {
            let value = self.memory_value(self.program.process_of(act.thread), object)?;
            if let Some(binding) = act.binding {
                self.bound[binding.index()].value = value;
            }
            return Ok(());
        }
        if let (Operation::NewList { queue, flags, label }, Some(binding)) = (&act.operation, act.binding) {
            let name = label.clone().unwrap_or_else(|| self.program.name(binding).into());
            self.bound[binding.index()].list =
                vec![isa::Packet::BeginList { queue: *queue, flags: *flags, name }];
            return Ok(());
        }
        self.busy[act.thread.index()] = Some(act);
        let request = self.request(act);
        Ok(self.world.begin(act.thread, request)?)
    }

    /// Returns the value of a fence that a process reads from its memory; `None` if the fence was not created. An object
    /// that was created and has no value fails the run, because no outcome of a race could tell.
    fn memory_value(&mut self, process: Process, object: HandleRef) -> Checked<Option<u64>> {
        let value = self.world.value(process, self.handle(object))?;
        if let (None, HandleRef::Bound(binding)) = (value, object)
            && self.alive[process.index()]
            && self.bound[binding.index()].answer == Some(NtStatus::SUCCESS)
        {
            let name = self.program.name(binding);
            return failed(format!("expected that {name} is a fence, found: it has no value in memory"));
        }
        Ok(value)
    }

    /// Stores the results of an answer.
    fn bind(&mut self, act: &Act, answer: &Answer) -> Checked {
        self.log_line(|program| {
            let thread = &program.threads[act.thread.index()].name;
            format!("< {thread}  {} -> {}", script::write_act(program, act), write_status(answer.status))
        });
        let Some(binding) = act.binding else { return Ok(()) };
        if let (Reply::PagingQueue { fence, .. } | Reply::HwQueue { progress_fence: fence, .. }, Some(own)) =
            (&answer.reply, self.program.fence_of(binding))
        {
            self.keep_object(own, fence);
        }
        if let Reply::SyncObject(created) | Reply::OpenedSyncFile { object: created, .. } = &answer.reply {
            self.keep_object(binding, created);
        }
        let adapter = match act.operation {
            Operation::Call(CallOf::CreateDevice { adapter, .. }) => self.handle(adapter),
            _ => self.bound[binding.index()].adapter,
        };
        let bound = &mut self.bound[binding.index()];
        (bound.answer, bound.adapter) = (Some(answer.status), adapter);
        bound.keep(&act.operation, &answer.reply)
    }

    fn fault(&mut self, fault: &Fault, choose: &mut dyn Choose) -> Checked {
        match *fault {
            Fault::Fill(context) => return self.fill(context, choose),
            Fault::Kill(process) => {
                self.world.fault(fault)?;
                self.end_process(process);
            }
            Fault::CrashVm(vm) => {
                self.world.fault(fault)?;
                self.paused[vm.index()] = false;
                for at in 0..self.program.processes.len() {
                    if self.program.processes[at].vm == Some(vm) {
                        self.end_process(Process(at as u32));
                    }
                }
            }
            Fault::Freeze(process) => {
                self.world.fault(fault)?;
                self.frozen[process.index()] = true;
            }
            Fault::Thaw(process) => {
                self.world.fault(fault)?;
                self.frozen[process.index()] = false;
            }
            Fault::PauseVm(vm) => {
                self.world.fault(fault)?;
                self.paused[vm.index()] = true;
            }
            Fault::ResumeVm(vm) => {
                self.world.fault(fault)?;
                self.paused[vm.index()] = false;
            }
            // Processes outlive their daemon: their objects and pending calls end with DEVICE_REMOVED.
            Fault::RestartDaemon
            | Fault::Cut(_)
            | Fault::Hold(_)
            | Fault::Release(_)
            | Fault::Delay(..)
            | Fault::Reorder
            | Fault::VmAdapter { .. }
            | Fault::Hardware(_)
            | Fault::SetClock(_) => self.world.fault(fault)?,
        }
        Ok(())
    }

    /// Submits the biggest possible buffers until the queue is full.
    fn fill(&mut self, context: Binding, choose: &mut dyn Choose) -> Checked {
        const BYTES: usize = 64 * 1024;
        let most = d3dkmt::limits::QUEUED_BYTES_PER_PROCESS_MAX / BYTES + 2;
        let main = self.program.processes[self.program.owner(context).index()].main;
        if self.busy[main.index()].is_some() {
            let thread = &self.program.threads[main.index()].name;
            return failed(format!("expected that {thread} submits, found: it is in a call"));
        }
        for _ in 0..most {
            let contexts = Handles::from_slice(&[self.bound[context.index()].handle]);
            let private_data = vec![0; BYTES];
            let call = Call::SubmitCommand { contexts, commands: 0, length: 0, flags: 0, private_data };
            match self.one_call(main, call, choose)? {
                Some(answer) if answer.status.is_success() => {}
                Some(answer) if answer.status == NtStatus::NO_MEMORY => return Ok(()),
                Some(answer) => return failed(format!("a submission answers {}", answer.status)),
                None => return failed("a submission does not return"),
            }
        }
        failed("the queue never becomes full")
    }

    fn check_violations(&mut self) -> Checked {
        match self.world.take_violations().into_iter().next() {
            None => Ok(()),
            Some(violation) => failed(violation),
        }
    }

    /// Ends all processes; nothing may be left.
    fn end(&mut self, choose: &mut dyn Choose) -> Checked {
        for at in 0..self.alive.len() {
            let process = Process(at as u32);
            let paused = self.program.processes[at].vm.is_some_and(|vm| self.paused[vm.index()]);
            if self.alive[at] && (self.frozen[at] || paused) {
                self.world.fault(&Fault::Kill(process))?;
                self.end_process(process);
            } else if self.alive[at] {
                self.world.exit(process)?;
                self.end_process(process);
            }
        }
        self.run_to_idle(choose)?;
        self.check_violations()?;
        let remains = remains(&self.world.snapshot(), None);
        if remains.is_empty() {
            Ok(())
        } else {
            failed(format!("when all processes had ended there was left: {}", remains.join("; ")))
        }
    }
}
