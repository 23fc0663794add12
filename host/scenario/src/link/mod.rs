//! The link backend: the real client core of a guest and the kernel, with a simulated stream between them.
//!
//! ```text
//!   Session (guest/client) ──frames──▶ [in transit to the host] ──▶ kernel ──▶ checker
//!        ▲       ▲                                                    │
//!        │       └──── [in transit to the guest] ◀── answers, wakes ──┤
//!        └── fence memory ◀─────────────────────────── stores, at once ┘
//! ```
//!
//! Each direction of each process's stream keeps its order. The runner's chooser decides which stream is served next
//! ([`World::moves`]), or whether the kernel does work that is due now. With a seed other than 0, bytes also arrive in
//! pieces of any size. A store is visible at once, while answers and wakes are still in transit, as with shared memory.

mod client_process;
mod link_calls;

use d3dkmt::{Call, Handle, NtStatus, Reply};
use drivers::Registry;
use dxgkrnl::{Input, Nanos, PlantedBug, ProcessId};

use crate::choose::Random;
use crate::host::{Host, KernelRun, SLOTS, answered_by_host};
use crate::limits::DEADLINES_MAX;
use crate::program::{Backend, Fault, Process, Program, Thread, Vm};
use crate::world::{Answer, Done, Request, World, next_deadline_of};

use client_process::ClientProcess;

/// Direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    ToHost,
    ToGuest,
}

/// The world of one run.
pub struct LinkWorld<'a> {
    program: &'a Program,
    host: Host<'a>,
    guests: Vec<Option<ClientProcess>>,
    answers: Vec<Option<Answer>>,
    /// Draws the sizes of pieces; with `None` frames arrive whole.
    pieces: Option<Random>,
    reversed: bool,
}

impl<'a> LinkWorld<'a> {
    /// With `seed` 0 every frame arrives whole.
    pub fn new(program: &'a Program, planted: Option<PlantedBug>, seed: u64) -> LinkWorld<'a> {
        LinkWorld::with_drivers(program, &Registry::default(), planted, seed)
    }

    /// As [`LinkWorld::new`], with your own drivers.
    pub fn with_drivers(
        program: &'a Program,
        registry: &Registry,
        planted: Option<PlantedBug>,
        seed: u64,
    ) -> LinkWorld<'a> {
        LinkWorld {
            program,
            host: Host::new(program, registry.clone(), planted),
            guests: program.processes.iter().map(|_| None).collect(),
            answers: vec![None; program.threads.len()],
            pieces: (seed != 0).then(|| Random::new(seed)),
            reversed: false,
        }
    }

