//! Hardware queues and native fences.
//!
//! The native fence structs are the 216 and 176 bytes of Microsoft's current documentation. The crate `windows-sys`
//! has an earlier form of them (64 and 48 bytes: no private data, no reserves); no header of a released SDK that
//! settles it was at hand (reference abi.md section 10).

use std::ffi::c_void;

/// `D3DKMT_CREATEHWQUEUE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateHwQueue {
    pub context: u32,
    pub flags: u32,
    pub private_data_size: u32,
    pub private_data: *mut c_void,
    pub queue: u32,
    pub progress_fence: u32,
    pub cpu_address: u64,
    pub gpu_address: u64,
}

/// `D3DKMT_SUBMITCOMMANDTOHWQUEUE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SubmitCommandToHwQueue {
    pub queue: u32,
    pub progress_fence_id: u64,
    pub commands: u64,
    pub length: u32,
    pub private_data_size: u32,
    pub private_data: *const c_void,
    pub primary_count: u32,
    pub written_primaries: *const u32,
}

/// `D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SubmitSignalToHwQueue {
    pub flags: u32,
    pub queue_count: u32,
    pub queues: *const u32,
    pub object_count: u32,
    pub objects: *const u32,
    pub values: *const u64,
}

/// `D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SubmitWaitToHwQueue {
    pub queue: u32,
    pub object_count: u32,
    pub objects: *const u32,
    pub values: *const u64,
}

/// `D3DDDI_NATIVEFENCEMAPPING`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NativeFenceMapping {
    pub current_value_cpu_address: u64,
    pub current_value_gpu_address: u64,
    pub monitored_value_gpu_address: u64,
    pub reserved: [u8; 32],
}

/// `D3DDDI_NATIVEFENCEINFO`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NativeFenceInfo {
    pub initial_value: u64,
    pub engine_affinity: u32,
    /// 0 DEFAULT, 1 INTRA_GPU.
    pub native_type: u32,
    pub flags: u32,
    pub mapping: NativeFenceMapping,
    pub reserved: [u8; 28],
}

/// `D3DKMT_CREATENATIVEFENCE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateNativeFence {
    pub device: u32,
    pub object: u32,
    pub private_data: [u8; 64],
    pub info: NativeFenceInfo,
    /// `D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS`.
    pub flags: u32,
    pub reserved: [u8; 28],
}

/// `D3DKMT_OPENNATIVEFENCEFROMNTHANDLE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenNativeFenceFromNtHandle {
    pub nt_handle: u64,
    pub device: u32,
    pub engine_affinity: u32,
    pub flags: u32,
    pub object: u32,
    pub mapping: NativeFenceMapping,
    pub private_data: [u8; 64],
    pub reserved: [u8; 32],
}
