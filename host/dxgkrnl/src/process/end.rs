//! How far the end of a process has come.

use serde::{Deserialize, Serialize};

use crate::history::Ending;

/// What of a process goes next, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum EndStage {
    Acquires,
    Waits,
    Devices,
    /// Objects of no device, those with handles from this place on.
    SyncObjects(usize),
    KeyedMutexes(usize),
    UnusedObjects,
    Rest,
}

/// A process that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct EndOfProcess {
    pub(super) part: EndStage,
    pub(super) ending: Ending,
}
