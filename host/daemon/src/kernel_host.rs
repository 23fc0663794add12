//! The kernel lock: the one lock around the kernel.
//!
//! Whoever has bytes from a guest takes it, calls the kernel, stores fence values, appends answers and
//! wakes to the outboxes of those they are for, and leaves. Only then is anything sent. So a signal and
//! the wake-up that it causes need no other thread.
//!
//! Here are the lock and the step. What else is done under the lock has a file for each topic, and is reached by a view:
//! ```text
//!   seat.sessions()    attach, memory, lend, greet, detach    over Roster, who is attached
//!   seat.nt_handles()  made, seen, closed                     over NtHandleTable
//!   seat.resumption()  going on from a journal                over Resuming
//!   seat.traces()      what is recorded                       over Recording
//!   seat.views()       snapshot, why                          over a copy of the kernel, where that can be
//! ```

mod dma;
#[cfg(target_env = "gnu")]
mod forked;
mod nt_handles;
mod process_table;
mod recording;
mod resuming;
mod sessions;
mod timing;
mod traces;
mod views;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use d3dkmt::{Call, Reply};
use drivers::{Drivers, Registry};
use dxgkrnl::{DmaExecutor, Effects, Fault, Input, Kernel, Nanos, PlantedBug, ProcessId, VmId};
use proto::convert;
use tracing::Level;
use vsock_device::locks::{Rank, Ranked, RankedGuard};

use super::Options;
use super::client_process::{Added, ClientProcess, Outbox, OutboxFull};
use super::counters::Counters;
use super::free_memory::Ended;
use super::journal::SessionCursors;
use super::log_lines::{LogLines, NoteLine};
use super::observer::Observer;
use super::peer::Peer;
use super::pending_connections::PendingConnections;
use super::shares::Budgets;
use super::system_clock::{ClockWatch, utc_100ns};
use super::tap::{ObserverTap, Step, Tap as _};
use super::timer::{Clock, Timer};
use nt_handles::{NtHandleTable, named_by};
use process_table::ProcessTable;
use recording::Recording;
use resuming::Resuming;
use timing::Timing;

pub use nt_handles::NtHandles;
pub use process_table::Token;
pub(crate) use process_table::random;
pub use resuming::{AwaitedGuest, ResumeOutcome, Resumed, Resumption};
pub(crate) use sessions::SessionHello;
pub use sessions::Sessions;
pub use timing::ClientTimestamps;
pub use traces::Traces;
pub use views::Views;

/// A call as a guest made it, and what the guest told of times with it. `request` 0 is one-way.
#[derive(Debug)]
pub struct ReceivedCall {
    pub request: u64,
    pub call: Call,
    pub told: Option<Box<ClientTimestamps>>,
}

/// Effects of one lane that the next step finds room for.
const EFFECTS_KEPT: usize = 4096;

/// The kernel and all that must change together with it.
struct HostState {
    kernel: Kernel<Drivers>,
    taps: Taps,
    /// Guests of the daemon before this one are waited for.
    resuming: Option<Resuming>,
    effects: Effects,
    dma_executor: DmaExecutor,
    process_table: ProcessTable,
    nt_handles: NtHandleTable,
    armed: Option<Nanos>,
}

/// What follows each step, in this order: what guests are owed is known when the trace is written.
#[derive(Default)]
struct Taps {
    /// With a journal.
    session_cursors: Option<SessionCursors>,
    recording: Option<Recording>,
    observed: Option<ObserverTap>,
}

impl Taps {
    fn begins(&mut self, now: Nanos, input: &Input) {
        self.recording.begins(now, input);
        self.session_cursors.begins(now, input);
        self.observed.begins(now, input);
    }

    fn handled(&mut self, step: Step<'_>) {
        self.session_cursors.handled(step);
        self.recording.handled(Step { owed: self.session_cursors.as_ref(), ..step });
        if let Some(recording) = self.recording.take_if(|recording| recording.is_at_limit()) {
            recording.end_at_limit(step);
        }
        self.observed.handled(step);
    }
}

