//! The port: what a session needs from its environment. A session does not know how a port waits.

use d3dkmt::{Call, EventId, Handle, Handles, NtStatus};
use proto::frame::TooLong;

use crate::pending_calls::{Answer, TRANSPORT_LOST};

/// Why an event of the caller cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EventError {
    #[error("not an eventfd")]
    NotAnEvent,
    #[error("no descriptor is left for a duplicate of the event")]
    NoDescriptor,
}

impl From<EventError> for NtStatus {
    fn from(error: EventError) -> NtStatus {
        match error {
            EventError::NotAnEvent => NtStatus::INVALID_PARAMETER,
            EventError::NoDescriptor => NtStatus::NO_MEMORY,
        }
    }
}

/// An event that outlives the call: it can be set even after the caller closes its own descriptor.
pub trait RegisteredEvent: Clone {
    fn set(&self);
}

/// An event of the caller, valid during the call.
pub trait CallerEvent {
    type Registered: RegisteredEvent;

    /// Sets the event during the call.
    fn set(&self) -> Result<(), EventError>;

    /// The event for use after the call.
    fn keep(self) -> Result<Self::Registered, EventError>;
}

/// Where one fence's value is stored.
pub trait Location: Clone {
    /// The fence value now: one load.
    fn value(&self) -> u64;
}

/// Why a frame was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("the transport is lost")]
    Lost,
    #[error("cannot create the thread that delivers the event")]
    NoThread,
}

impl From<SendError> for NtStatus {
    fn from(error: SendError) -> NtStatus {
        match error {
            SendError::TooLong(_) => NtStatus::INVALID_PARAMETER,
            SendError::Lost => TRANSPORT_LOST,
            SendError::NoThread => NtStatus::NO_MEMORY,
        }
    }
}

/// Wakes that a call may bring, armed before it is sent.
#[derive(Clone, Debug)]
pub enum Wakes<E> {
    None,
    /// Sets the event, once.
    Once(EventId, E),
    /// Sets the event once, when all these contexts have reached it. Never, if they are destroyed before.
    Queued(EventId, E, Handles),
    /// Sets the event each time.
    EachTime(EventId, E),
}

impl<E> Wakes<E> {
    /// The name under which an event is armed.
    pub fn name(&self) -> Option<EventId> {
        match self {
            Wakes::None => None,
            Wakes::Once(name, _) | Wakes::Queued(name, ..) | Wakes::EachTime(name, _) => Some(*name),
        }
    }
}

/// A client process's connection to the host and to its fence memory. A [`Session`](crate::Session) decides, its port
/// acts. Operations that may wait return futures; a port may block inside and complete them at the first poll.
pub trait Port {
    type Event: RegisteredEvent;
    type CallerEvent: CallerEvent<Registered = Self::Event>;
    type Location: Location;

    /// Makes a call and waits for its answer. `wakes` are armed before it is sent, and forgotten
    /// again if it is refused.
    fn call(&self, call: &Call, wakes: &Wakes<Self::Event>) -> impl Future<Output = Answer>;

    /// Makes a call that registers a wait named `event`, and waits until that wait completes, without a time limit.
    /// Anything but a registered wait is answered at once.
    fn call_and_wait(&self, call: &Call, event: EventId) -> impl Future<Output = Answer>;

    /// Looks for a short time until `is_there`, if looking has brought something lately. A port whose process does not
    /// run beside the host's returns false at once.
    fn look(&self, _is_there: impl FnMut() -> bool) -> bool {
        false
    }

    /// Makes a call without an answer.
    fn post(&self, call: &Call, wakes: &Wakes<Self::Event>) -> impl Future<Output = Result<(), SendError>>;

    /// A driver will set this event. Called before the host learns of the event, and valid until `forget_wake`. A port
    /// with a shorter path than the process's stream can set it up here.
    fn expect_driver(&self, _name: EventId, _event: &Self::Event) {}

    /// Later wakes of this name are ignored.
    fn forget_wake(&self, event: EventId);

    /// These contexts were destroyed: wakes that only they would bring are forgotten.
    fn contexts_ended(&self, ended: &[Handle]);

    /// Devices may have been destroyed: the port frees the memory of each device for which `lives` is false.
    fn devices_ended(&self, _lives: impl Fn(Handle) -> bool) {}

    /// Nothing can be sent or will arrive.
    fn is_lost(&self) -> bool;

    /// The host may have closed the transport although no thread has read that yet.
    fn may_be_lost(&self) -> bool {
        self.is_lost()
    }

    /// The location of a slot, if the fence memory has that slot.
    fn locate(&self, slot: u32) -> Option<Self::Location>;

    /// The number of slots in all fence memory.
    fn slots(&self) -> u32;

    /// Adds at least `slots_wanted` slots, unless another operation has added some since there were `slots_before`.
    /// Succeeds without effect if the transport is lost, because the next call reports that.
    fn grow_memory(&self, slots_before: u32, slots_wanted: u32)
    -> impl Future<Output = Result<(), NtStatus>>;

    /// Prints a line for the user of the program.
    fn log(&self, line: std::fmt::Arguments<'_>);
}
