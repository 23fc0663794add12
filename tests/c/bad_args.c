/* Bad arguments of every exported call: NULL; handle 0, of a wrong type, destroyed, of another process, or global instead
 * of local; reserved bits, counts and pointers. Each call is refused with INVALID_PARAMETER (INVALID_HANDLE for NT
 * handles) and leaves the caller's memory unchanged. The same arguments without the fault succeed. */
#include "bad_args.h"
#include <fcntl.h>

#define RESERVED 0x80000000u

static uint64_t counter;
static int event;
static HANDLE shared_object, shared_native;

#define nothing_to_undo (void)0

/* ---- adapters, devices, contexts ---- */

CALL(EnumAdapters2, D3DKMT_ENUMADAPTERS2, (*a = (D3DKMT_ENUMADAPTERS2){34, b.infos}),
     close_adapter(b.infos[0].hAdapter));
CALL(EnumAdapters3, D3DKMT_ENUMADAPTERS3, (*a = (D3DKMT_ENUMADAPTERS3){.NumAdapters = 34, .pAdapters = b.infos}),
     close_adapter(b.infos[0].hAdapter));
static LUID luid;
CALL(OpenAdapterFromLuid, D3DKMT_OPENADAPTERFROMLUID, (*a = (D3DKMT_OPENADAPTERFROMLUID){luid, POISON}),
     close_adapter(a->hAdapter));
CALL(OpenAdapterFromDeviceName, D3DKMT_OPENADAPTERFROMDEVICENAME, a->pDeviceName = L"none", nothing_to_undo);
CALL(OpenAdapterFromHdc, D3DKMT_OPENADAPTERFROMHDC, a->hDc = &b, nothing_to_undo);
CALL(Escape, D3DKMT_ESCAPE, a->hAdapter = handle_of(ADAPTER), nothing_to_undo);
CALL(IsFeatureEnabled, D3DKMT_ISFEATUREENABLED,
     (*a = (D3DKMT_ISFEATUREENABLED){handle_of(ADAPTER), DXGK_FEATURE_KMD_SIGNAL_CPU_EVENT, {0}}), nothing_to_undo);
CALL(CloseAdapter, D3DKMT_CLOSEADAPTER, a->hAdapter = open_adapter(NULL), nothing_to_undo);
CALL(QueryAdapterInfo, D3DKMT_QUERYADAPTERINFO,
     (*a = (D3DKMT_QUERYADAPTERINFO){handle_of(ADAPTER), KMTQAITYPE_ADAPTERTYPE, b.data, 4}), nothing_to_undo);
CALL(CreateDevice, D3DKMT_CREATEDEVICE, (a->hAdapter = handle_of(ADAPTER), a->hDevice = POISON),
     destroy_device(a->hDevice));
CALL(DestroyDevice, D3DKMT_DESTROYDEVICE, a->hDevice = create_device(handle_of(ADAPTER)), nothing_to_undo);
CALL(GetDeviceState, D3DKMT_GETDEVICESTATE,
     (*a = (D3DKMT_GETDEVICESTATE){.hDevice = handle_of(DEVICE), .StateType = D3DKMT_DEVICESTATE_EXECUTION}),
     nothing_to_undo);
CALL(MarkDeviceAsError, D3DKMT_MARKDEVICEASERROR,
     (*a = (D3DKMT_MARKDEVICEASERROR){create_device(handle_of(ADAPTER)), D3DKMT_DEVICE_ERROR_REASON_GENERIC}),
     destroy_device(a->hDevice));
CALL(CreateContextVirtual, D3DKMT_CREATECONTEXTVIRTUAL, (a->hDevice = handle_of(DEVICE), a->hContext = POISON),
     destroy_context(a->hContext));
CALL(DestroyContext, D3DKMT_DESTROYCONTEXT, a->hContext = create_context(handle_of(DEVICE), 0), nothing_to_undo);
#define priority_args (a->hContext = handle_of(CONTEXT), a->Priority = 0)
CALL(SetContextSchedulingPriority, D3DKMT_SETCONTEXTSCHEDULINGPRIORITY, priority_args, nothing_to_undo);
CALL(GetContextSchedulingPriority, D3DKMT_GETCONTEXTSCHEDULINGPRIORITY, priority_args, nothing_to_undo);
CALL(SetContextInProcessSchedulingPriority, D3DKMT_SETCONTEXTINPROCESSSCHEDULINGPRIORITY, priority_args,
     nothing_to_undo);
CALL(GetContextInProcessSchedulingPriority, D3DKMT_GETCONTEXTINPROCESSSCHEDULINGPRIORITY, priority_args,
     nothing_to_undo);
CALL(SubmitCommand, D3DKMT_SUBMITCOMMAND,
     (a->BroadcastContextCount = 1, a->BroadcastContext[0] = handle_of(CONTEXT), a->pPrivateDriverData = b.data,
      a->PrivateDriverDataSize = 8),
     nothing_to_undo);

/* ---- sync objects ---- */

static handle_t new_object(UINT type, UINT flags)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = {.hDevice = handle_of(DEVICE)};
    args.Info.Type = type;
    args.Info.Flags.Value = flags;
    if (type == D3DDDI_SEMAPHORE)
        args.Info.Semaphore.MaxCount = 1u << 20, args.Info.Semaphore.InitialCount = 1u << 10;
    EXPECT(D3DKMTCreateSynchronizationObject2(&args), STATUS_SUCCESS);
    if (flags == 0x1)
        handles[__builtin_ctz(GLOBAL)] = args.Info.SharedHandle;
    return args.hSyncObject;
}

CALL(CreateSynchronizationObject, D3DKMT_CREATESYNCHRONIZATIONOBJECT,
     (a->hDevice = handle_of(DEVICE), a->Info.Type = D3DDDI_SYNCHRONIZATION_MUTEX, a->hSyncObject = POISON),
     EXPECT(destroy_object(a->hSyncObject), STATUS_SUCCESS));