/// See the module.
pub struct KernelHost {
    host_state: Ranked<HostState>,
    /// Held by who waits for the kernel lock, until it is taken: see [`Seat::give_way`].
    turnstile: Ranked<()>,
    pub timer: Timer,
    pub clock_watch: ClockWatch,
    pub pending_connections: Arc<PendingConnections>,
    pub counters: Counters,
    /// What there is little of, and who has it.
    pub budgets: Budgets,
    /// The log lines about clients, and those of code under the lock.
    pub log: Arc<LogLines>,
    /// Everything is recorded, for somebody to look at: guests forward every wait.
    pub recording: bool,
    /// Guests are asked for times, which go into the trace.
    pub times: bool,
    /// How long guests are waited for, and wait, with a journal; `None`: as long as it takes.
    pub resume_within: Option<Duration>,
    /// Readable when a guest that is waited for is back, or has ended.
    returns: OnceLock<Arc<OwnedFd>>,
    drivers: Registry,
    async_submission: AtomicBool,
    /// Told of whatever may have had much memory.
    pub(super) ended: Arc<Ended>,
    /// As the last step left it, for who asks without the kernel lock.
    has_backlog: AtomicBool,
    observer: Option<Arc<dyn Observer>>,
}

fn kernel_over(drivers: &Registry, config: dxgkrnl::Config) -> Kernel<Drivers> {
    let drivers = Drivers::new(drivers, &config);
    Kernel::new(config, drivers)
}

/// What a running daemon can be made to meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Injection {
    Fault(Fault),
    /// The process with this name or number is frozen, or thawed.
    Frozen {
        process: String,
        frozen: bool,
    },
}

/// Reads an injection from its words, over the adapters of a configuration; or says what is wrong with them.
pub type ReadInjection = fn(&str, &dxgkrnl::Config) -> Result<Injection, String>;

/// Why the kernel cannot be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    #[error("{0} processes are attached")]
    Processes(usize),
    #[error("a trace of this kernel is recorded")]
    Recording,
}

/// Guests that have something to send to, collected under the kernel lock and served after leaving it.
#[derive(Default)]
pub struct FlushList(Vec<Arc<ClientProcess>>);

impl FlushList {
    fn add(&mut self, guest: &Arc<ClientProcess>) {
        if !self.0.iter().any(|other| Arc::ptr_eq(other, guest)) {
            self.0.push(guest.clone());
        }
    }

    /// Sends to everybody but `held`, whose own answers may wait for the end of its batch.
    pub fn flush_others(&mut self, held: ProcessId) {
        self.0.retain(|guest| {
            if guest.id != held {
                guest.outbox.flush();
            }
            guest.id == held
        });
    }

    pub fn flush(&mut self) {
        for guest in self.0.drain(..) {
            guest.outbox.flush();
        }
    }
}

/// Whoever was added hears of it: nobody's wake waits for something else to be sent. Made before the kernel lock is taken, so that
/// it is left after that.
impl Drop for FlushList {
    fn drop(&mut self) {
        self.flush();
    }
}

impl KernelHost {
    pub fn new(options: &Options) -> anyhow::Result<Arc<KernelHost>> {
        options.drivers.check(&options.kernel)?;
        let timer = Timer::new(options.clock).context("cannot create a timer")?;
        let log = Arc::new(LogLines::default());
        let recording = Recording::new(options, &log)?;
        let is_recorded = recording.is_some();
        let mut host_state = HostState {
            kernel: kernel_over(&options.drivers, options.kernel.clone()),
            taps: Taps {
                recording,
                session_cursors: None,
                observed: options.observer.as_ref().map(ObserverTap::by),
            },
            resuming: None,
            effects: Effects::default(),
            dma_executor: DmaExecutor::default(),
            process_table: ProcessTable::new(&log),
            nt_handles: NtHandleTable::default(),
            armed: None,
        };
        if let Some(journal) = &options.journal {
            host_state.open_journal(journal, options, &timer)?;
        }
        Ok(Arc::new(KernelHost {
            drivers: options.drivers.clone(),
            recording: is_recorded,
            times: options.times,
            resume_within: options.journal.as_ref().and_then(|journal| journal.resume_within),
            returns: OnceLock::new(),
            host_state: Ranked::new(Rank::Kernel, host_state),
            turnstile: Ranked::new(Rank::Turnstile, ()),
            timer,
            clock_watch: ClockWatch::new().context("cannot watch the system's clock")?,
            pending_connections: PendingConnections::new(&log).context("cannot make a timer")?,
            counters: Counters::default(),
            budgets: Budgets::of_this_process(),
            log,
            async_submission: AtomicBool::new(options.async_submission),
            ended: Arc::default(),
            has_backlog: AtomicBool::new(false),
            observer: options.observer.clone(),
        }))
    }

