//! What comes before what, as the kernel brings it about. No DDI: for a driver that looks for races.

use serde::{Deserialize, Serialize};

use super::ids::{HwContext, HwQueueId};
use crate::ProcessId;

/// Who does things one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Agent {
    /// On its CPUs.
    Process(ProcessId),
    /// A context's own queue.
    Context(HwContext),
    HwQueue(HwQueueId),
}

/// One thing that orders, told when it happens. Fences are numbered; a number is used again after `FenceGone`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum HappensBefore {
    /// A process handed a command buffer over: what it did before comes before the buffer. Buffers of one queue begin
    /// in the order of these.
    Submitted {
        process: ProcessId,
        queue: Agent,
    },
    /// What it did before comes before whoever waits for the value. A value may come several times: once from each
    /// queue of a broadcast, and 0 each time a mutex or semaphore is given free.
    Signaled {
        by: Agent,
        fence: u64,
        value: u64,
    },
    /// It has waited for the value, or had it stored into its fence memory, where it may read it at any time.
    Waited {
        by: Agent,
        fence: u64,
        value: u64,
    },
    /// A process takes or gives back memory that is an allocation, by Lock2 and Unlock2: it may have written it by now.
    Touched {
        process: ProcessId,
        owner: ProcessId,
        address: u64,
        bytes: u64,
    },
    FenceGone {
        fence: u64,
    },
    Gone(Agent),
}
