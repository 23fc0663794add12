//! vhost-user messages as they are on the socket. A proxy forwards most of them without interpreting them.
//!
//! # Primer
//!
//! A message is a header of three little-endian u32 (request, flags, length of the payload) and the payload.
//! Descriptors accompany the header's first byte. The flags are a version (1), *reply* (4: this answers the request of
//! that number) and *need-reply* (8: answer with a u64 that is 0 on success, although this request has no answer of its
//! own). QEMU's requests are answered in order, one at a time.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

const HEADER_BYTES: usize = 12;
/// The largest payload that `vhost` allows.
const PAYLOAD_BYTES_MAX: usize = 4096;
/// Descriptors of one message: those of a memory table of 32 regions.
const DESCRIPTORS_MAX: usize = 32;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// The request number of a message (`VHOST_USER_*`). An open enum: the number comes from outside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Request(pub u32);

impl Request {
    pub const GET_FEATURES: Self = Self(1);
    pub const SET_FEATURES: Self = Self(2);
    pub const SET_OWNER: Self = Self(3);
    pub const SET_MEM_TABLE: Self = Self(5);
    pub const SET_VRING_NUM: Self = Self(8);
    pub const SET_VRING_ADDR: Self = Self(9);
    pub const SET_VRING_BASE: Self = Self(10);
    pub const GET_VRING_BASE: Self = Self(11);
    pub const SET_VRING_KICK: Self = Self(12);
    pub const SET_VRING_CALL: Self = Self(13);
    pub const SET_VRING_ERR: Self = Self(14);
    pub const GET_PROTOCOL_FEATURES: Self = Self(15);
    pub const SET_PROTOCOL_FEATURES: Self = Self(16);
    pub const GET_QUEUE_NUM: Self = Self(17);
    pub const SET_VRING_ENABLE: Self = Self(18);
    pub const GET_CONFIG: Self = Self(24);
}

/// One vhost-user message.
#[derive(Debug)]
pub(super) struct Message {
    pub request: Request,
    flags: u32,
    pub payload: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

impl Message {
    pub fn new(request: Request, payload: Vec<u8>) -> Self {
        Self { request, flags: VERSION, payload, descriptors: Vec::new() }
    }

    /// The answer to a request.
    pub fn reply_to(request: Request, payload: Vec<u8>) -> Self {
        Self { request, flags: VERSION | REPLY, payload, descriptors: Vec::new() }
    }

    /// A number of four bytes in the payload; 0 beyond its end.
    pub fn u32_at(&self, offset: usize) -> u32 {
        self.payload
            .get(offset..)
            .and_then(|bytes| bytes.first_chunk())
            .copied()
            .map_or(0, u32::from_le_bytes)
    }

    /// A number of eight bytes in the payload; 0 beyond its end.
    pub fn u64_at(&self, offset: usize) -> u64 {
        self.payload
            .get(offset..)
            .and_then(|bytes| bytes.first_chunk())
            .copied()
            .map_or(0, u64::from_le_bytes)
    }

    /// Whether the request has an answer of its own, so that it cannot be acknowledged with an error.
    pub fn has_own_reply(&self) -> bool {
        matches!(
            self.request,
            Request::GET_FEATURES
                | Request::GET_PROTOCOL_FEATURES
                | Request::GET_QUEUE_NUM
                | Request::GET_VRING_BASE
                | Request::GET_CONFIG
        )
    }

    /// Whether the sender waits for an answer. `acknowledged`: both sides have agreed on REPLY_ACK.
    pub fn is_answered(&self, acknowledged: bool) -> bool {
        self.has_own_reply() || (acknowledged && self.flags & NEED_REPLY != 0)
    }

    pub fn is_reply_to(&self, request: Request) -> bool {
        self.request == request && self.flags & REPLY != 0
    }

    /// Reads a complete message, blocking. `None`: the other side has closed the socket.
    pub fn read(socket: &UnixStream) -> io::Result<Option<Message>> {
        let mut header = [0; HEADER_BYTES];
        let mut descriptors = Vec::new();
        if !read_exactly(socket, &mut header, &mut descriptors)? {
            return Ok(None);
        }
        let number = |at: usize| header[at..].first_chunk().copied().map_or(0, u32::from_le_bytes);
        let length = number(8) as usize;
        if length > PAYLOAD_BYTES_MAX {
            let words = format!("a vhost-user message of {length} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        let mut payload = vec![0; length];
        if !read_exactly(socket, &mut payload, &mut descriptors)? {
            return Ok(None);
        }
        Ok(Some(Message { request: Request(number(0)), flags: number(4), payload, descriptors }))
    }

    /// Writes the complete message; the descriptors stay the caller's.
    pub fn write(&self, socket: &UnixStream) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.payload.len());
        for number in [self.request.0, self.flags, self.payload.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(&self.payload);
        let descriptors: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let is_first = rest.len() == bytes.len();
            if is_first
                && !descriptors.is_empty()
                && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors))
            {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
            }
            let parts = [IoSlice::new(rest)];
            let sent =
                rustix::io::retry_on_intr(|| sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL));
            rest = &rest[sent?..];
        }
        Ok(())
    }
}

/// False if the other side has closed the socket.
fn read_exactly(socket: &UnixStream, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut filled = 0;
    while filled < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut bytes[filled..])];
            recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = part {
                descriptors.extend(received);
            }
        }
        if received.bytes == 0 {
            return Ok(false);
        }
        filled += received.bytes;
    }
    Ok(true)
}
