//! A guest without a VM, under the control of an attacker with root in it. It uses the daemon's vhost-user socket as QEMU
//! does, sends guestd's messages, and serves a broker socket to attackers as guestd does to a guest's processes.
//!
//! ```text
//!   attacker ── broker's socket ──▶ relay ── GUESTD_PORT ──▶ daemon
//!            ── its stream ───────▶       ── CHANNEL_PORT ─▶
//! ```
//! Attacks that send their own packets use [`Session`] alone, without a broker.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use d3dkmt::FeatureId;
use front_end::{FREE_AREA, GuestVm, MEMORY_BYTES, MEMORY_START};
use proto::attach::{
    AddFenceMemory, AttachProcess, BrokerReply, BrokerRequest, GuestdHello, GuestdToHost, GuestdWelcome,
    HostToGuestd, RingPages, broker_request, guestd_to_host, host_to_guestd,
};
use proto::frame::{FrameBuffer, append, decode};
use proto::limits::{BROKER_PACKET_BYTES_MAX, CHANNEL_PORT, GUESTD_PORT};
use proto::{Message as _, PROTOCOL_VERSION, Versions};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use vm_memory::{GuestMemoryBackend as _, GuestMemoryRegion as _};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vsock_device::packet::{HEADER_BYTES, Header, Operation};

/// Lower ports belong to guestd.
const GUESTD_SOURCE_PORT: u32 = 700;
const FIRST_PORT: u32 = 10_000;
const PAGE: u64 = 4096;
const SLOTS_PER_PAGE: u32 = 64;
/// Receive credit of a connection, in bytes.
const RECEIVE_BYTES: u32 = 1 << 30;
const PIECE_BYTES: usize = 16 * 1024;
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The hello of this release's guestd.
pub fn hello() -> GuestdHello {
    GuestdHello {
        version: PROTOCOL_VERSION,
        version_min: Versions::OURS.oldest(),
        kernel: "none".into(),
        features: FeatureId::MODELLED.map(|feature| feature.0).to_vec(),
    }
}

/// The guest's side of a vsock connection.
#[derive(Default)]
pub struct Link {
    local: u32,
    established: bool,
    pub closed: bool,
    sent: u32,
    received: u32,
    peer_alloc: u32,
    peer_forwarded: u32,
    /// Received bytes that have not been read.
    pub inbox: Vec<u8>,
}

impl Link {
    /// Send credit: bytes that the daemon accepts.
    fn credit(&self) -> usize {
        self.peer_alloc.saturating_sub(self.sent.wrapping_sub(self.peer_forwarded)) as usize
    }
}

/// The virtqueues, their connections, and guestd's connection.
pub struct Session {
    pub guest: GuestVm,
    pub links: BTreeMap<u32, Link>,
    next_port: u32,
    frames: FrameBuffer,
    requests: u64,
    free_pages: Vec<u64>,
    pages_of: BTreeMap<u32, Vec<u64>>,
}

impl Session {
    /// Boots at a socket of the daemon; guestd sends its hello.
    pub fn boot(socket: &Path) -> Result<Session, String> {
        Session::boot_saying(socket, hello()).map(|(session, _)| session)
    }

    /// Boots; guestd sends this hello.
    pub fn boot_saying(socket: &Path, hello: GuestdHello) -> Result<(Session, GuestdWelcome), String> {
        let mut guest = GuestVm::boot(socket);
        guest.cid = guest.config();
        guest.buf_alloc = RECEIVE_BYTES;
        let end = MEMORY_START + MEMORY_BYTES as u64;
        let mut session = Session {
            guest,
            links: BTreeMap::new(),
            next_port: FIRST_PORT,
            frames: FrameBuffer::default(),
            requests: 0,
            free_pages: (FREE_AREA..end).step_by(PAGE as usize).collect(),
            pages_of: BTreeMap::new(),
        };
        session.connect_from(GUESTD_SOURCE_PORT, GUESTD_PORT)?;
        match session.ask(guestd_to_host::Body::Hello(hello))? {
            host_to_guestd::Body::Welcome(welcome) => Ok((session, welcome)),
            other => Err(format!("no welcome but {other:?}")),
        }
    }

    /// Whether QEMU's socket is closed. It has no other input, because answers are read at once.
    fn is_cut_off(&self) -> bool {
        front_end::is_readable(&self.guest.frontend, Duration::ZERO)
    }

