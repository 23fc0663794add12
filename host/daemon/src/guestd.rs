//! guestd's connection: the only connection of a VM that may attach processes and register pages.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use d3dkmt::limits::REGISTERED_EVENTS_PER_PROCESS_MAX;
use d3dkmt::text::printable;
use d3dkmt::{EventId, FeatureId, Handle, ShareToken};
use dxgkrnl::{Features, ProcessId};
use proto::Versions;
use proto::attach::{
    AddFenceMemory, AttachBacking, AttachProcess, Attached, DetachBacking, GuestdHello, GuestdToHost,
    GuestdWelcome, HostToGuestd, KeptBacking, RegisteredEvent, ResumeProcess, Resumed, Returning, RingPages,
    Rung, ShareBacking, SharedBacking, guestd_to_host, host_to_guestd, rung,
};
use proto::frame::{self, FrameBuffer};
use proto::version::{FEATURES_SINCE, KEPT_BACKING_SINCE};
use vsock_device::locks::{Rank, Ranked, RankedGuard};
use vsock_device::{CloseReason, Connection, Endpoint, GuestMemory};

use super::backing::{BackingPages, GuestCharge, GuestPages, GuestSession, ReleaseBacking, check_addresses};
use super::client_process::{ClientProcess, kept_name};
use super::kernel_host::{Detach, SharedPiece, Token};
use super::limits::HELLO_BYTES_MAX;
use super::memory::FenceMemory;
use super::peer::Peer;
use super::pending_connections::{PendingConnection, accepted_from};
use super::rings::{AREA_PAGES, Rings};
use super::vm::VmShared;

/// One connection of guestd.
pub struct GuestdEndpoint {
    vm: Arc<VmShared>,
    /// For the pages that it names; `Some` once it has sent GuestdHello.
    guest_session: Option<Arc<GuestSession>>,
    /// `Some` until it has sent GuestdHello.
    pending_connection: Option<PendingConnection>,
    memory: GuestMemory,
    frames: FrameBuffer,
    replies: Arc<Replies>,
}

/// Replies to guestd.
struct Replies {
    connection: Connection,
    /// Number of guestd's session, once it has sent GuestdHello.
    session: OnceLock<u64>,
    unsent: Ranked<Unsent>,
}

/// What did not fit guestd's connection yet: other connections of the guest may fill shared space.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    /// The connection reported that it is full; it reports when there is room.
    blocked: bool,
}

/// A guestd that leaves this much unread is regarded as not reading.
const UNSENT_BYTES_MAX: usize = 1 << 20;

impl GuestdEndpoint {
    pub fn new(vm: Arc<VmShared>, memory: GuestMemory, connection: Connection) -> Self {
        let pending_connection = Some(accepted_from(&vm, &connection));
        let replies = Arc::new(Replies::new(connection));
        GuestdEndpoint {
            vm,
            guest_session: None,
            pending_connection,
            memory,
            frames: FrameBuffer::default(),
            replies,
        }
    }

    fn process_frames(&mut self) -> anyhow::Result<()> {
        use guestd_to_host::Body;
        loop {
            anyhow::ensure!(
                self.session().is_some() || self.frames.missing() <= HELLO_BYTES_MAX,
                "the first frame has more than {HELLO_BYTES_MAX} bytes, so it is not GuestdHello"
            );
            let message = match self.frames.next_frame().context("guestd's connection")? {
                Some(bytes) => frame::decode::<GuestdToHost>(bytes).context("guestd's connection")?,
                None => return Ok(()),
            };
            let body = message.body.context("a message of guestd has no body")?;
            match (&body, self.session()) {
                (Body::Attach(attach), Some(session)) if self.park(session, message.request, attach) => {}
                // A process of another VM, or one that is gone, is answered without effect.
                (Body::Detach(process), Some(_)) if self.owns(ProcessId(*process)) => {
                    self.detach_behind_calls(message.request, ProcessId(*process))?;
                }
                _ => {
                    let reply = self.message(body)?;
                    self.replies.answer(&self.vm, message.request, reply);
                }
            }
            // The answer may have reset the connection of a guestd that does not read. What follows is of no session:
            // nobody would end a process that it attaches.
            if self.session().is_some_and(|session| !self.vm.is_session(session)) {
                return Ok(());
            }
            // A packet may have thousands of messages, each of which locks the kernel.
            self.vm.kernel_host.yield_to_waiters();
        }
    }

