//! Adapters, escapes and features.

use super::*;

c_abi! {
    section adapters("adapters") {}

    struct D3DKMT_ADAPTERINFO(20) {
        0 hAdapter: D3DKMT_HANDLE,
        4 AdapterLuid: LUID,
        12 NumOfSources: ULONG,
        16 bPrecisePresentRegionsPreferred: BOOL,
    }

    struct D3DKMT_ENUMADAPTERS2(16) {
        0 NumAdapters: ULONG,
        8 pAdapters: *mut D3DKMT_ADAPTERINFO,
    }

    flag_union D3DKMT_ENUMADAPTERS_FILTER(ULONGLONG) {
        IncludeComputeOnly 1,
        IncludeDisplayOnly 1,
        Reserved 62,
    }

    struct D3DKMT_ENUMADAPTERS3(24) {
        0 Filter: D3DKMT_ENUMADAPTERS_FILTER,
        8 NumAdapters: ULONG,
        16 pAdapters: *mut D3DKMT_ADAPTERINFO,
    }

    struct D3DKMT_OPENADAPTERFROMLUID(12) {
        0 AdapterLuid: LUID,
        8 hAdapter: D3DKMT_HANDLE,
    }

    /// These three always fail: no adapter here has a display, a device interface or a device context.
    struct D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME(144, ours "WCHAR has 4 bytes here") {
        0 DeviceName: [WCHAR; 32],
        128 hAdapter: D3DKMT_HANDLE,
        132 AdapterLuid: LUID,
        140 VidPnSourceId: UINT,
    }

    struct D3DKMT_OPENADAPTERFROMDEVICENAME(24) {
        0 pDeviceName: *const WCHAR,
        8 hAdapter: D3DKMT_HANDLE,
        12 AdapterLuid: LUID,
    }

    alias HDC(HANDLE) {}

    struct D3DKMT_OPENADAPTERFROMHDC(24) {
        0 hDc: HDC,
        8 hAdapter: D3DKMT_HANDLE,
        12 AdapterLuid: LUID,
        20 VidPnSourceId: UINT,
    }

    struct D3DKMT_CLOSEADAPTER(4) {
        0 hAdapter: D3DKMT_HANDLE,
    }

    enum KMTQUERYADAPTERINFOTYPE(UINT) {
        KMTQAITYPE_UMDRIVERPRIVATE = 0,
        KMTQAITYPE_DRIVERVERSION = 13,
        KMTQAITYPE_ADAPTERTYPE = 15,
        KMTQAITYPE_UMD_DRIVER_VERSION = 18,
        KMTQAITYPE_PHYSICALADAPTERCOUNT = 30,
        KMTQAITYPE_PHYSICALADAPTERDEVICEIDS = 31,
        KMTQAITYPE_QUERYREGISTRY = 48,
        KMTQAITYPE_KMD_DRIVER_VERSION = 49,
        KMTQAITYPE_DRIVERVERSION_RENDER = 56,
        KMTQAITYPE_ADAPTERTYPE_RENDER = 57,
        KMTQAITYPE_DRIVER_DESCRIPTION = 65,
        KMTQAITYPE_WDDM_2_7_CAPS = 70,
    }

    struct D3DKMT_DRIVER_DESCRIPTION(16384, ours "WCHAR has 4 bytes here") {
        0 DriverDescription: [WCHAR; 4096],
    }

    struct D3DDDI_QUERYREGISTRY_INFO(1072, ours "WCHAR has 4 bytes here") {
        0 QueryType: UINT,
        4 QueryFlags: UINT,
        8 ValueName: [WCHAR; 260],
        1048 ValueType: UINT,
        1052 PhysicalAdapterIndex: UINT,
        1056 OutputValueSize: UINT,
        1060 Status: UINT,
        1064 output: UINT64
            => "union { UINT OutputDword; UINT64 OutputQword; WCHAR OutputString[1]; BYTE OutputBinary[1]; };",
    }

    struct D3DKMT_QUERYADAPTERINFO(24) {
        0 hAdapter: D3DKMT_HANDLE,
        4 Type: KMTQUERYADAPTERINFOTYPE,
        8 pPrivateDriverData: *mut c_void,
        16 PrivateDriverDataSize: UINT,
    }

    enum D3DKMT_ESCAPETYPE(UINT) {
        D3DKMT_ESCAPE_DRIVERPRIVATE = 0,
        D3DKMT_ESCAPE_VIDMM = 1,
        D3DKMT_ESCAPE_TDRDBGCTRL = 2,
        D3DKMT_ESCAPE_VIDSCH = 3,
        D3DKMT_ESCAPE_DEVICE = 4,
    }

    /// The data of D3DKMT_ESCAPE_TDRDBGCTRL: one of these.
    enum D3DKMT_TDRDBGCTRLTYPE(UINT) {
        D3DKMT_TDRDBGCTRLTYPE_FORCETDR = 0,
        D3DKMT_TDRDBGCTRLTYPE_DISABLEBREAK = 1,
        D3DKMT_TDRDBGCTRLTYPE_ENABLEBREAK = 2,
        D3DKMT_TDRDBGCTRLTYPE_UNCONDITIONAL = 3,
        D3DKMT_TDRDBGCTRLTYPE_VSYNCTDR = 4,
        D3DKMT_TDRDBGCTRLTYPE_GPUTDR = 5,
        D3DKMT_TDRDBGCTRLTYPE_FORCEDODTDR = 6,
        D3DKMT_TDRDBGCTRLTYPE_FORCEDODVSYNCTDR = 7,
        D3DKMT_TDRDBGCTRLTYPE_ENGINETDR = 8,
    }

    flags D3DDDI_ESCAPEFLAGS(UINT) {
        HardwareAccess 1,
        DeviceStatusQuery 1,
        ChangeFrameLatency 1,
        NoAdapterSynchronization 1,
        Reserved 1,
        VirtualMachineData 1,
        DriverKnownEscape 1,
        DriverCommonEscape 1,
        Reserved2 24,
    }

    struct D3DKMT_ESCAPE(32) {
        0 hAdapter: D3DKMT_HANDLE,
        4 hDevice: D3DKMT_HANDLE,
        8 Type: D3DKMT_ESCAPETYPE,
        12 Flags: D3DDDI_ESCAPEFLAGS,
        16 pPrivateDriverData: *mut c_void,
        24 PrivateDriverDataSize: UINT,
        28 hContext: D3DKMT_HANDLE,
    }

    /// The first word of DriverKnownEscape data.
    enum D3DDDI_DRIVERESCAPETYPE(UINT) {
        D3DDDI_DRIVERESCAPETYPE_TRANSLATEALLOCATIONHANDLE = 0,
        D3DDDI_DRIVERESCAPETYPE_TRANSLATERESOURCEHANDLE = 1,
        D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE = 2,
        D3DDDI_DRIVERESCAPETYPE_BUILDTESTCOMMANDBUFFER = 3 ours,
        D3DDDI_DRIVERESCAPETYPE_MAX = 4 ours,
    }

    /// The name is the SDK's own.
    struct D3DDDI_DRIVERESCAPE_TRANSLATEALLOCATIONEHANDLE(8) {
        0 EscapeType: D3DDDI_DRIVERESCAPETYPE,
        4 hAllocation: D3DKMT_HANDLE,
    }

    struct D3DDDI_DRIVERESCAPE_TRANSLATERESOURCEHANDLE(8) {
        0 EscapeType: D3DDDI_DRIVERESCAPETYPE,
        4 hResource: D3DKMT_HANDLE,
    }

    struct D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE(48) {
        0 EscapeType: D3DDDI_DRIVERESCAPETYPE,
        /// of D3DDDI_CPU_NOTIFICATION, with SignalByKmd
        4 hSyncObject: D3DKMT_HANDLE,
        /// filled in by the kernel; the caller's value is ignored
        8 hKmdCpuEvent: UINT64,
        /// between the two drivers
        16 Usage: [UINT; 8],
    }

    section features("features") {}

    enum DXGK_FEATURE_ID(UINT, ours "windows-sys has no features") {
        DXGK_FEATURE_HWSCH = 0,
        DXGK_FEATURE_HWFLIPQUEUE = 1,
        DXGK_FEATURE_LDA_GPUPV = 2,
        DXGK_FEATURE_KMD_SIGNAL_CPU_EVENT = 3,
        DXGK_FEATURE_USER_MODE_SUBMISSION = 4,
        DXGK_FEATURE_SHARE_BACKING_STORE = 5,
        DXGK_FEATURE_NATIVE_FENCE = 37,
    }

    enum D3DKMT_QUERYSTATISTICS_TYPE(UINT) {
        D3DKMT_QUERYSTATISTICS_ADAPTER = 0,
        D3DKMT_QUERYSTATISTICS_PROCESS = 1,
        D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER = 2,
        D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT = 4,
        D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP = 9,
    }

    /// Each struct has the members up to the last one that is counted.
    struct D3DKMT_QUERYSTATISTICS_ADAPTER_INFORMATION(776) {
        0 NbSegments: ULONG,
        4 NodeCount: ULONG,
        8 VidPnSourceCount: ULONG,
        12 VSyncEnabled: ULONG,
        16 TdrDetectedCount: ULONG,
        24 ZeroLengthDmaBuffers: i64 => "int64_t ZeroLengthDmaBuffers;",
        32 RestartedPeriod: ULONGLONG,
        40 rest: [BYTE; 736] = ReferenceDmaBuffer => "BYTE Rest[736];",
    }

    struct D3DKMT_QUERYSTATISTICS_PROCESS_INFORMATION(144) {
        0 NodeCount: ULONG,
        4 VidPnSourceCount: ULONG,
        8 bytes_allocated: ULONGLONG = SystemMemory.BytesAllocated
            => "struct { ULONGLONG BytesAllocated; ULONGLONG BytesReserved; BYTE Rest[64]; } SystemMemory;",
        16 bytes_reserved: ULONGLONG = SystemMemory.BytesReserved => "",
        24 system_rest: [BYTE; 64] = SystemMemory.SmallAllocationBlocks => "",
        88 Reserved: [UINT64; 7],
    }

    struct D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER_INFORMATION(272) {
        0 NbSegments: ULONG,
        4 NodeCount: ULONG,
        8 VidPnSourceCount: ULONG,
        12 VirtualMemoryUsage: ULONG,
        16 rest: [UINT64; 32] = DmaBuffer => "UINT64 Rest[32];",
    }

    struct D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_INFORMATION(216) {
        0 BytesCommitted: ULONGLONG,
        8 MaximumWorkingSet: ULONGLONG,
        16 MinimumWorkingSet: ULONGLONG,
        24 rest: [UINT64; 24] = NbReferencedAllocationEvictedInPeriod => "UINT64 Rest[24];",
    }

    struct D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP_INFORMATION(64) {
        0 Budget: UINT64,
        8 Requested: UINT64,
        16 Usage: UINT64,
        24 Demoted: [UINT64; 5],
    }

    struct D3DKMT_QUERYSTATISTICS(808) {
        0 Type: D3DKMT_QUERYSTATISTICS_TYPE,
        4 AdapterLuid: LUID,
        16 hProcess: HANDLE,
        24 result: [BYTE; 776] = QueryResult
            => "union { D3DKMT_QUERYSTATISTICS_ADAPTER_INFORMATION AdapterInformation;
                D3DKMT_QUERYSTATISTICS_PROCESS_INFORMATION ProcessInformation;
                D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER_INFORMATION ProcessAdapterInformation;
                D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_INFORMATION ProcessSegmentInformation;
                D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP_INFORMATION ProcessSegmentGroupInformation; } QueryResult;",
        800 query: UINT = Anonymous
            => "union { struct { ULONG SegmentId; } QuerySegment; struct { ULONG SegmentId; } QueryProcessSegment;
                UINT QueryProcessSegmentGroup; };",
    }

    packed_struct DXGK_GPUCLOCKDATA(28) {
        0 GpuFrequency: UINT64,
        8 GpuClockCounter: UINT64,
        16 CpuClockCounter: UINT64,
        24 Flags: UINT,
    }

    packed_struct D3DKMT_QUERYCLOCKCALIBRATION(40) {
        0 hAdapter: D3DKMT_HANDLE,
        4 NodeOrdinal: UINT,
        8 PhysicalAdapterIndex: UINT,
        12 gpu_frequency: UINT64 = ClockData.GpuFrequency => "DXGK_GPUCLOCKDATA ClockData;",
        20 gpu_clock_counter: UINT64 = ClockData.GpuClockCounter => "",
        28 cpu_clock_counter: UINT64 = ClockData.CpuClockCounter => "",
        36 flags: UINT = ClockData.Flags => "",
    }

    struct DXGK_ISFEATUREENABLED_RESULT(4, ours "windows-sys has no features") {
        0 Version: USHORT,
        2 value: USHORT
            => "union { struct { USHORT Enabled : 1; USHORT KnownFeature : 1; USHORT SupportedByDriver :
                1; USHORT SupportedOnCurrentConfig : 1; USHORT Reserved : 12; }; USHORT Value; };",
    }

    struct D3DKMT_ISFEATUREENABLED(12, ours "windows-sys has no features") {
        0 hAdapter: D3DKMT_HANDLE,
        4 FeatureId: DXGK_FEATURE_ID,
        8 Result: DXGK_ISFEATUREENABLED_RESULT,
    }
}

plain_calls! {
    $ plain_calls_of_adapters

    Nothing fn D3DKMTIsFeatureEnabled(inout D3DKMT_ISFEATUREENABLED)
        = IsFeatureEnabled { adapter: hAdapter, feature_id: FeatureId } -> Feature { 0: Result };
    /// hProcess is NULL, (HANDLE)-1 or a pidfd of the calling process.
    Session fn D3DKMTQueryStatistics(inout D3DKMT_QUERYSTATISTICS of hProcess)
        = QueryStatistics { luid: AdapterLuid, kind: Type, query: query } -> Statistics { 0: result };
    Nothing fn D3DKMTQueryClockCalibration(inout D3DKMT_QUERYCLOCKCALIBRATION)
        = QueryClockCalibration {
            adapter: hAdapter, node_ordinal: NodeOrdinal, physical_adapter: PhysicalAdapterIndex,
        } -> ClockCalibration {
            gpu_frequency: gpu_frequency, gpu_clock_counter: gpu_clock_counter, cpu_clock_counter: cpu_clock_counter,
        };
}
