//! NT handles, names and sync files.

use std::ffi::c_void;

/// `D3DKMT_OPENSYNCOBJECTFROMNTHANDLE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenSyncObjectFromNtHandle {
    pub nt_handle: u64,
    pub object: u32,
}

/// `D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME` and `D3DKMT_OPENNTHANDLEFROMNAME`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenNtHandleFromName {
    pub desired_access: u32,
    pub attributes: *const ObjectAttributes,
    pub nt_handle: u64,
}

/// `OBJECT_ATTRIBUTES`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ObjectAttributes {
    pub length: u32,
    pub root_directory: u64,
    pub object_name: *const UnicodeString,
    pub attributes: u32,
    pub security_descriptor: *const c_void,
    pub security_quality_of_service: *const c_void,
}

/// `UNICODE_STRING`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UnicodeString {
    /// In bytes.
    pub length: u16,
    pub maximum_length: u16,
    /// UTF-16: a kernel's string has 2 bytes for each unit wherever WCHAR has 4.
    pub buffer: *const u16,
}

/// `D3DKMT_CREATESYNCFILE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateSyncFile {
    pub device: u32,
    pub fence: u32,
    pub fence_value: u64,
    pub sync_file: u64,
}

/// `D3DKMT_WAITSYNCFILE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WaitSyncFile {
    pub sync_file: u64,
    pub context: u32,
    pub reserved: u32,
}

/// `D3DKMT_OPENSYNCOBJECTFROMSYNCFILE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenSyncObjectFromSyncFile {
    pub sync_file: u64,
    pub device: u32,
    pub object: u32,
    pub fence_value: u64,
    pub cpu_address: u64,
    pub gpu_address: u64,
}