    /// Defers a new process until the old ones have returned. False if none are awaited, or too many are deferred, or if it
    /// has other pages than rings take: all that it keeps meanwhile is short.
    fn park(&self, session: u64, request: u64, attach: &AttachProcess) -> bool {
        let rings = attach.rings.as_ref().filter(|_| self.vm.kernel_host.gives_rings);
        if rings
            .is_some_and(|rings| [&rings.host, &rings.process].iter().any(|area| area.len() != AREA_PAGES))
        {
            return false;
        }
        let (vm, memory, replies) = (self.vm.clone(), self.memory.clone(), self.replies.clone());
        let attach = AttachProcess { pid: attach.pid, name: kept_name(&attach.name), rings: rings.cloned() };
        let parked = Box::new(move || {
            let attached = new_process(&vm, attach, &memory);
            let process = attached.as_ref().ok().map(|attached| ProcessId(attached.process));
            replies.answer(&vm, request, attached.map(host_to_guestd::Body::Attached));
            // The end of a session detaches the processes that it has by then, so this one is detached here.
            if let Some(process) = process.filter(|_| !vm.is_session(session)) {
                vm.kernel_host.sessions().detach(process);
            }
        });
        self.vm.kernel_host.resumption().defer(self.vm.id, parked)
    }

    /// Detaches a process after the calls that it has sent. guestd waits for the answer before it frees pages. A second
    /// detach meanwhile breaks the protocol: each is kept until those calls are made, and nothing would limit their number.
    fn detach_behind_calls(&self, request: u64, process: ProcessId) -> anyhow::Result<()> {
        let (vm, replies) = (self.vm.clone(), self.replies.clone());
        if let Ok(client) = self.client(process.0) {
            let is_repeated = client.is_leaving.swap(true, Ordering::Relaxed);
            anyhow::ensure!(!is_repeated, "guestd detaches process {} twice", process.0);
        }
        let detach = Box::new(move || {
            vm.kernel_host.sessions().detach(process);
            replies.answer(&vm, request, Ok(detached(&vm, process)));
        });
        self.vm.after_calls(process, detach);
        Ok(())
    }

    /// Handles one message. The outer error resets the connection, the inner one refuses the request.
    fn message(
        &mut self,
        body: guestd_to_host::Body,
    ) -> anyhow::Result<anyhow::Result<host_to_guestd::Body>> {
        use guestd_to_host::Body;
        use host_to_guestd::Body as Reply;
        if let Body::Hello(hello) = &body {
            // A guestd without a common version is sent the reason, because its operator reads the guest's log.
            return Ok(match Versions::agree(hello.version, hello.version_min, "guestd") {
                Ok(version) => Ok(Reply::Welcome(self.hello(hello, version)?)),
                Err(none) => Err(none.into()),
            });
        }
        anyhow::ensure!(self.session().is_some(), "guestd's first message is not GuestdHello");
        Ok(match body {
            Body::Hello(_) => unreachable!("handled above"),
            Body::Attach(attach) => new_process(&self.vm, attach, &self.memory).map(Reply::Attached),
            Body::AddMemory(AddFenceMemory { process, pages, first_slot }) => {
                let process = ProcessId(process);
                let added = match first_slot {
                    None => self.add_memory(process, &pages),
                    Some(first) => self.regain(process, first, &pages).map(|()| first),
                };
                added.map(Reply::FirstSlot)
            }
            Body::Returning(Returning { processes }) => {
                self.vm.kernel_host.resumption().returning(self.vm.id, &processes);
                Ok(Reply::Returned(true))
            }
            Body::NtHandleHeld(bytes) => {
                let token = proto::convert::token(&bytes, "nt_handle_held").context("guestd's connection")?;
                self.hold_nt_handle(token).map(|()| Reply::NtHandleHeld(true))
            }
            Body::Resume(resume) => self.resume(resume).map(Reply::Resumed),
            Body::MakeNtHandle(process) => self.client(process).and_then(|_| {
                let token = self.vm.kernel_host.nt_handles().make(self.vm.id)?;
                self.raise_through_guestd(token);
                Ok(Reply::NtHandle(token.0.to_vec()))
            }),
            Body::NtHandleClosed(bytes) => {
                let token =
                    proto::convert::token(&bytes, "nt_handle_closed").context("guestd's connection")?;
                self.vm.kernel_host.nt_handles().closed(self.vm.id, token);
                Ok(Reply::NtHandleClosed(true))
            }
            Body::AttachBacking(attach_backing) => {
                self.attach_backing(attach_backing).map(|()| Reply::BackingAttached(true))
            }
            Body::DetachBacking(detach) => self.detach_backing(&detach, false),
            Body::ReleaseBacking(release) => self.detach_backing(&release, true),
            Body::ShareBacking(share) => self.share_backing(&share).map(Reply::SharedBacking),
            Body::KeptBacking(kept) => self.keep_backing(kept).map(|()| Reply::BackingAttached(true)),
            Body::RegisterEvent(event) => {
                self.register_event(&event).map(|token| Reply::EventChannel(token.to_vec()))
            }
            Body::UnregisterEvent(RegisteredEvent { process, event }) => self.client(process).map(|client| {
                // An event that is not registered is ignored.
                client.outbox.unregister_event(EventId(event));
                Reply::Forgotten(true)
            }),
            Body::Settle(process) => self.client(process).map(|client| {
                let wakes = client.outbox.registered_events().into_iter();
                let event_channels = wakes.map(|(name, wakes)| rung::EventChannel { event: name.0, wakes });
                Reply::Rung(Rung { event_channels: event_channels.collect() })
            }),
            // The host has ended it.
            Body::Detach(process) => Ok(detached(&self.vm, ProcessId(process))),
        })
    }