    /// Records the kernel's inputs and effects: see [`LinkWorld::into_runs`].
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.host.keep_steps();
        self
    }

    /// Returns what was recorded, by daemon.
    pub fn into_runs(self) -> Vec<KernelRun> {
        self.host.into_runs()
    }

    fn guest_of(&mut self, process: ProcessId) -> Option<&mut ClientProcess> {
        let at = self.host.index_of(process);
        self.guests.get_mut(at)?.as_mut()
    }

    /// Runs one step of the kernel; its stores are done, and its messages are in transit.
    fn input(&mut self, input: Input) {
        self.host.input(input);
        let now = self.host.now;
        let mut effects = std::mem::take(&mut self.host.effects);
        for store in effects.stores.drain(..) {
            if let Some(guest) = self.guest_of(store.process) {
                guest.store(store.slot, store.value);
            }
        }
        for answer in effects.answers.drain(..) {
            if let Some(guest) = self.guest_of(answer.process) {
                guest.answer(now, &answer);
            }
        }
        for event in effects.events.drain(..) {
            if let Some(guest) = self.guest_of(event.process) {
                guest.wake(now, &event);
            }
        }
        self.host.effects = effects;
    }

    /// Returns every stream on which something can arrive now, in the order in which they are served.
    fn arrivals(&self) -> Vec<(usize, Direction)> {
        let now = self.host.now;
        let mut arrivals = Vec::new();
        for (at, guest) in self.guests.iter().enumerate() {
            let Some(guest) = guest else { continue };
            for direction in [Direction::ToHost, Direction::ToGuest] {
                if guest.can_arrive(direction, now) {
                    arrivals.push((at, direction));
                }
            }
        }
        if self.reversed {
            arrivals.reverse();
        }
        arrivals
    }

    fn arrive(&mut self, at: usize, direction: Direction) {
        let now = self.host.now;
        let pieces = &mut self.pieces;
        let Some(guest) = self.guests[at].as_mut() else { return };
        let bytes = guest.take_piece(direction, now, |length| match pieces {
            Some(random) => match random.below(3) {
                0 => 1 + random.below(length as u64) as usize,
                _ => length,
            },
            None => length,
        });
        match direction {
            Direction::ToGuest => guest.receive(&bytes),
            Direction::ToHost => {
                let process = self.host.id(Process(at as u32));
                let calls = match self.guests[at].as_mut() {
                    Some(guest) => guest.calls(&bytes),
                    None => Vec::new(),
                };
                for (request, call) in calls {
                    self.input(Input::Call { process, request, call });
                }
            }
        }
        self.go_on(at);
    }

    /// Runs the threads of a process until they block.
    fn go_on(&mut self, at: usize) {
        loop {
            let now = self.host.now;
            let process = self.host.id(Process(at as u32));
            let Some(guest) = self.guests[at].as_mut() else { return };
            guest.poll(now, &mut self.answers);
            let Some(slots) = guest.memory_wanted() else { return };
            self.input(Input::FenceMemoryAdded { process, slots });
            if let Some(guest) = self.guests[at].as_mut() {
                guest.grant_memory();
            }
        }
    }

    /// Handles a process that the kernel has removed.
    fn detach(&mut self, at: usize) {
        let attached = self.guests[at].as_mut().is_some_and(|guest| std::mem::take(&mut guest.attached));
        if attached {
            let process = self.host.id(Process(at as u32));
            self.input(Input::ProcessGone { process });
        }
    }

    fn end(&mut self, process: Process) {
        self.host.closes(self.host.id(process)).into_iter().for_each(|input| self.input(input));
        self.detach(process.index());
        let id = self.host.id(process);
        self.host.end_memory(id);
        self.guests[process.index()] = None;
    }

    /// Pauses a VM with its processes, or resumes them.
    fn pause(&mut self, vm: Vm, paused: bool) {
        self.input(self.host.vm_paused(vm, paused));
        for at in 0..self.guests.len() {
            if self.program.processes[at].vm == Some(vm) {
                if let Some(guest) = self.guests[at].as_mut() {
                    guest.paused = paused;
                }
                self.go_on(at);
            }
        }
    }

    /// Breaks the stream at both ends.
    fn cut(&mut self, at: usize) {
        self.detach(at);
        if let Some(guest) = self.guests[at].as_mut() {
            guest.lose();
        }
        self.go_on(at);
    }

    /// Delivers everything that can arrive at this time, in the plain order.
    fn drain(&mut self) {
        while let Some((at, direction)) = self.arrivals().first().copied() {
            self.arrive(at, direction);
        }
    }
}

