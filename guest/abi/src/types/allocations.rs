//! Allocations and resources.

use super::*;

c_abi! {
    section allocations_and_resources("allocations and resources") {}

    flags D3DKMT_CREATEALLOCATIONFLAGS(UINT) {
        CreateResource 1,
        CreateShared 1,
        NonSecure 1,
        CreateProtected 1,
        RestrictSharedAccess 1,
        ExistingSysMem 1,
        NtSecuritySharing 1,
        ReadOnly 1,
        CreateWriteCombined 1,
        CreateCached 1,
        SwapChainBackBuffer 1,
        CrossAdapter 1,
        OpenCrossAdapter 1,
        PartialSharedCreation 1,
        Zeroed 1,
        WriteWatch 1,
        StandardAllocation 1,
        ExistingSection 1,
        AllowNotZeroed 1,
        PhysicallyContiguous 1,
        NoKmdAccess 1,
        SharedDisplayable 1,
        Reserved 10,
    }

    enum D3DKMT_STANDARDALLOCATIONTYPE(UINT) {
        D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP = 1,
    }

    struct D3DKMT_STANDARDALLOCATION_EXISTINGHEAP(8) {
        0 Size: SIZE_T,
    }

    flags D3DKMT_CREATESTANDARDALLOCATIONFLAGS(UINT) {
        Reserved 32,
    }

    struct D3DKMT_CREATESTANDARDALLOCATION(24) {
        0 Type: D3DKMT_STANDARDALLOCATIONTYPE,
        8 size: SIZE_T = Anonymous.ExistingHeapData.Size
            => "union { D3DKMT_STANDARDALLOCATION_EXISTINGHEAP ExistingHeapData; };",
        16 Flags: D3DKMT_CREATESTANDARDALLOCATIONFLAGS,
    }

    struct D3DDDI_ALLOCATIONINFO(40) {
        0 hAllocation: D3DKMT_HANDLE,
        8 pSystemMem: *const c_void,
        16 pPrivateDriverData: *mut c_void,
        24 PrivateDriverDataSize: UINT,
        28 VidPnSourceId: UINT,
        32 flags: UINT = Flags
            => "union { struct { UINT Primary : 1; UINT Stereo : 1; UINT Reserved : 30; }; UINT Value; }
                Flags;",
    }

    struct D3DDDI_ALLOCATIONINFO2(96) {
        0 hAllocation: D3DKMT_HANDLE,
        8 system_memory: UINT64 = Anonymous1 => "union { HANDLE hSection; const void *pSystemMem; };",
        16 pPrivateDriverData: *mut c_void,
        24 PrivateDriverDataSize: UINT,
        28 VidPnSourceId: UINT,
        32 flags: UINT = Flags
            => "union { struct { UINT Primary : 1; UINT Stereo : 1; UINT OverridePriority : 1; UINT
                Reserved : 29; }; UINT Value; } Flags;",
        40 GpuVirtualAddress: D3DGPU_VIRTUAL_ADDRESS,
        48 priority: UINT64 = Anonymous2 => "union { UINT Priority; SIZE_T Unused; };",
        56 Reserved: [SIZE_T; 5],
    }

    struct D3DKMT_CREATEALLOCATION(72) {
        0 hDevice: D3DKMT_HANDLE,
        4 hResource: D3DKMT_HANDLE,
        8 hGlobalShare: D3DKMT_HANDLE,
        16 pPrivateRuntimeData: *const c_void,
        24 PrivateRuntimeDataSize: UINT,
        // With the flag StandardAllocation the first member, else private driver data.
        32 private_data: *const c_void = Anonymous1
            => "union { D3DKMT_CREATESTANDARDALLOCATION *pStandardAllocation; const void
                *pPrivateDriverData; };",
        40 PrivateDriverDataSize: UINT,
        44 NumAllocations: UINT,
        // The function decides which member is used.
        48 allocations: *mut c_void = Anonymous2
            => "union { D3DDDI_ALLOCATIONINFO *pAllocationInfo; D3DDDI_ALLOCATIONINFO2 *pAllocationInfo2;
                };",
        56 Flags: D3DKMT_CREATEALLOCATIONFLAGS,
        64 hPrivateRuntimeResourceHandle: HANDLE,
    }

    struct D3DKMT_DESTROYALLOCATION(24) {
        0 hDevice: D3DKMT_HANDLE,
        4 hResource: D3DKMT_HANDLE,
        8 phAllocationList: *const D3DKMT_HANDLE,
        16 AllocationCount: UINT,
    }

    flags D3DDDICB_DESTROYALLOCATION2FLAGS(UINT) {
        AssumeNotInUse 1,
        SynchronousDestroy 1,
        Reserved 30,
    }

    struct D3DKMT_DESTROYALLOCATION2(24) {
        0 hDevice: D3DKMT_HANDLE,
        4 hResource: D3DKMT_HANDLE,
        8 phAllocationList: *const D3DKMT_HANDLE,
        16 AllocationCount: UINT,
        20 Flags: D3DDDICB_DESTROYALLOCATION2FLAGS,
    }

    struct D3DKMT_QUERYRESOURCEINFO(32) {
        0 hDevice: D3DKMT_HANDLE,
        4 hGlobalShare: D3DKMT_HANDLE,
        8 pPrivateRuntimeData: *mut c_void,
        16 PrivateRuntimeDataSize: UINT,
        20 TotalPrivateDriverDataSize: UINT,
        24 ResourcePrivateDriverDataSize: UINT,
        28 NumAllocations: UINT,
    }

    struct D3DDDI_OPENALLOCATIONINFO(24) {
        0 hAllocation: D3DKMT_HANDLE,
        8 pPrivateDriverData: *const c_void,
        16 PrivateDriverDataSize: UINT,
    }

    struct D3DDDI_OPENALLOCATIONINFO2(80) {
        0 hAllocation: D3DKMT_HANDLE,
        8 pPrivateDriverData: *const c_void,
        16 PrivateDriverDataSize: UINT,
        24 GpuVirtualAddress: D3DGPU_VIRTUAL_ADDRESS,
        32 Reserved: [SIZE_T; 6],
    }

    struct D3DKMT_OPENRESOURCE(72) {
        0 hDevice: D3DKMT_HANDLE,
        4 hGlobalShare: D3DKMT_HANDLE,
        8 NumAllocations: UINT,
        // The function decides which member is used.
        16 allocations: *mut c_void = Anonymous
            => "union { D3DDDI_OPENALLOCATIONINFO *pOpenAllocationInfo; D3DDDI_OPENALLOCATIONINFO2
                *pOpenAllocationInfo2; };",
        24 pPrivateRuntimeData: *mut c_void,
        32 PrivateRuntimeDataSize: UINT,
        40 pResourcePrivateDriverData: *mut c_void,
        48 ResourcePrivateDriverDataSize: UINT,
        56 pTotalPrivateDriverDataBuffer: *mut c_void,
        64 TotalPrivateDriverDataBufferSize: UINT,
        68 hResource: D3DKMT_HANDLE,
    }

    struct D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE(40) {
        0 hDevice: D3DKMT_HANDLE,
        8 hNtHandle: HANDLE,
        16 pPrivateRuntimeData: *mut c_void,
        24 PrivateRuntimeDataSize: UINT,
        28 TotalPrivateDriverDataSize: UINT,
        32 ResourcePrivateDriverDataSize: UINT,
        36 NumAllocations: UINT,
    }

    struct D3DKMT_GETSHAREDRESOURCEADAPTERLUID(24) {
        0 hGlobalShare: D3DKMT_HANDLE,
        8 hNtHandle: HANDLE,
        16 AdapterLuid: LUID,
    }

    struct D3DKMT_OPENRESOURCEFROMNTHANDLE(104) {
        0 hDevice: D3DKMT_HANDLE,
        8 hNtHandle: HANDLE,
        16 NumAllocations: UINT,
        24 pOpenAllocationInfo2: *mut D3DDDI_OPENALLOCATIONINFO2,
        32 PrivateRuntimeDataSize: UINT,
        40 pPrivateRuntimeData: *mut c_void,
        48 ResourcePrivateDriverDataSize: UINT,
        56 pResourcePrivateDriverData: *mut c_void,
        64 TotalPrivateDriverDataBufferSize: UINT,
        72 pTotalPrivateDriverDataBuffer: *mut c_void,
        80 hResource: D3DKMT_HANDLE,
        84 hKeyedMutex: D3DKMT_HANDLE,
        88 pKeyedMutexPrivateRuntimeData: *mut c_void,
        96 KeyedMutexPrivateRuntimeDataSize: UINT,
        100 hSyncObject: D3DKMT_HANDLE,
    }
}
