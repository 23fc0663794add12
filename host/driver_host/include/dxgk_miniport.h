/* dxgk_miniport.h - the interface of a kernel-mode driver in C for gpupv. Generated: see host/driver_host/src/abi.
 *
 * A driver is a shared object with the function DxgkMiniportEntry. It runs in a process of its own. Names with Dxgk
 * are the WDK's; the layouts are ours. Names with Sim are the simulated hardware's. Handles are numbers of the kernel,
 * DXGK_NO_HANDLE is none. A buffer belongs to the kernel and lasts for the call; its size is in and out, and never
 * grows. An empty buffer is NULL. A size that the driver leaves as it is counts. Capabilities come from the adapter's
 * configuration, not from the driver. docs/KMD.md explains the rest: failures, callbacks, what bugchecks.
 *
 * How it changes. DXGK_MINIPORT_VERSION changes only if an old driver could not run any more. Everything else is
 * appended: functions at the end of both tables, whose Size tells how many there are. A struct never changes, but for
 * reserved fields that get a meaning, with 0 for what was before. So a driver of an older header runs as it is. A driver
 * of a newer header runs if the functions that gpupv does not know are NULL; before it calls a function that not every
 * gpupv has, it checks that Size of DXGKRNL_INTERFACE reaches beyond it. */
#ifndef DXGK_MINIPORT_H
#define DXGK_MINIPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DXGK_MINIPORT_VERSION 1
#define DXGK_NO_HANDLE UINT64_MAX
#define SIM_NEVER UINT64_MAX

typedef uint32_t UINT;
typedef uint64_t UINT64;
typedef int32_t NTSTATUS;

#define STATUS_SUCCESS ((NTSTATUS)0)
#define STATUS_PENDING ((NTSTATUS)0x103)
#define STATUS_UNSUCCESSFUL ((NTSTATUS)0xC0000001)
#define STATUS_INVALID_PARAMETER ((NTSTATUS)0xC000000D)
#define STATUS_INVALID_DEVICE_REQUEST ((NTSTATUS)0xC0000010)
#define STATUS_NO_MEMORY ((NTSTATUS)0xC0000017)
#define STATUS_INSUFFICIENT_RESOURCES ((NTSTATUS)0xC000009A)
#define STATUS_NOT_SUPPORTED ((NTSTATUS)0xC00000BB)

/* An element of pAllocationInfo. */
typedef struct _DXGK_ALLOCATIONINFO {
    /* In and out. */
    void *pPrivateDriverData;
    UINT64 PrivateDriverDataSize;
    UINT64 hAllocation;
    /* Out, in bytes; 0 with memory of the process: the driver does not know. */
    UINT64 Size;
    /* Out: a power of two, or 0. */
    UINT Alignment;
    /* In: 1, it is memory of the process. Out: 2, it lies in the segment group LOCAL; 4 CpuVisible. */
    UINT Flags;
} DXGK_ALLOCATIONINFO;

/* An element of pValues of DxgkDdiUpdateMonitoredValues and DxgkDdiUpdateCurrentValuesFromCpu. */
typedef struct _DXGK_NATIVEFENCEVALUE {
    UINT64 hGlobalNativeFence;
    UINT64 Value;
    /* Of a CurrentValue. 1 AlwaysSignaled: the fence stays at all ones. 2 NotificationOnly: the memory has the value. */
    UINT64 Flags;
} DXGK_NATIVEFENCEVALUE;

/* ---- What the kernel calls. ---- */

/* The adapter starts: first of all DDIs, and again after a stop. */
typedef struct _DXGKARG_STARTDEVICE {
    UINT AdapterOrdinal;
    UINT NumberOfNodes;
    /* 0 at first, 1 after a stop. */
    UINT Restart;
    /* As D3DKMT_DRIVERVERSION has it. */
    UINT WddmVersion;
} DXGKARG_STARTDEVICE;

/* The engines drop their work and stay idle. */
typedef struct _DXGKARG_STOPDEVICE {
    UINT64 Reserved;
} DXGKARG_STOPDEVICE;

/* As DxgkDdiStopDevice, before a reset after a timeout. */
typedef struct _DXGKARG_RESETFROMTIMEOUT {
    UINT64 Reserved;
} DXGKARG_RESETFROMTIMEOUT;

typedef struct _DXGKARG_RESTARTFROMTIMEOUT {
    UINT64 Reserved;
} DXGKARG_RESTARTFROMTIMEOUT;

typedef struct _DXGKARG_SETPOWERSTATE {
    /* DEVICE_POWER_STATE: 1 is D0, 4 is D3. */
    UINT DevicePowerState;
    UINT Reserved;
} DXGKARG_SETPOWERSTATE;

/* Private data of the user-mode driver: the reply replaces the query. */
typedef struct _DXGKARG_QUERYADAPTERINFO {
    void *pData;
    UINT64 DataSize;
    /* DXGK_QUERYADAPTERINFOFLAGS. */
    UINT Flags;
    UINT Reserved;
} DXGKARG_QUERYADAPTERINFO;

typedef struct _DXGKARG_CREATEPROCESS {
    void *pProcessName;
    UINT64 ProcessNameSize;
    UINT64 hKmdProcess;
    /* Its GPU address space, or DXGK_NO_HANDLE. */
    UINT64 hAddressSpace;
    /* The process of its VM, or DXGK_NO_HANDLE. */
    UINT64 hKmdVmWorkerProcess;
    /* 0 of the host, 1 VirtualMachineWorkerProcess, 2 VirtualMachineProcess. */
    UINT Kind;
    UINT VmId;
} DXGKARG_CREATEPROCESS;

