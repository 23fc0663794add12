//! Happens-before relations that the kernel creates. No DDI: for a driver that detects races.

use serde::{Deserialize, Serialize};

use super::engine_ids::{HwContext, HwQueueId};
use crate::ProcessId;

/// An agent, whose actions happen one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Agent {
    /// A client process, on its CPUs.
    Process(ProcessId),
    /// A context's own queue.
    Context(HwContext),
    HwQueue(HwQueueId),
}

/// A store of a fence value by an engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct EngineStore {
    pub adapter: u32,
    pub gpu_address: u64,
    /// The value as the engine stored it; the fence may have a greater one.
    pub value: u64,
}

/// What a signal does when its queue reaches it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum SignalEffect {
    /// The fence has the value now.
    Applied,
    /// Other queues have yet to reach the broadcast of this number, or one has ended before it.
    Awaited { broadcast: u32 },
    /// The last queue has reached the broadcast: the fence has the value now.
    Completed { broadcast: u32 },
    /// The value is below the fence's, which stays.
    Ignored,
}

/// An event that orders actions, reported when it happens. Fences are numbered; a number is reused after `FenceGone`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum HappensBefore {
    /// A process submitted a command buffer to an engine of this adapter: its earlier actions happen before the buffer.
    /// Buffers of one queue begin in the order of these events. The drivers of all adapters get each event.
    Submitted {
        process: ProcessId,
        adapter: u32,
        queue: Agent,
    },
    /// The agent's earlier actions happen before those that follow a wait for the value. The value is 0 each time a mutex or
    /// semaphore is released.
    Signaled {
        by: Agent,
        fence: u64,
        value: u64,
        effect: SignalEffect,
        /// Set if an engine stored the value for a command buffer that runs.
        stored: Option<EngineStore>,
    },
    /// The agent has waited for the value, or the value was stored into its fence memory, where it may read it at any
    /// time.
    Waited {
        by: Agent,
        fence: u64,
        value: u64,
    },
    /// A process locks or unlocks an allocation's memory (Lock2, Unlock2): it may have written it by now.
    Locked {
        process: ProcessId,
        owner: ProcessId,
        address: u64,
        bytes: u64,
    },
    /// An allocation is gone, and with it every access to its memory, which may be used again. Reported for the parts that no
    /// other allocation of the owner has. Work that still uses them, as `AssumeNotInUse` allows, is not accounted for.
    MemoryGone {
        owner: ProcessId,
        address: u64,
        bytes: u64,
    },
    /// A queue of a lost device is emptied: its work is over. Devices are numbered; a number is reused after `DeviceGone`.
    WorkOver {
        by: Agent,
        device: u32,
    },
    /// A fence is about to be poisoned because a device is lost: whoever sees its largest value comes after the device's
    /// work.
    Poisoned {
        device: u32,
        fence: u64,
        /// Whether `WorkOver` was reported for each queue of the device. If not, the fence is poisoned early.
        all_work: bool,
    },
    /// A device that was lost is destroyed.
    DeviceGone {
        device: u32,
    },
    FenceGone {
        fence: u64,
    },
    /// Each queue has reached a broadcast or has ended: the number is reused.
    BroadcastGone {
        fence: u64,
        broadcast: u32,
    },
    Gone(Agent),
    /// A fence was created with a value above 0: a wait for no more needs no signal.
    FenceCreated {
        fence: u64,
        value: u64,
    },
}
