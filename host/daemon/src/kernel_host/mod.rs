//! The kernel lock: the one lock around the kernel.
//!
//! A thread with bytes from a client locks it, calls the kernel, stores fence values, appends answers and wakes to the
//! outboxes of their processes, and unlocks it. Only then are outboxes sent. So a signal and the wake-up that it causes
//! need no other thread.
//!
//! This file has the lock and the step. The rest of what is done under the lock has a file for each topic, reached by a
//! view:
//! ```text
//!   kernel_host.sessions()    attach, memory, backing, greet, detach    over ProcessTable
//!   kernel_host.nt_handles()  made, seen, closed                        over NtHandleTable
//!   kernel_host.resumption()  resuming from a journal                   over Resuming
//!   kernel_host.traces()      what is recorded                          over Recording
//!   kernel_host.views()       snapshot, why                             over a copy of the kernel, where possible
//! ```

mod dma;
mod due_work;
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
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use d3dkmt::{Call, Reply, ShareToken};
use drivers::{Drivers, Registry};
use dxgkrnl::{
    DmaExecutor, Effects, Fault, Injection, Input, Kernel, Nanos, Note, PlantedBug, ProcessId, SyncFileReady,
    VmId,
};
use frame_ring::{Patience, look_until};
use proto::convert;
use tracing::Level;
use vsock_device::locks::{Rank, Ranked, RankedGuard};

use super::Options;
use super::backing::BackingPages;
use super::client_process::{Added, ClientProcess, EndedOutbox, Outbox, OutboxFull};
use super::closing::{Closers, FreedMemory};
use super::counters::Counters;
use super::free_memory::TrimRequest;
use super::held_bytes::OverLimit;
use super::journal::SessionCursors;
use super::limits::{INJECTION_NOTE_BYTES_MAX, INJECTION_NOTES_MAX};
use super::log_lines::{LogLines, NoteLine};
use super::observer::Observer;
use super::peer::Peer;
use super::pending_connections::PendingConnections;
use super::shares::Budgets;
use super::system_clock::{ClockWatch, utc_100ns};
use super::tap::{ObserverTap, Step, Tap as _};
use super::timer::{Clock, Timer};
use dma::HeldMoves;
use nt_handles::{NtHandleTable, named_by};
use process_table::ProcessTable;
use recording::Recording;
use resuming::Resuming;
use timing::Timing;

pub use nt_handles::{NtHandles, RaiseSyncFile};
pub use process_table::Token;
pub(crate) use process_table::random;
pub use resuming::{AwaitedClient, ResumeOutcome, Resumed, Resumption};
pub(crate) use sessions::SessionHello;
pub use sessions::{Detach, Sessions, SharedPiece};
pub use timing::ClientTimestamps;
pub use traces::Traces;
pub use views::Views;

/// A call as a client process made it, with the timestamps that the client sent. `request` 0 is one-way.
#[derive(Debug)]
pub struct ReceivedCall {
    pub request: u64,
    pub call: Call,
    pub timestamps: Option<Box<ClientTimestamps>>,
}

/// Calls of one client that are made under one lock at most, and the units of work after which no further one is.
const CALLS_PER_LOCK_MAX: usize = 16;
const UNITS_PER_LOCK: u64 = 64;

/// Capacity, in effects, that a lane keeps from one step to the next.
const EFFECTS_KEPT: usize = 4096;

/// The kernel and all that must change together with it.
struct HostState {
    kernel: Kernel,
    taps: Taps,
    /// Set while the daemon waits for client processes of the daemon before it.
    resuming: Option<Resuming>,
    /// Those of the last step, for their capacity; `None` during a step. In a box, so that a step moves a pointer.
    effects: Option<Box<Effects>>,
    dma_executor: DmaExecutor,
    held_moves: HeldMoves,
    process_table: ProcessTable,
    nt_handles: NtHandleTable,
    armed: Option<Nanos>,
    /// Until then, inputs leave a late kernel's work: see [`KernelHost::run_due_work`].
    late_work_after: Nanos,
    /// Last notes of the last step that had to start an adapter, which say why it did not.
    notes_of_start: String,
    /// A step has moved bytes of memory: see [`KernelHost::calls`].
    has_moved: bool,
}

