//! Devices of processes.

use alloc::collections::BTreeSet;

use d3dkmt::Handle;
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::ddi::{DxgCpuEvent, KmdDevice};
use crate::sync::waits::WaitId;

/// A device of a process on one adapter.
#[derive(Serialize, Deserialize)]
pub(crate) struct Device {
    pub process: ProcessId,
    pub handle: Handle,
    pub adapter: u32,
    /// The arrival of the adapter that it was created in, as its process sees it.
    pub arrival: u32,
    pub state: d3dkmt::DeviceExecutionState,
    /// Contexts and fences that die with the device.
    pub children: BTreeSet<Handle>,
    /// The round of marks that is under way: see `vidmm/after_work.rs`.
    pub round: Option<u64>,
    /// Queues of its contexts and hardware queues.
    pub queues: BTreeSet<u32>,
    pub paging_queues: BTreeSet<u32>,
    /// Pending CPU waits through the device for fences that were opened on other devices.
    pub foreign_waits: BTreeSet<WaitId>,
    /// Its flag DisableGpuTimeout.
    pub disable_gpu_timeout: bool,
    /// The driver's identity of it.
    pub kmd: KmdDevice,
    /// The CPU events that were created on it.
    pub cpu_events: BTreeSet<DxgCpuEvent>,
    /// The page fault that put it into error, or all zero.
    pub page_fault: d3dkmt::PageFaultState,
}