typedef struct _DXGKARG_DESTROYPROCESS {
    UINT64 hKmdProcess;
} DXGKARG_DESTROYPROCESS;

typedef struct _DXGKARG_SETVIRTUALMACHINEDATA {
    UINT64 hKmdVmWorkerProcess;
    UINT VmId;
    /* 1 SecureVirtualMachine, 2 LinuxVirtualMachine. */
    UINT Flags;
} DXGKARG_SETVIRTUALMACHINEDATA;

typedef struct _DXGKARG_CREATEDEVICE {
    UINT64 hKmdProcess;
    UINT64 hDevice;
} DXGKARG_CREATEDEVICE;

typedef struct _DXGKARG_DESTROYDEVICE {
    UINT64 hDevice;
} DXGKARG_DESTROYDEVICE;

/* Names no device and no process: each submission and each hardware queue of the context names its address space. */
typedef struct _DXGKARG_CREATECONTEXT {
    UINT64 hContext;
    UINT NodeOrdinal;
    UINT Reserved;
} DXGKARG_CREATECONTEXT;

/* The driver drops the submission of the context that has not completed. */
typedef struct _DXGKARG_DESTROYCONTEXT {
    UINT64 hContext;
    /* That submission, or DXGK_NO_HANDLE. */
    UINT64 SubmissionFenceId;
    UINT NodeOrdinal;
    UINT Reserved;
} DXGKARG_DESTROYCONTEXT;

/* Checks a command buffer before it is queued. A failure refuses the submission; SimDebugPrint says why. */
typedef struct _SIM_VALIDATECOMMANDS {
    void *pDmaBuffer;
    UINT64 DmaBufferSize;
    UINT64 Reserved;
} SIM_VALIDATECOMMANDS;

/* Runs a command buffer. DMA_COMPLETED answers it. */
typedef struct _DXGKARG_SUBMITCOMMANDVIRTUAL {
    void *pDmaBuffer;
    UINT64 DmaBufferSize;
    UINT64 hContext;
    UINT64 hAddressSpace;
    UINT64 SubmissionFenceId;
    /* Flags.Resubmission: the id under which this work was preempted, or DXGK_NO_HANDLE. It comes without its buffer: the
     * driver keeps what it preempted. */
    UINT64 ResubmittedFenceId;
    UINT NodeOrdinal;
    /* 1 Paging, 2 Resubmission. */
    UINT Flags;
} DXGKARG_SUBMITCOMMANDVIRTUAL;

typedef struct _DXGKARG_PATCH {
    UINT64 hContext;
    UINT64 SubmissionFenceId;
    UINT NodeOrdinal;
    UINT Reserved;
} DXGKARG_PATCH;

/* DMA_PREEMPTED answers it. */
typedef struct _DXGKARG_PREEMPTCOMMAND {
    UINT64 PreemptionFenceId;
    UINT NodeOrdinal;
    UINT Reserved;
} DXGKARG_PREEMPTCOMMAND;

typedef struct _DXGKARG_CANCELCOMMAND {
    void *pDmaBuffer;
    UINT64 DmaBufferSize;
    UINT64 hContext;
} DXGKARG_CANCELCOMMAND;

/* Calls DxgkCbNotifyDpc. */
typedef struct _DXGKARG_DPCROUTINE {
    UINT64 Reserved;
} DXGKARG_DPCROUTINE;

typedef struct _DXGKARG_QUERYENGINESTATUS {
    UINT NodeOrdinal;
    /* Out. */
    UINT Responsive;
} DXGKARG_QUERYENGINESTATUS;

typedef struct _DXGKARG_QUERYDEPENDENTENGINEGROUP {
    UINT NodeOrdinal;
    UINT Reserved;
    /* Out. */
    UINT64 DependentNodeOrdinalMask;
} DXGKARG_QUERYDEPENDENTENGINEGROUP;

typedef struct _DXGKARG_RESETENGINE {
    UINT NodeOrdinal;
    UINT Reserved;
    /* Out: submissions up to this one are lost. */
    UINT64 LastAbortedFenceId;
} DXGKARG_RESETENGINE;

typedef struct _DXGKARG_RESETHWENGINE {
    UINT NodeOrdinal;
    UINT Reserved;
} DXGKARG_RESETHWENGINE;

typedef struct _DXGKARG_RESUMEHWENGINE {
    UINT NodeOrdinal;
    UINT Reserved;
} DXGKARG_RESUMEHWENGINE;

typedef struct _DXGKARG_CREATEHWQUEUE {
    UINT64 hHwQueue;
    UINT64 hContext;
    UINT64 hAddressSpace;
    UINT64 HwQueueProgressFenceGpuVirtualAddress;
    UINT NodeOrdinal;
    /* D3DDDI_CREATEHWQUEUEFLAGS. */
    UINT Flags;
} DXGKARG_CREATEHWQUEUE;

typedef struct _DXGKARG_DESTROYHWQUEUE {
    UINT64 hHwQueue;
} DXGKARG_DESTROYHWQUEUE;

/* The buffer is complete when the progress fence has HwQueueProgressFenceId: the driver stores it (SimStore), and
 * reports MONITORED_FENCE_SIGNALED. */
