//! The state of a context.

use alloc::collections::BTreeMap;

use d3dkmt::{CreateContextFlags, Handle};
use serde::{Deserialize, Serialize};

use super::ready::Level;
use super::suspension::HardwareSide;
use crate::ProcessId;
use crate::ddi::EngineId;

#[derive(Serialize, Deserialize)]
pub(crate) struct Context {
    pub process: ProcessId,
    pub handle: Handle,
    pub device: u32,
    pub engine: EngineId,
    pub flags: CreateContextFlags,
    /// Its software queue.
    pub queue: u32,
    /// `SetContextSchedulingPriority`, -7 to 7.
    pub priority: i32,
    /// `SetContextInProcessSchedulingPriority`, -7 to 7.
    pub in_process_priority: i32,
    /// For a paging context of the system: the level of its paging buffers.
    pub paging: Option<Level>,
    pub hardware: HardwareSide,
}

/// A DestroyContext or DestroyPagingQueue that is answered once the work of its context is done: see `context_end.rs`.
#[derive(Serialize, Deserialize)]
pub(crate) struct WaitingEnd {
    pub request: u64,
    pub busy: BusyQueues,
}

/// The queues of a context that have not been idle since a call: each with the value that its progress fence has to reach if
/// it is of user-mode submission, or 0. With the last one, a task of the backlog ends the context.
pub(crate) type BusyQueues = BTreeMap<u32, u64>;

impl WaitingEnd {
    /// Bytes that the process is charged.
    pub fn weight(busy: &BusyQueues) -> u64 {
        const BYTES: u64 = 128;
        const QUEUE_BYTES: u64 = 32;
        BYTES + busy.len() as u64 * QUEUE_BYTES
    }
}
