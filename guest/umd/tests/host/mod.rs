//! A broker and host that a test controls: one socket in a directory, one [`Peer`] for each process that attaches. The
//! test is the host's program.
#![allow(dead_code)]

pub mod c;
pub mod event;

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use d3dkmt::{
    Call, CreatedSyncObject, EventId, Handle, NtStatus, Reply, ShareToken, SyncObjectFlags, SyncObjectInfo,
    SyncObjectType, WaitOutcome,
};
use dxcore::client::{CreatedFence, Session, attach, block_on};
use fence_page::Slot;
use proto::Message;
use proto::attach::{BrokerReply, BrokerRequest, broker_request};
use proto::channel::{ToGuest, ToHost, Welcome, to_guest, to_host};
use proto::convert::{answer_to_frame, call_from_body, wake_to_frame};
use proto::frame::{FrameBuffer, append, decode};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType,
};

pub const ADAPTER: Handle = Handle(0x4000_0040);
pub const DEVICE: Handle = Handle(0x4000_0080);
pub const TOKEN: [u8; 16] = *b"a one-time token";

/// Where the broker listens.
pub struct Listener {
    socket: OwnedFd,
    pub path: PathBuf,
}

impl Listener {
    pub fn new() -> Listener {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("umd-test-{}-{number}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 16).unwrap();
        Listener { socket, path }
    }

    /// Whether a process waits to be accepted.
    pub fn has_connection(&self) -> bool {
        let mut listener = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut listener, Some(&at_once)).unwrap() > 0
    }

    /// Refuses one process.
    pub fn refuse(&self, why: &str) {
        let broker = rustix::net::accept(&self.socket).unwrap();
        receive_packet(&broker).unwrap();
        send_packet(&broker, &BrokerReply { refused: why.to_owned(), ..BrokerReply::default() }, &[]);
    }

    /// Closes the connection of one process, whose request it has read.
    pub fn close_one(&self) {
        let broker = rustix::net::accept(&self.socket).unwrap();
        receive_packet(&broker).unwrap();
    }

    /// Accepts one process: attach, stream, memory of `slots` slots, Welcome.
    pub fn accept(&self, welcome: Welcome, slots: u32) -> Peer {
        self.accept_keeping(0, welcome, slots)
    }

    /// The same with a broker that registers up to `events_max` events.
    pub fn accept_keeping(&self, events_max: u32, welcome: Welcome, slots: u32) -> Peer {
        self.accept_with(BrokerReply { events_max, ..BrokerReply::default() }, welcome, slots)
    }

    /// The same with what `reply` says beyond the usual.
    pub fn accept_with(&self, reply: BrokerReply, welcome: Welcome, slots: u32) -> Peer {
        let broker = rustix::net::accept(&self.socket).unwrap();
        let Some(broker_request::Body::Attach(attach)) = receive_packet(&broker).unwrap().body else {
            panic!("the first request is not Attach");
        };
        assert_eq!(attach.version, proto::PROTOCOL_VERSION);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let memory = Memory::new(0, slots);
        let token = TOKEN.to_vec();
        let reply = BrokerReply { token, process: 1, slots, ..reply };
        send_packet(&broker, &reply, &[theirs.as_fd(), memory.descriptor.as_fd()]);
        drop(theirs);
        let mut peer = Peer {
            broker,
            stream: ours,
            frames: FrameBuffer::default(),
            regions: vec![memory],
            name: attach.name,
        };
        peer.greet(welcome);
        peer
    }

    /// Kills the broker and the host of a process that can be resumed, and resumes it with its first memory.
    pub fn restart(&self, mut killed: Peer, welcome: Welcome) -> Peer {
        let memory = killed.regions.remove(0);
        self.restart_with(killed, memory, welcome, || ())
    }

    /// The same with this memory. `meanwhile` is called when the process has said Hello and has no Welcome.
    pub fn restart_with(
        &self,
        killed: Peer,
        memory: Memory,
        welcome: Welcome,
        meanwhile: impl FnOnce(),
    ) -> Peer {
        let mut peer = self.resume(killed, memory);
        peer.hello();
        meanwhile();
        peer.welcome(welcome);
        peer
    }