/// Consumers of each step. After the kernel the journal comes first, because the trace records what it counts; before
/// the kernel the recording comes first, because the trace must have the input.
#[derive(Default)]
struct Taps {
    /// `Some` with a journal.
    session_cursors: Option<SessionCursors>,
    recording: Option<Recording>,
    /// Steps since the recording ended at its size limit; `None` if it has not.
    unrecorded: Option<u64>,
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
        self.recording.handled(step);
        if let Some(unrecorded) = &mut self.unrecorded {
            *unrecorded += 1;
        }
        if let Some(recording) = self.recording.take_if(|recording| recording.is_at_limit()) {
            recording.end_at_limit(step);
            self.unrecorded = Some(0);
        }
        self.observed.handled(step);
    }

    fn performed(&mut self, step: Step<'_>) {
        self.recording.performed(Step { owed: self.session_cursors.as_ref(), ..step });
        self.observed.performed(step);
    }
}

/// Owner of the kernel lock and of everything shared beside it.
pub struct KernelHost {
    host_state: Ranked<HostState>,
    /// Held by a thread while it waits for the kernel lock: see [`KernelHost::yield_to_waiters`]. A step takes less time
    /// than the system takes to wake a thread, so the waiter looks at the lock for a while before it sleeps.
    turnstile: Ranked<Patience>,
    pub timer: Arc<Timer>,
    /// When this daemon started, which the timer does not say if it continues a journal.
    pub started: Instant,
    pub clock_watch: ClockWatch,
    pub pending_connections: Arc<PendingConnections>,
    pub counters: Counters,
    /// Scarce resources of the daemon, and each client's share.
    pub budgets: Budgets,
    /// Log lines about clients, and of code that runs under the lock.
    pub log: Arc<LogLines>,
    /// Every step is recorded for people to read: clients forward every wait.
    pub recording: AtomicBool,
    /// Clients are asked for timestamps, which go into the trace.
    pub times: bool,
    /// Processes are given rings.
    pub gives_rings: bool,
    /// Another daemon resumes what this one leaves if it is killed.
    pub has_journal: bool,
    /// With a journal: how long the daemon waits for its clients, and they for it; `None` is without limit.
    pub resume_within: Option<Duration>,
    /// An eventfd, readable when an awaited client has returned or is gone.
    returns: OnceLock<Arc<OwnedFd>>,
    drivers: Registry,
    async_submission: AtomicBool,
    /// Notified when something that may have had much memory is freed.
    pub(super) trim_request: Arc<TrimRequest>,
    /// Copy of the kernel's backlog flag after the last step, read without the kernel lock.
    has_backlog: AtomicBool,
    observer: Option<Arc<dyn Observer>>,
}

fn kernel_over(drivers: &Registry, config: dxgkrnl::Config) -> Kernel {
    let drivers = Drivers::new(drivers, &config);
    Kernel::new(config, drivers)
}

/// Logs the adapters that clients will not find. A scenario asks for them itself.
fn log_start_failures(kernel: &Kernel, log: &LogLines) {
    for (adapter, why) in kernel.start_failures() {
        log.push_daemon_line(Level::ERROR, format!("adapter {adapter} did not start: {why}"));
    }
}

/// The adapter that a fault starts.
fn started_adapter(input: &Input) -> Option<u32> {
    match *input {
        Input::Fault(Fault::StartAdapter { adapter } | Fault::UpdateDriver { adapter, .. }) => Some(adapter),
        _ => None,
    }
}

/// The end of a step's notes about no process. A driver may have caused many.
fn last_notes(notes: &[Note]) -> String {
    let texts = notes.iter().filter(|note| note.process.is_none()).map(|note| &*note.text);
    let mut last: Vec<&str> = texts.rev().take(INJECTION_NOTES_MAX).collect();
    last.reverse();
    let mut text = last.join("; ");
    let cut = text.len().saturating_sub(INJECTION_NOTE_BYTES_MAX);
    let cut = (cut..).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    text.split_off(cut)
}

/// Parses an injection, against the adapters of a configuration; an error says what is wrong with the text.
pub type ReadInjection = fn(&str, &dxgkrnl::Config) -> Result<Injection, String>;

/// Why the kernel is not replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReplaced {
    #[error("{0} processes are attached")]
    Processes(usize),
    #[error("a trace of this kernel is recorded")]
    Recording,
    #[error("{0}")]
    NoTrace(String),
}

