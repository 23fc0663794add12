//! Paging queues, GPU virtual addresses, and residency.

use super::*;

c_abi! {
    section paging_queues_and_gpu_virtual_addresses("paging queues and GPU virtual addresses") {}

    enum D3DDDI_PAGINGQUEUE_PRIORITY(INT) {
        D3DDDI_PAGINGQUEUE_PRIORITY_BELOW_NORMAL = -1,
        D3DDDI_PAGINGQUEUE_PRIORITY_NORMAL = 0,
        D3DDDI_PAGINGQUEUE_PRIORITY_ABOVE_NORMAL = 1,
    }

    struct D3DKMT_CREATEPAGINGQUEUE(32) {
        0 hDevice: D3DKMT_HANDLE,
        4 Priority: D3DDDI_PAGINGQUEUE_PRIORITY,
        8 hPagingQueue: D3DKMT_HANDLE,
        12 hSyncObject: D3DKMT_HANDLE,
        16 FenceValueCPUVirtualAddress: *mut c_void,
        24 PhysicalAdapterIndex: UINT,
    }

    struct D3DDDI_DESTROYPAGINGQUEUE(4) {
        0 hPagingQueue: D3DKMT_HANDLE,
    }

    flag_union D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE(UINT64) {
        Write 1,
        Execute 1,
        Zero 1,
        NoAccess 1,
        SystemUseOnly 1,
        Reserved 59,
    }

    struct D3DDDI_RESERVEGPUVIRTUALADDRESS(72) {
        0 owner: D3DKMT_HANDLE = Anonymous1
            => "union { D3DKMT_HANDLE hPagingQueue; D3DKMT_HANDLE hAdapter; };",
        8 BaseAddress: D3DGPU_VIRTUAL_ADDRESS,
        16 MinimumAddress: D3DGPU_VIRTUAL_ADDRESS,
        24 MaximumAddress: D3DGPU_VIRTUAL_ADDRESS,
        32 Size: UINT64,
        40 reservation_type: UINT = Anonymous2 => "union { UINT ReservationType; UINT Reserved0; };",
        48 driver_protection: UINT64 = Anonymous3 => "union { UINT64 DriverProtection; UINT64 Reserved1; };",
        56 VirtualAddress: D3DGPU_VIRTUAL_ADDRESS,
        64 paging_fence_value: UINT64 = Anonymous4 => "union { UINT64 PagingFenceValue; UINT64 Reserved2; };",
    }

    struct D3DDDI_MAPGPUVIRTUALADDRESS(104) {
        0 hPagingQueue: D3DKMT_HANDLE,
        8 BaseAddress: D3DGPU_VIRTUAL_ADDRESS,
        16 MinimumAddress: D3DGPU_VIRTUAL_ADDRESS,
        24 MaximumAddress: D3DGPU_VIRTUAL_ADDRESS,
        32 hAllocation: D3DKMT_HANDLE,
        40 OffsetInPages: UINT64,
        48 SizeInPages: UINT64,
        56 Protection: D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE,
        64 DriverProtection: UINT64,
        72 Reserved0: UINT,
        80 Reserved1: UINT64,
        88 VirtualAddress: D3DGPU_VIRTUAL_ADDRESS,
        96 PagingFenceValue: UINT64,
    }

    struct D3DKMT_FREEGPUVIRTUALADDRESS(24) {
        0 hAdapter: D3DKMT_HANDLE,
        8 BaseAddress: D3DGPU_VIRTUAL_ADDRESS,
        16 Size: UINT64,
    }

    enum D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE(UINT) {
        D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP = 0,
        D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP = 1,
        D3DDDI_UPDATEGPUVIRTUALADDRESS_COPY = 2,
        D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP_PROTECT = 3,
    }

    struct D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION(64) {
        0 OperationType: D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE,
        8 base: D3DGPU_VIRTUAL_ADDRESS = Anonymous.Map.BaseAddress
            | Anonymous.MapProtect.BaseAddress
            | Anonymous.Unmap.BaseAddress
            | Anonymous.Copy.SourceAddress
            => "union { struct { D3DGPU_VIRTUAL_ADDRESS BaseAddress; UINT64 SizeInBytes; D3DKMT_HANDLE
                hAllocation; UINT64 AllocationOffsetInBytes; UINT64 AllocationSizeInBytes; } Map; struct {
                D3DGPU_VIRTUAL_ADDRESS BaseAddress; UINT64 SizeInBytes; D3DKMT_HANDLE hAllocation; UINT64
                AllocationOffsetInBytes; UINT64 AllocationSizeInBytes;
                D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE Protection; UINT64 DriverProtection; } MapProtect;
                struct { D3DGPU_VIRTUAL_ADDRESS BaseAddress; UINT64 SizeInBytes;
                D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE Protection; } Unmap; struct {
                D3DGPU_VIRTUAL_ADDRESS SourceAddress; UINT64 SizeInBytes; D3DGPU_VIRTUAL_ADDRESS
                DestAddress; } Copy; };",
        16 size: UINT64 = Anonymous.Map.SizeInBytes
            | Anonymous.MapProtect.SizeInBytes
            | Anonymous.Unmap.SizeInBytes
            | Anonymous.Copy.SizeInBytes => "",
        // The handle is the low half.
        24 allocation: UINT64 = Anonymous.Map.hAllocation
            | Anonymous.MapProtect.hAllocation
            | Anonymous.Unmap.Protection
            | Anonymous.Copy.DestAddress => "",
        32 allocation_offset: UINT64 = Anonymous.Map.AllocationOffsetInBytes
            | Anonymous.MapProtect.AllocationOffsetInBytes => "",
        40 allocation_size: UINT64 = Anonymous.Map.AllocationSizeInBytes
            | Anonymous.MapProtect.AllocationSizeInBytes => "",
        48 protection: UINT64 = Anonymous.MapProtect.Protection => "",
        56 driver_protection: UINT64 = Anonymous.MapProtect.DriverProtection => "",
    }

    struct D3DKMT_UPDATEGPUVIRTUALADDRESS(56) {
        0 hDevice: D3DKMT_HANDLE,
        4 hContext: D3DKMT_HANDLE,
        8 hFenceObject: D3DKMT_HANDLE,
        12 NumOperations: UINT,
        16 Operations: *mut D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION,
        24 Reserved0: UINT64,
        32 Reserved1: UINT64,
        40 FenceValue: UINT64,
        48 flags: UINT = Flags
            => "union { struct { UINT DoNotWait : 1; UINT Reserved : 31; }; UINT Value; } Flags;",
    }

    section residency("residency") {}

    flags D3DDDI_MAKERESIDENT_FLAGS(UINT) {
        CantTrimFurther 1,
        MustSucceed 1,
        Reserved 30,
    }

    struct D3DDDI_MAKERESIDENT(48) {
        0 hPagingQueue: D3DKMT_HANDLE,
        4 NumAllocations: UINT,
        8 AllocationList: *const D3DKMT_HANDLE,
        16 PriorityList: *const UINT,
        24 Flags: D3DDDI_MAKERESIDENT_FLAGS,
        32 PagingFenceValue: UINT64,
        40 NumBytesToTrim: UINT64,
    }

    flags D3DDDI_SEGMENTPREFERENCE(UINT) {
        SegmentId0 5,
        Direction0 1,
        SegmentId1 5,
        Direction1 1,
        SegmentId2 5,
        Direction2 1,
        SegmentId3 5,
        Direction3 1,
        SegmentId4 5,
        Direction4 1,
        Reserved 2,
    }

    flags D3DDDI_UPDATEALLOCPROPERTY_FLAGS(UINT) {
        AccessedPhysically 1,
        Reserved 31,
    }

    struct D3DDDI_UPDATEALLOCPROPERTY(40) {
        0 hPagingQueue: D3DKMT_HANDLE,
        4 hAllocation: D3DKMT_HANDLE,
        8 SupportedSegmentSet: UINT,
        12 PreferredSegment: D3DDDI_SEGMENTPREFERENCE,
        16 Flags: D3DDDI_UPDATEALLOCPROPERTY_FLAGS,
        24 PagingFenceValue: UINT64,
        32 PropertyMaskValue: UINT = Anonymous => "union { struct { UINT SetAccessedPhysically : 1; UINT SetSupportedSegmentSet : 1; UINT SetPreferredSegment : 1; UINT SetUnmoveable : 1; UINT Reserved : 28; }; UINT PropertyMaskValue; };",
    }

    flags D3DDDI_EVICT_FLAGS(UINT) {
        EvictOnlyIfNecessary 1,
        NotWrittenTo 1,
        Reserved 30,
    }

    struct D3DKMT_EVICT(32) {
        0 hDevice: D3DKMT_HANDLE,
        4 NumAllocations: UINT,
        8 AllocationList: *const D3DKMT_HANDLE,
        16 Flags: D3DDDI_EVICT_FLAGS,
        24 NumBytesToTrim: UINT64,
    }

    flags D3DDDICB_LOCK2FLAGS(UINT) {
        Reserved 32,
    }

    struct D3DKMT_LOCK2(24) {
        0 hDevice: D3DKMT_HANDLE,
        4 hAllocation: D3DKMT_HANDLE,
        8 Flags: D3DDDICB_LOCK2FLAGS,
        16 pData: *mut c_void,
    }

    struct D3DKMT_UNLOCK2(8) {
        0 hDevice: D3DKMT_HANDLE,
        4 hAllocation: D3DKMT_HANDLE,
    }

    defines priorities(UINT) {
        D3DDDI_ALLOCATIONPRIORITY_MINIMUM = 0x28000000,
        D3DDDI_ALLOCATIONPRIORITY_LOW = 0x50000000,
        D3DDDI_ALLOCATIONPRIORITY_NORMAL = 0x78000000,
        D3DDDI_ALLOCATIONPRIORITY_HIGH = 0xa0000000,
        D3DDDI_ALLOCATIONPRIORITY_MAXIMUM = 0xc8000000,
    }

    struct D3DKMT_SETALLOCATIONPRIORITY(32) {
        0 hDevice: D3DKMT_HANDLE,
        4 hResource: D3DKMT_HANDLE,
        8 phAllocationList: *const D3DKMT_HANDLE,
        16 AllocationCount: UINT,
        24 pPriorities: *const UINT,
    }

    struct D3DKMT_GETALLOCATIONPRIORITY(32) {
        0 hDevice: D3DKMT_HANDLE,
        4 hResource: D3DKMT_HANDLE,
        8 phAllocationList: *const D3DKMT_HANDLE,
        16 AllocationCount: UINT,
        24 pPriorities: *mut UINT,
    }

    enum D3DKMT_MEMORY_SEGMENT_GROUP(UINT) {
        D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL = 0,
        D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL = 1,
    }

    struct D3DKMT_QUERYVIDEOMEMORYINFO(56) {
        0 hProcess: HANDLE,
        8 hAdapter: D3DKMT_HANDLE,
        12 MemorySegmentGroup: D3DKMT_MEMORY_SEGMENT_GROUP,
        16 Budget: UINT64,
        24 CurrentUsage: UINT64,
        32 CurrentReservation: UINT64,
        40 AvailableForReservation: UINT64,
        48 PhysicalAdapterIndex: UINT,
    }
}

