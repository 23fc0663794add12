/* The D3DKMT calls that gpupv's libdxcore.so exports: types, constants and prototypes.
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

typedef struct _LUID {
    DWORD LowPart;
    INT HighPart;
} LUID;
GPUPV_SIZE(LUID, 8);

#ifndef NT_SUCCESS
#define NT_SUCCESS(status) ((NTSTATUS)(status) >= 0)
#endif
#define STATUS_SUCCESS ((NTSTATUS)0x00000000)
#define STATUS_ABANDONED ((NTSTATUS)0x00000080)
#define STATUS_TIMEOUT ((NTSTATUS)0x00000102)
#define STATUS_PENDING ((NTSTATUS)0x00000103)
#define STATUS_UNSUCCESSFUL ((NTSTATUS)0xC0000001)
#define STATUS_INVALID_HANDLE ((NTSTATUS)0xC0000008)
#define STATUS_INVALID_PARAMETER ((NTSTATUS)0xC000000D)
#define STATUS_NO_MEMORY ((NTSTATUS)0xC0000017)
#define STATUS_ACCESS_DENIED ((NTSTATUS)0xC0000022)
#define STATUS_BUFFER_TOO_SMALL ((NTSTATUS)0xC0000023)
#define STATUS_OBJECT_TYPE_MISMATCH ((NTSTATUS)0xC0000024)
#define STATUS_OBJECT_NAME_NOT_FOUND ((NTSTATUS)0xC0000034)
#define STATUS_NOT_SUPPORTED ((NTSTATUS)0xC00000BB)
#define STATUS_INTERNAL_ERROR ((NTSTATUS)0xC00000E5)
#define STATUS_DEVICE_REMOVED ((NTSTATUS)0xC00002B6)

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

typedef struct _D3DKMT_CLOSEADAPTER {
    D3DKMT_HANDLE hAdapter;
} D3DKMT_CLOSEADAPTER;
GPUPV_SIZE(D3DKMT_CLOSEADAPTER, 4);

typedef enum _KMTQUERYADAPTERINFOTYPE {
    KMTQAITYPE_ADAPTERTYPE = 15,
    KMTQAITYPE_PHYSICALADAPTERDEVICEIDS = 31,
    KMTQAITYPE_ADAPTERTYPE_RENDER = 57,
    KMTQAITYPE_DRIVER_DESCRIPTION = 65,
    KMTQAITYPE_WDDM_2_7_CAPS = 70
} KMTQUERYADAPTERINFOTYPE;

typedef struct _D3DKMT_DRIVER_DESCRIPTION {
    WCHAR DriverDescription[4096];
} D3DKMT_DRIVER_DESCRIPTION;
GPUPV_SIZE(D3DKMT_DRIVER_DESCRIPTION, 16384);

typedef struct _D3DKMT_QUERYADAPTERINFO {
    D3DKMT_HANDLE hAdapter;
    KMTQUERYADAPTERINFOTYPE Type;
    void *pPrivateDriverData;
    UINT PrivateDriverDataSize;
} D3DKMT_QUERYADAPTERINFO;
GPUPV_SIZE(D3DKMT_QUERYADAPTERINFO, 24);

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

typedef struct _D3DKMT_GETDEVICESTATE {
    D3DKMT_HANDLE hDevice;
    D3DKMT_DEVICESTATE_TYPE StateType;
    union {
        D3DKMT_DEVICEEXECUTION_STATE ExecutionState;
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

/* ---- synchronization objects ---- */

typedef enum _D3DDDI_SYNCHRONIZATIONOBJECT_TYPE {
    D3DDDI_SYNCHRONIZATION_MUTEX = 1,
    D3DDDI_SEMAPHORE = 2,
    D3DDDI_FENCE = 3,
    D3DDDI_CPU_NOTIFICATION = 4,
    D3DDDI_MONITORED_FENCE = 5,
    D3DDDI_PERIODIC_MONITORED_FENCE = 6
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
            /* Out: where the value is to be read. Read-only memory. */
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

/* Attributes are accepted and not looked at: names are not shared yet. */
typedef struct _OBJECT_ATTRIBUTES OBJECT_ATTRIBUTES;

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
    HANDLE hAsyncEvent; /* NULL: the call returns when the wait is over */
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
    UINT Reserved : 30;
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

/* ---- calls ---- */

NTSTATUS D3DKMTEnumAdapters2(D3DKMT_ENUMADAPTERS2 *);
NTSTATUS D3DKMTEnumAdapters3(D3DKMT_ENUMADAPTERS3 *);
NTSTATUS D3DKMTOpenAdapterFromLuid(D3DKMT_OPENADAPTERFROMLUID *);
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

/* Ours: messages this process has sent to the host so far. For tests. */
uint64_t gpupv_messages_sent(void);

#ifdef __cplusplus
}
#endif
#endif
