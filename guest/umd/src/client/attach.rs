//! Attaching: from the broker's socket to a stream, fence memory and the host's Welcome.
//!
//! ```text
//!   connect ─▶ Attach ─▶ reply + [stream, memory] ─▶ map ─▶ Hello{token} on the stream ─▶ Welcome
//! ```

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::client::welcome_from;
use d3dkmt::{EventId, Handle, ShareToken};
use proto::attach::{BrokerReply, BrokerRequest, broker_request};
use proto::channel::{ToHost, Welcome};
use proto::frame::{FrameBuffer, append, decode};
use proto::limits::{BROKER_ENV, BROKER_PACKET_BYTES_MAX, BROKER_PATH, NAME_BYTES_MAX};
use proto::{Message, PROTOCOL_VERSION, Versions};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use super::channel::DESCRIPTOR_TAKEN;
use super::fence_memory::{FenceMemory, MemoryError};
use super::link::ResumeRight;
use super::rings::Rings;
use crate::environment::variable;
use crate::fork::{SessionDescriptor, above_standard_streams};
use crate::limits::{ATTACH_SECONDS_MAX, READ_BYTES};

/// Where the system names the file of a descriptor; that of a sync file has its token in it.
const OWN_DESCRIPTORS: &str = "/proc/thread-self/fd";

/// Why a session could not be started. The texts are for the user of the program.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("no broker at {path}: {error}")]
    NoBroker { path: PathBuf, error: Errno },
    #[error("the broker refused: {0}")]
    Refused(String),
    #[error("the broker's reply is malformed: {0}")]
    BadReply(String),
    #[error("no descriptor is left: is the limit of open files reached (ulimit -n)?")]
    NoDescriptor,
    #[error("{OWN_DESCRIPTORS} is needed: is /proc not mounted here?")]
    NoProc,
    #[error("{DESCRIPTOR_TAKEN}")]
    DescriptorTaken,
    #[error("the broker closed the connection without a reply")]
    Closed,
    #[error(
        "the broker did not answer within {ATTACH_SECONDS_MAX} seconds: it hangs, or its daemon was restarted and still awaits \
         processes of before (see its log and --resume-within); start the program again then"
    )]
    TimedOut,
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("the host sent no Welcome: {0}")]
    NoWelcome(String),
    #[error("attaching failed: {0}")]
    System(#[from] Errno),
}

impl AttachError {
    /// The process has no descriptor or memory left for a session.
    pub fn is_at_limit(&self) -> bool {
        match self {
            AttachError::NoDescriptor
            | AttachError::Memory(MemoryError::NoSpace { .. } | MemoryError::Map(_)) => true,
            AttachError::System(error) => matches!(*error, Errno::MFILE | Errno::NFILE | Errno::NOMEM),
            AttachError::NoBroker { .. }
            | AttachError::Refused(_)
            | AttachError::BadReply(_)
            | AttachError::NoProc
            | AttachError::DescriptorTaken
            | AttachError::Closed
            | AttachError::TimedOut
            | AttachError::Memory(MemoryError::TooSmall { .. } | MemoryError::Misplaced { .. })
            | AttachError::NoWelcome(_) => false,
        }
    }

    /// The broker closed the connection, or no broker listens any more.
    pub fn is_disconnect(&self) -> bool {
        match self {
            AttachError::Closed | AttachError::NoBroker { .. } => true,
            AttachError::System(error) => matches!(*error, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN),
            AttachError::Refused(_)
            | AttachError::BadReply(_)
            | AttachError::NoDescriptor
            | AttachError::NoProc
            | AttachError::DescriptorTaken
            | AttachError::TimedOut
            | AttachError::Memory(_)
            | AttachError::NoWelcome(_) => false,
        }
    }
}

/// What a request to detach backing pages has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detach {
    Detached,
    /// Another handle, or queued work, uses the memory: the pages stay attached.
    InUse,
}