    fn lock(&self) -> RankedGuard<'_, HostState> {
        // A panic of the kernel ends the process where it happens; anywhere else under the kernel lock it is as
        // much a bug of ours, and the state is not to be trusted after it.
        if let Some(host_state) = self.host_state.try_lock_or_abort() {
            return host_state;
        }
        let _first = self.turnstile.lock();
        self.host_state.lock_or_abort()
    }

    /// Lets who waits for the kernel lock have it next. Whoever leaves it and takes it again at once, as for each call of a
    /// flood, has it before the other is awake, so that thread says so between two turns of its guest's.
    pub fn yield_to_waiters(&self) {
        drop(self.turnstile.lock());
    }

    /// Runs the kernel. Should it panic, that is a bug of ours: the trace has the input already, and the daemon ends.
    fn handle(&self, host_state: &mut HostState, now: Nanos, input: Input, effects: &mut Effects) {
        let kernel = std::panic::AssertUnwindSafe(|| host_state.kernel.handle(now, input, effects));
        if std::panic::catch_unwind(kernel).is_err() {
            let trace = match &mut host_state.taps.recording {
                Some(recording) => recording.panicked(),
                None => "start with --record to have the call that leads to it",
            };
            let words = format!("the kernel model panicked, a bug of gpupv; the daemon ends; {trace}");
            self.log.own(Level::ERROR, words);
            self.log.say_all();
            std::process::abort();
        }
    }

    /// What a guest calls next: see [`Kernel::expect`].
    pub fn prefetch(&self, process: ProcessId, calls: &VecDeque<ReceivedCall>) {
        if calls.len() > 1 {
            self.lock().kernel.prefetch(process, calls.iter().map(|made| &made.call));
        }
    }

    /// One call of a guest; effects are performed, what is to be sent is left to `dirty`. It is given back if it comes after
    /// something that the kernel still does for the process: see [`Seat::go_on_for`].
    pub fn call(
        &self,
        process: ProcessId,
        made: ReceivedCall,
        flush_list: &mut FlushList,
    ) -> Option<ReceivedCall> {
        let mut host_state = self.lock();
        let now = self.timer.now();
        self.do_what_is_due(&mut host_state, now, flush_list);
        if host_state.kernel.is_behind(process) {
            return Some(made);
        }
        let ReceivedCall { request, call, told } = made;
        let told = told.map(|told| *told);
        self.step_behind(&mut host_state, now, Input::Call { process, request, call }, told, flush_list);
        None
    }

    /// Goes on with what the kernel has left to do, if some of it comes before the next call of this process; true if so.
    pub fn go_on_for(&self, process: ProcessId) -> bool {
        if !self.has_backlog.load(Ordering::Relaxed) {
            return false;
        }
        let mut flush_list = FlushList::default();
        let mut host_state = self.lock();
        let is_behind = host_state.kernel.is_behind(process);
        if is_behind {
            self.step(&mut host_state, Input::Deadline, &mut flush_list);
        }
        is_behind
    }

    /// Waits until nothing of an earlier VM of this number is left.
    pub fn clear_vm(&self, vm: VmId) {
        while self.lock().kernel.is_clearing(vm) {
            self.yield_to_waiters();
            self.input(Input::Deadline);
        }
    }

    /// The timer has come, or the kernel has left something to do.
    pub fn deadline(&self) {
        self.timer.acknowledge();
        self.yield_to_waiters();
        self.input(Input::Deadline);
    }

    /// Anything else that happened; effects are performed and sent.
    pub fn input(&self, input: Input) {
        let mut flush_list = FlushList::default();
        self.step(&mut self.lock(), input, &mut flush_list);
    }

    /// Tells the kernel what the system's clock says. Who hands in the time says that as well.
    pub fn tell_system_time(&self) {
        if self.timer.clock() == Clock::Monotonic {
            self.input_once_back(Input::SystemTime { utc_100ns: utc_100ns() });
        }
    }

    /// Has something go wrong with the hardware.
    pub fn fault(&self, fault: Fault) {
        self.input(Input::Fault(fault));
    }

    /// Has something go wrong. Gives it in words; an error says why it cannot happen, and then nothing has.
    pub fn inject(&self, injection: Injection) -> Result<String, String> {
        let mut flush_list = FlushList::default();
        let mut host_state = self.lock();
        let input = match injection {
            Injection::Fault(fault) => {
                let possible = host_state.kernel.fault_can_happen(fault);
                possible.map_err(|why| format!("{fault}: {why}"))?;
                Input::Fault(fault)
            }
            Injection::Frozen { process, frozen } => {
                let process = host_state.process_table.named(&process)?;
                Input::ProcessFrozen { process, frozen }
            }
        };
        let text = input.to_string();
        self.step(&mut host_state, input, &mut flush_list);
        Ok(text)
    }

    /// Makes the kernel wrong from here on, until it is replaced: proof that checkers can fail.
    #[doc(hidden)]
    pub fn plant(&self, bug: PlantedBug) {
        self.lock().kernel.plant(bug);
    }

    /// Moves a virtual clock on, stopping at each time that the kernel wants to be told.
    ///
    /// # Panics
    ///
    /// Panics if the daemon's clock is not [`Clock::Virtual`].
    pub fn advance(&self, nanos: Nanos) {
        assert_eq!(self.timer.clock(), Clock::Virtual, "only a virtual clock can be moved");
        let mut flush_list = FlushList::default();
        let mut host_state = self.lock();
        let end = self.timer.now().saturating_add(nanos);
        while let Some(due) = host_state.kernel.next_deadline().filter(|due| *due <= end) {
            self.timer.move_to(self.timer.now().max(due));
            self.step(&mut host_state, Input::Deadline, &mut flush_list);
        }
        self.timer.move_to(end);
    }

    /// Starts over with a new kernel that has the same VMs and nothing else; a virtual clock starts over
    /// as well. Numbers of processes go on.
    pub fn replace_kernel(&self, config: dxgkrnl::Config, async_submission: bool) -> Result<(), Busy> {
        let mut host_state = self.lock();
        match host_state.process_table.count() {
            0 if host_state.taps.recording.is_some() => return Err(Busy::Recording),
            0 => {}
            processes => return Err(Busy::Processes(processes)),
        }
        self.async_submission.store(async_submission, Ordering::Relaxed);
        let vms = host_state.process_table.vms().clone();
        host_state.kernel = kernel_over(&self.drivers, config);
        host_state.nt_handles.forget_all();
        self.timer.move_to(0);
        self.arm(&mut host_state);
        for (vm, name) in vms {
            self.step(&mut host_state, Input::VmAttached { vm, name }, &mut FlushList::default());
        }
        Ok(())
    }

    /// Tells the kernel about an event; performs what it asks for, in the order of the lanes.
    ///
    /// What an engine was due to do by then is a step of its own before it: else its wake-ups would be told of a call
    /// that has nothing to do with them.
    fn step(&self, host_state: &mut HostState, input: Input, flush_list: &mut FlushList) {
        let now = self.timer.now();
        if !matches!(input, Input::Deadline) {
            self.do_what_is_due(host_state, now, flush_list);
        }
        self.step_behind(host_state, now, input, None, flush_list);
    }

    fn do_what_is_due(&self, host_state: &mut HostState, now: Nanos, flush_list: &mut FlushList) {
        if host_state.is_due(now) {
            self.step_at(host_state, now, Input::Deadline, None, flush_list);
        }
    }

    /// The same once what was due is done.
    fn step_behind(
        &self,
        host_state: &mut HostState,
        now: Nanos,
        input: Input,
        told: Option<ClientTimestamps>,
        flush_list: &mut FlushList,
    ) {
        self.step_at(host_state, now, input, told, flush_list);
        // No timer goes on with it.
        while self.timer.clock() == Clock::Virtual && host_state.kernel.has_backlog() {
            self.step_at(host_state, now, Input::Deadline, None, flush_list);
        }
    }

    fn step_at(
        &self,
        host_state: &mut HostState,
        now: Nanos,
        input: Input,
        told: Option<ClientTimestamps>,
        flush_list: &mut FlushList,
    ) {
        let mut timing = self.times.then(|| Timing::begin(told, &input, now, host_state.armed));
        host_state.taps.begins(now, &input);
        let mut effects = std::mem::take(&mut host_state.effects);
        let named = named_by(&input);
        host_state.process_table.follow(&input);
        if let Input::VmDetached { vm } = &input {
            host_state.nt_handles.forget_vm(*vm);
        }
        if let Some(timing) = &mut timing {
            timing.told();
        }
        self.handle(host_state, now, input, &mut effects);
        if let Some(timing) = &mut timing {
            timing.handled();
        }
        let step = |host_state: &mut HostState, effects: &Effects, tell: fn(&mut Taps, Step<'_>)| {
            let HostState { taps, kernel, .. } = host_state;
            tell(taps, Step { now, effects, kernel, owed: None });
        };
        step(host_state, &effects, Taps::handled);
        host_state.cut_off_who_never_read();
        self.perform(host_state, &mut effects, timing.as_mut(), flush_list);
        if let Some(timing) = timing {
            host_state.record_times(timing, !effects.events.is_empty());
        }
        step(host_state, &effects, |taps, step| taps.observed.performed(step));
        effects.clear();
        // A step of rare size keeps no memory behind.
        effects.moves.shrink_to(EFFECTS_KEPT);
        effects.stores.shrink_to(EFFECTS_KEPT);
        effects.events.shrink_to(EFFECTS_KEPT);
        host_state.effects = effects;
        if let Some((process, token)) = named {
            self.nt_handle_named(host_state, process, token, flush_list);
        }
        self.arm(host_state);
    }

    /// The timer is armed for what the kernel wants.
    fn arm(&self, host_state: &mut HostState) {
        let has_backlog = host_state.kernel.has_backlog();
        if self.has_backlog.load(Ordering::Relaxed) != has_backlog {
            self.has_backlog.store(has_backlog, Ordering::Relaxed);
            // What was left is done.
            if !has_backlog {
                self.ended.tell();
            }
        }
        let due = host_state.kernel.next_deadline();
        if due != host_state.armed {
            host_state.armed = due;
            if let Err(error) = self.timer.arm(due) {
                self.log.own(Level::ERROR, format!("cannot arm the timer for {due:?} ns: {error}"));
            }
        }
    }

    fn perform(
        &self,
        host_state: &mut HostState,
        effects: &mut Effects,
        timing: Option<&mut Timing>,
        flush_list: &mut FlushList,
    ) {
        host_state.perform_moves(&effects.moves);
        for store in &effects.stores {
            let Some(attached) = host_state.process_table.get(store.process) else { continue };
            if let Err(error) = attached.memory.store(store.slot, store.value) {
                let line = || format!("process {}: {store}: {error:#}", store.process.0);
                host_state.process_table.warn(store.process, line);
            }
        }
        self.counters.fence_stores.add(effects.stores.len() as u64);
        let asked_ns = timing.map(Timing::stored);
        for answer in &mut effects.answers {
            // Data of an answer are big. Whoever observes is shown them, else they move.
            let reply = match &self.observer {
                Some(_) => answer.reply.clone(),
                None => std::mem::replace(&mut answer.reply, Reply::None),
            };
            let frame = convert::answer_into_frame(answer.request, answer.status, reply);
            self.post(host_state, answer.process, asked_ns, flush_list, |outbox| outbox.append(&frame));
        }
        for event in &effects.events {
            self.counters.wakes.add(1);
            self.post(host_state, event.process, asked_ns, flush_list, |outbox| {
                outbox.wake(event.target, event.status)
            });
        }
        for note in &effects.notes {
            self.counters.refusals.add(1);
            let peer =
                note.process.map_or(Peer::Vm(VmId::HOST), |process| host_state.process_table.peer(process));
            self.log.debug(peer, || note.to_string());
            let (now, process, text) = (self.timer.now(), note.process, note.text.clone());
            self.log.note(NoteLine { now, process, text });
        }
    }

    fn post(
        &self,
        host_state: &HostState,
        process: ProcessId,
        asked_ns: Option<u64>,
        flush_list: &mut FlushList,
        add: impl FnOnce(&Outbox) -> Result<Added, OutboxFull>,
    ) {
        let Some(attached) = host_state.process_table.get(process) else { return };
        if let Some(asked_ns) = asked_ns {
            attached.guest.outbox.asked(asked_ns);
        }
        match add(&attached.guest.outbox) {
            Ok(Added::Frame) => {
                self.counters.frames_sent.add(1);
                flush_list.add(&attached.guest);
            }
            Ok(Added::Event) => flush_list.add(&attached.guest),
            Ok(Added::Nothing) => {}
            Err(full @ OutboxFull { .. }) => {
                let vm = attached.guest.vm.0;
                host_state
                    .process_table
                    .warn(process, || format!("process {} of vm {vm} is cut off: {full}", process.0));
                attached.guest.outbox.cut_off();
            }
        }
    }
}

impl HostState {
    /// Whether time has something to do. What the kernel has left of other steps is not in the way of the next.
    fn is_due(&self, now: Nanos) -> bool {
        let due = match self.kernel.has_backlog() {
            true => self.kernel.next_event(),
            false => self.armed,
        };
        due.is_some_and(|due| due <= now)
    }
}

#[cfg(test)]
mod tests;
