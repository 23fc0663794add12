//! Adapters by a display, a device interface or a device context of GDI. No adapter here drives a display
//! (`NumOfSources` is 0), none is a device of a Windows guest, and there is no GDI: nothing of that kind opens one.

use d3dkmt::NtStatus;

use super::memory::read;
use super::thunk::{CStatus, enter};
use super::types::{OpenAdapterFromDeviceName, OpenAdapterFromGdiDisplayName, OpenAdapterFromHdc};
use crate::process::Starts;

/// `D3DKMTOpenAdapterFromGdiDisplayName`: every name is that of a detached display, NULL included (W-284).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenAdapterFromGdiDisplayName(_: *mut OpenAdapterFromGdiDisplayName) -> CStatus {
    enter(Starts::Session, |_| Err(NtStatus::UNSUCCESSFUL))
}

/// `D3DKMTOpenAdapterFromDeviceName`: no adapter has a device interface, whose name this would be (W-285).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenAdapterFromDeviceName(argument: *mut OpenAdapterFromDeviceName) -> CStatus {
    enter(Starts::Session, |_| read(argument).and(Err(NtStatus::INVALID_PARAMETER)))
}

/// `D3DKMTOpenAdapterFromHdc`: no number is a device context (W-286).
#[unsafe(no_mangle)]
pub extern "C" fn D3DKMTOpenAdapterFromHdc(argument: *mut OpenAdapterFromHdc) -> CStatus {
    enter(Starts::Session, |_| read(argument).and(Err(NtStatus::INVALID_PARAMETER)))
}
