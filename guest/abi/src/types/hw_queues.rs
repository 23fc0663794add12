//! Hardware queues, native fences and sync files.
//!
//! The native fence structs have 216 and 176 bytes, as in Microsoft's current documentation. The crate `windows-sys`
//! has an earlier form of them (64 and 48 bytes: no private data, no reserves). No released SDK header was available to
//! decide (reference abi.md section 10).

use super::*;

c_abi! {
    section hardware_queues("hardware queues") {}

    flags D3DDDI_CREATEHWQUEUEFLAGS(UINT) {
        DisableGpuTimeout 1,
        NoBroadcastSignal 1,
        NoBroadcastWait 1,
        NoKmdAccess 1,
        UserModeSubmission 1,
        NativeProgressFence 1,
        Reserved 26,
    }

    struct D3DKMT_CREATEHWQUEUE(48) {
        0 hHwContext: D3DKMT_HANDLE,
        4 Flags: D3DDDI_CREATEHWQUEUEFLAGS,
        8 PrivateDriverDataSize: UINT,
        16 pPrivateDriverData: *mut c_void,
        24 hHwQueue: D3DKMT_HANDLE,
        28 hHwQueueProgressFence: D3DKMT_HANDLE,
        32 HwQueueProgressFenceCPUVirtualAddress: *mut c_void,
        40 HwQueueProgressFenceGPUVirtualAddress: D3DGPU_VIRTUAL_ADDRESS,
    }

    struct D3DKMT_DESTROYHWQUEUE(4) {
        0 hHwQueue: D3DKMT_HANDLE,
    }

    struct D3DKMT_SUBMITCOMMANDTOHWQUEUE(56) {
        0 hHwQueue: D3DKMT_HANDLE,
        8 HwQueueProgressFenceId: UINT64,
        16 CommandBuffer: D3DGPU_VIRTUAL_ADDRESS,
        24 CommandLength: UINT,
        28 PrivateDriverDataSize: UINT,
        32 pPrivateDriverData: *mut c_void,
        40 NumPrimaries: UINT,
        48 WrittenPrimaries: *const D3DKMT_HANDLE,
    }

    struct D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE(40) {
        0 Flags: D3DDDICB_SIGNALFLAGS,
        4 BroadcastHwQueueCount: ULONG,
        8 BroadcastHwQueueArray: *const D3DKMT_HANDLE,
        16 ObjectCount: UINT,
        24 ObjectHandleArray: *const D3DKMT_HANDLE,
        32 FenceValueArray: *const UINT64,
    }

    struct D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE(24) {
        0 hHwQueue: D3DKMT_HANDLE,
        4 ObjectCount: UINT,
        8 ObjectHandleArray: *const D3DKMT_HANDLE,
        16 FenceValueArray: *const UINT64,
    }

    /// As the current documentation has them; earlier SDKs had smaller structs (see docs/ABI.md).
    section native_fences("native fences") {}

    enum D3DDDI_NATIVEFENCE_TYPE(UINT, ours "windows-sys has an earlier form without it") {
        D3DDDI_NATIVEFENCE_TYPE_DEFAULT = 0,
        D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU = 1,
    }

    struct D3DDDI_NATIVEFENCEMAPPING(56, ours "windows-sys has an earlier, smaller form") {
        0 CurrentValueCpuVa: *mut c_void,
        8 CurrentValueGpuVa: D3DGPU_VIRTUAL_ADDRESS,
        16 MonitoredValueGpuVa: D3DGPU_VIRTUAL_ADDRESS,
        24 Reserved: [BYTE; 32],
    }

    struct D3DDDI_NATIVEFENCEINFO(112, ours "windows-sys has an earlier form without it") {
        0 InitialFenceValue: UINT64,
        8 EngineAffinity: UINT,
        12 Type: D3DDDI_NATIVEFENCE_TYPE,
        16 Flags: D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS,
        24 NativeFenceMapping: D3DDDI_NATIVEFENCEMAPPING,
        80 Reserved: [BYTE; 28],
    }

    struct D3DKMT_CREATENATIVEFENCE(216, ours "windows-sys has an earlier, smaller form") {
        0 hDevice: D3DKMT_HANDLE,
        4 hSyncObject: D3DKMT_HANDLE,
        8 PrivateDriverData: [BYTE; 64],
        72 Info: D3DDDI_NATIVEFENCEINFO,
        /// 0
        184 Flags: UINT,
        188 Reserved: [BYTE; 28],
    }

    struct D3DKMT_OPENNATIVEFENCEFROMNTHANDLE(176, ours "windows-sys has an earlier, smaller form") {
        0 hNtHandle: HANDLE,
        8 hDevice: D3DKMT_HANDLE,
        12 EngineAffinity: UINT,
        16 Flags: D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS,
        20 hSyncObject: D3DKMT_HANDLE,
        24 NativeFenceMapping: D3DDDI_NATIVEFENCEMAPPING,
        80 PrivateDriverData: [BYTE; 64],
        144 Reserved: [BYTE; 32],
    }

    section sync_files("sync files (Linux only)") {}

    struct D3DKMT_CREATESYNCFILE(24) {
        0 hDevice: D3DKMT_HANDLE,
        4 hMonitoredFence: D3DKMT_HANDLE,
        8 FenceValue: UINT64,
        /// Out: a descriptor that becomes readable when the fence has the value
        16 hSyncFile: UINT64,
    }

    struct D3DKMT_WAITSYNCFILE(16, ours "Linux only") {
        0 hSyncFile: UINT64,
        8 hContext: D3DKMT_HANDLE,
        12 Reserved: UINT,
    }

    struct D3DKMT_OPENSYNCOBJECTFROMSYNCFILE(40, ours "Linux only") {
        0 hSyncFile: UINT64,
        8 hDevice: D3DKMT_HANDLE,
        12 hSyncObject: D3DKMT_HANDLE,
        16 FenceValue: UINT64,
        24 FenceValueCPUVirtualAddress: *mut c_void,
        32 FenceValueGPUVirtualAddress: D3DGPU_VIRTUAL_ADDRESS,
    }
}
