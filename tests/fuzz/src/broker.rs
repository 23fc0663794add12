//! Requests to a broker, with descriptors of all kinds: to the daemon's for local processes, or to that of a guest
//! ([`guest`]). Each input has one of them, real sockets, and no thread but those that close descriptors.

mod guest;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arbitrary::{Result, Unstructured};
use daemon::kernel_host::KernelHost;
use daemon::local::DirectLoop;
use daemon::{Clock, Options};
use proto::Message as _;
use proto::attach::{BrokerReply, BrokerRequest, broker_request};
use proto::channel::{Hello, ToHost, to_host};
use proto::convert::call_to_frame;
use proto::frame::append;
use proto::limits::BROKER_PACKET_BYTES_MAX;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::calls::{Drawn, Known, any_call};

/// `SCM_MAX_FD` of the kernel.
const DESCRIPTORS_MAX: usize = 253;
const PAGE_BYTES: u64 = 4096;
const CONNECTIONS_MAX: usize = 6;
/// Descriptors of replies that the clients of an input keep.
const KEPT_MAX: usize = 32;
/// Each input has a path of its own, where sync files are made.
static INPUTS: AtomicUsize = AtomicUsize::new(0);

/// A broker, with what is behind it.
trait Brokers {
    /// Connects a process.
    fn connect(&mut self) -> OwnedFd;
    /// Handles all that is ready.
    fn run_ready(&mut self);
    /// Something else happens than a request.
    fn other(&mut self, input: &mut Unstructured<'_>) -> Result<()>;
    /// All connections are closed: nothing is left.
    fn assert_empty(&mut self);
}

/// A path that no other input uses. Nothing is at it.
fn unused_path() -> std::path::PathBuf {
    let number = INPUTS.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("gpupv-fuzz-broker-{}-{number}.sock", std::process::id()))
}

/// The daemon's broker.
struct Local {
    kernel_host: Arc<KernelHost>,
    broker: DirectLoop,
}

impl Local {
    fn new() -> Local {
        let options = Options { clock: Clock::Virtual, ..Options::default() };
        let kernel_host = KernelHost::new(&options).expect("the daemon's part that has no threads");
        let broker = DirectLoop::new(Arc::clone(&kernel_host), &unused_path()).expect("the loop is made");
        Local { kernel_host, broker }
    }
}

impl Brokers for Local {
    fn connect(&mut self) -> OwnedFd {
        self.broker.connect().expect("the user has a share left")
    }

    fn run_ready(&mut self) {
        self.broker.run_ready().expect("epoll waits");
    }

    fn other(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        self.kernel_host.advance(1 << input.int_in_range(0..=34)?);
        Ok(())
    }

    fn assert_empty(&mut self) {
        let clients = self.kernel_host.sessions().clients();
        assert!(clients.is_empty(), "processes are left: {}", clients.len());
        let left = self.kernel_host.views().snapshot();
        assert!(left.processes.is_empty() && left.objects_alive == 0, "left: {left:?}");
    }
}

/// A process's connection to the broker.
struct Client {
    socket: OwnedFd,
    process: u32,
    token: Vec<u8>,
    resume_token: Vec<u8>,
}

/// The processes of an input.
struct Processes<'a> {
    brokers: &'a mut dyn Brokers,
    clients: Vec<Client>,
    /// Descriptors that replies had: streams, memory, NT handles.
    kept: Vec<OwnedFd>,
    known: Known,
    requests: u64,
}

fn memory(name: &str, bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, bytes).expect("it gets its size");
    fcntl_add_seals(&file, seals).expect("it gets its seals");
    file
}

/// One end of a pair. In the other, which is closed, something is unread: an eventfd.
fn socket_with_unread() -> OwnedFd {
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a pair");
    let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    send(&far, b"x", &[event.as_fd()]);
    near
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "they fit");
    }
    // A broker that has closed the connection, or one that has much to read, gets nothing.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags);
}