CALL(CreateSynchronizationObject2, D3DKMT_CREATESYNCHRONIZATIONOBJECT2,
     (a->hDevice = handle_of(DEVICE), a->Info.Type = D3DDDI_MONITORED_FENCE, a->hSyncObject = POISON,
      a->Info.SharedHandle = POISON),
     EXPECT(destroy_object(a->hSyncObject), STATUS_SUCCESS));
CALL(DestroySynchronizationObject, D3DKMT_DESTROYSYNCHRONIZATIONOBJECT,
     a->hSyncObject = new_object(D3DDDI_MONITORED_FENCE, 0), nothing_to_undo);
CALL(OpenSynchronizationObject, D3DKMT_OPENSYNCHRONIZATIONOBJECT,
     (a->hSharedHandle = handle_of(GLOBAL), a->hSyncObject = POISON),
     EXPECT(destroy_object(a->hSyncObject), STATUS_SUCCESS));
CALL(CreateNativeFence, D3DKMT_CREATENATIVEFENCE, (a->hDevice = handle_of(DEVICE), a->hSyncObject = POISON),
     EXPECT(destroy_object(a->hSyncObject), STATUS_SUCCESS));
#define one_fence (b.objects[0] = handle_of(FENCE), b.values[0] = ++counter)
CALL(SignalSynchronizationObjectFromCpu, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU,
     (one_fence, *a = (D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU){handle_of(DEVICE), 1, b.objects, b.values, {{{0}}}}),
     nothing_to_undo);
CALL(WaitForSynchronizationObjectFromCpu, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU,
     (b.objects[0] = handle_of(FENCE), a->hDevice = handle_of(DEVICE), a->ObjectCount = 1,
      a->ObjectHandleArray = b.objects, a->FenceValueArray = b.values, a->hAsyncEvent = (HANDLE)(intptr_t)event),
     take_event(event, 0));
#define from_gpu                                                              \
    (one_fence, a->hContext = handle_of(CONTEXT), a->ObjectCount = 1,         \
     a->ObjectHandleArray = b.objects, a->MonitoredFenceValueArray = b.values)
CALL(SignalSynchronizationObjectFromGpu, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, from_gpu, nothing_to_undo);
CALL(WaitForSynchronizationObjectFromGpu, D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU, (from_gpu, b.values[0] = 0),
     nothing_to_undo);
CALL(SignalSynchronizationObjectFromGpu2, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2,
     (one_fence, b.contexts[0] = handle_of(CONTEXT), a->ObjectCount = 1, a->ObjectHandleArray = b.objects,
      a->BroadcastContextCount = 1, a->BroadcastContextArray = b.contexts, a->MonitoredFenceValueArray = b.values),
     nothing_to_undo);
#define legacy_args                                                           \
    (a->hContext = handle_of(CONTEXT), a->ObjectCount = 1, a->ObjectHandleArray[0] = handle_of(SEMAPHORE))
CALL(WaitForSynchronizationObject, D3DKMT_WAITFORSYNCHRONIZATIONOBJECT, legacy_args, nothing_to_undo);
CALL(WaitForSynchronizationObject2, D3DKMT_WAITFORSYNCHRONIZATIONOBJECT2, legacy_args, nothing_to_undo);
CALL(SignalSynchronizationObject, D3DKMT_SIGNALSYNCHRONIZATIONOBJECT, legacy_args, nothing_to_undo);
CALL(SignalSynchronizationObject2, D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2, legacy_args, nothing_to_undo);
CALL(OpenSyncObjectFromNtHandle2, D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2,
     (a->hNtHandle = shared_object, a->hDevice = handle_of(DEVICE), a->hSyncObject = POISON),
     EXPECT(destroy_object(a->hSyncObject), STATUS_SUCCESS));
CALL(OpenNativeFenceFromNtHandle, D3DKMT_OPENNATIVEFENCEFROMNTHANDLE,
     (a->hNtHandle = shared_native, a->hDevice = handle_of(DEVICE), a->hSyncObject = POISON),
     EXPECT(destroy_object(a->hSyncObject), STATUS_SUCCESS));
CALL(CreateSyncFile, D3DKMT_CREATESYNCFILE,
     (*a = (D3DKMT_CREATESYNCFILE){handle_of(DEVICE), handle_of(FENCE), 0, POISON}), close((int)a->hSyncFile));
CALL(WaitSyncFile, D3DKMT_WAITSYNCFILE, nothing_to_undo; (void)a, nothing_to_undo);
CALL(OpenSyncObjectFromSyncFile, D3DKMT_OPENSYNCOBJECTFROMSYNCFILE, nothing_to_undo; (void)a, nothing_to_undo);

/* ---- keyed mutexes ---- */

static NTSTATUS destroy_mutex(handle_t mutex)
{
    return D3DKMTDestroyKeyedMutex(&(D3DKMT_DESTROYKEYEDMUTEX){mutex});
}

static handle_t new_mutex(void)
{
    D3DKMT_CREATEKEYEDMUTEX args = {.InitialValue = 0};
    EXPECT(D3DKMTCreateKeyedMutex(&args), STATUS_SUCCESS);
    handles[__builtin_ctz(GLOBAL_MUTEX)] = args.hSharedHandle;
    return args.hKeyedMutex;
}

static void release(void)
{
    EXPECT(D3DKMTReleaseKeyedMutex(&(D3DKMT_RELEASEKEYEDMUTEX){handle_of(KEYED_MUTEX), 0, 0}), STATUS_SUCCESS);
}

/* Acquires the mutex if it is not owned yet. */
static handle_t own_mutex(void)
{
    LARGE_INTEGER poll = {.QuadPart = 0};
    D3DKMT_ACQUIREKEYEDMUTEX args = {handle_of(KEYED_MUTEX), 0, &poll, 0};
    EXPECT(D3DKMTAcquireKeyedMutex(&args), STATUS_SUCCESS);
    return args.hKeyedMutex;
}

#define with_data (a->pPrivateRuntimeData = b.data, a->PrivateRuntimeDataSize = 6)
CALL(CreateKeyedMutex, D3DKMT_CREATEKEYEDMUTEX, a->hKeyedMutex = POISON,
     EXPECT(destroy_mutex(a->hKeyedMutex), STATUS_SUCCESS));