typedef struct _DXGKARG_SUBMITCOMMANDTOHWQUEUE {
    void *pDmaBuffer;
    UINT64 DmaBufferSize;
    UINT64 hHwQueue;
    UINT64 hContext;
    UINT64 SubmissionFenceId;
    UINT64 HwQueueProgressFenceId;
    UINT NodeOrdinal;
    UINT Reserved;
} DXGKARG_SUBMITCOMMANDTOHWQUEUE;

/* STATUS_PENDING: SUSPEND_CONTEXT_COMPLETED with the same fence follows. */
typedef struct _DXGKARG_SUSPENDCONTEXT {
    UINT64 hContext;
    UINT64 ContextSuspendFence;
} DXGKARG_SUSPENDCONTEXT;

typedef struct _DXGKARG_RESUMECONTEXT {
    UINT64 hContext;
} DXGKARG_RESUMECONTEXT;

/* All of the call or none. The driver fills in size, alignment and flags of each allocation, and may write its
 * private data back. */
typedef struct _DXGKARG_CREATEALLOCATION {
    void *pPrivateDriverData;
    UINT64 PrivateDriverDataSize;
    /* NumAllocations times DXGK_ALLOCATIONINFO. */
    void *pAllocationInfo;
    UINT64 hAddressSpace;
    /* DXGK_NO_HANDLE without a resource. */
    UINT64 hResource;
    UINT NumAllocations;
    /* 1 Resource: it is a new one. */
    UINT Flags;
} DXGKARG_CREATEALLOCATION;

typedef struct _DXGKARG_OPENALLOCATION {
    void *pPrivateDriverData;
    UINT64 PrivateDriverDataSize;
    UINT64 hDevice;
    UINT64 hAllocation;
    UINT64 hDeviceSpecificAllocation;
    /* 1 Create. */
    UINT Flags;
    UINT Reserved;
} DXGKARG_OPENALLOCATION;

typedef struct _DXGKARG_CLOSEALLOCATION {
    UINT64 hDevice;
    UINT64 hDeviceSpecificAllocation;
} DXGKARG_CLOSEALLOCATION;

typedef struct _DXGKARG_DESTROYALLOCATION {
    void *pAllocationList;
    UINT64 AllocationListSize;
    /* DXGK_NO_HANDLE, or the resource that ends. */
    UINT64 hResource;
} DXGKARG_DESTROYALLOCATION;

/* The data with which DxgkDdiCreateAllocation is called for a standard allocation. */
typedef struct _DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA {
    void *pAllocationPrivateDriverData;
    UINT64 AllocationPrivateDriverDataSize;
    /* Of the allocation, in bytes. */
    UINT64 Size;
    /* D3DKMT_STANDARDALLOCATIONTYPE. */
    UINT StandardAllocationType;
    UINT Reserved;
} DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA;

/* Writes a paging buffer for the operation, and its size, or the size 0. */
typedef struct _DXGKARG_BUILDPAGINGBUFFER {
    void *pDmaBuffer;
    UINT64 DmaBufferSize;
    UINT64 hAddressSpace;
    /* DXGK_OPERATION_UPDATE_PAGE_TABLE: the first address. */
    UINT64 Base;
    UINT64 Size;
    /* 0 DXGK_OPERATION_TRANSFER, 10 DXGK_OPERATION_UPDATE_PAGE_TABLE. */
    UINT Operation;
    UINT Reserved;
} DXGKARG_BUILDPAGINGBUFFER;

/* Writes commands that store a fence value, for the end of a paging buffer, and their size. */
typedef struct _DXGKARG_SIGNALMONITOREDFENCE {
    void *pDmaBuffer;
    UINT64 DmaBufferSize;
    UINT64 hAddressSpace;
    UINT64 MonitoredFenceGpuVa;
    UINT64 MonitoredFenceValue;
} DXGKARG_SIGNALMONITOREDFENCE;

typedef struct _DXGKARG_CREATECPUEVENT {
    UINT64 hDevice;
    /* For DxgkCbSignalEvent. */
    UINT64 hDxgCpuEvent;
    /* Out: the driver's own handle. */
    UINT64 hKmdCpuEvent;
} DXGKARG_CREATECPUEVENT;

/* When it returns, no signal of the event is in flight, and none may follow. */
typedef struct _DXGKARG_DESTROYCPUEVENT {
    UINT64 hKmdCpuEvent;
} DXGKARG_DESTROYCPUEVENT;

/* Data in and out, of one size. */
typedef struct _DXGKARG_ESCAPE {
    void *pPrivateDriverData;
    UINT64 PrivateDriverDataSize;
    /* Each of them DXGK_NO_HANDLE if the call names none. */
    UINT64 hKmdProcess;
    UINT64 hDevice;
    UINT64 hContext;
    /* D3DDDI_ESCAPEFLAGS. */
    UINT Flags;
    UINT Reserved;
} DXGKARG_ESCAPE;

/* The time of SimSetTimer has come. */
typedef struct _SIM_TIMEREXPIRED {
    UINT64 DueTime;
} SIM_TIMEREXPIRED;

/* A fault that a test injects: the packet that runs, or else the next one, faults. */
typedef struct _SIM_PAGEFAULT {
    UINT64 GpuVirtualAddress;
    /* DXGK_PAGE_FAULT_FLAGS. */
    UINT Flags;
    UINT NodeOrdinal;
} SIM_PAGEFAULT;

/* A fault that a test injects: an object of the driver fails; it signals the CPU events for this usage. */
typedef struct _SIM_OBJECTFAILED {
    UINT Usage;
    UINT Reserved;
} SIM_OBJECTFAILED;

