//! The runner: takes a program through a world, step by step, and gives the verdict.

use std::fmt;

use d3dkmt::{
    Call, CreatedSyncObject, EventId, GpuSignal, Handle, Luid, NtStatus, Reply, ShareToken, SyncObjectInfo,
    isa,
};
use dxgkrnl::ddi::EngineState;

use crate::choose::Choose;
use crate::program::{
    Act, Action, Arm, Binding, Column, Command, EngineIs, EventCount, Expectation, Expected, Fault,
    HandleRef, Kind, ObjectSpec, Operation, Outcome, Process, Program, Term, Thread,
};
use crate::script;
use crate::script::words::{write_number, write_status};
use crate::world::{Answer, Done, Request, Trouble, World, declared_skip};

/// Where and how a run went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Line of the file; 0 where no line is to blame.
    pub line: u32,
    pub what: String,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Passed,
    Failed(Failure),
    /// With the reason that the file declares.
    Skipped(String),
}

/// A verdict with what the arm could not look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    pub verdict: Verdict,
    /// Lines that this arm has no way to check, each with the reason.
    pub unchecked: Vec<(u32, &'static str)>,
    /// Which of the race's allowed outcomes it was.
    pub outcome: Option<usize>,
    /// What each act of a step had come to when the next one began: its line, and the status if it had one.
    pub answers: Vec<(u32, Option<NtStatus>)>,
}

impl Ended {
    /// Only a verdict.
    pub fn of(verdict: Verdict) -> Ended {
        Ended { verdict, unchecked: Vec::new(), outcome: None, answers: Vec::new() }
    }

    /// It was not run, for this reason.
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

/// What a name stands for at the moment.
#[derive(Clone, Default)]
struct Bound {
    handle: Handle,
    gpu_address: u64,
    /// Of a register.
    value: Option<u64>,
    /// What the call came to, once it returned.
    answer: Option<NtStatus>,
}

/// One run under way.
struct Run<'a, W> {
    program: &'a Program,
    world: &'a mut W,
    bound: Vec<Bound>,
    /// The act each thread is in.
    busy: Vec<Option<&'a Act>>,
    alive: Vec<bool>,
    frozen: Vec<bool>,
    messages: Vec<u64>,
    wakes: Vec<u64>,
    notes: Vec<String>,
    unchecked: Vec<(u32, &'static str)>,
    answers: Vec<(u32, Option<NtStatus>)>,
    line: u32,
}

type Checked<T = ()> = Result<T, Stop>;

enum Stop {
    Failed(String),
    Trouble(Trouble),
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Stop {
        Stop::Trouble(trouble)
    }
}

fn failed<T>(what: impl Into<String>) -> Checked<T> {
    Err(Stop::Failed(what.into()))
}

/// Runs a program to its verdict.
pub fn run<W: World>(program: &Program, world: &mut W, choose: &mut dyn Choose) -> Ended {
    let arm = world.arm();
    if let Some(reason) = declared_skip(program, arm) {
        return Ended::skipped(reason);
    }
    let mut run = Run {
        program,
        world,
        bound: vec![Bound::default(); program.bindings.len()],
        busy: vec![None; program.threads.len()],
        alive: vec![false; program.processes.len()],
        frozen: vec![false; program.processes.len()],
        messages: vec![0; program.processes.len()],
        wakes: vec![0; program.processes.len()],
        notes: Vec::new(),
        unchecked: Vec::new(),
        answers: Vec::new(),
        line: 0,
    };
    let result = run.whole(choose);
    let line = run.line;
    let (verdict, outcome) = match result {
        Ok(outcome) => (Verdict::Passed, outcome),
        Err(Stop::Failed(what)) => (Verdict::Failed(Failure { line, what }), None),
        Err(Stop::Trouble(Trouble::Unsupported(what))) => {
            let what = format!("the {} arm {what}: say `skip {} \"..\"`", arm.name(), arm.name());
            (Verdict::Failed(Failure { line, what }), None)
        }
        Err(Stop::Trouble(Trouble::Broken(what))) => {
            (Verdict::Failed(Failure { line, what: format!("the {} arm failed: {what}", arm.name()) }), None)
        }
    };
    Ended { verdict, unchecked: run.unchecked, outcome, answers: run.answers }
}

impl<'a, W: World> Run<'a, W> {
    fn whole(&mut self, choose: &mut dyn Choose) -> Checked<Option<usize>> {
        for step in &self.program.steps {
            self.line = step.line;
            self.say(|program| format!("> {}", script::write_action(program, &step.action)));
            self.step(&step.action, choose)?;
            self.check_violations()?;
        }
        let outcome = match &self.program.race {
            Some(race) => {
                self.line = race.line;
                self.race(&race.columns, choose)?;
                self.check_violations()?;
                self.outcome(&race.allowed, &race.forbidden)?
            }
            None => None,
        };
        self.line = 0;
        self.end(choose)?;
        Ok(outcome)
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
            Action::Advance(nanos) => {
                self.world.advance(*nanos)?;
                self.settle(choose)?;
            }
            Action::Exit(process) => {
                self.world.exit(*process)?;
                self.gone(*process);
                self.settle(choose)?;
            }
            Action::Fault(fault) => {
                self.fault(fault, choose)?;
                self.settle(choose)?;
            }
            Action::Expect(expectation) => return self.expect(expectation),
        }
        Ok(())
    }