    /// Records an NT handle that processes of the guest have kept open over a restart of the daemon.
    fn hold_nt_handle(&self, token: ShareToken) -> anyhow::Result<()> {
        self.vm.kernel_host.nt_handles().insert_open(self.vm.id, token)?;
        self.raise_through_guestd(token);
        Ok(())
    }

    /// Lets the kernel's thread send guestd that a sync file is ready, if the handle is one.
    fn raise_through_guestd(&self, token: ShareToken) {
        let replies = self.replies.clone();
        let raise = Arc::new(move |token| replies.sync_file_ready(token));
        self.vm.kernel_host.nt_handles().raised_by(self.vm.id, token, raise);
    }

    fn hello(&mut self, hello: &GuestdHello, version: u32) -> anyhow::Result<GuestdWelcome> {
        anyhow::ensure!(self.session().is_none(), "guestd sent GuestdHello twice");
        let session = self.vm.guestd_there().context("another guestd is connected already")?;
        self.replies.session.get_or_init(|| session);
        self.guest_session = Some(Arc::new(self.new_session(version)));
        self.pending_connection = None;
        let line =
            || format!("vm {}: guestd is connected, kernel {}", self.vm.id.0, printable(&hello.kernel));
        self.vm.kernel_host.log.debug(Peer::Vm(self.vm.id), line);
        let known = match version >= FEATURES_SINCE {
            true => Features::of_ids(hello.features.iter().copied().map(FeatureId)),
            false => Features::all(),
        };
        let features = self.vm.kernel_host.sessions().guest_features(self.vm.id, known);
        Ok(self.welcome(version, features))
    }

    fn resume(&self, resume: ResumeProcess) -> anyhow::Result<Resumed> {
        let ResumeProcess { process, pid, token, rings } = resume;
        let process = ProcessId(process);
        let rings = rings_in(&self.vm, &self.memory, rings.as_ref())?;
        let resumption = self.vm.kernel_host.resumption();
        let (slots, token) = resumption.resume(self.vm.id, pid, process, &token, no_pages(&self.memory))?;
        if let (Some(rings), Ok(client)) = (rings, self.client(process.0)) {
            client.outbox.offer_rings(rings);
        }
        Ok(Resumed { slots, token: token.to_vec() })
    }

    fn welcome(&self, version: u32, features: Features) -> GuestdWelcome {
        // With a journal, wakes of a driver's events are frames of the stream, which are counted.
        let keeps_events = !self.vm.kernel_host.traces().has_journal();
        GuestdWelcome {
            version,
            vm: self.vm.id.0,
            events_max: if keeps_events { REGISTERED_EVENTS_PER_PROCESS_MAX as u32 } else { 0 },
            resuming: self.vm.kernel_host.resumption().is_resuming_vm(self.vm.id),
            features: features.ids().into_iter().map(|feature| feature.0).collect(),
            rings: self.vm.kernel_host.gives_rings,
        }
    }

    /// Number of guestd's session, once it has sent GuestdHello.
    fn session(&self) -> Option<u64> {
        self.replies.session.get().copied()
    }

    fn owns(&self, process: ProcessId) -> bool {
        self.client(process.0).is_ok()
    }

    /// Returns an attached process of this VM.
    fn client(&self, process: u32) -> anyhow::Result<Arc<ClientProcess>> {
        let client = self
            .vm
            .kernel_host
            .sessions()
            .client(ProcessId(process))
            .filter(|client| client.vm == self.vm.id);
        client.ok_or_else(|| not_attached(ProcessId(process)))
    }