/* Writes the driver's whole state, and its size. STATUS_INSUFFICIENT_RESOURCES: it needs a buffer of that size. */
typedef struct _SIM_SAVESTATE {
    void *pState;
    UINT64 StateSize;
    UINT64 Reserved;
} SIM_SAVESTATE;

/* After DxgkDdiStartDevice: takes what SimSaveState wrote. */
typedef struct _SIM_RESTORESTATE {
    void *pState;
    UINT64 StateSize;
    UINT64 Reserved;
} SIM_RESTORESTATE;

/* After DxgkDdiStartDevice, for each engine of hardware scheduling: the driver has a scheduling log of so many
 * entries, in memory of its own. SCHEDULING_LOG reports new ones. */
typedef struct _DXGKARG_SETSCHEDULINGLOGBUFFER {
    UINT NodeOrdinal;
    UINT NumberOfEntries;
} DXGKARG_SETSCHEDULINGLOGBUFFER;

/* The GPU uses CPU addresses, and their mapping is about to change: it accesses no memory until the end. */
typedef struct _DXGKARG_BEGINEXCLUSIVEACCESS {
    UINT64 Reserved;
} DXGKARG_BEGINEXCLUSIVEACCESS;

typedef struct _DXGKARG_ENDEXCLUSIVEACCESS {
    UINT64 Reserved;
} DXGKARG_ENDEXCLUSIVEACCESS;

/* Between the two above: the mapping of a process's fence memory grows by 64-byte slots, or is removed. */
typedef struct _SIM_IOMMUMAPPINGCHANGED {
    UINT64 hAddressSpace;
    UINT AddedSlots;
    /* 1: it is removed. */
    UINT Removed;
} SIM_IOMMUMAPPINGCHANGED;

/* Once for each allocation, after DxgkDdiCreateAllocation. A failure: it is a buffer, and not a picture. */
typedef struct _DXGKARG_DESCRIBEALLOCATION {
    UINT64 hAllocation;
    /* Out. */
    UINT Width;
    UINT Height;
    /* D3DDDIFORMAT. */
    UINT Format;
    UINT Reserved;
} DXGKARG_DESCRIBEALLOCATION;

/* An engine that stores a value above the MonitoredValue reports it: SimNativeFenceSignaled. */
typedef struct _DXGKARG_CREATENATIVEFENCE {
    UINT64 hGlobalNativeFence;
    UINT64 CurrentValue;
    /* UINT64_MAX: there are no waits. */
    UINT64 MonitoredValue;
    /* The memory of the CurrentValue: global handles of one fence on several adapters share it. */
    UINT64 StoragePage;
    UINT StorageOffset;
    /* DXGK_NATIVE_FENCE_TYPE. */
    UINT Type;
} DXGKARG_CREATENATIVEFENCE;

/* A process has the fence mapped. */
typedef struct _DXGKARG_OPENNATIVEFENCE {
    UINT64 hGlobalNativeFence;
    UINT64 hLocalNativeFence;
    UINT64 hAddressSpace;
    UINT64 GpuVirtualAddress;
    /* 1: engines may store there. */
    UINT Writable;
    UINT Reserved;
} DXGKARG_OPENNATIVEFENCE;

typedef struct _DXGKARG_CLOSENATIVEFENCE {
    UINT64 hLocalNativeFence;
} DXGKARG_CLOSENATIVEFENCE;

typedef struct _DXGKARG_DESTROYNATIVEFENCE {
    UINT64 hGlobalNativeFence;
} DXGKARG_DESTROYNATIVEFENCE;

/* Elements are DXGK_NATIVEFENCEVALUE: new MonitoredValues. The kernel then reads the CurrentValues again. */
typedef struct _DXGKARG_UPDATEMONITOREDVALUES {
    void *pValues;
    UINT64 ValuesSize;
    UINT64 Reserved;
} DXGKARG_UPDATEMONITOREDVALUES;

/* Elements are DXGK_NATIVEFENCEVALUE: the CPU changes CurrentValues, and waits of engines may end. */
typedef struct _DXGKARG_UPDATECURRENTVALUESFROMCPU {
    void *pValues;
    UINT64 ValuesSize;
    UINT64 Reserved;
} DXGKARG_UPDATECURRENTVALUESFROMCPU;

/* An engine of another adapter stored the CurrentValue of this memory. */
typedef struct _SIM_NATIVEFENCEWRITTEN {
    UINT64 StoragePage;
    UINT64 Value;
    UINT StorageOffset;
    UINT Reserved;
} SIM_NATIVEFENCEWRITTEN;

/* A queue of user-mode submission gets two logs, empty, of so many entries: SimNativeFenceLogWrite writes them. */
typedef struct _DXGKARG_SETNATIVEFENCELOGBUFFER {
    UINT64 hHwQueue;
    UINT NumberOfEntries;
    UINT Reserved;
} DXGKARG_SETNATIVEFENCELOGBUFFER;

/* Entries that the driver has not written yet are written now. */
typedef struct _DXGKARG_UPDATENATIVEFENCELOGS {
    UINT64 hHwQueue;
} DXGKARG_UPDATENATIVEFENCELOGS;

/* It is disconnected at first. */
typedef struct _DXGKARG_CREATEDOORBELL {
    UINT64 hHwQueue;
} DXGKARG_CREATEDOORBELL;

