//! GPU signals and waits, command buffers, and the calls of WDDM 1, which have inline arrays.

use super::*;

c_abi! {
    section gpu_signals_and_waits("GPU signals and waits, submission") {}

    struct D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU(80) {
        0 hContext: D3DKMT_HANDLE,
        4 ObjectCount: UINT,
        8 ObjectHandleArray: *const D3DKMT_HANDLE,
        16 values: UINT64 = Anonymous
            => "union { const UINT64 *MonitoredFenceValueArray; UINT64 FenceValue; UINT64 Reserved[8]; };",
        24 rest: [UINT64; 7] = none => "",
    }

    struct D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU(80) {
        0 hContext: D3DKMT_HANDLE,
        4 ObjectCount: UINT,
        8 ObjectHandleArray: *const D3DKMT_HANDLE,
        16 values: UINT64 = Anonymous
            => "union { const UINT64 *MonitoredFenceValueArray; UINT64 Reserved[8]; };",
        24 rest: [UINT64; 7] = none => "",
    }

    struct D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2(96) {
        0 ObjectCount: UINT,
        8 ObjectHandleArray: *const D3DKMT_HANDLE,
        16 Flags: D3DDDICB_SIGNALFLAGS,
        20 BroadcastContextCount: ULONG,
        24 BroadcastContextArray: *const D3DKMT_HANDLE,
        32 values: UINT64 = Anonymous
            => "union { UINT64 FenceValue; HANDLE CpuEventHandle; const UINT64 *MonitoredFenceValueArray;
                UINT64 Reserved[8]; };",
        40 rest: [UINT64; 7] = none => "",
    }

    bits D3DKMT_SUBMITCOMMANDFLAGS(UINT) {
        NullRendering 1,
        PresentRedirected 1,
        NoKmdAccess 1,
        Reserved 29,
    }

    struct D3DKMT_SUBMITCOMMAND(384) {
        0 Commands: D3DGPU_VIRTUAL_ADDRESS,
        8 CommandLength: UINT,
        12 Flags: D3DKMT_SUBMITCOMMANDFLAGS,
        16 PresentHistoryToken: ULONGLONG,
        24 BroadcastContextCount: UINT,
        28 BroadcastContext: [D3DKMT_HANDLE; D3DDDI_MAX_BROADCAST_CONTEXT],
        288 pPrivateDriverData: *mut c_void,
        296 PrivateDriverDataSize: UINT,
        300 NumPrimaries: UINT,
        304 WrittenPrimaries: [D3DKMT_HANDLE; D3DDDI_MAX_WRITTEN_PRIMARIES],
        368 NumHistoryBuffers: UINT,
        376 HistoryBufferArray: *mut D3DKMT_HANDLE,
    }

    section the_calls_of_wddm_1("the calls of WDDM 1") {}

    struct D3DKMT_WAITFORSYNCHRONIZATIONOBJECT(136) {
        0 hContext: D3DKMT_HANDLE,
        4 ObjectCount: UINT,
        8 ObjectHandleArray: [D3DKMT_HANDLE; D3DDDI_MAX_OBJECT_WAITED_ON],
    }

    struct D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2(200) {
        0 hContext: D3DKMT_HANDLE,
        4 ObjectCount: UINT,
        8 ObjectHandleArray: [D3DKMT_HANDLE; D3DDDI_MAX_OBJECT_WAITED_ON],
        136 fence_value: UINT64 = Anonymous.Fence.FenceValue
            => "union { struct { UINT64 FenceValue; } Fence; UINT64 Reserved[8]; };",
        144 rest: [UINT64; 7] = none => "",
    }

    struct D3DKMT_SIGNALSYNCHRONIZATIONOBJECT(140) {
        0 hContext: D3DKMT_HANDLE,
        4 ObjectCount: UINT,
        8 ObjectHandleArray: [D3DKMT_HANDLE; D3DDDI_MAX_OBJECT_SIGNALED],
        136 Flags: D3DDDICB_SIGNALFLAGS,
    }

    struct D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2(464) {
        0 hContext: D3DKMT_HANDLE,
        4 ObjectCount: UINT,
        8 ObjectHandleArray: [D3DKMT_HANDLE; D3DDDI_MAX_OBJECT_SIGNALED],
        136 Flags: D3DDDICB_SIGNALFLAGS,
        140 BroadcastContextCount: ULONG,
        144 BroadcastContext: [D3DKMT_HANDLE; D3DDDI_MAX_BROADCAST_CONTEXT],
        400 value: UINT64 = Anonymous.Fence.FenceValue | Anonymous.CpuEventHandle
            => "union { struct { UINT64 FenceValue; } Fence; HANDLE CpuEventHandle; UINT64 Reserved[8]; };",
        408 rest: [UINT64; 7] = none => "",
    }
}