    /// Registers an event that guestd sets. Returns the token of its event channel.
    fn register_event(&self, event: &RegisteredEvent) -> anyhow::Result<Token> {
        let client = self.client(event.process)?;
        self.vm.event_channels.announce(&client, EventId(event.event))
    }

    /// Checks pages of guest RAM for a process of this VM.
    fn check_pages(&self, process: ProcessId, pages: &[u64]) -> anyhow::Result<()> {
        if !self.owns(process) {
            return Err(not_attached(process));
        }
        check_addresses(&self.memory, pages)
    }

    /// Attaches pages of guest RAM as backing.
    fn attach_backing(&self, attach_backing: AttachBacking) -> anyhow::Result<()> {
        let AttachBacking { process, address, pages } = attach_backing;
        let (process, count) = (ProcessId(process), pages.len() as u32);
        self.check_pages(process, &pages)?;
        let backing = self.guest_pages(pages)?;
        self.vm.kernel_host.sessions().attach_backing(process, address, count, backing)
    }

    fn detach_backing(
        &self,
        detach: &DetachBacking,
        if_unused: bool,
    ) -> anyhow::Result<host_to_guestd::Body> {
        let DetachBacking { process, address } = *detach;
        let sessions = self.vm.kernel_host.sessions();
        let detach = match self.client(process) {
            Ok(client) => sessions.detach_backing(client.id, address, if_unused)?,
            // The host has ended the process, and still accesses these pages.
            Err(_) if sessions.kept(self.vm.id, ProcessId(process)).contains(&address) => Detach::Kept,
            Err(error) => return Err(error),
        };
        Ok(match detach {
            Detach::Detached => host_to_guestd::Body::TakenBack(true),
            Detach::Kept => host_to_guestd::Body::Kept(KeptBacking { addresses: vec![address] }),
            Detach::InUse => host_to_guestd::Body::InUse(true),
        })
    }

    /// Finds the pages for an allocation that a process has opened.
    fn share_backing(&self, share: &ShareBacking) -> anyhow::Result<SharedBacking> {
        let ShareBacking { process, allocation, offset } = *share;
        let (client, sessions) = (self.client(process)?, self.vm.kernel_host.sessions());
        let SharedPiece { owner, address, bytes, .. } =
            sessions.share_backing(client.id, Handle(allocation), offset)?;
        Ok(SharedBacking { process: owner.0, address, bytes })
    }

    /// Attaches pages again that outlive their process, after a restart of the daemon.
    fn keep_backing(&self, kept: AttachBacking) -> anyhow::Result<()> {
        let AttachBacking { process, address, pages } = kept;
        let count = pages.len() as u32;
        check_addresses(&self.memory, &pages)?;
        let backing = self.guest_pages(pages)?;
        let (resumption, vm) = (self.vm.kernel_host.resumption(), self.vm.id);
        resumption.keep_backing(vm, ProcessId(process), address, count, backing)
    }

    fn guest_pages(&self, pages: Vec<u64>) -> anyhow::Result<BackingPages> {
        GuestPages::of(self.guest_session()?, pages).map(BackingPages::Guest)
    }

    fn guest_session(&self) -> anyhow::Result<&Arc<GuestSession>> {
        self.guest_session.as_ref().context("guestd's first message is not GuestdHello")
    }

    /// What the pages that this session attaches have in common.
    fn new_session(&self, version: u32) -> GuestSession {
        let replies = self.replies.clone();
        let release = (version >= KEPT_BACKING_SINCE)
            .then(|| ReleaseBacking(Arc::new(move |process, address| replies.released(process, address))));
        GuestSession { memory: self.memory.clone(), release, quota: self.vm.pages.clone() }
    }

    /// Registers pages of guest RAM as fence memory of a process.
    fn add_memory(&self, process: ProcessId, pages: &[u64]) -> anyhow::Result<u32> {
        self.check_pages(process, pages)?;
        let have = self.vm.kernel_host.sessions().slots(process).unwrap_or(0) as usize;
        let slots = have + pages.len() * fence_page::SLOTS_PER_PAGE as usize;
        let most = d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX as usize;
        anyhow::ensure!(slots <= most, "{slots} fence slots for one process, the limit is {most}");
        let charge = self.guest_session()?.charge(pages.len())?;
        self.vm.kernel_host.sessions().add_memory(process, |memory| take_pages(memory, pages, charge))
    }

