//! What happens when a device is lost.
//!
//! ```text
//!   state       HUNG, RESET, ERROR_DMAFAULT or ERROR_DMAPAGEFAULT; the process's status slot counts it
//!   its queues  are emptied: their packets have no effect, except that their CPU events are set (F-67)
//!   its waits   CPU waits whose call named it end with DEVICE_REMOVED, whatever they wait for (TDR-031), as a new one
//!               would; calls that named another device are released by poisoned fences (TDR-025)
//!   its fences  are poisoned, if a reset is the reason and its adapter is still there: see `poison.rs`
//!   its memory  in LOCAL is not resident any more after a reset of the adapter (TDR-011)
//! ```

use alloc::vec::Vec;

use d3dkmt::{DeviceExecutionState, Handle, PageFaultState};
use serde::{Deserialize, Serialize};

use crate::ProcessId;

/// Devices that are lost together and get the same state.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub devices: Vec<u32>,
    pub state: DeviceExecutionState,
    pub page_fault: Option<PageFaultState>,
    pub poisons: bool,
}

/// A device that was lost. Handle and process identify it, because another device may have its index by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LostDevice {
    pub device: u32,
    pub handle: Handle,
    pub process: ProcessId,
}

/// Progress in emptying the queues of a lost device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LossOfQueues {
    pub of: LostDevice,
    /// The last queue that was emptied.
    pub behind: Option<u32>,
    /// A later step continues it. A second loss of the device meanwhile is left, too.
    pub is_left: bool,
}

/// Progress in taking what a lost device has in LOCAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LossOfMemory {
    pub of: LostDevice,
    /// The last child of the device that is done.
    pub behind: Option<Handle>,
    /// A later child that is a resource, and the last of its allocations that is done.
    pub within: Option<(Handle, Handle)>,
}

/// An action on the fences of a lost device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum LostFences {
    /// CPU waits whose call named it end: fence by fence those for its own, then all others.
    WaitsEnd,
    /// The driver marks native fences that the device may signal as always signaled.
    NativeOnesAreSignaled,
    /// Fences that the device may signal are poisoned.
    AllAreSignaled,
}

/// An action on the fences of a lost device. The backlog keeps its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LossOfFences {
    pub of: LostDevice,
    pub kind: LostFences,
}

impl LossOfFences {
    pub fn key(self) -> (u32, LostFences) {
        (self.of.device, self.kind)
    }
}