    /// A line for the log, if one is kept.
    fn say(&mut self, text: impl FnOnce(&Program) -> String) {
        let program = self.program;
        if let Some(log) = self.world.log() {
            log.push_str(&text(program));
            log.push('\n');
        }
    }

    /// Which way to go on, of so many.
    fn way(&mut self, choose: &mut dyn Choose, ways: usize) -> usize {
        let way = choose.choose(ways);
        if ways > 1 {
            self.say(|_| format!("  way {way} of {ways}"));
        }
        way
    }

    /// The world makes all the moves it can.
    fn make_moves(&mut self, choose: &mut dyn Choose) -> Checked {
        loop {
            match self.world.moves() {
                0 => return Ok(self.world.rest()?),
                moves => {
                    let way = self.way(choose, moves);
                    self.world.make_move(way)?;
                }
            }
        }
    }

    fn gone(&mut self, process: Process) {
        self.alive[process.index()] = false;
        self.frozen[process.index()] = false;
        for (at, thread) in self.program.threads.iter().enumerate() {
            if thread.process == process {
                self.busy[at] = None;
            }
        }
    }

    /// Until nothing more happens by itself.
    fn settle(&mut self, choose: &mut dyn Choose) -> Checked {
        self.make_moves(choose)?;
        self.collect()
    }

