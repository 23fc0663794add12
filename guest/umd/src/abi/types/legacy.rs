//! The calls of WDDM 1, whose arrays are in place.

/// `D3DKMT_OPENSYNCHRONIZATIONOBJECT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpenSynchronizationObject {
    pub shared_handle: u32,
    pub object: u32,
    pub reserved: [u64; 8],
}

/// `D3DKMT_WAITFORSYNCHRONIZATIONOBJECT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WaitForSynchronizationObject {
    pub context: u32,
    pub object_count: u32,
    pub objects: [u32; 32],
}

/// `D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WaitForSynchronizationObject2 {
    pub context: u32,
    pub object_count: u32,
    pub objects: [u32; 32],
    /// A union; FENCE: the value.
    pub fence_value: u64,
    pub rest: [u64; 7],
}

/// `D3DKMT_SIGNALSYNCHRONIZATIONOBJECT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SignalSynchronizationObject {
    pub context: u32,
    pub object_count: u32,
    pub objects: [u32; 32],
    pub flags: u32,
}

/// `D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SignalSynchronizationObject2 {
    pub context: u32,
    pub object_count: u32,
    pub objects: [u32; 32],
    pub flags: u32,
    pub context_count: u32,
    pub contexts: [u32; 64],
    /// A union: the value of a FENCE, or an event.
    pub value: u64,
    pub rest: [u64; 7],
}
