//! Replays a part of a recording against a running daemon: real processes repeat the recorded calls in the recorded
//! order, through the C ABI.
//!
//! ```text
//!   recorded step ──Names──▶ translated call ──▶ scenario-client, one for each process ──▶ broker of the daemon
//!        │                                                           │
//!        └── recorded result ────────── compared ──────────── new result
//! ```
//! A process continues when it is woken as in the recording, whatever time that takes. The waker may be a replayed
//! process, an engine of the daemon, or another client of it. Only a wait beyond `wait_max` ends the replay.
//!
//! A call that was answered in a later step is made on a thread of its own, and reported when the replay comes to its
//! answer. A barrier after it keeps the order of the calls: the next one is made when it waits.

mod names;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use d3dkmt::{AcquireOutcome, Call, EventId, GpuSignal, NtStatus, Reply, WaitOutcome};
use dxgkrnl::{Answer, HostEvent, Input, ProcessId, VmId};
use proto::scenario_client::{BARRIER, EventNumber, Outcome, Report, Task};
use scenario::nt_handle_owners::NtHandleOwners;
use trace::Step;

use crate::artifacts::Artifacts;

use self::names::Names;
use super::local::spawn_scenario_client;
use super::nt_handle_transfer::Mailboxes;
use super::scenario_client::ScenarioClient;

/// Reasons why steps are left out.
const A_FAULT: &str = "a fault was injected";
const STATUS_OF_A_WAIT: &str = "a wait ended with an error, which its event does not show";

/// Thread of a scenario client for calls that were answered at once.
const CALLS: u32 = 0;
/// Thread of a scenario client that waits for events.
const EVENTS: u32 = 1;

/// A result that differs from the recorded one.
#[derive(Debug)]
pub struct Difference {
    pub sequence: u64,
    pub process: ProcessId,
    pub text: String,
}

/// The result of a replay.
#[derive(Debug, Default)]
pub struct PartialReplayReport {
    pub processes: u64,
    pub calls: u64,
    pub wakes: u64,
    pub differences: Vec<Difference>,
    /// Number of omitted steps, by reason.
    pub left_out: BTreeMap<Cow<'static, str>, u64>,
}

/// A process that stands in for a recorded process.
struct StandIn {
    scenario_client: ScenarioClient,
    vm: VmId,
    events: BTreeMap<EventId, Event>,
    /// Acquires that have not returned, by their events.
    acquiring: BTreeMap<EventId, Blocked>,
    /// Calls without an answer so far, by their requests.
    unanswered: BTreeMap<u64, Unanswered>,
    /// Threads that have made a call that waits, and are free.
    idle_threads: Vec<u32>,
    threads: u32,
}

/// A call on a thread of its own.
struct Blocked {
    thread: u32,
    tag: u64,
    /// The step of the call.
    sequence: u64,
}

struct Unanswered {
    call: Call,
    /// `None`: it was left out.
    blocked: Option<Blocked>,
}

impl StandIn {
    /// Makes a call that may wait, on a thread of its own. It is with the daemon when this returns.
    fn block(&mut self, sequence: u64, task: Task) -> anyhow::Result<Blocked> {
        let thread = self.idle_threads.pop().unwrap_or_else(|| {
            self.threads += 1;
            self.threads
        });
        let tag = self.scenario_client.order(thread, task)?;
        self.scenario_client.serve(Task::Barrier)?;
        Ok(Blocked { thread, tag, sequence })
    }
}

struct Event {
    number: EventNumber,
    /// Number of times that it was set and not yet waited for.
    set: u64,
    /// The latest call that named it, and its step.
    call: &'static str,
    sequence: u64,
}

/// A replay in progress.
pub struct PartialReplay<'a> {
    broker: &'a Path,
    artifacts: &'a Artifacts,
    /// The VMs whose processes are replayed; `None` is all.
    vms: Option<BTreeSet<VmId>>,
    /// How long nothing may come that came in the recording. Without it the replay waits for ever.
    wait_max: Option<Duration>,
    /// Something has not come.
    is_stopped: bool,
    stand_ins: BTreeMap<ProcessId, StandIn>,
    nt_handle_owners: NtHandleOwners<ProcessId>,
    mailboxes: Mailboxes,
    names: Names,
    played: PartialReplayReport,
}