plain_calls! {
    $ plain_calls_of_residency

    Nothing fn D3DKMTReserveGpuVirtualAddress(inout D3DDDI_RESERVEGPUVIRTUALADDRESS)
        = ReserveGpuVirtualAddress {
            owner: owner, base: BaseAddress, minimum: MinimumAddress, maximum: MaximumAddress, size: Size,
        } -> GpuVirtualAddress { address: VirtualAddress, paging_fence_value: paging_fence_value };
    Nothing fn D3DKMTMapGpuVirtualAddress(inout D3DDDI_MAPGPUVIRTUALADDRESS)
        = MapGpuVirtualAddress {
            paging_queue: hPagingQueue, base: BaseAddress, minimum: MinimumAddress, maximum: MaximumAddress,
            allocation: hAllocation, offset_pages: OffsetInPages, size_pages: SizeInPages, protection: Protection,
        } -> GpuVirtualAddress { address: VirtualAddress, paging_fence_value: PagingFenceValue };
    Nothing fn D3DKMTFreeGpuVirtualAddress(in D3DKMT_FREEGPUVIRTUALADDRESS)
        = FreeGpuVirtualAddress { adapter: hAdapter, base: BaseAddress, size: Size };
    /// hProcess is NULL, (HANDLE)-1 or a pidfd of the calling process.
    Nothing fn D3DKMTQueryVideoMemoryInfo(inout D3DKMT_QUERYVIDEOMEMORYINFO of hProcess)
        = QueryVideoMemoryInfo {
            adapter: hAdapter, segment_group: MemorySegmentGroup, physical_adapter: PhysicalAdapterIndex,
        } -> VideoMemoryInfo {
            budget: Budget, current_usage: CurrentUsage, current_reservation: CurrentReservation,
            available_for_reservation: AvailableForReservation,
        };
}