/// Clients whose outboxes have something to send or are cut off, and what brokers are to be told, collected under the
/// kernel lock and flushed after it is released.
#[derive(Default)]
pub struct FlushList {
    clients: Vec<Arc<ClientProcess>>,
    /// Outboxes of clients that are cut off, and clients that are to be.
    cut_off: Vec<EndedOutbox>,
    over_limit: Vec<OverLimit>,
    sync_files: Vec<(RaiseSyncFile, ShareToken)>,
    /// Kept pages that are no longer accessed, with their process and address. They are unmapped then.
    released: Vec<(ProcessId, u64, BackingPages)>,
    /// Memory that is no longer accessed, and what unmaps it.
    freed: Vec<(Arc<Closers>, FreedMemory)>,
}

impl FlushList {
    fn add(&mut self, client: &Arc<ClientProcess>) {
        if !self.clients.iter().any(|other| Arc::ptr_eq(other, client)) {
            self.clients.push(client.clone());
        }
    }

    /// Closes the streams of clients that are cut off.
    fn cut_off(&mut self) {
        self.cut_off.drain(..).for_each(EndedOutbox::cut_off);
        self.over_limit.drain(..).for_each(OverLimit::cut_off);
    }

    /// Whether something is to be sent or freed that is not this process's.
    fn has_others(&self, own: ProcessId) -> bool {
        let FlushList { clients, cut_off, over_limit, sync_files, released, freed } = self;
        let is_others = |client: &Arc<ClientProcess>| client.id != own;
        let has_closes = !cut_off.is_empty() || !over_limit.is_empty();
        let has_more = !sync_files.is_empty() || !released.is_empty() || !freed.is_empty();
        clients.iter().any(is_others) || has_closes || has_more
    }

    /// Tells brokers of sync files that are ready, and of pages.
    fn tell_brokers(&mut self) {
        for (raise, token) in self.sync_files.drain(..) {
            raise(token);
        }
        for (process, address, pages) in self.released.drain(..) {
            if let BackingPages::Guest(pages) = &pages {
                pages.release(process, address);
            }
        }
    }

    /// Unmaps memory: the kernel lock is not held for what that takes.
    fn unmap(&mut self) {
        for (closers, freed) in self.freed.drain(..) {
            closers.unmap(freed);
        }
    }

    /// Flushes all but `held`, whose own answers may wait for the end of its batch.
    pub fn flush_others(&mut self, held: ProcessId) {
        self.cut_off();
        self.tell_brokers();
        self.unmap();
        self.clients.retain(|client| {
            if client.id != held {
                client.outbox.flush();
            }
            client.id == held
        });
    }

    pub fn flush(&mut self) {
        for client in self.clients.drain(..) {
            client.outbox.flush();
        }
        self.cut_off();
        self.tell_brokers();
        self.unmap();
    }
}

/// Flushes on drop, so that no wake waits for something else to be sent. Create the list before locking the kernel, so
/// that it drops after the unlock.
impl Drop for FlushList {
    fn drop(&mut self) {
        self.flush();
    }
}

impl KernelHost {
    pub fn new(options: &Options) -> anyhow::Result<Arc<KernelHost>> {
        KernelHost::with_log(options, Arc::default())
    }