CALL(CreateKeyedMutex2, D3DKMT_CREATEKEYEDMUTEX2, (with_data, a->hKeyedMutex = POISON, a->hSharedHandle = POISON),
     EXPECT(destroy_mutex(a->hKeyedMutex), STATUS_SUCCESS));
CALL(OpenKeyedMutex, D3DKMT_OPENKEYEDMUTEX, (a->hSharedHandle = handle_of(GLOBAL_MUTEX), a->hKeyedMutex = POISON),
     EXPECT(destroy_mutex(a->hKeyedMutex), STATUS_SUCCESS));
CALL(OpenKeyedMutex2, D3DKMT_OPENKEYEDMUTEX2,
     (with_data, a->hSharedHandle = handle_of(GLOBAL_MUTEX), a->hKeyedMutex = POISON),
     EXPECT(destroy_mutex(a->hKeyedMutex), STATUS_SUCCESS));
static handle_t fresh_mutex(void)
{
    D3DKMT_OPENKEYEDMUTEX args = {.hSharedHandle = handle_of(GLOBAL_MUTEX)};
    EXPECT(D3DKMTOpenKeyedMutex(&args), STATUS_SUCCESS);
    return args.hKeyedMutex;
}
CALL(DestroyKeyedMutex, D3DKMT_DESTROYKEYEDMUTEX, a->hKeyedMutex = fresh_mutex(), nothing_to_undo);
CALL(AcquireKeyedMutex, D3DKMT_ACQUIREKEYEDMUTEX,
     (*a = (D3DKMT_ACQUIREKEYEDMUTEX){handle_of(KEYED_MUTEX), 0, &b.timeout, POISON}), release());
CALL(AcquireKeyedMutex2, D3DKMT_ACQUIREKEYEDMUTEX2,
     (with_data, a->hKeyedMutex = handle_of(KEYED_MUTEX), a->pTimeout = &b.timeout, a->FenceValue = POISON), release());

/* The mutex stays owned during the tests: each call with good arguments that releases it is followed by an acquire. */
CALL(ReleaseKeyedMutex, D3DKMT_RELEASEKEYEDMUTEX, a->hKeyedMutex = own_mutex(), nothing_to_undo);
CALL(ReleaseKeyedMutex2, D3DKMT_RELEASEKEYEDMUTEX2, (with_data, a->hKeyedMutex = own_mutex()), nothing_to_undo);

/* ---- paging and hardware queues ---- */

/* The first paging queue, which stays. */
static handle_t paging_fence;

static handle_t new_paging_queue(void)
{
    D3DKMT_CREATEPAGINGQUEUE args = {.hDevice = handle_of(DEVICE)};
    EXPECT(D3DKMTCreatePagingQueue(&args), STATUS_SUCCESS);
    paging_fence = paging_fence ? paging_fence : args.hSyncObject;
    return args.hPagingQueue;
}

static void destroy_paging_queue(handle_t queue)
{
    EXPECT(D3DKMTDestroyPagingQueue(&(D3DDDI_DESTROYPAGINGQUEUE){queue}), STATUS_SUCCESS);
}

static void free_range(uint64_t base)
{
    D3DKMT_FREEGPUVIRTUALADDRESS args = {handle_of(ADAPTER), base, 0x10000};
    EXPECT(D3DKMTFreeGpuVirtualAddress(&args), STATUS_SUCCESS);
}

static uint64_t new_range(void)
{
    D3DDDI_RESERVEGPUVIRTUALADDRESS args = {.hAdapter = handle_of(ADAPTER), .Size = 0x10000};
    EXPECT(D3DKMTReserveGpuVirtualAddress(&args), STATUS_SUCCESS);
    return args.VirtualAddress;
}

CALL(CreatePagingQueue, D3DKMT_CREATEPAGINGQUEUE, (a->hDevice = handle_of(DEVICE), a->hPagingQueue = POISON),
     destroy_paging_queue(a->hPagingQueue));
CALL(DestroyPagingQueue, D3DDDI_DESTROYPAGINGQUEUE, a->hPagingQueue = new_paging_queue(), nothing_to_undo);
CALL(ReserveGpuVirtualAddress, D3DDDI_RESERVEGPUVIRTUALADDRESS,
     (a->hPagingQueue = handle_of(PAGING_QUEUE), a->Size = 0x10000, a->VirtualAddress = POISON),
     free_range(a->VirtualAddress));
CALL(MapGpuVirtualAddress, D3DDDI_MAPGPUVIRTUALADDRESS,
     (a->hPagingQueue = handle_of(PAGING_QUEUE), a->SizeInPages = 16, a->Protection.Zero = 1,
      a->VirtualAddress = POISON),
     free_range(a->VirtualAddress));
CALL(FreeGpuVirtualAddress, D3DKMT_FREEGPUVIRTUALADDRESS,
     (*a = (D3DKMT_FREEGPUVIRTUALADDRESS){handle_of(ADAPTER), new_range(), 0x10000}), nothing_to_undo);
static uint64_t update_range;
CALL(UpdateGpuVirtualAddress, D3DKMT_UPDATEGPUVIRTUALADDRESS,
     (b.operation.OperationType = D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP, b.operation.Unmap.BaseAddress = update_range,
      b.operation.Unmap.SizeInBytes = 0x10000, a->hDevice = handle_of(DEVICE), a->hContext = handle_of(CONTEXT),
      a->hFenceObject = handle_of(FENCE), a->NumOperations = 1, a->Operations = &b.operation,
      a->FenceValue = counter++),
     nothing_to_undo);

/* ---- memory ---- */

static handle_t new_allocation(void)
{
    static void *heap;
    heap = heap ? heap : aligned_alloc(4096, 4096);
    D3DKMT_CREATESTANDARDALLOCATION standard = {.Type = D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP};
    standard.ExistingHeapData.Size = 4096;
    D3DDDI_ALLOCATIONINFO info = {.pSystemMem = heap};
    D3DKMT_CREATEALLOCATION args = {.hDevice = handle_of(DEVICE), .NumAllocations = 1};
    args.pStandardAllocation = &standard;
    args.pAllocationInfo = &info;
    args.Flags.ExistingSysMem = args.Flags.StandardAllocation = 1;
    EXPECT(D3DKMTCreateAllocation(&args), STATUS_SUCCESS);
    return info.hAllocation;
}

