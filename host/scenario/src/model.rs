//! The model backend: the kernel alone. A call is one step; wakes arrive at once, unless the process is frozen or its
//! stream held.

use d3dkmt::{
    AcquireOutcome, Call, EventId, GpuSignal, Handle, NtStatus, Reply, ShareToken, WaitOutcome, WakeTarget,
};
use drivers::Registry;
use dxgkrnl::{Effects, HostEvent, Input, Nanos, PlantedBug};

use crate::fence_slots::{FenceCall, FenceSlots};
use crate::host::{Host, KernelRun, SLOTS, answered_by_host};
use crate::limits::DEADLINES_MAX;
use crate::program::{Backend, Fault, Process, Program, Thread, Vm};
use crate::world::{Answer, Done, Request, World, next_deadline_of, unsupported};

/// Target of a wake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Thread(Thread),
    /// A thread that waits for a keyed mutex.
    Acquire {
        thread: Thread,
        mutex: Handle,
    },
    Event {
        event: u32,
        each_time: bool,
    },
}

/// A process of the scenario.
#[derive(Default)]
struct ClientProcess {
    attached: bool,
    /// Its stream is lost: calls answer DEVICE_REMOVED.
    lost: bool,
    frozen: bool,
    /// Its VM is paused.
    paused: bool,
    held: bool,
    next_event: u64,
    targets: Vec<(EventId, Target)>,
    events: Vec<(u32, u64)>,
    wakes: u64,
    /// Its fence memory, which stays after its stream is lost, and the slot of each fence.
    memory: Vec<u64>,
    slots: FenceSlots,
    /// Wakes that are held back.
    undelivered: Vec<HostEvent>,
    /// Requests made while its stream is held.
    waiting: Vec<(Thread, Request)>,
    /// Calls that are answered later, by request number.
    unanswered: Vec<(u64, Thread)>,
    /// Late answers that are held back.
    late: Vec<(Thread, Answer)>,
}

impl ClientProcess {
    /// Whether it takes steps.
    fn runs(&self) -> bool {
        !self.frozen && !self.paused
    }

    fn receives_nothing(&self) -> bool {
        self.held || !self.runs()
    }
}

/// The world of one run.
pub struct ModelWorld<'a> {
    program: &'a Program,
    host: Host<'a>,
    guests: Vec<ClientProcess>,
    answers: Vec<Option<Answer>>,
    /// Threads that have acquired a keyed mutex and not yet read its data.
    acquired: Vec<(Thread, Handle)>,
    request: u64,
}

impl<'a> ModelWorld<'a> {
    pub fn new(program: &'a Program, planted: Option<PlantedBug>) -> ModelWorld<'a> {
        ModelWorld::with_drivers(program, &Registry::default(), planted)
    }

    /// As [`ModelWorld::new`], with your own drivers.
    pub fn with_drivers(
        program: &'a Program,
        registry: &Registry,
        planted: Option<PlantedBug>,
    ) -> ModelWorld<'a> {
        ModelWorld {
            program,
            host: Host::new(program, registry.clone(), planted),
            guests: program.processes.iter().map(|_| ClientProcess::default()).collect(),
            answers: vec![None; program.threads.len()],
            acquired: Vec::new(),
            request: 0,
        }
    }

    /// Has the kernel saved and restored before each step.
    #[must_use]
    pub fn restoring(mut self) -> Self {
        self.host.restores = true;
        self
    }