    /// Starts the drivers as well, and replays a journal.
    pub(super) fn with_log(options: &Options, log: Arc<LogLines>) -> anyhow::Result<Arc<KernelHost>> {
        options.drivers.check(&options.kernel)?;
        let timer = Arc::new(Timer::new(options.clock).context("cannot create a timer")?);
        log.tell_time(&timer);
        let recording = Recording::new(options, &log)?;
        let is_recorded = recording.is_some();
        let mut host_state = HostState {
            kernel: kernel_over(&options.drivers, options.kernel.clone()),
            taps: Taps {
                recording,
                unrecorded: None,
                session_cursors: None,
                observed: options.observer.as_ref().map(ObserverTap::by),
            },
            resuming: None,
            effects: None,
            dma_executor: DmaExecutor::default(),
            held_moves: HeldMoves::default(),
            process_table: ProcessTable::new(&log),
            nt_handles: NtHandleTable::default(),
            armed: None,
            late_work_after: 0,
            notes_of_start: String::new(),
            has_moved: false,
        };
        if let Some(journal) = &options.journal {
            host_state.open_journal(journal, options, &timer)?;
        }
        if options.clock == Clock::Monotonic {
            log_start_failures(&host_state.kernel, &log);
        }
        Ok(Arc::new(KernelHost {
            drivers: options.drivers.clone(),
            recording: is_recorded.into(),
            times: options.times,
            gives_rings: !options.without_rings,
            has_journal: options.journal.is_some(),
            resume_within: options.journal.as_ref().and_then(|journal| journal.resume_within),
            returns: OnceLock::new(),
            host_state: Ranked::new(Rank::Kernel, host_state),
            turnstile: Ranked::new(Rank::Turnstile, Patience::default()),
            timer,
            started: Instant::now(),
            clock_watch: ClockWatch::new().context("cannot watch the system's clock")?,
            pending_connections: PendingConnections::new(&log).context("cannot make a timer")?,
            counters: Counters::default(),
            budgets: Budgets::of_this_process(options.backing_bytes, &log),
            log,
            async_submission: AtomicBool::new(options.async_submission),
            trim_request: Arc::default(),
            has_backlog: AtomicBool::new(false),
            observer: options.observer.clone(),
        }))
    }