/* A failure: there is no physical doorbell. */
typedef struct _DXGKARG_CONNECTDOORBELL {
    UINT64 hHwQueue;
    /* Out, D3DDDI_DOORBELLSTATUS: 0 CONNECTED, 1 CONNECTED_NOTIFY (DxgkDdiNotifyWorkSubmission follows a ring),
     * 2: DxgkCbDisconnectDoorbell frees another queue's, and the kernel asks again. */
    UINT DoorbellStatus;
    UINT Reserved;
} DXGKARG_CONNECTDOORBELL;

typedef struct _DXGKARG_DISCONNECTDOORBELL {
    UINT64 hHwQueue;
} DXGKARG_DISCONNECTDOORBELL;

typedef struct _DXGKARG_DESTROYDOORBELL {
    UINT64 hHwQueue;
} DXGKARG_DESTROYDOORBELL;

typedef struct _DXGKARG_NOTIFYWORKSUBMISSION {
    UINT64 hHwQueue;
} DXGKARG_NOTIFYWORKSUBMISSION;

/* A client rang a connected doorbell, and the engine finds this buffer in the ring: a call for each buffer.
 * SimRingBufferCompleted answers it. */
typedef struct _SIM_RINGDOORBELL {
    void *pDmaBuffer;
    UINT64 DmaBufferSize;
    UINT64 hHwQueue;
} SIM_RINGDOORBELL;

/* The result of DxgkCbDisconnectDoorbell: with STATUS_SUCCESS the physical doorbell may be used again. */
typedef struct _SIM_DOORBELLDISCONNECTED {
    UINT64 hHwQueue;
    UINT Status;
    UINT Reserved;
} SIM_DOORBELLDISCONNECTED;

/* A fault that a test injects: the engine enters F1. It reports GPU_ENGINE_STATE_CHANGE, and loses its doorbells. */
typedef struct _SIM_ENGINETOF1 {
    UINT NodeOrdinal;
    UINT Reserved;
} SIM_ENGINETOF1;

/* Until it is destroyed, or the adapter stops, PERIODIC_MONITORED_FENCE_SIGNALED comes so long before each vsync. */
typedef struct _DXGKARG_CREATEPERIODICFRAMENOTIFICATION {
    /* In units of 100 ns. */
    UINT64 Time;
    UINT64 NotificationID;
    /* Nanoseconds from vsync to vsync, of which the first is at time 0; 0: the target is off; SIM_NEVER: there is
     * no such target. */
    UINT64 VsyncPeriod;
    /* Out. */
    UINT64 hNotification;
    UINT VidPnTargetId;
    UINT Reserved;
} DXGKARG_CREATEPERIODICFRAMENOTIFICATION;

typedef struct _DXGKARG_DESTROYPERIODICFRAMENOTIFICATION {
    UINT64 hNotification;
} DXGKARG_DESTROYPERIODICFRAMENOTIFICATION;

/* The result of DxgkCbSignalEvent. */
typedef struct _SIM_EVENTSIGNALED {
    UINT64 hEvent;
    UINT Status;
    UINT Reserved;
} SIM_EVENTSIGNALED;

/* ---- What a driver calls, from inside of a DDI only. ---- */

/* Reports an interrupt. The kernel records it, then calls DxgkDdiDpcRoutine. */
typedef struct _DXGKARGCB_NOTIFY_INTERRUPT_DATA {
    /* DXGK_INTERRUPT_TYPE: 1 DMA_COMPLETED, 2 DMA_PREEMPTED, 3 CRTC_VSYNC, 4 DMA_FAULTED, 9 DMA_PAGE_FAULTED,
     * 11 MONITORED_FENCE_SIGNALED, 12 HWQUEUE_PAGE_FAULTED, 14 PERIODIC_MONITORED_FENCE_SIGNALED,
     * 15 SCHEDULING_LOG, 16 GPU_ENGINE_TIMEOUT, 17 SUSPEND_CONTEXT_COMPLETED, 20 GPU_ENGINE_STATE_CHANGE
     * (TRANSITION_TO_F1). For 19 NATIVE_FENCE_SIGNALED see SimNativeFenceSignaled. */
    UINT InterruptType;
    UINT NodeOrdinal;
    /* SubmissionFenceId, PreemptionFenceId, FaultedFenceId, the suspend's fence, or NotificationID. */
    UINT64 FenceId;
    /* DMA_PREEMPTED. */
    UINT64 LastCompletedFenceId;
    /* SUSPEND_CONTEXT_COMPLETED. HWQUEUE_PAGE_FAULTED: the queue of FenceId, which is its progress fence value; with
     * FENCE_INVALID the context (HW_CONTEXT_VALID) or the address space (PROCESS_HANDLE_VALID). */
    UINT64 hContext;
    /* DMA_PAGE_FAULTED, HWQUEUE_PAGE_FAULTED. */
    UINT64 FaultedVirtualAddress;
    /* DXGK_PAGE_FAULT_FLAGS. */
    UINT PageFaultFlags;
    /* CRTC_VSYNC, PERIODIC_MONITORED_FENCE_SIGNALED. */
    UINT VidPnTargetId;
} DXGKARGCB_NOTIFY_INTERRUPT_DATA;

/* Has the kernel process the recorded interrupts: DxgkDdiDpcRoutine calls it. */
typedef struct _DXGKARGCB_NOTIFY_DPC {
    UINT64 Reserved;
} DXGKARGCB_NOTIFY_DPC;

/* Signals a CPU event. Not from SimTimerExpired and SimPageFault, which stand for hardware. */
typedef struct _DXGKARGCB_SIGNALEVENT {
    /* hDxgCpuEvent of DxgkDdiCreateCpuEvent. */
    UINT64 hEvent;
} DXGKARGCB_SIGNALEVENT;

