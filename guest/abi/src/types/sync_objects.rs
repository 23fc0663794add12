//! Synchronization objects, NT handles and names; CPU signals and waits.

use super::*;

c_abi! {
    section synchronization_objects("synchronization objects") {}

    enum D3DDDI_SYNCHRONIZATIONOBJECT_TYPE(UINT) {
        D3DDDI_SYNCHRONIZATION_MUTEX = 1,
        D3DDDI_SEMAPHORE = 2,
        D3DDDI_FENCE = 3,
        D3DDDI_CPU_NOTIFICATION = 4,
        D3DDDI_MONITORED_FENCE = 5,
        D3DDDI_PERIODIC_MONITORED_FENCE = 6,
        D3DDDI_NATIVE_FENCE = 7 ours,
    }

    flags D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS(UINT) {
        Shared 1,
        NtSecuritySharing 1,
        CrossAdapter 1,
        TopOfPipeline 1,
        NoSignal 1,
        NoWait 1,
        NoSignalMaxValueOnTdr 1,
        NoGPUAccess 1,
        SignalByKmd 1,
        LocalMemoryPreferred 1,
        UnwaitCpuWaitersOnlyOnDestroy 1,
        Reserved 20,
        Reserved0 1,
    }

    struct D3DDDI_SYNCHRONIZATIONOBJECTINFO(68) {
        0 Type: D3DDDI_SYNCHRONIZATIONOBJECT_TYPE,
        // MUTEX: InitialState. SEMAPHORE: MaxCount, InitialCount.
        4 words: [UINT; 16] = Anonymous
            => "union { struct { BOOL InitialState; } SynchronizationMutex; struct { UINT MaxCount; UINT
                InitialCount; } Semaphore; struct { UINT Reserved[16]; } Reserved; };",
    }

    struct D3DDDI_SYNCHRONIZATIONOBJECTINFO2(80) {
        0 Type: D3DDDI_SYNCHRONIZATIONOBJECT_TYPE,
        4 Flags: D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS,
        // MONITORED_FENCE and FENCE: the initial value. CPU_NOTIFICATION: the event. MUTEX: the initial state.
        // SEMAPHORE: maximum and initial count. PERIODIC_MONITORED_FENCE: adapter and target.
        /// Out: FenceValueCPUVirtualAddress, where the value is to be read. Read-only memory.
        8 first: UINT64 = Anonymous.MonitoredFence.InitialFenceValue
            | Anonymous.PeriodicMonitoredFence.hAdapter
            => "union { struct { BOOL InitialState; } SynchronizationMutex; struct { UINT MaxCount; UINT
                InitialCount; } Semaphore; struct { UINT64 FenceValue; } Fence; struct { HANDLE Event; }
                CPUNotification; struct { UINT64 InitialFenceValue; void *FenceValueCPUVirtualAddress;
                D3DGPU_VIRTUAL_ADDRESS FenceValueGPUVirtualAddress; UINT EngineAffinity; UINT Padding; }
                MonitoredFence; struct { D3DKMT_HANDLE hAdapter; UINT VidPnTargetId; UINT64 Time; void
                *FenceValueCPUVirtualAddress; D3DGPU_VIRTUAL_ADDRESS FenceValueGPUVirtualAddress; UINT
                EngineAffinity; UINT Padding; } PeriodicMonitoredFence; struct { UINT64 Reserved[8]; }
                Reserved; };",
        16 cpu_address: UINT64 = Anonymous.MonitoredFence.FenceValueCPUVirtualAddress
            | Anonymous.PeriodicMonitoredFence.Time => "",
        24 gpu_address: UINT64 = Anonymous.MonitoredFence.FenceValueGPUVirtualAddress
            | Anonymous.PeriodicMonitoredFence.FenceValueCPUVirtualAddress => "",
        32 engine_affinity: UINT = Anonymous.MonitoredFence.EngineAffinity
            | Anonymous.PeriodicMonitoredFence.FenceValueGPUVirtualAddress => "",
        36 padding: UINT = none => "",
        40 rest: [UINT64; 4] = Anonymous.PeriodicMonitoredFence.EngineAffinity => "",
        72 SharedHandle: D3DKMT_HANDLE,
    }

    struct D3DKMT_CREATESYNCHRONIZATIONOBJECT(76) {
        0 hDevice: D3DKMT_HANDLE,
        4 Info: D3DDDI_SYNCHRONIZATIONOBJECTINFO,
        72 hSyncObject: D3DKMT_HANDLE,
    }

    struct D3DKMT_CREATESYNCHRONIZATIONOBJECT2(96) {
        0 hDevice: D3DKMT_HANDLE,
        8 Info: D3DDDI_SYNCHRONIZATIONOBJECTINFO2,
        88 hSyncObject: D3DKMT_HANDLE,
    }

    struct D3DKMT_DESTROYSYNCHRONIZATIONOBJECT(4) {
        0 hSyncObject: D3DKMT_HANDLE,
    }

    struct D3DKMT_OPENSYNCHRONIZATIONOBJECT(72) {
        0 hSharedHandle: D3DKMT_HANDLE,
        4 hSyncObject: D3DKMT_HANDLE,
        8 Reserved: [UINT64; 8],
    }

    /// UTF-16, as u"..." has it, though WCHAR has 4 bytes here. Lengths in bytes.
    struct UNICODE_STRING(16) {
        0 Length: USHORT,
        2 MaximumLength: USHORT,
        8 Buffer: *const u16,
    }

    /// Length is sizeof(OBJECT_ATTRIBUTES). Only the last part of ObjectName is used; there are no directory handles.
    struct OBJECT_ATTRIBUTES(48) {
        0 Length: ULONG,
        8 RootDirectory: HANDLE,
        16 ObjectName: *mut UNICODE_STRING,
        24 Attributes: ULONG,
        32 SecurityDescriptor: *mut c_void,
        40 SecurityQualityOfService: *mut c_void,
    }

    struct D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME(24, also D3DKMT_OPENNTHANDLEFROMNAME) {
        0 dwDesiredAccess: DWORD,
        8 pObjAttrib: *mut OBJECT_ATTRIBUTES,
        16 hNtHandle: HANDLE,
    }

    struct D3DKMT_OPENSYNCOBJECTFROMNTHANDLE(16) {
        0 hNtHandle: HANDLE,
        8 hSyncObject: D3DKMT_HANDLE,
    }

    struct D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2(88) {
        0 hNtHandle: HANDLE,
        8 hDevice: D3DKMT_HANDLE,
        12 Flags: D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS,
        16 hSyncObject: D3DKMT_HANDLE,
        24 cpu_address: UINT64 = Anonymous.MonitoredFence.FenceValueCPUVirtualAddress
            => "union { struct { void *FenceValueCPUVirtualAddress; D3DGPU_VIRTUAL_ADDRESS
                FenceValueGPUVirtualAddress; UINT EngineAffinity; } MonitoredFence; UINT64 Reserved[8]; };",
        32 gpu_address: UINT64 = Anonymous.MonitoredFence.FenceValueGPUVirtualAddress => "",
        40 engine_affinity: UINT = Anonymous.MonitoredFence.EngineAffinity => "",
        44 padding: UINT = none => "",
        // gpupv extension: Reserved[3], see `gpupv_opened_paging_fence_value`.
        48 paging_fence_value: UINT64 = none => "",
        56 rest: [UINT64; 4] = none => "",
    }

    section cpu_signals_and_waits("CPU signals and waits") {}

    flags D3DDDICB_SIGNALFLAGS(UINT) {
        SignalAtSubmission 1,
        EnqueueCpuEvent 1,
        AllowFenceRewind 1,
        Reserved 28,
        DXGK_SIGNAL_FLAG_INTERNAL0 1,
    }

    flags D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS(UINT) {
        WaitAny 1,
        Reserved 31,
    }

    struct D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU(32) {
        0 hDevice: D3DKMT_HANDLE,
        4 ObjectCount: UINT,
        8 ObjectHandleArray: *const D3DKMT_HANDLE,
        16 FenceValueArray: *const UINT64,
        24 Flags: D3DDDICB_SIGNALFLAGS,
    }

    struct D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU(40) {
        0 hDevice: D3DKMT_HANDLE,
        4 ObjectCount: UINT,
        8 ObjectHandleArray: *const D3DKMT_HANDLE,
        16 FenceValueArray: *const UINT64,
        /// NULL: the call blocks until the wait completes
        24 hAsyncEvent: HANDLE,
        32 Flags: D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS,
    }
}
