//! The types of the Windows SDK, as the crate `windows-sys` has them.

pub use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
pub use windows_sys::Wdk::Graphics::Direct3D::*;
pub use windows_sys::Win32::Foundation::{LUID, UNICODE_STRING};
