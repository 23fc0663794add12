//! The struct of escapes.

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
