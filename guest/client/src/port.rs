//! The port: what a session needs of the world, and nothing of how the world waits.

use d3dkmt::{Call, EventId, Handle, NtStatus};
use proto::Message;
use proto::channel::ToHost;
use proto::limits::FRAME_BYTES_MAX;

use crate::pending_calls::{Answer, TRANSPORT_LOST};

/// The number given is no event of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an eventfd")]
pub struct NotAnEvent;

/// An event that is kept beyond the call: it can be set whatever the caller does with its own.
pub trait RegisteredEvent: Clone {
    fn set(&self);
}

/// An event of the caller, for the length of the call.
pub trait CallerEvent {
    type Registered: RegisteredEvent;

    /// Sets the event during the call.
    fn set(&self) -> Result<(), NotAnEvent>;

    /// Our own reference, for after the call.
    fn keep(&self) -> Result<Self::Registered, NotAnEvent>;
}

/// Where one fence's value stands.
pub trait Location: Clone {
    /// The fence value now: one load.
    fn value(&self) -> u64;
}

/// Why a frame did not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    #[error("the message of {bytes} bytes is over the limit of {FRAME_BYTES_MAX} (GPV-009)")]
    TooLong { bytes: usize },
    #[error("the transport is lost")]
    Lost,
    #[error("no thread can be made that delivers the event")]
    NoThread,
}

impl From<SendError> for NtStatus {
    fn from(error: SendError) -> NtStatus {
        match error {
            SendError::TooLong { .. } => NtStatus::INVALID_PARAMETER,
            SendError::Lost => TRANSPORT_LOST,
            SendError::NoThread => NtStatus::NO_MEMORY,
        }
    }
}

/// Refuses a frame that no host would read (GPV-009).
pub fn check_length(frame: &ToHost) -> Result<(), SendError> {
    let bytes = frame.encoded_len();
    if bytes > FRAME_BYTES_MAX { Err(SendError::TooLong { bytes }) } else { Ok(()) }
}

/// Wakes that a call may bring, armed before it is sent.
#[derive(Clone, Debug)]
pub enum Wakes<E> {
    None,
    /// Sets the event, once.
    Once(EventId, E),
    /// Sets the event each time.
    EachTime(EventId, E),
}

impl<E> Wakes<E> {
    /// The name under which an event is armed.
    pub fn name(&self) -> Option<EventId> {
        match self {
            Wakes::None => None,
            Wakes::Once(name, _) | Wakes::EachTime(name, _) => Some(*name),
        }
    }
}

/// One guest process's way to the host and to its fence memory. A [`Session`](crate::Session) decides,
/// its port acts. What takes time is a future; it may just as well block and be complete at once.
pub trait Port {
    type Event: RegisteredEvent;
    type CallerEvent: CallerEvent<Registered = Self::Event>;
    type Location: Location;

    /// Makes a call and waits for its answer. `wakes` are armed before it is sent, and forgotten
    /// again if it is refused.
    fn call(&self, call: &Call, wakes: &Wakes<Self::Event>) -> impl Future<Output = Answer>;

    /// Makes a call that registers a wait of the name `event`, and waits until that wait is over: as
    /// long as it takes. Anything but a registered wait is answered at once.
    fn call_and_wait(&self, call: &Call, event: EventId) -> impl Future<Output = Answer>;

    /// Makes a call without an answer.
    fn post(&self, call: &Call, wakes: &Wakes<Self::Event>) -> impl Future<Output = Result<(), SendError>>;

    /// An event that a driver will set, from before the host knows of it until it is forgotten. Whoever has a shorter
    /// way to it than the process's stream may be told of it here.
    fn expect_driver(&self, _name: EventId, _event: &Self::Event) {}

    /// Wakes of this name mean nothing any more.
    fn forget_wake(&self, event: EventId);

    /// Devices may have been destroyed: memory that belongs to a device for which `lives` is false is free.
    fn devices_ended(&self, _lives: impl Fn(Handle) -> bool) {}

    /// Nothing can be sent or will arrive.
    fn is_lost(&self) -> bool;

    /// The host may have ended the transport although nobody has read that yet.
    fn may_be_lost(&self) -> bool {
        self.is_lost()
    }

    /// The place of a slot, if the fence memory holds it.
    fn locate(&self, slot: u32) -> Option<Self::Location>;

    /// Slots of all fence memory.
    fn slots(&self) -> u32;

    /// Brings at least `slots_wanted` more slots, unless another operation has brought some since there
    /// were `slots_before`. Without a transport there is nothing to bring and nothing to say: success,
    /// and the next call tells.
    fn grow_memory(&self, slots_before: u32, slots_wanted: u32)
    -> impl Future<Output = Result<(), NtStatus>>;

    /// A line for the person who runs the program.
    fn log(&self, line: std::fmt::Arguments<'_>);
}
