//! Priorities, and devices that are marked.

/// `D3DKMT_SETCONTEXTSCHEDULINGPRIORITY`, `D3DKMT_GETCONTEXTSCHEDULINGPRIORITY` and their in-process forms.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ContextPriority {
    pub context: u32,
    pub priority: i32,
}

/// `D3DKMT_MARKDEVICEASERROR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MarkDeviceAsError {
    pub device: u32,
    /// `D3DKMT_DEVICE_ERROR_REASON`.
    pub reason: u32,
}
