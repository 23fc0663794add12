//! Structs of the calls that open an adapter by a display or by a device.

/// `D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME`, whose name has 32 WCHARs of 4 bytes here.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenAdapterFromGdiDisplayName {
    pub device_name: [u32; 32],
    pub adapter: u32,
    pub luid_low: u32,
    pub luid_high: i32,
    pub source: u32,
}

/// `D3DKMT_OPENADAPTERFROMDEVICENAME`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenAdapterFromDeviceName {
    pub device_name: *const u32,
    pub adapter: u32,
    pub luid_low: u32,
    pub luid_high: i32,
}

/// `D3DKMT_OPENADAPTERFROMHDC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenAdapterFromHdc {
    pub hdc: u64,
    pub adapter: u32,
    pub luid_low: u32,
    pub luid_high: i32,
    pub source: u32,
}
