//! The C ABI: the Windows SDK's declarations, which `libdxcore.so` answers, and its one function more.

pub use windows_sys::Wdk::Graphics::Direct3D as sdk;

unsafe extern "C" {
    safe fn gpupv_messages_sent() -> u64;
}

/// `HANDLE`: the number of a descriptor.
pub type NtHandle = *mut core::ffi::c_void;

/// A HANDLE that no descriptor has.
pub const NO_HANDLE: NtHandle = i32::MAX as usize as NtHandle;

/// Frames that the library has sent; none if it has not attached.
pub fn messages_sent() -> u64 {
    gpupv_messages_sent()
}
