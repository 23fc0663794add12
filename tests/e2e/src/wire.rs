//! A client process in Rust that implements the protocol itself, to send what no library would send.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use d3dkmt::{
    Call, CreateContextFlags, CreatedSyncObject, EventId, Handle, NtStatus, Reply, ShareToken, SignalFlags,
    SyncObjectFlags, WaitOutcome, calls,
};
use proto::attach::{BrokerReply, BrokerRequest, broker_request};
use proto::channel::{Hello, ToGuest, ToHost, to_host};
use proto::convert::{FromHost, call_to_frame, from_host};
use proto::frame::{FrameBuffer, append, decode};
use proto::{Message as _, PROTOCOL_VERSION};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

/// Timeout of a read.
const READ_TIME_MAX: Duration = Duration::from_secs(90);
const SLOT_BYTES: u64 = 64;

/// A connection to a broker.
pub struct Broker(OwnedFd);

impl AsFd for Broker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Broker {
    pub fn connect(path: &Path) -> Broker {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        let address = SocketAddrUnix::new(path).expect("a short path");
        rustix::net::connect(&socket, &address).expect("the broker listens");
        Broker(socket)
    }

    pub fn send(&self, packet: &[u8]) {
        rustix::net::send(&self.0, packet, SendFlags::NOSIGNAL).expect("the broker accepts a packet");
    }

    /// Sends a packet with a descriptor.
    pub fn send_with(&self, packet: &[u8], descriptor: BorrowedFd<'_>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        assert!(
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)),
            "the message has room for one descriptor"
        );
        let parts = [IoSlice::new(packet)];
        rustix::net::sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL)
            .expect("the broker accepts a packet");
    }

    pub fn request(&self, body: broker_request::Body) -> (BrokerReply, Vec<OwnedFd>) {
        self.send(&BrokerRequest { body: Some(body) }.encode_to_vec());
        self.reply().expect("the broker answers")
    }

    /// Whether no reply has arrived yet.
    pub fn is_silent(&self) -> bool {
        let seen = rustix::net::recv(&self.0, &mut [0u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(seen, Err(rustix::io::Errno::AGAIN))
    }

    /// The next reply with its descriptors; `None` if the broker has closed the connection.
    pub fn reply(&self) -> Option<(BrokerReply, Vec<OwnedFd>)> {
        let mut packet = [0; 8192];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut packet)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let count = match rustix::net::recvmsg(&self.0, &mut buffers, &mut ancillary, flags) {
            Ok(message) => message.bytes,
            // The daemon closed it with a client packet unread.
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => panic!("the broker's connection: {error}"),
        };
        let descriptors = ancillary.drain().flat_map(|part| match part {
            RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let descriptors = descriptors.collect();
        (count > 0).then(|| (BrokerReply::decode(&packet[..count]).expect("a reply"), descriptors))
    }
}

/// A process that attached at the broker and has not sent its Hello.
pub struct Attached {
    pub broker: Broker,
    pub stream: Stream,
    pub memory: File,
    pub token: Vec<u8>,
    pub process: u32,
    pub slots: u32,
    pub resume_token: Vec<u8>,
}

/// The frame of a Hello.
pub fn hello_frame(version: u32, token: &[u8]) -> ToHost {
    let hello = Hello { version, token: token.to_vec(), ..Hello::default() };
    ToHost { request: 0, body: Some(to_host::Body::Hello(hello)) }
}

impl Attached {
    pub fn new(broker: &Path) -> Attached {
        Attached::try_new(broker).unwrap_or_else(|why| panic!("the broker refused: {why}"))
    }

    pub fn try_new(broker: &Path) -> Result<Attached, String> {
        Attached::speaking(broker, PROTOCOL_VERSION, 0)
    }

    /// Attaches with these versions of the protocol.
    pub fn speaking(broker: &Path, version: u32, version_min: u32) -> Result<Attached, String> {
        let broker = Broker::connect(broker);
        let attach = broker_request::Attach { version, name: "e2e".into(), version_min, rings: false };
        let (reply, descriptors) = broker.request(broker_request::Body::Attach(attach));
        if !reply.refused.is_empty() {
            return Err(reply.refused);
        }
        let [stream, memory] = <[OwnedFd; 2]>::try_from(descriptors).expect("a stream and memory");
        Ok(Attached {
            broker,
            stream: Stream::new(stream),
            memory: memory.into(),
            token: reply.token,
            process: reply.process,
            slots: reply.slots,
            resume_token: reply.resume_token,
        })
    }

    /// Resumes a process, with all of its memory, at a daemon that resumes from its journal; the error says why not.
    pub fn resume(broker: &Path, process: u32, resume_token: &[u8]) -> Result<Attached, String> {
        let broker = Broker::connect(broker);
        let (version, token) = (PROTOCOL_VERSION, resume_token.to_vec());
        let resume = broker_request::Resume { version, process, token, ..broker_request::Resume::default() };
        let (reply, descriptors) = broker.request(broker_request::Body::Resume(resume));
        if !reply.refused.is_empty() {
            return Err(reply.refused);
        }
        let [stream] = <[OwnedFd; 1]>::try_from(descriptors).expect("a stream");
        let (token, slots) = (reply.token, reply.slots);
        let regain = broker_request::Regain { first_slot: 0, slots };
        let (reply, descriptors) = broker.request(broker_request::Body::Regain(regain));
        assert_eq!(reply.refused, "");
        let [memory] = <[OwnedFd; 1]>::try_from(descriptors).expect("memory");
        let (stream, memory) = (Stream::new(stream), memory.into());
        let resume_token = resume_token.to_vec();
        Ok(Attached { broker, stream, memory, token, process, slots, resume_token })
    }

    pub fn hello(self) -> Client {
        let hello = hello_frame(PROTOCOL_VERSION, &self.token);
        self.greet(&hello).0
    }

    /// Sends this Hello; returns the open channel and the host's version.
    pub fn greet(mut self, hello: &ToHost) -> (Client, u32) {
        self.stream.send_frame(hello);
        let version = match self.stream.read() {
            Ok(FromHost::Welcome(welcome)) if welcome.process == self.process => welcome.version,
            other => panic!("no welcome: {other:?}"),
        };
        let memory = vec![(0, self.memory)];
        let client = Client {
            broker: self.broker,
            stream: self.stream,
            memory,
            slots: self.slots,
            process: self.process,
            requests: 0,
        };
        (client, version)
    }
}

/// Why a stream has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Closed,
    /// Closed while sent bytes were unread.
    Reset,
}

/// The channel's stream.
pub struct Stream {
    pub socket: UnixStream,
    frames: FrameBuffer,
}

impl Stream {
    pub fn new(descriptor: OwnedFd) -> Stream {
        let socket = UnixStream::from(descriptor);
        socket.set_read_timeout(Some(READ_TIME_MAX)).expect("not zero");
        Stream { socket, frames: FrameBuffer::default() }
    }

    /// Sends bytes; false if the other side has closed.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        match self.socket.write_all(bytes) {
            Ok(()) => true,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                false
            }
            Err(error) => panic!("cannot send: {error}"),
        }
    }

    pub fn send_frame(&mut self, frame: &ToHost) -> bool {
        let mut bytes = Vec::new();
        append(frame, &mut bytes);
        self.send(&bytes)
    }

    /// The next message.
    pub fn read(&mut self) -> Result<FromHost, Ended> {
        loop {
            if let Some(frame) = self.frames.next_frame().expect("the host's frames are whole") {
                let frame: ToGuest = decode(frame).expect("the host's messages are messages");
                return Ok(from_host(frame).expect("the host's messages are valid"));
            }
            let mut bytes = [0; 16 * 1024];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(Ended::Closed),
                Ok(count) => self.frames.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(Ended::Reset),
                Err(error) => panic!("no message arrived within {READ_TIME_MAX:?}: {error}"),
            }
        }
    }

    /// Reads to the end of the stream; the Goodbye, if there was one.
    pub fn read_goodbye(&mut self) -> Option<String> {
        let mut goodbye = None;
        while let Ok(message) = self.read() {
            if let FromHost::Goodbye(reason) = message {
                assert!(goodbye.replace(reason).is_none(), "two Goodbyes");
            }
        }
        goodbye
    }
}

