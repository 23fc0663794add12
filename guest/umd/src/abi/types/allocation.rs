//! Allocations and resources.

use std::ffi::c_void;

/// `D3DKMT_CREATEALLOCATION`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateAllocation {
    pub device: u32,
    pub resource: u32,
    pub shared_handle: u32,
    pub runtime_data: *const c_void,
    pub runtime_data_size: u32,
    /// A [`StandardAllocation`] with the flag StandardAllocation, private driver data without.
    pub private_data: *const c_void,
    pub private_data_size: u32,
    pub count: u32,
    /// [`AllocationInfo`] or [`AllocationInfo2`], by the function.
    pub allocations: *mut c_void,
    pub flags: u32,
    pub runtime_resource: u64,
}

/// `D3DKMT_CREATESTANDARDALLOCATION`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct StandardAllocation {
    pub kind: u32,
    pub size: u64,
    pub flags: u32,
}

/// `D3DDDI_ALLOCATIONINFO`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocationInfo {
    pub allocation: u32,
    pub system_memory: u64,
    pub private_data: *const c_void,
    pub private_data_size: u32,
    pub vidpn_source: u32,
    pub flags: u32,
}

/// `D3DDDI_ALLOCATIONINFO2`: it begins as the first form does.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocationInfo2 {
    pub info: AllocationInfo,
    pub gpu_address: u64,
    pub priority: u64,
    pub reserved: [u64; 5],
}

/// `D3DKMT_DESTROYALLOCATION`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DestroyAllocation {
    pub device: u32,
    pub resource: u32,
    pub allocations: *const u32,
    pub count: u32,
}

/// `D3DKMT_DESTROYALLOCATION2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DestroyAllocation2 {
    pub device: u32,
    pub resource: u32,
    pub allocations: *const u32,
    pub count: u32,
    pub flags: u32,
}

/// `D3DKMT_QUERYRESOURCEINFO`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QueryResourceInfo {
    pub device: u32,
    pub shared_handle: u32,
    pub runtime_data: *mut c_void,
    pub runtime_data_size: u32,
    pub total_private_data_size: u32,
    pub private_data_size: u32,
    pub count: u32,
}

/// `D3DKMT_OPENRESOURCE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenResource {
    pub device: u32,
    pub shared_handle: u32,
    pub count: u32,
    /// [`OpenAllocationInfo`] or [`OpenAllocationInfo2`], by the function.
    pub allocations: *mut c_void,
    pub runtime_data: *mut c_void,
    pub runtime_data_size: u32,
    pub private_data: *mut c_void,
    pub private_data_size: u32,
    pub total_private_data: *mut c_void,
    pub total_private_data_size: u32,
    pub resource: u32,
}

/// `D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QueryResourceInfoFromNtHandle {
    pub device: u32,
    pub nt_handle: u64,
    pub runtime_data: *mut c_void,
    pub runtime_data_size: u32,
    pub total_private_data_size: u32,
    pub private_data_size: u32,
    pub count: u32,
}

/// `D3DKMT_OPENRESOURCEFROMNTHANDLE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenResourceFromNtHandle {
    pub device: u32,
    pub nt_handle: u64,
    pub count: u32,
    pub allocations: *mut OpenAllocationInfo2,
    pub runtime_data_size: u32,
    pub runtime_data: *mut c_void,
    pub private_data_size: u32,
    pub private_data: *mut c_void,
    pub total_private_data_size: u32,
    pub total_private_data: *mut c_void,
    pub resource: u32,
    pub keyed_mutex: u32,
    pub mutex_data: *mut c_void,
    pub mutex_data_size: u32,
    pub sync_object: u32,
}

/// `D3DDDI_OPENALLOCATIONINFO`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenAllocationInfo {
    pub allocation: u32,
    pub private_data: *const c_void,
    pub private_data_size: u32,
}

/// `D3DDDI_OPENALLOCATIONINFO2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenAllocationInfo2 {
    pub allocation: u32,
    pub private_data: *const c_void,
    pub private_data_size: u32,
    pub gpu_address: u64,
    pub reserved: [u64; 6],
}