    /// Switches off the checker, which reads all fences after each step, for callers that do not need it.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.host.checks = false;
        self
    }

    /// Has the checker compare the kernel's tables at times only, so that a run takes time by its steps and not by its
    /// steps times its waits.
    #[must_use]
    pub fn seldom_checked(mut self) -> Self {
        self.host.seldom = true;
        self
    }

    /// Records the kernel's inputs and effects: see [`ModelWorld::steps`].
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.host.keep_steps();
        self
    }

    /// Returns the recorded inputs and effects of the last daemon.
    pub fn steps(&self) -> &[(Nanos, Input, Effects)] {
        self.host.steps.as_deref().unwrap_or_default()
    }

    /// Returns what was recorded, by daemon.
    pub fn into_runs(self) -> Vec<KernelRun> {
        self.host.into_runs()
    }

    fn input(&mut self, input: Input) {
        self.host.input(input);
        for store in std::mem::take(&mut self.host.effects.stores) {
            let at = self.host.index_of(store.process);
            let (Some(guest), slot) = (self.guests.get_mut(at), store.slot as usize) else { continue };
            let length = guest.memory.len().max(slot + 1);
            guest.memory.resize(length, 0);
            guest.memory[slot] = store.value;
        }
        for event in std::mem::take(&mut self.host.effects.events) {
            let at = self.host.index_of(event.process);
            let Some(guest) = self.guests.get_mut(at) else { continue };
            guest.wakes += 1;
            if guest.receives_nothing() {
                guest.undelivered.push(event);
            } else {
                deliver(guest, event, &mut self.answers, &mut self.acquired);
            }
        }
        self.take_late_answers();
    }

    /// Handles answers to calls of earlier steps.
    fn take_late_answers(&mut self) {
        for at in (0..self.host.effects.answers.len()).rev() {
            let answer = &self.host.effects.answers[at];
            let (of, request) = (self.host.index_of(answer.process), answer.request);
            let Some(guest) = self.guests.get_mut(of) else { continue };
            let Some(position) = guest.unanswered.iter().position(|(known, _)| *known == request) else {
                continue;
            };
            let (_, thread) = guest.unanswered.remove(position);
            let dxgkrnl::Answer { status, reply, .. } = self.host.effects.answers.remove(at);
            let answer = Answer { status, reply };
            match guest.receives_nothing() {
                true => guest.late.push((thread, answer)),
                false => self.answers[thread.index()] = Some(answer),
            }
        }
    }

    /// Reads the data of acquired keyed mutexes, as the library does after the call.
    fn read_acquired(&mut self) {
        for (thread, mutex) in std::mem::take(&mut self.acquired) {
            let Some(answer) = self.call(thread, Call::ReadKeyedMutex { mutex }) else { continue };
            self.answers[thread.index()] = Some(match answer.reply {
                Reply::KeyedMutexData { fence_value, private_data } => {
                    acquired(NtStatus::SUCCESS, AcquireOutcome::Acquired { fence_value }, private_data)
                }
                _ => answer,
            });
        }
    }

    /// Makes a call; `None` if the answer comes later.
    fn call(&mut self, thread: Thread, mut call: Call) -> Option<Answer> {
        let process = self.program.process_of(thread);
        let id = self.host.id(process);
        if !self.host.has_handle_for(id, &call) {
            without_handle(&mut call);
        }
        loop {
            self.request += 1;
            let one_way = self.program.is_asynchronous(process) && is_submission(&call);
            let request = if one_way { 0 } else { self.request };
            self.input(Input::Call { process: id, request, call: call.clone() });
            if one_way {
                return Some(Answer { status: NtStatus::SUCCESS, reply: Reply::None });
            }
            let Some(answer) = self.host.effects.answers.pop() else {
                self.guests[process.index()].unanswered.push((request, thread));
                return None;
            };
            if answer.reply == Reply::FenceMemoryExhausted {
                self.input(Input::FenceMemoryAdded { process: id, slots: SLOTS });
                continue;
            }
            return Some(Answer { status: answer.status, reply: answer.reply });
        }
    }

    fn perform(&mut self, thread: Thread, request: Request) {
        let process = self.program.process_of(thread);
        let guest = &mut self.guests[process.index()];
        let status = match request {
            Request::NewEvent { event } => {
                guest.events.push((event, 0));
                NtStatus::SUCCESS
            }
            Request::Ring { queue, last_queued, buffers } => {
                let attached = guest.attached;
                if attached {
                    let process = self.host.id(process);
                    self.input(Input::DoorbellRung { process, queue, last_queued, buffers });
                }
                NtStatus::SUCCESS
            }
            Request::CloseShare { token } => {
                let (status, closed) = self.host.close(self.host.id(process), token);
                closed.into_iter().for_each(|input| self.input(input));
                status
            }
            Request::Store { allocation, first, count, word } => {
                let id = self.host.id(process);
                self.host.memory().store(id, allocation, (first, count), word)
            }
            Request::Call { .. } if guest.lost => NtStatus::DEVICE_REMOVED,
            Request::Call { call, event } => return self.perform_call(thread, call, event),
        };
        self.answers[thread.index()] = Some(Answer { status, reply: Reply::None });
    }

    /// Makes a call; its answer is available unless the thread sleeps.
    fn perform_call(&mut self, thread: Thread, mut call: Call, event: Option<u32>) {
        let process = self.program.process_of(thread);
        // The library refuses this call (GPV-025), and reserved flags of a one-way call.
        if !call.counts_fit() || call.has_reserved_flags() && self.program.is_asynchronous(process) {
            let refused = Answer { status: NtStatus::INVALID_PARAMETER, reply: Reply::None };
            self.answers[thread.index()] = Some(refused);
            return;
        }
        let guest = &mut self.guests[process.index()];
        let id = EventId(guest.next_event + 1);
        let target = match (&mut call, event) {
            (Call::WaitFromCpu { event: named, .. }, event) => {
                *named = id;
                Some(event.map_or(Target::Thread(thread), |event| Target::Event { event, each_time: false }))
            }
            (Call::AcquireKeyedMutex { event: named, mutex, .. }, _) => {
                *named = id;
                Some(Target::Acquire { thread, mutex: *mutex })
            }
            (Call::SignalFromGpu { signal: GpuSignal::CpuEvent { event: named }, .. }, Some(event)) => {
                *named = id;
                Some(Target::Event { event, each_time: false })
            }
            (Call::CreateSynchronizationObject { info, .. }, Some(event)) => {
                info.event = Some(id);
                Some(Target::Event { event, each_time: true })
            }
            _ => None,
        };
        if let Some(target) = target {
            guest.next_event += 1;
            guest.targets.push((id, target));
        }
        let of_fence = FenceCall::new(&call);
        let Some(answer) = self.call(thread, call) else { return };
        let guest = &mut self.guests[process.index()];
        guest.slots.answered(of_fence, &answer);
        let sleeps = matches!(
            answer.reply,
            Reply::KeyedMutexAcquire { outcome: AcquireOutcome::Registered, .. }
                | Reply::Wait(WaitOutcome::Registered)
        );
        let is_over = match target {
            Some(Target::Acquire { .. }) => !sleeps,
            _ => answer.reply == Reply::Wait(WaitOutcome::Satisfied),
        };
        let over = !answer.status.is_success() || is_over;
        if over {
            guest.targets.retain(|(known, _)| *known != id);
        }
        match (target, &answer.reply) {
            (Some(Target::Event { event, .. }), Reply::Wait(WaitOutcome::Satisfied)) => set(guest, event),
            // The thread sleeps.
            (Some(Target::Thread(_) | Target::Acquire { .. }), _) if sleeps => return,
            _ => {}
        }
        self.answers[thread.index()] = Some(answer);
    }

    /// Delivers what was held back.
    fn catch_up(&mut self, process: Process) {
        let guest = &mut self.guests[process.index()];
        if guest.lost && guest.runs() {
            return self.report_lost_stream(process);
        }
        if guest.receives_nothing() {
            return;
        }
        for event in std::mem::take(&mut guest.undelivered) {
            deliver(guest, event, &mut self.answers, &mut self.acquired);
        }
        for (thread, answer) in std::mem::take(&mut guest.late) {
            self.answers[thread.index()] = Some(answer);
        }
        for (thread, request) in std::mem::take(&mut guest.waiting) {
            self.perform(thread, request);
        }
    }

    /// Handles a process that the kernel has removed.
    fn detach(&mut self, process: Process) {
        let guest = &mut self.guests[process.index()];
        if std::mem::take(&mut guest.attached) {
            let process = self.host.id(process);
            self.input(Input::ProcessGone { process });
        }
    }

    /// Removes a process and everything that it had.
    fn end(&mut self, process: Process) {
        self.host.closes(self.host.id(process)).into_iter().for_each(|input| self.input(input));
        self.detach(process);
        let id = self.host.id(process);
        self.host.end_memory(id);
        let guest = &mut self.guests[process.index()];
        guest.targets.clear();
        guest.undelivered.clear();
        guest.waiting.clear();
        guest.unanswered.clear();
        guest.late.clear();
    }

    /// Breaks the stream: pending calls end with DEVICE_REMOVED.
    fn cut(&mut self, process: Process) {
        self.detach(process);
        let guest = &mut self.guests[process.index()];
        guest.lost = true;
        guest.undelivered.clear();
        if guest.runs() {
            self.report_lost_stream(process);
        }
    }

    /// Reports the lost stream to the process; to a frozen one when it is thawed.
    fn report_lost_stream(&mut self, process: Process) {
        let guest = &mut self.guests[process.index()];
        let removed = Answer { status: NtStatus::DEVICE_REMOVED, reply: Reply::None };
        let waiting = std::mem::take(&mut guest.waiting).into_iter().map(|(thread, _)| thread);
        let late = std::mem::take(&mut guest.late).into_iter().map(|(thread, _)| thread);
        let unanswered = std::mem::take(&mut guest.unanswered).into_iter().map(|(_, thread)| thread);
        for thread in waiting.chain(late).chain(unanswered) {
            self.answers[thread.index()] = Some(removed.clone());
        }
        for (_, target) in std::mem::take(&mut self.guests[process.index()].targets) {
            match target {
                Target::Thread(thread) | Target::Acquire { thread, .. } => {
                    self.answers[thread.index()] = Some(removed.clone())
                }
                // A wait or a CPU_NOTIFICATION: its event is set, so that a sleeping thread notices.
                Target::Event { event, .. } => set(&mut self.guests[process.index()], event),
            }
        }
    }

    /// Pauses a VM with its processes, or resumes them.
    fn pause(&mut self, vm: Vm, paused: bool) {
        self.input(self.host.vm_paused(vm, paused));
        for at in 0..self.guests.len() {
            if self.program.processes[at].vm == Some(vm) {
                self.guests[at].paused = paused;
                self.catch_up(Process(at as u32));
            }
        }
    }

    fn fault_of(&mut self, fault: &Fault) -> Done {
        match *fault {
            Fault::Kill(process) => self.end(process),
            Fault::Cut(process) => self.cut(process),
            Fault::Freeze(process) => self.guests[process.index()].frozen = true,
            Fault::Thaw(process) => {
                self.guests[process.index()].frozen = false;
                self.catch_up(process);
            }
            Fault::Hold(process) => self.guests[process.index()].held = true,
            Fault::Release(process) => {
                self.guests[process.index()].held = false;
                self.catch_up(process);
            }
            Fault::Delay(..) | Fault::Reorder => {
                return unsupported("has no link that takes time or orders messages");
            }
            Fault::CrashVm(vm) => {
                self.input(self.host.vm_detached(vm));
                for at in 0..self.guests.len() {
                    if self.program.processes[at].vm == Some(vm) {
                        self.guests[at].attached = false;
                        self.end(Process(at as u32));
                    }
                }
            }
            Fault::RestartDaemon => {
                for at in 0..self.guests.len() {
                    // Processes that are declared later attach to the new daemon.
                    if std::mem::take(&mut self.guests[at].attached) {
                        self.cut(Process(at as u32));
                    }
                }
                self.host.restart();
                for vm in 0..self.program.vms.len() as u32 {
                    self.start_vm(Vm(vm))?;
                }
            }
            Fault::PauseVm(vm) => self.pause(vm, true),
            Fault::ResumeVm(vm) => self.pause(vm, false),
            Fault::VmAdapter { vm, adapter, added } => self.input(self.host.vm_adapter(vm, adapter, added)),
            Fault::SetClock(since_start) => {
                let input = self.host.clock_set(since_start);
                self.input(input);
            }
            Fault::Hardware(fault) => self.input(Input::Fault(fault)),
            Fault::Fill(_) => unreachable!("done by the runner"),
        }
        Ok(())
    }
}