#define one_allocation (b.objects[0] = handle_of(ALLOCATION))
#define resident_args                                                         \
    (one_allocation, a->hPagingQueue = handle_of(PAGING_QUEUE), a->NumAllocations = 1, a->AllocationList = b.objects)
static void evict_it(void)
{
    D3DKMT_EVICT args = {.hDevice = handle_of(DEVICE), .NumAllocations = 1, .AllocationList = b.objects};
    one_allocation;
    EXPECT(D3DKMTEvict(&args), STATUS_SUCCESS);
}

/* Already resident, so that a good call completes at once. */
static void make_it_resident(void)
{
    D3DDDI_MAKERESIDENT args = {0}, *a = &args;
    resident_args;
    EXPECT(D3DKMTMakeResident(a), STATUS_PENDING);
    EXPECT(cpu_wait(handle_of(DEVICE), paging_fence, args.PagingFenceValue, 0), STATUS_SUCCESS);
}

static void lock_it(void)
{
    D3DKMT_LOCK2 args = {.hDevice = handle_of(DEVICE), .hAllocation = handle_of(ALLOCATION)};
    EXPECT(D3DKMTLock2(&args), STATUS_SUCCESS);
}

static void unlock_it(void)
{
    EXPECT(D3DKMTUnlock2(&(D3DKMT_UNLOCK2){handle_of(DEVICE), handle_of(ALLOCATION)}), STATUS_SUCCESS);
}

CALL(MakeResident, D3DDDI_MAKERESIDENT, resident_args, evict_it());
CALL(Evict, D3DKMT_EVICT,
     (one_allocation, a->hDevice = handle_of(DEVICE), a->NumAllocations = 1, a->AllocationList = b.objects),
     make_it_resident());
CALL(Lock2, D3DKMT_LOCK2, (a->hDevice = handle_of(DEVICE), a->hAllocation = handle_of(ALLOCATION)), unlock_it());
CALL(Unlock2, D3DKMT_UNLOCK2, (a->hDevice = handle_of(DEVICE), a->hAllocation = handle_of(ALLOCATION)), lock_it());
CALL(SetAllocationPriority, D3DKMT_SETALLOCATIONPRIORITY,
     (one_allocation, a->hDevice = handle_of(DEVICE), a->phAllocationList = b.objects, a->AllocationCount = 1,
      a->pPriorities = (const UINT *)b.data),
     nothing_to_undo);
CALL(GetAllocationPriority, D3DKMT_GETALLOCATIONPRIORITY,
     (one_allocation, a->hDevice = handle_of(DEVICE), a->phAllocationList = b.objects, a->AllocationCount = 1,
      a->pPriorities = (UINT *)b.data),
     nothing_to_undo);
CALL(QueryVideoMemoryInfo, D3DKMT_QUERYVIDEOMEMORYINFO, a->hAdapter = handle_of(ADAPTER), nothing_to_undo);

static void destroy_hw_queue(handle_t queue)
{
    EXPECT(D3DKMTDestroyHwQueue(&(D3DKMT_DESTROYHWQUEUE){queue}), STATUS_SUCCESS);
}

static handle_t new_hw_queue(void)
{
    D3DKMT_CREATEHWQUEUE args = {.hHwContext = handle_of(HW_CONTEXT)};
    EXPECT(D3DKMTCreateHwQueue(&args), STATUS_SUCCESS);
    return args.hHwQueue;
}

static uint64_t progress;
CALL(CreateHwQueue, D3DKMT_CREATEHWQUEUE,
     (a->hHwContext = handle_of(HW_CONTEXT), a->hHwQueue = POISON, a->pPrivateDriverData = b.data,
      a->PrivateDriverDataSize = 8),
     destroy_hw_queue(a->hHwQueue));
CALL(DestroyHwQueue, D3DKMT_DESTROYHWQUEUE, a->hHwQueue = new_hw_queue(), nothing_to_undo);
CALL(SubmitCommandToHwQueue, D3DKMT_SUBMITCOMMANDTOHWQUEUE,
     (a->hHwQueue = handle_of(HW_QUEUE), a->HwQueueProgressFenceId = ++progress, a->pPrivateDriverData = b.data,
      a->PrivateDriverDataSize = 8),
     nothing_to_undo);
CALL(SubmitSignalSyncObjectsToHwQueue, D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE,
     (one_fence, b.contexts[0] = handle_of(HW_QUEUE), a->BroadcastHwQueueCount = 1,
      a->BroadcastHwQueueArray = b.contexts, a->ObjectCount = 1, a->ObjectHandleArray = b.objects,
      a->FenceValueArray = b.values),
     nothing_to_undo);
CALL(SubmitWaitForSyncObjectsToHwQueue, D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE,
     (b.objects[0] = handle_of(FENCE),
      *a = (D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE){handle_of(HW_QUEUE), 1, b.objects, b.values}),
     nothing_to_undo);

