/* The D3DKMT calls that gpupv's libdxcore.so exports: types, constants and prototypes.
 *
 * Generated from guest/abi/src: change that, then run
 * GPUPV_BLESS=1 cargo test -p abi --test header
 *
 * Written from the interface facts (sizes, offsets, numbers); no text of another header is in here.
 * C11 and C++11, x86-64 Linux. Link with -ldxcore. WCHAR is 4 bytes here, as with libdxg.
 * An event HANDLE is an eventfd number; an NT handle is a file descriptor.
 */
#ifndef GPUPV_D3DKMTHK_H
#define GPUPV_D3DKMTHK_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#ifdef __cplusplus
extern "C" {
#define GPUPV_ASSERT(condition) static_assert(condition, #condition)
#else
#define GPUPV_ASSERT(condition) _Static_assert(condition, #condition)
#endif
#define GPUPV_SIZE(type, size) GPUPV_ASSERT(sizeof(type) == (size))

/* ---- words ---- */

typedef int32_t NTSTATUS;
typedef int32_t BOOL;
typedef uint32_t UINT;
typedef int32_t INT;
typedef uint32_t ULONG;
typedef uint32_t DWORD;
typedef uint64_t UINT64;
typedef uint64_t ULONGLONG;
typedef void *HANDLE;
typedef wchar_t WCHAR;
typedef UINT D3DKMT_HANDLE;
typedef UINT64 D3DGPU_VIRTUAL_ADDRESS;
typedef uint16_t USHORT;
typedef uint8_t BYTE;
typedef size_t SIZE_T;

typedef union _LARGE_INTEGER {
    struct {
        DWORD LowPart;
        INT HighPart;
    };
    int64_t QuadPart;
} LARGE_INTEGER;

typedef struct _LUID {
    DWORD LowPart;
    INT HighPart;
} LUID;
GPUPV_SIZE(LUID, 8);

#define D3DDDI_MAX_OBJECT_WAITED_ON 32
#define D3DDDI_MAX_OBJECT_SIGNALED 32
#define D3DDDI_MAX_BROADCAST_CONTEXT 64
#define D3DDDI_MAX_WRITTEN_PRIMARIES 16

#define D3DKMT_MAX_OBJECTS_PER_HANDLE 3
#define D3DDDI_SYNC_OBJECT_WAIT 0x1
#define D3DDDI_SYNC_OBJECT_SIGNAL 0x2
#define D3DDDI_SYNC_OBJECT_ALL_ACCESS 0x1F0003

/* ---- adapters ---- */

typedef struct _D3DKMT_ADAPTERINFO {
    D3DKMT_HANDLE hAdapter;
    LUID AdapterLuid;
    ULONG NumOfSources;
    BOOL bPrecisePresentRegionsPreferred;
} D3DKMT_ADAPTERINFO;
GPUPV_SIZE(D3DKMT_ADAPTERINFO, 20);

typedef struct _D3DKMT_ENUMADAPTERS2 {
    ULONG NumAdapters;
    D3DKMT_ADAPTERINFO *pAdapters;
} D3DKMT_ENUMADAPTERS2;
GPUPV_SIZE(D3DKMT_ENUMADAPTERS2, 16);

typedef union _D3DKMT_ENUMADAPTERS_FILTER {
    struct {
        ULONGLONG IncludeComputeOnly : 1;
        ULONGLONG IncludeDisplayOnly : 1;
        ULONGLONG Reserved : 62;
    };
    ULONGLONG Value;
} D3DKMT_ENUMADAPTERS_FILTER;

typedef struct _D3DKMT_ENUMADAPTERS3 {
    D3DKMT_ENUMADAPTERS_FILTER Filter;
    ULONG NumAdapters;
    D3DKMT_ADAPTERINFO *pAdapters;
} D3DKMT_ENUMADAPTERS3;
GPUPV_SIZE(D3DKMT_ENUMADAPTERS3, 24);

typedef struct _D3DKMT_OPENADAPTERFROMLUID {
    LUID AdapterLuid;
    D3DKMT_HANDLE hAdapter;
} D3DKMT_OPENADAPTERFROMLUID;
GPUPV_SIZE(D3DKMT_OPENADAPTERFROMLUID, 12);

/* These three always fail: no adapter here has a display, a device interface or a device context. */
typedef struct _D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME {
    WCHAR DeviceName[32];
    D3DKMT_HANDLE hAdapter;
    LUID AdapterLuid;
    UINT VidPnSourceId;
} D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME;
GPUPV_SIZE(D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME, 144);

typedef struct _D3DKMT_OPENADAPTERFROMDEVICENAME {
    const WCHAR *pDeviceName;
    D3DKMT_HANDLE hAdapter;
    LUID AdapterLuid;
} D3DKMT_OPENADAPTERFROMDEVICENAME;
GPUPV_SIZE(D3DKMT_OPENADAPTERFROMDEVICENAME, 24);

typedef HANDLE HDC;

typedef struct _D3DKMT_OPENADAPTERFROMHDC {
    HDC hDc;
    D3DKMT_HANDLE hAdapter;
    LUID AdapterLuid;
    UINT VidPnSourceId;
} D3DKMT_OPENADAPTERFROMHDC;
GPUPV_SIZE(D3DKMT_OPENADAPTERFROMHDC, 24);

typedef struct _D3DKMT_CLOSEADAPTER {
    D3DKMT_HANDLE hAdapter;
} D3DKMT_CLOSEADAPTER;
GPUPV_SIZE(D3DKMT_CLOSEADAPTER, 4);

typedef enum _KMTQUERYADAPTERINFOTYPE {
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
    KMTQAITYPE_WDDM_2_7_CAPS = 70
} KMTQUERYADAPTERINFOTYPE;

typedef struct _D3DKMT_DRIVER_DESCRIPTION {
    WCHAR DriverDescription[4096];
} D3DKMT_DRIVER_DESCRIPTION;
GPUPV_SIZE(D3DKMT_DRIVER_DESCRIPTION, 16384);

typedef struct _D3DDDI_QUERYREGISTRY_INFO {
    UINT QueryType;
    UINT QueryFlags;
    WCHAR ValueName[260];
    UINT ValueType;
    UINT PhysicalAdapterIndex;
    UINT OutputValueSize;
    UINT Status;
    union {
        UINT OutputDword;
        UINT64 OutputQword;
        WCHAR OutputString[1];
        BYTE OutputBinary[1];
    };
} D3DDDI_QUERYREGISTRY_INFO;
GPUPV_SIZE(D3DDDI_QUERYREGISTRY_INFO, 1072);

typedef struct _D3DKMT_QUERYADAPTERINFO {
    D3DKMT_HANDLE hAdapter;
    KMTQUERYADAPTERINFOTYPE Type;
    void *pPrivateDriverData;
    UINT PrivateDriverDataSize;
} D3DKMT_QUERYADAPTERINFO;
GPUPV_SIZE(D3DKMT_QUERYADAPTERINFO, 24);

typedef enum _D3DKMT_ESCAPETYPE {
    D3DKMT_ESCAPE_DRIVERPRIVATE = 0,
    D3DKMT_ESCAPE_VIDMM = 1,
    D3DKMT_ESCAPE_TDRDBGCTRL = 2,
    D3DKMT_ESCAPE_VIDSCH = 3,
    D3DKMT_ESCAPE_DEVICE = 4
} D3DKMT_ESCAPETYPE;

/* The data of D3DKMT_ESCAPE_TDRDBGCTRL: one of these. */
typedef enum _D3DKMT_TDRDBGCTRLTYPE {
    D3DKMT_TDRDBGCTRLTYPE_FORCETDR = 0,
    D3DKMT_TDRDBGCTRLTYPE_DISABLEBREAK = 1,
    D3DKMT_TDRDBGCTRLTYPE_ENABLEBREAK = 2,
    D3DKMT_TDRDBGCTRLTYPE_UNCONDITIONAL = 3,
    D3DKMT_TDRDBGCTRLTYPE_VSYNCTDR = 4,
    D3DKMT_TDRDBGCTRLTYPE_GPUTDR = 5,
    D3DKMT_TDRDBGCTRLTYPE_FORCEDODTDR = 6,
    D3DKMT_TDRDBGCTRLTYPE_FORCEDODVSYNCTDR = 7,
    D3DKMT_TDRDBGCTRLTYPE_ENGINETDR = 8
} D3DKMT_TDRDBGCTRLTYPE;

typedef struct _D3DDDI_ESCAPEFLAGS {
    union {
        struct {
            UINT HardwareAccess : 1;
            UINT DeviceStatusQuery : 1;
            UINT ChangeFrameLatency : 1;
            UINT NoAdapterSynchronization : 1;
            UINT Reserved : 1;
            UINT VirtualMachineData : 1;
            UINT DriverKnownEscape : 1;
            UINT DriverCommonEscape : 1;
            UINT Reserved2 : 24;
        };
        UINT Value;
    };
} D3DDDI_ESCAPEFLAGS;

typedef struct _D3DKMT_ESCAPE {
    D3DKMT_HANDLE hAdapter;
    D3DKMT_HANDLE hDevice;
    D3DKMT_ESCAPETYPE Type;
    D3DDDI_ESCAPEFLAGS Flags;
    void *pPrivateDriverData;
    UINT PrivateDriverDataSize;
    D3DKMT_HANDLE hContext;
} D3DKMT_ESCAPE;
GPUPV_SIZE(D3DKMT_ESCAPE, 32);

/* The first word of DriverKnownEscape data. */
typedef enum _D3DDDI_DRIVERESCAPETYPE {
    D3DDDI_DRIVERESCAPETYPE_TRANSLATEALLOCATIONHANDLE = 0,
    D3DDDI_DRIVERESCAPETYPE_TRANSLATERESOURCEHANDLE = 1,
    D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE = 2,
    D3DDDI_DRIVERESCAPETYPE_BUILDTESTCOMMANDBUFFER = 3,
    D3DDDI_DRIVERESCAPETYPE_MAX = 4
} D3DDDI_DRIVERESCAPETYPE;

/* The name is the SDK's own. */
typedef struct _D3DDDI_DRIVERESCAPE_TRANSLATEALLOCATIONEHANDLE {
    D3DDDI_DRIVERESCAPETYPE EscapeType;
    D3DKMT_HANDLE hAllocation;
} D3DDDI_DRIVERESCAPE_TRANSLATEALLOCATIONEHANDLE;
GPUPV_SIZE(D3DDDI_DRIVERESCAPE_TRANSLATEALLOCATIONEHANDLE, 8);

typedef struct _D3DDDI_DRIVERESCAPE_TRANSLATERESOURCEHANDLE {
    D3DDDI_DRIVERESCAPETYPE EscapeType;
    D3DKMT_HANDLE hResource;
} D3DDDI_DRIVERESCAPE_TRANSLATERESOURCEHANDLE;
GPUPV_SIZE(D3DDDI_DRIVERESCAPE_TRANSLATERESOURCEHANDLE, 8);

typedef struct _D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE {
    D3DDDI_DRIVERESCAPETYPE EscapeType;
    /* of D3DDDI_CPU_NOTIFICATION, with SignalByKmd */
    D3DKMT_HANDLE hSyncObject;
    /* filled in by the kernel; the caller's value is ignored */
    UINT64 hKmdCpuEvent;
    /* between the two drivers */
    UINT Usage[8];
} D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE;
GPUPV_SIZE(D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE, 48);

/* ---- features ---- */

typedef enum _DXGK_FEATURE_ID {
    DXGK_FEATURE_HWSCH = 0,
    DXGK_FEATURE_HWFLIPQUEUE = 1,
    DXGK_FEATURE_LDA_GPUPV = 2,
    DXGK_FEATURE_KMD_SIGNAL_CPU_EVENT = 3,
    DXGK_FEATURE_USER_MODE_SUBMISSION = 4,
    DXGK_FEATURE_SHARE_BACKING_STORE = 5,
    DXGK_FEATURE_NATIVE_FENCE = 37
} DXGK_FEATURE_ID;

typedef enum _D3DKMT_QUERYSTATISTICS_TYPE {
    D3DKMT_QUERYSTATISTICS_ADAPTER = 0,
    D3DKMT_QUERYSTATISTICS_PROCESS = 1,
    D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER = 2,
    D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT = 4,
    D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP = 9
} D3DKMT_QUERYSTATISTICS_TYPE;

/* Each struct has the members up to the last one that is counted. */
typedef struct _D3DKMT_QUERYSTATISTICS_ADAPTER_INFORMATION {
    ULONG NbSegments;
    ULONG NodeCount;
    ULONG VidPnSourceCount;
    ULONG VSyncEnabled;
    ULONG TdrDetectedCount;
    int64_t ZeroLengthDmaBuffers;
    ULONGLONG RestartedPeriod;
    BYTE Rest[736];
} D3DKMT_QUERYSTATISTICS_ADAPTER_INFORMATION;
GPUPV_SIZE(D3DKMT_QUERYSTATISTICS_ADAPTER_INFORMATION, 776);

typedef struct _D3DKMT_QUERYSTATISTICS_PROCESS_INFORMATION {
    ULONG NodeCount;
    ULONG VidPnSourceCount;
    struct {
        ULONGLONG BytesAllocated;
        ULONGLONG BytesReserved;
        BYTE Rest[64];
    } SystemMemory;
    UINT64 Reserved[7];
} D3DKMT_QUERYSTATISTICS_PROCESS_INFORMATION;
GPUPV_SIZE(D3DKMT_QUERYSTATISTICS_PROCESS_INFORMATION, 144);

typedef struct _D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER_INFORMATION {
    ULONG NbSegments;
    ULONG NodeCount;
    ULONG VidPnSourceCount;
    ULONG VirtualMemoryUsage;
    UINT64 Rest[32];
} D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER_INFORMATION;
GPUPV_SIZE(D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER_INFORMATION, 272);

typedef struct _D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_INFORMATION {
    ULONGLONG BytesCommitted;
    ULONGLONG MaximumWorkingSet;
    ULONGLONG MinimumWorkingSet;
    UINT64 Rest[24];
} D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_INFORMATION;
GPUPV_SIZE(D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_INFORMATION, 216);

typedef struct _D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP_INFORMATION {
    UINT64 Budget;
    UINT64 Requested;
    UINT64 Usage;
    UINT64 Demoted[5];
} D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP_INFORMATION;
GPUPV_SIZE(D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP_INFORMATION, 64);

typedef struct _D3DKMT_QUERYSTATISTICS {
    D3DKMT_QUERYSTATISTICS_TYPE Type;
    LUID AdapterLuid;
    HANDLE hProcess;
    union {
        D3DKMT_QUERYSTATISTICS_ADAPTER_INFORMATION AdapterInformation;
        D3DKMT_QUERYSTATISTICS_PROCESS_INFORMATION ProcessInformation;
        D3DKMT_QUERYSTATISTICS_PROCESS_ADAPTER_INFORMATION ProcessAdapterInformation;
        D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_INFORMATION ProcessSegmentInformation;
        D3DKMT_QUERYSTATISTICS_PROCESS_SEGMENT_GROUP_INFORMATION ProcessSegmentGroupInformation;
    } QueryResult;
    union {
        struct {
            ULONG SegmentId;
        } QuerySegment;
        struct {
            ULONG SegmentId;
        } QueryProcessSegment;
        UINT QueryProcessSegmentGroup;
    };
} D3DKMT_QUERYSTATISTICS;
GPUPV_SIZE(D3DKMT_QUERYSTATISTICS, 808);

#pragma pack(push, 1)

typedef struct _DXGK_GPUCLOCKDATA {
    UINT64 GpuFrequency;
    UINT64 GpuClockCounter;
    UINT64 CpuClockCounter;
    UINT Flags;
} DXGK_GPUCLOCKDATA;
GPUPV_SIZE(DXGK_GPUCLOCKDATA, 28);
#pragma pack(pop)

#pragma pack(push, 1)

typedef struct _D3DKMT_QUERYCLOCKCALIBRATION {
    D3DKMT_HANDLE hAdapter;
    UINT NodeOrdinal;
    UINT PhysicalAdapterIndex;
    DXGK_GPUCLOCKDATA ClockData;
} D3DKMT_QUERYCLOCKCALIBRATION;
GPUPV_SIZE(D3DKMT_QUERYCLOCKCALIBRATION, 40);
#pragma pack(pop)

typedef struct _DXGK_ISFEATUREENABLED_RESULT {
    USHORT Version;
    union {
        struct {
            USHORT Enabled : 1;
            USHORT KnownFeature : 1;
            USHORT SupportedByDriver : 1;
            USHORT SupportedOnCurrentConfig : 1;
            USHORT Reserved : 12;
        };
        USHORT Value;
    };
} DXGK_ISFEATUREENABLED_RESULT;
GPUPV_SIZE(DXGK_ISFEATUREENABLED_RESULT, 4);

typedef struct _D3DKMT_ISFEATUREENABLED {
    D3DKMT_HANDLE hAdapter;
    DXGK_FEATURE_ID FeatureId;
    DXGK_ISFEATUREENABLED_RESULT Result;
} D3DKMT_ISFEATUREENABLED;
GPUPV_SIZE(D3DKMT_ISFEATUREENABLED, 12);

/* ---- devices and contexts ---- */

typedef struct _D3DKMT_CREATEDEVICEFLAGS {
    UINT LegacyMode : 1;
    UINT RequestVSync : 1;
    UINT DisableGpuTimeout : 1;
    UINT Reserved : 29;
} D3DKMT_CREATEDEVICEFLAGS;

typedef struct _D3DKMT_CREATEDEVICE {
    union {
        D3DKMT_HANDLE hAdapter;
        void *pAdapter;
    };
    D3DKMT_CREATEDEVICEFLAGS Flags;
    D3DKMT_HANDLE hDevice;
    void *pCommandBuffer;
    UINT CommandBufferSize;
    void *pAllocationList;
    UINT AllocationListSize;
    void *pPatchLocationList;
    UINT PatchLocationListSize;
} D3DKMT_CREATEDEVICE;
GPUPV_SIZE(D3DKMT_CREATEDEVICE, 64);

typedef struct _D3DKMT_DESTROYDEVICE {
    D3DKMT_HANDLE hDevice;
} D3DKMT_DESTROYDEVICE;
GPUPV_SIZE(D3DKMT_DESTROYDEVICE, 4);

typedef enum _D3DKMT_DEVICESTATE_TYPE {
    D3DKMT_DEVICESTATE_EXECUTION = 1,
    D3DKMT_DEVICESTATE_PRESENT = 2,
    D3DKMT_DEVICESTATE_RESET = 3,
    D3DKMT_DEVICESTATE_PAGE_FAULT = 5
} D3DKMT_DEVICESTATE_TYPE;

typedef enum _D3DKMT_DEVICEEXECUTION_STATE {
    D3DKMT_DEVICEEXECUTION_ACTIVE = 1,
    D3DKMT_DEVICEEXECUTION_RESET = 2,
    D3DKMT_DEVICEEXECUTION_HUNG = 3,
    D3DKMT_DEVICEEXECUTION_STOPPED = 4,
    D3DKMT_DEVICEEXECUTION_ERROR_OUTOFMEMORY = 5,
    D3DKMT_DEVICEEXECUTION_ERROR_DMAFAULT = 6,
    D3DKMT_DEVICEEXECUTION_ERROR_DMAPAGEFAULT = 7
} D3DKMT_DEVICEEXECUTION_STATE;

typedef struct _D3DKMT_DEVICERESET_STATE {
    union {
        struct {
            UINT DesktopSwitched : 1;
            UINT Reserved : 31;
        };
        UINT Value;
    };
} D3DKMT_DEVICERESET_STATE;

typedef enum _DXGK_PAGE_FAULT_FLAGS {
    DXGK_PAGE_FAULT_WRITE = 0x1,
    DXGK_PAGE_FAULT_FENCE_INVALID = 0x2,
    DXGK_PAGE_FAULT_ADAPTER_RESET_REQUIRED = 0x4,
    DXGK_PAGE_FAULT_ENGINE_RESET_REQUIRED = 0x8,
    DXGK_PAGE_FAULT_FATAL_HARDWARE_ERROR = 0x10,
    DXGK_PAGE_FAULT_IOMMU = 0x20,
    DXGK_PAGE_FAULT_HW_CONTEXT_VALID = 0x40,
    DXGK_PAGE_FAULT_PROCESS_HANDLE_VALID = 0x80
} DXGK_PAGE_FAULT_FLAGS;

/* No display: all 0. */
typedef struct _D3DKMT_PRESENT_STATS {
    UINT PresentCount;
    UINT PresentRefreshCount;
    UINT SyncRefreshCount;
    LARGE_INTEGER SyncQPCTime;
    LARGE_INTEGER SyncGPUTime;
} D3DKMT_PRESENT_STATS;
GPUPV_SIZE(D3DKMT_PRESENT_STATS, 32);

typedef struct _D3DKMT_DEVICEPRESENT_STATE {
    UINT VidPnSourceId;
    D3DKMT_PRESENT_STATS PresentStats;
} D3DKMT_DEVICEPRESENT_STATE;
GPUPV_SIZE(D3DKMT_DEVICEPRESENT_STATE, 40);

/* Flags and address are known here. The sequence number and the table entry are the UNKNOWN of d3dkmdt.h, all ones;
 * the other fields are 0. */
typedef struct _D3DKMT_DEVICEPAGEFAULT_STATE {
    UINT64 FaultedPrimitiveAPISequenceNumber;
    UINT FaultedPipelineStage;
    UINT FaultedBindTableEntry;
    DXGK_PAGE_FAULT_FLAGS PageFaultFlags;
    UINT FaultErrorCode;
    D3DGPU_VIRTUAL_ADDRESS FaultedVirtualAddress;
} D3DKMT_DEVICEPAGEFAULT_STATE;
GPUPV_SIZE(D3DKMT_DEVICEPAGEFAULT_STATE, 32);

typedef enum _D3DKMT_DEVICE_ERROR_REASON {
    D3DKMT_DEVICE_ERROR_REASON_GENERIC = (int)0x80000000,
    D3DKMT_DEVICE_ERROR_REASON_DRIVER_ERROR = (int)0x80000006
} D3DKMT_DEVICE_ERROR_REASON;

typedef struct _D3DKMT_MARKDEVICEASERROR {
    D3DKMT_HANDLE hDevice;
    D3DKMT_DEVICE_ERROR_REASON Reason;
} D3DKMT_MARKDEVICEASERROR;
GPUPV_SIZE(D3DKMT_MARKDEVICEASERROR, 8);

typedef struct _D3DKMT_GETDEVICESTATE {
    D3DKMT_HANDLE hDevice;
    D3DKMT_DEVICESTATE_TYPE StateType;
    union {
        D3DKMT_DEVICEEXECUTION_STATE ExecutionState;
        D3DKMT_DEVICEPRESENT_STATE PresentState;
        D3DKMT_DEVICERESET_STATE ResetState;
        D3DKMT_DEVICEPAGEFAULT_STATE PageFaultState;
        UINT64 Reserved[6];
    };
} D3DKMT_GETDEVICESTATE;
GPUPV_SIZE(D3DKMT_GETDEVICESTATE, 56);

typedef union _D3DDDI_CREATECONTEXTFLAGS {
    struct {
        UINT NullRendering : 1;
        UINT InitialData : 1;
        UINT DisableGpuTimeout : 1;
        UINT SynchronizationOnly : 1;
        UINT HwQueueSupported : 1;
        UINT NoKmdAccess : 1;
        UINT Reserved : 26;
    };
    UINT Value;
} D3DDDI_CREATECONTEXTFLAGS;

typedef UINT D3DKMT_CLIENTHINT;

typedef struct _D3DKMT_CREATECONTEXTVIRTUAL {
    D3DKMT_HANDLE hDevice;
    UINT NodeOrdinal;
    UINT EngineAffinity;
    D3DDDI_CREATECONTEXTFLAGS Flags;
    void *pPrivateDriverData;
    UINT PrivateDriverDataSize;
    D3DKMT_CLIENTHINT ClientHint;
    D3DKMT_HANDLE hContext;
} D3DKMT_CREATECONTEXTVIRTUAL;
GPUPV_SIZE(D3DKMT_CREATECONTEXTVIRTUAL, 40);

typedef struct _D3DKMT_DESTROYCONTEXT {
    D3DKMT_HANDLE hContext;
} D3DKMT_DESTROYCONTEXT;
GPUPV_SIZE(D3DKMT_DESTROYCONTEXT, 4);

typedef struct _D3DKMT_SETCONTEXTSCHEDULINGPRIORITY {
    D3DKMT_HANDLE hContext;
    INT Priority;
} D3DKMT_SETCONTEXTSCHEDULINGPRIORITY,
    D3DKMT_GETCONTEXTSCHEDULINGPRIORITY,
    D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY,
    D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY;
GPUPV_SIZE(D3DKMT_SETCONTEXTSCHEDULINGPRIORITY, 8);

typedef enum _D3DKMT_SCHEDULINGPRIORITYCLASS {
    D3DKMT_SCHEDULINGPRIORITYCLASS_IDLE = 0,
    D3DKMT_SCHEDULINGPRIORITYCLASS_BELOW_NORMAL = 1,
    D3DKMT_SCHEDULINGPRIORITYCLASS_NORMAL = 2,
    D3DKMT_SCHEDULINGPRIORITYCLASS_ABOVE_NORMAL = 3,
    D3DKMT_SCHEDULINGPRIORITYCLASS_HIGH = 4,
    D3DKMT_SCHEDULINGPRIORITYCLASS_REALTIME = 5
} D3DKMT_SCHEDULINGPRIORITYCLASS;

/* ---- synchronization objects ---- */

typedef enum _D3DDDI_SYNCHRONIZATIONOBJECT_TYPE {
    D3DDDI_SYNCHRONIZATION_MUTEX = 1,
    D3DDDI_SEMAPHORE = 2,
    D3DDDI_FENCE = 3,
    D3DDDI_CPU_NOTIFICATION = 4,
    D3DDDI_MONITORED_FENCE = 5,
    D3DDDI_PERIODIC_MONITORED_FENCE = 6,
    D3DDDI_NATIVE_FENCE = 7
} D3DDDI_SYNCHRONIZATIONOBJECT_TYPE;

typedef struct _D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS {
    union {
        struct {
            UINT Shared : 1;
            UINT NtSecuritySharing : 1;
            UINT CrossAdapter : 1;
            UINT TopOfPipeline : 1;
            UINT NoSignal : 1;
            UINT NoWait : 1;
            UINT NoSignalMaxValueOnTdr : 1;
            UINT NoGPUAccess : 1;
            UINT SignalByKmd : 1;
            UINT LocalMemoryPreferred : 1;
            UINT UnwaitCpuWaitersOnlyOnDestroy : 1;
            UINT Reserved : 20;
            UINT Reserved0 : 1;
        };
        UINT Value;
    };
} D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS;

typedef struct _D3DDDI_SYNCHRONIZATIONOBJECTINFO {
    D3DDDI_SYNCHRONIZATIONOBJECT_TYPE Type;
    union {
        struct {
            BOOL InitialState;
        } SynchronizationMutex;
        struct {
            UINT MaxCount;
            UINT InitialCount;
        } Semaphore;
        struct {
            UINT Reserved[16];
        } Reserved;
    };
} D3DDDI_SYNCHRONIZATIONOBJECTINFO;
GPUPV_SIZE(D3DDDI_SYNCHRONIZATIONOBJECTINFO, 68);

typedef struct _D3DDDI_SYNCHRONIZATIONOBJECTINFO2 {
    D3DDDI_SYNCHRONIZATIONOBJECT_TYPE Type;
    D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS Flags;
    /* Out: FenceValueCPUVirtualAddress, where the value is to be read. Read-only memory. */
    union {
        struct {
            BOOL InitialState;
        } SynchronizationMutex;
        struct {
            UINT MaxCount;
            UINT InitialCount;
        } Semaphore;
        struct {
            UINT64 FenceValue;
        } Fence;
        struct {
            HANDLE Event;
        } CPUNotification;
        struct {
            UINT64 InitialFenceValue;
            void *FenceValueCPUVirtualAddress;
            D3DGPU_VIRTUAL_ADDRESS FenceValueGPUVirtualAddress;
            UINT EngineAffinity;
            UINT Padding;
        } MonitoredFence;
        struct {
            D3DKMT_HANDLE hAdapter;
            UINT VidPnTargetId;
            UINT64 Time;
            void *FenceValueCPUVirtualAddress;
            D3DGPU_VIRTUAL_ADDRESS FenceValueGPUVirtualAddress;
            UINT EngineAffinity;
            UINT Padding;
        } PeriodicMonitoredFence;
        struct {
            UINT64 Reserved[8];
        } Reserved;
    };
    D3DKMT_HANDLE SharedHandle;
} D3DDDI_SYNCHRONIZATIONOBJECTINFO2;
GPUPV_SIZE(D3DDDI_SYNCHRONIZATIONOBJECTINFO2, 80);

typedef struct _D3DKMT_CREATESYNCHRONIZATIONOBJECT {
    D3DKMT_HANDLE hDevice;
    D3DDDI_SYNCHRONIZATIONOBJECTINFO Info;
    D3DKMT_HANDLE hSyncObject;
} D3DKMT_CREATESYNCHRONIZATIONOBJECT;
GPUPV_SIZE(D3DKMT_CREATESYNCHRONIZATIONOBJECT, 76);

typedef struct _D3DKMT_CREATESYNCHRONIZATIONOBJECT2 {
    D3DKMT_HANDLE hDevice;
    D3DDDI_SYNCHRONIZATIONOBJECTINFO2 Info;
    D3DKMT_HANDLE hSyncObject;
} D3DKMT_CREATESYNCHRONIZATIONOBJECT2;
GPUPV_SIZE(D3DKMT_CREATESYNCHRONIZATIONOBJECT2, 96);

typedef struct _D3DKMT_DESTROYSYNCHRONIZATIONOBJECT {
    D3DKMT_HANDLE hSyncObject;
} D3DKMT_DESTROYSYNCHRONIZATIONOBJECT;
GPUPV_SIZE(D3DKMT_DESTROYSYNCHRONIZATIONOBJECT, 4);

typedef struct _D3DKMT_OPENSYNCHRONIZATIONOBJECT {
    D3DKMT_HANDLE hSharedHandle;
    D3DKMT_HANDLE hSyncObject;
    UINT64 Reserved[8];
} D3DKMT_OPENSYNCHRONIZATIONOBJECT;
GPUPV_SIZE(D3DKMT_OPENSYNCHRONIZATIONOBJECT, 72);

/* UTF-16, as u"..." has it, though WCHAR has 4 bytes here. Lengths in bytes. */
typedef struct _UNICODE_STRING {
    USHORT Length;
    USHORT MaximumLength;
    const uint16_t *Buffer;
} UNICODE_STRING;
GPUPV_SIZE(UNICODE_STRING, 16);

/* Length is sizeof(OBJECT_ATTRIBUTES). Only the last part of ObjectName is used; there are no directory handles. */
typedef struct _OBJECT_ATTRIBUTES {
    ULONG Length;
    HANDLE RootDirectory;
    UNICODE_STRING *ObjectName;
    ULONG Attributes;
    void *SecurityDescriptor;
    void *SecurityQualityOfService;
} OBJECT_ATTRIBUTES;
GPUPV_SIZE(OBJECT_ATTRIBUTES, 48);

typedef struct _D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME {
    DWORD dwDesiredAccess;
    OBJECT_ATTRIBUTES *pObjAttrib;
    HANDLE hNtHandle;
} D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME,
    D3DKMT_OPENNTHANDLEFROMNAME;
GPUPV_SIZE(D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME, 24);

typedef struct _D3DKMT_OPENSYNCOBJECTFROMNTHANDLE {
    HANDLE hNtHandle;
    D3DKMT_HANDLE hSyncObject;
} D3DKMT_OPENSYNCOBJECTFROMNTHANDLE;
GPUPV_SIZE(D3DKMT_OPENSYNCOBJECTFROMNTHANDLE, 16);

typedef struct _D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 {
    HANDLE hNtHandle;
    D3DKMT_HANDLE hDevice;
    D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS Flags;
    D3DKMT_HANDLE hSyncObject;
    union {
        struct {
            void *FenceValueCPUVirtualAddress;
            D3DGPU_VIRTUAL_ADDRESS FenceValueGPUVirtualAddress;
            UINT EngineAffinity;
        } MonitoredFence;
        UINT64 Reserved[8];
    };
} D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2;
GPUPV_SIZE(D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2, 88);

/* ---- CPU signals and waits ---- */

typedef struct _D3DDDICB_SIGNALFLAGS {
    union {
        struct {
            UINT SignalAtSubmission : 1;
            UINT EnqueueCpuEvent : 1;
            UINT AllowFenceRewind : 1;
            UINT Reserved : 28;
            UINT DXGK_SIGNAL_FLAG_INTERNAL0 : 1;
        };
        UINT Value;
    };
} D3DDDICB_SIGNALFLAGS;

typedef struct _D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS {
    union {
        struct {
            UINT WaitAny : 1;
            UINT Reserved : 31;
        };
        UINT Value;
    };
} D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS;

typedef struct _D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU {
    D3DKMT_HANDLE hDevice;
    UINT ObjectCount;
    const D3DKMT_HANDLE *ObjectHandleArray;
    const UINT64 *FenceValueArray;
    D3DDDICB_SIGNALFLAGS Flags;
} D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU;
GPUPV_SIZE(D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU, 32);

typedef struct _D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU {
    D3DKMT_HANDLE hDevice;
    UINT ObjectCount;
    const D3DKMT_HANDLE *ObjectHandleArray;
    const UINT64 *FenceValueArray;
    /* NULL: the call blocks until the wait completes */
    HANDLE hAsyncEvent;
    D3DDDI_WAITFORSYNCHRONIZATIONOBJECTFROMCPU_FLAGS Flags;
} D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU;
GPUPV_SIZE(D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU, 40);

/* ---- GPU signals and waits, submission ---- */

typedef struct _D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU {
    D3DKMT_HANDLE hContext;
    UINT ObjectCount;
    const D3DKMT_HANDLE *ObjectHandleArray;
    union {
        const UINT64 *MonitoredFenceValueArray;
        UINT64 FenceValue;
        UINT64 Reserved[8];
    };
} D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU;
GPUPV_SIZE(D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, 80);

typedef struct _D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU {
    D3DKMT_HANDLE hContext;
    UINT ObjectCount;
    const D3DKMT_HANDLE *ObjectHandleArray;
    union {
        const UINT64 *MonitoredFenceValueArray;
        UINT64 Reserved[8];
    };
} D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU;
GPUPV_SIZE(D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, 80);

typedef struct _D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2 {
    UINT ObjectCount;
    const D3DKMT_HANDLE *ObjectHandleArray;
    D3DDDICB_SIGNALFLAGS Flags;
    ULONG BroadcastContextCount;
    const D3DKMT_HANDLE *BroadcastContextArray;
    union {
        UINT64 FenceValue;
        HANDLE CpuEventHandle;
        const UINT64 *MonitoredFenceValueArray;
        UINT64 Reserved[8];
    };
} D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2;
GPUPV_SIZE(D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2, 96);

typedef struct _D3DKMT_SUBMITCOMMANDFLAGS {
    UINT NullRendering : 1;
    UINT PresentRedirected : 1;
    UINT NoKmdAccess : 1;
    UINT Reserved : 29;
} D3DKMT_SUBMITCOMMANDFLAGS;

typedef struct _D3DKMT_SUBMITCOMMAND {
    D3DGPU_VIRTUAL_ADDRESS Commands;
    UINT CommandLength;
    D3DKMT_SUBMITCOMMANDFLAGS Flags;
    ULONGLONG PresentHistoryToken;
    UINT BroadcastContextCount;
    D3DKMT_HANDLE BroadcastContext[D3DDDI_MAX_BROADCAST_CONTEXT];
    void *pPrivateDriverData;
    UINT PrivateDriverDataSize;
    UINT NumPrimaries;
    D3DKMT_HANDLE WrittenPrimaries[D3DDDI_MAX_WRITTEN_PRIMARIES];
    UINT NumHistoryBuffers;
    D3DKMT_HANDLE *HistoryBufferArray;
} D3DKMT_SUBMITCOMMAND;
GPUPV_SIZE(D3DKMT_SUBMITCOMMAND, 384);

/* ---- the calls of WDDM 1 ---- */

typedef struct _D3DKMT_WAITFORSYNCHRONIZATIONOBJECT {
    D3DKMT_HANDLE hContext;
    UINT ObjectCount;
    D3DKMT_HANDLE ObjectHandleArray[D3DDDI_MAX_OBJECT_WAITED_ON];
} D3DKMT_WAITFORSYNCHRONIZATIONOBJECT;
GPUPV_SIZE(D3DKMT_WAITFORSYNCHRONIZATIONOBJECT, 136);

typedef struct _D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2 {
    D3DKMT_HANDLE hContext;
    UINT ObjectCount;
    D3DKMT_HANDLE ObjectHandleArray[D3DDDI_MAX_OBJECT_WAITED_ON];
    union {
        struct {
            UINT64 FenceValue;
        } Fence;
        UINT64 Reserved[8];
    };
} D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2;
GPUPV_SIZE(D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2, 200);

typedef struct _D3DKMT_SIGNALSYNCHRONIZATIONOBJECT {
    D3DKMT_HANDLE hContext;
    UINT ObjectCount;
    D3DKMT_HANDLE ObjectHandleArray[D3DDDI_MAX_OBJECT_SIGNALED];
    D3DDDICB_SIGNALFLAGS Flags;
} D3DKMT_SIGNALSYNCHRONIZATIONOBJECT;
GPUPV_SIZE(D3DKMT_SIGNALSYNCHRONIZATIONOBJECT, 140);

typedef struct _D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2 {
    D3DKMT_HANDLE hContext;
    UINT ObjectCount;
    D3DKMT_HANDLE ObjectHandleArray[D3DDDI_MAX_OBJECT_SIGNALED];
    D3DDDICB_SIGNALFLAGS Flags;
    ULONG BroadcastContextCount;
    D3DKMT_HANDLE BroadcastContext[D3DDDI_MAX_BROADCAST_CONTEXT];
    union {
        struct {
            UINT64 FenceValue;
        } Fence;
        HANDLE CpuEventHandle;
        UINT64 Reserved[8];
    };
} D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2;
GPUPV_SIZE(D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2, 464);

/* ---- keyed mutexes ---- */

typedef struct _D3DKMT_CREATEKEYEDMUTEX {
    UINT64 InitialValue;
    D3DKMT_HANDLE hSharedHandle;
    D3DKMT_HANDLE hKeyedMutex;
} D3DKMT_CREATEKEYEDMUTEX;
GPUPV_SIZE(D3DKMT_CREATEKEYEDMUTEX, 16);

typedef struct _D3DKMT_CREATEKEYEDMUTEX2_FLAGS {
    union {
        struct {
            UINT NtSecuritySharing : 1;
            UINT Reserved : 31;
        };
        UINT Value;
    };
} D3DKMT_CREATEKEYEDMUTEX2_FLAGS;

typedef struct _D3DKMT_CREATEKEYEDMUTEX2 {
    UINT64 InitialValue;
    D3DKMT_HANDLE hSharedHandle;
    D3DKMT_HANDLE hKeyedMutex;
    void *pPrivateRuntimeData;
    UINT PrivateRuntimeDataSize;
    D3DKMT_CREATEKEYEDMUTEX2_FLAGS Flags;
} D3DKMT_CREATEKEYEDMUTEX2;
GPUPV_SIZE(D3DKMT_CREATEKEYEDMUTEX2, 32);

typedef struct _D3DKMT_OPENKEYEDMUTEX {
    D3DKMT_HANDLE hSharedHandle;
    D3DKMT_HANDLE hKeyedMutex;
} D3DKMT_OPENKEYEDMUTEX;
GPUPV_SIZE(D3DKMT_OPENKEYEDMUTEX, 8);

typedef struct _D3DKMT_OPENKEYEDMUTEX2 {
    D3DKMT_HANDLE hSharedHandle;
    D3DKMT_HANDLE hKeyedMutex;
    void *pPrivateRuntimeData;
    UINT PrivateRuntimeDataSize;
} D3DKMT_OPENKEYEDMUTEX2;
GPUPV_SIZE(D3DKMT_OPENKEYEDMUTEX2, 24);

typedef struct _D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE {
    HANDLE hNtHandle;
    D3DKMT_HANDLE hKeyedMutex;
    void *pPrivateRuntimeData;
    UINT PrivateRuntimeDataSize;
} D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE;
GPUPV_SIZE(D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE, 32);

typedef struct _D3DKMT_DESTROYKEYEDMUTEX {
    D3DKMT_HANDLE hKeyedMutex;
} D3DKMT_DESTROYKEYEDMUTEX;
GPUPV_SIZE(D3DKMT_DESTROYKEYEDMUTEX, 4);

/* Timeouts in units of 100 ns: negative = from now, positive = since 1601, 0 = poll; NULL = for ever. */
typedef struct _D3DKMT_ACQUIREKEYEDMUTEX {
    D3DKMT_HANDLE hKeyedMutex;
    UINT64 Key;
    LARGE_INTEGER *pTimeout;
    UINT64 FenceValue;
} D3DKMT_ACQUIREKEYEDMUTEX;
GPUPV_SIZE(D3DKMT_ACQUIREKEYEDMUTEX, 32);

typedef struct _D3DKMT_ACQUIREKEYEDMUTEX2 {
    D3DKMT_HANDLE hKeyedMutex;
    UINT64 Key;
    LARGE_INTEGER *pTimeout;
    UINT64 FenceValue;
    void *pPrivateRuntimeData;
    UINT PrivateRuntimeDataSize;
} D3DKMT_ACQUIREKEYEDMUTEX2;
GPUPV_SIZE(D3DKMT_ACQUIREKEYEDMUTEX2, 48);

typedef struct _D3DKMT_RELEASEKEYEDMUTEX {
    D3DKMT_HANDLE hKeyedMutex;
    UINT64 Key;
    UINT64 FenceValue;
} D3DKMT_RELEASEKEYEDMUTEX;
GPUPV_SIZE(D3DKMT_RELEASEKEYEDMUTEX, 24);

typedef struct _D3DKMT_RELEASEKEYEDMUTEX2 {
    D3DKMT_HANDLE hKeyedMutex;
    UINT64 Key;
    UINT64 FenceValue;
    void *pPrivateRuntimeData;
    UINT PrivateRuntimeDataSize;
} D3DKMT_RELEASEKEYEDMUTEX2;
GPUPV_SIZE(D3DKMT_RELEASEKEYEDMUTEX2, 40);

/* ---- allocations and resources ---- */

typedef struct _D3DKMT_CREATEALLOCATIONFLAGS {
    union {
        struct {
            UINT CreateResource : 1;
            UINT CreateShared : 1;
            UINT NonSecure : 1;
            UINT CreateProtected : 1;
            UINT RestrictSharedAccess : 1;
            UINT ExistingSysMem : 1;
            UINT NtSecuritySharing : 1;
            UINT ReadOnly : 1;
            UINT CreateWriteCombined : 1;
            UINT CreateCached : 1;
            UINT SwapChainBackBuffer : 1;
            UINT CrossAdapter : 1;
            UINT OpenCrossAdapter : 1;
            UINT PartialSharedCreation : 1;
            UINT Zeroed : 1;
            UINT WriteWatch : 1;
            UINT StandardAllocation : 1;
            UINT ExistingSection : 1;
            UINT AllowNotZeroed : 1;
            UINT PhysicallyContiguous : 1;
            UINT NoKmdAccess : 1;
            UINT SharedDisplayable : 1;
            UINT Reserved : 10;
        };
        UINT Value;
    };
} D3DKMT_CREATEALLOCATIONFLAGS;

typedef enum _D3DKMT_STANDARDALLOCATIONTYPE {
    D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP = 1
} D3DKMT_STANDARDALLOCATIONTYPE;

typedef struct _D3DKMT_STANDARDALLOCATION_EXISTINGHEAP {
    SIZE_T Size;
} D3DKMT_STANDARDALLOCATION_EXISTINGHEAP;
GPUPV_SIZE(D3DKMT_STANDARDALLOCATION_EXISTINGHEAP, 8);

typedef struct _D3DKMT_CREATESTANDARDALLOCATIONFLAGS {
    union {
        struct {
            UINT Reserved : 32;
        };
        UINT Value;
    };
} D3DKMT_CREATESTANDARDALLOCATIONFLAGS;

typedef struct _D3DKMT_CREATESTANDARDALLOCATION {
    D3DKMT_STANDARDALLOCATIONTYPE Type;
    union {
        D3DKMT_STANDARDALLOCATION_EXISTINGHEAP ExistingHeapData;
    };
    D3DKMT_CREATESTANDARDALLOCATIONFLAGS Flags;
} D3DKMT_CREATESTANDARDALLOCATION;
GPUPV_SIZE(D3DKMT_CREATESTANDARDALLOCATION, 24);

typedef struct _D3DDDI_ALLOCATIONINFO {
    D3DKMT_HANDLE hAllocation;
    const void *pSystemMem;
    void *pPrivateDriverData;
    UINT PrivateDriverDataSize;
    UINT VidPnSourceId;
    union {
        struct {
            UINT Primary : 1;
            UINT Stereo : 1;
            UINT Reserved : 30;
        };
        UINT Value;
    } Flags;
} D3DDDI_ALLOCATIONINFO;
GPUPV_SIZE(D3DDDI_ALLOCATIONINFO, 40);

typedef struct _D3DDDI_ALLOCATIONINFO2 {
    D3DKMT_HANDLE hAllocation;
    union {
        HANDLE hSection;
        const void *pSystemMem;
    };
    void *pPrivateDriverData;
    UINT PrivateDriverDataSize;
    UINT VidPnSourceId;
    union {
        struct {
            UINT Primary : 1;
            UINT Stereo : 1;
            UINT OverridePriority : 1;
            UINT Reserved : 29;
        };
        UINT Value;
    } Flags;
    D3DGPU_VIRTUAL_ADDRESS GpuVirtualAddress;
    union {
        UINT Priority;
        SIZE_T Unused;
    };
    SIZE_T Reserved[5];
} D3DDDI_ALLOCATIONINFO2;
GPUPV_SIZE(D3DDDI_ALLOCATIONINFO2, 96);

typedef struct _D3DKMT_CREATEALLOCATION {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hResource;
    D3DKMT_HANDLE hGlobalShare;
    const void *pPrivateRuntimeData;
    UINT PrivateRuntimeDataSize;
    union {
        D3DKMT_CREATESTANDARDALLOCATION *pStandardAllocation;
        const void *pPrivateDriverData;
    };
    UINT PrivateDriverDataSize;
    UINT NumAllocations;
    union {
        D3DDDI_ALLOCATIONINFO *pAllocationInfo;
        D3DDDI_ALLOCATIONINFO2 *pAllocationInfo2;
    };
    D3DKMT_CREATEALLOCATIONFLAGS Flags;
    HANDLE hPrivateRuntimeResourceHandle;
} D3DKMT_CREATEALLOCATION;
GPUPV_SIZE(D3DKMT_CREATEALLOCATION, 72);

typedef struct _D3DKMT_DESTROYALLOCATION {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hResource;
    const D3DKMT_HANDLE *phAllocationList;
    UINT AllocationCount;
} D3DKMT_DESTROYALLOCATION;
GPUPV_SIZE(D3DKMT_DESTROYALLOCATION, 24);

typedef struct _D3DDDICB_DESTROYALLOCATION2FLAGS {
    union {
        struct {
            UINT AssumeNotInUse : 1;
            UINT SynchronousDestroy : 1;
            UINT Reserved : 30;
        };
        UINT Value;
    };
} D3DDDICB_DESTROYALLOCATION2FLAGS;

typedef struct _D3DKMT_DESTROYALLOCATION2 {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hResource;
    const D3DKMT_HANDLE *phAllocationList;
    UINT AllocationCount;
    D3DDDICB_DESTROYALLOCATION2FLAGS Flags;
} D3DKMT_DESTROYALLOCATION2;
GPUPV_SIZE(D3DKMT_DESTROYALLOCATION2, 24);

typedef struct _D3DKMT_QUERYRESOURCEINFO {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hGlobalShare;
    void *pPrivateRuntimeData;
    UINT PrivateRuntimeDataSize;
    UINT TotalPrivateDriverDataSize;
    UINT ResourcePrivateDriverDataSize;
    UINT NumAllocations;
} D3DKMT_QUERYRESOURCEINFO;
GPUPV_SIZE(D3DKMT_QUERYRESOURCEINFO, 32);

typedef struct _D3DDDI_OPENALLOCATIONINFO {
    D3DKMT_HANDLE hAllocation;
    const void *pPrivateDriverData;
    UINT PrivateDriverDataSize;
} D3DDDI_OPENALLOCATIONINFO;
GPUPV_SIZE(D3DDDI_OPENALLOCATIONINFO, 24);

typedef struct _D3DDDI_OPENALLOCATIONINFO2 {
    D3DKMT_HANDLE hAllocation;
    const void *pPrivateDriverData;
    UINT PrivateDriverDataSize;
    D3DGPU_VIRTUAL_ADDRESS GpuVirtualAddress;
    SIZE_T Reserved[6];
} D3DDDI_OPENALLOCATIONINFO2;
GPUPV_SIZE(D3DDDI_OPENALLOCATIONINFO2, 80);

typedef struct _D3DKMT_OPENRESOURCE {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hGlobalShare;
    UINT NumAllocations;
    union {
        D3DDDI_OPENALLOCATIONINFO *pOpenAllocationInfo;
        D3DDDI_OPENALLOCATIONINFO2 *pOpenAllocationInfo2;
    };
    void *pPrivateRuntimeData;
    UINT PrivateRuntimeDataSize;
    void *pResourcePrivateDriverData;
    UINT ResourcePrivateDriverDataSize;
    void *pTotalPrivateDriverDataBuffer;
    UINT TotalPrivateDriverDataBufferSize;
    D3DKMT_HANDLE hResource;
} D3DKMT_OPENRESOURCE;
GPUPV_SIZE(D3DKMT_OPENRESOURCE, 72);

typedef struct _D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE {
    D3DKMT_HANDLE hDevice;
    HANDLE hNtHandle;
    void *pPrivateRuntimeData;
    UINT PrivateRuntimeDataSize;
    UINT TotalPrivateDriverDataSize;
    UINT ResourcePrivateDriverDataSize;
    UINT NumAllocations;
} D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE;
GPUPV_SIZE(D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE, 40);

typedef struct _D3DKMT_GETSHAREDRESOURCEADAPTERLUID {
    D3DKMT_HANDLE hGlobalShare;
    HANDLE hNtHandle;
    LUID AdapterLuid;
} D3DKMT_GETSHAREDRESOURCEADAPTERLUID;
GPUPV_SIZE(D3DKMT_GETSHAREDRESOURCEADAPTERLUID, 24);

typedef struct _D3DKMT_OPENRESOURCEFROMNTHANDLE {
    D3DKMT_HANDLE hDevice;
    HANDLE hNtHandle;
    UINT NumAllocations;
    D3DDDI_OPENALLOCATIONINFO2 *pOpenAllocationInfo2;
    UINT PrivateRuntimeDataSize;
    void *pPrivateRuntimeData;
    UINT ResourcePrivateDriverDataSize;
    void *pResourcePrivateDriverData;
    UINT TotalPrivateDriverDataBufferSize;
    void *pTotalPrivateDriverDataBuffer;
    D3DKMT_HANDLE hResource;
    D3DKMT_HANDLE hKeyedMutex;
    void *pKeyedMutexPrivateRuntimeData;
    UINT KeyedMutexPrivateRuntimeDataSize;
    D3DKMT_HANDLE hSyncObject;
} D3DKMT_OPENRESOURCEFROMNTHANDLE;
GPUPV_SIZE(D3DKMT_OPENRESOURCEFROMNTHANDLE, 104);

/* ---- paging queues and GPU virtual addresses ---- */

typedef enum _D3DDDI_PAGINGQUEUE_PRIORITY {
    D3DDDI_PAGINGQUEUE_PRIORITY_BELOW_NORMAL = -1,
    D3DDDI_PAGINGQUEUE_PRIORITY_NORMAL = 0,
    D3DDDI_PAGINGQUEUE_PRIORITY_ABOVE_NORMAL = 1
} D3DDDI_PAGINGQUEUE_PRIORITY;

typedef struct _D3DKMT_CREATEPAGINGQUEUE {
    D3DKMT_HANDLE hDevice;
    D3DDDI_PAGINGQUEUE_PRIORITY Priority;
    D3DKMT_HANDLE hPagingQueue;
    D3DKMT_HANDLE hSyncObject;
    void *FenceValueCPUVirtualAddress;
    UINT PhysicalAdapterIndex;
} D3DKMT_CREATEPAGINGQUEUE;
GPUPV_SIZE(D3DKMT_CREATEPAGINGQUEUE, 32);

typedef struct _D3DDDI_DESTROYPAGINGQUEUE {
    D3DKMT_HANDLE hPagingQueue;
} D3DDDI_DESTROYPAGINGQUEUE;
GPUPV_SIZE(D3DDDI_DESTROYPAGINGQUEUE, 4);

typedef union _D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE {
    struct {
        UINT64 Write : 1;
        UINT64 Execute : 1;
        UINT64 Zero : 1;
        UINT64 NoAccess : 1;
        UINT64 SystemUseOnly : 1;
        UINT64 Reserved : 59;
    };
    UINT64 Value;
} D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE;

typedef struct _D3DDDI_RESERVEGPUVIRTUALADDRESS {
    union {
        D3DKMT_HANDLE hPagingQueue;
        D3DKMT_HANDLE hAdapter;
    };
    D3DGPU_VIRTUAL_ADDRESS BaseAddress;
    D3DGPU_VIRTUAL_ADDRESS MinimumAddress;
    D3DGPU_VIRTUAL_ADDRESS MaximumAddress;
    UINT64 Size;
    union {
        UINT ReservationType;
        UINT Reserved0;
    };
    union {
        UINT64 DriverProtection;
        UINT64 Reserved1;
    };
    D3DGPU_VIRTUAL_ADDRESS VirtualAddress;
    union {
        UINT64 PagingFenceValue;
        UINT64 Reserved2;
    };
} D3DDDI_RESERVEGPUVIRTUALADDRESS;
GPUPV_SIZE(D3DDDI_RESERVEGPUVIRTUALADDRESS, 72);

typedef struct _D3DDDI_MAPGPUVIRTUALADDRESS {
    D3DKMT_HANDLE hPagingQueue;
    D3DGPU_VIRTUAL_ADDRESS BaseAddress;
    D3DGPU_VIRTUAL_ADDRESS MinimumAddress;
    D3DGPU_VIRTUAL_ADDRESS MaximumAddress;
    D3DKMT_HANDLE hAllocation;
    UINT64 OffsetInPages;
    UINT64 SizeInPages;
    D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE Protection;
    UINT64 DriverProtection;
    UINT Reserved0;
    UINT64 Reserved1;
    D3DGPU_VIRTUAL_ADDRESS VirtualAddress;
    UINT64 PagingFenceValue;
} D3DDDI_MAPGPUVIRTUALADDRESS;
GPUPV_SIZE(D3DDDI_MAPGPUVIRTUALADDRESS, 104);

typedef struct _D3DKMT_FREEGPUVIRTUALADDRESS {
    D3DKMT_HANDLE hAdapter;
    D3DGPU_VIRTUAL_ADDRESS BaseAddress;
    UINT64 Size;
} D3DKMT_FREEGPUVIRTUALADDRESS;
GPUPV_SIZE(D3DKMT_FREEGPUVIRTUALADDRESS, 24);

typedef enum _D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE {
    D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP = 0,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP = 1,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_COPY = 2,
    D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP_PROTECT = 3
} D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE;

typedef struct _D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION {
    D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION_TYPE OperationType;
    union {
        struct {
            D3DGPU_VIRTUAL_ADDRESS BaseAddress;
            UINT64 SizeInBytes;
            D3DKMT_HANDLE hAllocation;
            UINT64 AllocationOffsetInBytes;
            UINT64 AllocationSizeInBytes;
        } Map;
        struct {
            D3DGPU_VIRTUAL_ADDRESS BaseAddress;
            UINT64 SizeInBytes;
            D3DKMT_HANDLE hAllocation;
            UINT64 AllocationOffsetInBytes;
            UINT64 AllocationSizeInBytes;
            D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE Protection;
            UINT64 DriverProtection;
        } MapProtect;
        struct {
            D3DGPU_VIRTUAL_ADDRESS BaseAddress;
            UINT64 SizeInBytes;
            D3DDDIGPUVIRTUALADDRESS_PROTECTION_TYPE Protection;
        } Unmap;
        struct {
            D3DGPU_VIRTUAL_ADDRESS SourceAddress;
            UINT64 SizeInBytes;
            D3DGPU_VIRTUAL_ADDRESS DestAddress;
        } Copy;
    };
} D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION;
GPUPV_SIZE(D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION, 64);

typedef struct _D3DKMT_UPDATEGPUVIRTUALADDRESS {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hContext;
    D3DKMT_HANDLE hFenceObject;
    UINT NumOperations;
    D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION *Operations;
    UINT64 Reserved0;
    UINT64 Reserved1;
    UINT64 FenceValue;
    union {
        struct {
            UINT DoNotWait : 1;
            UINT Reserved : 31;
        };
        UINT Value;
    } Flags;
} D3DKMT_UPDATEGPUVIRTUALADDRESS;
GPUPV_SIZE(D3DKMT_UPDATEGPUVIRTUALADDRESS, 56);

/* ---- residency ---- */

typedef struct _D3DDDI_MAKERESIDENT_FLAGS {
    union {
        struct {
            UINT CantTrimFurther : 1;
            UINT MustSucceed : 1;
            UINT Reserved : 30;
        };
        UINT Value;
    };
} D3DDDI_MAKERESIDENT_FLAGS;

typedef struct _D3DDDI_MAKERESIDENT {
    D3DKMT_HANDLE hPagingQueue;
    UINT NumAllocations;
    const D3DKMT_HANDLE *AllocationList;
    const UINT *PriorityList;
    D3DDDI_MAKERESIDENT_FLAGS Flags;
    UINT64 PagingFenceValue;
    UINT64 NumBytesToTrim;
} D3DDDI_MAKERESIDENT;
GPUPV_SIZE(D3DDDI_MAKERESIDENT, 48);

typedef struct _D3DDDI_SEGMENTPREFERENCE {
    union {
        struct {
            UINT SegmentId0 : 5;
            UINT Direction0 : 1;
            UINT SegmentId1 : 5;
            UINT Direction1 : 1;
            UINT SegmentId2 : 5;
            UINT Direction2 : 1;
            UINT SegmentId3 : 5;
            UINT Direction3 : 1;
            UINT SegmentId4 : 5;
            UINT Direction4 : 1;
            UINT Reserved : 2;
        };
        UINT Value;
    };
} D3DDDI_SEGMENTPREFERENCE;

typedef struct _D3DDDI_UPDATEALLOCPROPERTY_FLAGS {
    union {
        struct {
            UINT AccessedPhysically : 1;
            UINT Reserved : 31;
        };
        UINT Value;
    };
} D3DDDI_UPDATEALLOCPROPERTY_FLAGS;

typedef struct _D3DDDI_UPDATEALLOCPROPERTY {
    D3DKMT_HANDLE hPagingQueue;
    D3DKMT_HANDLE hAllocation;
    UINT SupportedSegmentSet;
    D3DDDI_SEGMENTPREFERENCE PreferredSegment;
    D3DDDI_UPDATEALLOCPROPERTY_FLAGS Flags;
    UINT64 PagingFenceValue;
    union {
        struct {
            UINT SetAccessedPhysically : 1;
            UINT SetSupportedSegmentSet : 1;
            UINT SetPreferredSegment : 1;
            UINT SetUnmoveable : 1;
            UINT Reserved : 28;
        };
        UINT PropertyMaskValue;
    };
} D3DDDI_UPDATEALLOCPROPERTY;
GPUPV_SIZE(D3DDDI_UPDATEALLOCPROPERTY, 40);

typedef struct _D3DDDI_EVICT_FLAGS {
    union {
        struct {
            UINT EvictOnlyIfNecessary : 1;
            UINT NotWrittenTo : 1;
            UINT Reserved : 30;
        };
        UINT Value;
    };
} D3DDDI_EVICT_FLAGS;

typedef struct _D3DKMT_EVICT {
    D3DKMT_HANDLE hDevice;
    UINT NumAllocations;
    const D3DKMT_HANDLE *AllocationList;
    D3DDDI_EVICT_FLAGS Flags;
    UINT64 NumBytesToTrim;
} D3DKMT_EVICT;
GPUPV_SIZE(D3DKMT_EVICT, 32);

typedef struct _D3DDDICB_LOCK2FLAGS {
    union {
        struct {
            UINT Reserved : 32;
        };
        UINT Value;
    };
} D3DDDICB_LOCK2FLAGS;

typedef struct _D3DKMT_LOCK2 {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hAllocation;
    D3DDDICB_LOCK2FLAGS Flags;
    void *pData;
} D3DKMT_LOCK2;
GPUPV_SIZE(D3DKMT_LOCK2, 24);

typedef struct _D3DKMT_UNLOCK2 {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hAllocation;
} D3DKMT_UNLOCK2;
GPUPV_SIZE(D3DKMT_UNLOCK2, 8);

#define D3DDDI_ALLOCATIONPRIORITY_MINIMUM 0x28000000
#define D3DDDI_ALLOCATIONPRIORITY_LOW 0x50000000
#define D3DDDI_ALLOCATIONPRIORITY_NORMAL 0x78000000
#define D3DDDI_ALLOCATIONPRIORITY_HIGH 0xa0000000
#define D3DDDI_ALLOCATIONPRIORITY_MAXIMUM 0xc8000000

typedef struct _D3DKMT_SETALLOCATIONPRIORITY {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hResource;
    const D3DKMT_HANDLE *phAllocationList;
    UINT AllocationCount;
    const UINT *pPriorities;
} D3DKMT_SETALLOCATIONPRIORITY;
GPUPV_SIZE(D3DKMT_SETALLOCATIONPRIORITY, 32);

typedef struct _D3DKMT_GETALLOCATIONPRIORITY {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hResource;
    const D3DKMT_HANDLE *phAllocationList;
    UINT AllocationCount;
    UINT *pPriorities;
} D3DKMT_GETALLOCATIONPRIORITY;
GPUPV_SIZE(D3DKMT_GETALLOCATIONPRIORITY, 32);

typedef enum _D3DKMT_MEMORY_SEGMENT_GROUP {
    D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL = 0,
    D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL = 1
} D3DKMT_MEMORY_SEGMENT_GROUP;

typedef struct _D3DKMT_QUERYVIDEOMEMORYINFO {
    HANDLE hProcess;
    D3DKMT_HANDLE hAdapter;
    D3DKMT_MEMORY_SEGMENT_GROUP MemorySegmentGroup;
    UINT64 Budget;
    UINT64 CurrentUsage;
    UINT64 CurrentReservation;
    UINT64 AvailableForReservation;
    UINT PhysicalAdapterIndex;
} D3DKMT_QUERYVIDEOMEMORYINFO;
GPUPV_SIZE(D3DKMT_QUERYVIDEOMEMORYINFO, 56);

/* ---- offers and residency of allocations ---- */

typedef enum _D3DKMT_OFFER_PRIORITY {
    D3DKMT_OFFER_PRIORITY_LOW = 1,
    D3DKMT_OFFER_PRIORITY_NORMAL = 2,
    D3DKMT_OFFER_PRIORITY_HIGH = 3,
    D3DKMT_OFFER_PRIORITY_AUTO = 4
} D3DKMT_OFFER_PRIORITY;

typedef struct _D3DKMT_OFFER_FLAGS {
    union {
        struct {
            UINT OfferImmediately : 1;
            UINT AllowDecommit : 1;
            UINT Reserved : 30;
        };
        UINT Value;
    };
} D3DKMT_OFFER_FLAGS;

/* Either pResources or HandleList; the other one is NULL. So it is with reclaims. */
typedef struct _D3DKMT_OFFERALLOCATIONS {
    D3DKMT_HANDLE hDevice;
    const D3DKMT_HANDLE *pResources;
    const D3DKMT_HANDLE *HandleList;
    UINT NumAllocations;
    D3DKMT_OFFER_PRIORITY Priority;
    D3DKMT_OFFER_FLAGS Flags;
} D3DKMT_OFFERALLOCATIONS;
GPUPV_SIZE(D3DKMT_OFFERALLOCATIONS, 40);

typedef struct _D3DKMT_RECLAIMALLOCATIONS {
    D3DKMT_HANDLE hDevice;
    const D3DKMT_HANDLE *pResources;
    const D3DKMT_HANDLE *HandleList;
    /* Out, or NULL */
    BOOL *pDiscarded;
    UINT NumAllocations;
} D3DKMT_RECLAIMALLOCATIONS;
GPUPV_SIZE(D3DKMT_RECLAIMALLOCATIONS, 40);

typedef enum _D3DDDI_RECLAIM_RESULT {
    D3DDDI_RECLAIM_RESULT_OK = 0,
    D3DDDI_RECLAIM_RESULT_DISCARDED = 1,
    D3DDDI_RECLAIM_RESULT_NOT_COMMITTED = 2
} D3DDDI_RECLAIM_RESULT;

typedef struct _D3DKMT_RECLAIMALLOCATIONS2 {
    D3DKMT_HANDLE hPagingQueue;
    UINT NumAllocations;
    const D3DKMT_HANDLE *pResources;
    const D3DKMT_HANDLE *HandleList;
    union {
        BOOL *pDiscarded;
        D3DDDI_RECLAIM_RESULT *pResults;
    };
    UINT64 PagingFenceValue;
} D3DKMT_RECLAIMALLOCATIONS2;
GPUPV_SIZE(D3DKMT_RECLAIMALLOCATIONS2, 40);

typedef enum _D3DKMT_ALLOCATIONRESIDENCYSTATUS {
    D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINGPUMEMORY = 1,
    D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINSHAREDMEMORY = 2,
    D3DKMT_ALLOCATIONRESIDENCYSTATUS_NOTRESIDENT = 3
} D3DKMT_ALLOCATIONRESIDENCYSTATUS;

typedef struct _D3DKMT_QUERYALLOCATIONRESIDENCY {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hResource;
    const D3DKMT_HANDLE *phAllocationList;
    UINT AllocationCount;
    /* Out: one for a resource, or one for each allocation */
    D3DKMT_ALLOCATIONRESIDENCYSTATUS *pResidencyStatus;
} D3DKMT_QUERYALLOCATIONRESIDENCY;
GPUPV_SIZE(D3DKMT_QUERYALLOCATIONRESIDENCY, 32);

typedef struct _D3DKMT_CHANGEVIDEOMEMORYRESERVATION {
    HANDLE hProcess;
    D3DKMT_HANDLE hAdapter;
    D3DKMT_MEMORY_SEGMENT_GROUP MemorySegmentGroup;
    UINT64 Reservation;
    UINT PhysicalAdapterIndex;
} D3DKMT_CHANGEVIDEOMEMORYRESERVATION;
GPUPV_SIZE(D3DKMT_CHANGEVIDEOMEMORYRESERVATION, 32);

typedef struct _D3DKMT_INVALIDATECACHE {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hAllocation;
    SIZE_T Offset;
    SIZE_T Length;
} D3DKMT_INVALIDATECACHE;
GPUPV_SIZE(D3DKMT_INVALIDATECACHE, 24);

typedef struct _D3DKMT_FLUSHHEAPTRANSITIONS {
    D3DKMT_HANDLE hAdapter;
} D3DKMT_FLUSHHEAPTRANSITIONS;
GPUPV_SIZE(D3DKMT_FLUSHHEAPTRANSITIONS, 4);

typedef struct _D3DKMT_SETSTABLEPOWERSTATE {
    D3DKMT_HANDLE hAdapter;
    BOOL Enabled;
} D3DKMT_SETSTABLEPOWERSTATE;
GPUPV_SIZE(D3DKMT_SETSTABLEPOWERSTATE, 8);

/* ---- memory and adapters of processes ---- */

typedef union _D3DKMT_TRIMPROCESSCOMMITMENT_FLAGS {
    struct {
        UINT Lazy : 1;
        UINT OnlyRepurposed : 1;
        UINT Reserved : 30;
    };
    UINT Value;
} D3DKMT_TRIMPROCESSCOMMITMENT_FLAGS;

typedef struct _D3DKMT_TRIMPROCESSCOMMITMENT {
    /* Size of this struct */
    UINT cbSize;
    HANDLE hProcess;
    D3DKMT_TRIMPROCESSCOMMITMENT_FLAGS Flags;
    UINT64 DecommitRequested;
    UINT64 NumBytesDecommitted;
} D3DKMT_TRIMPROCESSCOMMITMENT;
GPUPV_SIZE(D3DKMT_TRIMPROCESSCOMMITMENT, 40);

typedef struct _D3DKMT_QUERYPROCESSOFFERINFO {
    /* Size of this struct */
    UINT cbSize;
    HANDLE hProcess;
    UINT64 DecommitUniqueness;
    UINT64 DecommittableBytes;
} D3DKMT_QUERYPROCESSOFFERINFO;
GPUPV_SIZE(D3DKMT_QUERYPROCESSOFFERINFO, 32);

typedef struct _D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT {
    HANDLE hProcess;
    LUID AdapterLuid;
    /* Out: a BOOLEAN */
    BYTE Support;
} D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT;
GPUPV_SIZE(D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT, 24);

/* The name of GetProcessDeviceRemovalSupport's struct up to Windows 10, version 1709 */
typedef struct _D3DKMT_GETPROCESSDEVICELOSTSUPPORT {
    HANDLE hProcess;
    LUID AdapterLuid;
    /* Out: a BOOLEAN */
    BYTE Support;
} D3DKMT_GETPROCESSDEVICELOSTSUPPORT;
GPUPV_SIZE(D3DKMT_GETPROCESSDEVICELOSTSUPPORT, 24);

typedef struct _D3DKMT_ENUMPROCESSES {
    LUID AdapterLuid;
    /* Out: process ids; or NULL */
    UINT *Buffer;
    /* In: room in the buffer; out: processes */
    UINT64 BufferCount;
} D3DKMT_ENUMPROCESSES;
GPUPV_SIZE(D3DKMT_ENUMPROCESSES, 24);

typedef struct _D3DKMT_WAITFORIDLE {
    D3DKMT_HANDLE hDevice;
} D3DKMT_WAITFORIDLE;
GPUPV_SIZE(D3DKMT_WAITFORIDLE, 4);

typedef struct _D3DKMT_ENUMADAPTERS {
    ULONG NumAdapters;
    D3DKMT_ADAPTERINFO Adapters[16];
} D3DKMT_ENUMADAPTERS;
GPUPV_SIZE(D3DKMT_ENUMADAPTERS, 324);

typedef struct _D3DDDI_TRIMRESIDENCYSET_FLAGS {
    union {
        struct {
            UINT PeriodicTrim : 1;
            UINT RestartPeriodicTrim : 1;
            UINT TrimToBudget : 1;
            UINT Reserved : 29;
        };
        UINT Value;
    };
} D3DDDI_TRIMRESIDENCYSET_FLAGS;

typedef struct _D3DKMT_TRIMNOTIFICATION {
    void *Context;
    D3DDDI_TRIMRESIDENCYSET_FLAGS Flags;
    UINT64 NumBytesToTrim;
} D3DKMT_TRIMNOTIFICATION;
GPUPV_SIZE(D3DKMT_TRIMNOTIFICATION, 24);

typedef struct _D3DKMT_REGISTERTRIMNOTIFICATION {
    LUID AdapterLuid;
    D3DKMT_HANDLE hDevice;
    void (*Callback)(D3DKMT_TRIMNOTIFICATION *);
    void *Context;
    /* Out */
    void *Handle;
} D3DKMT_REGISTERTRIMNOTIFICATION;
GPUPV_SIZE(D3DKMT_REGISTERTRIMNOTIFICATION, 40);

typedef struct _D3DKMT_UNREGISTERTRIMNOTIFICATION {
    void *Handle;
    void (*Callback)(D3DKMT_TRIMNOTIFICATION *);
} D3DKMT_UNREGISTERTRIMNOTIFICATION;
GPUPV_SIZE(D3DKMT_UNREGISTERTRIMNOTIFICATION, 16);

typedef struct _D3DKMT_BUDGETCHANGENOTIFICATION {
    void *Context;
    UINT64 Budget;
} D3DKMT_BUDGETCHANGENOTIFICATION;
GPUPV_SIZE(D3DKMT_BUDGETCHANGENOTIFICATION, 16);

typedef struct _D3DKMT_REGISTERBUDGETCHANGENOTIFICATION {
    D3DKMT_HANDLE hDevice;
    void (*Callback)(const D3DKMT_BUDGETCHANGENOTIFICATION *);
    void *Context;
    /* Out */
    void *Handle;
} D3DKMT_REGISTERBUDGETCHANGENOTIFICATION;
GPUPV_SIZE(D3DKMT_REGISTERBUDGETCHANGENOTIFICATION, 32);

typedef struct _D3DKMT_UNREGISTERBUDGETCHANGENOTIFICATION {
    void *Handle;
} D3DKMT_UNREGISTERBUDGETCHANGENOTIFICATION;
GPUPV_SIZE(D3DKMT_UNREGISTERBUDGETCHANGENOTIFICATION, 8);

/* ---- hardware queues ---- */

typedef struct _D3DDDI_CREATEHWQUEUEFLAGS {
    union {
        struct {
            UINT DisableGpuTimeout : 1;
            UINT NoBroadcastSignal : 1;
            UINT NoBroadcastWait : 1;
            UINT NoKmdAccess : 1;
            UINT UserModeSubmission : 1;
            UINT NativeProgressFence : 1;
            UINT Reserved : 26;
        };
        UINT Value;
    };
} D3DDDI_CREATEHWQUEUEFLAGS;

typedef struct _D3DKMT_CREATEHWQUEUE {
    D3DKMT_HANDLE hHwContext;
    D3DDDI_CREATEHWQUEUEFLAGS Flags;
    UINT PrivateDriverDataSize;
    void *pPrivateDriverData;
    D3DKMT_HANDLE hHwQueue;
    D3DKMT_HANDLE hHwQueueProgressFence;
    void *HwQueueProgressFenceCPUVirtualAddress;
    D3DGPU_VIRTUAL_ADDRESS HwQueueProgressFenceGPUVirtualAddress;
} D3DKMT_CREATEHWQUEUE;
GPUPV_SIZE(D3DKMT_CREATEHWQUEUE, 48);

typedef struct _D3DKMT_DESTROYHWQUEUE {
    D3DKMT_HANDLE hHwQueue;
} D3DKMT_DESTROYHWQUEUE;
GPUPV_SIZE(D3DKMT_DESTROYHWQUEUE, 4);

typedef struct _D3DKMT_SUBMITCOMMANDTOHWQUEUE {
    D3DKMT_HANDLE hHwQueue;
    UINT64 HwQueueProgressFenceId;
    D3DGPU_VIRTUAL_ADDRESS CommandBuffer;
    UINT CommandLength;
    UINT PrivateDriverDataSize;
    void *pPrivateDriverData;
    UINT NumPrimaries;
    const D3DKMT_HANDLE *WrittenPrimaries;
} D3DKMT_SUBMITCOMMANDTOHWQUEUE;
GPUPV_SIZE(D3DKMT_SUBMITCOMMANDTOHWQUEUE, 56);

typedef struct _D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE {
    D3DDDICB_SIGNALFLAGS Flags;
    ULONG BroadcastHwQueueCount;
    const D3DKMT_HANDLE *BroadcastHwQueueArray;
    UINT ObjectCount;
    const D3DKMT_HANDLE *ObjectHandleArray;
    const UINT64 *FenceValueArray;
} D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE;
GPUPV_SIZE(D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE, 40);

typedef struct _D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE {
    D3DKMT_HANDLE hHwQueue;
    UINT ObjectCount;
    const D3DKMT_HANDLE *ObjectHandleArray;
    const UINT64 *FenceValueArray;
} D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE;
GPUPV_SIZE(D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE, 24);

/* ---- native fences ---- */
/* As the current documentation has them; earlier SDKs had smaller structs (see docs/ABI.md). */

typedef enum _D3DDDI_NATIVEFENCE_TYPE {
    D3DDDI_NATIVEFENCE_TYPE_DEFAULT = 0,
    D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU = 1
} D3DDDI_NATIVEFENCE_TYPE;

typedef struct _D3DDDI_NATIVEFENCEMAPPING {
    void *CurrentValueCpuVa;
    D3DGPU_VIRTUAL_ADDRESS CurrentValueGpuVa;
    D3DGPU_VIRTUAL_ADDRESS MonitoredValueGpuVa;
    BYTE Reserved[32];
} D3DDDI_NATIVEFENCEMAPPING;
GPUPV_SIZE(D3DDDI_NATIVEFENCEMAPPING, 56);

typedef struct _D3DDDI_NATIVEFENCEINFO {
    UINT64 InitialFenceValue;
    UINT EngineAffinity;
    D3DDDI_NATIVEFENCE_TYPE Type;
    D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS Flags;
    D3DDDI_NATIVEFENCEMAPPING NativeFenceMapping;
    BYTE Reserved[28];
} D3DDDI_NATIVEFENCEINFO;
GPUPV_SIZE(D3DDDI_NATIVEFENCEINFO, 112);

typedef struct _D3DKMT_CREATENATIVEFENCE {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hSyncObject;
    BYTE PrivateDriverData[64];
    D3DDDI_NATIVEFENCEINFO Info;
    /* 0 */
    UINT Flags;
    BYTE Reserved[28];
} D3DKMT_CREATENATIVEFENCE;
GPUPV_SIZE(D3DKMT_CREATENATIVEFENCE, 216);

typedef struct _D3DKMT_OPENNATIVEFENCEFROMNTHANDLE {
    HANDLE hNtHandle;
    D3DKMT_HANDLE hDevice;
    UINT EngineAffinity;
    D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS Flags;
    D3DKMT_HANDLE hSyncObject;
    D3DDDI_NATIVEFENCEMAPPING NativeFenceMapping;
    BYTE PrivateDriverData[64];
    BYTE Reserved[32];
} D3DKMT_OPENNATIVEFENCEFROMNTHANDLE;
GPUPV_SIZE(D3DKMT_OPENNATIVEFENCEFROMNTHANDLE, 176);

/* ---- sync files (Linux only) ---- */

typedef struct _D3DKMT_CREATESYNCFILE {
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hMonitoredFence;
    UINT64 FenceValue;
    /* Out: a descriptor that becomes readable when the fence has the value */
    UINT64 hSyncFile;
} D3DKMT_CREATESYNCFILE;
GPUPV_SIZE(D3DKMT_CREATESYNCFILE, 24);

typedef struct _D3DKMT_WAITSYNCFILE {
    UINT64 hSyncFile;
    D3DKMT_HANDLE hContext;
    UINT Reserved;
} D3DKMT_WAITSYNCFILE;
GPUPV_SIZE(D3DKMT_WAITSYNCFILE, 16);

typedef struct _D3DKMT_OPENSYNCOBJECTFROMSYNCFILE {
    UINT64 hSyncFile;
    D3DKMT_HANDLE hDevice;
    D3DKMT_HANDLE hSyncObject;
    UINT64 FenceValue;
    void *FenceValueCPUVirtualAddress;
    D3DGPU_VIRTUAL_ADDRESS FenceValueGPUVirtualAddress;
} D3DKMT_OPENSYNCOBJECTFROMSYNCFILE;
GPUPV_SIZE(D3DKMT_OPENSYNCOBJECTFROMSYNCFILE, 40);

/* ---- statuses ---- */

#ifndef NT_SUCCESS
#define NT_SUCCESS(status) ((NTSTATUS)(status) >= 0)
#endif
#define STATUS_SUCCESS ((NTSTATUS)0x00000000)
#define STATUS_ABANDONED ((NTSTATUS)0x00000080)
#define STATUS_TIMEOUT ((NTSTATUS)0x00000102)
#define STATUS_PENDING ((NTSTATUS)0x00000103)
#define STATUS_DEVICE_BUSY ((NTSTATUS)0x80000011)
#define STATUS_UNSUCCESSFUL ((NTSTATUS)0xC0000001)
#define STATUS_INVALID_HANDLE ((NTSTATUS)0xC0000008)
#define STATUS_INVALID_PARAMETER ((NTSTATUS)0xC000000D)
#define STATUS_NO_MEMORY ((NTSTATUS)0xC0000017)
#define STATUS_ACCESS_DENIED ((NTSTATUS)0xC0000022)
#define STATUS_BUFFER_TOO_SMALL ((NTSTATUS)0xC0000023)
#define STATUS_OBJECT_TYPE_MISMATCH ((NTSTATUS)0xC0000024)
#define STATUS_OBJECT_NAME_INVALID ((NTSTATUS)0xC0000033)
#define STATUS_OBJECT_NAME_NOT_FOUND ((NTSTATUS)0xC0000034)
#define STATUS_OBJECT_NAME_COLLISION ((NTSTATUS)0xC0000035)
#define STATUS_NOT_SUPPORTED ((NTSTATUS)0xC00000BB)
#define STATUS_INTERNAL_ERROR ((NTSTATUS)0xC00000E5)
#define STATUS_DEVICE_REMOVED ((NTSTATUS)0xC00002B6)

/* ---- calls ---- */

NTSTATUS D3DKMTEnumAdapters(D3DKMT_ENUMADAPTERS *);
NTSTATUS D3DKMTEnumAdapters2(D3DKMT_ENUMADAPTERS2 *);
NTSTATUS D3DKMTEnumAdapters3(D3DKMT_ENUMADAPTERS3 *);
NTSTATUS D3DKMTOpenAdapterFromLuid(D3DKMT_OPENADAPTERFROMLUID *);
NTSTATUS D3DKMTOpenAdapterFromGdiDisplayName(D3DKMT_OPENADAPTERFROMGDIDISPLAYNAME *);
NTSTATUS D3DKMTOpenAdapterFromDeviceName(D3DKMT_OPENADAPTERFROMDEVICENAME *);
NTSTATUS D3DKMTOpenAdapterFromHdc(D3DKMT_OPENADAPTERFROMHDC *);
NTSTATUS D3DKMTCloseAdapter(const D3DKMT_CLOSEADAPTER *);
NTSTATUS D3DKMTQueryAdapterInfo(D3DKMT_QUERYADAPTERINFO *);
NTSTATUS D3DKMTCreateDevice(D3DKMT_CREATEDEVICE *);
NTSTATUS D3DKMTDestroyDevice(const D3DKMT_DESTROYDEVICE *);
NTSTATUS D3DKMTGetDeviceState(D3DKMT_GETDEVICESTATE *);
NTSTATUS D3DKMTCreateContextVirtual(D3DKMT_CREATECONTEXTVIRTUAL *);
NTSTATUS D3DKMTDestroyContext(const D3DKMT_DESTROYCONTEXT *);
NTSTATUS D3DKMTCreateSynchronizationObject(D3DKMT_CREATESYNCHRONIZATIONOBJECT *);
NTSTATUS D3DKMTCreateSynchronizationObject2(D3DKMT_CREATESYNCHRONIZATIONOBJECT2 *);
NTSTATUS D3DKMTDestroySynchronizationObject(const D3DKMT_DESTROYSYNCHRONIZATIONOBJECT *);
NTSTATUS D3DKMTShareObjects(UINT, const D3DKMT_HANDLE *, OBJECT_ATTRIBUTES *, DWORD, HANDLE *);
NTSTATUS D3DKMTOpenSyncObjectFromNtHandle2(D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 *);
NTSTATUS D3DKMTSignalSynchronizationObjectFromCpu(const D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU *);
NTSTATUS D3DKMTWaitForSynchronizationObjectFromCpu(const D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU *);
NTSTATUS D3DKMTSignalSynchronizationObjectFromGpu(const D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU *);
NTSTATUS D3DKMTSignalSynchronizationObjectFromGpu2(const D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2 *);
NTSTATUS D3DKMTWaitForSynchronizationObjectFromGpu(const D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU *);
NTSTATUS D3DKMTSubmitCommand(const D3DKMT_SUBMITCOMMAND *);
NTSTATUS D3DKMTOpenSynchronizationObject(D3DKMT_OPENSYNCHRONIZATIONOBJECT *);
NTSTATUS D3DKMTWaitForSynchronizationObject(const D3DKMT_WAITFORSYNCHRONIZATIONOBJECT *);
NTSTATUS D3DKMTWaitForSynchronizationObject2(const D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2 *);
NTSTATUS D3DKMTSignalSynchronizationObject(const D3DKMT_SIGNALSYNCHRONIZATIONOBJECT *);
NTSTATUS D3DKMTSignalSynchronizationObject2(const D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2 *);
NTSTATUS D3DKMTOpenSyncObjectFromNtHandle(D3DKMT_OPENSYNCOBJECTFROMNTHANDLE *);
NTSTATUS D3DKMTOpenSyncObjectNtHandleFromName(D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME *);
NTSTATUS D3DKMTOpenNtHandleFromName(D3DKMT_OPENNTHANDLEFROMNAME *);
NTSTATUS D3DKMTCreateKeyedMutex(D3DKMT_CREATEKEYEDMUTEX *);
NTSTATUS D3DKMTCreateKeyedMutex2(D3DKMT_CREATEKEYEDMUTEX2 *);
NTSTATUS D3DKMTOpenKeyedMutex(D3DKMT_OPENKEYEDMUTEX *);
NTSTATUS D3DKMTOpenKeyedMutex2(D3DKMT_OPENKEYEDMUTEX2 *);
NTSTATUS D3DKMTOpenKeyedMutexFromNtHandle(D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE *);
NTSTATUS D3DKMTAcquireKeyedMutex(D3DKMT_ACQUIREKEYEDMUTEX *);
NTSTATUS D3DKMTAcquireKeyedMutex2(D3DKMT_ACQUIREKEYEDMUTEX2 *);
NTSTATUS D3DKMTReleaseKeyedMutex(D3DKMT_RELEASEKEYEDMUTEX *);
NTSTATUS D3DKMTReleaseKeyedMutex2(D3DKMT_RELEASEKEYEDMUTEX2 *);
NTSTATUS D3DKMTCreatePagingQueue(D3DKMT_CREATEPAGINGQUEUE *);
NTSTATUS D3DKMTCreateAllocation(D3DKMT_CREATEALLOCATION *);
NTSTATUS D3DKMTCreateAllocation2(D3DKMT_CREATEALLOCATION *);
NTSTATUS D3DKMTDestroyAllocation(const D3DKMT_DESTROYALLOCATION *);
NTSTATUS D3DKMTDestroyAllocation2(const D3DKMT_DESTROYALLOCATION2 *);
NTSTATUS D3DKMTQueryResourceInfo(D3DKMT_QUERYRESOURCEINFO *);
NTSTATUS D3DKMTOpenResource(D3DKMT_OPENRESOURCE *);
NTSTATUS D3DKMTOpenResource2(D3DKMT_OPENRESOURCE *);
NTSTATUS D3DKMTQueryResourceInfoFromNtHandle(D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE *);
NTSTATUS D3DKMTGetSharedResourceAdapterLuid(D3DKMT_GETSHAREDRESOURCEADAPTERLUID *);
NTSTATUS D3DKMTOpenResourceFromNtHandle(D3DKMT_OPENRESOURCEFROMNTHANDLE *);
NTSTATUS D3DKMTLock2(D3DKMT_LOCK2 *);
NTSTATUS D3DKMTUnlock2(const D3DKMT_UNLOCK2 *);
NTSTATUS D3DKMTDestroyPagingQueue(D3DDDI_DESTROYPAGINGQUEUE *);
NTSTATUS D3DKMTUpdateGpuVirtualAddress(const D3DKMT_UPDATEGPUVIRTUALADDRESS *);
NTSTATUS D3DKMTMakeResident(D3DDDI_MAKERESIDENT *);
NTSTATUS D3DKMTEvict(D3DKMT_EVICT *);
NTSTATUS D3DKMTOfferAllocations(const D3DKMT_OFFERALLOCATIONS *);
NTSTATUS D3DKMTReclaimAllocations(const D3DKMT_RECLAIMALLOCATIONS *);
NTSTATUS D3DKMTReclaimAllocations2(D3DKMT_RECLAIMALLOCATIONS2 *);
NTSTATUS D3DKMTQueryAllocationResidency(const D3DKMT_QUERYALLOCATIONRESIDENCY *);
NTSTATUS D3DKMTSetAllocationPriority(const D3DKMT_SETALLOCATIONPRIORITY *);
NTSTATUS D3DKMTGetAllocationPriority(const D3DKMT_GETALLOCATIONPRIORITY *);
NTSTATUS D3DKMTCreateHwQueue(D3DKMT_CREATEHWQUEUE *);
NTSTATUS D3DKMTDestroyHwQueue(const D3DKMT_DESTROYHWQUEUE *);
NTSTATUS D3DKMTSubmitCommandToHwQueue(const D3DKMT_SUBMITCOMMANDTOHWQUEUE *);
NTSTATUS D3DKMTSubmitSignalSyncObjectsToHwQueue(const D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE *);
NTSTATUS D3DKMTSubmitWaitForSyncObjectsToHwQueue(const D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE *);
NTSTATUS D3DKMTCreateNativeFence(D3DKMT_CREATENATIVEFENCE *);
NTSTATUS D3DKMTOpenNativeFenceFromNtHandle(D3DKMT_OPENNATIVEFENCEFROMNTHANDLE *);
NTSTATUS D3DKMTSetContextSchedulingPriority(const D3DKMT_SETCONTEXTSCHEDULINGPRIORITY *);
NTSTATUS D3DKMTGetContextSchedulingPriority(D3DKMT_GETCONTEXTSCHEDULINGPRIORITY *);
NTSTATUS D3DKMTSetContextInProcessSchedulingPriority(const D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY *);
NTSTATUS D3DKMTGetContextInProcessSchedulingPriority(D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY *);
/* The process must be (HANDLE)-1, the calling process. */
NTSTATUS D3DKMTSetProcessSchedulingPriorityClass(HANDLE, D3DKMT_SCHEDULINGPRIORITYCLASS);
NTSTATUS D3DKMTGetProcessSchedulingPriorityClass(HANDLE, D3DKMT_SCHEDULINGPRIORITYCLASS *);
/* hProcess of the next three is NULL, (HANDLE)-1 or a pidfd of the calling process. */
NTSTATUS D3DKMTTrimProcessCommitment(D3DKMT_TRIMPROCESSCOMMITMENT *);
NTSTATUS D3DKMTQueryProcessOfferInfo(D3DKMT_QUERYPROCESSOFFERINFO *);
NTSTATUS D3DKMTGetProcessDeviceRemovalSupport(D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT *);
/* The name of the call above up to Windows 10, version 1709. */
NTSTATUS D3DKMTGetProcessDeviceLostSupport(D3DKMT_GETPROCESSDEVICELOSTSUPPORT *);
NTSTATUS D3DKMTEnumProcesses(D3DKMT_ENUMPROCESSES *);
NTSTATUS D3DKMTWaitForIdle(const D3DKMT_WAITFORIDLE *);
NTSTATUS D3DKMTUpdateAllocationProperty(D3DDDI_UPDATEALLOCPROPERTY *);
NTSTATUS D3DKMTRegisterTrimNotification(D3DKMT_REGISTERTRIMNOTIFICATION *);
NTSTATUS D3DKMTUnregisterTrimNotification(const D3DKMT_UNREGISTERTRIMNOTIFICATION *);
NTSTATUS D3DKMTRegisterBudgetChangeNotification(D3DKMT_REGISTERBUDGETCHANGENOTIFICATION *);
NTSTATUS D3DKMTUnregisterBudgetChangeNotification(const D3DKMT_UNREGISTERBUDGETCHANGENOTIFICATION *);
NTSTATUS D3DKMTMarkDeviceAsError(const D3DKMT_MARKDEVICEASERROR *);
NTSTATUS D3DKMTCreateSyncFile(D3DKMT_CREATESYNCFILE *);
NTSTATUS D3DKMTEscape(const D3DKMT_ESCAPE *);
NTSTATUS D3DKMTWaitSyncFile(const D3DKMT_WAITSYNCFILE *);
NTSTATUS D3DKMTOpenSyncObjectFromSyncFile(D3DKMT_OPENSYNCOBJECTFROMSYNCFILE *);
/* hProcess is NULL, (HANDLE)-1 or a pidfd of the calling process. */
NTSTATUS D3DKMTChangeVideoMemoryReservation(const D3DKMT_CHANGEVIDEOMEMORYRESERVATION *);
NTSTATUS D3DKMTInvalidateCache(const D3DKMT_INVALIDATECACHE *);
NTSTATUS D3DKMTFlushHeapTransitions(const D3DKMT_FLUSHHEAPTRANSITIONS *);
NTSTATUS D3DKMTSetStablePowerState(const D3DKMT_SETSTABLEPOWERSTATE *);
NTSTATUS D3DKMTReserveGpuVirtualAddress(D3DDDI_RESERVEGPUVIRTUALADDRESS *);
NTSTATUS D3DKMTMapGpuVirtualAddress(D3DDDI_MAPGPUVIRTUALADDRESS *);
NTSTATUS D3DKMTFreeGpuVirtualAddress(const D3DKMT_FREEGPUVIRTUALADDRESS *);
/* hProcess is NULL, (HANDLE)-1 or a pidfd of the calling process. */
NTSTATUS D3DKMTQueryVideoMemoryInfo(D3DKMT_QUERYVIDEOMEMORYINFO *);
NTSTATUS D3DKMTDestroyKeyedMutex(const D3DKMT_DESTROYKEYEDMUTEX *);
NTSTATUS D3DKMTIsFeatureEnabled(D3DKMT_ISFEATUREENABLED *);
/* hProcess is NULL, (HANDLE)-1 or a pidfd of the calling process. */
NTSTATUS D3DKMTQueryStatistics(D3DKMT_QUERYSTATISTICS *);
NTSTATUS D3DKMTQueryClockCalibration(D3DKMT_QUERYCLOCKCALIBRATION *);

/* ---- calls that answer STATUS_NOT_SUPPORTED ---- */
/* A NULL argument answers STATUS_INVALID_PARAMETER. Nothing else of the arguments is read. */

/* no adapter drives a display */
NTSTATUS D3DKMTAdjustFullscreenGamma(const void *);
NTSTATUS D3DKMTCancelPresents(const void *);
NTSTATUS D3DKMTChangeSurfacePointer(const void *);
NTSTATUS D3DKMTCheckMonitorPowerState(const void *);
NTSTATUS D3DKMTCheckMultiPlaneOverlaySupport(const void *);
NTSTATUS D3DKMTCheckMultiPlaneOverlaySupport2(const void *);
NTSTATUS D3DKMTCheckMultiPlaneOverlaySupport3(const void *);
NTSTATUS D3DKMTCheckOcclusion(const void *);
NTSTATUS D3DKMTCheckVidPnExclusiveOwnership(const void *);
NTSTATUS D3DKMTCreateOverlay(const void *);
NTSTATUS D3DKMTDestroyOverlay(const void *);
NTSTATUS D3DKMTFlipOverlay(const void *);
NTSTATUS D3DKMTGetDisplayModeList(const void *);
NTSTATUS D3DKMTGetDWMVerticalBlankEvent(const void *);
NTSTATUS D3DKMTGetMultiPlaneOverlayCaps(const void *);
NTSTATUS D3DKMTGetMultisampleMethodList(const void *);
NTSTATUS D3DKMTGetOverlayState(const void *);
NTSTATUS D3DKMTGetPostCompositionCaps(const void *);
NTSTATUS D3DKMTGetPresentHistory(const void *);
NTSTATUS D3DKMTGetPresentQueueEvent(D3DKMT_HANDLE, HANDLE *);
NTSTATUS D3DKMTGetResourcePresentPrivateDriverData(const void *);
NTSTATUS D3DKMTGetScanLine(const void *);
NTSTATUS D3DKMTGetSharedPrimaryHandle(const void *);
NTSTATUS D3DKMTInvalidateActiveVidPn(const void *);
NTSTATUS D3DKMTPinDirectFlipResources(const void *);
NTSTATUS D3DKMTPollDisplayChildren(const void *);
NTSTATUS D3DKMTPresent(const void *);
NTSTATUS D3DKMTPresentMultiPlaneOverlay(const void *);
NTSTATUS D3DKMTPresentMultiPlaneOverlay2(const void *);
NTSTATUS D3DKMTPresentMultiPlaneOverlay3(const void *);
NTSTATUS D3DKMTPresentRedirected(const void *);
NTSTATUS D3DKMTQueryFSEBlock(const void *);
NTSTATUS D3DKMTQueryRemoteVidPnSourceFromGdiDisplayName(const void *);
NTSTATUS D3DKMTQueryVidPnExclusiveOwnership(const void *);
NTSTATUS D3DKMTReleaseProcessVidPnSourceOwners(HANDLE);
NTSTATUS D3DKMTSetDisplayMode(const void *);
NTSTATUS D3DKMTSetDisplayPrivateDriverFormat(const void *);
NTSTATUS D3DKMTSetFSEBlock(const void *);
NTSTATUS D3DKMTSetGammaRamp(const void *);
NTSTATUS D3DKMTSetMonitorColorSpaceTransform(const void *);
NTSTATUS D3DKMTSetQueuedLimit(const void *);
NTSTATUS D3DKMTSetStereoEnabled(const void *);
NTSTATUS D3DKMTSetSyncRefreshCountWaitTarget(const void *);
NTSTATUS D3DKMTSetVidPnSourceOwner(const void *);
NTSTATUS D3DKMTSetVidPnSourceOwner1(const void *);
NTSTATUS D3DKMTSetVidPnSourceOwner2(const void *);
NTSTATUS D3DKMTSharedPrimaryLockNotification(const void *);
NTSTATUS D3DKMTSharedPrimaryUnLockNotification(const void *);
NTSTATUS D3DKMTSubmitPresentBltToHwQueue(const void *);
NTSTATUS D3DKMTSubmitPresentToHwQueue(const void *);
NTSTATUS D3DKMTUnpinDirectFlipResources(const void *);
NTSTATUS D3DKMTUpdateOverlay(const void *);
NTSTATUS D3DKMTWaitForVerticalBlankEvent(const void *);
NTSTATUS D3DKMTWaitForVerticalBlankEvent2(const void *);

/* there is no desktop to duplicate */
NTSTATUS D3DKMTCreateOutputDupl(const void *);
NTSTATUS D3DKMTDestroyOutputDupl(const void *);
NTSTATUS D3DKMTOutputDuplGetFrameInfo(const void *);
NTSTATUS D3DKMTOutputDuplGetMetaData(const void *);
NTSTATUS D3DKMTOutputDuplGetPointerShapeData(const void *);
NTSTATUS D3DKMTOutputDuplPresent(const void *);
NTSTATUS D3DKMTOutputDuplPresentToHwQueue(const void *);
NTSTATUS D3DKMTOutputDuplReleaseFrame(const void *);

/* no adapter protects content */
NTSTATUS D3DKMTCreateProtectedSession(const void *);
NTSTATUS D3DKMTDestroyProtectedSession(const void *);
NTSTATUS D3DKMTOpenProtectedSessionFromNtHandle(const void *);
NTSTATUS D3DKMTQueryProtectedSessionInfoFromNtHandle(const void *);
NTSTATUS D3DKMTQueryProtectedSessionStatus(const void *);
NTSTATUS D3DKMTSetHwProtectionTeardownRecovery(const void *);
NTSTATUS D3DKMTSetVidPnSourceHwProtection(const void *);

/* there is no GDI */
NTSTATUS D3DKMTCreateDCFromMemory(const void *);
NTSTATUS D3DKMTDestroyDCFromMemory(const void *);

/* there is no hybrid of an integrated and a discrete adapter */
NTSTATUS D3DKMTQueryHybridListValue(const void *);
NTSTATUS D3DKMTSetHybridListVValue(const void *);

/* contexts have GPU virtual addresses; use CreateContextVirtual and SubmitCommand */
NTSTATUS D3DKMTCreateContext(const void *);
NTSTATUS D3DKMTCreateHwContext(const void *);
NTSTATUS D3DKMTDestroyHwContext(const void *);
NTSTATUS D3DKMTRender(const void *);

/* the host is no Windows session */
NTSTATUS D3DKMTRegisterVailProcess(const void *);
NTSTATUS D3DKMTShareObjectWithHost(const void *);

/* a store to mapped memory notifies no host */
NTSTATUS D3DKMTConnectDoorbell(const void *);
NTSTATUS D3DKMTCreateDoorbell(const void *);
NTSTATUS D3DKMTDestroyDoorbell(const void *);
NTSTATUS D3DKMTNotifyWorkSubmission(const void *);

/* tracked workloads are not modelled */
NTSTATUS D3DKMTCreateTrackedWorkload(const void *);
NTSTATUS D3DKMTDestroyTrackedWorkload(const void *);
NTSTATUS D3DKMTGetAvailableTrackedWorkloadIndex(const void *);
NTSTATUS D3DKMTGetTrackedWorkloadStatistics(const void *);
NTSTATUS D3DKMTResetTrackedWorkloadStatistics(const void *);
NTSTATUS D3DKMTUpdateTrackedWorkload(const void *);

/* rights to shared resources and pins of resources are not modelled */
NTSTATUS D3DKMTCheckSharedResourceAccess(const void *);
NTSTATUS D3DKMTConfigureSharedResource(const void *);
NTSTATUS D3DKMTGetRuntimeData(const void *);
NTSTATUS D3DKMTPinResources(const void *);
NTSTATUS D3DKMTUnpinResources(const void *);

/* use Lock2 and Unlock2 */
NTSTATUS D3DKMTLock(const void *);
NTSTATUS D3DKMTUnlock(const void *);

/* Whether a process owns a display exclusively: never. */
uint8_t D3DKMTCheckExclusiveOwnership(void);

/* gpupv extension: the number of messages that this process has sent to the host. For tests. */
uint64_t gpupv_messages_sent(void);
/* gpupv extension: returns once every event is set that the driver signaled before the host answered a call that has
 * returned. In a VM an event may be set after such an answer arrives. For tests. */
void gpupv_settle_events(void);

#ifdef __cplusplus
}
#endif
#endif
