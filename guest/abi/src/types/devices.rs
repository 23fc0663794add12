//! Devices and contexts.

use super::*;

c_abi! {
    section devices_and_contexts("devices and contexts") {}

    bits D3DKMT_CREATEDEVICEFLAGS(UINT) {
        LegacyMode 1,
        RequestVSync 1,
        DisableGpuTimeout 1,
        Reserved 29,
    }

    struct D3DKMT_CREATEDEVICE(64) {
        // The pointer is for kernel callers only.
        0 adapter: D3DKMT_HANDLE = Anonymous.hAdapter => "union { D3DKMT_HANDLE hAdapter; void *pAdapter; };",
        4 adapter_high: UINT = none => "",
        8 Flags: D3DKMT_CREATEDEVICEFLAGS,
        12 hDevice: D3DKMT_HANDLE,
        16 pCommandBuffer: *mut c_void,
        24 CommandBufferSize: UINT,
        32 pAllocationList: *mut c_void,
        40 AllocationListSize: UINT,
        48 pPatchLocationList: *mut c_void,
        56 PatchLocationListSize: UINT,
    }

    struct D3DKMT_DESTROYDEVICE(4) {
        0 hDevice: D3DKMT_HANDLE,
    }

    enum D3DKMT_DEVICESTATE_TYPE(UINT) {
        D3DKMT_DEVICESTATE_EXECUTION = 1,
        D3DKMT_DEVICESTATE_PRESENT = 2,
        D3DKMT_DEVICESTATE_RESET = 3,
        D3DKMT_DEVICESTATE_PAGE_FAULT = 5,
    }

    enum D3DKMT_DEVICEEXECUTION_STATE(UINT) {
        D3DKMT_DEVICEEXECUTION_ACTIVE = 1,
        D3DKMT_DEVICEEXECUTION_RESET = 2,
        D3DKMT_DEVICEEXECUTION_HUNG = 3,
        D3DKMT_DEVICEEXECUTION_STOPPED = 4,
        D3DKMT_DEVICEEXECUTION_ERROR_OUTOFMEMORY = 5,
        D3DKMT_DEVICEEXECUTION_ERROR_DMAFAULT = 6,
        D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT = 7,
    }

    flags D3DKMT_DEVICERESET_STATE(UINT) {
        DesktopSwitched 1,
        Reserved 31,
    }

    enum DXGK_PAGE_FAULT_FLAGS(UINT) {
        DXGK_PAGE_FAULT_WRITE = 0x1,
        DXGK_PAGE_FAULT_FENCE_INVALID = 0x2,
        DXGK_PAGE_FAULT_ADAPTER_RESET_REQUIRED = 0x4,
        DXGK_PAGE_FAULT_ENGINE_RESET_REQUIRED = 0x8,
        DXGK_PAGE_FAULT_FATAL_HARDWARE_ERROR = 0x10,
        DXGK_PAGE_FAULT_IOMMU = 0x20,
        DXGK_PAGE_FAULT_HW_CONTEXT_VALID = 0x40,
        DXGK_PAGE_FAULT_PROCESS_HANDLE_VALID = 0x80,
    }

    /// No display: all 0.
    struct D3DKMT_PRESENT_STATS(32) {
        0 PresentCount: UINT,
        4 PresentRefreshCount: UINT,
        8 SyncRefreshCount: UINT,
        16 SyncQPCTime: LARGE_INTEGER,
        24 SyncGPUTime: LARGE_INTEGER,
    }

    struct D3DKMT_DEVICEPRESENT_STATE(40) {
        0 VidPnSourceId: UINT,
        8 PresentStats: D3DKMT_PRESENT_STATS,
    }

    /// Flags and address are known here. The sequence number and the table entry are the UNKNOWN of d3dkmdt.h, all ones;
    /// the other fields are 0.
    struct D3DKMT_DEVICEPAGEFAULT_STATE(32) {
        0 FaultedPrimitiveAPISequenceNumber: UINT64,
        8 FaultedPipelineStage: UINT,
        12 FaultedBindTableEntry: UINT,
        16 PageFaultFlags: DXGK_PAGE_FAULT_FLAGS,
        20 FaultErrorCode: UINT,
        24 FaultedVirtualAddress: D3DGPU_VIRTUAL_ADDRESS,
    }

    enum D3DKMT_DEVICE_ERROR_REASON(UINT) {
        D3DKMT_DEVICE_ERROR_REASON_GENERIC = 0x80000000,
        D3DKMT_DEVICE_ERROR_REASON_DRIVER_ERROR = 0x80000006,
    }

    struct D3DKMT_MARKDEVICEASERROR(8) {
        0 hDevice: D3DKMT_HANDLE,
        4 Reason: D3DKMT_DEVICE_ERROR_REASON,
    }

    struct D3DKMT_GETDEVICESTATE(56) {
        0 hDevice: D3DKMT_HANDLE,
        4 StateType: D3DKMT_DEVICESTATE_TYPE,
        // EXECUTION and RESET are one word; a page fault and the statistics of PRESENT are in the following ones, too.
        8 state: UINT = Anonymous.ExecutionState
            => "union { D3DKMT_DEVICEEXECUTION_STATE ExecutionState; D3DKMT_DEVICEPRESENT_STATE PresentState;
                D3DKMT_DEVICERESET_STATE ResetState; D3DKMT_DEVICEPAGEFAULT_STATE PageFaultState; UINT64 Reserved[6]; };",
        12 second: UINT = none => "",
        16 pipeline: [UINT; 2] = Anonymous.PageFaultState.FaultedPipelineStage => "",
        24 page_fault_flags: UINT = Anonymous.PageFaultState.PageFaultFlags => "",
        28 error_code: UINT = Anonymous.PageFaultState.FaultErrorCode => "",
        32 page_fault_address: D3DGPU_VIRTUAL_ADDRESS = Anonymous.PageFaultState.FaultedVirtualAddress => "",
        40 rest: [UINT64; 2] = none => "",
    }

    flag_union D3DDDI_CREATECONTEXTFLAGS(UINT) {
        NullRendering 1,
        InitialData 1,
        DisableGpuTimeout 1,
        SynchronizationOnly 1,
        HwQueueSupported 1,
        NoKmdAccess 1,
        Reserved 26,
    }

    alias D3DKMT_CLIENTHINT(UINT) {}

    struct D3DKMT_CREATECONTEXTVIRTUAL(40) {
        0 hDevice: D3DKMT_HANDLE,
        4 NodeOrdinal: UINT,
        8 EngineAffinity: UINT,
        12 Flags: D3DDDI_CREATECONTEXTFLAGS,
        16 pPrivateDriverData: *mut c_void,
        24 PrivateDriverDataSize: UINT,
        28 ClientHint: D3DKMT_CLIENTHINT,
        32 hContext: D3DKMT_HANDLE,
    }

    struct D3DKMT_DESTROYCONTEXT(4) {
        0 hContext: D3DKMT_HANDLE,
    }

    struct D3DKMT_SETCONTEXTSCHEDULINGPRIORITY(8,
        also D3DKMT_GETCONTEXTSCHEDULINGPRIORITY,
        also D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY,
        also D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY) {
        0 hContext: D3DKMT_HANDLE,
        4 Priority: INT,
    }

    enum D3DKMT_SCHEDULINGPRIORITYCLASS(UINT) {
        D3DKMT_SCHEDULINGPRIORITYCLASS_IDLE = 0,
        D3DKMT_SCHEDULINGPRIORITYCLASS_BELOW_NORMAL = 1,
        D3DKMT_SCHEDULINGPRIORITYCLASS_NORMAL = 2,
        D3DKMT_SCHEDULINGPRIORITYCLASS_ABOVE_NORMAL = 3,
        D3DKMT_SCHEDULINGPRIORITYCLASS_HIGH = 4,
        D3DKMT_SCHEDULINGPRIORITYCLASS_REALTIME = 5,
    }
}
