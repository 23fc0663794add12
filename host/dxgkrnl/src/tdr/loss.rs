//! What a device loses with its health.
//!
//! ```text
//!   state       HUNG, RESET, ERROR_DMAFAULT or ERROR_DMAPAGEFAULT; the process's status slot counts it
//!   its queues  are emptied: nothing of them takes effect, CPU events among it are set (F-67)
//!   its waits   CPU waits made through its handles end with DEVICE_REMOVED (TDR-031)
//!   its fences  are poisoned, if a reset is the reason: see `poison.rs`
//! ```

use alloc::vec::Vec;

use d3dkmt::{DeviceExecutionState, PageFaultState};
use serde::{Deserialize, Serialize};

/// Devices that go into one state together.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub devices: Vec<u32>,
    pub state: DeviceExecutionState,
    pub page_fault: Option<PageFaultState>,
    pub poisons: bool,
}
