//! Processes and devices at the drivers.
//!
//! ```text
//!   a process's first device on an adapter   DxgkDdiCreateProcess, then DxgkDdiCreateDevice
//!   its later devices there                  DxgkDdiCreateDevice
//!   a device ends                            DxgkDdiDestroyDevice
//!   its last handle of the adapter ends,     DxgkDdiDestroyDevice for each device, then DxgkDdiDestroyProcess
//!   or the process does
//! ```
//! So an escape may be of a process that its driver does not have yet (S-12, ESC-021). On a stopped adapter the
//! DDIs are still called when the handles end, as with contexts.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::ddi::KmdProcess;

/// The processes and devices that drivers have.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct DriverIds {
    /// The last identity that was assigned: processes and devices have one sequence, so that all are distinct.
    pub(super) last_id: u64,
    pub processes: BTreeMap<KmdProcess, (ProcessId, u32)>,
    pub(super) of_process: BTreeMap<(ProcessId, u32), KmdProcess>,
}

impl DriverIds {
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}
