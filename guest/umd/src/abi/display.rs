//! Opening an adapter by a display, a device interface or a GDI device context. All three calls fail: no adapter here
//! drives a display (`NumOfSources` is 0), none is a device of a Windows guest, and there is no GDI.

use d3dkmt::NtStatus;

use super::thunk::ThunkResult;
use crate::client::Session;
use abi::types::{
    D3DKMT_OPENADAPTERFROMDEVICENAME, D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME, D3DKMT_OPENADAPTERFROMHDC,
};

/// `D3DKMTOpenAdapterFromGdiDisplayName`: treats every name, NULL included, as that of a detached display (W-284).
pub(super) fn open_adapter_from_gdi_display_name(
    _: &Session,
    _: *mut D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME,
) -> ThunkResult {
    Err(NtStatus::UNSUCCESSFUL)
}

/// `D3DKMTOpenAdapterFromDeviceName`: no adapter has a device interface that the call could name (W-285).
pub(super) fn open_adapter_from_device_name(
    _: &Session,
    _: &mut D3DKMT_OPENADAPTERFROMDEVICENAME,
) -> ThunkResult {
    Err(NtStatus::INVALID_PARAMETER)
}

/// `D3DKMTOpenAdapterFromHdc`: no number is a device context (W-286).
pub(super) fn open_adapter_from_hdc(_: &Session, _: &mut D3DKMT_OPENADAPTERFROMHDC) -> ThunkResult {
    Err(NtStatus::INVALID_PARAMETER)
}