/// Where the broker's socket is: `$GPUPV_BROKER`, or the usual place.
pub fn broker_path() -> PathBuf {
    variable(BROKER_ENV).map_or_else(|| PathBuf::from(BROKER_PATH), PathBuf::from)
}

/// The time limit of a reply while a session is started or resumed: after it the connection is closed, with all its
/// replies.
const ATTACHING: Option<u64> = Some(ATTACH_SECONDS_MAX);
/// Later replies have no limit, because a late reply to an abandoned request would count as the reply to the next one.
const ATTACHED: Option<u64> = None;

/// The connection to the broker. It stays open as long as the process lives: the broker treats its close as the
/// process's end.
#[derive(Debug)]
pub struct Broker(SessionDescriptor);

/// What the broker gives on attaching.
#[derive(Debug)]
pub struct Attachment {
    pub broker: Broker,
    pub stream: SessionDescriptor,
    pub memory: FenceMemory,
    pub token: Vec<u8>,
    /// Present if the session may have rings.
    pub rings: Option<Rings>,
    /// Events that the broker keeps for this process at a time.
    pub events_max: usize,
    /// Present if the session can be resumed after the daemon was killed and restarted.
    pub right: Option<ResumeRight>,
}

impl Broker {
    /// Connects to the broker's socket.
    pub fn connect(path: &Path) -> Result<Broker, AttachError> {
        let [socket] = SessionDescriptor::adopt(|| {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            Ok::<_, Errno>([socket])
        })?;
        let limit = Some(Duration::from_secs(ATTACH_SECONDS_MAX));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, limit)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, limit)?;
        let connected = SocketAddrUnix::new(path)
            .and_then(|address| rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address)));
        match connected {
            Ok(()) => Ok(Broker(socket)),
            Err(error) => Err(AttachError::NoBroker { path: path.to_owned(), error }),
        }
    }

    /// Closes the connection. The number stays open, because another thread may be using it.
    pub fn shut_down(&self) {
        if self.0.is_own() {
            let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
        }
    }

    /// Attaches this process; with rings, if the broker gives any and `rings` asks for them.
    pub fn attach(self, name: &str, rings: bool) -> Result<Attachment, AttachError> {
        let (version, version_min) = (PROTOCOL_VERSION, Versions::OURS.oldest());
        let request = broker_request::Attach { version, name: name.to_owned(), version_min, rings };
        self.send(broker_request::Body::Attach(request))?;
        let (reply, [stream, piece], rings) = self.receive_with_rings::<2>(ATTACHING, None)?;
        let memory = FenceMemory::reserve()?;
        memory.add(piece.as_fd(), reply.first_slot, reply.slots)?;
        let events_max = reply.events_max as usize;
        let BrokerReply { token, resume_token, resume_ms, process, .. } = reply;
        let limit = resume_ms.map(Duration::from_millis);
        let right = ResumeRight { process, token: resume_token, limit };
        let right = (!right.token.is_empty()).then_some(right);
        Ok(Attachment { broker: self, stream, memory, token, rings, events_max, right })
    }

    /// Asks for the session that this process had with a daemon that was killed.
    pub fn resume(
        &self,
        process: u32,
        token: &[u8],
    ) -> Result<(BrokerReply, SessionDescriptor, Option<Rings>), AttachError> {
        let (version, version_min) = (PROTOCOL_VERSION, Versions::OURS.oldest());
        let (token, rings) = (token.to_vec(), true);
        let resume = broker_request::Resume { version, process, token, version_min, rings };
        self.send(broker_request::Body::Resume(resume))?;
        let (reply, [stream], rings) = self.receive_with_rings::<1>(ATTACHING, None)?;
        Ok((reply, stream, rings))
    }

    /// Asks for the memory of slots that the process has.
    pub fn regain(&self, first_slot: u32, slots: u32) -> Result<SessionDescriptor, AttachError> {
        self.send(broker_request::Body::Regain(broker_request::Regain { first_slot, slots }))?;
        let (_, [memory], _) = self.receive_with_rings::<1>(ATTACHING, None)?;
        Ok(memory)
    }

    /// Attaches backing pages again that a killed daemon had.
    pub fn reattach_backing(
        &self,
        address: u64,
        pages: u32,
        memory: BorrowedFd<'_>,
    ) -> Result<(), AttachError> {
        let attach_backing = broker_request::AttachBacking { address, pages };
        self.send_with(broker_request::Body::ReattachBacking(attach_backing), &[memory])?;
        self.await_reply(ATTACHING).map(drop)
    }

    /// Reports an NT handle that this process has open. A stale handle is no error.
    pub fn have_nt_handle(&self, handle: BorrowedFd<'_>) -> Result<(), AttachError> {
        self.send_with(broker_request::Body::HaveNtHandle(true), &[handle])?;
        match self.await_reply(ATTACHING) {
            Ok(_) | Err(AttachError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks for at least `slots` more slots of fence memory. The host knows them when this returns.
    pub fn grow(&self, slots: u32, memory: &FenceMemory) -> Result<(), AttachError> {
        let spare = SpareDescriptor::new()?;
        self.send(broker_request::Body::Grow(broker_request::Grow { slots }))?;
        let (reply, [piece], _) = self.receive_with_rings::<1>(ATTACHED, Some(spare))?;
        Ok(memory.add(piece.as_fd(), reply.first_slot, reply.slots)?)
    }

    /// Asks for an NT handle. The caller owns it; a forked child inherits it.
    pub fn make_nt_handle(&self) -> Result<(ShareToken, OwnedFd), AttachError> {
        self.make_handle(broker_request::Body::MakeNtHandle(true))
    }

    /// Asks for a sync file. The caller owns it; a forked child inherits it.
    pub fn make_sync_file(&self) -> Result<(ShareToken, OwnedFd), AttachError> {
        self.make_handle(broker_request::Body::MakeSyncFile(true))
    }

    fn make_handle(&self, request: broker_request::Body) -> Result<(ShareToken, OwnedFd), AttachError> {
        let handle = self.ask_for_descriptor(request)?.1.ok_or(AttachError::NoDescriptor)?;
        let token = ::nt_handle::token_of(handle.as_fd());
        let token = token.ok_or_else(|| match std::fs::exists(OWN_DESCRIPTORS) {
            Ok(true) => AttachError::BadReply("its descriptor carries no token".into()),
            Ok(false) | Err(_) => AttachError::NoProc,
        })?;
        // If standard input is closed the number could be 0, which is NULL.
        Ok((token, above_standard_streams(handle)?))
    }

    /// Asks for pages that the host's engines can access, to be mapped at `address`.
    pub fn attach_backing(&self, address: u64, pages: u32) -> Result<OwnedFd, AttachError> {
        let attach = broker_request::AttachBacking { address, pages };
        let (_, memory) = self.ask_for_descriptor(broker_request::Body::AttachBacking(attach))?;
        if memory.is_none() {
            // The pages are attached, but this process will never have them.
            self.detach_backing(address)?;
        }
        memory.ok_or(AttachError::NoDescriptor)
    }

    /// Asks for pages of the memory of the device in a shared resource that this process has opened: those of the piece
    /// that begins at this offset. Returns them, and the bytes of the whole allocation.
    pub fn share_backing(&self, allocation: Handle, offset: u64) -> Result<(OwnedFd, u64), AttachError> {
        let share = broker_request::ShareBacking { allocation: allocation.0, offset };
        let (reply, memory) = self.ask_for_descriptor(broker_request::Body::ShareBacking(share))?;
        Ok((memory.ok_or(AttachError::NoDescriptor)?, reply.bytes))
    }

    /// Brings such pages to a restarted daemon, which may have none. If their allocation has ended it wants none.
    pub fn reshare_backing(
        &self,
        allocation: Handle,
        offset: u64,
        memory: BorrowedFd<'_>,
    ) -> Result<(), AttachError> {
        let share = broker_request::ShareBacking { allocation: allocation.0, offset };
        self.send_with(broker_request::Body::ReshareBacking(share), &[memory])?;
        match self.await_reply(ATTACHING) {
            Ok(_) | Err(AttachError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Detaches the backing at an address. The host does not access it any more.
    pub fn detach_backing(&self, address: u64) -> Result<(), AttachError> {
        self.send(broker_request::Body::DetachBacking(address))?;
        self.await_reply(ATTACHED).map(drop)
    }

    /// Detaches the backing at an address, unless it is in use.
    pub fn release_backing(&self, address: u64) -> Result<Detach, AttachError> {
        self.send(broker_request::Body::ReleaseBacking(address))?;
        let (reply, _) = self.await_reply(ATTACHED)?;
        Ok(if reply.in_use { Detach::InUse } else { Detach::Detached })
    }

    /// Asks the broker to set this event when the host's driver signals it.
    pub fn register_event(&self, name: EventId, event: BorrowedFd<'_>) -> Result<(), AttachError> {
        self.send_with(broker_request::Body::RegisterEvent(name.0), &[event])?;
        self.await_reply(ATTACHED).map(drop)
    }

    /// Unregisters an event. The broker does not set it once this returns.
    pub fn unregister_event(&self, name: EventId) -> Result<(), AttachError> {
        self.send(broker_request::Body::UnregisterEvent(name.0))?;
        self.await_reply(ATTACHED).map(drop)
    }

    /// Returns once all events are set that the host signaled before the data that this process has read of its stream.
    pub fn drain_event_channels(&self) -> Result<(), AttachError> {
        self.send(broker_request::Body::Settle(true))?;
        self.await_reply(ATTACHED).map(drop)
    }

    /// Makes a request whose reply has a descriptor; `None`: another thread has taken the last number meanwhile.
    fn ask_for_descriptor(
        &self,
        request: broker_request::Body,
    ) -> Result<(BrokerReply, Option<OwnedFd>), AttachError> {
        let spare = SpareDescriptor::new()?;
        self.send(request)?;
        wait_for(self.0.as_fd(), ATTACHED)?;
        drop(spare);
        let (reply, received) = self.take_reply()?;
        Ok((reply, received.into_iter().next()))
    }

    fn await_reply(&self, seconds_max: Option<u64>) -> Result<(BrokerReply, Vec<OwnedFd>), AttachError> {
        wait_for(self.0.as_fd(), seconds_max)?;
        self.take_reply()
    }

    fn send(&self, body: broker_request::Body) -> Result<(), AttachError> {
        self.send_with(body, &[])
    }

    fn send_with(
        &self,
        body: broker_request::Body,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), AttachError> {
        if !self.0.is_own() {
            return Err(AttachError::DescriptorTaken);
        }
        let packet = BrokerRequest { body: Some(body) }.encode_to_vec();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            unreachable!("a request has one descriptor at most");
        }
        let parts = [std::io::IoSlice::new(&packet)];
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL)
        })
        .map_err(timed_out)?;
        Ok(())
    }

    /// Receives a reply with this many descriptors, and the rings, if it has any.
    fn receive_with_rings<const N: usize>(
        &self,
        seconds_max: Option<u64>,
        spare: Option<SpareDescriptor>,
    ) -> Result<(BrokerReply, [SessionDescriptor; N], Option<Rings>), AttachError> {
        wait_for(self.0.as_fd(), seconds_max)?;
        drop(spare);
        let (mut reply, mut rings) = (BrokerReply::default(), None);
        // The descriptors exist once received: no fork may happen before they are in the list, or closed.
        let descriptors = SessionDescriptor::adopt(|| {
            let (came, mut received) = self.take_reply()?;
            reply = came;
            if reply.rings && received.len() == N + 2 {
                let [host, own] = [received.remove(N), received.remove(N)];
                // Without them the session uses its stream.
                rings = Rings::map(host.as_fd(), own.as_fd()).ok();
            }
            let count = received.len();
            received.try_into().map_err(|_| match count < N || reply.rings {
                true => AttachError::NoDescriptor,
                false => AttachError::BadReply(format!("{count} descriptors instead of {N}")),
            })
        })?;
        Ok((reply, descriptors, rings))
    }

    /// Receives the pending reply and its descriptors.
    fn take_reply(&self) -> Result<(BrokerReply, Vec<OwnedFd>), AttachError> {
        let mut packet = vec![0; BROKER_PACKET_BYTES_MAX];
        let (length, received) = receive_packet(self.0.as_fd(), &mut packet)?;
        let reply: BrokerReply =
            decode(&packet[..length]).map_err(|error| AttachError::BadReply(error.to_string()))?;
        if length == 0 {
            return Err(AttachError::Closed);
        }
        if !reply.refused.is_empty() {
            return Err(AttachError::Refused(reply.refused));
        }
        Ok((reply, received))
    }
}

/// Keeps a number for the descriptor of a reply, until the reply has arrived. Without a number the system drops the
/// descriptor, and with it memory that the host has given already.
struct SpareDescriptor {
    _number: OwnedFd,
}

impl SpareDescriptor {
    fn new() -> Result<SpareDescriptor, AttachError> {
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        let number = rustix::event::eventfd(0, flags).map_err(|_| AttachError::NoDescriptor)?;
        Ok(SpareDescriptor { _number: number })
    }
}

/// One packet with its descriptors; never blocks.
fn receive_packet(socket: BorrowedFd<'_>, packet: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut buffers = [std::io::IoSliceMut::new(packet)];
    let message =
        rustix::io::retry_on_intr(|| rustix::net::recvmsg(socket, &mut buffers, &mut ancillary, flags))?;
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.extend(received);
        }
    }
    Ok((message.bytes, descriptors))
}

