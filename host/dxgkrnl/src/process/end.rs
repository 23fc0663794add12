//! Progress of the destruction of a process.

use serde::{Deserialize, Serialize};

use crate::history::Ending;
use crate::vidmm::address::GoneMemory;

/// The objects of a process that are destroyed next, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum EndStage {
    Acquires,
    Waits,
    Devices,
    /// Objects of no device, with handles from this index of the table on.
    SyncObjects(usize),
    KeyedMutexes(usize),
    UnusedObjects,
    /// What others have mapped of its memory.
    Memory(GoneMemory),
    /// No objects: the tables that had them are shortened.
    Tables,
    Rest,
}

/// A process that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct EndOfProcess {
    pub(super) part: EndStage,
    pub(super) ending: Ending,
}
