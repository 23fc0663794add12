//! Local client processes: one thread that serves all of them.
//!
//! The thread accepts broker connections, reads streams and detects exited processes. It sleeps in `epoll_wait` without
//! a timeout. The host itself and each local VM have a listening socket of their own. Streams with unprocessed data, and
//! broker connections with requests, wait in the queue of their VM and user (`round_robin.rs`), so that a flood from one
//! delays neither calls nor requests of another.

mod broker_requests;
mod busy_rings;
mod deferred_reads;
mod direct;
mod nt_handle_watch;
mod reading;
mod replies;
mod resting_listeners;
mod returning_processes;
mod shared_backing;
mod turns;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;

use anyhow::Context as _;
use d3dkmt::limits::REGISTERED_EVENTS_PER_PROCESS_MAX;
use dxgkrnl::{Input, ProcessId, VmId};
use listening::{Listener, PeerCredentials};
use nt_handle::SyncFileFolder;
use proto::attach::BrokerReply;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};

use super::broker::{self, Request};
use super::channel::Channel;
use super::client_process::{ClientProcess, SinkStream};
use super::closing::ClientFd;
use super::eventfd::Setter;
use super::kernel_host::KernelHost;
use super::limits::READ_BYTES;
use super::local_vm::LocalVm;
use super::peer::Peer;
use super::pending_connections::PendingConnection;
use super::rings::{MAPPINGS_PER_PROCESS, Rings};
use super::round_robin::RoundRobin;
use super::shares::{Budgets, Share, VmBudgets};
use super::thread_kind::ThreadKind;
use super::timer::monotonic;
use busy_rings::BusyRings;
use deferred_reads::DeferredReads;
#[doc(hidden)]
pub use direct::DirectLoop;
use nt_handle_watch::{VmNtHandles, sync_file_folders};
use replies::Reply;
use resting_listeners::RestingListeners;
use returning_processes::ResumeWait;

const COMMANDS_KEY: u64 = 0;
const CLOCK_KEY: u64 = 1;
const PENDING_KEY: u64 = 2;
/// Connections accepted at one listener before other sources have their turn.
const ACCEPTED_AT_ONCE_MAX: usize = 8;
const INTEREST: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP);
/// A broker connection is reported once for each turn. Else thousands that wait for theirs would be reported in every
/// round, before what is new.
const BROKER_INTEREST: epoll::EventFlags = INTEREST.union(epoll::EventFlags::ONESHOT);

/// The running thread.
pub struct LocalLoop {
    commands: Sender<(Command, Sender<()>)>,
    /// An eventfd, written after each command.
    event_channel: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

/// A command from another thread; it is acknowledged when done.
enum Command {
    /// Detach every process and exit the thread.
    Stop,
    Cut(ProcessId),
    /// A local VM crashed.
    Crash(VmId),
}

/// The source of an epoll event, by its key.
enum Source {
    /// The system's clock was set.
    Clock,
    /// The timer of pending connections has expired.
    PendingConnections,
    Commands,
    Listener {
        vm: VmId,
        listener: Listener,
    },
    /// A broker connection and the process that it has attached.
    Broker {
        vm: VmId,
        /// The user that connected.
        peer: Peer,
        connection: Arc<ClientFd>,
        process: Option<ProcessId>,
        /// Its share of the processes that its user may have.
        share: Option<Share>,
        /// `Some` until it has attached a process.
        pending_connection: Option<PendingConnection>,
        /// A request for an NT handle, which comes after the closes of its user's other ones.
        deferred: Option<Request>,
    },
    Stream {
        vm: VmId,
        process: ProcessId,
        stream: Arc<ClientFd>,
        channel: Box<Channel>,
        /// What the stream has was not read yet.
        readable: bool,
        /// The last turn took the calls in the ring and left the stream for the next one.
        left_stream: bool,
        /// The other end is closed.
        hung_up: bool,
        /// Set once its process has exited: how many more reads are allowed.
        last_reads: Option<u8>,
    },
    /// Readable when NT handles of this VM are closed.
    NtHandles {
        vm: VmId,
    },
    /// Readable when the time limit for returning clients has passed.
    ReturnLimit(OwnedFd),
    /// Readable when the process has exited, even if others have its descriptors.
    Pid {
        process: ProcessId,
        pidfd: OwnedFd,
        /// Its share of the descriptors that its user may have; `None` until a process of an earlier daemon has returned.
        share: Option<Share>,
    },
}

impl Source {
    /// The source's descriptor in the epoll set; `None` for the loop's own, which are stored elsewhere.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Source::Commands | Source::Clock | Source::PendingConnections | Source::NtHandles { .. } => None,
            Source::Listener { listener, .. } => Some(listener.descriptor.as_fd()),
            Source::Broker { connection, .. } => Some(connection.as_fd()),
            Source::Stream { stream, .. } => Some(stream.as_fd()),
            Source::Pid { pidfd, .. } => Some(pidfd.as_fd()),
            Source::ReturnLimit(timer) => Some(timer.as_fd()),
        }
    }

    /// The events that epoll reports of its descriptor.
    fn interest(&self) -> epoll::EventFlags {
        match self {
            Source::Broker { .. } => BROKER_INTEREST,
            Source::Commands
            | Source::Clock
            | Source::PendingConnections
            | Source::NtHandles { .. }
            | Source::Listener { .. }
            | Source::Stream { .. }
            | Source::Pid { .. }
            | Source::ReturnLimit(_) => INTEREST,
        }
    }
}

