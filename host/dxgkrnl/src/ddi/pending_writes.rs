//! What a driver reports of work that is not done, for people who ask why a wait does not end (`why`). No DDI: the
//! kernel decides nothing by it.

use alloc::vec::Vec;

use super::engine_ids::{HwContext, HwQueueId};
use crate::{Nanos, ProcessId};

/// A store, or a wait, that a command buffer has yet to execute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PendingWrite {
    /// It stores this value at this GPU address.
    Store { gpu_address: u64, value: u64 },
    /// It waits in hardware until the native fence at this address has the value.
    Wait { gpu_address: u64, value: u64 },
    /// A packet that never ends.
    NeverEnds,
}

/// State of an engine's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkState {
    /// A packet of it runs until that time; others may follow.
    Running { until: Nanos },
    /// A packet of it runs that never ends.
    Hung,
    /// It waits in hardware for a native fence.
    Waiting { gpu_address: u64, value: u64 },
    /// Its context is suspended.
    Suspended,
    /// It is queued on the engine while other work runs.
    Queued,
    /// It was preempted, and the kernel has yet to resubmit it.
    Preempted,
}

/// A piece of work on an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineWork {
    /// 0 for work from a ring.
    pub submission_fence_id: u64,
    /// `None` for a context's own queue.
    pub hw_queue: Option<HwQueueId>,
    pub context: HwContext,
    pub process: ProcessId,
    pub state: WorkState,
    /// Its remaining stores and waits, in order.
    pub pending_writes: Vec<PendingWrite>,
}
