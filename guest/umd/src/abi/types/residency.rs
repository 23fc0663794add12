//! What is resident, locked, and worth how much.

/// `D3DDDI_MAKERESIDENT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MakeResident {
    pub paging_queue: u32,
    pub count: u32,
    pub allocations: *const u32,
    pub priorities: *const u32,
    pub flags: u32,
    pub paging_fence_value: u64,
    pub bytes_to_trim: u64,
}

/// `D3DKMT_EVICT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Evict {
    pub device: u32,
    pub count: u32,
    pub allocations: *const u32,
    pub flags: u32,
    pub bytes_to_trim: u64,
}

/// `D3DKMT_LOCK2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Lock2 {
    pub device: u32,
    pub allocation: u32,
    pub flags: u32,
    pub data: u64,
}

/// `D3DKMT_UNLOCK2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Unlock2 {
    pub device: u32,
    pub allocation: u32,
}

/// `D3DKMT_SETALLOCATIONPRIORITY` and `D3DKMT_GETALLOCATIONPRIORITY`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocationPriority {
    pub device: u32,
    pub resource: u32,
    pub allocations: *const u32,
    pub count: u32,
    pub priorities: *mut u32,
}

/// `D3DKMT_QUERYVIDEOMEMORYINFO`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QueryVideoMemoryInfo {
    pub process: u64,
    pub adapter: u32,
    pub segment_group: u32,
    pub budget: u64,
    pub current_usage: u64,
    pub current_reservation: u64,
    pub available_for_reservation: u64,
    pub physical_adapter: u32,
}