/// An open channel.
pub struct Client {
    pub broker: Broker,
    pub stream: Stream,
    /// First slot and memory.
    memory: Vec<(u32, File)>,
    slots: u32,
    pub process: u32,
    requests: u64,
}

impl Client {
    pub fn new(broker: &Path) -> Client {
        Attached::new(broker).hello()
    }

    /// One synchronous call. No wake may come in between.
    pub fn call(&mut self, call: &Call) -> (NtStatus, Reply) {
        self.requests += 1;
        assert!(self.stream.send_frame(&call_to_frame(self.requests, call)), "the stream is closed");
        match self.stream.read() {
            Ok(FromHost::Answer { request, status, reply }) => {
                assert_eq!(request, self.requests, "the answer to another request");
                (status, reply)
            }
            other => panic!("{call:?}: no answer but {other:?}"),
        }
    }

    /// One call without an answer.
    pub fn post(&mut self, call: &Call) -> bool {
        self.stream.send_frame(&call_to_frame(0, call))
    }

    pub fn open_device(&mut self) -> Handle {
        let (_, reply) = self.call(&Call::EnumAdapters { capacity: 1 });
        let Reply::Adapters(adapters) = reply else { panic!("no adapters: {reply:?}") };
        let (_, reply) = self.call(&Call::CreateDevice { adapter: adapters[0].handle, flags: 0 });
        let Reply::Device(device) = reply else { panic!("no device: {reply:?}") };
        device
    }

    pub fn create_context(&mut self, device: Handle) -> Handle {
        let (_, reply) = self.call(&calls::create_context(device, 0, CreateContextFlags::empty()));
        let Reply::Context(context) = reply else { panic!("no context: {reply:?}") };
        context
    }