/* From inside of DxgkDdiResetHwEngine: this context loses its work. */
typedef struct _DXGKARGCB_INVALIDATEHWCONTEXT {
    UINT64 hContext;
    /* 0: it caused the reset, 1: it did not. */
    UINT Reason;
    UINT Reserved;
} DXGKARGCB_INVALIDATEHWCONTEXT;

/* An engine stores 8 bytes at a GPU virtual address: a fence. */
typedef struct _SIM_STORE {
    UINT NodeOrdinal;
    UINT Reserved;
    /* The address space of the submission, or DXGK_NO_HANDLE with hHwQueue. */
    UINT64 hAddressSpace;
    /* The queue whose command buffer stores, or DXGK_NO_HANDLE. */
    UINT64 hHwQueue;
    UINT64 GpuVirtualAddress;
    UINT64 Value;
} SIM_STORE;

/* Has SimTimerExpired called at this time; SIM_NEVER for no call. There is one timer. */
typedef struct _SIM_SETTIMER {
    /* Nanoseconds of the kernel's time, as `Now` of a DDI. */
    UINT64 DueTime;
} SIM_SETTIMER;

/* Writes a line of text for people: the daemon's notes and the trace have it. */
typedef struct _SIM_DEBUGPRINT {
    void *pText;
    UINT64 TextSize;
    UINT64 Reserved;
} SIM_DEBUGPRINT;

/* An engine writes a range of memory: 4 bytes, repeated. */
typedef struct _SIM_FILLMEMORY {
    UINT NodeOrdinal;
    UINT Pattern;
    UINT64 hAddressSpace;
    /* A multiple of 4. */
    UINT64 GpuVirtualAddress;
    /* A multiple of 4. */
    UINT64 Bytes;
} SIM_FILLMEMORY;

/* An engine copies a range of memory. */
typedef struct _SIM_COPYMEMORY {
    UINT NodeOrdinal;
    UINT Reserved;
    UINT64 hAddressSpace;
    UINT64 SourceGpuVirtualAddress;
    UINT64 TargetGpuVirtualAddress;
    UINT64 Bytes;
} SIM_COPYMEMORY;

/* An engine reads the 8 bytes of a fence, and writes them to another address. */
typedef struct _SIM_LOAD {
    UINT NodeOrdinal;
    UINT Reserved;
    UINT64 hAddressSpace;
    UINT64 GpuVirtualAddress;
    UINT64 TargetGpuVirtualAddress;
} SIM_LOAD;

/* Interrupt 19 NATIVE_FENCE_SIGNALED. Elements of the list are hGlobalNativeFence, at most 64. */
typedef struct _SIM_NATIVEFENCESIGNALED {
    void *pSignaledNativeFenceArray;
    UINT64 SignaledNativeFenceArraySize;
    UINT NodeOrdinal;
    /* 0: the fences of the list are evaluated. Without a list, 1: all that are waited for, 2: monitored fences as
     * well, 3: those that the logs of hHwQueue name, or (DXGK_NO_HANDLE) of all user-mode queues of the engine. */
    UINT Evaluate;
    UINT64 hHwQueue;
} SIM_NATIVEFENCESIGNALED;

/* An engine writes an entry of a native fence log, and then the header that counts it. */
typedef struct _SIM_NATIVEFENCELOGWRITE {
    UINT64 hHwQueue;
    UINT64 hGlobalNativeFence;
    UINT64 FenceValue;
    /* When the queue reached the wait; 0 for a signal. */
    UINT64 ObservedGpuTimestamp;
    /* Never below the one of the entry before. */
    UINT64 EndGpuTimestamp;
    /* DXGK_NATIVE_FENCE_LOG_TYPE: 1 waits, 2 signals. */
    UINT LogType;
    UINT EntryIndex;
    /* The header. */
    UINT FirstFreeEntryIndex;
    UINT WraparoundCount;
} SIM_NATIVEFENCELOGWRITE;

/* The kernel stores the status where the client reads it, and then calls SimDoorbellDisconnected. */
typedef struct _DXGKARGCB_DISCONNECTDOORBELL {
    UINT64 hHwQueue;
    /* D3DDDI_DOORBELLSTATUS: 2 DISCONNECTED_RETRY, 3 DISCONNECTED_ABORT. */
    UINT DisconnectReason;
    UINT Reserved;
} DXGKARGCB_DISCONNECTDOORBELL;

/* An engine has run the oldest buffer of a queue's ring. */
typedef struct _SIM_RINGBUFFERCOMPLETED {
    UINT64 hHwQueue;
} SIM_RINGBUFFERCOMPLETED;

/* The functions that a driver may call. They return STATUS_SUCCESS, or STATUS_INVALID_DEVICE_REQUEST
 * outside of a DDI, or STATUS_INSUFFICIENT_RESOURCES after too many calls in one DDI. */