    fn header(&self, operation: Operation, port: u32) -> Header {
        let (local, received) = self.links.get(&port).map_or((0, 0), |link| (link.local, link.received));
        Header { fwd_cnt: received, ..self.guest.header(operation, port, local) }
    }

    /// Connects to a port of the daemon, which may refuse.
    pub fn connect(&mut self, local: u32) -> Result<u32, String> {
        let port = self.next_port;
        self.next_port += 1;
        self.connect_from(port, local).map(|()| port)
    }

    fn connect_from(&mut self, port: u32, local: u32) -> Result<(), String> {
        self.links.insert(port, Link { local, ..Link::default() });
        self.guest.send(self.header(Operation::REQUEST, port), &[]);
        self.until("a connection is accepted", |session| {
            let link = session.links.get(&port)?;
            (link.established || link.closed).then_some(())
        })?;
        if self.links[&port].closed {
            return Err(format!("the connection to port {local} is refused"));
        }
        Ok(())
    }

    pub fn reset(&mut self, port: u32) {
        if self.links.get(&port).is_some_and(|link| !link.closed) {
            self.guest.send(self.header(Operation::RST, port), &[]);
        }
        self.links.remove(&port);
    }

    /// Sends as much as the daemon accepts; returns the number of bytes.
    pub fn send(&mut self, port: u32, bytes: &[u8]) -> usize {
        let Some(link) = self.links.get(&port).filter(|link| !link.closed) else { return bytes.len() };
        let count = link.credit().min(bytes.len());
        for piece in bytes[..count].chunks(PIECE_BYTES) {
            self.guest.send(self.header(Operation::RW, port), piece);
            if let Some(link) = self.links.get_mut(&port) {
                link.sent = link.sent.wrapping_add(piece.len() as u32);
            }
        }
        count
    }

    fn packet(&mut self, bytes: &[u8]) {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return };
        let header = Header::decode(head);
        let payload = &bytes[HEADER_BYTES..];
        let Some(link) = self.links.get_mut(&header.dst_port) else { return };
        (link.peer_alloc, link.peer_forwarded) = (header.buf_alloc, header.fwd_cnt);
        match header.operation {
            Operation::RESPONSE => link.established = true,
            Operation::RST | Operation::SHUTDOWN => link.closed = true,
            Operation::RW => {
                link.received = link.received.wrapping_add(payload.len() as u32);
                link.inbox.extend_from_slice(payload);
            }
            // Every other packet only updates the credit.
            _ => {}
        }
    }

    /// Processes the received packets.
    pub fn take_packets(&mut self) {
        while let Some(bytes) = self.guest.rx.wait_used(Duration::ZERO) {
            self.packet(&bytes);
            self.guest.offer_buffers(1);
        }
    }

    /// Processes packets until the condition returns something.
    pub fn until<T>(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&mut Session) -> Option<T>,
    ) -> Result<T, String> {
        let end = Instant::now() + ANSWER_WITHIN;
        loop {
            self.take_packets();
            if let Some(found) = condition(self) {
                return Ok(found);
            }
            if self.is_cut_off() {
                return Err("the daemon has closed its socket".into());
            }
            if Instant::now() >= end {
                return Err(format!("{what}: not in {ANSWER_WITHIN:?}"));
            }
            front_end::is_readable(&self.guest.rx.call, Duration::from_millis(100));
        }
    }

    /// Sends a request as guestd; returns the answer.
    pub fn ask(&mut self, body: guestd_to_host::Body) -> Result<host_to_guestd::Body, String> {
        self.requests += 1;
        let request = self.requests;
        let mut bytes = Vec::new();
        append(&GuestdToHost { request, body: Some(body) }, &mut bytes);
        let mut sent = 0;
        self.until("guestd is answered", |session| {
            sent += session.send(GUESTD_SOURCE_PORT, &bytes[sent..]);
            let link = session.links.get_mut(&GUESTD_SOURCE_PORT)?;
            let (inbox, closed) = (std::mem::take(&mut link.inbox), link.closed);
            session.frames.extend(&inbox);
            while let Ok(Some(frame)) = session.frames.next_frame() {
                let Ok(reply) = decode::<HostToGuestd>(frame) else { return Some(Err("no message".into())) };
                if reply.request == request {
                    return Some(reply.body.ok_or(reply.refused));
                }
            }
            closed.then(|| Err("guestd's connection is reset".into()))
        })?
    }

    /// Attaches a process with a page of fence memory; returns its number and token.
    pub fn attach(&mut self, name: &str) -> Result<(u32, Vec<u8>), String> {
        self.attach_with(name, None)
    }

    /// The same, with pages for rings.
    pub fn attach_with(&mut self, name: &str, rings: Option<RingPages>) -> Result<(u32, Vec<u8>), String> {
        let attach = AttachProcess { pid: std::process::id(), name: name.into(), rings };
        let host_to_guestd::Body::Attached(attached) = self.ask(guestd_to_host::Body::Attach(attach))? else {
            return Err("another answer".into());
        };
        self.grow(attached.process, 1)?;
        Ok((attached.process, attached.token))
    }

    /// Adds fence memory to a process; returns its first slot.
    fn grow(&mut self, process: u32, pages: u32) -> Result<u32, String> {
        let Some(remaining) = self.free_pages.len().checked_sub(pages as usize) else {
            return Err("the guest has no more pages".into());
        };
        let pages = self.free_pages.split_off(remaining);
        self.pages_of.entry(process).or_default().extend(&pages);
        let add = AddFenceMemory { process, pages, first_slot: None };
        match self.ask(guestd_to_host::Body::AddMemory(add))? {
            host_to_guestd::Body::FirstSlot(first) => Ok(first),
            other => Err(format!("another answer: {other:?}")),
        }
    }

    pub fn detach(&mut self, process: u32) {
        if self.ask(guestd_to_host::Body::Detach(process)).is_ok() {
            self.free_pages.extend(self.pages_of.remove(&process).unwrap_or_default());
        }
    }
}