struct Loop {
    kernel_host: Arc<KernelHost>,
    epoll: Arc<OwnedFd>,
    event_channel: Arc<OwnedFd>,
    commands: Receiver<(Command, Sender<()>)>,
    // Read with cold caches, right after a wake, so without hashing.
    sources: BTreeMap<u64, Source>,
    keys_of: HashMap<ProcessId, Vec<u64>>,
    /// Where the broker of each VM makes its sync files.
    sync_file_folders: BTreeMap<VmId, SyncFileFolder>,
    /// By VM, once a process of it has had any.
    nt_handles: BTreeMap<VmId, VmNtHandles>,
    /// By VM with a listener here.
    budgets: BTreeMap<VmId, VmBudgets>,
    next_key: u64,
    turns: RoundRobin,
    /// Connections that have ended.
    ends: RoundRobin,
    /// The streams and broker connections of one pass, kept so that a pass allocates nothing.
    pass: Vec<u64>,
    busy_rings: BusyRings,
    /// When this thread woke up, if the daemon asks for times.
    awake_ns: u64,
    scratch: Vec<u8>,
    /// `None` if the system does not support it.
    setter: Option<Arc<Setter>>,
    /// Listeners that are not watched while descriptors are used up: see `local/resting_listeners.rs`.
    resting_listeners: RestingListeners,
    /// Connections that are not read for now: see `local/deferred_reads.rs`.
    deferred: DeferredReads,
    /// Set while the daemon waits for clients of the daemon before it.
    returning: Option<ResumeWait>,
}

impl LocalLoop {
    /// Starts the thread. It serves the host's processes at `broker_path`, and those of each local VM at its socket.
    pub fn start(
        kernel_host: Arc<KernelHost>,
        broker_path: &Path,
        vms: &[LocalVm],
    ) -> anyhow::Result<LocalLoop> {
        let host = std::iter::once((VmId::HOST, broker_path));
        let sockets: Vec<_> = host.chain(vms.iter().map(|vm| (vm.id, &*vm.socket))).collect();
        let listening = sockets.iter().map(|(vm, socket)| Ok((*vm, listen(socket)?)));
        let listeners = listening.collect::<anyhow::Result<Vec<_>>>()?;
        let event_channel = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (sender, commands) = std::sync::mpsc::channel();
        let mut state =
            Loop::new(kernel_host, &sockets, event_channel.clone(), commands, Setter::if_supported())?;
        state.watch_own()?;
        state.kernel_host.tell_system_time();
        for (vm, listener) in listeners {
            state.add(Source::Listener { vm, listener })?;
            state.recover_sync_files(vm);
        }
        for vm in vms.iter().filter(|vm| !state.kernel_host.sessions().has_vm(vm.id)) {
            state.kernel_host.input(Input::VmAttached { vm: vm.id, name: vm.name.clone() });
        }
        state.kernel_host.resumption().notify_on_return(event_channel.clone());
        state.begin_returning()?;
        let thread = std::thread::Builder::new().name("gpupv-local".into()).spawn(move || {
            sandbox::enter(ThreadKind::Local);
            state.run();
        })?;
        Ok(LocalLoop { commands: sender, event_channel, thread })
    }