#define OK STATUS_SUCCESS
static const struct call calls[] = {
    LINE(EnumAdapters2, OK, {NOTHING, 0, 0}),
    LINE(EnumAdapters3, OK, {NOTHING, 0, 0}),
    LINE(OpenAdapterFromLuid, OK, SET(OpenAdapterFromLuid, AdapterLuid, RESERVED)),
    LINE(OpenAdapterFromDeviceName, STATUS_INVALID_PARAMETER, {NOTHING, 0, 0}),
    LINE(OpenAdapterFromHdc, STATUS_INVALID_PARAMETER, {NOTHING, 0, 0}),
    LINE(Escape, OK, H(Escape, hAdapter, ADAPTER), N(Escape, PrivateDriverDataSize, 8)),
    LINE(IsFeatureEnabled, OK, H(IsFeatureEnabled, hAdapter, ADAPTER)),
    LINE(CloseAdapter, OK, H(CloseAdapter, hAdapter, ADAPTER)),
    LINE(QueryAdapterInfo, OK, H(QueryAdapterInfo, hAdapter, ADAPTER), P(QueryAdapterInfo, pPrivateDriverData),
         N(QueryAdapterInfo, PrivateDriverDataSize, 3)),
    LINE(CreateDevice, OK, H(CreateDevice, hAdapter, ADAPTER), SET(CreateDevice, Flags, RESERVED)),
    LINE(DestroyDevice, OK, H(DestroyDevice, hDevice, DEVICE)),
    LINE(GetDeviceState, OK, H(GetDeviceState, hDevice, DEVICE), N(GetDeviceState, StateType, 0)),
    LINE(MarkDeviceAsError, OK, H(MarkDeviceAsError, hDevice, DEVICE), SET(MarkDeviceAsError, Reason, 0x1)),
    LINE(CreateContextVirtual, OK, H(CreateContextVirtual, hDevice, DEVICE), N(CreateContextVirtual, NodeOrdinal, 99),
         N(CreateContextVirtual, EngineAffinity, 3), SET(CreateContextVirtual, Flags, RESERVED),
         N(CreateContextVirtual, PrivateDriverDataSize, 8)),
    LINE(DestroyContext, OK, H(DestroyContext, hContext, ANY_CONTEXT)),
    LINE(SetContextSchedulingPriority, OK, H(SetContextSchedulingPriority, hContext, ANY_CONTEXT),
         N(SetContextSchedulingPriority, Priority, 1000)),
    LINE(GetContextSchedulingPriority, OK, H(GetContextSchedulingPriority, hContext, ANY_CONTEXT)),
    LINE(SetContextInProcessSchedulingPriority, OK, H(SetContextInProcessSchedulingPriority, hContext, ANY_CONTEXT),
         N(SetContextInProcessSchedulingPriority, Priority, 1000)),
    LINE(GetContextInProcessSchedulingPriority, OK, H(GetContextInProcessSchedulingPriority, hContext, ANY_CONTEXT)),
    LINE(SubmitCommand, OK, H(SubmitCommand, BroadcastContext, ANY_CONTEXT), P(SubmitCommand, pPrivateDriverData),
         N(SubmitCommand, BroadcastContextCount, 0), N(SubmitCommand, BroadcastContextCount, 65),
         N(SubmitCommand, NumPrimaries, 17), N(SubmitCommand, NumHistoryBuffers, 1025)),
    LINE(CreateSynchronizationObject, OK, H(CreateSynchronizationObject, hDevice, DEVICE),
         N(CreateSynchronizationObject, Info.Type, 0), N(CreateSynchronizationObject, Info.Type, D3DDDI_FENCE)),
    LINE(CreateSynchronizationObject2, OK, H(CreateSynchronizationObject2, hDevice, DEVICE),
         N(CreateSynchronizationObject2, Info.Type, 0), N(CreateSynchronizationObject2, Info.Type, 99),
         SET(CreateSynchronizationObject2, Info.Flags, RESERVED), SET(CreateSynchronizationObject2, Info.Flags, 0x1),
         SET(CreateSynchronizationObject2, Info.Flags, 0x2)),
    LINE(DestroySynchronizationObject, OK, H(DestroySynchronizationObject, hSyncObject, ANY_OBJECT)),
    LINE(OpenSynchronizationObject, OK, H(OpenSynchronizationObject, hSharedHandle, GLOBAL)),
    LINE(CreateNativeFence, OK, H(CreateNativeFence, hDevice, DEVICE), N(CreateNativeFence, Info.Type, 9),
         SET(CreateNativeFence, Info.Flags, RESERVED), N(CreateNativeFence, Flags, 1)),
    LINE(SignalSynchronizationObjectFromCpu, OK, H(SignalSynchronizationObjectFromCpu, hDevice, DEVICE),
         IN(objects, FENCE), P(SignalSynchronizationObjectFromCpu, ObjectHandleArray),
         P(SignalSynchronizationObjectFromCpu, FenceValueArray),
         SET(SignalSynchronizationObjectFromCpu, Flags, RESERVED),
         N(SignalSynchronizationObjectFromCpu, ObjectCount, ~0u)),
    LINE(WaitForSynchronizationObjectFromCpu, OK, H(WaitForSynchronizationObjectFromCpu, hDevice, DEVICE),
         IN(objects, FENCE), P(WaitForSynchronizationObjectFromCpu, ObjectHandleArray),
         P(WaitForSynchronizationObjectFromCpu, FenceValueArray),
         SET(WaitForSynchronizationObjectFromCpu, Flags, RESERVED),
         N(WaitForSynchronizationObjectFromCpu, ObjectCount, ~0u),
         N(WaitForSynchronizationObjectFromCpu, hAsyncEvent, 1u << 20)),
    LINE(SignalSynchronizationObjectFromGpu, OK, H(SignalSynchronizationObjectFromGpu, hContext, ANY_CONTEXT),
         IN(objects, ANY_OBJECT), P(SignalSynchronizationObjectFromGpu, ObjectHandleArray),
         P(SignalSynchronizationObjectFromGpu, MonitoredFenceValueArray),
         N(SignalSynchronizationObjectFromGpu, ObjectCount, ~0u)),
    LINE(WaitForSynchronizationObjectFromGpu, OK, H(WaitForSynchronizationObjectFromGpu, hContext, ANY_CONTEXT),
         IN(objects, ANY_OBJECT), P(WaitForSynchronizationObjectFromGpu, ObjectHandleArray),
         P(WaitForSynchronizationObjectFromGpu, MonitoredFenceValueArray),
         N(WaitForSynchronizationObjectFromGpu, ObjectCount, ~0u)),
    LINE(SignalSynchronizationObjectFromGpu2, OK, IN(contexts, ANY_CONTEXT), IN(objects, ANY_OBJECT),
         P(SignalSynchronizationObjectFromGpu2, ObjectHandleArray),
         P(SignalSynchronizationObjectFromGpu2, BroadcastContextArray),
         P(SignalSynchronizationObjectFromGpu2, MonitoredFenceValueArray),
         SET(SignalSynchronizationObjectFromGpu2, Flags, RESERVED),
         N(SignalSynchronizationObjectFromGpu2, BroadcastContextCount, 0)),
    LINE(WaitForSynchronizationObject, OK, H(WaitForSynchronizationObject, hContext, ANY_CONTEXT),
         H(WaitForSynchronizationObject, ObjectHandleArray, SEMAPHORE),
         N(WaitForSynchronizationObject, ObjectCount, 33)),
    LINE(WaitForSynchronizationObject2, OK, H(WaitForSynchronizationObject2, hContext, ANY_CONTEXT),
         H(WaitForSynchronizationObject2, ObjectHandleArray, SEMAPHORE),
         N(WaitForSynchronizationObject2, ObjectCount, 33)),
    LINE(SignalSynchronizationObject, OK, H(SignalSynchronizationObject, hContext, ANY_CONTEXT),
         H(SignalSynchronizationObject, ObjectHandleArray, SEMAPHORE), N(SignalSynchronizationObject, ObjectCount, 33),
         SET(SignalSynchronizationObject, Flags, RESERVED)),
    LINE(SignalSynchronizationObject2, OK, H(SignalSynchronizationObject2, hContext, ANY_CONTEXT),
         H(SignalSynchronizationObject2, ObjectHandleArray, SEMAPHORE),
         N(SignalSynchronizationObject2, ObjectCount, 33), SET(SignalSynchronizationObject2, Flags, RESERVED),
         N(SignalSynchronizationObject2, BroadcastContextCount, 65)),
    LINE(OpenSyncObjectFromNtHandle2, OK, H(OpenSyncObjectFromNtHandle2, hDevice, DEVICE),
         SET(OpenSyncObjectFromNtHandle2, Flags, RESERVED)),
    LINE(OpenNativeFenceFromNtHandle, OK, H(OpenNativeFenceFromNtHandle, hDevice, DEVICE),
         SET(OpenNativeFenceFromNtHandle, Flags, RESERVED)),
    LINE(CreateSyncFile, OK, H(CreateSyncFile, hDevice, DEVICE), H(CreateSyncFile, hMonitoredFence, FENCE)),
    LINE(WaitSyncFile, STATUS_NOT_SUPPORTED, {NOTHING, 0, 0}),
    LINE(OpenSyncObjectFromSyncFile, STATUS_NOT_SUPPORTED, {NOTHING, 0, 0}),
    LINE(CreateKeyedMutex, OK, {NOTHING, 0, 0}),
    LINE(CreateKeyedMutex2, OK, P(CreateKeyedMutex2, pPrivateRuntimeData), SET(CreateKeyedMutex2, Flags, RESERVED)),
    LINE(OpenKeyedMutex, OK, H(OpenKeyedMutex, hSharedHandle, GLOBAL_MUTEX)),
    LINE(OpenKeyedMutex2, OK, H(OpenKeyedMutex2, hSharedHandle, GLOBAL_MUTEX), P(OpenKeyedMutex2, pPrivateRuntimeData)),
    LINE(DestroyKeyedMutex, OK, H(DestroyKeyedMutex, hKeyedMutex, KEYED_MUTEX)),
    LINE(AcquireKeyedMutex, OK, H(AcquireKeyedMutex, hKeyedMutex, KEYED_MUTEX)),
    LINE(AcquireKeyedMutex2, OK, H(AcquireKeyedMutex2, hKeyedMutex, KEYED_MUTEX),
         P(AcquireKeyedMutex2, pPrivateRuntimeData)),
    LINE(ReleaseKeyedMutex, OK, H(ReleaseKeyedMutex, hKeyedMutex, KEYED_MUTEX)),
    LINE(ReleaseKeyedMutex2, OK, H(ReleaseKeyedMutex2, hKeyedMutex, KEYED_MUTEX),
         P(ReleaseKeyedMutex2, pPrivateRuntimeData)),
    LINE(CreatePagingQueue, OK, H(CreatePagingQueue, hDevice, DEVICE), N(CreatePagingQueue, Priority, 2),
         N(CreatePagingQueue, PhysicalAdapterIndex, 1)),
    LINE(DestroyPagingQueue, OK, H(DestroyPagingQueue, hPagingQueue, PAGING_QUEUE)),
    LINE(ReserveGpuVirtualAddress, OK, H(ReserveGpuVirtualAddress, hPagingQueue, PAGING_QUEUE | ADAPTER),
         SET(ReserveGpuVirtualAddress, Size, 1)),
    LINE(MapGpuVirtualAddress, STATUS_PENDING, H(MapGpuVirtualAddress, hPagingQueue, PAGING_QUEUE),
         H(MapGpuVirtualAddress, hAllocation, NO_HANDLE), SET(MapGpuVirtualAddress, Protection, RESERVED)),
    LINE(FreeGpuVirtualAddress, OK, H(FreeGpuVirtualAddress, hAdapter, ADAPTER), SET(FreeGpuVirtualAddress, Size, 1)),
    LINE(UpdateGpuVirtualAddress, OK, H(UpdateGpuVirtualAddress, hDevice, DEVICE),
         H(UpdateGpuVirtualAddress, hContext, ANY_CONTEXT), H(UpdateGpuVirtualAddress, hFenceObject, FENCE),
         P(UpdateGpuVirtualAddress, Operations), N(UpdateGpuVirtualAddress, NumOperations, 0),
         SET(UpdateGpuVirtualAddress, Flags, RESERVED)),
    LINE(MakeResident, OK, H(MakeResident, hPagingQueue, PAGING_QUEUE), IN(objects, ALLOCATION),
         P(MakeResident, AllocationList), N(MakeResident, NumAllocations, 0), SET(MakeResident, Flags, RESERVED)),
    LINE(Evict, OK, H(Evict, hDevice, DEVICE), IN(objects, ALLOCATION), P(Evict, AllocationList),
         N(Evict, NumAllocations, 0), SET(Evict, Flags, RESERVED)),
    LINE(Lock2, OK, H(Lock2, hDevice, DEVICE), H(Lock2, hAllocation, ALLOCATION), SET(Lock2, Flags, RESERVED)),
    LINE(Unlock2, OK, H(Unlock2, hDevice, DEVICE), H(Unlock2, hAllocation, ALLOCATION)),
    LINE(SetAllocationPriority, OK, H(SetAllocationPriority, hDevice, DEVICE), IN(objects, ALLOCATION),
         P(SetAllocationPriority, phAllocationList), P(SetAllocationPriority, pPriorities),
         N(SetAllocationPriority, AllocationCount, 0)),
    LINE(GetAllocationPriority, OK, H(GetAllocationPriority, hDevice, DEVICE), IN(objects, ALLOCATION),
         P(GetAllocationPriority, phAllocationList), P(GetAllocationPriority, pPriorities),
         N(GetAllocationPriority, AllocationCount, 0)),
    LINE(QueryVideoMemoryInfo, OK, H(QueryVideoMemoryInfo, hAdapter, ADAPTER),
         N(QueryVideoMemoryInfo, MemorySegmentGroup, 2), N(QueryVideoMemoryInfo, PhysicalAdapterIndex, 1)),
    LINE(CreateHwQueue, OK, H(CreateHwQueue, hHwContext, HW_CONTEXT), SET(CreateHwQueue, Flags, RESERVED),
         P(CreateHwQueue, pPrivateDriverData)),
    LINE(DestroyHwQueue, OK, H(DestroyHwQueue, hHwQueue, HW_QUEUE)),
    LINE(SubmitCommandToHwQueue, OK, H(SubmitCommandToHwQueue, hHwQueue, HW_QUEUE),
         P(SubmitCommandToHwQueue, pPrivateDriverData)),
    LINE(SubmitSignalSyncObjectsToHwQueue, OK, IN(contexts, HW_QUEUE), IN(objects, FENCE),
         P(SubmitSignalSyncObjectsToHwQueue, BroadcastHwQueueArray),
         P(SubmitSignalSyncObjectsToHwQueue, ObjectHandleArray), P(SubmitSignalSyncObjectsToHwQueue, FenceValueArray),
         SET(SubmitSignalSyncObjectsToHwQueue, Flags, RESERVED)),
    LINE(SubmitWaitForSyncObjectsToHwQueue, OK, H(SubmitWaitForSyncObjectsToHwQueue, hHwQueue, HW_QUEUE),
         IN(objects, FENCE), P(SubmitWaitForSyncObjectsToHwQueue, ObjectHandleArray),
         P(SubmitWaitForSyncObjectsToHwQueue, FenceValueArray)),
};

