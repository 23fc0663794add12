//! Synchronization objects as the interface describes them.

use serde::{Deserialize, Serialize};

use crate::{EventId, Handle, SyncObjectFlags};

/// `D3DDDI_SYNCHRONIZATIONOBJECT_TYPE`, an open enum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct SyncObjectType(pub u32);

impl SyncObjectType {
    pub const MUTEX: SyncObjectType = SyncObjectType(1);
    pub const SEMAPHORE: SyncObjectType = SyncObjectType(2);
    pub const FENCE: SyncObjectType = SyncObjectType(3);
    pub const CPU_NOTIFICATION: SyncObjectType = SyncObjectType(4);
    pub const MONITORED_FENCE: SyncObjectType = SyncObjectType(5);
    pub const PERIODIC_MONITORED_FENCE: SyncObjectType = SyncObjectType(6);
    pub const NATIVE_FENCE: SyncObjectType = SyncObjectType(7);

    pub const fn name(self) -> &'static str {
        match self.0 {
            1 => "SYNCHRONIZATION_MUTEX",
            2 => "SEMAPHORE",
            3 => "FENCE",
            4 => "CPU_NOTIFICATION",
            5 => "MONITORED_FENCE",
            6 => "PERIODIC_MONITORED_FENCE",
            7 => "NATIVE_FENCE",
            _ => "unknown type",
        }
    }
}

impl core::fmt::Debug for SyncObjectType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// `D3DDDI_SYNCHRONIZATIONOBJECTINFO2`, the input side. Only the members of the given type are
/// meaningful; the others are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct SyncObjectInfo {
    pub object_type: SyncObjectType,
    pub flags: SyncObjectFlags,
    /// MUTEX: created owned.
    pub initial_state: bool,
    /// SEMAPHORE.
    pub max_count: u32,
    /// SEMAPHORE.
    pub initial_count: u32,
    /// FENCE and MONITORED_FENCE (at the same offset of the C union, W-104).
    pub initial_value: u64,
    /// MONITORED_FENCE and PERIODIC_MONITORED_FENCE: bit n = physical adapter n, 0 = all (FEN-059).
    pub engine_affinity: u32,
    /// PERIODIC_MONITORED_FENCE: the adapter of its display target.
    pub adapter: Handle,
    /// PERIODIC_MONITORED_FENCE: `D3DDDI_VIDEO_PRESENT_TARGET_ID`.
    pub vidpn_target: u32,
    /// PERIODIC_MONITORED_FENCE: how long before each vsync, in units of 100 ns (FEN-083).
    pub time_100ns: u64,
    /// CPU_NOTIFICATION: the guest's number for the event; `None` for a NULL event (W-047).
    pub event: Option<EventId>,
}

/// `D3DKMT_DEVICESTATE_TYPE`: what GetDeviceState asks for.
pub mod device_state_type {
    pub const EXECUTION: u32 = 1;
    pub const PRESENT: u32 = 2;
    pub const RESET: u32 = 3;
    pub const PAGE_FAULT: u32 = 5;
}

/// `D3DKMT_DEVICEEXECUTION_STATE`, an open enum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct DeviceExecutionState(pub u32);

impl DeviceExecutionState {
    pub const ACTIVE: DeviceExecutionState = DeviceExecutionState(1);
    pub const RESET: DeviceExecutionState = DeviceExecutionState(2);
    pub const HUNG: DeviceExecutionState = DeviceExecutionState(3);
    pub const STOPPED: DeviceExecutionState = DeviceExecutionState(4);
    pub const ERROR_OUT_OF_MEMORY: DeviceExecutionState = DeviceExecutionState(5);
    pub const ERROR_DMA_FAULT: DeviceExecutionState = DeviceExecutionState(6);
    pub const ERROR_DMA_PAGE_FAULT: DeviceExecutionState = DeviceExecutionState(7);
}