    fn lock(&self) -> RankedGuard<'_, HostState> {
        // A panic of the kernel aborts the process where it happens. A panic elsewhere under the lock is a bug of gpupv
        // as well, and the state cannot be trusted after it.
        if let Some(host_state) = self.host_state.try_lock_or_abort() {
            return host_state;
        }
        let mut patience = self.turnstile.lock();
        if patience.looks() {
            let mut locked = None;
            let is_free = look_until(|| {
                locked = self.host_state.try_lock_or_abort();
                locked.is_some()
            });
            patience.looked(is_free);
            if let Some(host_state) = locked {
                return host_state;
            }
        }
        self.host_state.lock_or_abort()
    }

    /// Lets a waiting thread lock the kernel next. A thread that unlocks and locks again at once, as for each call of a
    /// flood, would win before the waiter is awake. So that thread calls this between two turns of its client.
    pub fn yield_to_waiters(&self) {
        drop(self.turnstile.lock());
    }

    /// Queues the calling thread for the lock, as a thread that waits for it is.
    #[cfg(test)]
    pub(crate) fn as_first_waiter(&self) -> RankedGuard<'_, Patience> {
        self.turnstile.lock()
    }

    /// Runs the kernel. A panic is a bug of gpupv: the trace has the input already, and the daemon aborts.
    fn handle(&self, host_state: &mut HostState, now: Nanos, input: Input, effects: &mut Effects) {
        let HostState { kernel, taps: Taps { recording, .. }, .. } = host_state;
        // Not `catch_unwind`, into which the input would be copied.
        let panicked = Panicked { log: &self.log, recording: recording.as_mut() };
        kernel.handle(now, input, effects);
        std::mem::forget(panicked);
    }

    /// Announces a client's next calls: see [`Kernel::prefetch`].
    pub fn prefetch(&self, process: ProcessId, calls: &VecDeque<ReceivedCall>) {
        if calls.len() > 1 {
            self.lock().kernel.prefetch(process, calls.iter().map(|call| &call.call));
        }
    }

    /// Runs the next calls of a client process under one lock, until they have taken long or have something for
    /// another client: effects are performed, and what is to be sent is left to `flush_list`. False if the kernel has
    /// unfinished work of this process that comes first: see [`KernelHost::continue_backlog`].
    pub fn calls(
        &self,
        process: ProcessId,
        calls: &mut VecDeque<ReceivedCall>,
        flush_list: &mut FlushList,
    ) -> bool {
        let mut host_state = self.lock();
        let (now, units) = (self.timer.now(), host_state.kernel.work_units());
        host_state.has_moved = false;
        for _ in 0..calls.len().min(CALLS_PER_LOCK_MAX) {
            self.run_due_work(&mut host_state, now, flush_list);
            if host_state.kernel.is_behind(process) {
                return false;
            }
            let Some(ReceivedCall { request, call, timestamps }) = calls.pop_front() else { break };
            let timestamps = timestamps.map(|timestamps| *timestamps);
            let input = Input::Call { process, request, call };
            self.step_after_due(&mut host_state, now, input, timestamps, flush_list);
            let spent = host_state.kernel.work_units() - units;
            if spent >= UNITS_PER_LOCK || host_state.has_moved || flush_list.has_others(process) {
                break;
            }
        }
        true
    }

    /// Waits until nothing of an earlier VM of this number is left.
    pub fn clear_vm(&self, vm: VmId) {
        // While clients are awaited nothing is cleared, and the next VM is attached after that.
        let is_clearing =
            |host_state: &HostState| host_state.resuming.is_none() && host_state.kernel.is_clearing(vm);
        while is_clearing(&self.lock()) {
            self.yield_to_waiters();
            self.input(Input::Deadline);
        }
    }

    /// Steps the kernel with any other input; effects are performed and sent.
    pub fn input(&self, input: Input) {
        let mut flush_list = FlushList::default();
        self.step(&mut self.lock(), input, &mut flush_list);
    }

    /// Passes the system's time to the kernel. With a virtual clock the caller passes it.
    pub fn tell_system_time(&self) {
        if self.timer.clock() == Clock::Monotonic {
            self.input(Input::SystemTime { utc_100ns: utc_100ns() });
        }
    }

    /// Injects a hardware fault.
    pub fn fault(&self, fault: Fault) {
        self.input(Input::Fault(fault));
    }

    /// Removes an adapter from the VM of this name, or adds one. If that cannot be, the kernel notes why.
    pub fn change_vm_adapter(&self, vm: &str, adapter: u32, added: bool) -> Result<(), String> {
        let vm = self.lock().process_table.vm_named(vm)?;
        self.input(Input::VmAdapter { vm, adapter, added });
        Ok(())
    }

    /// Injects a fault and returns its text. An error says why it cannot happen, so that nothing has changed; or why an
    /// adapter that was to start did not.
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
            Injection::VmAdapter { vm, adapter, added } => {
                let vm = host_state.process_table.vm_named(&vm)?;
                host_state.kernel.vm_adapter_refusal(vm, adapter, added).map_or(Ok(()), Err)?;
                Input::VmAdapter { vm, adapter, added }
            }
            Injection::Paused { vm, paused } => {
                let vm = host_state.process_table.vm_named(&vm)?;
                host_state.kernel.pause_refusal(vm, paused).map_or(Ok(()), Err)?;
                Input::VmPaused { vm, paused }
            }
        };
        let (text, starts) = (input.to_string(), started_adapter(&input));
        self.step(&mut host_state, input, &mut flush_list);
        let is_done = host_state.resuming.is_none();
        match starts.filter(|adapter| is_done && host_state.kernel.is_stopped(*adapter)) {
            Some(_) => Err(format!("{text}: {}", host_state.notes_of_start)),
            None => Ok(text),
        }
    }

    /// Plants a bug in the kernel until it is replaced: proof that checkers can fail.
    #[doc(hidden)]
    pub fn plant(&self, bug: PlantedBug) {
        self.lock().kernel.plant(bug);
    }

    /// Advances a virtual clock, stopping at each deadline of the kernel.
    ///
    /// # Panics
    ///
    /// Panics if the daemon's clock is not [`Clock::Virtual`].
    pub fn advance(&self, nanos: Nanos) {
        self.advance_within(nanos, u64::MAX);
    }

    /// As [`KernelHost::advance`], up to this number of deadlines. Returns whether the time was reached.
    pub fn advance_within(&self, nanos: Nanos, deadlines_max: u64) -> bool {
        assert_eq!(self.timer.clock(), Clock::Virtual, "only a virtual clock can be moved");
        let mut flush_list = FlushList::default();
        let mut host_state = self.lock();
        let end = self.timer.now().saturating_add(nanos);
        let mut left = deadlines_max;
        while let Some(due) = host_state.kernel.next_deadline().filter(|due| *due <= end) {
            let Some(fewer) = left.checked_sub(1) else { return false };
            left = fewer;
            self.timer.move_to(self.timer.now().max(due));
            self.step(&mut host_state, Input::Deadline, &mut flush_list);
        }
        self.timer.move_to(end);
        true
    }

    /// Replaces the kernel by a new one with the same VMs and nothing else; a virtual clock restarts at 0. Process
    /// numbers continue. `record` is the file of a trace of the new kernel: [`Traces::finish`](traces::Traces::finish)
    /// ends it.
    pub fn replace_kernel(
        &self,
        config: dxgkrnl::Config,
        async_submission: bool,
        record: Option<&Path>,
    ) -> Result<(), NotReplaced> {
        let mut host_state = self.lock();
        match host_state.process_table.count() {
            0 if host_state.taps.recording.is_some() => return Err(NotReplaced::Recording),
            0 => {}
            processes => return Err(NotReplaced::Processes(processes)),
        }
        let recording = record.map(|path| Recording::of_new_kernel(path, &config, &self.log)).transpose();
        host_state.taps.recording = recording.map_err(|error| NotReplaced::NoTrace(error.to_string()))?;
        self.recording.store(record.is_some(), Ordering::Relaxed);
        self.async_submission.store(async_submission, Ordering::Relaxed);
        let vms = host_state.process_table.vms().clone();
        host_state.kernel = kernel_over(&self.drivers, config);
        host_state.nt_handles.forget_all();
        self.timer.move_to(0);
        self.arm(&mut host_state, 0);
        for (vm, name) in vms {
            self.step(&mut host_state, Input::VmAttached { vm, name }, &mut FlushList::default());
        }
        Ok(())
    }

    /// Steps the kernel with an input and performs its effects, in the order of the lanes.
    ///
    /// Work that engines were due to do by then is a step of its own before it. Otherwise its wake-ups would be
    /// attributed to an unrelated call.
    ///
    /// While the clients of an earlier daemon are awaited, the input may have to wait as well.
    fn step(&self, host_state: &mut HostState, input: Input, flush_list: &mut FlushList) {
        let now = self.timer.now();
        if let Some(resuming) = &mut host_state.resuming {
            if let Some(input) = resuming.defer_input(input) {
                self.step_after_due(host_state, now, input, None, flush_list);
            }
            return;
        }
        if !matches!(input, Input::Deadline) {
            self.run_due_work(host_state, now, flush_list);
        }
        self.step_after_due(host_state, now, input, None, flush_list);
    }

    /// The same, after due work is done.
    fn step_after_due(
        &self,
        host_state: &mut HostState,
        now: Nanos,
        input: Input,
        timestamps: Option<ClientTimestamps>,
        flush_list: &mut FlushList,
    ) {
        self.step_at(host_state, now, input, timestamps, flush_list);
        // A virtual clock has no timer that would continue the backlog.
        while self.timer.clock() == Clock::Virtual && host_state.kernel.has_backlog() {
            self.step_at(host_state, now, Input::Deadline, None, flush_list);
        }
    }

    fn step_at(
        &self,
        host_state: &mut HostState,
        now: Nanos,
        input: Input,
        timestamps: Option<ClientTimestamps>,
        flush_list: &mut FlushList,
    ) {
        let is_deadline = matches!(input, Input::Deadline);
        let starts = started_adapter(&input).is_some();
        self.counters.deadline_steps.add_locked(u64::from(is_deadline));
        let mut timing = self.times.then(|| {
            let due = [host_state.kernel.next_event(), host_state.kernel.next_deadline()];
            Timing::begin(timestamps, &input, now, due.into_iter().flatten().min())
        });
        host_state.taps.begins(now, &input);
        let mut effects = host_state.effects.take().unwrap_or_default();
        let named = named_by(&input);
        for backing in host_state.process_table.follow(&input) {
            self.free(FreedMemory::new(backing, None), flush_list);
        }
        if let Input::VmDetached { vm } = &input {
            host_state.nt_handles.forget_vm(*vm);
        }
        if let Some(timing) = &mut timing {
            timing.recorded();
        }
        self.handle(host_state, now, input, &mut effects);
        if is_deadline {
            self.postpone_late_work(host_state);
        }
        if starts {
            host_state.notes_of_start = last_notes(&effects.notes);
        }
        if let Some(timing) = &mut timing {
            timing.handled();
        }
        let step = |host_state: &mut HostState, effects: &Effects, notify: fn(&mut Taps, Step<'_>)| {
            let HostState { taps, kernel, .. } = host_state;
            notify(taps, Step { now, effects, kernel, owed: None });
        };
        step(host_state, &effects, Taps::handled);
        host_state.cut_off_over_limit(flush_list);
        self.perform(host_state, &mut effects, timing.as_mut(), flush_list);
        host_state.release_ended_memory(flush_list);
        if let Some(timing) = timing {
            host_state.record_times(timing, !effects.events.is_empty());
        }
        step(host_state, &effects, Taps::performed);
        effects.clear();
        // An exceptionally large step leaves no memory allocated.
        effects.moves.shrink_to(EFFECTS_KEPT);
        effects.stores.shrink_to(EFFECTS_KEPT);
        effects.events.shrink_to(EFFECTS_KEPT);
        host_state.effects = Some(effects);
        if let Some((process, token)) = named {
            self.nt_handle_named(host_state, process, token, flush_list);
        }
        self.arm(host_state, now);
    }

    /// Has memory unmapped that is no longer accessed, once the lock is released.
    fn free(&self, freed: FreedMemory, flush_list: &mut FlushList) {
        flush_list.freed.push((Arc::clone(&self.budgets.closers), freed));
    }

    fn perform(
        &self,
        host_state: &mut HostState,
        effects: &mut Effects,
        timing: Option<&mut Timing>,
        flush_list: &mut FlushList,
    ) {
        host_state.has_moved |= !effects.moves.is_empty();
        host_state.perform_moves(&effects.moves);
        for store in &effects.stores {
            let Some(attached) = host_state.process_table.get(store.process) else { continue };
            if let Err(error) = attached.memory.store(store.slot, store.value) {
                let line = || format!("process {}: {store}: {error:#}", store.process.0);
                host_state.process_table.warn(store.process, line);
            }
        }
        self.counters.fence_stores.add_locked(effects.stores.len() as u64);
        let host_time_ns = timing.map(Timing::stored);
        for answer in &mut effects.answers {
            // An answer's data can be large: they are cloned only if an observer needs them afterwards.
            let reply = match &self.observer {
                Some(_) => answer.reply.clone(),
                None => std::mem::replace(&mut answer.reply, Reply::None),
            };
            let frame = convert::answer_into_frame(answer.request, answer.status, reply);
            self.post(host_state, answer.process, host_time_ns, flush_list, |outbox| outbox.append(&frame));
        }
        for event in &effects.events {
            self.counters.wakes.add(1);
            self.post(host_state, event.process, host_time_ns, flush_list, |outbox| {
                outbox.wake(event.target, event.status)
            });
        }
        for SyncFileReady { vm, token } in &effects.sync_files {
            let raise = host_state.nt_handles.raise_of(*vm, *token);
            flush_list.sync_files.extend(raise.map(|raise| (raise, *token)));
        }
        for note in &effects.notes {
            self.counters.refusals.add_locked(u64::from(note.refused_with().is_some()));
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
        host_time_ns: Option<u64>,
        flush_list: &mut FlushList,
        add: impl FnOnce(&Outbox) -> Result<Added, OutboxFull>,
    ) {
        let Some(attached) = host_state.process_table.get(process) else { return };
        if let Some(host_time_ns) = host_time_ns {
            attached.client.outbox.set_host_time(host_time_ns);
        }
        match add(&attached.client.outbox) {
            Ok(Added::Frame) => {
                self.counters.frames_sent.add(1);
                flush_list.add(&attached.client);
            }
            Ok(Added::Event) => flush_list.add(&attached.client),
            Ok(Added::Nothing) => {}
            Err(full @ OutboxFull { .. }) => {
                let vm = attached.client.vm.0;
                host_state
                    .process_table
                    .warn(process, || format!("process {} of vm {vm} is cut off: {full}", process.0));
                flush_list.cut_off.push(attached.client.outbox.begin_cut_off(&full.to_string()));
            }
        }
    }
}

/// Dropped only if the kernel panics.
struct Panicked<'a> {
    log: &'a LogLines,
    recording: Option<&'a mut Recording>,
}

impl Drop for Panicked<'_> {
    fn drop(&mut self) {
        let trace = match &mut self.recording {
            Some(recording) => recording.panicked(),
            None => "start with --record to record the call that leads to it",
        };
        let words = format!("the kernel model panicked, which is a bug of gpupv; the daemon aborts; {trace}");
        self.log.push_daemon_line(Level::ERROR, words);
        self.log.say_all();
        std::process::abort();
    }
}

#[cfg(test)]
mod tests;