impl Processes<'_> {
    /// A descriptor that a process may send.
    fn descriptor(&self, input: &mut Unstructured<'_>) -> Result<OwnedFd> {
        let (sealed, backing) = (SealFlags::GROW | SealFlags::SHRINK, proto::limits::BACKING_MEMFD);
        let pages = input.int_in_range(1..=4u64)? * PAGE_BYTES;
        Ok(match input.int_in_range(0..=11)? {
            0..=2 => memory(backing, pages, sealed),
            3 => memory(backing, pages, sealed | SealFlags::WRITE),
            4 => memory(backing, pages, SealFlags::SHRINK),
            5 => memory(backing, pages + u64::from(input.arbitrary::<u16>()?), sealed | SealFlags::SEAL),
            6 | 7 => eventfd(u32::from(input.arbitrary::<u8>()?), EventfdFlags::CLOEXEC).expect("an eventfd"),
            8 => socket_with_unread(),
            9 => {
                rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).expect("the root")
            }
            _ => match input.choose(&self.kept) {
                Ok(kept) => kept.try_clone().expect("the system has descriptors left"),
                Err(_) => eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"),
            },
        })
    }

    /// Descriptors of a packet: the usual number, or some more.
    fn descriptors(&self, input: &mut Unstructured<'_>, usual: usize) -> Result<Vec<OwnedFd>> {
        let count = match input.int_in_range(0..=15)? {
            0 => input.int_in_range(0..=3)?,
            1 => input.int_in_range(0..=DESCRIPTORS_MAX)?,
            _ => usual,
        };
        let first = (0..count.min(3)).map(|_| self.descriptor(input)).collect::<Result<Vec<_>>>()?;
        let more = first.iter().cycle().take(count.max(first.len()) - first.len());
        let more: Vec<_> = more.map(|file| file.try_clone().expect("descriptors are left")).collect();
        Ok(first.into_iter().chain(more).collect())
    }

    fn request(&mut self, input: &mut Unstructured<'_>, client: usize) -> Result<()> {
        use broker_request::{Attach, AttachBacking, Body, Grow, Regain, Resume, ShareBacking};
        let (version, version_min) = (proto::PROTOCOL_VERSION, proto::PROTOCOL_VERSION);
        let address = u64::from(input.arbitrary::<u8>()?) << input.int_in_range(0..=40)?;
        let pages = if input.ratio(1, 8)? { input.arbitrary()? } else { input.int_in_range(0..=4u32)? };
        let number = if input.ratio(1, 8)? { input.arbitrary()? } else { input.int_in_range(0..=70u32)? };
        let (allocation, offset) = (self.known.handles.last().map_or(number, |handle| handle.0), address);
        // A valid request may be longer than any packet.
        let repeated = if input.ratio(1, 16)? { BROKER_PACKET_BYTES_MAX } else { 1 };
        let (name, event) = (input.arbitrary::<&str>()?.repeat(repeated), u64::from(number));
        let rings = input.arbitrary()?;
        let mut usual = 0;
        let body = match input.int_in_range(0..=18)? {
            0..=3 => Body::Attach(Attach { version, name, version_min, rings }),
            4 => Body::Attach(Attach { version: number, name, version_min: pages, rings }),
            5 => Body::Grow(Grow { slots: number }),
            6 => Body::MakeNtHandle(true),
            7 => Body::MakeSyncFile(rings),
            8 => Body::AttachBacking(AttachBacking { address, pages }),
            9 => Body::DetachBacking(address),
            10 => Body::ShareBacking(ShareBacking { allocation, offset }),
            11 => Body::UnregisterEvent(event),
            12 => Body::Settle(rings),
            13 => {
                let Client { process, resume_token: token, .. } = &self.clients[client];
                let token = if input.arbitrary()? { token.clone() } else { vec![1; pages as usize % 64] };
                Body::Resume(Resume { version, process: *process, token, version_min, rings })
            }
            14 => Body::Regain(Regain { first_slot: number, slots: pages }),
            rest => {
                usual = 1;
                match rest {
                    15 => Body::RegisterEvent(event),
                    16 => Body::ReattachBacking(AttachBacking { address, pages }),
                    17 => Body::ReshareBacking(ShareBacking { allocation, offset }),
                    _ => Body::HaveNtHandle(true),
                }
            }
        };
        let bytes = BrokerRequest { body: Some(body) }.encode_to_vec();
        let descriptors = self.descriptors(input, usual)?;
        self.send(client, &bytes, &descriptors);
        Ok(())
    }

    fn send(&mut self, client: usize, bytes: &[u8], descriptors: &[OwnedFd]) {
        let descriptors: Vec<_> = descriptors.iter().map(|file| file.as_fd()).collect();
        send(&self.clients[client].socket, bytes, &descriptors);
    }

    /// Reads the replies of a connection.
    fn read(&mut self, client: usize) {
        let Client { socket, process, token, resume_token } = &mut self.clients[client];
        let mut bytes = [0; BROKER_PACKET_BYTES_MAX];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = recvmsg(&*socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
            let Ok(count @ 1..) = received.map(|message| message.bytes) else { return };
            let reply = BrokerReply::decode(&bytes[..count]).expect("the broker sends replies");
            for part in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                    self.kept.extend(descriptors);
                }
            }
            self.kept.drain(..self.kept.len().saturating_sub(KEPT_MAX));
            if !reply.token.is_empty() {
                (*process, *token, *resume_token) = (reply.process, reply.token, reply.resume_token);
            }
        }
    }

    /// Writes to a descriptor of a reply: a Hello, a call, or any bytes.
    fn write(&mut self, input: &mut Unstructured<'_>, client: usize) -> Result<()> {
        let mut bytes = Vec::new();
        match input.int_in_range(0..=3)? {
            0 => {
                let (version, token) = (proto::PROTOCOL_VERSION, self.clients[client].token.clone());
                let hello = Hello { version, token, rings: input.arbitrary()?, ..Hello::default() };
                append(&ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }, &mut bytes);
            }
            1 | 2 => {
                self.requests += 1;
                let call = any_call(&mut Drawn { input, known: &self.known })?;
                append(&call_to_frame(self.requests, &call), &mut bytes);
            }
            _ => bytes.extend(input.arbitrary::<&[u8]>()?),
        }
        let Ok(to) = input.choose(&self.kept) else { return Ok(()) };
        let descriptors = if input.ratio(1, 16)? { vec![self.descriptor(input)?] } else { Vec::new() };
        if descriptors.is_empty() && rustix::net::sockopt::socket_type(to).is_err() {
            // Memory, or an NT handle: what is sealed refuses it.
            let _ = rustix::io::pwrite(to, &bytes, u64::from(input.arbitrary::<u16>()?));
        } else {
            send(to, &bytes, &descriptors.iter().map(|file| file.as_fd()).collect::<Vec<_>>());
        }
        Ok(())
    }

    fn step(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if self.clients.is_empty() {
            self.connect();
        }
        let client = input.choose_index(self.clients.len())?;
        match input.int_in_range(0..=15)? {
            0..=6 => {
                self.request(input, client)?;
                self.brokers.run_ready();
                self.read(client);
            }
            // Not handled yet: more than one request waits.
            7 => self.request(input, client)?,
            8 => {
                let descriptors = self.descriptors(input, 0)?;
                self.send(client, input.arbitrary()?, &descriptors);
            }
            9 => {
                let bytes = vec![7; usize::from(input.arbitrary::<u16>()?) % (2 * BROKER_PACKET_BYTES_MAX)];
                self.send(client, &bytes, &[]);
            }
            10 if self.clients.len() < CONNECTIONS_MAX => self.connect(),
            10 | 11 => drop(self.clients.swap_remove(client)),
            12 | 13 => self.write(input, client)?,
            14 => {
                self.brokers.other(input)?;
                if !self.kept.is_empty() && input.ratio(1, 4)? {
                    let kept = input.choose_index(self.kept.len())?;
                    drop(self.kept.swap_remove(kept));
                }
            }
            _ => {
                self.brokers.run_ready();
                self.read(client);
            }
        }
        Ok(())
    }

    fn connect(&mut self) {
        let socket = self.brokers.connect();
        self.clients.push(Client { socket, process: 0, token: Vec::new(), resume_token: Vec::new() });
    }
}

fn run(input: &mut Unstructured<'_>, processes: &mut Processes<'_>) -> Result<()> {
    while !input.is_empty() {
        processes.step(input)?;
    }
    Ok(())
}

/// One input: which broker, and what processes send it. Nothing is left when all have closed their connections.
pub fn broker(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    let mut brokers: Box<dyn Brokers> =
        if which % 2 == 0 { Box::new(Local::new()) } else { Box::new(guest::Guest::new()) };
    let (clients, kept, known) = Default::default();
    let mut processes = Processes { brokers: &mut *brokers, clients, kept, known, requests: 0 };
    // The input is over where bytes run out.
    let _ = run(&mut Unstructured::new(data), &mut processes);
    processes.clients.clear();
    processes.kept.clear();
    brokers.run_ready();
    brokers.assert_empty();
}
