//! Paging queues and GPU virtual addresses.

/// `D3DKMT_CREATEPAGINGQUEUE`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreatePagingQueue {
    pub device: u32,
    pub priority: i32,
    pub queue: u32,
    pub object: u32,
    pub cpu_address: u64,
    pub physical_adapter: u32,
}

/// `D3DDDI_RESERVEGPUVIRTUALADDRESS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ReserveGpuVirtualAddress {
    /// A union: paging queue or adapter.
    pub owner: u32,
    pub base: u64,
    pub minimum: u64,
    pub maximum: u64,
    pub size: u64,
    pub reservation_type: u32,
    pub driver_protection: u64,
    pub address: u64,
    /// A union with a reserved word.
    pub paging_fence_value: u64,
}

/// `D3DDDI_MAPGPUVIRTUALADDRESS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MapGpuVirtualAddress {
    pub paging_queue: u32,
    pub base: u64,
    pub minimum: u64,
    pub maximum: u64,
    pub allocation: u32,
    pub offset_pages: u64,
    pub size_pages: u64,
    pub protection: u64,
    pub driver_protection: u64,
    pub reserved_0: u32,
    pub reserved_1: u64,
    pub address: u64,
    pub paging_fence_value: u64,
}

/// `D3DKMT_FREEGPUVIRTUALADDRESS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FreeGpuVirtualAddress {
    pub adapter: u32,
    pub base: u64,
    pub size: u64,
}

/// `D3DKMT_UPDATEGPUVIRTUALADDRESS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UpdateGpuVirtualAddress {
    pub device: u32,
    pub context: u32,
    pub fence: u32,
    pub operation_count: u32,
    pub operations: *const GpuVaOperation,
    pub reserved_0: u64,
    pub reserved_1: u64,
    pub fence_value: u64,
    pub flags: u32,
}

/// `D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GpuVaOperation {
    pub operation: u32,
    /// MAP, MAP_PROTECT, UNMAP: where. COPY: where from.
    pub base: u64,
    pub size: u64,
    /// MAP, MAP_PROTECT: the allocation, in the low half. UNMAP: the protection. COPY: where to.
    pub allocation: u64,
    pub allocation_offset: u64,
    pub allocation_size: u64,
    /// MAP_PROTECT.
    pub protection: u64,
    pub driver_protection: u64,
}