    /// Kills the broker and the host, and resumes the process up to its memory. It has not said Hello.
    pub fn resume(&self, killed: Peer, memory: Memory) -> Peer {
        let Peer { broker, stream, name, .. } = killed;
        drop((broker, stream));
        let broker = rustix::net::accept(&self.socket).unwrap();
        let resume = receive_packet(&broker).unwrap().body;
        assert!(matches!(resume, Some(broker_request::Body::Resume(_))), "{resume:?}");
        let (stream, theirs) = UnixStream::pair().unwrap();
        let slots = memory.slots;
        let reply = BrokerReply { token: TOKEN.to_vec(), process: 1, slots, ..BrokerReply::default() };
        send_packet(&broker, &reply, &[theirs.as_fd()]);
        drop(theirs);
        let regain = receive_packet(&broker).unwrap().body;
        assert_eq!(
            regain,
            Some(broker_request::Body::Regain(broker_request::Regain { first_slot: 0, slots }))
        );
        let reply = BrokerReply { process: 1, ..BrokerReply::default() };
        send_packet(&broker, &reply, &[memory.descriptor.as_fd()]);
        let regions = vec![memory];
        Peer { broker, stream, frames: FrameBuffer::default(), regions, name }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

pub fn welcome() -> Welcome {
    Welcome { version: proto::PROTOCOL_VERSION, process: 1, ..Welcome::default() }
}

/// A session and its host.
pub fn connect(welcome: Welcome, slots: u32) -> (Arc<Session>, Peer) {
    connect_keeping(0, welcome, slots)
}

/// The same with a broker that registers up to `events_max` events.
pub fn connect_keeping(events_max: u32, welcome: Welcome, slots: u32) -> (Arc<Session>, Peer) {
    let listener = Listener::new();
    attached(&listener, || listener.accept_keeping(events_max, welcome, slots))
}

/// A session that has a right to resume, its host, and where the next host listens.
pub fn connect_resumable() -> (Listener, Arc<Session>, Peer) {
    let listener = Listener::new();
    let resume_token = b"a right to resume".to_vec();
    let reply = BrokerReply { resume_token, resume_ms: Some(60_000), ..BrokerReply::default() };
    let (session, peer) = attached(&listener, || listener.accept_with(reply, welcome(), 64));
    (listener, session, peer)
}

fn attached(listener: &Listener, accept: impl FnOnce() -> Peer) -> (Arc<Session>, Peer) {
    std::thread::scope(|scope| {
        let session = scope.spawn(|| attach(&listener.path, "test").expect("attaches"));
        let peer = accept();
        (Arc::new(session.join().unwrap()), peer)
    })
}

/// As [`connect`], with an adapter and a device on it, and a monitored fence for each initial value.
pub fn connect_with_fences(welcome: Welcome, values: &[u64]) -> (Arc<Session>, Peer, Vec<CreatedFence>) {
    let (session, mut peer) = connect(welcome, 64);
    let guest = session.clone();
    let values_wanted = values.to_vec();
    let creating = std::thread::spawn(move || {
        assert_eq!(block_on(guest.create_device(ADAPTER, 0)), Ok(DEVICE));
        values_wanted.iter().map(|value| create_fence(&guest, *value, SyncObjectFlags::empty())).collect()
    });
    let (request, _) = peer.call();
    peer.answer(request, NtStatus::SUCCESS, &Reply::Device(DEVICE));
    for (slot, value) in values.iter().enumerate() {
        peer.answer_create(slot as u32, *value);
    }
    (session, peer, creating.join().unwrap())
}

pub fn create_fence(session: &Session, initial_value: u64, flags: SyncObjectFlags) -> CreatedFence {
    let object_type = SyncObjectType::MONITORED_FENCE;
    let info = SyncObjectInfo { object_type, flags, initial_value, ..SyncObjectInfo::default() };
    block_on(session.create_sync_object(DEVICE, info, false, None)).expect("creates")
}

pub fn fence_handle(slot: u32) -> Handle {
    Handle::local(100 + slot, 1)
}

/// The host's end of one process.
pub struct Peer {
    pub broker: OwnedFd,
    pub stream: UnixStream,
    pub frames: FrameBuffer,
    pub regions: Vec<Memory>,
    pub name: String,
}

/// NT handles of a broker of this thread's own.
fn handles() -> nt_handle::NtHandles {
    let name = format!("gpupv-umd-{}-{:?}", std::process::id(), std::thread::current().id());
    let folder = nt_handle::SyncFileFolder::fresh(&std::env::temp_dir().join(name));
    nt_handle::NtHandles::new(folder).unwrap()
}

impl Peer {
    pub fn greet(&mut self, welcome: Welcome) {
        self.hello();
        self.welcome(welcome);
    }

    fn hello(&mut self) {
        let Some(to_host::Body::Hello(hello)) = self.frame().unwrap().body else { panic!("no Hello") };
        assert_eq!(hello.token, TOKEN);
    }

    fn welcome(&mut self, welcome: Welcome) {
        self.send(&ToGuest { request: 0, status: 0, body: Some(to_guest::Body::Welcome(welcome)) });
    }

    /// Answers the request for an NT handle without a watch. Returns the token that it carries.
    pub fn give_nt_handle(&self) -> ShareToken {
        let request = receive_packet(&self.broker).unwrap();
        assert_eq!(request.body, Some(broker_request::Body::MakeNtHandle(true)));
        let token = ShareToken(*b"an object's name");
        let handle = handles().make(token).unwrap();
        // An empty message would be an empty packet, which is the end of the connection.
        let reply = BrokerReply { process: 1, ..BrokerReply::default() };
        send_packet(&self.broker, &reply, &[handle.as_fd()]);
        token
    }

    /// The same for a sync file, which nobody signals until it is given.
    pub fn give_sync_file(&self) -> ShareToken {
        let request = receive_packet(&self.broker).unwrap();
        assert_eq!(request.body, Some(broker_request::Body::MakeSyncFile(true)));
        let token = ShareToken(*b"a sync file's na");
        let sync_file = handles().make_sync_file(token).unwrap();
        let reply = BrokerReply { process: 1, ..BrokerReply::default() };
        send_packet(&self.broker, &reply, &[sync_file.as_fd()]);
        token
    }

    /// Receives the next request to the broker and its descriptor, and answers: with `refused` if that is not empty.
    pub fn serve_broker(&self, refused: &str) -> (broker_request::Body, Option<OwnedFd>) {
        let request = self.broker_request();
        let reply = BrokerReply { process: 1, refused: refused.to_owned(), ..BrokerReply::default() };
        send_packet(&self.broker, &reply, &[]);
        request
    }

    /// Receives the next request to the broker and its descriptor.
    pub fn broker_request(&self) -> (broker_request::Body, Option<OwnedFd>) {
        let (request, descriptor) = receive_with_descriptor(&self.broker).expect("the guest asks its broker");
        (request.body.unwrap(), descriptor)
    }

    /// The next frame; `None` when the guest is gone.
    pub fn frame(&mut self) -> Option<ToHost> {
        loop {
            if let Some(frame) = self.frames.next_frame().unwrap() {
                return Some(decode(frame).unwrap());
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.frames.extend(&bytes[..count]),
            }
        }
    }

    /// The next call with its request id.
    pub fn call(&mut self) -> (u64, Call) {
        let frame = self.frame().expect("the guest sends a call");
        (frame.request, call_from_body(frame.body.unwrap()).unwrap())
    }

    pub fn send(&mut self, frame: &ToGuest) {
        let mut bytes = Vec::new();
        append(frame, &mut bytes);
        self.raw(&bytes);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn answer(&mut self, request: u64, status: NtStatus, reply: &Reply) {
        self.send(&answer_to_frame(request, status, reply));
    }

    pub fn wake(&mut self, event: EventId, status: NtStatus) {
        self.send(&wake_to_frame(event, status));
    }

    pub fn goodbye(&mut self, reason: &str) {
        let body = Some(to_guest::Body::Goodbye(reason.to_owned()));
        self.send(&ToGuest { request: 0, status: 0, body });
    }

    /// Answers the next call, a create, with a fence in this slot.
    pub fn answer_create(&mut self, slot: u32, value: u64) {
        let (request, call) = self.call();
        let Call::CreateSynchronizationObject { info, .. } = call else { panic!("{call:?}") };
        self.store(slot, value);
        let no_wait = info.flags.contains(SyncObjectFlags::NO_WAIT);
        let created = CreatedSyncObject { no_wait, ..created(slot) };
        self.answer(request, NtStatus::SUCCESS, &Reply::SyncObject(created));
    }

    /// The next call, which must be a CPU wait. Returns its request and event.
    pub fn wait_call(&mut self) -> (u64, EventId) {
        match self.call() {
            (request, Call::WaitFromCpu { event, .. }) => (request, event),
            (_, other) => panic!("not a wait: {other:?}"),
        }
    }

    pub fn answer_wait(&mut self, request: u64, outcome: WaitOutcome) {
        self.answer(request, NtStatus::SUCCESS, &Reply::Wait(outcome));
    }

    /// Stores a fence value, as the host does.
    pub fn store(&self, slot: u32, value: u64) {
        self.regions
            .iter()
            .find_map(|memory| memory.slot(slot))
            .expect("a slot of this process")
            .publish(value);
    }

    /// Serves one request for more memory. Returns how much was asked for.
    pub fn grow(&mut self) -> u32 {
        let Some(broker_request::Body::Grow(grow)) = receive_packet(&self.broker).unwrap().body else {
            panic!("not Grow");
        };
        let first_slot = self.regions.iter().map(|memory| memory.slots).sum();
        let memory = Memory::new(first_slot, grow.slots);
        let reply = BrokerReply { first_slot, slots: grow.slots, ..BrokerReply::default() };
        send_packet(&self.broker, &reply, &[memory.descriptor.as_fd()]);
        self.regions.push(memory);
        grow.slots
    }

    pub fn refuse_grow(&mut self, why: &str) {
        receive_packet(&self.broker).unwrap();
        send_packet(&self.broker, &BrokerReply { refused: why.to_owned(), ..BrokerReply::default() }, &[]);
    }

    /// Answers a request to the broker with a wake, which belongs on the stream.
    pub fn wake_through_the_broker(&mut self, event: EventId) {
        receive_packet(&self.broker).unwrap();
        let mut bytes = Vec::new();
        append(&wake_to_frame(event, NtStatus::SUCCESS), &mut bytes);
        rustix::net::send(&self.broker, &bytes, SendFlags::NOSIGNAL).unwrap();
    }

    /// Whether the guest has closed its broker connection.
    pub fn broker_ended(&self) -> bool {
        let mut byte = [0; 1];
        matches!(rustix::net::recv(&self.broker, &mut byte, RecvFlags::DONTWAIT), Ok((0, _)))
    }
}

pub fn created(slot: u32) -> CreatedSyncObject {
    let gpu_address = 0x1_0000 + u64::from(slot) * 64;
    CreatedSyncObject {
        object: fence_handle(slot),
        shared_handle: Handle::NULL,
        slot: Some(slot),
        gpu_address,
        paging_fence_value: 0,
        no_wait: false,
    }
}

/// Fence memory as the real broker makes it: mapped writable here, then sealed against every later
/// writable mapping.
pub struct Memory {
    first_slot: u32,
    slots: u32,
    descriptor: OwnedFd,
    base: *const Slot,
}

// SAFETY: the slots are atomics, and the mapping stays for the life of the test process.
unsafe impl Send for Memory {}

impl Memory {
    pub fn new(first_slot: u32, slots: u32) -> Memory {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = rustix::fs::memfd_create("fences", flags).unwrap();
        let bytes = fence_page::pages_for(slots) as usize * fence_page::PAGE_BYTES;
        rustix::fs::ftruncate(&descriptor, bytes as u64).unwrap();
        // SAFETY: a new mapping, never unmapped.
        let base = unsafe {
            let writable = ProtFlags::READ | ProtFlags::WRITE;
            mmap(std::ptr::null_mut(), bytes, writable, MapFlags::SHARED, &descriptor, 0).unwrap()
        };
        rustix::fs::fcntl_add_seals(
            &descriptor,
            SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW,
        )
        .unwrap();
        Memory { first_slot, slots, descriptor, base: base.cast_const().cast() }
    }

    pub fn slot(&self, slot: u32) -> Option<&Slot> {
        let index = slot.checked_sub(self.first_slot).filter(|index| *index < self.slots)?;
        // SAFETY: inside the mapping.
        Some(unsafe { &*self.base.add(index as usize) })
    }
}

fn receive_packet(socket: &OwnedFd) -> Option<BrokerRequest> {
    receive_with_descriptor(socket).map(|(request, _)| request)
}

fn receive_with_descriptor(socket: &OwnedFd) -> Option<(BrokerRequest, Option<OwnedFd>)> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let count = rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::empty()).ok()?.bytes;
    let descriptor = ancillary.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    (count > 0).then(|| (BrokerRequest::decode(&bytes[..count]).unwrap(), descriptor))
}

pub fn send_packet(socket: &OwnedFd, reply: &BrokerReply, descriptors: &[std::os::fd::BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let bytes = reply.encode_to_vec();
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
}

/// The socket's path in the environment of this test process, for the C ABI.
pub fn point_environment_to(path: &Path) {
    // SAFETY: called before the test process has other threads that read the environment.
    unsafe { std::env::set_var(proto::limits::BROKER_ENV, path) };
}
