//! What a device loses with its health.
//!
//! ```text
//!   state       HUNG, RESET, ERROR_DMAFAULT or ERROR_DMAPAGEFAULT; the process's status slot counts it
//!   its queues  are emptied: nothing of them takes effect, CPU events among it are set (F-67)
//!   its waits   CPU waits made through its handles end with DEVICE_REMOVED (TDR-031)
//!   its fences  are poisoned, if a reset is the reason: see `poison.rs`
//! ```

use alloc::vec::Vec;

use d3dkmt::{DeviceExecutionState, Handle, PageFaultState};
use serde::{Deserialize, Serialize};

use crate::ProcessId;

/// Devices that go into one state together.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub devices: Vec<u32>,
    pub state: DeviceExecutionState,
    pub page_fault: Option<PageFaultState>,
    pub poisons: bool,
}

/// A device that was lost: its index may be another's by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LostDevice {
    pub device: u32,
    pub handle: Handle,
    pub process: ProcessId,
}

/// How far the queues of a lost device are emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LossOfQueues {
    pub of: LostDevice,
    /// The last queue that was emptied.
    pub behind: Option<u32>,
}

/// What becomes of the fences of a lost device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum LostFences {
    /// CPU waits made through its opens end.
    WaitsEnd,
    /// Hardware is told that those it may signal are, for ever.
    NativeOnesAreSignaled,
    /// Those it may signal are poisoned.
    AllAreSignaled,
}

/// What is to be done to the fences of a lost device; the backlog knows how far that is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LossOfFences {
    pub of: LostDevice,
    pub what: LostFences,
}

impl LossOfFences {
    pub fn key(self) -> (u32, LostFences) {
        (self.of.device, self.what)
    }
}
