//! Conversion of calls, answers and wakes to and from frames.

use d3dkmt::{Call, EventId, GuestEvent, Luid, NtStatus, Reply, ShareToken, WakeTarget};

use crate::channel::{self as wire, ToGuest, ToHost, to_guest, to_host};

/// Why a well-formed message is no call or reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ConvertError {
    #[error("{message} has no {field}")]
    Missing { message: &'static str, field: &'static str },
    #[error("{message}.{field} is {value}, which is not allowed")]
    BadValue { message: &'static str, field: &'static str, value: u64 },
    #[error("{0} is not expected here")]
    Unexpected(&'static str),
}

/// The token of an NT handle.
///
/// # Errors
///
/// Bytes that are not 16.
pub fn token(bytes: &[u8], message: &'static str) -> Result<ShareToken, ConvertError> {
    let value = bytes.len() as u64;
    bytes.try_into().map(ShareToken).map_err(|_| ConvertError::BadValue { message, field: "token", value })
}

/// A LUID as a message.
pub fn luid_to_wire(luid: Luid) -> wire::Luid {
    wire::Luid { low: luid.low, high: luid.high }
}

/// The frame that makes a call; `request` 0 makes it one-way. [`append_call`](crate::frame::append_call) writes it without
/// a copy of the call.
pub fn call_to_frame(request: u64, call: &Call) -> ToHost {
    ToHost { request, body: Some(to_host::Body::Call(call.clone())) }
}

/// The call that a frame makes.
///
/// # Errors
///
/// An invalid message, and Hello, which the stream's owner handles before.
pub fn call_from_body(body: to_host::Body) -> Result<Call, ConvertError> {
    match body {
        to_host::Body::Call(call) => Ok(call),
        to_host::Body::Invalid(error) => Err(error),
        to_host::Body::Hello(_) => Err(ConvertError::Unexpected("a second Hello")),
        to_host::Body::Times(_) => Err(ConvertError::Unexpected("times")),
        to_host::Body::InRing => Err(ConvertError::Unexpected("a return to the ring")),
        to_host::Body::Received(_) => Err(ConvertError::Unexpected("a count of received messages")),
    }
}

/// The frame that answers a request.
pub fn answer_to_frame(request: u64, status: NtStatus, reply: &Reply) -> ToGuest {
    answer_into_frame(request, status, reply.clone())
}

/// The frame of an answer; takes the reply by value, without copying its data.
pub fn answer_into_frame(request: u64, status: NtStatus, reply: Reply) -> ToGuest {
    ToGuest { request, status: status.0, body: reply_into_body(reply) }
}

/// The frame that wakes a wait or sets an event.
pub fn wake_to_frame(target: impl Into<WakeTarget>, status: NtStatus) -> ToGuest {
    let body = match target.into() {
        WakeTarget::Event(event) => to_guest::Body::Wake(event.0),
        WakeTarget::GuestEvent(event) => to_guest::Body::GuestEvent(event.0),
    };
    ToGuest { request: 0, status: status.0, body: Some(body) }
}

/// The frame with the host's time for the answer or wake that follows.
pub fn host_time_to_frame(nanos: u64) -> ToGuest {
    ToGuest { request: 0, status: 0, body: Some(to_guest::Body::HostTimeNs(nanos)) }
}

/// The contents of a frame from the host.
#[derive(Clone, PartialEq, Debug)]
pub enum FromHost {
    Welcome(wire::Welcome),
    Goodbye(String),
    Wake {
        event: EventId,
        status: NtStatus,
    },
    /// A driver signaled an event by a number that a program gave it.
    GuestEvent {
        event: GuestEvent,
        status: NtStatus,
    },
    Answer {
        request: u64,
        status: NtStatus,
        reply: Reply,
    },
    /// One-way calls that the host has made so far.
    Applied(u64),
    /// The host's time for the next answer or wake, by the host's clock.
    HostTime(u64),
    /// What follows is in the ring.
    InRing,
}

/// Reads a frame from the host.
///
/// # Errors
///
/// An invalid message.
pub fn from_host(frame: ToGuest) -> Result<FromHost, ConvertError> {
    use to_guest::Body;
    let status = NtStatus(frame.status);
    let reply = match frame.body {
        Some(Body::Welcome(welcome)) => return Ok(FromHost::Welcome(welcome)),
        Some(Body::Goodbye(reason)) => return Ok(FromHost::Goodbye(reason)),
        Some(Body::Applied(calls)) => return Ok(FromHost::Applied(calls)),
        Some(Body::HostTimeNs(nanos)) => return Ok(FromHost::HostTime(nanos)),
        Some(Body::InRing) => return Ok(FromHost::InRing),
        Some(Body::Wake(0)) => {
            return Err(ConvertError::BadValue { message: "Wake", field: "event", value: 0 });
        }
        Some(Body::Wake(event)) => return Ok(FromHost::Wake { event: EventId(event), status }),
        Some(Body::GuestEvent(0)) => {
            return Err(ConvertError::BadValue { message: "ToGuest", field: "guest_event", value: 0 });
        }
        Some(Body::GuestEvent(event)) => {
            return Ok(FromHost::GuestEvent { event: GuestEvent(event), status });
        }
        body => reply_from_body(body)?,
    };
    if frame.request == 0 {
        return Err(ConvertError::Unexpected("an answer to request 0"));
    }
    Ok(FromHost::Answer { request: frame.request, status, reply })
}

/// The body of a frame that carries this reply.
pub(crate) fn reply_into_body(reply: Reply) -> Option<to_guest::Body> {
    match reply {
        Reply::None => None,
        reply => Some(to_guest::Body::Reply(reply)),
    }
}

/// The reply that a frame carries.
pub(crate) fn reply_from_body(body: Option<to_guest::Body>) -> Result<Reply, ConvertError> {
    use to_guest::Body;
    match body {
        None => Ok(Reply::None),
        Some(Body::Reply(reply)) => Ok(reply),
        Some(Body::Invalid(error)) => Err(error),
        Some(Body::Welcome(_)) => Err(ConvertError::Unexpected("a Welcome")),
        Some(Body::Applied(_)) => Err(ConvertError::Unexpected("a count of calls")),
        Some(Body::HostTimeNs(_)) => Err(ConvertError::Unexpected("a time")),
        Some(Body::InRing) => Err(ConvertError::Unexpected("a return to the ring")),
        Some(Body::Goodbye(_)) => Err(ConvertError::Unexpected("a Goodbye")),
        Some(Body::Wake(_)) => Err(ConvertError::Unexpected("a Wake")),
        Some(Body::GuestEvent(_)) => Err(ConvertError::Unexpected("a guest event")),
    }
}
