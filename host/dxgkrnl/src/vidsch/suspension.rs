//! Suspension of contexts, and power states, which suspend all contexts of an adapter.
//!
//! ```text
//!             suspend n                       interrupt 17 {context, n}, or the DDI said SUCCESS
//!   Resumed -----------> Pending{deadline} ---------------------------------------------------> Suspended
//!      ^                    |      `-- interrupt 17 with an older number: ignored (SCH-020)         |
//!      |   resume           |                                                                      |
//!      `--------------------+----------------------------------------------------------------------'
//!                           | not acknowledged within TdrDelay: its engine is reset (SCH-021), and with that it is
//!                           | suspended
//! ```
//! When an adapter stops, each of its contexts becomes AdapterStopped for good, because power changes of a later arrival
//! concern the contexts of that one.
//!
//! Contexts are created resumed (SCH-022). A suspended context keeps its doorbells: work queues up (SCH-033).
//!
//! An adapter that goes to D3 has its contexts suspended, and each one's doorbells disconnected with RETRY once that
//! is acknowledged. The next ConnectDoorbell or submission brings it back to D0.

use alloc::collections::BTreeSet;

use d3dkmt::HwQueueFlags;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// The hardware queues of a context, and its suspension.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct HardwareSide {
    pub queues: BTreeSet<u32>,
    /// How many of them have DisableGpuTimeout.
    pub exempt_queues: usize,
    /// The number of its latest suspend.
    pub suspend_fence: u64,
    pub suspension: Suspension,
}

impl HardwareSide {
    pub fn insert(&mut self, hw_queue: u32, flags: HwQueueFlags) {
        self.queues.insert(hw_queue);
        self.exempt_queues += usize::from(flags.contains(HwQueueFlags::DISABLE_GPU_TIMEOUT));
    }

    pub fn remove(&mut self, hw_queue: u32, flags: HwQueueFlags) {
        self.queues.remove(&hw_queue);
        self.exempt_queues -= usize::from(flags.contains(HwQueueFlags::DISABLE_GPU_TIMEOUT));
    }
}

/// Whether a context is suspended: see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Suspension {
    #[default]
    Resumed,
    Pending {
        deadline: Nanos,
    },
    Suspended,
    /// Its adapter was stopped since. No hardware has it, also once the adapter is started again.
    AdapterStopped,
}
