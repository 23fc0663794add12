//! How far the waits on one object have been looked at that end together: see `waiters.rs`.

use serde::{Deserialize, Serialize};

use super::waits::WaitId;

/// The value of a fence has reached waits that are still to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Reached {
    pub value: u64,
    /// Waits with this number and later ones came when it was reached already, and wait for something else.
    pub before: u64,
    /// The last that was looked at, if the value has gone back since.
    pub behind: Option<Waiter>,
}

/// Where a wait stands among those for an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Waiter {
    pub value: u64,
    pub wait: WaitId,
    pub item: u32,
}

/// Why CPU waits end without their value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum EndOfWaits {
    FenceDestroyed,
    DeviceLost,
}

impl EndOfWaits {
    pub const fn words(self) -> &'static str {
        match self {
            EndOfWaits::FenceDestroyed => "its fence was destroyed",
            EndOfWaits::DeviceLost => "its device is lost",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// CPU waits end that were made through this open; or all waits end, and those in queues count the object as reached.
    End { open: Option<u32>, why: EndOfWaits },
    /// Waits that outlive the open they were made through no longer name it: its index may be reused.
    Forget { open: u32 },
}

/// See `waiters.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LookAtWaiters {
    pub(super) object: u32,
    pub(super) what: What,
    pub(super) before: u64,
    pub(super) behind: Option<Waiter>,
    /// It has been left once, and keeps its object.
    pub(super) is_left: bool,
    /// The open is gone but for this.
    pub(super) ends_open: bool,
}
