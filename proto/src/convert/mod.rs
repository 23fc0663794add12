//! Conversions between wire messages and the types of [`d3dkmt`]: written by hand, total, and
//! property-tested both ways. What a message cannot say is a [`ConvertError`], never a default.

mod allocation;
mod call;
mod lists;
mod memory;
mod reply;
mod sync;

use d3dkmt::{EventId, Luid, NtStatus, Reply, ShareToken};

pub use call::{call_from_body, call_into_frame, call_to_frame};
pub(crate) use reply::{reply_from_body, reply_to_body};

use crate::channel::{self as wire, to_guest};

/// Why a well-formed message is no call or reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    #[error("{message} has no {field}")]
    Missing { message: &'static str, field: &'static str },
    #[error("{message}.{field} is {value}, which is not allowed")]
    BadValue { message: &'static str, field: &'static str, value: u64 },
    #[error("{0} is not expected here")]
    Unexpected(&'static str),
}

fn event(value: u64, message: &'static str) -> Result<EventId, ConvertError> {
    if value == 0 {
        Err(ConvertError::BadValue { message, field: "event", value })
    } else {
        Ok(EventId(value))
    }
}

/// The token of an NT handle.
pub fn token(bytes: &[u8], message: &'static str) -> Result<ShareToken, ConvertError> {
    let value = bytes.len() as u64;
    bytes.try_into().map(ShareToken).map_err(|_| ConvertError::BadValue { message, field: "token", value })
}

fn luid_from(luid: Option<wire::Luid>, message: &'static str) -> Result<Luid, ConvertError> {
    let luid = luid.ok_or(ConvertError::Missing { message, field: "luid" })?;
    Ok(Luid { low: luid.low, high: luid.high })
}

/// A LUID as a message.
pub fn luid_to_wire(luid: Luid) -> wire::Luid {
    wire::Luid { low: luid.low, high: luid.high }
}

/// The frame that answers a request.
pub fn answer_to_frame(request: u64, status: NtStatus, reply: &Reply) -> wire::ToGuest {
    wire::ToGuest { request, status: status.0, body: reply_to_body(reply) }
}

/// The same of an answer that is not needed any more: its data are not copied.
pub fn answer_into_frame(request: u64, status: NtStatus, reply: Reply) -> wire::ToGuest {
    let body = match reply {
        Reply::Escape(data) => Some(to_guest::Body::Escape(data.into())),
        other => reply_to_body(&other),
    };
    wire::ToGuest { request, status: status.0, body }
}

/// The frame that wakes a wait or sets an event.
pub fn wake_to_frame(event: EventId, status: NtStatus) -> wire::ToGuest {
    wire::ToGuest { request: 0, status: status.0, body: Some(to_guest::Body::Wake(event.0)) }
}

/// The frame that says when the answer or wake behind it was asked for.
pub fn asked_to_frame(nanos: u64) -> wire::ToGuest {
    wire::ToGuest { request: 0, status: 0, body: Some(to_guest::Body::AskedNs(nanos)) }
}

/// What a frame from the host says.
#[derive(Clone, PartialEq, Debug)]
pub enum FromHost {
    Welcome(wire::Welcome),
    Goodbye(String),
    Wake {
        event: EventId,
        status: NtStatus,
    },
    Answer {
        request: u64,
        status: NtStatus,
        reply: Reply,
    },
    /// One-way calls that were made so far.
    Applied(u64),
    /// When the answer or wake that comes next was asked for, by the host's clock.
    Asked(u64),
}

/// Reads a frame from the host.
pub fn from_host(frame: wire::ToGuest) -> Result<FromHost, ConvertError> {
    use to_guest::Body;
    let status = NtStatus(frame.status);
    let reply = match frame.body {
        Some(Body::Welcome(welcome)) => return Ok(FromHost::Welcome(welcome)),
        Some(Body::Goodbye(reason)) => return Ok(FromHost::Goodbye(reason)),
        Some(Body::Applied(calls)) => return Ok(FromHost::Applied(calls)),
        Some(Body::AskedNs(nanos)) => return Ok(FromHost::Asked(nanos)),
        Some(Body::Wake(name)) => return Ok(FromHost::Wake { event: event(name, "Wake")?, status }),
        body => reply_from_body(body)?,
    };
    if frame.request == 0 {
        return Err(ConvertError::Unexpected("an answer to request 0"));
    }
    Ok(FromHost::Answer { request: frame.request, status, reply })
}