/* ---- NT handles, names, and calls that take no struct ---- */

/* Values that are no NT handle: none, a closed descriptor, an open one of another kind. */
static void nt_handles(void)
{
    int plain = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const uint64_t numbers[] = {0, 1u << 20, (uint64_t)-1, (uint64_t)plain, (uint64_t)event, handle_of(FENCE)};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        HANDLE number = (HANDLE)numbers[i];
        D3DKMT_OPENSYNCOBJECTFROMNTHANDLE first = {number, POISON};
        EXPECT(D3DKMTOpenSyncObjectFromNtHandle(&first), STATUS_INVALID_HANDLE);
        D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 second = {.hNtHandle = number, .hDevice = handle_of(DEVICE)};
        EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&second), STATUS_INVALID_HANDLE);
        D3DKMT_OPENNATIVEFENCEFROMNTHANDLE native = {.hNtHandle = number, .hDevice = handle_of(DEVICE)};
        EXPECT(D3DKMTOpenNativeFenceFromNtHandle(&native), STATUS_INVALID_HANDLE);
        D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE mutex = {.hNtHandle = number, .hKeyedMutex = POISON};
        EXPECT(D3DKMTOpenKeyedMutexFromNtHandle(&mutex), STATUS_INVALID_HANDLE);
        CHECK(first.hSyncObject == POISON && mutex.hKeyedMutex == POISON, "a failed call wrote its output");
    }
    close(plain);
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle(NULL), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTOpenKeyedMutexFromNtHandle(NULL), STATUS_INVALID_PARAMETER);
    D3DKMT_OPENKEYEDMUTEXFROMNTHANDLE mutex = {.hNtHandle = shared_object, .hKeyedMutex = POISON};
    EXPECT(D3DKMTOpenKeyedMutexFromNtHandle(&mutex), STATUS_OBJECT_TYPE_MISMATCH);
    CHECK(mutex.hKeyedMutex == POISON, "a failed call wrote its output");
}

