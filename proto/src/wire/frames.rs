//! The two frames of the data channel, `ToHost` and `ToGuest` of `channel.proto`. The rows of the tables of calls and
//! replies encode their bodies, so no prost messages exist for calls.

use d3dkmt::{Call, Reply};
use prost::bytes::{Buf, BufMut};
use prost::encoding::{self as pb, DecodeContext, WireType};
use prost::{DecodeError, Message};

use super::bodies::{call_len, encode_call, encode_reply, read_call, read_reply, reply_len};
use crate::channel::{Hello, Times, Welcome};
use crate::convert::ConvertError;

/// A frame of a client process.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ToHost {
    /// 0 = one-way.
    pub request: u64,
    /// `None`: absent, or of an unknown kind.
    pub body: Option<to_host::Body>,
}

pub mod to_host {
    use super::{Call, ConvertError, Hello, Times};

    /// `ToHost.body`.
    #[derive(Clone, PartialEq, Debug)]
    pub enum Body {
        Hello(Hello),
        /// Answers and wakes that the guest has read so far.
        Received(u64),
        Times(Times),
        /// What follows is in the ring.
        InRing,
        Call(Call),
        /// A well-formed message that is no call.
        Invalid(ConvertError),
    }
}

/// A frame of the host.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ToGuest {
    /// The request that this answers; 0 for Welcome, Wake, GuestEvent and Goodbye.
    pub request: u64,
    /// NTSTATUS; of an answer or of a wake.
    pub status: u32,
    pub body: Option<to_guest::Body>,
}

pub mod to_guest {
    use super::{ConvertError, Reply, Welcome};

    /// `ToGuest.body`.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    pub enum Body {
        Welcome(Welcome),
        Wake(u64),
        Goodbye(String),
        Applied(u64),
        HostTimeNs(u64),
        GuestEvent(u64),
        /// What follows is in the ring.
        InRing,
        Reply(Reply),
        /// A well-formed message that is no reply.
        Invalid(ConvertError),
    }
}

/// Numbers of the fields that are neither calls nor replies.
mod tag {
    pub const REQUEST: u32 = 1;
    pub const IN_RING: u32 = 190;
    pub const HELLO: u32 = 2;
    pub const RECEIVED: u32 = 80;
    pub const TIMES: u32 = 81;
    pub const STATUS: u32 = 2;
    pub const WELCOME: u32 = 3;
    pub const WAKE: u32 = 4;
    pub const GOODBYE: u32 = 5;
    pub const APPLIED: u32 = 40;
    pub const HOST_TIME_NS: u32 = 41;
    pub const GUEST_EVENT: u32 = 42;
}

/// Reads a message that prost generated.
fn merged<M: Message + Default>(
    wire_type: WireType,
    buf: &mut impl Buf,
    context: DecodeContext,
) -> Result<M, DecodeError> {
    let mut message = M::default();
    pb::message::merge(wire_type, &mut message, buf, context)?;
    Ok(message)
}

fn number(wire_type: WireType, buf: &mut impl Buf, context: DecodeContext) -> Result<u64, DecodeError> {
    let mut number = 0;
    pb::uint64::merge(wire_type, &mut number, buf, context)?;
    Ok(number)
}

impl Message for ToHost {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        if self.request != 0 {
            pb::uint64::encode(tag::REQUEST, &self.request, buf);
        }
        match &self.body {
            None | Some(to_host::Body::Invalid(_)) => {}
            Some(to_host::Body::Hello(hello)) => pb::message::encode(tag::HELLO, hello, buf),
            Some(to_host::Body::Received(count)) => pb::uint64::encode(tag::RECEIVED, count, buf),
            Some(to_host::Body::Times(times)) => pb::message::encode(tag::TIMES, times, buf),
            Some(to_host::Body::InRing) => pb::bool::encode(tag::IN_RING, &true, buf),
            Some(to_host::Body::Call(call)) => encode_call(call, buf),
        }
    }

    fn merge_field(
        &mut self,
        number_of_field: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match number_of_field {
            tag::REQUEST => self.request = number(wire_type, buf, context)?,
            tag::HELLO => self.body = Some(to_host::Body::Hello(merged(wire_type, buf, context)?)),
            tag::RECEIVED => self.body = Some(to_host::Body::Received(number(wire_type, buf, context)?)),
            tag::TIMES => self.body = Some(to_host::Body::Times(merged(wire_type, buf, context)?)),
            tag::IN_RING => {
                number(wire_type, buf, context)?;
                self.body = Some(to_host::Body::InRing);
            }
            other => match read_call(other, wire_type, buf, context.clone())? {
                Some(Ok(call)) => self.body = Some(to_host::Body::Call(call)),
                Some(Err(error)) => self.body = Some(to_host::Body::Invalid(error)),
                None => pb::skip_field(wire_type, other, buf, context)?,
            },
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        request_len(self.request)
            + match &self.body {
                None | Some(to_host::Body::Invalid(_)) => 0,
                Some(to_host::Body::Hello(hello)) => pb::message::encoded_len(tag::HELLO, hello),
                Some(to_host::Body::Received(count)) => pb::uint64::encoded_len(tag::RECEIVED, count),
                Some(to_host::Body::Times(times)) => pb::message::encoded_len(tag::TIMES, times),
                Some(to_host::Body::InRing) => pb::bool::encoded_len(tag::IN_RING, &true),
                Some(to_host::Body::Call(call)) => call_len(call),
            }
    }

    fn clear(&mut self) {
        *self = ToHost::default();
    }
}