/// Replaces the NT handle of a call by an invalid one.
fn without_handle(call: &mut Call) {
    if let Call::OpenSyncObject { token, .. }
    | Call::OpenNativeFence { token, .. }
    | Call::OpenSyncFile { token, .. }
    | Call::WaitSyncFile { token, .. }
    | Call::OpenResourceFromNtHandle { token, .. }
    | Call::OpenKeyedMutexFromNtHandle { token, .. } = call
    {
        *token = ShareToken([0; 16]);
    }
}

fn set(guest: &mut ClientProcess, event: u32) {
    if let Some((_, count)) = guest.events.iter_mut().find(|(known, _)| *known == event) {
        *count += 1;
    }
}

fn acquired(status: NtStatus, outcome: AcquireOutcome, private_data: Vec<u8>) -> Answer {
    Answer { status, reply: Reply::KeyedMutexAcquire { outcome, private_data } }
}

fn deliver(
    guest: &mut ClientProcess,
    wake: HostEvent,
    answers: &mut [Option<Answer>],
    reading: &mut Vec<(Thread, Handle)>,
) {
    let Some(at) = guest.targets.iter().position(|(id, _)| WakeTarget::from(*id) == wake.target) else {
        return;
    };
    match guest.targets[at].1 {
        Target::Thread(thread) => {
            guest.targets.remove(at);
            let reply = Reply::Wait(WaitOutcome::Satisfied);
            answers[thread.index()] = Some(Answer { status: wake.status, reply });
        }
        Target::Acquire { thread, mutex } => {
            guest.targets.remove(at);
            // Only the owner gets the data of the mutex (W-192).
            let none = Vec::new();
            answers[thread.index()] = match wake.status {
                NtStatus::SUCCESS => {
                    reading.push((thread, mutex));
                    return;
                }
                NtStatus::TIMEOUT => {
                    Some(acquired(wake.status, AcquireOutcome::TimedOut { fence_value: 0 }, none))
                }
                NtStatus::ABANDONED => {
                    Some(acquired(wake.status, AcquireOutcome::Abandoned { fence_value: 0 }, none))
                }
                status => Some(Answer { status, reply: Reply::None }),
            };
        }
        Target::Event { event, each_time } => {
            if !each_time {
                guest.targets.remove(at);
            }
            set(guest, event);
        }
    }
}