    /// The same for slots of a returning process; their values are stored when this returns.
    fn regain(&self, process: ProcessId, first: u32, pages: &[u64]) -> anyhow::Result<()> {
        self.check_pages(process, pages)?;
        let charge = self.guest_session()?.charge(pages.len())?;
        let count = pages.len() as u32;
        let take = |memory: &mut FenceMemory| take_pages(memory, pages, charge);
        self.vm.kernel_host.resumption().regain(process, first, count, take)
    }
}

impl Replies {
    fn new(connection: Connection) -> Self {
        let unsent = Ranked::new(Rank::Replies, Unsent::default());
        Replies { connection, session: OnceLock::new(), unsent }
    }

    fn lock(&self) -> RankedGuard<'_, Unsent> {
        self.unsent.lock_or_abort()
    }

    /// Detaches the VM's processes. guestd frees the pages when it sees its connection closed, and nothing may be
    /// stored after that. So this comes before every close by the daemon.
    fn end_processes(&self, vm: &VmShared) {
        if let Some(session) = self.session.get() {
            vm.guestd_gone(*session);
        }
    }

    fn reset(&self, vm: &VmShared) {
        self.end_processes(vm);
        self.connection.reset();
    }

    /// Sends a reply. The connection of a guestd that does not read is reset.
    fn answer(&self, vm: &VmShared, request: u64, reply: anyhow::Result<host_to_guestd::Body>) {
        let reply = match reply {
            Ok(body) => HostToGuestd { request, body: Some(body), ..HostToGuestd::default() },
            Err(refused) => {
                let refused = format!("{refused:#}");
                vm.warn(|| format!("a request of guestd is refused: {refused}"));
                HostToGuestd { request, refused, body: None }
            }
        };
        let mut unsent = self.lock();
        frame::append(&reply, &mut unsent.bytes);
        self.send_more(&mut unsent);
        let reads = unsent.bytes.len() <= UNSENT_BYTES_MAX;
        drop(unsent);
        if !reads {
            vm.warn(|| "guestd does not read; its connection is reset".into());
            self.reset(vm);
        }
    }

    /// Sends that a sync file is ready. There is one such message for each sync file of the VM at most, and guestd has to
    /// read answers to make more, so what it leaves unread is limited.
    fn sync_file_ready(&self, token: ShareToken) {
        self.send(host_to_guestd::Body::SyncFileReady(token.0.to_vec()));
    }

    /// Sends that kept pages are no longer accessed, once for pages that guestd has attached.
    fn released(&self, process: ProcessId, address: u64) {
        self.send(host_to_guestd::Body::BackingReleased(DetachBacking { process: process.0, address }));
    }

    /// Sends a message of the host's own.
    fn send(&self, body: host_to_guestd::Body) {
        let body = Some(body);
        let mut unsent = self.lock();
        frame::append(&HostToGuestd { body, ..HostToGuestd::default() }, &mut unsent.bytes);
        self.send_more(&mut unsent);
    }

    /// The connection has room again.
    fn writable(&self) {
        let mut unsent = self.lock();
        unsent.blocked = false;
        self.send_more(&mut unsent);
    }

    /// Sends what fits, once; `writable` sends the rest.
    fn send_more(&self, unsent: &mut Unsent) {
        if unsent.blocked || unsent.bytes.is_empty() {
            return;
        }
        // A closed connection notifies its endpoint itself.
        let sent = self.connection.send_some(&unsent.bytes).unwrap_or(0);
        unsent.bytes.drain(..sent);
        unsent.blocked = !unsent.bytes.is_empty();
    }
}

fn new_process(vm: &VmShared, attach: AttachProcess, memory: &GuestMemory) -> anyhow::Result<Attached> {
    let AttachProcess { pid, name, rings } = attach;
    let rings = rings_in(vm, memory, rings.as_ref())?;
    let (client, token) = vm.kernel_host.sessions().attach(vm.id, pid, kept_name(&name), no_pages(memory))?;
    if let Some(rings) = rings {
        client.outbox.offer_rings(rings);
    }
    let right = vm.kernel_host.sessions().resume_right(client.id);
    let (resume_token, resume_ms) = right.map_or((Vec::new(), None), |(token, ms)| (token.to_vec(), ms));
    Ok(Attached { process: client.id.0, token: token.to_vec(), resume_token, resume_ms })
}

fn no_pages(memory: &GuestMemory) -> FenceMemory {
    FenceMemory::Guest { memory: memory.clone(), pages: Vec::new(), charges: Vec::new() }
}

