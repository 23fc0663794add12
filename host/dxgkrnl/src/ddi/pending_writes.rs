//! What a driver can tell of work that is not done: for people who ask why a wait does not end (`why`). No DDI, and
//! nothing that the kernel decides by.

use alloc::vec::Vec;

use super::ids::{HwContext, HwQueueId};
use crate::{Nanos, ProcessId};

/// One thing that others may wait for and that a command buffer will do, or will wait for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PendingWrite {
    /// It stores this value at this GPU address.
    Store { gpu_address: u64, value: u64 },
    /// It waits in hardware until the native fence at this address has the value.
    Wait { gpu_address: u64, value: u64 },
    /// A packet that never ends.
    NeverEnds,
}

/// Where work of an engine stands.
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
    /// The engine has it, and something else runs.
    Queued,
    /// It was preempted: the kernel is to submit it again.
    Preempted,
}

/// Work that an engine has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineWork {
    /// 0 for what comes from a ring.
    pub submission_fence_id: u64,
    /// `None` for that of a context's own queue.
    pub hw_queue: Option<HwQueueId>,
    pub context: HwContext,
    pub process: ProcessId,
    pub state: WorkState,
    /// What is left of it, in its order.
    pub pending_writes: Vec<PendingWrite>,
}