/// Whether a call is one-way with asynchronous submission.
fn is_submission(call: &Call) -> bool {
    matches!(
        call,
        Call::SubmitCommand { .. }
            | Call::SignalFromGpu { .. }
            | Call::WaitFromGpu { .. }
            | Call::WaitFromGpuLegacy { .. }
            | Call::SubmitCommandToHwQueue { .. }
            | Call::SubmitSignalToHwQueue { .. }
            | Call::SubmitWaitToHwQueue { .. }
    )
}

impl World for ModelWorld<'_> {
    fn backend(&self) -> Backend {
        Backend::Model
    }

    fn start_vm(&mut self, vm: Vm) -> Done {
        self.input(self.host.vm_attached(vm));
        Ok(())
    }

    fn start_process(&mut self, process: Process) -> Done {
        self.host.process_attached(process).into_iter().for_each(|input| self.input(input));
        self.guests[process.index()].attached = true;
        Ok(())
    }

    fn start_thread(&mut self, _thread: Thread) -> Done {
        Ok(())
    }

    fn exit(&mut self, process: Process) -> Done {
        self.end(process);
        self.read_acquired();
        Ok(())
    }

    fn begin(&mut self, thread: Thread, request: Request) -> Done {
        let process = self.program.process_of(thread);
        let guest = &mut self.guests[process.index()];
        let is_call = matches!(request, Request::Call { .. });
        if guest.held && is_call && !guest.lost {
            guest.waiting.push((thread, request));
        } else {
            self.perform(thread, request);
            self.read_acquired();
        }
        Ok(())
    }

    fn returned(&mut self, thread: Thread) -> Option<Answer> {
        self.answers[thread.index()].take()
    }

    /// The only move is the kernel's work that is due now.
    fn moves(&self) -> usize {
        usize::from(self.host.is_due())
    }

    fn make_move(&mut self, _which: usize) -> Done {
        self.input(Input::Deadline);
        self.read_acquired();
        Ok(())
    }

    fn advance(&mut self, nanos: Nanos) -> Done {
        let end = self.host.now + nanos;
        let mut left = DEADLINES_MAX;
        while let Some(due) = self.host.due(end) {
            left = next_deadline_of(left)?;
            self.host.now = due;
            self.input(Input::Deadline);
            self.read_acquired();
        }
        self.host.now = end;
        Ok(())
    }

    fn fault(&mut self, fault: &Fault) -> Done {
        let done = self.fault_of(fault);
        self.read_acquired();
        done
    }

    fn value(&mut self, process: Process, object: Handle) -> Done<Option<u64>> {
        let guest = &self.guests[process.index()];
        Ok(guest.slots.of(object).and_then(|slot| guest.memory.get(slot as usize)).copied())
    }

    fn slot(&mut self, process: Process, slot: u32) -> Done<Option<u64>> {
        Ok(self.guests[process.index()].memory.get(slot as usize).copied())
    }

    fn take_event(&mut self, process: Process, event: u32) -> Done<u64> {
        let events = &mut self.guests[process.index()].events;
        let known = events.iter_mut().find(|(known, _)| *known == event);
        Ok(known.map_or(0, |(_, count)| std::mem::take(count)))
    }

    fn messages(&mut self, _process: Process) -> Done<Result<u64, &'static str>> {
        Ok(Err("this backend has no messages to count"))
    }

    fn wakes(&mut self, process: Process) -> u64 {
        self.guests[process.index()].wakes
    }

    answered_by_host!();
}