/// The rings in pages that guestd lends, if the daemon uses rings.
fn rings_in(vm: &VmShared, memory: &GuestMemory, pages: Option<&RingPages>) -> anyhow::Result<Option<Rings>> {
    let Some(RingPages { host, process }) = pages.filter(|_| vm.kernel_host.gives_rings) else {
        return Ok(None);
    };
    check_addresses(memory, host).and_then(|()| check_addresses(memory, process)).context("rings")?;
    Rings::in_guest(memory, host, process).map(Some)
}

/// The answer to a detach: guestd frees what is not kept.
fn detached(vm: &VmShared, process: ProcessId) -> host_to_guestd::Body {
    let addresses = vm.kernel_host.sessions().kept(vm.id, process);
    match addresses.is_empty() {
        true => host_to_guestd::Body::Detached(true),
        false => host_to_guestd::Body::Kept(KeptBacking { addresses }),
    }
}

fn take_pages(memory: &mut FenceMemory, pages: &[u64], charge: GuestCharge) -> anyhow::Result<()> {
    match memory {
        FenceMemory::Guest { pages: known, charges, .. } => {
            known.extend_from_slice(pages);
            charges.push(charge);
            Ok(())
        }
        FenceMemory::Local(_) => anyhow::bail!("the process is a local one"),
    }
}

fn not_attached(process: ProcessId) -> anyhow::Error {
    anyhow::anyhow!("process {} is not attached in this VM", process.0)
}

impl Endpoint for GuestdEndpoint {
    fn received(&mut self, bytes: &[u8]) {
        self.frames.extend(bytes);
        if let Err(error) = self.process_frames() {
            self.vm.kernel_host.counters.protocol_errors.add(1);
            self.vm.warn(|| format!("{error:#}; guestd's connection is reset"));
            self.replies.reset(&self.vm);
        }
        self.frames.release();
    }

    fn peer_finished(&mut self) {
        self.replies.end_processes(&self.vm);
        self.replies.connection.finish();
    }

    fn writable(&mut self) {
        self.replies.writable();
    }