    /// Stops the thread; every local process is detached.
    pub fn stop(self) {
        self.command(Command::Stop);
        if self.thread.join().is_err() {
            tracing::error!("the thread of local processes panicked");
        }
    }

    /// Detaches a local process and closes its descriptors.
    pub fn cut_off(&self, process: ProcessId) {
        self.command(Command::Cut(process));
    }

    /// Crashes a local VM: detaches its processes, closes its listener, then detaches the VM.
    pub fn crash(&self, vm: VmId) {
        self.command(Command::Crash(vm));
    }

    /// Returns when the command is done, or the thread has exited.
    fn command(&self, command: Command) {
        let (done, wait) = std::sync::mpsc::channel();
        if self.commands.send((command, done)).is_ok() {
            let _ = rustix::io::write(&*self.event_channel, &1u64.to_ne_bytes());
            let _ = wait.recv();
        }
    }
}

/// Every user of this machine may connect, as far as the folder's mode admits.
fn listen(path: &Path) -> anyhow::Result<Listener> {
    Ok(listening::listen(path, SocketType::SEQPACKET, listening::EVERY_USER)?)
}

/// The user who connected; `u32::MAX` if the system does not say.
fn user_of(connection: impl AsFd) -> Peer {
    Peer::Uid(PeerCredentials::of(connection).map_or(u32::MAX, |peer| peer.uid))
}