static void names(void)
{
    EXPECT(D3DKMTOpenSyncObjectNtHandleFromName(NULL), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTOpenNtHandleFromName(NULL), STATUS_INVALID_PARAMETER);
    static const uint16_t text[] = u"\\BaseNamedObjects\\bad args";
    const USHORT bytes = sizeof text - sizeof *text;
    UNICODE_STRING good = {bytes, bytes, text}, odd = {bytes - 1, bytes, text}, null = {bytes, bytes, NULL};
    OBJECT_ATTRIBUTES none = {.Length = sizeof none}, size = {.Length = 1, .ObjectName = &good};
    OBJECT_ATTRIBUTES no_text = {.Length = sizeof no_text, .ObjectName = &null};
    OBJECT_ATTRIBUTES half = {.Length = sizeof half, .ObjectName = &odd};
    const struct {
        OBJECT_ATTRIBUTES *attributes;
        NTSTATUS status;
    } bads[] = {{NULL, STATUS_INVALID_PARAMETER}, {&none, STATUS_INVALID_PARAMETER}, {&size, STATUS_INVALID_PARAMETER},
                {&no_text, STATUS_INVALID_PARAMETER}, {&half, STATUS_OBJECT_NAME_INVALID}};
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        D3DKMT_OPENNTHANDLEFROMNAME open = {0x20000, bads[i].attributes, &b};
        EXPECT(D3DKMTOpenNtHandleFromName(&open), bads[i].status);
        EXPECT(D3DKMTOpenSyncObjectNtHandleFromName(&open), bads[i].status);
        CHECK(open.hNtHandle == &b, "a failed call wrote its output");
    }
}