impl Message for ToGuest {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        if self.request != 0 {
            pb::uint64::encode(tag::REQUEST, &self.request, buf);
        }
        if self.status != 0 {
            pb::uint32::encode(tag::STATUS, &self.status, buf);
        }
        match &self.body {
            None | Some(to_guest::Body::Invalid(_)) => {}
            Some(to_guest::Body::Welcome(welcome)) => pb::message::encode(tag::WELCOME, welcome, buf),
            Some(to_guest::Body::Wake(event)) => pb::uint64::encode(tag::WAKE, event, buf),
            Some(to_guest::Body::Goodbye(reason)) => pb::string::encode(tag::GOODBYE, reason, buf),
            Some(to_guest::Body::Applied(calls)) => pb::uint64::encode(tag::APPLIED, calls, buf),
            Some(to_guest::Body::HostTimeNs(nanos)) => pb::uint64::encode(tag::HOST_TIME_NS, nanos, buf),
            Some(to_guest::Body::GuestEvent(event)) => pb::uint64::encode(tag::GUEST_EVENT, event, buf),
            Some(to_guest::Body::InRing) => pb::bool::encode(tag::IN_RING, &true, buf),
            Some(to_guest::Body::Reply(reply)) => encode_reply(reply, buf),
        }
    }

    fn merge_field(
        &mut self,
        number_of_field: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match number_of_field {
            tag::REQUEST => self.request = number(wire_type, buf, context)?,
            tag::STATUS => pb::uint32::merge(wire_type, &mut self.status, buf, context)?,
            tag::WELCOME => self.body = Some(to_guest::Body::Welcome(merged(wire_type, buf, context)?)),
            tag::WAKE => self.body = Some(to_guest::Body::Wake(number(wire_type, buf, context)?)),
            tag::GOODBYE => {
                let mut reason = String::new();
                pb::string::merge(wire_type, &mut reason, buf, context)?;
                self.body = Some(to_guest::Body::Goodbye(reason));
            }
            tag::APPLIED => self.body = Some(to_guest::Body::Applied(number(wire_type, buf, context)?)),
            tag::HOST_TIME_NS => {
                self.body = Some(to_guest::Body::HostTimeNs(number(wire_type, buf, context)?))
            }
            tag::GUEST_EVENT => {
                self.body = Some(to_guest::Body::GuestEvent(number(wire_type, buf, context)?));
            }
            tag::IN_RING => {
                number(wire_type, buf, context)?;
                self.body = Some(to_guest::Body::InRing);
            }
            other => match read_reply(other, wire_type, buf, context.clone())? {
                Some(Ok(reply)) => self.body = Some(to_guest::Body::Reply(reply)),
                Some(Err(error)) => self.body = Some(to_guest::Body::Invalid(error)),
                None => pb::skip_field(wire_type, other, buf, context)?,
            },
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        let status = if self.status == 0 { 0 } else { pb::uint32::encoded_len(tag::STATUS, &self.status) };
        let body = match &self.body {
            None | Some(to_guest::Body::Invalid(_)) => 0,
            Some(to_guest::Body::Welcome(welcome)) => pb::message::encoded_len(tag::WELCOME, welcome),
            Some(to_guest::Body::Wake(event)) => pb::uint64::encoded_len(tag::WAKE, event),
            Some(to_guest::Body::Goodbye(reason)) => pb::string::encoded_len(tag::GOODBYE, reason),
            Some(to_guest::Body::Applied(calls)) => pb::uint64::encoded_len(tag::APPLIED, calls),
            Some(to_guest::Body::HostTimeNs(nanos)) => pb::uint64::encoded_len(tag::HOST_TIME_NS, nanos),
            Some(to_guest::Body::GuestEvent(event)) => pb::uint64::encoded_len(tag::GUEST_EVENT, event),
            Some(to_guest::Body::InRing) => pb::bool::encoded_len(tag::IN_RING, &true),
            Some(to_guest::Body::Reply(reply)) => reply_len(reply),
        };
        request_len(self.request) + status + body
    }

    fn clear(&mut self) {
        *self = ToGuest::default();
    }
}

/// Bytes of a request's number in a frame.
pub(super) fn request_len(request: u64) -> usize {
    if request == 0 { 0 } else { pb::uint64::encoded_len(tag::REQUEST, &request) }
}

/// Writes `ToHost` with a borrowed call, as `encode_raw` would write a frame with it.
pub fn encode_call_frame(request: u64, call: &Call, buf: &mut impl BufMut) {
    if request != 0 {
        pb::uint64::encode(tag::REQUEST, &request, buf);
    }
    encode_call(call, buf);
}

/// Writes `ToGuest` with a borrowed reply.
pub fn encode_answer_frame(request: u64, status: u32, reply: &Reply, buf: &mut impl BufMut) {
    ToGuest { request, status, body: None }.encode_raw(buf);
    encode_reply(reply, buf);
}