typedef struct _DXGKRNL_INTERFACE {
    UINT Size;
    UINT Version;
    void *DxgkHandle;
    NTSTATUS (*DxgkCbNotifyInterrupt)(void *DxgkHandle, const DXGKARGCB_NOTIFY_INTERRUPT_DATA *pArgs);
    NTSTATUS (*DxgkCbNotifyDpc)(void *DxgkHandle, const DXGKARGCB_NOTIFY_DPC *pArgs);
    NTSTATUS (*DxgkCbSignalEvent)(void *DxgkHandle, const DXGKARGCB_SIGNALEVENT *pArgs);
    NTSTATUS (*DxgkCbInvalidateHwContext)(void *DxgkHandle, const DXGKARGCB_INVALIDATEHWCONTEXT *pArgs);
    NTSTATUS (*SimStore)(void *DxgkHandle, const SIM_STORE *pArgs);
    NTSTATUS (*SimSetTimer)(void *DxgkHandle, const SIM_SETTIMER *pArgs);
    NTSTATUS (*SimDebugPrint)(void *DxgkHandle, const SIM_DEBUGPRINT *pArgs);
    NTSTATUS (*SimFillMemory)(void *DxgkHandle, const SIM_FILLMEMORY *pArgs);
    NTSTATUS (*SimCopyMemory)(void *DxgkHandle, const SIM_COPYMEMORY *pArgs);
    NTSTATUS (*SimLoad)(void *DxgkHandle, const SIM_LOAD *pArgs);
    NTSTATUS (*SimNativeFenceSignaled)(void *DxgkHandle, const SIM_NATIVEFENCESIGNALED *pArgs);
    NTSTATUS (*SimNativeFenceLogWrite)(void *DxgkHandle, const SIM_NATIVEFENCELOGWRITE *pArgs);
    NTSTATUS (*DxgkCbDisconnectDoorbell)(void *DxgkHandle, const DXGKARGCB_DISCONNECTDOORBELL *pArgs);
    NTSTATUS (*SimRingBufferCompleted)(void *DxgkHandle, const SIM_RINGBUFFERCOMPLETED *pArgs);
} DXGKRNL_INTERFACE;

/* The functions of a driver. NULL: it does not have it, and the comment says what happens then. `Now` is
 * the kernel's time in nanoseconds. */