    fn closed(&mut self, _reason: CloseReason) {
        self.replies.end_processes(&self.vm);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use dxgkrnl::VmId;
    use vm_memory::{GuestAddress, GuestMemoryMmap};
    use vsock_device::direct::DirectDevice;
    use vsock_device::limits::{BUFFERS_PER_PASS_MAX, PEER_WINDOW_BYTES_MAX, QUEUE_SIZE_MAX};
    use vsock_device::packet::HEADER_BYTES;

    use super::*;
    use crate::counting;
    use crate::kernel_host::KernelHost;
    use crate::test_guest::TestGuest;
    use crate::vm::VmState;
    use crate::{Clock, Options};

    /// The endpoint of a connection on which only the test sends.
    struct Ignored;

    impl Endpoint for Ignored {
        fn received(&mut self, _: &[u8]) {}

        fn closed(&mut self, _: CloseReason) {}
    }

    /// A VM, and a connection of its guestd on which the guest reads nothing.
    struct Vm {
        kernel_host: Arc<KernelHost>,
        vm: Arc<VmShared>,
        endpoint: GuestdEndpoint,
        _device: DirectDevice,
    }

    impl Vm {
        fn new() -> Vm {
            let options = Options { clock: Clock::Virtual, ..Options::default() };
            let kernel_host = KernelHost::new(&options).unwrap();
            let vm = VmShared::new(VmId(1), "vm1", &kernel_host, None);
            let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 16)]).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let device = DirectDevice::new(3, vm.services(), memory, folder.path().join("vm.sock")).unwrap();
            let connection = device.connect(1000, Box::new(Ignored)).unwrap();
            let endpoint = GuestdEndpoint::new(vm.clone(), vm.memory().unwrap(), connection);
            Vm { kernel_host, vm, endpoint, _device: device }
        }
    }

    /// GuestdHello and these messages behind it.
    fn packet(bodies: impl IntoIterator<Item = guestd_to_host::Body>) -> Vec<u8> {
        let hello = GuestdHello {
            version: proto::PROTOCOL_VERSION,
            version_min: proto::PROTOCOL_VERSION,
            ..GuestdHello::default()
        };
        let mut packet = Vec::new();
        for body in std::iter::once(guestd_to_host::Body::Hello(hello)).chain(bodies) {
            frame::append(&GuestdToHost { request: 1, body: Some(body) }, &mut packet);
        }
        packet
    }

    #[test]
    fn nothing_behind_the_request_whose_answer_resets_the_connection_is_processed() {
        let Vm { kernel_host, vm, mut endpoint, _device } = Vm::new();
        kernel_host.input(dxgkrnl::Input::VmAttached { vm: vm.id, name: "vm1".into() });
        let attach = || guestd_to_host::Body::Attach(AttachProcess { pid: 1, ..AttachProcess::default() });
        endpoint.received(&packet([attach()]));
        assert_eq!(kernel_host.sessions().clients_of(vm.id).len(), 1, "a process is attached");
        let mut rest = Vec::new();
        // Each is refused with more than 16 bytes.
        let refused = std::iter::repeat_n(guestd_to_host::Body::Settle(7), UNSENT_BYTES_MAX / 16);
        for body in refused.chain([attach()]) {
            frame::append(&GuestdToHost { request: 2, body: Some(body) }, &mut rest);
        }
        endpoint.received(&rest);
        let session = endpoint.session().unwrap();
        assert!(!vm.is_session(session), "guestd does not read, so its session has ended");
        assert!(kernel_host.sessions().clients_of(vm.id).is_empty(), "nobody would end this process");
    }

    #[test]
    fn a_process_that_waits_until_others_have_returned_keeps_little() {
        let Vm { kernel_host, vm, mut endpoint, _device } = Vm::new();
        kernel_host.input(dxgkrnl::Input::VmAttached { vm: vm.id, name: "vm1".into() });
        endpoint.received(&packet([]));
        kernel_host.resumption().wait_for(ProcessId(7));
        let mut attach = |name: String, pages: usize| {
            let pages = vec![1 << 40; pages];
            let rings = Some(RingPages { host: pages.clone(), process: pages });
            let attach = AttachProcess { pid: 1, name, rings };
            let mut frame = Vec::new();
            let body = Some(guestd_to_host::Body::Attach(attach));
            frame::append(&GuestdToHost { request: 2, body }, &mut frame);
            endpoint.received(&frame);
            drop(frame);
            kernel_host.resumption().deferred_work_count()
        };
        assert_eq!(attach(String::new(), 2 * AREA_PAGES), 0, "it is refused at once");
        assert_eq!(attach(String::new(), AREA_PAGES), 1);
        let before = counting::live_bytes();
        assert_eq!(attach("x".repeat(100 << 10), AREA_PAGES), 2);
        let kept = counting::live_bytes() - before;
        assert!(kept < 2048, "{kept} bytes");
    }

    /// The endpoint of guestd's connection.
    struct Guestd(Arc<OnceLock<Arc<Replies>>>);

    impl Endpoint for Guestd {
        fn received(&mut self, _: &[u8]) {}

        fn writable(&mut self) {
            self.0.get().unwrap().writable();
        }

        fn closed(&mut self, _: CloseReason) {}
    }

    #[test]
    fn a_guest_that_adds_small_buffers_does_not_hold_a_thread_that_tells_guestd_something() {
        let Vm { vm, .. } = Vm::new();
        let own = Arc::new(OnceLock::new());
        let (mut guest, connection) =
            TestGuest::connected(&vm, Box::new(Guestd(own.clone())), PEER_WINDOW_BYTES_MAX);
        let replies = own.get_or_init(|| Arc::new(Replies::new(connection)));
        let filler = vec![7; UNSENT_BYTES_MAX / 2];
        replies.lock().bytes.extend_from_slice(&filler);
        guest.offer(QUEUE_SIZE_MAX - 1, HEADER_BYTES as u32 + 1);
        let used = guest.used();
        for token in 0..2 {
            replies.sync_file_ready(ShareToken([token; 16]));
            let filled = guest.used() - used;
            assert!(
                usize::from(filled) <= BUFFERS_PER_PASS_MAX + 1,
                "{filled} buffers, one pass, then it waits"
            );
        }
        let received = guest.receive_all();
        let ready = received.strip_prefix(&filler[..]).unwrap();
        assert!(ready.len() > 2 * 16 && ready.ends_with(&[1; 16]));
        assert!(replies.lock().bytes.is_empty());
    }

    #[test]
    fn a_second_detach_behind_the_same_calls_breaks_the_protocol() {
        let Vm { kernel_host, vm, mut endpoint, _device } = Vm::new();
        kernel_host.input(dxgkrnl::Input::VmAttached { vm: vm.id, name: "vm1".into() });
        let attach = guestd_to_host::Body::Attach(AttachProcess { pid: 1, ..AttachProcess::default() });
        endpoint.received(&packet([attach]));
        let process = kernel_host.sessions().clients_of(vm.id)[0].id;
        vm.add_pending_calls(process);
        let mut detach = Vec::new();
        let body = Some(guestd_to_host::Body::Detach(process.0));
        frame::append(&GuestdToHost { request: 2, body }, &mut detach);
        endpoint.received(&detach);
        let session = endpoint.session().unwrap();
        assert!(vm.is_session(session), "the first waits for the calls");
        endpoint.received(&detach);
        assert!(!vm.is_session(session), "the second is not kept");
        assert_eq!(kernel_host.counters.protocol_errors.count(), 1);
    }

    #[test]
    fn a_guestd_has_no_access_to_a_process_of_another_vm() {
        let Vm { kernel_host, mut endpoint, .. } = Vm::new();
        let memory = FenceMemory::Local(Vec::new());
        let (client, _) = kernel_host.sessions().attach(VmId::HOST, 1, "host's".into(), memory).unwrap();
        endpoint.received(&packet([]));
        let process = client.id.0;
        let event = RegisteredEvent { process, event: 1 };
        let attach_backing = AttachBacking { process, address: 0x10_0000, pages: vec![0] };
        for body in [
            guestd_to_host::Body::AddMemory(AddFenceMemory { process, pages: vec![0], first_slot: None }),
            guestd_to_host::Body::MakeNtHandle(process),
            guestd_to_host::Body::AttachBacking(attach_backing),
            guestd_to_host::Body::DetachBacking(DetachBacking { process, address: 0x10_0000 }),
            guestd_to_host::Body::ShareBacking(ShareBacking { process, allocation: 1, offset: 0 }),
            guestd_to_host::Body::RegisterEvent(event),
            guestd_to_host::Body::UnregisterEvent(event),
            guestd_to_host::Body::Settle(process),
        ] {
            let refused = endpoint.message(body.clone()).unwrap().unwrap_err().to_string();
            assert!(refused.contains("is not attached in this VM"), "{body:?}: {refused}");
        }
        assert!(!endpoint.owns(client.id), "it is not detached at this guestd's request");
    }

    #[test]
    fn nothing_is_left_of_a_guestd_that_has_gone() {
        let Vm { kernel_host, vm, mut endpoint, _device } = Vm::new();
        kernel_host.input(dxgkrnl::Input::VmAttached { vm: vm.id, name: "vm1".into() });
        let attach = guestd_to_host::Body::Attach(AttachProcess { pid: 1, ..AttachProcess::default() });
        endpoint.received(&packet([attach]));
        let process = kernel_host.sessions().clients_of(vm.id)[0].id;
        for _ in 0..3 {
            endpoint.message(guestd_to_host::Body::MakeNtHandle(process.0)).unwrap().unwrap();
        }
        assert_eq!(kernel_host.nt_handles().count(), 3);
        vm.guestd_gone(endpoint.session().unwrap());
        assert!(kernel_host.sessions().clients_of(vm.id).is_empty());
        assert_eq!(kernel_host.nt_handles().count(), 0);
    }

    #[test]
    fn a_process_that_waited_for_others_leaves_nothing_if_its_guestd_has_gone_meanwhile() {
        let Vm { kernel_host, vm, mut endpoint, _device } = Vm::new();
        kernel_host.input(dxgkrnl::Input::VmAttached { vm: vm.id, name: "vm1".into() });
        kernel_host.resumption().wait_for(ProcessId(7));
        let attach = guestd_to_host::Body::Attach(AttachProcess { pid: 1, ..AttachProcess::default() });
        endpoint.received(&packet([attach]));
        assert_eq!(kernel_host.resumption().deferred_work_count(), 1);
        vm.guestd_gone(endpoint.session().unwrap());
        kernel_host.resumption().resume_all();
        assert!(kernel_host.sessions().clients_of(vm.id).is_empty());
    }

    #[test]
    fn a_waiting_thread_locks_the_kernel_between_two_messages_of_one_packet() {
        let Vm { kernel_host, vm, mut endpoint, _device } = Vm::new();
        let packet = packet([guestd_to_host::Body::Settle(7)]);
        let waiter = kernel_host.as_first_waiter();
        let (done, processed) = channel();
        let worker = std::thread::spawn(move || {
            endpoint.received(&packet);
            done.send(()).unwrap();
        });
        // On another thread, because the state ranks before the queue for the kernel.
        let is_ready = || vm.wait_for(VmState::Ready, Duration::from_secs(60), || false);
        let is_ready = std::thread::scope(|scope| scope.spawn(is_ready).join().unwrap());
        assert!(is_ready, "the first message is processed");
        let ended = processed.recv_timeout(Duration::from_millis(200));
        assert_eq!(ended, Err(RecvTimeoutError::Timeout), "the second waits for the thread that waits");
        drop(waiter);
        processed.recv().unwrap();
        worker.join().unwrap();
    }
}
