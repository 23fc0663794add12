//! Offers of allocations, reservations, caches, and notifications of a process.

use super::*;

c_abi! {
    section offers("offers and residency of allocations") {}

    enum D3DKMT_OFFER_PRIORITY(UINT) {
        D3DKMT_OFFER_PRIORITY_LOW = 1,
        D3DKMT_OFFER_PRIORITY_NORMAL = 2,
        D3DKMT_OFFER_PRIORITY_HIGH = 3,
        D3DKMT_OFFER_PRIORITY_AUTO = 4,
    }

    flags D3DKMT_OFFER_FLAGS(UINT) {
        OfferImmediately 1,
        AllowDecommit 1,
        Reserved 30,
    }

    /// Either pResources or HandleList; the other one is NULL. So it is with reclaims.
    struct D3DKMT_OFFERALLOCATIONS(40) {
        0 hDevice: D3DKMT_HANDLE,
        8 pResources: *const D3DKMT_HANDLE,
        16 HandleList: *const D3DKMT_HANDLE,
        24 NumAllocations: UINT,
        28 Priority: D3DKMT_OFFER_PRIORITY,
        32 Flags: D3DKMT_OFFER_FLAGS,
    }

    struct D3DKMT_RECLAIMALLOCATIONS(40) {
        0 hDevice: D3DKMT_HANDLE,
        8 pResources: *const D3DKMT_HANDLE,
        16 HandleList: *const D3DKMT_HANDLE,
        /// Out, or NULL
        24 pDiscarded: *mut BOOL,
        32 NumAllocations: UINT,
    }

    enum D3DDDI_RECLAIM_RESULT(UINT) {
        D3DDDI_RECLAIM_RESULT_OK = 0,
        D3DDDI_RECLAIM_RESULT_DISCARDED = 1,
        D3DDDI_RECLAIM_RESULT_NOT_COMMITTED = 2,
    }

    struct D3DKMT_RECLAIMALLOCATIONS2(40) {
        0 hPagingQueue: D3DKMT_HANDLE,
        4 NumAllocations: UINT,
        8 pResources: *const D3DKMT_HANDLE,
        16 HandleList: *const D3DKMT_HANDLE,
        24 results: *mut UINT = Anonymous => "union { BOOL *pDiscarded; D3DDDI_RECLAIM_RESULT *pResults; };",
        32 PagingFenceValue: UINT64,
    }

    enum D3DKMT_ALLOCATIONRESIDENCYSTATUS(UINT) {
        D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINGPUMEMORY = 1,
        D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINSHAREDMEMORY = 2,
        D3DKMT_ALLOCATIONRESIDENCYSTATUS_NOTRESIDENT = 3,
    }

    struct D3DKMT_QUERYALLOCATIONRESIDENCY(32) {
        0 hDevice: D3DKMT_HANDLE,
        4 hResource: D3DKMT_HANDLE,
        8 phAllocationList: *const D3DKMT_HANDLE,
        16 AllocationCount: UINT,
        /// Out: one for a resource, or one for each allocation
        24 pResidencyStatus: *mut D3DKMT_ALLOCATIONRESIDENCYSTATUS,
    }

    struct D3DKMT_CHANGEVIDEOMEMORYRESERVATION(32) {
        0 hProcess: HANDLE,
        8 hAdapter: D3DKMT_HANDLE,
        12 MemorySegmentGroup: D3DKMT_MEMORY_SEGMENT_GROUP,
        16 Reservation: UINT64,
        24 PhysicalAdapterIndex: UINT,
    }

    struct D3DKMT_INVALIDATECACHE(24) {
        0 hDevice: D3DKMT_HANDLE,
        4 hAllocation: D3DKMT_HANDLE,
        8 Offset: SIZE_T,
        16 Length: SIZE_T,
    }

    struct D3DKMT_FLUSHHEAPTRANSITIONS(4) {
        0 hAdapter: D3DKMT_HANDLE,
    }

    struct D3DKMT_SETSTABLEPOWERSTATE(8) {
        0 hAdapter: D3DKMT_HANDLE,
        4 Enabled: BOOL,
    }

    section processes("memory and adapters of processes") {}

    flag_union D3DKMT_TRIMPROCESSCOMMITMENT_FLAGS(UINT) {
        Lazy 1,
        OnlyRepurposed 1,
        Reserved 30,
    }

    struct D3DKMT_TRIMPROCESSCOMMITMENT(40) {
        /// Size of this struct
        0 cbSize: UINT,
        8 hProcess: HANDLE,
        16 Flags: D3DKMT_TRIMPROCESSCOMMITMENT_FLAGS,
        24 DecommitRequested: UINT64,
        32 NumBytesDecommitted: UINT64,
    }

    struct D3DKMT_QUERYPROCESSOFFERINFO(32) {
        /// Size of this struct
        0 cbSize: UINT,
        8 hProcess: HANDLE,
        16 DecommitUniqueness: UINT64,
        24 DecommittableBytes: UINT64,
    }

    struct D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT(24) {
        0 hProcess: HANDLE,
        8 AdapterLuid: LUID,
        /// Out: a BOOLEAN
        16 Support: BYTE,
    }

    /// The name of GetProcessDeviceRemovalSupport's struct up to Windows 10, version 1709
    struct D3DKMT_GETPROCESSDEVICELOSTSUPPORT(24, ours "the SDK has the later name only") {
        0 hProcess: HANDLE,
        8 AdapterLuid: LUID,
        /// Out: a BOOLEAN
        16 Support: BYTE,
    }

    struct D3DKMT_ENUMPROCESSES(24, ours "not in the SDK") {
        0 AdapterLuid: LUID,
        /// Out: process ids; or NULL
        8 Buffer: *mut UINT,
        /// In: room in the buffer; out: processes
        16 BufferCount: UINT64,
    }

    struct D3DKMT_WAITFORIDLE(4) {
        0 hDevice: D3DKMT_HANDLE,
    }

    struct D3DKMT_ENUMADAPTERS(324) {
        0 NumAdapters: ULONG,
        4 Adapters: [D3DKMT_ADAPTERINFO; 16],
    }

    flags D3DDDI_TRIMRESIDENCYSET_FLAGS(UINT) {
        PeriodicTrim 1,
        RestartPeriodicTrim 1,
        TrimToBudget 1,
        Reserved 29,
    }

    struct D3DKMT_TRIMNOTIFICATION(24) {
        0 Context: *mut c_void,
        8 Flags: D3DDDI_TRIMRESIDENCYSET_FLAGS,
        16 NumBytesToTrim: UINT64,
    }

    struct D3DKMT_REGISTERTRIMNOTIFICATION(40) {
        0 AdapterLuid: LUID,
        8 hDevice: D3DKMT_HANDLE,
        16 callback: *const c_void = Callback => "void (*Callback)(D3DKMT_TRIMNOTIFICATION *);",
        24 Context: *mut c_void,
        /// Out
        32 Handle: *mut c_void,
    }

    struct D3DKMT_UNREGISTERTRIMNOTIFICATION(16) {
        0 Handle: *mut c_void,
        8 callback: *const c_void = Callback => "void (*Callback)(D3DKMT_TRIMNOTIFICATION *);",
    }

    struct D3DKMT_BUDGETCHANGENOTIFICATION(16) {
        0 Context: *mut c_void,
        8 Budget: UINT64,
    }

    struct D3DKMT_REGISTERBUDGETCHANGENOTIFICATION(32) {
        0 hDevice: D3DKMT_HANDLE,
        8 callback: *const c_void = Callback => "void (*Callback)(const D3DKMT_BUDGETCHANGENOTIFICATION *);",
        16 Context: *mut c_void,
        /// Out
        24 Handle: *mut c_void,
    }

    struct D3DKMT_UNREGISTERBUDGETCHANGENOTIFICATION(8) {
        0 Handle: *mut c_void,
    }
}

plain_calls! {
    $ plain_calls_of_offers

    /// hProcess is NULL, (HANDLE)-1 or a pidfd of the calling process.
    Nothing fn D3DKMTChangeVideoMemoryReservation(in D3DKMT_CHANGEVIDEOMEMORYRESERVATION of hProcess)
        = ChangeVideoMemoryReservation {
            adapter: hAdapter, segment_group: MemorySegmentGroup, reservation: Reservation,
            physical_adapter: PhysicalAdapterIndex,
        };
    Nothing fn D3DKMTInvalidateCache(in D3DKMT_INVALIDATECACHE)
        = InvalidateCache { device: hDevice, allocation: hAllocation, offset: Offset, length: Length };
    Nothing fn D3DKMTFlushHeapTransitions(in D3DKMT_FLUSHHEAPTRANSITIONS) = FlushHeapTransitions { adapter: hAdapter };
    Nothing fn D3DKMTSetStablePowerState(in D3DKMT_SETSTABLEPOWERSTATE)
        = SetStablePowerState { adapter: hAdapter, enabled: Enabled };
}