    /// Creates a monitored fence; adds fence memory as needed.
    pub fn create_fence(&mut self, device: Handle, initial_value: u64) -> CreatedSyncObject {
        let create = calls::create_fence(device, initial_value, SyncObjectFlags::empty());
        loop {
            match self.call(&create) {
                (NtStatus::SUCCESS, Reply::SyncObject(created)) => return created,
                (_, Reply::FenceMemoryExhausted) => self.grow(1),
                other => panic!("no fence: {other:?}"),
            }
        }
    }

    /// Creates a monitored fence that NT handles may name.
    pub fn create_shared_fence(&mut self, device: Handle) -> Handle {
        let flags = SyncObjectFlags::SHARED | SyncObjectFlags::NT_SECURITY_SHARING;
        match self.call(&calls::create_fence(device, 0, flags)) {
            (NtStatus::SUCCESS, Reply::SyncObject(created)) => created.object,
            other => panic!("no fence: {other:?}"),
        }
    }

    /// Creates an NT handle that names no object yet; the error is the broker's refusal.
    pub fn make_nt_handle(&self) -> Result<(ShareToken, OwnedFd), String> {
        let (reply, descriptors) = self.broker.request(broker_request::Body::MakeNtHandle(true));
        let Some(handle) = descriptors.into_iter().next() else { return Err(reply.refused) };
        // The token follows the magic word.
        let (file, mut token) = (File::from(handle), [0; 16]);
        file.read_exact_at(&mut token, 8).expect("an NT handle can be read at any place");
        Ok((ShareToken(token), file.into()))
    }

    pub fn grow(&mut self, slots: u32) {
        let (reply, mut descriptors) =
            self.broker.request(broker_request::Body::Grow(broker_request::Grow { slots }));
        assert_eq!(reply.refused, "");
        assert_eq!(reply.first_slot, self.slots);
        self.slots += reply.slots;
        self.memory.push((reply.first_slot, descriptors.pop().expect("memory").into()));
    }

    pub fn signal(&mut self, device: Handle, object: Handle, value: u64) -> NtStatus {
        self.call(&calls::signal(device, object, value)).0
    }

    /// Submits a command buffer that runs for a millisecond and then stores the fence's value.
    pub fn submit_write(&mut self, context: Handle, fence: &CreatedSyncObject, value: u64) -> NtStatus {
        const BUSY: u64 = 2 | 16 << 32;
        const FENCE_WRITE: u64 = 1 | 24 << 32;
        let header = u64::from(d3dkmt::isa::MAGIC) | (8 + 16 + 24) << 32;
        let words = [header, BUSY, 1_000_000, FENCE_WRITE, fence.gpu_address, value];
        let private_data = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.call(&calls::submit(context, private_data)).0
    }

    pub fn wait(&mut self, device: Handle, object: Handle, value: u64, event: u64) -> Option<WaitOutcome> {
        match self.call(&calls::wait(device, object, value, EventId(event))) {
            (NtStatus::SUCCESS, Reply::Wait(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// The value of a fence in its memory.
    pub fn value(&self, fence: &CreatedSyncObject) -> u64 {
        let slot = fence.slot.expect("a monitored fence has a slot");
        let (first, file) =
            self.memory.iter().rfind(|(first, _)| *first <= slot).expect("memory of the slot");
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, u64::from(slot - first) * SLOT_BYTES)
            .expect("fence memory is readable");
        u64::from_ne_bytes(bytes)
    }
}

/// A well-behaved client that fails as soon as something disturbs it.
pub struct Steady {
    client: Client,
    device: Handle,
    fence: CreatedSyncObject,
    value: u64,
}

impl Steady {
    pub fn new(broker: &Path) -> Steady {
        let mut client = Client::new(broker);
        let device = client.open_device();
        let fence = client.create_fence(device, 0);
        Steady { client, device, fence, value: 0 }
    }

    /// A wait that is registered, a signal, its wake, the value in memory.
    #[track_caller]
    pub fn assert_works(&mut self) {
        self.value += 1;
        let (device, object, value) = (self.device, self.fence.object, self.value);
        assert_eq!(self.client.wait(device, object, value, value), Some(WaitOutcome::Registered));
        let flags = SignalFlags::empty();
        let signal =
            Call::SignalFromCpu { device, objects: vec![object].into(), values: vec![value].into(), flags };
        assert_eq!(self.client.call(&signal), (NtStatus::SUCCESS, Reply::None));
        let wake = self.client.stream.read();
        assert_eq!(wake, Ok(FromHost::Wake { event: EventId(value), status: NtStatus::SUCCESS }));
        assert_eq!(self.client.value(&self.fence), value);
    }
}

/// A socket whose close blocks for this time, because its peer does not read (SO_LINGER).
pub fn lingering(at_most: Duration) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = TcpStream::connect(listener.local_addr()?)?;
    let (peer, _) = listener.accept()?;
    sockopt::set_socket_linger(&socket, Some(at_most))?;
    socket.set_nonblocking(true)?;
    while io::Write::write(&mut &socket, &[0; 64 * 1024]).is_ok() {}
    // Closing a non-blocking socket would not wait.
    socket.set_nonblocking(false)?;
    Ok((socket, peer))
}
