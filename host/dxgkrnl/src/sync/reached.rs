//! Progress of the waits on one object that end together: see `waiters.rs`.

use serde::{Deserialize, Serialize};

use super::waits::WaitId;

/// The value of a fence has reached waits that are still to be woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Reached {
    pub value: u64,
    /// Waits with this number or a later one were made after the value was reached, and are not woken by it.
    pub before: u64,
    /// The last waiter that was skipped: there is one only if the value was set back since.
    pub behind: Option<Waiter>,
}

/// Position of a wait among those for an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Waiter {
    pub value: u64,
    pub wait: WaitId,
    pub item: u32,
}

/// Why CPU waits end without their value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
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
pub(super) enum WaiterAction {
    /// Ends the CPU waits that were made through this open. Without an open: ends all waits; queued ones count the
    /// object as reached.
    End { open: Option<u32>, why: EndOfWaits },
    /// Removes this open from the waits that outlive it, because its index may be reused.
    Forget { open: u32 },
}

impl WaiterAction {
    /// The open whose waits are processed; `None` for all waits.
    pub fn open(self) -> Option<u32> {
        match self {
            WaiterAction::End { open, .. } => open,
            WaiterAction::Forget { open } => Some(open),
        }
    }
}

/// Waits for this object, through this open if there is one, that end for a reason.
pub(crate) type EndedWaits = (u32, Option<u32>, EndOfWaits);

/// Task that processes the waits on one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct WaiterScan {
    pub(super) object: u32,
    pub(super) action: WaiterAction,
    pub(super) before: u64,
    pub(super) behind: Option<Waiter>,
    /// It was left to a later step at least once, and keeps its object alive.
    pub(super) is_left: bool,
    /// The open is removed when this is done.
    pub(super) ends_open: bool,
}

impl WaiterScan {
    /// The waits that it has yet to end: those with a lower number.
    pub fn ended(&self) -> Option<(EndedWaits, u64)> {
        match self.action {
            WaiterAction::End { open, why } => Some(((self.object, open, why), self.before)),
            WaiterAction::Forget { .. } => None,
        }
    }
}
