//! Orders to a scenario client and its reports, as values: both ends of the protocol that `scenario_client.proto`
//! defines.
//!
//! The runner that starts a scenario client writes [`Order::append`] to its standard input and reads [`Report::next`]
//! from its standard output; the scenario client does the reverse.

use d3dkmt::{Call, Handle, NtStatus, Reply, ShareToken};

use crate::channel;
use crate::convert::{ConvertError, call_from_body, call_to_frame, reply_from_body, reply_into_body, token};
use crate::frame::{FrameBuffer, FrameError, append, decode};

mod wire {
    #![allow(clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/gpupv.scenario_client.rs"));
}

/// The type of a barrier's call. The kernel knows no such type, and the language of scenarios refuses it.
pub const BARRIER_STATE_TYPE: u32 = 0x6770_7576;

/// The call of a scenario client's barrier; it is no call of the scenario.
pub const BARRIER: Call = Call::GetDeviceState { device: Handle::NULL, state_type: BARRIER_STATE_TYPE };

/// An order to one scenario client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// Any number; the report repeats it.
    pub tag: u64,
    /// The thread that executes it. Its first order starts it.
    pub thread: u32,
    pub task: Task,
}

/// The number that the runner gives to an event of one scenario client. Never 0, which is NULL.
pub type EventNumber = u64;

/// The task of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// A call through its C entry point. `event` is the HANDLE that the call gets, `None` for NULL: then a CPU wait
    /// blocks. Events in the call itself are ignored, and tokens in it are the runner's names.
    Call { call: Call, event: Option<EventNumber> },
    /// Only starts the thread.
    StartThread,
    /// Makes an eventfd.
    NewEvent(EventNumber),
    /// How often an event was set since the last time.
    TakeEvent(EventNumber),
    /// Waits until an event is set, and reports how often it was since the last time. The thread does nothing else
    /// meanwhile, and barriers wait for it.
    AwaitEvent(EventNumber),
    /// Closes the scenario client's own descriptor of an event.
    CloseEvent(EventNumber),
    /// One atomic load of a fence's value.
    ReadValue(Handle),
    /// Frames that the library has sent, except those of barriers.
    MessagesSent,
    /// Done when every earlier order is reported or its thread is in a wait, and all that the host sent until then has
    /// had its effect.
    Barrier,
    /// Lets other processes of the same machine send NT handles to this name.
    OpenMailbox(String),
    /// Sends the NT handle of this name to another process's mailbox.
    SendShare { token: ShareToken, mailbox: String },
    /// Writes words of the memory of an allocation.
    StoreWords(Words),
    /// The first of those words that differs: its index << 32 and the word, `u64::MAX` if none does.
    FindOther(Words),
    /// Closes the scenario client's own descriptor of the NT handle of this name.
    CloseShare(ShareToken),
}

/// 32-bit words of an allocation's memory; without a count up to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Words {
    pub allocation: Handle,
    pub first: u64,
    pub count: Option<u64>,
    pub word: u32,
}

/// The result of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub tag: u64,
    pub status: NtStatus,
    pub outcome: Outcome,
}

/// The outputs of an order, beside its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Nothing,
    /// The outputs of a call. C does not show slots or a wait's outcome: `None`.
    Reply(Reply),
    Value(u64),
    /// C cannot express this call: nothing was called.
    NoCForm,
}

/// Why bytes are no order or report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

impl Order {
    /// Appends the order to bytes for the scenario client's standard input.
    pub fn append(&self, bytes: &mut Vec<u8>) {
        append(&self.to_wire(), bytes);
    }

    /// The next complete order.
    pub fn next(frames: &mut FrameBuffer) -> Result<Option<Order>, ReadError> {
        let Some(frame) = frames.next_frame()? else { return Ok(None) };
        Ok(Some(Order::from_wire(decode(frame)?)?))
    }