/// A process of the guest: its broker connection, its stream, and unsent data of each.
struct Client {
    broker: OwnedFd,
    process: Option<u32>,
    port: Option<u32>,
    stream: Option<UnixStream>,
    /// Read from its stream and not yet sent.
    unsent: Vec<u8>,
}

impl Client {
    /// Whether packets that were taken let it read, send or end.
    fn has_work(&self, session: &Session) -> bool {
        let link = self.port.and_then(|port| session.links.get(&port));
        link.is_some_and(|link| {
            link.closed || !link.inbox.is_empty() || (!self.unsent.is_empty() && link.credit() > 0)
        })
    }
}

/// A guest without a VM that serves attackers. Dropping it ends the VM.
pub struct Relay {
    broker: PathBuf,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Relay {
    pub fn start(socket: &Path) -> Relay {
        Relay::of(Session::boot(socket).expect("the daemon takes a guest"))
    }

    /// Serves the processes of a guest that has booted.
    pub fn of(session: Session) -> Relay {
        let folder = tempfile::Builder::new().prefix("gpupv-guest-").tempdir().expect("a temporary folder");
        let broker = folder.path().join("broker.sock");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let listener = listener.expect("a socket");
        rustix::net::bind(&listener, &SocketAddrUnix::new(&broker).expect("a short path"))
            .expect("a new path");
        rustix::net::listen(&listener, 1024).expect("it is bound");
        let stop = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let stopped = rustix::io::dup(&stop).expect("a descriptor");
        let thread = std::thread::Builder::new().name("relay".into());
        let thread = thread.spawn(move || serve(session, &listener, &stopped)).expect("a thread");
        Relay { broker, stop, thread: Some(thread), _folder: folder }
    }

    pub fn broker(&self) -> &Path {
        &self.broker
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        // The suite's log has the panic of the thread.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits for descriptors, or only looks at them; returns the readable ones.
fn wait_for(watched: &[RawFd], only_looks: bool) -> BTreeSet<RawFd> {
    let epoll = Epoll::new().expect("an epoll");
    for descriptor in watched {
        let event = EpollEvent::new(EventSet::IN, *descriptor as u64);
        epoll.ctl(ControlOperation::Add, *descriptor, event).expect("an open descriptor");
    }
    let mut ready = [EpollEvent::default(); 64];
    let count = epoll.wait(if only_looks { 0 } else { -1 }, &mut ready).unwrap_or(0);
    ready[..count].iter().map(|event| event.data() as RawFd).collect()
}

fn serve(mut session: Session, listener: &OwnedFd, stop: &OwnedFd) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let guest = &session.guest;
        let own = [stop, listener].map(AsRawFd::as_raw_fd);
        let of_guest = [guest.rx.call.as_raw_fd(), guest.frontend.as_raw_fd()];
        let mut watched = [own, of_guest].concat();
        for client in &clients {
            watched.push(client.broker.as_raw_fd());
            // Unsent data wait for credit, which a packet brings.
            let stream = client.stream.as_ref().filter(|_| client.unsent.is_empty());
            watched.extend(stream.map(AsRawFd::as_raw_fd));
        }
        // A request of guestd takes the packets of all clients: no descriptor tells of those afterwards.
        let ready = wait_for(&watched, clients.iter().any(|client| client.has_work(&session)));
        if ready.contains(&stop.as_raw_fd()) || session.is_cut_off() {
            return;
        }
        session.take_packets();
        if ready.contains(&listener.as_raw_fd())
            && let Ok(broker) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)
        {
            clients.push(Client { broker, process: None, port: None, stream: None, unsent: Vec::new() });
        }
        clients.retain_mut(|client| {
            let is_served = (!ready.contains(&client.broker.as_raw_fd()) || request(&mut session, client))
                && pass_on(&mut session, client, &ready);
            if !is_served {
                end(&mut session, client);
            }
            is_served
        });
    }
}

