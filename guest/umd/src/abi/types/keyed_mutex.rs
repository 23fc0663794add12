//! Keyed mutexes.

use std::ffi::c_void;

/// `D3DKMT_CREATEKEYEDMUTEX`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateKeyedMutex {
    pub initial_value: u64,
    pub shared_handle: u32,
    pub mutex: u32,
}

/// `D3DKMT_CREATEKEYEDMUTEX2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateKeyedMutex2 {
    pub initial_value: u64,
    pub shared_handle: u32,
    pub mutex: u32,
    pub data: *const c_void,
    pub data_size: u32,
    pub flags: u32,
}

/// `D3DKMT_OPENKEYEDMUTEX`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenKeyedMutex {
    pub shared_handle: u32,
    pub mutex: u32,
}

/// `D3DKMT_OPENKEYEDMUTEX2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenKeyedMutex2 {
    pub shared_handle: u32,
    pub mutex: u32,
    pub data: *mut c_void,
    pub data_size: u32,
}

/// `D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenKeyedMutexFromNtHandle {
    pub nt_handle: u64,
    pub mutex: u32,
    pub data: *mut c_void,
    pub data_size: u32,
}

/// `D3DKMT_ACQUIREKEYEDMUTEX`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AcquireKeyedMutex {
    pub mutex: u32,
    pub key: u64,
    /// `LARGE_INTEGER`, in units of 100 ns; NULL: for ever.
    pub timeout: *const i64,
    pub fence_value: u64,
}

/// `D3DKMT_ACQUIREKEYEDMUTEX2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AcquireKeyedMutex2 {
    pub mutex: u32,
    pub key: u64,
    pub timeout: *const i64,
    pub fence_value: u64,
    pub data: *mut c_void,
    pub data_size: u32,
}

/// `D3DKMT_RELEASEKEYEDMUTEX`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ReleaseKeyedMutex {
    pub mutex: u32,
    pub key: u64,
    pub fence_value: u64,
}

/// `D3DKMT_RELEASEKEYEDMUTEX2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ReleaseKeyedMutex2 {
    pub mutex: u32,
    pub key: u64,
    pub fence_value: u64,
    pub data: *const c_void,
    pub data_size: u32,
}
