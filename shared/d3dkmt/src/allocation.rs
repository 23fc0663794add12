//! Allocations and resources: inputs and results of `D3DKMTCreateAllocation` and related calls.

use alloc::vec::Vec;

use crate::{CreateAllocationFlags, Handle};

/// Inputs of `D3DKMTCreateAllocation` and `..2`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CreateAllocation {
    pub device: Handle,
    /// A resource of the device that gets more allocations, or NULL.
    pub resource: Handle,
    pub flags: CreateAllocationFlags,
    /// With [`CreateAllocationFlags::STANDARD_ALLOCATION`].
    pub standard: Option<StandardAllocation>,
    /// Without it: private driver data of the resource.
    pub private_data: Vec<u8>,
    /// Private runtime data, returned to processes that open the resource.
    pub runtime_data: Vec<u8>,
    pub allocations: Vec<AllocationInfo>,
}

/// `D3DKMT_CREATESTANDARDALLOCATION`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct StandardAllocation {
    /// `D3DKMT_STANDARDALLOCATIONTYPE`; [`StandardAllocation::EXISTING_HEAP`] is the one that user mode may use.
    pub kind: u32,
    /// Bytes of the existing heap.
    pub size: u64,
    pub flags: u32,
    /// `PrivateDriverDataSize` beside it. There are no such data, because their pointer is the one to this struct.
    pub private_data_size: u32,
}

impl StandardAllocation {
    /// `D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP`.
    pub const EXISTING_HEAP: u32 = 1;
}

/// `D3DDDI_ALLOCATIONINFO` and `..2`, as far as they are inputs.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AllocationInfo {
    /// `pSystemMem`: an address of the calling process, or 0.
    pub system_memory: u64,
    pub private_data: Vec<u8>,
    pub flags: u32,
}

/// Output of `D3DKMTQueryResourceInfo`: the sizes to pass to `D3DKMTOpenResource`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ResourceInfo {
    /// Bytes of private runtime data.
    pub runtime_data_size: u32,
    /// Bytes of the private driver data of the resource itself.
    pub private_data_size: u32,
    /// Bytes of the private driver data of all allocations.
    pub total_private_data_size: u32,
    pub allocations: u32,
}