static void sharing(handle_t shareable)
{
    HANDLE out = &b;
    for (int kind = 0; kind < KINDS; kind++)
        EXPECT(D3DKMTShareObjects(1, &handles[kind], NULL, 0x20000, &out), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTShareObjects(0, &shareable, NULL, 0x20000, &out), STATUS_INVALID_PARAMETER);
    handle_t four[4] = {shareable, shareable, shareable, shareable};
    EXPECT(D3DKMTShareObjects(4, four, NULL, 0x20000, &out), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTShareObjects(1, NULL, NULL, 0x20000, &out), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTShareObjects(1, &shareable, NULL, 0x20000, NULL), STATUS_INVALID_PARAMETER);
    CHECK(out == &b, "a failed call wrote its output");
}

static void processes(void)
{
    D3DKMT_SCHEDULINGPRIORITYCLASS class = 77;
    EXPECT(D3DKMTGetProcessSchedulingPriorityClass(NULL, &class), STATUS_INVALID_HANDLE);
    EXPECT(D3DKMTGetProcessSchedulingPriorityClass((HANDLE)(intptr_t)event, &class), STATUS_INVALID_HANDLE);
    EXPECT(D3DKMTGetProcessSchedulingPriorityClass((HANDLE)-1, NULL), STATUS_INVALID_PARAMETER);
    CHECK(class == 77, "a failed call wrote its output");
    EXPECT(D3DKMTSetProcessSchedulingPriorityClass(NULL, 2), STATUS_INVALID_HANDLE);
    EXPECT(D3DKMTSetProcessSchedulingPriorityClass((HANDLE)-1, 6), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTOpenAdapterFromGdiDisplayName(NULL), STATUS_UNSUCCESSFUL);
}

/* ---- handles of all kinds ---- */

static HANDLE share(handle_t object)
{
    HANDLE nt_handle = NULL;
    EXPECT(D3DKMTShareObjects(1, &object, NULL, D3DDDI_SYNC_OBJECT_ALL_ACCESS, &nt_handle), OK);
    return nt_handle;
}

static handle_t new_native(void)
{
    D3DKMT_CREATENATIVEFENCE args = {.hDevice = handle_of(DEVICE), .Info = {.Flags = {.Value = 0x3}}};
    EXPECT(D3DKMTCreateNativeFence(&args), OK);
    return args.hSyncObject;
}

/* Another process with more handles than this one ever gets. It prints the last one and ends with its input. */
static pid_t neighbour(int *input, handle_t *foreign)
{
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0, "pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        close(to[1]);
        handle_t device = create_device(open_adapter(NULL)), handle = 0;
        for (int i = 0; i < 2000; i++) {
            D3DKMT_CREATESYNCHRONIZATIONOBJECT args = {.hDevice = device};
            args.Info.Type = D3DDDI_SYNCHRONIZATION_MUTEX;
            EXPECT(D3DKMTCreateSynchronizationObject(&args), OK);
            handle = args.hSyncObject;
        }
        CHECK(write(from[1], &handle, sizeof handle) == sizeof handle, "write");
        CHECK(read(to[0], &handle, 1) == 0, "read");
        EXPECT(destroy_object(handle), OK);
        _exit(failures != 0);
    }
    close(to[0]);
    close(from[1]);
    CHECK(read(from[0], foreign, sizeof *foreign) == sizeof *foreign, "the other process printed no handle");
    close(from[0]);
    *input = to[1];
    return child;
}

static void make_handles(void)
{
    handles[__builtin_ctz(ADAPTER)] = open_adapter(&luid);
    handles[__builtin_ctz(DEVICE)] = create_device(handle_of(ADAPTER));
    handles[__builtin_ctz(CONTEXT)] = create_context(handle_of(DEVICE), 0);
    D3DKMT_CREATECONTEXTVIRTUAL hardware = {.hDevice = handle_of(DEVICE), .Flags = {.Value = 0x10}};
    EXPECT(D3DKMTCreateContextVirtual(&hardware), OK);
    handles[__builtin_ctz(HW_CONTEXT)] = hardware.hContext;
    handles[__builtin_ctz(HW_QUEUE)] = new_hw_queue();
    handles[__builtin_ctz(FENCE)] = new_object(D3DDDI_MONITORED_FENCE, 0);
    handles[__builtin_ctz(SEMAPHORE)] = new_object(D3DDDI_SEMAPHORE, 0x1);
    handles[__builtin_ctz(KEYED_MUTEX)] = new_mutex();
    handles[__builtin_ctz(PAGING_QUEUE)] = new_paging_queue();
    handles[__builtin_ctz(DESTROYED)] = new_object(D3DDDI_MONITORED_FENCE, 0);
    EXPECT(destroy_object(handle_of(DESTROYED)), OK);
    handles[__builtin_ctz(ALLOCATION)] = new_allocation();
    make_it_resident();
    lock_it();
    update_range = new_range();
    event = new_event();
}

int main(void)
{
    int input = -1;
    pid_t child = neighbour(&input, &handles[__builtin_ctz(FOREIGN)]);
    make_handles();
    handle_t shareable = new_object(D3DDDI_SYNCHRONIZATION_MUTEX, 0x3), native = new_native();
    shared_object = share(shareable);
    shared_native = share(native);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        printf("%s: %d refused\n", calls[i].name, try_call(&calls[i]));
    nt_handles();
    names();
    sharing(shareable);
    processes();

    close((int)(intptr_t)shared_object);
    close((int)(intptr_t)shared_native);
    close(event);
    EXPECT(destroy_object(handle_of(SEMAPHORE)), OK);
    EXPECT(destroy_object(shareable), OK);
    EXPECT(destroy_object(native), OK);
    EXPECT(destroy_mutex(handle_of(KEYED_MUTEX)), OK);
    destroy_device(handle_of(DEVICE));
    close_adapter(handle_of(ADAPTER));
    close(input);
    CHECK(child_end(child) == 0, "the other process failed");
    printf("bad_args: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