impl<'a> PartialReplay<'a> {
    pub fn new(
        broker: &'a Path,
        artifacts: &'a Artifacts,
        vms: Option<BTreeSet<VmId>>,
        wait_max: Option<Duration>,
    ) -> PartialReplay<'a> {
        PartialReplay {
            broker,
            artifacts,
            vms,
            wait_max,
            is_stopped: false,
            stand_ins: BTreeMap::new(),
            nt_handle_owners: NtHandleOwners::default(),
            mailboxes: Mailboxes::default(),
            names: Names::default(),
            played: PartialReplayReport::default(),
        }
    }

    /// Replays the part of a step that belongs to replayed processes. `waits` is called before a wait that may take
    /// long.
    pub fn step(&mut self, step: &Step, waits: &mut dyn FnMut(ProcessId)) -> anyhow::Result<()> {
        if self.is_stopped {
            return Ok(());
        }
        match &step.input {
            Input::ProcessAttached { process, vm, name, .. } => self.start(*process, *vm, name)?,
            Input::ProcessGone { process } => self.end(*process)?,
            Input::VmDetached { vm } => {
                let of_vm = self.stand_ins.iter().filter(|(_, stand_in)| stand_in.vm == *vm);
                let of_vm: Vec<ProcessId> = of_vm.map(|(process, _)| *process).collect();
                of_vm.into_iter().try_for_each(|process| self.end(process))?;
            }
            Input::Call { process, request, call } if self.stand_ins.contains_key(process) => {
                self.call(step, *process, *request, call)?;
            }
            Input::DoorbellRung { process, .. } if self.stand_ins.contains_key(process) => {
                self.leave_out("a store to a doorbell has no C form");
            }
            Input::ProcessFrozen { process, .. } if self.stand_ins.contains_key(process) => {
                self.leave_out("a process was frozen or thawed");
            }
            Input::NtHandleClosed { token, .. } => {
                for proxy in self.nt_handle_owners.owners(*token).collect::<Vec<_>>() {
                    self.nt_handle_owners.close(*token, proxy);
                    self.scenario_client(proxy)?.serve(Task::CloseShare(*token))?;
                }
            }
            Input::Fault(_) => self.leave_out(A_FAULT),
            Input::VmPaused { vm, .. } | Input::VmAdapter { vm, .. } if self.plays(*vm) => {
                self.leave_out("a VM was paused, or its adapters changed");
            }
            // Inputs of the daemon's own hardware, clock and broker, and of processes that are not replayed.
            Input::VmAttached { .. }
            | Input::VmPaused { .. }
            | Input::VmAdapter { .. }
            | Input::GuestFeatures { .. }
            | Input::Call { .. }
            | Input::DoorbellRung { .. }
            | Input::ProcessFrozen { .. }
            | Input::FenceMemoryAdded { .. }
            | Input::FenceMemoryMapped { .. }
            | Input::MemoryChanged { .. }
            | Input::SystemTime { .. }
            | Input::Deadline => {}
        }
        // The first thing that has not come ends the replay, also among those of one step.
        for answer in &step.effects.answers {
            if self.is_stopped {
                return Ok(());
            }
            self.late_answer(answer, waits)?;
        }
        for event in &step.effects.events {
            if self.is_stopped {
                return Ok(());
            }
            self.wake(step.sequence, event, waits)?;
        }
        Ok(())
    }

    /// Ends the remaining processes in order, and returns the result.
    pub fn finish(mut self) -> anyhow::Result<PartialReplayReport> {
        for (_, stand_in) in std::mem::take(&mut self.stand_ins) {
            stand_in.scenario_client.end()?;
        }
        Ok(self.played)
    }

    /// Whether processes of a VM are replayed.
    fn plays(&self, vm: VmId) -> bool {
        self.vms.as_ref().is_none_or(|vms| vms.contains(&vm))
    }

    fn leave_out(&mut self, why: impl Into<Cow<'static, str>>) {
        *self.played.left_out.entry(why.into()).or_default() += 1;
    }

    fn is_different(&mut self, sequence: u64, process: ProcessId, text: String) {
        self.played.differences.push(Difference { sequence, process, text });
    }

    fn scenario_client(&mut self, process: ProcessId) -> anyhow::Result<&mut ScenarioClient> {
        let stand_in = self.stand_ins.get_mut(&process);
        stand_in
            .map(|stand_in| &mut stand_in.scenario_client)
            .ok_or_else(|| anyhow::anyhow!("p{} has ended", process.0))
    }

    fn start(&mut self, process: ProcessId, vm: VmId, name: &str) -> anyhow::Result<()> {
        if !self.plays(vm) {
            return Ok(());
        }
        let pipes = spawn_scenario_client(self.artifacts, self.broker, std::io::stderr().into())?;
        let mut scenario_client = ScenarioClient::new(name, pipes);
        // The first call attaches the process.
        scenario_client.serve(Task::Call { call: BARRIER, event: None })?;
        let stand_in = StandIn {
            scenario_client,
            vm,
            events: BTreeMap::new(),
            acquiring: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            idle_threads: Vec::new(),
            threads: EVENTS,
        };
        self.stand_ins.insert(process, stand_in);
        self.played.processes += 1;
        Ok(())
    }

    fn end(&mut self, process: ProcessId) -> anyhow::Result<()> {
        if let Some(stand_in) = self.stand_ins.remove(&process) {
            self.nt_handle_owners.end(process);
            stand_in.scenario_client.kill()?;
        }
        Ok(())
    }

    fn call(&mut self, step: &Step, process: ProcessId, request: u64, call: &Call) -> anyhow::Result<()> {
        let answer = step.effects.answers.iter();
        let then = answer.into_iter().find(|answer| (answer.process, answer.request) == (process, request));
        if then.is_some_and(|then| then.reply == Reply::FenceMemoryExhausted) {
            // The library requests more memory and calls again, in the replay as in the recording.
            return Ok(());
        }
        let mut call = call.clone();
        let why = match self.names.translate(process, &mut call) {
            Err(_) => Some("it names a handle that the replay did not create"),
            Ok(()) if matches!(call, Call::WatchAdapters { .. }) => Some("DXCore watches adapters by itself"),
            Ok(()) if matches!(call, Call::CancelWait { .. }) => Some("the library cancels waits by itself"),
            Ok(()) => self.hand_over(&call, process)?,
        };
        let is_unanswered = then.is_none() && request != 0;
        if let Some(why) = why {
            self.leave_out(why);
            then.into_iter().for_each(|then| self.names.lose(process, &then.reply));
            if let Some(stand_in) = self.stand_ins.get_mut(&process).filter(|_| is_unanswered) {
                stand_in.unanswered.insert(request, Unanswered { call, blocked: None });
            }
            return Ok(());
        }
        let event =
            event_of(&call).map(|event| self.event(step.sequence, process, &call, event)).transpose()?;
        let Some(stand_in) = self.stand_ins.get_mut(&process) else { return Ok(()) };
        if let (Call::AcquireKeyedMutex { event, .. }, Some(then)) = (&call, then)
            && matches!(then.reply, Reply::KeyedMutexAcquire { outcome: AcquireOutcome::Registered, .. })
        {
            let event = *event;
            let blocked = stand_in.block(step.sequence, Task::Call { call, event: None })?;
            stand_in.acquiring.insert(event, blocked);
            return Ok(());
        }
        if is_unanswered {
            let blocked = stand_in.block(step.sequence, Task::Call { call: call.clone(), event })?;
            stand_in.unanswered.insert(request, Unanswered { call, blocked: Some(blocked) });
            return Ok(());
        }
        let tag = stand_in.scenario_client.order(CALLS, Task::Call { call: call.clone(), event })?;
        let what = || format!("{} has not returned", call.name());
        let Some(now) = self.report(step.sequence, process, tag, what)? else { return Ok(()) };
        self.returned(step.sequence, process, &call, then, &now)
    }

    /// Compares a call that has returned.
    fn returned(
        &mut self,
        sequence: u64,
        process: ProcessId,
        call: &Call,
        then: Option<&Answer>,
        now: &Report,
    ) -> anyhow::Result<()> {
        self.played.calls += 1;
        if let Some(token) = call.nt_handle_made().filter(|_| now.status.is_success()) {
            self.nt_handle_owners.give(token, process);
        }
        match then {
            Some(then) => self.compare(sequence, process, call, then, now),
            None => Ok(()),
        }
    }

    /// Waits for a call that a thread of its own makes, once the recording has its answer.
    fn late_answer(&mut self, then: &Answer, waits: &mut dyn FnMut(ProcessId)) -> anyhow::Result<()> {
        let process = then.process;
        let stand_in = self.stand_ins.get_mut(&process);
        let late = stand_in.and_then(|stand_in| stand_in.unanswered.remove(&then.request));
        let Some(Unanswered { call, blocked }) = late else { return Ok(()) };
        let Some(blocked) = blocked else {
            self.names.lose(process, &then.reply);
            return Ok(());
        };
        waits(process);
        match self.report_of_blocked(process, &blocked, call.name())? {
            Some(now) => self.returned(blocked.sequence, process, &call, Some(then), &now),
            None => Ok(()),
        }
    }

    fn report_of_blocked(
        &mut self,
        process: ProcessId,
        blocked: &Blocked,
        call: &str,
    ) -> anyhow::Result<Option<Report>> {
        let what = || format!("{call} has not returned");
        let report = self.report(blocked.sequence, process, blocked.tag, what)?;
        if let Some(stand_in) = self.stand_ins.get_mut(&process).filter(|_| report.is_some()) {
            stand_in.idle_threads.push(blocked.thread);
        }
        Ok(report)
    }

    /// Waits for a report. `None`: it has not come, which is a difference that ends the replay.
    fn report(
        &mut self,
        sequence: u64,
        process: ProcessId,
        tag: u64,
        what: impl FnOnce() -> String,
    ) -> anyhow::Result<Option<Report>> {
        let wait_max = self.wait_max;
        let report = self.scenario_client(process)?.report_within(tag, wait_max)?;
        if let (None, Some(wait_max)) = (&report, wait_max) {
            self.is_stopped = true;
            let text = format!("{} within {wait_max:?}: the replay ends here", what());
            self.is_different(sequence, process, text);
        }
        Ok(report)
    }

    /// Gives the process the NT handle that the call opens. Returns a reason if that is not possible.
    fn hand_over(&mut self, call: &Call, to: ProcessId) -> anyhow::Result<Option<&'static str>> {
        let Some(token) = call.nt_handle_opened() else { return Ok(None) };
        if self.nt_handle_owners.lacks(token, to) {
            let Some(from) = self.nt_handle_owners.owners(token).next() else { return Ok(None) };
            let Some(taker) = self.stand_ins.get_mut(&to) else { return Ok(None) };
            let mailbox = self.mailboxes.of(to.0, &mut taker.scenario_client)?;
            self.scenario_client(from)?.serve(Task::SendShare { token, mailbox })?;
            self.nt_handle_owners.give(token, to);
        }
        let has = self.nt_handle_owners.has(token, to);
        Ok((!has).then_some("it opens an NT handle of a process that is not replayed"))
    }

    /// The event of this process that stands for the recorded one.
    fn event(
        &mut self,
        sequence: u64,
        process: ProcessId,
        call: &Call,
        event: EventId,
    ) -> anyhow::Result<EventNumber> {
        let Some(stand_in) = self.stand_ins.get_mut(&process) else {
            anyhow::bail!("p{} has ended", process.0)
        };
        if let Some(known) = stand_in.events.get_mut(&event) {
            (known.call, known.sequence) = (call.name(), sequence);
            return Ok(known.number);
        }
        let number = stand_in.events.len() as u64 + 1;
        stand_in.scenario_client.serve(Task::NewEvent(number))?;
        stand_in.events.insert(event, Event { number, set: 0, call: call.name(), sequence });
        Ok(number)
    }

    fn compare(
        &mut self,
        sequence: u64,
        process: ProcessId,
        call: &Call,
        then: &Answer,
        now: &Report,
    ) -> anyhow::Result<()> {
        let reply = match &now.outcome {
            Outcome::Reply(reply) => reply,
            Outcome::NoCForm => {
                self.leave_out(format!("it cannot be made through the C ABI: {}", call.name()));
                self.names.lose(process, &then.reply);
                return Ok(());
            }
            Outcome::Nothing | Outcome::Value(_) => &Reply::None,
        };
        // The first answer to a wait is between the library and the host, so it may differ.
        let is_wait = matches!(call, Call::WaitFromCpu { .. });
        let same =
            then.status == now.status || is_wait && then.status.is_success() && now.status.is_success();
        if !same {
            if then.status.is_success() {
                self.names.lose(process, &then.reply);
            }
            let text = format!("{}: was {}, is {}", call.name(), then.status, now.status);
            self.is_different(sequence, process, text);
        } else if now.status.is_success()
            && let Err(text) = self.names.learn(process, &then.reply, reply)
        {
            self.is_different(sequence, process, format!("{}: {text}", call.name()));
        }
        let at_once = matches!(then.reply, Reply::Wait(WaitOutcome::Satisfied)) && now.status.is_success();
        if at_once && let Call::WaitFromCpu { event, .. } = call {
            self.await_event(process, *event)?;
        }
        Ok(())
    }

    /// Waits for the event that woke a replayed process in the recording.
    fn wake(
        &mut self,
        sequence: u64,
        woken: &HostEvent,
        waits: &mut dyn FnMut(ProcessId),
    ) -> anyhow::Result<()> {
        let Some(stand_in) = self.stand_ins.get_mut(&woken.process) else { return Ok(()) };
        // Guest events are set by calls of the replay; no thread waits for them.
        let Some(event) = woken.target.event() else { return Ok(()) };
        if let Some(blocked) = stand_in.acquiring.remove(&event) {
            waits(woken.process);
            let now = self.report_of_blocked(woken.process, &blocked, "AcquireKeyedMutex")?;
            let Some(now) = now else { return Ok(()) };
            (self.played.calls, self.played.wakes) = (self.played.calls + 1, self.played.wakes + 1);
            if now.status != woken.status {
                let text = format!("AcquireKeyedMutex: was {}, is {}", woken.status, now.status);
                self.is_different(sequence, woken.process, text);
            }
            return Ok(());
        }
        if stand_in.events.contains_key(&event) {
            if woken.status != NtStatus::SUCCESS {
                self.leave_out(STATUS_OF_A_WAIT);
                // What ended the wait may be a fault that the replay does not have.
                if self.played.left_out.contains_key(A_FAULT) {
                    return Ok(());
                }
            }
            waits(woken.process);
            self.await_event(woken.process, event)?;
        }
        Ok(())
    }

    /// Waits for an event that was set in the recording.
    fn await_event(&mut self, process: ProcessId, event: EventId) -> anyhow::Result<()> {
        let Some(stand_in) = self.stand_ins.get_mut(&process) else { return Ok(()) };
        let Some(Event { number, set, call, sequence }) = stand_in.events.get(&event) else { return Ok(()) };
        let (mut set, call, sequence) = (*set, *call, *sequence);
        if set == 0 {
            let tag = stand_in.scenario_client.order(EVENTS, Task::AwaitEvent(*number))?;
            let what = || format!("the event of {call} has not been set");
            let report = self.report(sequence, process, tag, what)?;
            let Some(Report { outcome, .. }) = report else { return Ok(()) };
            if let Outcome::Value(times) = outcome {
                set = times;
            }
        }
        if let Some(event) = self.stand_ins.get_mut(&process).and_then(|of| of.events.get_mut(&event)) {
            event.set = set.saturating_sub(1);
        }
        self.played.wakes += 1;
        Ok(())
    }
}

/// Returns the event whose HANDLE is an argument of a call.
fn event_of(call: &Call) -> Option<EventId> {
    match call {
        Call::WaitFromCpu { event, .. } => Some(*event),
        Call::SignalFromGpu { signal: GpuSignal::CpuEvent { event }, .. } => Some(*event),
        Call::CreateSynchronizationObject { info, .. } => info.event,
        _ => None,
    }
}