/// Relays bytes between a process and the daemon. False: the stream has ended.
fn pass_on(session: &mut Session, client: &mut Client, ready: &BTreeSet<RawFd>) -> bool {
    let (Some(stream), Some(port)) = (&mut client.stream, client.port) else { return true };
    if client.unsent.is_empty() && ready.contains(&stream.as_raw_fd()) {
        let mut piece = [0; PIECE_BYTES];
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return false,
            Ok(count) => client.unsent.extend_from_slice(&piece[..count]),
        }
    }
    let sent = session.send(port, &client.unsent);
    client.unsent.drain(..sent);
    let Some(link) = session.links.get_mut(&port) else { return false };
    let (inbox, closed) = (std::mem::take(&mut link.inbox), link.closed);
    // An attacker that does not read blocks only its own guest.
    (inbox.is_empty() || stream.write_all(&inbox).is_ok()) && !closed
}

fn end(session: &mut Session, client: &mut Client) {
    if let Some(port) = client.port {
        session.reset(port);
    }
    if let Some(process) = client.process {
        session.detach(process);
    }
}

/// Answers a packet at the broker's socket. False: the socket was closed.
fn request(session: &mut Session, client: &mut Client) -> bool {
    let mut packet = [0; BROKER_PACKET_BYTES_MAX];
    let Ok((count @ 1.., _)) = rustix::net::recv(&client.broker, &mut packet[..], RecvFlags::empty()) else {
        return false;
    };
    let Ok(BrokerRequest { body: Some(body) }) = BrokerRequest::decode(&packet[..count]) else {
        return false;
    };
    let answer = match (body, client.process) {
        (broker_request::Body::Attach(attach), None) => attach_client(session, client, &attach.name),
        (broker_request::Body::Grow(grow), Some(process)) => {
            let pages = grow.slots.div_ceil(SLOTS_PER_PAGE);
            session.grow(process, pages).map(|first_slot| {
                let slots = pages * SLOTS_PER_PAGE;
                (BrokerReply { first_slot, slots, process, ..BrokerReply::default() }, None)
            })
        }
        (body, _) => Err(format!("this guest does not do that: {body:?}")),
    };
    let (reply, stream) =
        answer.unwrap_or_else(|refused| (BrokerReply { refused, ..BrokerReply::default() }, None));
    send_reply(session, client, &reply, stream.as_ref())
}

fn attach_client(
    session: &mut Session,
    client: &mut Client,
    name: &str,
) -> Result<(BrokerReply, Option<UnixStream>), String> {
    let (process, token) = session.attach(name)?;
    client.process = Some(process);
    client.port = Some(session.connect(CHANNEL_PORT)?);
    let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
    client.stream = Some(ours);
    let reply = BrokerReply { token, process, slots: SLOTS_PER_PAGE, ..BrokerReply::default() };
    Ok((reply, Some(theirs)))
}

/// Sends a reply with the stream, if any, and all of the guest's memory, because attackers read no fence values.
fn send_reply(session: &Session, client: &Client, reply: &BrokerReply, stream: Option<&UnixStream>) -> bool {
    let bytes = reply.encode_to_vec();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let region = session.guest.memory.iter().next().and_then(|region| region.file_offset());
    let mut descriptors = Vec::new();
    if reply.refused.is_empty() {
        descriptors.extend(stream.map(AsFd::as_fd));
        descriptors.extend(region.map(|offset| offset.file().as_fd()));
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    rustix::net::sendmsg(&client.broker, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).is_ok()
}
