//! The C ABI: the Windows SDK's declarations, which `libdxcore.so` implements, and the library's two extra functions.

pub use windows_sys::Wdk::Graphics::Direct3D as sdk;

unsafe extern "C" {
    safe fn gpupv_messages_sent() -> u64;
    safe fn gpupv_settle_events();
    // The SDK crate has an earlier form of the two structs; these are from the library's header.
    pub fn D3DKMTCreateNativeFence(argument: *mut CreateNativeFence) -> i32;
    pub fn D3DKMTOpenNativeFenceFromNtHandle(argument: *mut OpenNativeFenceFromNtHandle) -> i32;
}

/// `D3DDDI_NATIVEFENCEMAPPING`.
#[repr(C)]
pub struct NativeFenceMapping {
    pub current_value_cpu_address: *mut core::ffi::c_void,
    pub current_value_gpu_address: u64,
    pub monitored_value_gpu_address: u64,
    reserved: [u8; 32],
}

impl Default for NativeFenceMapping {
    fn default() -> NativeFenceMapping {
        NativeFenceMapping {
            current_value_cpu_address: core::ptr::null_mut(),
            current_value_gpu_address: 0,
            monitored_value_gpu_address: 0,
            reserved: [0; 32],
        }
    }
}

/// `D3DDDI_NATIVEFENCEINFO`.
#[repr(C)]
#[derive(Default)]
pub struct NativeFenceInfo {
    pub initial_value: u64,
    pub engine_affinity: u32,
    pub native_type: u32,
    pub flags: u32,
    pub mapping: NativeFenceMapping,
    reserved: [u8; 28],
}

/// `D3DKMT_CREATENATIVEFENCE`.
#[repr(C)]
#[derive(Default)]
pub struct CreateNativeFence {
    pub device: u32,
    pub object: u32,
    private_data: [u64; 8],
    pub info: NativeFenceInfo,
    flags: u32,
    reserved: [u8; 28],
}

/// `D3DKMT_OPENNATIVEFENCEFROMNTHANDLE`.
#[repr(C)]
pub struct OpenNativeFenceFromNtHandle {
    pub nt_handle: NtHandle,
    pub device: u32,
    pub engine_affinity: u32,
    pub flags: u32,
    pub object: u32,
    pub mapping: NativeFenceMapping,
    private_data: [u64; 8],
    reserved: [u8; 32],
}

impl Default for OpenNativeFenceFromNtHandle {
    fn default() -> OpenNativeFenceFromNtHandle {
        OpenNativeFenceFromNtHandle {
            nt_handle: core::ptr::null_mut(),
            device: 0,
            engine_affinity: 0,
            flags: 0,
            object: 0,
            mapping: NativeFenceMapping::default(),
            private_data: [0; 8],
            reserved: [0; 32],
        }
    }
}

const _: () =
    assert!(size_of::<CreateNativeFence>() == 216 && size_of::<OpenNativeFenceFromNtHandle>() == 176);

/// `HANDLE`: the number of a descriptor.
pub type NtHandle = *mut core::ffi::c_void;

/// A HANDLE that no descriptor has.
pub const NO_HANDLE: NtHandle = i32::MAX as usize as NtHandle;

/// Returns once every event is set that the host signaled before it answered a call that has returned.
pub fn settle_events() {
    gpupv_settle_events();
}

/// Frames that the library has sent; none if it has not attached.
pub fn messages_sent() -> u64 {
    gpupv_messages_sent()
}