impl Loop {
    /// A loop without sources, for the processes of the brokers at these sockets.
    fn new(
        kernel_host: Arc<KernelHost>,
        sockets: &[(VmId, &Path)],
        event_channel: Arc<OwnedFd>,
        commands: Receiver<(Command, Sender<()>)>,
        setter: Option<Arc<Setter>>,
    ) -> anyhow::Result<Loop> {
        Ok(Loop {
            sync_file_folders: sync_file_folders(&kernel_host, sockets),
            kernel_host,
            epoll: Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?),
            event_channel,
            commands,
            sources: BTreeMap::new(),
            keys_of: HashMap::new(),
            nt_handles: BTreeMap::new(),
            budgets: BTreeMap::new(),
            next_key: PENDING_KEY + 1,
            turns: RoundRobin::default(),
            ends: RoundRobin::default(),
            pass: Vec::new(),
            busy_rings: BusyRings::default(),
            awake_ns: 0,
            scratch: vec![0; READ_BYTES],
            setter,
            resting_listeners: RestingListeners::default(),
            deferred: DeferredReads::default(),
            returning: None,
        })
    }

    fn watch_own(&mut self) -> anyhow::Result<()> {
        let own_sources = [
            (COMMANDS_KEY, Source::Commands, self.event_channel.as_fd()),
            (CLOCK_KEY, Source::Clock, self.kernel_host.clock_watch.descriptor()),
            (PENDING_KEY, Source::PendingConnections, self.kernel_host.pending_connections.descriptor()),
        ];
        for (key, source, descriptor) in own_sources {
            epoll::add(&*self.epoll, descriptor, epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
            self.sources.insert(key, source);
        }
        Ok(())
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match self.wait(&mut events) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!("local processes can no longer be served: {error}");
                    break;
                }
            }
            for event in &events {
                let key = event.data.u64();
                if key == COMMANDS_KEY && self.run_commands() {
                    return;
                }
                self.event(key, event.flags);
            }
            self.run_pass();
            self.check_awaited();
        }
        self.detach_all();
    }

    /// Waits for events, unless a stream waits for its turn or a ring has something.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        self.resume_reads();
        self.resume_listeners();
        self.look_at_rings();
        let may_sleep = self.has_no_turns();
        let looks = may_sleep && self.busy_rings.looks();
        // A thread that is about to sleep asks epoll by that. With times it asks before, to know whether it woke up.
        if (self.busy_rings.is_poll_due() && (looks || !may_sleep)) || self.kernel_host.times {
            self.busy_rings.polled();
            epoll::wait(&*self.epoll, spare_capacity(events), Some(&Timespec::default()))?;
        }
        if may_sleep && events.is_empty() && !(looks && self.look_before_sleep(events)?) && self.rest_rings()
        {
            let limit = match (self.deferred.is_empty(), self.resting_listeners.is_empty()) {
                (false, _) => Some(deferred_reads::PAUSE),
                (true, false) => Some(resting_listeners::PAUSE),
                (true, true) => None,
            };
            epoll::wait(&*self.epoll, spare_capacity(events), limit.as_ref())?;
            if self.kernel_host.times {
                self.awake_ns = monotonic();
            }
        }
        Ok(())
    }

    fn detach_all(&mut self) {
        for process in self.keys_of.keys().copied().collect::<Vec<_>>() {
            self.end_process(process);
        }
    }

    /// Runs the pending commands; true if the thread is to exit.
    fn run_commands(&mut self) -> bool {
        let _ = rustix::io::read(&*self.event_channel, &mut [0u8; 8]);
        while let Ok((command, done)) = self.commands.try_recv() {
            match command {
                Command::Stop => {
                    self.detach_all();
                    return true;
                }
                Command::Cut(process) => self.end_process(process),
                Command::Crash(vm) => self.crash(vm),
            }
            let _ = done.send(());
        }
        false
    }

    fn crash(&mut self, vm: VmId) {
        for client in self.kernel_host.sessions().clients_of(vm) {
            client.outbox.cut_off();
            self.end_process(client.id);
        }
        let of_vm = |(key, source): (&u64, &Source)| match source {
            Source::Listener { vm: of, .. } | Source::Broker { vm: of, .. } => (*of == vm).then_some(*key),
            Source::Commands
            | Source::NtHandles { .. }
            | Source::Clock
            | Source::PendingConnections
            | Source::Stream { .. }
            | Source::ReturnLimit(_)
            | Source::Pid { .. } => None,
        };
        for key in self.sources.iter().filter_map(of_vm).collect::<Vec<_>>() {
            self.forget(key);
        }
        self.forget_nt_handles(vm);
        self.kernel_host.input(Input::VmDetached { vm });
    }

    fn event(&mut self, key: u64, flags: epoll::EventFlags) {
        match self.sources.get_mut(&key) {
            // An event of a source that was removed earlier in this round.
            None | Some(Source::Commands) => {}
            Some(Source::Listener { .. }) => self.accept(key),
            Some(Source::Clock) => {
                self.kernel_host.clock_watch.acknowledge();
                self.kernel_host.tell_system_time();
            }
            Some(Source::PendingConnections) => self.kernel_host.pending_connections.expire(),
            Some(Source::ReturnLimit(_)) => self.return_limit_is_over(),
            Some(Source::Pid { process, .. }) => {
                let process = *process;
                self.detach_after_calls(process);
            }
            Some(Source::NtHandles { vm }) => {
                let vm = *vm;
                self.close_nt_handles(vm);
            }
            Some(Source::Broker { .. }) if flags.intersects(turns::HUNG_UP) => self.end_is_due(key),
            // A user may have thousands of connections with requests: its requests have turns, as its calls have.
            Some(Source::Broker { vm, peer, .. }) => self.turns.join((*vm, *peer), key),
            Some(Source::Stream { .. }) => self.stream_event(key, flags),
        }
    }

    fn add(&mut self, source: Source) -> anyhow::Result<u64> {
        let key = self.next_key;
        self.next_key += 1;
        let descriptor = source.descriptor().context("the loop's own sources are watched from the start")?;
        epoll::add(&*self.epoll, descriptor, epoll::EventData::new_u64(key), source.interest())?;
        self.sources.insert(key, source);
        Ok(key)
    }

    /// Accepts a few waiting connections; the rest wait for the next round, as all clients do.
    fn accept(&mut self, key: u64) {
        for _ in 0..ACCEPTED_AT_ONCE_MAX {
            let Some(Source::Listener { vm, listener }) = self.sources.get(&key) else { return };
            let vm = *vm;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&listener.descriptor, flags) {
                Ok(connection) => {
                    let peer = user_of(&connection);
                    if let Err(error) = self.accepted(vm, peer, connection) {
                        let line =
                            || format!("the connection of a local process could not be accepted: {error:#}");
                        self.kernel_host.log.warn(peer, line);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    self.kernel_host.log.warn(Peer::Vm(vm), || {
                        format!(
                            "no local process can be accepted until another one is gone: {error}; \
                             start the daemon with a higher limit of open files (ulimit -n)"
                        )
                    });
                    return self.rest_listener(key);
                }
            }
        }
    }

    fn accepted(&mut self, vm: VmId, peer: Peer, connection: OwnedFd) -> anyhow::Result<()> {
        let Budgets { descriptors, closers, .. } = &self.kernel_host.budgets;
        let (share, refusal) = match descriptors.take(peer, 1) {
            Ok(share) => (Some(share), None),
            // It may be of a process that had its connection before others took what is left. Any other is closed at its
            // first request: see `park`.
            Err(_) if self.returning.is_some() && descriptors.has_room(peer) => {
                (Some(descriptors.count(peer, 1)), None)
            }
            Err(refusal) => (None, Some(refusal)),
        };
        let connection = Arc::new(ClientFd::socket(connection, peer, share, closers));
        if let Some(refusal) = refusal {
            let refusal = refusal.into();
            // A process that returns takes a refusal for final. It tries again if the connection is closed without one.
            if self.returning.is_none() {
                let _ = Reply::refusal(&refusal).send(&connection);
            }
            return Err(refusal);
        }
        let pending_connection = Some(self.pending_connection(peer, &connection));
        let (process, share, deferred) = (None, None, None);
        self.add(Source::Broker { vm, peer, connection, process, share, pending_connection, deferred })
            .map(drop)
    }

    fn budgets_of(&mut self, vm: VmId) -> &VmBudgets {
        self.budgets.entry(vm).or_default()
    }

    /// Registers an accepted broker connection. If it attaches no process in time, it is shut down in both directions.
    fn pending_connection(&self, peer: Peer, connection: &Arc<ClientFd>) -> PendingConnection {
        let connection = Arc::clone(connection);
        let close = move |why: &str| {
            let _ = Reply::refusal(&anyhow::anyhow!("{why}")).send(&connection);
            let _ = rustix::net::shutdown(&connection, Shutdown::Both);
        };
        self.kernel_host.pending_connections.accepted(peer, close)
    }

    fn attach(
        &mut self,
        key: u64,
        vm: VmId,
        connection: &ClientFd,
        name: String,
        rings: bool,
    ) -> anyhow::Result<Reply> {
        let process_share = self.budgets_of(vm).processes.take(connection.peer(), 1)?;
        let pid = PeerCredentials::of(connection)?.pid()?;
        let peer = connection.peer();
        let (memory, memory_descriptor) = broker::first_memory(&self.kernel_host.budgets, peer)?;
        let slots = memory.slots();
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(rustix::net::AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let (client, token) =
            self.kernel_host.sessions().attach(vm, pid.as_raw_nonzero().get() as u32, name, memory)?;
        let areas = self.offer_rings(&client, peer, rings);
        let mut keys = vec![key];
        let reply = self.watch_process(&client, peer, pid, ours, &mut keys).map(|()| {
            let right = self.kernel_host.sessions().resume_right(client.id);
            // With a journal no events are registered: a set eventfd is not counted, whereas frames are.
            let keeps_events = self.setter.is_some() && right.is_none();
            let events_max = if keeps_events { REGISTERED_EVENTS_PER_PROCESS_MAX as u32 } else { 0 };
            let (resume_token, resume_ms) =
                right.map_or((Vec::new(), None), |(token, ms)| (token.to_vec(), ms));
            let (token, process) = (token.to_vec(), client.id.0);
            let message = BrokerReply {
                token,
                process,
                slots,
                events_max,
                resume_token,
                resume_ms,
                rings: areas.is_some(),
                ..BrokerReply::default()
            };
            let own = [theirs, memory_descriptor].into_iter();
            Reply { message, descriptors: own.chain(areas.into_iter().flatten()).collect() }
        });
        if let Some(Source::Broker { process, share, .. }) = self.sources.get_mut(&key) {
            (*process, *share) = (Some(client.id), Some(process_share));
        }
        self.keys_of.insert(client.id, keys);
        reply
    }

    /// Gives a process rings, if it asks for them and has a share of mappings left: else it uses its stream.
    fn offer_rings(&self, client: &ClientProcess, peer: Peer, asked: bool) -> Option<[OwnedFd; 2]> {
        if !asked || !self.kernel_host.gives_rings {
            return None;
        }
        let share = self.kernel_host.budgets.mappings.take(peer, MAPPINGS_PER_PROCESS).ok()?;
        let (rings, areas) = Rings::create(share).ok()?;
        client.outbox.offer_rings(rings);
        Some(areas)
    }

    fn watch_process(
        &mut self,
        client: &ClientProcess,
        peer: Peer,
        pid: Pid,
        stream: OwnedFd,
        keys: &mut Vec<u64>,
    ) -> anyhow::Result<()> {
        let process = client.id;
        // A process that has already exited is detected by its closed connection.
        if let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            let share = Some(self.kernel_host.budgets.descriptors.take(peer, 1)?);
            keys.push(self.add(Source::Pid { process, pidfd, share })?);
        }
        let share = self.kernel_host.budgets.descriptors.take(peer, 1)?;
        self.watch_stream(client, share, peer, stream, keys)
    }

    fn watch_stream(
        &mut self,
        client: &ClientProcess,
        share: Share,
        peer: Peer,
        stream: OwnedFd,
        keys: &mut Vec<u64>,
    ) -> anyhow::Result<()> {
        let closers = &self.kernel_host.budgets.closers;
        let stream = Arc::new(ClientFd::socket(stream, peer, Some(share), closers));
        let (vm, process) = (client.vm, client.id);
        let (epoll, key) = (self.epoll.clone(), self.next_key);
        let sink = SinkStream::Local { stream: stream.clone(), epoll, key }.into();
        let channel = Box::new(Channel::new(self.kernel_host.clone(), vm, Some(process), sink));
        let (readable, left_stream, hung_up, last_reads) = (false, false, false, None);
        let source =
            Source::Stream { vm, process, stream, channel, readable, left_stream, hung_up, last_reads };
        keys.push(self.add(source)?);
        Ok(())
    }

    fn end_process(&mut self, process: ProcessId) {
        // An exited process has closed all its descriptors by now, so its NT handles are closed with it, if they are few.
        for vm in self.nt_handles.keys().copied().collect::<Vec<_>>() {
            self.close_nt_handles(vm);
        }
        self.kernel_host.sessions().detach(process);
        for key in self.keys_of.remove(&process).unwrap_or_default() {
            self.forget(key);
        }
    }

    /// Removes a source and closes its descriptors.
    fn forget(&mut self, key: u64) {
        let Some(source) = self.sources.remove(&key) else { return };
        self.busy_rings.forget(key);
        if let (Source::Broker { peer, .. }, Some(returning)) = (&source, &mut self.returning) {
            returning.forget(*peer, key);
        }
        if let Some(descriptor) = source.descriptor() {
            // Other processes may have the same open file: a close alone would not remove it from the epoll set.
            let _ = epoll::delete(&*self.epoll, descriptor);
        }
        drop(source);
        self.accept_again();
    }
}
