//! The driver's side of allocations: what `DxgkDdiCreateAllocation` and its kin carry.
//!
//! ```text
//!   create_allocation ─▶ open_allocation ─▶ .. more opens, of other devices ─▶ close_allocation ─▶ destroy_allocation
//!     private data of the resource, in; of each allocation, in and out
//!     out: size, alignment, segment group, CPU visibility
//! ```
//! The kernel keeps the data as the driver left them, and passes them to each open. An allocation may outlive its last
//! open, while an NT handle of its resource exists.

use alloc::vec::Vec;

use d3dkmt::CreateAllocationFlags;
use serde::{Deserialize, Serialize};

use super::guests::KmdDevice;
use crate::ProcessId;

/// `hAllocation` of an allocation that was created with private data: never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct AllocationId(pub u64);

/// `hResource`: never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ResourceId(pub u64);

/// `hDeviceSpecificAllocation`: an open of an allocation. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LocalAllocationId(pub u64);

/// `D3DKMT_MEMORY_SEGMENT_GROUP`: whose budget an allocation counts against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub enum SegmentGroup {
    /// Memory of the GPU.
    Local,
    /// Memory of the system.
    #[default]
    NonLocal,
}

impl SegmentGroup {
    /// All of them, by their numbers.
    pub const ALL: [SegmentGroup; 2] = [SegmentGroup::Local, SegmentGroup::NonLocal];
}

/// `DXGKARG_CREATEALLOCATION`.
#[derive(PartialEq, Eq, Debug)]
pub struct CreateAllocation {
    /// The process that creates them, and whose memory those with `system_memory` are.
    pub process: ProcessId,
    pub flags: CreateAllocationFlags,
    /// The resource that gets them, if any; a new one if `new_resource` is set (`Flags.Resource`).
    pub resource: Option<ResourceId>,
    pub new_resource: bool,
    /// `pPrivateDriverData` of the call: an input, const in the public headers.
    pub private_data: Vec<u8>,
    pub allocations: Vec<AllocationInfo>,
}

/// `DXGK_ALLOCATIONINFO`.
#[derive(PartialEq, Eq, Debug)]
pub struct AllocationInfo {
    pub allocation: AllocationId,
    /// `pPrivateDriverData`, in and out.
    pub private_data: Vec<u8>,
    /// Whether it is memory of the process (`pSystemMem`), and then in [`SegmentGroup::NonLocal`].
    pub system_memory: bool,
    /// Output, in bytes; the kernel rounds it up to whole pages. `None`, for memory of the process only: the driver does
    /// not know. The allocation then has the size of what its creator maps of it. Memory of the device has at most
    /// `d3dkmt::limits::DEVICE_ALLOCATION_BYTES_MAX` bytes, and no more than the budget of its segment group.
    pub size: Option<u64>,
    /// Output: a power of two, or 0.
    pub alignment: u32,
    /// Output.
    pub segment_group: SegmentGroup,
    /// Output: `Flags.CpuVisible`. Memory of the device without it cannot be locked.
    pub cpu_visible: bool,
}

/// `DXGKARG_OPENALLOCATION`, of one allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenAllocation<'a> {
    pub device: KmdDevice,
    pub allocation: AllocationId,
    pub opened: LocalAllocationId,
    /// `Flags.Create`: the creator's open.
    pub create: bool,
    pub private_data: &'a [u8],
}

/// `DXGKARG_DESTROYALLOCATION`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DestroyAllocation {
    pub allocations: Vec<AllocationId>,
    /// `Flags.DestroyResource` with `hResource`.
    pub resource: Option<ResourceId>,
}

/// `DXGKARG_DESCRIBEALLOCATION`, outputs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct AllocationDescription {
    pub width: u32,
    pub height: u32,
    /// `D3DDDIFORMAT`.
    pub format: u32,
}

/// `DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA`: an existing heap, the one kind that user mode may create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StandardAllocationData {
    /// `D3DKMT_STANDARDALLOCATIONTYPE`.
    pub kind: u32,
    /// Bytes.
    pub size: u64,
}
