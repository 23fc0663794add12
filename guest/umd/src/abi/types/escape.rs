//! The structs of escapes and features.

use std::ffi::c_void;

/// `D3DKMT_ESCAPE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Escape {
    pub adapter: u32,
    pub device: u32,
    pub kind: u32,
    pub flags: u32,
    pub private_data: *mut c_void,
    pub private_data_size: u32,
    pub context: u32,
}

/// `D3DKMT_ISFEATUREENABLED`, its `Result` of two words in place.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IsFeatureEnabled {
    pub adapter: u32,
    pub feature_id: u32,
    pub version: u16,
    pub value: u16,
}