typedef struct _DRIVER_INITIALIZATION_DATA {
    UINT Size;
    UINT Version;
    /* NULL: it starts; after a stop, STATUS_NOT_SUPPORTED. */
    NTSTATUS (*DxgkDdiStartDevice)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_STARTDEVICE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiStopDevice)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_STOPDEVICE *pArgs);
    /* NULL: DxgkDdiStopDevice. */
    NTSTATUS (*DxgkDdiResetFromTimeout)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_RESETFROMTIMEOUT *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiRestartFromTimeout)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_RESTARTFROMTIMEOUT *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiSetPowerState)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_SETPOWERSTATE *pArgs);
    /* NULL: STATUS_NOT_SUPPORTED. */
    NTSTATUS (*DxgkDdiQueryAdapterInfo)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_QUERYADAPTERINFO *pArgs);
    /* NULL: accepted. */
    NTSTATUS (*DxgkDdiCreateProcess)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CREATEPROCESS *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDestroyProcess)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESTROYPROCESS *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiSetVirtualMachineData)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_SETVIRTUALMACHINEDATA *pArgs);
    /* NULL: accepted. */
    NTSTATUS (*DxgkDdiCreateDevice)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CREATEDEVICE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDestroyDevice)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESTROYDEVICE *pArgs);
    /* NULL: accepted. */
    NTSTATUS (*DxgkDdiCreateContext)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CREATECONTEXT *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDestroyContext)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESTROYCONTEXT *pArgs);
    /* NULL: every buffer is good. */
    NTSTATUS (*SimValidateCommands)(void *MiniportDeviceContext, UINT64 Now, SIM_VALIDATECOMMANDS *pArgs);
    /* NULL: DMA_COMPLETED at once. */
    NTSTATUS (*DxgkDdiSubmitCommandVirtual)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_SUBMITCOMMANDVIRTUAL *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiPatch)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_PATCH *pArgs);
    /* NULL: nothing: work runs to completion. */
    NTSTATUS (*DxgkDdiPreemptCommand)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_PREEMPTCOMMAND *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiCancelCommand)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CANCELCOMMAND *pArgs);
    /* NULL: DxgkCbNotifyDpc. */
    NTSTATUS (*DxgkDdiDpcRoutine)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DPCROUTINE *pArgs);
    /* NULL: not responsive. */
    NTSTATUS (*DxgkDdiQueryEngineStatus)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_QUERYENGINESTATUS *pArgs);
    /* NULL: the engine alone. */
    NTSTATUS (*DxgkDdiQueryDependentEngineGroup)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_QUERYDEPENDENTENGINEGROUP *pArgs);
    /* NULL: it fails: the adapter is reset. */
    NTSTATUS (*DxgkDdiResetEngine)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_RESETENGINE *pArgs);
    /* NULL: it fails: the adapter is reset. */
    NTSTATUS (*DxgkDdiResetHwEngine)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_RESETHWENGINE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiResumeHwEngine)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_RESUMEHWENGINE *pArgs);
    /* NULL: STATUS_NOT_SUPPORTED. */
    NTSTATUS (*DxgkDdiCreateHwQueue)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CREATEHWQUEUE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDestroyHwQueue)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESTROYHWQUEUE *pArgs);
    /* NULL: nothing: the queue hangs. */
    NTSTATUS (*DxgkDdiSubmitCommandToHwQueue)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_SUBMITCOMMANDTOHWQUEUE *pArgs);
    /* NULL: suspended at once. */
    NTSTATUS (*DxgkDdiSuspendContext)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_SUSPENDCONTEXT *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiResumeContext)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_RESUMECONTEXT *pArgs);
    /* NULL: STATUS_NOT_SUPPORTED: standard allocations only. */
    NTSTATUS (*DxgkDdiCreateAllocation)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CREATEALLOCATION *pArgs);
    /* NULL: accepted. */
    NTSTATUS (*DxgkDdiOpenAllocation)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_OPENALLOCATION *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiCloseAllocation)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CLOSEALLOCATION *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDestroyAllocation)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESTROYALLOCATION *pArgs);
    /* NULL: none: the driver is not asked about it. */
    NTSTATUS (*DxgkDdiGetStandardAllocationDriverData)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_GETSTANDARDALLOCATIONDRIVERDATA *pArgs);
    /* NULL: the CPU does it at once. */
    NTSTATUS (*DxgkDdiBuildPagingBuffer)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_BUILDPAGINGBUFFER *pArgs);
    /* NULL: none. */
    NTSTATUS (*DxgkDdiSignalMonitoredFence)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_SIGNALMONITOREDFENCE *pArgs);
    /* NULL: STATUS_NOT_SUPPORTED. */
    NTSTATUS (*DxgkDdiCreateCpuEvent)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CREATECPUEVENT *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDestroyCpuEvent)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESTROYCPUEVENT *pArgs);
    /* NULL: STATUS_NOT_SUPPORTED. */
    NTSTATUS (*DxgkDdiEscape)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_ESCAPE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*SimTimerExpired)(void *MiniportDeviceContext, UINT64 Now, SIM_TIMEREXPIRED *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*SimPageFault)(void *MiniportDeviceContext, UINT64 Now, SIM_PAGEFAULT *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*SimObjectFailed)(void *MiniportDeviceContext, UINT64 Now, SIM_OBJECTFAILED *pArgs);
    /* NULL: no snapshots; a daemon refuses a journal. */
    NTSTATUS (*SimSaveState)(void *MiniportDeviceContext, UINT64 Now, SIM_SAVESTATE *pArgs);
    /* NULL: as SimSaveState. */
    NTSTATUS (*SimRestoreState)(void *MiniportDeviceContext, UINT64 Now, SIM_RESTORESTATE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiSetSchedulingLogBuffer)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_SETSCHEDULINGLOGBUFFER *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiBeginExclusiveAccess)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_BEGINEXCLUSIVEACCESS *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiEndExclusiveAccess)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_ENDEXCLUSIVEACCESS *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*SimIommuMappingChanged)(void *MiniportDeviceContext, UINT64 Now, SIM_IOMMUMAPPINGCHANGED *pArgs);
    /* NULL: every allocation is a buffer. */
    NTSTATUS (*DxgkDdiDescribeAllocation)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESCRIBEALLOCATION *pArgs);
    /* NULL: STATUS_NOT_SUPPORTED. */
    NTSTATUS (*DxgkDdiCreateNativeFence)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CREATENATIVEFENCE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiOpenNativeFence)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_OPENNATIVEFENCE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiCloseNativeFence)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CLOSENATIVEFENCE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDestroyNativeFence)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESTROYNATIVEFENCE *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiUpdateMonitoredValues)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_UPDATEMONITOREDVALUES *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiUpdateCurrentValuesFromCpu)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_UPDATECURRENTVALUESFROMCPU *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*SimNativeFenceWritten)(void *MiniportDeviceContext, UINT64 Now, SIM_NATIVEFENCEWRITTEN *pArgs);
    /* NULL: STATUS_NOT_SUPPORTED: no user-mode submission. */
    NTSTATUS (*DxgkDdiSetNativeFenceLogBuffer)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_SETNATIVEFENCELOGBUFFER *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiUpdateNativeFenceLogs)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_UPDATENATIVEFENCELOGS *pArgs);
    /* NULL: STATUS_NOT_SUPPORTED. */
    NTSTATUS (*DxgkDdiCreateDoorbell)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CREATEDOORBELL *pArgs);
    /* NULL: it fails. */
    NTSTATUS (*DxgkDdiConnectDoorbell)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CONNECTDOORBELL *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDisconnectDoorbell)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DISCONNECTDOORBELL *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDestroyDoorbell)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESTROYDOORBELL *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiNotifyWorkSubmission)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_NOTIFYWORKSUBMISSION *pArgs);
    /* NULL: nothing: the queue hangs. */
    NTSTATUS (*SimRingDoorbell)(void *MiniportDeviceContext, UINT64 Now, SIM_RINGDOORBELL *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*SimDoorbellDisconnected)(void *MiniportDeviceContext, UINT64 Now, SIM_DOORBELLDISCONNECTED *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*SimEngineToF1)(void *MiniportDeviceContext, UINT64 Now, SIM_ENGINETOF1 *pArgs);
    /* NULL: STATUS_UNSUCCESSFUL. */
    NTSTATUS (*DxgkDdiCreatePeriodicFrameNotification)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_CREATEPERIODICFRAMENOTIFICATION *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*DxgkDdiDestroyPeriodicFrameNotification)(void *MiniportDeviceContext, UINT64 Now, DXGKARG_DESTROYPERIODICFRAMENOTIFICATION *pArgs);
    /* NULL: nothing. */
    NTSTATUS (*SimEventSignaled)(void *MiniportDeviceContext, UINT64 Now, SIM_EVENTSIGNALED *pArgs);
} DRIVER_INITIALIZATION_DATA;

/* The one function that the shared object exports. It keeps pDxgkrnl, which lasts as long as the process, stores the
 * context that each DDI gets, and returns its table, which lasts as well; NULL: it cannot start. */
const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pMiniportDeviceContext);

#ifdef __cplusplus
}
#endif

#endif