    fn to_wire(&self) -> wire::Order {
        use wire::order::Body;
        let body = match &self.task {
            Task::Call { call, event } => Body::Call(wire::Call {
                call: Some(call_to_frame(0, call)),
                event: event.unwrap_or_default(),
            }),
            Task::StartThread => Body::StartThread(true),
            Task::NewEvent(event) => Body::NewEvent(*event),
            Task::TakeEvent(event) => Body::TakeEvent(*event),
            Task::AwaitEvent(event) => Body::AwaitEvent(*event),
            Task::CloseEvent(event) => Body::CloseEvent(*event),
            Task::ReadValue(object) => Body::ReadValue(object.0),
            Task::MessagesSent => Body::MessagesSent(true),
            Task::Barrier => Body::Barrier(true),
            Task::OpenMailbox(name) => Body::OpenMailbox(name.clone()),
            Task::SendShare { token, mailbox } => {
                Body::SendShare(wire::SendShare { token: token.0.to_vec(), mailbox: mailbox.clone() })
            }
            Task::StoreWords(words) => Body::StoreWords(words.to_wire()),
            Task::FindOther(words) => Body::FindOther(words.to_wire()),
            Task::CloseShare(token) => Body::CloseShare(token.0.to_vec()),
        };
        wire::Order { tag: self.tag, thread: self.thread, body: Some(body) }
    }

    fn from_wire(order: wire::Order) -> Result<Order, ConvertError> {
        use wire::order::Body;
        let body = order.body.ok_or(ConvertError::Missing { message: "Order", field: "body" })?;
        let task = match body {
            Body::Call(wire::Call { call, event }) => {
                let missing = ConvertError::Missing { message: "Call", field: "call" };
                let body = call.and_then(|frame| frame.body).ok_or(missing)?;
                Task::Call { call: call_from_body(body)?, event: (event != 0).then_some(event) }
            }
            Body::StartThread(_) => Task::StartThread,
            Body::NewEvent(event) => Task::NewEvent(event),
            Body::TakeEvent(event) => Task::TakeEvent(event),
            Body::AwaitEvent(event) => Task::AwaitEvent(event),
            Body::CloseEvent(event) => Task::CloseEvent(event),
            Body::ReadValue(object) => Task::ReadValue(Handle(object)),
            Body::MessagesSent(_) => Task::MessagesSent,
            Body::Barrier(_) => Task::Barrier,
            Body::OpenMailbox(name) => Task::OpenMailbox(name),
            Body::SendShare(wire::SendShare { token: bytes, mailbox }) => {
                Task::SendShare { token: token(&bytes, "SendShare")?, mailbox }
            }
            Body::StoreWords(words) => Task::StoreWords(Words::from_wire(&words)),
            Body::FindOther(words) => Task::FindOther(Words::from_wire(&words)),
            Body::CloseShare(bytes) => Task::CloseShare(token(&bytes, "CloseShare")?),
        };
        Ok(Order { tag: order.tag, thread: order.thread, task })
    }
}

impl Words {
    fn to_wire(self) -> wire::Words {
        let Words { allocation: Handle(allocation), first, count, word } = self;
        wire::Words { allocation, first, count, word }
    }

    fn from_wire(words: &wire::Words) -> Words {
        let wire::Words { allocation, first, count, word } = *words;
        Words { allocation: Handle(allocation), first, count, word }
    }
}

impl Report {
    /// Appends the report to bytes for the scenario client's standard output.
    pub fn append(&self, bytes: &mut Vec<u8>) {
        append(&self.to_wire(), bytes);
    }

    /// The next complete report.
    pub fn next(frames: &mut FrameBuffer) -> Result<Option<Report>, ReadError> {
        let Some(frame) = frames.next_frame()? else { return Ok(None) };
        Ok(Some(Report::from_wire(decode(frame)?)?))
    }

    fn to_wire(&self) -> wire::Report {
        use wire::report::Body;
        let body = match &self.outcome {
            Outcome::Nothing => None,
            Outcome::Reply(reply) => {
                let body = reply_into_body(reply.clone());
                Some(Body::Reply(channel::ToGuest { request: 0, status: 0, body }))
            }
            Outcome::Value(value) => Some(Body::Value(*value)),
            Outcome::NoCForm => Some(Body::NoCForm(true)),
        };
        wire::Report { tag: self.tag, status: self.status.0, body }
    }

    fn from_wire(report: wire::Report) -> Result<Report, ConvertError> {
        use wire::report::Body;
        let outcome = match report.body {
            None => Outcome::Nothing,
            Some(Body::Reply(frame)) => Outcome::Reply(reply_from_body(frame.body)?),
            Some(Body::Value(value)) => Outcome::Value(value),
            Some(Body::NoCForm(_)) => Outcome::NoCForm,
        };
        Ok(Report { tag: report.tag, status: NtStatus(report.status), outcome })
    }
}