fn wait_for(socket: BorrowedFd<'_>, seconds_max: Option<u64>) -> Result<(), AttachError> {
    let limit = seconds_max.map(|seconds| Timespec { tv_sec: seconds as i64, tv_nsec: 0 });
    let mut ready = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    match rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, limit.as_ref()))? {
        0 => Err(AttachError::TimedOut),
        _ => Ok(()),
    }
}

fn timed_out(error: Errno) -> AttachError {
    if error == Errno::AGAIN { AttachError::TimedOut } else { AttachError::System(error) }
}

/// Sends Hello on the stream and reads the Welcome, for at most the given seconds. Bytes after the Welcome stay in the
/// returned buffer.
pub fn greet(
    stream: BorrowedFd<'_>,
    hello: &ToHost,
    seconds_max: Option<u64>,
) -> Result<(Welcome, FrameBuffer), AttachError> {
    let mut bytes = Vec::new();
    append(hello, &mut bytes);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let count = rustix::io::retry_on_intr(|| rustix::net::send(stream, rest, SendFlags::NOSIGNAL))?;
        rest = &rest[count..];
    }
    let mut buffer = FrameBuffer::default();
    loop {
        if let Some(frame) = buffer.next_frame().map_err(no_welcome)? {
            let welcome = welcome_from(frame).map_err(no_welcome)?;
            return Ok((welcome, buffer));
        }
        wait_for(stream, seconds_max)?;
        let mut bytes = [0; READ_BYTES];
        match rustix::io::retry_on_intr(|| rustix::io::read(stream, &mut bytes)).map_err(no_welcome)? {
            0 => return Err(no_welcome("it closed the stream")),
            count => buffer.extend(&bytes[..count]),
        }
    }
}

fn no_welcome(reason: impl std::fmt::Display) -> AttachError {
    AttachError::NoWelcome(reason.to_string())
}

/// The name under which the broker and the host know this process.
pub fn process_name() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let mut name = name.unwrap_or_else(|| "unknown".to_owned());
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    name
}