    /// Takes the answers that have come.
    fn collect(&mut self) -> Checked {
        for at in 0..self.busy.len() {
            let Some(act) = self.busy[at] else { continue };
            if let Some(answer) = self.world.returned(Thread(at as u32)) {
                self.busy[at] = None;
                self.bind(act, &answer)?;
                self.judge_unnamed(act, answer.status)?;
            }
        }
        Ok(())
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

    /// A thread that is in a call takes no step. Where anything may happen, it is left out.
    fn cannot(&mut self, act: &Act) -> Checked {
        match (&act.operation, act.expected) {
            (Operation::NewEvent | Operation::Read { .. }, _) | (_, Expected::Any) => {
                self.say(|_| "  the thread is in a call".into());
                Ok(())
            }
            (_, Expected::Status(_) | Expected::Blocks) => {
                let thread = &self.program.threads[act.thread.index()].name;
                failed(format!("expected that {thread} takes a step, found: it is in a call"))
            }
        }
    }

    fn judge(&mut self, act: &Act, answer: Option<NtStatus>) -> Checked {
        match (act.expected, answer) {
            (Expected::Any, _) | (Expected::Blocks, None) => Ok(()),
            (Expected::Status(wanted), Some(status)) if wanted == status => Ok(()),
            (Expected::Status(wanted), found) => {
                let why = self.last_reason(found);
                let found = found.map_or_else(
                    || "it does not return".into(),
                    |status| format!("answers {}", write_status(status)),
                );
                failed(format!("expected {}, found: {found}{why}", write_status(wanted)))
            }
            (Expected::Blocks, Some(status)) => {
                let why = self.last_reason(Some(status));
                failed(format!("expected that it blocks, found: answers {}{why}", write_status(status)))
            }
        }
    }

    /// The kernel's own words on the refusal, if the call was refused.
    fn last_reason(&mut self, status: Option<NtStatus>) -> String {
        if status.is_none_or(NtStatus::is_success) {
            return String::new();
        }
        self.notes.extend(self.world.take_notes());
        self.notes.last().map(|note| format!(" ({note})")).unwrap_or_default()
    }

    /// Opens an adapter and makes a device on it.
    fn device(&mut self, act: &'a Act, adapter: u32, choose: &mut dyn Choose) -> Checked {
        let call = Call::OpenAdapterFromLuid { luid: self.luid(adapter) };
        let opened = self.one_call(act.thread, call, choose)?;
        let Some(Answer { status: NtStatus::SUCCESS, reply: Reply::Adapter(adapter) }) = opened else {
            // What is asleep opens an adapter one day, and no device: the thread is in that call until then.
            self.busy[act.thread.index()] = opened.is_none().then_some(act);
            let status = opened.map(|answer| answer.status);
            self.answers.push((self.line, status));
            return self.judge(act, status);
        };
        self.busy[act.thread.index()] = Some(act);
        self.world.begin(
            act.thread,
            Request::Call { call: Call::CreateDevice { adapter, flags: 0 }, event: None },
        )?;
        let status = self.answer_of(act, choose)?;
        self.answers.push((self.line, status));
        self.judge(act, status)
    }

    fn one_call(&mut self, thread: Thread, call: Call, choose: &mut dyn Choose) -> Checked<Option<Answer>> {
        self.world.begin(thread, Request::Call { call, event: None })?;
        self.make_moves(choose)?;
        let answer = self.world.returned(thread);
        self.collect()?;
        Ok(answer)
    }

    /// Begins an act and lets the world come to rest; the status if it has returned by then.
    fn perform(&mut self, act: &'a Act, choose: &mut dyn Choose) -> Checked<Option<NtStatus>> {
        self.begin(act)?;
        if let Operation::Read { .. } = act.operation {
            return Ok(Some(NtStatus::SUCCESS));
        }
        self.answer_of(act, choose)
    }

    /// The status of an act under way, if it has returned when the world comes to rest.
    fn answer_of(&mut self, act: &'a Act, choose: &mut dyn Choose) -> Checked<Option<NtStatus>> {
        self.make_moves(choose)?;
        let answer = self.world.returned(act.thread);
        if let Some(answer) = &answer {
            self.busy[act.thread.index()] = None;
            self.bind(act, answer)?;
        }
        self.collect()?;
        Ok(answer.map(|answer| answer.status))
    }

    fn begin(&mut self, act: &'a Act) -> Checked {
        if let Operation::Read { object } = act.operation {
            let handle = self.handle(object);
            let value = self.world.value(self.program.process_of(act.thread), handle)?;
            if let Some(binding) = act.binding {
                self.bound[binding.index()].value = value;
            }
            return Ok(());
        }
        self.busy[act.thread.index()] = Some(act);
        let request = self.request(act);
        Ok(self.world.begin(act.thread, request)?)
    }

    /// Keeps what an answer brought.
    fn bind(&mut self, act: &Act, answer: &Answer) -> Checked {
        self.say(|program| {
            let thread = &program.threads[act.thread.index()].name;
            format!("< {thread}  {} -> {}", script::write_act(program, act), write_status(answer.status))
        });
        let Some(binding) = act.binding else { return Ok(()) };
        let bound = &mut self.bound[binding.index()];
        bound.answer = Some(answer.status);
        match &answer.reply {
            Reply::Adapters(adapters) => {
                bound.handle = adapters.first().map_or(Handle::NULL, |first| first.handle)
            }
            Reply::Adapter(handle) | Reply::Device(handle) | Reply::Context(handle) => bound.handle = *handle,
            Reply::SyncObject(CreatedSyncObject { object, gpu_address, .. }) => {
                bound.handle = *object;
                bound.gpu_address = *gpu_address;
            }
            Reply::None | Reply::AdapterInfo(_) | Reply::DeviceState(_) | Reply::Wait(_) => {}
            Reply::FenceMemoryExhausted => {
                return failed("a caller saw FenceMemoryExhausted, which stays inside");
            }
        }
        Ok(())
    }

    fn handle(&self, handle: HandleRef) -> Handle {
        match handle {
            HandleRef::Bound(binding) => self.bound[binding.index()].handle,
            HandleRef::Raw(raw) => Handle(raw),
        }
    }

    fn handles(&self, handles: &[HandleRef]) -> Vec<Handle> {
        handles.iter().map(|handle| self.handle(*handle)).collect()
    }

    fn pairs(&self, pairs: &[(HandleRef, u64)]) -> (Vec<Handle>, Vec<u64>) {
        pairs.iter().map(|(object, value)| (self.handle(*object), *value)).unzip()
    }

    fn luid(&self, adapter: u32) -> Luid {
        self.program.setting.kernel.adapters[adapter as usize].luid
    }

    fn request(&self, act: &Act) -> Request {
        let event_of = |event: &Option<Binding>| event.map(|event| event.0);
        let (call, event) = match &act.operation {
            Operation::NewEvent => {
                let event = act.binding.expect("an event has a name").0;
                return Request::NewEvent { event };
            }
            Operation::CreateObject { spec, .. } => (self.call(act), event_of(&spec.event)),
            Operation::Wait { event, .. } => (self.call(act), event_of(event)),
            Operation::GpuSignalEvent { event, .. } => (self.call(act), Some(event.0)),
            _ => (self.call(act), None),
        };
        Request::Call { call, event }
    }

    fn call(&self, act: &Act) -> Call {
        // The arm fills in the ids of events.
        let no_event = EventId(u64::MAX);
        match &act.operation {
            Operation::EnumAdapters { capacity } => Call::EnumAdapters { capacity: *capacity },
            Operation::OpenAdapter { adapter } | Operation::Device { adapter } => {
                Call::OpenAdapterFromLuid { luid: self.luid(*adapter) }
            }
            Operation::CloseAdapter { adapter } => Call::CloseAdapter { adapter: self.handle(*adapter) },
            Operation::QueryAdapter { adapter, kind, bytes } => {
                let data = vec![0; *bytes as usize];
                Call::QueryAdapterInfo { adapter: self.handle(*adapter), kind: *kind, data }
            }
            Operation::CreateDevice { adapter } => {
                Call::CreateDevice { adapter: self.handle(*adapter), flags: 0 }
            }
            Operation::DestroyDevice { device } => Call::DestroyDevice { device: self.handle(*device) },
            Operation::DeviceState { device, state_type } => {
                Call::GetDeviceState { device: self.handle(*device), state_type: *state_type }
            }
            Operation::CreateContext { device, node, flags } => Call::CreateContextVirtual {
                device: self.handle(*device),
                node_ordinal: *node,
                engine_affinity: 0,
                flags: *flags,
                client_hint: 0,
                private_data: Vec::new(),
            },
            Operation::DestroyContext { context } => Call::DestroyContext { context: self.handle(*context) },
            Operation::CreateObject { device, spec } => {
                let info = info(spec, spec.event.map(|_| no_event));
                Call::CreateSynchronizationObject { device: self.handle(*device), info, legacy: spec.legacy }
            }
            Operation::DestroyObject { object } => {
                Call::DestroySynchronizationObject { object: self.handle(*object) }
            }
            Operation::Share { object } => {
                let token = token(act.binding.unwrap_or(Binding(u32::MAX)));
                Call::ShareObject { object: self.handle(*object), desired_access: 0x1000_0000, token }
            }
            Operation::Open { device, share, flags } => {
                let (device, flags) = (self.handle(*device), *flags);
                Call::OpenSyncObject { device, token: token(*share), flags, engine_affinity: 0 }
            }
            Operation::CloseShare { share } => Call::CloseShare { token: token(*share) },
            Operation::Signal { device, targets, flags } => {
                let (objects, values) = self.pairs(targets);
                Call::SignalFromCpu { device: self.handle(*device), objects, values, flags: *flags }
            }
            Operation::Wait { device, items, flags, .. } => {
                let (objects, values) = self.pairs(items);
                Call::WaitFromCpu {
                    device: self.handle(*device),
                    objects,
                    values,
                    flags: *flags,
                    event: no_event,
                }
            }
            Operation::GpuSignal { contexts, targets, flags } => {
                let (objects, values) = self.pairs(targets);
                let signal = GpuSignal::Monitored { objects, values };
                Call::SignalFromGpu { contexts: self.handles(contexts), signal, flags: *flags }
            }
            Operation::GpuSignalEvent { contexts, flags, .. } => Call::SignalFromGpu {
                contexts: self.handles(contexts),
                signal: GpuSignal::CpuEvent { event: no_event },
                flags: *flags,
            },
            Operation::GpuWait { context, items } => {
                let (objects, values) = self.pairs(items);
                Call::WaitFromGpu { context: self.handle(*context), objects, values }
            }
            Operation::Submit { contexts, commands } => Call::SubmitCommand {
                contexts: self.handles(contexts),
                commands: 0,
                length: 0,
                flags: 0,
                private_data: self.private_data(commands),
            },
            Operation::NewEvent | Operation::Read { .. } => unreachable!("these are no calls"),
        }
    }

    fn private_data(&self, commands: &[Command]) -> Vec<u8> {
        if let [Command::Opaque { bytes }] = commands {
            return vec![0; *bytes as usize];
        }
        let packets = commands.iter().filter_map(|command| match *command {
            Command::Write { object, value } => {
                let gpu_address = match object {
                    HandleRef::Bound(binding) => self.bound[binding.index()].gpu_address,
                    HandleRef::Raw(raw) => raw.into(),
                };
                Some(isa::Packet::FenceWrite { gpu_address, value })
            }
            Command::Busy { duration_ns } => Some(isa::Packet::Busy { duration_ns }),
            Command::Hang => Some(isa::Packet::Hang),
            Command::Opaque { .. } => None,
        });
        isa::encode(&packets.collect::<Vec<_>>())
    }

    fn fault(&mut self, fault: &Fault, choose: &mut dyn Choose) -> Checked {
        match *fault {
            Fault::Fill(context) => return self.fill(context, choose),
            Fault::Kill(process) => {
                self.world.fault(fault)?;
                self.gone(process);
            }
            Fault::CrashVm(vm) => {
                self.world.fault(fault)?;
                for at in 0..self.program.processes.len() {
                    if self.program.processes[at].vm == Some(vm) {
                        self.gone(Process(at as u32));
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
            // Processes outlive their daemon: what they had, and have under way, ends with DEVICE_REMOVED.
            Fault::RestartDaemon
            | Fault::Cut(_)
            | Fault::Hold(_)
            | Fault::Release(_)
            | Fault::Delay(..)
            | Fault::Reorder
            | Fault::LoseInterrupt(_)
            | Fault::Hang(_)
            | Fault::StopAdapter(_) => self.world.fault(fault)?,
        }
        Ok(())
    }

    /// Submits the biggest buffers there are until the queue takes no more.
    fn fill(&mut self, context: Binding, choose: &mut dyn Choose) -> Checked {
        const BYTES: usize = 64 * 1024;
        let most = d3dkmt::limits::QUEUED_BYTES_PER_PROCESS_MAX / BYTES + 2;
        let main = self.program.processes[self.program.owner(context).index()].main;
        for _ in 0..most {
            let contexts = vec![self.bound[context.index()].handle];
            let private_data = vec![0; BYTES];
            let call = Call::SubmitCommand { contexts, commands: 0, length: 0, flags: 0, private_data };
            match self.one_call(main, call, choose)? {
                Some(answer) if answer.status.is_success() => {}
                Some(answer) if answer.status == NtStatus::NO_MEMORY => return Ok(()),
                Some(answer) => return failed(format!("a submission answers {}", answer.status)),
                None => return failed("a submission does not return"),
            }
        }
        failed("the queue never is full")
    }

    fn check_violations(&mut self) -> Checked {
        match self.world.take_violations().into_iter().next() {
            None => Ok(()),
            Some(violation) => failed(violation),
        }
    }

    fn expect(&mut self, expectation: &Expectation) -> Checked {
        match expectation {
            Expectation::Value { object, value } => self.expect_value(*object, *value),
            Expectation::Blocked { call } => match self.bound[call.index()].answer {
                None => Ok(()),
                Some(status) => failed(format!(
                    "expected that {} is blocked, found: it has returned {}",
                    self.program.name(*call),
                    write_status(status)
                )),
            },
            Expectation::Returned { call, status } => match self.bound[call.index()].answer {
                Some(found) if found == *status => Ok(()),
                Some(found) => failed(format!(
                    "expected that {} returned {}, found: {}",
                    self.program.name(*call),
                    write_status(*status),
                    write_status(found)
                )),
                None => failed(format!(
                    "expected that {} returned {}, found: it has not returned",
                    self.program.name(*call),
                    write_status(*status)
                )),
            },
            Expectation::Event { event, count } => {
                let found = self.world.take_event(self.program.owner(*event), event.0)?;
                let holds = match *count {
                    EventCount::Clear => found == 0,
                    EventCount::Set => found > 0,
                    EventCount::Times(times) => found == times,
                };
                let name = self.program.name(*event);
                if holds {
                    Ok(())
                } else {
                    failed(format!(
                        "expected that {name} is {}, found: set {found} times",
                        expected_count(*count)
                    ))
                }
            }
            Expectation::DeviceState { device, state } => {
                let handle = self.bound[device.index()].handle;
                let process = self.world.process_number(self.program.owner(*device));
                let snapshot = self.world.snapshot();
                let found =
                    snapshot.devices.iter().find(|known| known.process == process && known.handle == handle);
                match found {
                    Some(found) if found.state == *state => Ok(()),
                    Some(found) => failed(format!(
                        "expected device state {}, found: {}",
                        state_name(*state),
                        state_name(found.state)
                    )),
                    None => failed("expected a device, found: there is none of that handle"),
                }
            }
            Expectation::Engine { engine, is } => {
                let snapshot = self.world.snapshot();
                let report = snapshot
                    .engines
                    .iter()
                    .find(|report| (report.adapter, report.node) == (engine.adapter, engine.node));
                let found = match report.map(|report| &report.state) {
                    Some(EngineState::Idle) => EngineIs::Idle,
                    Some(EngineState::Running { .. }) => EngineIs::Running,
                    Some(EngineState::Hung { .. }) => EngineIs::Hung,
                    None => return failed("there is no such engine"),
                };
                if found == *is {
                    Ok(())
                } else {
                    failed(format!("expected that the engine is {is:?}, found: {found:?}"))
                }
            }
            Expectation::Report { text } => {
                self.notes.extend(self.world.take_notes());
                let found = std::mem::take(&mut self.notes);
                if found.iter().any(|note| note.contains(text)) {
                    Ok(())
                } else {
                    failed(format!("expected a report with {text:?}, found: {found:?}"))
                }
            }
            Expectation::NoReport => {
                self.notes.extend(self.world.take_notes());
                let found = std::mem::take(&mut self.notes);
                if found.is_empty() {
                    Ok(())
                } else {
                    failed(format!("expected no report, found: {found:?}"))
                }
            }
            Expectation::Messages { process, count } => match self.world.messages(*process)? {
                None => {
                    self.unchecked.push((self.line, "this arm has no messages to count"));
                    Ok(())
                }
                Some(total) => {
                    let found = total - std::mem::replace(&mut self.messages[process.index()], total);
                    same("messages", *count, found)
                }
            },
            Expectation::Wakes { process, count } => {
                let total = self.world.wakes(*process);
                let found = total - std::mem::replace(&mut self.wakes[process.index()], total);
                same("wakes", *count, found)
            }
            Expectation::Waits { count } => {
                let found = self.world.snapshot().waits.iter().filter(|wait| wait.event.is_some()).count();
                same("pending CPU waits", *count, found as u64)
            }
            Expectation::NothingLeft { process } => {
                let remains = remains(
                    &self.world.snapshot(),
                    process.map(|process| self.world.process_number(process)),
                );
                if remains.is_empty() {
                    Ok(())
                } else {
                    failed(format!("expected that nothing is left, found: {}", remains.join("; ")))
                }
            }
        }
    }

    fn expect_value(&mut self, binding: Binding, value: u64) -> Checked {
        let name = self.program.name(binding);
        let found = match self.program.bindings[binding.index()].kind {
            Kind::Register => self.bound[binding.index()].value,
            _ => self.world.value(self.program.owner(binding), self.bound[binding.index()].handle)?,
        };
        match found {
            Some(found) if found == value => Ok(()),
            Some(found) => {
                failed(format!("expected {name} = {}, found: {}", write_number(value), write_number(found)))
            }
            None => {
                failed(format!("expected {name} = {}, found: it has no value in memory", write_number(value)))
            }
        }
    }

    /// Runs the columns of a race, one choice after the other.
    fn race(&mut self, columns: &'a [Column], choose: &mut dyn Choose) -> Checked {
        let mut next = vec![0; columns.len()];
        let live = matches!(self.world.arm(), Arm::Local | Arm::Vm);
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
                // All at once: the machine chooses.
                for at in able {
                    let (line, act) = &columns[at].steps[next[at]];
                    self.line = *line;
                    next[at] += 1;
                    self.begin(act)?;
                }
                self.settle(choose)?;
            } else {
                let way = self.way(choose, able.len() + moves);
                match able.get(way) {
                    Some(at) => {
                        let (line, act) = &columns[*at].steps[next[*at]];
                        self.line = *line;
                        next[*at] += 1;
                        self.say(|program| {
                            let thread = &program.threads[act.thread.index()].name;
                            format!("> {thread}  {}", script::write_act(program, act))
                        });
                        self.begin(act)?;
                    }
                    None => self.world.make_move(way - able.len())?,
                }
                self.world.rest()?;
                self.collect()?;
            }
            self.check_violations()?;
        }
        self.judge_columns(columns)
    }

    /// A call of the race without a name is judged when it returns: nothing keeps its answer.
    fn judge_unnamed(&mut self, act: &Act, status: NtStatus) -> Checked {
        let Some(race) = self.program.race.as_ref().filter(|_| act.binding.is_none()) else { return Ok(()) };
        let mut steps = race.columns.iter().flat_map(|column| &column.steps);
        match steps.find(|(_, step)| std::ptr::eq(step, act)) {
            Some((line, _)) => {
                self.line = *line;
                self.judge(act, Some(status))
            }
            None => Ok(()),
        }
    }

    /// Every call of the race that has returned must have said what its line expects.
    fn judge_columns(&mut self, columns: &[Column]) -> Checked {
        for (line, act) in columns.iter().flat_map(|column| &column.steps) {
            let answer = act.binding.and_then(|binding| self.bound[binding.index()].answer);
            if let Some(status) = answer.filter(|_| !matches!(act.operation, Operation::Read { .. })) {
                self.line = *line;
                self.judge(act, Some(status))?;
            }
        }
        Ok(())
    }

    fn outcome(&mut self, allowed: &[Outcome], forbidden: &[Outcome]) -> Checked<Option<usize>> {
        for outcome in forbidden {
            if self.holds(outcome)? {
                self.line = outcome.line;
                return failed(format!(
                    "the race ended in the forbidden outcome {}",
                    script::write_outcome(self.program, outcome)
                ));
            }
        }
        for (at, outcome) in allowed.iter().enumerate() {
            if self.holds(outcome)? {
                return Ok(Some(at));
            }
        }
        if allowed.is_empty() {
            return Ok(None);
        }
        let ended = self.ended_in(&allowed[0])?;
        failed(format!("the race ended in {ended}, which is not allowed"))
    }

    fn holds(&mut self, outcome: &Outcome) -> Checked<bool> {
        for term in &outcome.terms {
            let holds = match *term {
                Term::Register { register, value } => self.bound[register.index()].value == Some(value),
                Term::Asleep { call, asleep } => self.bound[call.index()].answer.is_none() == asleep,
                Term::Status { call, status } => self.bound[call.index()].answer == Some(status),
                Term::Value { object, value } => {
                    let handle = self.bound[object.index()].handle;
                    self.world.value(self.program.owner(object), handle)? == Some(value)
                }
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How it ended, in the terms that an outcome speaks of.
    fn ended_in(&mut self, like: &Outcome) -> Checked<String> {
        let mut terms = Vec::new();
        for term in &like.terms {
            terms.push(match *term {
                Term::Register { register, .. } => {
                    Term::Register { register, value: self.bound[register.index()].value.unwrap_or_default() }
                }
                Term::Asleep { call, .. } | Term::Status { call, .. } => {
                    match self.bound[call.index()].answer {
                        None => Term::Asleep { call, asleep: true },
                        Some(status) => Term::Status { call, status },
                    }
                }
                Term::Value { object, .. } => {
                    let handle = self.bound[object.index()].handle;
                    let value = self.world.value(self.program.owner(object), handle)?.unwrap_or_default();
                    Term::Value { object, value }
                }
            });
        }
        Ok(script::write_outcome(self.program, &Outcome { line: 0, terms }))
    }

    /// Everybody ends; nothing may be left.
    fn end(&mut self, choose: &mut dyn Choose) -> Checked {
        for at in 0..self.alive.len() {
            let process = Process(at as u32);
            if self.frozen[at] {
                self.world.fault(&Fault::Kill(process))?;
                self.gone(process);
            } else if self.alive[at] {
                self.world.exit(process)?;
                self.gone(process);
            }
        }
        self.settle(choose)?;
        self.check_violations()?;
        let remains = remains(&self.world.snapshot(), None);
        if remains.is_empty() {
            Ok(())
        } else {
            failed(format!("when all processes had ended there was left: {}", remains.join("; ")))
        }
    }
}

fn same(what: &str, wanted: u64, found: u64) -> Checked {
    if wanted == found { Ok(()) } else { failed(format!("expected {wanted} {what}, found: {found}")) }
}

fn expected_count(count: EventCount) -> String {
    match count {
        EventCount::Clear => "clear".into(),
        EventCount::Set => "set".into(),
        EventCount::Times(times) => format!("set {times} times"),
    }
}

fn state_name(state: u32) -> String {
    let named = script::words::DEVICE_STATES.into_iter().find(|(_, number)| *number == state);
    named.map_or_else(|| state.to_string(), |(name, _)| name.into())
}

/// What the kernel still has, of one process or of all, in words.
fn remains(snapshot: &dxgkrnl::Snapshot, of: Option<u32>) -> Vec<String> {
    let counts = |what: &str, all: Vec<u32>| {
        let count = all.into_iter().filter(|process| of.is_none_or(|of| of == *process)).count();
        if count == 0 { None } else { Some(format!("{count} {what}")) }
    };
    let mut remains: Vec<String> = [
        counts("processes", snapshot.processes.iter().map(|process| process.process).collect()),
        counts("devices", snapshot.devices.iter().map(|device| device.process).collect()),
        counts("contexts", snapshot.contexts.iter().map(|context| context.process).collect()),
        counts("synchronization objects", snapshot.objects.iter().map(|object| object.process).collect()),
        counts("waits", snapshot.waits.iter().map(|wait| wait.process).collect()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if of.is_none() && remains.is_empty() && !snapshot.is_empty() {
        remains
            .push(format!("{} objects without an open, {} shares", snapshot.objects_alive, snapshot.shares));
    }
    remains
}

/// The runner's name for what an NT handle stands for.
fn token(share: Binding) -> ShareToken {
    let mut bytes = [0x5C; 16];
    bytes[..4].copy_from_slice(&share.0.to_le_bytes());
    ShareToken(bytes)
}

fn info(spec: &ObjectSpec, event: Option<EventId>) -> SyncObjectInfo {
    SyncObjectInfo {
        object_type: spec.object_type,
        flags: spec.flags,
        initial_state: spec.initial_state,
        max_count: spec.max_count,
        initial_count: spec.initial_count,
        initial_value: spec.initial_value,
        engine_affinity: spec.engine_affinity,
        event,
    }
}

/// For worlds: nothing to say is no trouble.
pub fn unsupported<T>(what: impl Into<String>) -> Done<T> {
    Err(Trouble::Unsupported(what.into()))
}