impl World for LinkWorld<'_> {
    fn backend(&self) -> Backend {
        Backend::Link
    }

    fn start_vm(&mut self, vm: Vm) -> Done {
        self.input(self.host.vm_attached(vm));
        Ok(())
    }

    fn start_process(&mut self, process: Process) -> Done {
        let id = self.host.id(process);
        self.host.process_attached(process).into_iter().for_each(|input| self.input(input));
        let status_slot = self.host.kernel.status_slot(id);
        let guest = ClientProcess::new(id, SLOTS, status_slot, self.program.is_asynchronous(process));
        self.guests[process.index()] = Some(guest);
        Ok(())
    }

    fn start_thread(&mut self, _thread: Thread) -> Done {
        Ok(())
    }

    fn exit(&mut self, process: Process) -> Done {
        self.end(process);
        Ok(())
    }

    fn begin(&mut self, thread: Thread, request: Request) -> Done {
        let at = self.program.process_of(thread).index();
        let Some(guest) = self.guests[at].as_mut() else { return Ok(()) };
        match request {
            Request::NewEvent { event } => {
                guest.new_event(event);
                self.answers[thread.index()] = Some(Answer { status: NtStatus::SUCCESS, reply: Reply::None });
            }
            Request::Store { allocation, first, count, word } => {
                let id = self.host.id(Process(at as u32));
                let status = self.host.memory().store(id, allocation, (first, count), word);
                self.answers[thread.index()] = Some(Answer { status, reply: Reply::None });
            }
            // A doorbell is memory, so no message is in transit.
            Request::Ring { queue, last_queued, buffers } => {
                let attached = guest.attached;
                if attached {
                    let process = self.host.id(Process(at as u32));
                    self.input(Input::DoorbellRung { process, queue, last_queued, buffers });
                }
                self.answers[thread.index()] = Some(Answer { status: NtStatus::SUCCESS, reply: Reply::None });
            }
            // An NT handle is a descriptor: closing it is no call. When the last one is closed, the broker informs the
            // host.
            Request::CloseShare { token } => {
                let (status, closed) = self.host.close(self.host.id(Process(at as u32)), token);
                closed.into_iter().for_each(|input| self.input(input));
                self.answers[thread.index()] = Some(Answer { status, reply: Reply::None });
            }
            Request::Call { call, .. }
                if !self.host.has_handle_for(self.host.id(Process(at as u32)), &call) =>
            {
                let status = match call {
                    Call::OpenSyncObject { device, legacy: false, .. }
                    | Call::OpenNativeFence { device, .. }
                        if !guest.knows_device(device) =>
                    {
                        NtStatus::INVALID_PARAMETER
                    }
                    Call::OpenSyncFile { .. } | Call::WaitSyncFile { .. } => NtStatus::INVALID_PARAMETER,
                    _ => NtStatus::INVALID_HANDLE,
                };
                self.answers[thread.index()] = Some(Answer { status, reply: Reply::None });
            }
            Request::Call { call, event } => {
                guest.begin(thread, call, event);
                self.go_on(at);
            }
        }
        Ok(())
    }

    fn returned(&mut self, thread: Thread) -> Option<Answer> {
        self.answers[thread.index()].take()
    }

    /// Counts the arrivals, and the kernel's work that is due now as one move behind them.
    fn moves(&self) -> usize {
        self.arrivals().len() + usize::from(self.host.is_due())
    }

    fn make_move(&mut self, which: usize) -> Done {
        match self.arrivals().get(which) {
            Some((at, direction)) => self.arrive(*at, *direction),
            None => self.input(Input::Deadline),
        }
        Ok(())
    }

    fn advance(&mut self, nanos: Nanos) -> Done {
        let end = self.host.now + nanos;
        let mut left = DEADLINES_MAX;
        loop {
            self.drain();
            let arrivals = self.guests.iter().flatten().filter_map(ClientProcess::next_arrival);
            let arrival = arrivals.filter(|due| *due > self.host.now && *due <= end).min();
            let kernel = self.host.due(end);
            match (arrival, kernel) {
                (None, None) => break,
                (arrival, kernel)
                    if kernel.is_some_and(|kernel| arrival.is_none_or(|arrival| kernel <= arrival)) =>
                {
                    left = next_deadline_of(left)?;
                    self.host.now = kernel.expect("it was looked at");
                    self.input(Input::Deadline);
                }
                (arrival, _) => self.host.now = arrival.expect("one of them is there"),
            }
        }
        self.host.now = end;
        Ok(())
    }

    fn fault(&mut self, fault: &Fault) -> Done {
        let guest = |world: &mut Self, process: Process, change: fn(&mut ClientProcess)| {
            if let Some(guest) = world.guests[process.index()].as_mut() {
                change(guest);
            }
            world.go_on(process.index());
        };
        match *fault {
            Fault::Kill(process) => self.end(process),
            Fault::Cut(process) => self.cut(process.index()),
            Fault::Freeze(process) => guest(self, process, |guest| guest.frozen = true),
            Fault::Thaw(process) => guest(self, process, |guest| guest.frozen = false),
            Fault::Hold(process) => guest(self, process, |guest| guest.held = true),
            Fault::Release(process) => guest(self, process, |guest| guest.held = false),
            Fault::Delay(process, nanos) => {
                if let Some(guest) = self.guests[process.index()].as_mut() {
                    guest.delay = nanos;
                }
            }
            Fault::Reorder => self.reversed = true,
            Fault::CrashVm(vm) => {
                for at in 0..self.guests.len() {
                    if self.program.processes[at].vm == Some(vm) {
                        self.guests[at] = None;
                    }
                }
                self.input(self.host.vm_detached(vm));
                for at in 0..self.guests.len() {
                    if self.program.processes[at].vm == Some(vm) {
                        self.end(Process(at as u32));
                    }
                }
            }
            Fault::RestartDaemon => {
                for at in 0..self.guests.len() {
                    if let Some(guest) = self.guests[at].as_mut() {
                        guest.attached = false;
                    }
                    self.cut(at);
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

    fn value(&mut self, process: Process, object: Handle) -> Done<Option<u64>> {
        Ok(self.guests[process.index()].as_ref().and_then(|guest| guest.value(object)))
    }

    fn slot(&mut self, process: Process, slot: u32) -> Done<Option<u64>> {
        Ok(self.guests[process.index()].as_ref().and_then(|guest| guest.slot(slot)))
    }

    fn take_event(&mut self, process: Process, event: u32) -> Done<u64> {
        Ok(self.guests[process.index()].as_mut().map_or(0, |guest| guest.take_event(event)))
    }

    fn messages(&mut self, process: Process) -> Done<Result<u64, &'static str>> {
        Ok(Ok(self.guests[process.index()].as_ref().map_or(0, ClientProcess::messages_sent)))
    }

    fn wakes(&mut self, process: Process) -> u64 {
        self.guests[process.index()].as_ref().map_or(0, |guest| guest.wakes)
    }

    answered_by_host!();
}
