/* Allocations of the process's own memory as a user-mode driver uses them: created, mapped, made resident, used by the
 * CPU, evicted. The paging fence shows when each operation takes effect. */
#include "check.h"

enum { PAGES = 16, PAGE_BYTES = 4096, BYTES = PAGES * PAGE_BYTES };

static handle_t adapter, device, paging_queue, allocation;
static struct fence paging;
static unsigned char *heap;

static void create(void)
{
    paging_queue = create_paging_queue(device, &paging);

    heap = aligned_alloc(PAGE_BYTES, BYTES);
    memset(heap, 0x5a, BYTES);
    allocation = allocate_heap(device, heap, BYTES, NULL);
}

/* Waits until the paging fence has the value of the operation. */
static void wait_until_paged(NTSTATUS status, uint64_t value)
{
    CHECK(status == STATUS_PENDING ? value > 0 : value == 0, "status %#x with value %lu", (unsigned)status,
          (unsigned long)value);
    if (status == STATUS_PENDING) {
        EXPECT(cpu_wait(device, paging.handle, value, 0), STATUS_SUCCESS);
        CHECK(fence_value(&paging) >= value, "the paging fence has not reached its value");
    }
}

static uint64_t map(D3DGPU_VIRTUAL_ADDRESS base, UINT64 offset, UINT64 pages)
{
    D3DDDI_MAPGPUVIRTUALADDRESS args = {.hPagingQueue = paging_queue, .BaseAddress = base, .hAllocation = allocation};
    args.OffsetInPages = offset;
    args.SizeInPages = pages;
    args.Protection.Write = 1;
    NTSTATUS status = D3DKMTMapGpuVirtualAddress(&args);
    CHECK(status == STATUS_PENDING || status == STATUS_SUCCESS, "answered %#x", (unsigned)status);
    wait_until_paged(status, args.PagingFenceValue);
    return args.VirtualAddress;
}

static UINT64 used(void)
{
    D3DKMT_QUERYVIDEOMEMORYINFO query = {.hAdapter = adapter};
    query.MemorySegmentGroup = D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL;
    EXPECT(D3DKMTQueryVideoMemoryInfo(&query), STATUS_SUCCESS);
    return query.CurrentUsage;
}

static NTSTATUS make_resident(UINT count, UINT flags, UINT64 *value, UINT64 *trim)
{
    D3DDDI_MAKERESIDENT args = {.hPagingQueue = paging_queue, .NumAllocations = count, .AllocationList = &allocation};
    args.Flags.Value = flags;
    args.PagingFenceValue = args.NumBytesToTrim = 77;
    NTSTATUS status = D3DKMTMakeResident(&args);
    *value = args.PagingFenceValue;
    *trim = args.NumBytesToTrim;
    return status;
}

static NTSTATUS evict(void)
{
    D3DKMT_EVICT args = {.hDevice = device, .NumAllocations = 1, .AllocationList = &allocation, .NumBytesToTrim = 77};
    NTSTATUS status = D3DKMTEvict(&args);
    CHECK(args.NumBytesToTrim == (status == STATUS_SUCCESS ? 0 : 77), "%lu bytes to trim", (unsigned long)args.NumBytesToTrim);
    return status;
}

static void residency(void)
{
    UINT64 value, trim;
    CHECK(used() == 0, "something is resident");
    NTSTATUS status = make_resident(1, 0, &value, &trim);
    CHECK(status == STATUS_PENDING && trim == 0, "answered %#x", (unsigned)status);
    wait_until_paged(status, value);
    CHECK(used() == BYTES, "%lu bytes are resident", (unsigned long)used());
    EXPECT(make_resident(1, 0, &value, &trim), STATUS_SUCCESS);
    CHECK(value == 0, "the allocation was already resident");
    EXPECT(make_resident(0, 0, &value, &trim), STATUS_INVALID_PARAMETER);
    CHECK(value == 77 && trim == 77, "a failed call wrote its output");
    EXPECT(evict(), STATUS_SUCCESS);
    CHECK(used() == BYTES, "one count is left");
    EXPECT(evict(), STATUS_SUCCESS);
    CHECK(used() == 0, "no count is left");
    EXPECT(evict(), STATUS_INVALID_PARAMETER);
    printf("resident by counts, %d bytes, and then not\n", BYTES);
}

static void addresses(void)
{
    uint64_t whole = map(0, 0, PAGES), part = map(0, 4, 2);
    CHECK(whole && part && whole % 0x10000 == 0 && part != whole, "%#lx and %#lx", (unsigned long)whole, (unsigned long)part);
    CHECK(map(whole, 0, PAGES) == whole, "the same map again gave another address");
    EXPECT(D3DKMTFreeGpuVirtualAddress(&(D3DKMT_FREEGPUVIRTUALADDRESS){adapter, part, 2 * PAGE_BYTES}), STATUS_SUCCESS);

    /* Maps one page repeatedly; then read-only; then unmaps it. An update is of a reserved range. */
    D3DDDI_RESERVEGPUVIRTUALADDRESS reserve = {.hAdapter = adapter, .Size = 0x10000};
    EXPECT(D3DKMTReserveGpuVirtualAddress(&reserve), STATUS_SUCCESS);
    whole = reserve.VirtualAddress;
    handle_t context = create_context(device, 0);
    struct fence done = create_fence(device, 0, 0);
    D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION operations[3] = {{.OperationType = D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP}};
    operations[0].Map.BaseAddress = whole;
    operations[0].Map.SizeInBytes = BYTES;
    operations[0].Map.hAllocation = allocation;
    operations[0].Map.AllocationOffsetInBytes = PAGE_BYTES;
    operations[0].Map.AllocationSizeInBytes = PAGE_BYTES;
    operations[1].OperationType = D3DDDI_UPDATEGPUVIRTUALADDRESS_COPY;
    operations[1].Copy.SourceAddress = whole;
    operations[1].Copy.SizeInBytes = PAGE_BYTES;
    operations[1].Copy.DestAddress = whole + PAGE_BYTES;
    operations[2].OperationType = D3DDDI_UPDATEGPUVIRTUALADDRESS_UNMAP;
    operations[2].Unmap.BaseAddress = whole;
    operations[2].Unmap.SizeInBytes = PAGE_BYTES;
    operations[2].Unmap.Protection.Zero = 1;
    D3DKMT_UPDATEGPUVIRTUALADDRESS update = {.hDevice = device, .hContext = context, .hFenceObject = done.handle};
    update.NumOperations = 3;
    update.Operations = operations;
    EXPECT(D3DKMTUpdateGpuVirtualAddress(&update), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, done.handle, 1, 0), STATUS_SUCCESS);
    /* Without a size it is that of the range; a range is a multiple of it. */
    operations[0].Map.AllocationOffsetInBytes = operations[0].Map.AllocationSizeInBytes = 0;
    update.FenceValue = 1;
    EXPECT(D3DKMTUpdateGpuVirtualAddress(&update), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, done.handle, 2, 0), STATUS_SUCCESS);
    operations[0].Map.AllocationSizeInBytes = BYTES - PAGE_BYTES;
    EXPECT(D3DKMTUpdateGpuVirtualAddress(&update), STATUS_INVALID_PARAMETER);
    operations[0].Map.AllocationOffsetInBytes = PAGE_BYTES;
    operations[0].Map.AllocationSizeInBytes = BYTES;
    EXPECT(D3DKMTUpdateGpuVirtualAddress(&update), STATUS_INVALID_PARAMETER);
    destroy_context(context);
    printf("mapped whole, in part and page by page\n");
}

static void locks(void)
{
    D3DKMT_LOCK2 lock = {.hDevice = device, .hAllocation = allocation};
    for (int times = 0; times < 2; times++) {
        lock.pData = NULL;
        EXPECT(D3DKMTLock2(&lock), STATUS_SUCCESS);
        CHECK(lock.pData == heap && *(unsigned char *)lock.pData == 0x5a, "the lock gave another address");
    }
    lock.Flags.Value = 1;
    EXPECT(D3DKMTLock2(&lock), STATUS_INVALID_PARAMETER);
    D3DKMT_UNLOCK2 unlock = {device, allocation};
    EXPECT(D3DKMTUnlock2(&unlock), STATUS_SUCCESS);
    EXPECT(D3DKMTUnlock2(&unlock), STATUS_SUCCESS);
    EXPECT(D3DKMTUnlock2(&unlock), STATUS_INVALID_PARAMETER);
    printf("locked where it always was\n");
}

static void priorities(void)
{
    UINT priority = 0, low = D3DDDI_ALLOCATIONPRIORITY_LOW;
    D3DKMT_GETALLOCATIONPRIORITY get = {device, 0, &allocation, 1, &priority};
    EXPECT(D3DKMTGetAllocationPriority(&get), STATUS_SUCCESS);
    CHECK(priority == D3DDDI_ALLOCATIONPRIORITY_NORMAL, "priority %#x", priority);
    D3DKMT_SETALLOCATIONPRIORITY set = {device, 0, &allocation, 1, &low};
    EXPECT(D3DKMTSetAllocationPriority(&set), STATUS_SUCCESS);
    EXPECT(D3DKMTGetAllocationPriority(&get), STATUS_SUCCESS);
    CHECK(priority == low, "priority %#x", priority);
    get.pPriorities = NULL;
    EXPECT(D3DKMTGetAllocationPriority(&get), STATUS_INVALID_PARAMETER);
    printf("of the priority that it was given\n");
}

/* A resource with a keyed mutex and a queue mutex, shared by one NT handle: all are opened together and outlive their
 * creator. */
static void shared_by_nt_handle(void)
{
    static const char data[] = "runtime data";
    D3DKMT_CREATESTANDARDALLOCATION standard = {.Type = D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP};
    standard.ExistingHeapData.Size = BYTES;
    D3DDDI_ALLOCATIONINFO2 info = {.pSystemMem = heap};
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1, .pPrivateRuntimeData = data};
    create.PrivateRuntimeDataSize = sizeof data;
    create.pStandardAllocation = &standard;
    create.pAllocationInfo2 = &info;
    create.Flags.ExistingSysMem = create.Flags.StandardAllocation = create.Flags.CreateResource = 1;
    create.Flags.CreateShared = create.Flags.NtSecuritySharing = 1;
    EXPECT(D3DKMTCreateAllocation2(&create), STATUS_SUCCESS);
    D3DKMT_CREATEKEYEDMUTEX2 mutex = {.Flags = {.Value = 1}};
    EXPECT(D3DKMTCreateKeyedMutex2(&mutex), STATUS_SUCCESS);
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 object = {.hDevice = device};
    object.Info.Type = D3DDDI_SYNCHRONIZATION_MUTEX;
    object.Info.Flags.Value = 0x3;
    EXPECT(D3DKMTCreateSynchronizationObject2(&object), STATUS_SUCCESS);

    handle_t bundle[3] = {create.hResource, mutex.hKeyedMutex, object.hSyncObject};
    HANDLE shared = NULL, alone = NULL;
    EXPECT(D3DKMTShareObjects(3, bundle, NULL, 0x1F0003, &shared), STATUS_SUCCESS);
    EXPECT(D3DKMTShareObjects(1, bundle, NULL, 0x1F0003, &alone), STATUS_SUCCESS);
    EXPECT(D3DKMTShareObjects(2, bundle, NULL, 0x1F0003, &shared), STATUS_INVALID_PARAMETER);
    /* With a resource and no list the count is ignored. */
    D3DKMT_DESTROYALLOCATION2 destroy = {.hDevice = device, .hResource = create.hResource, .AllocationCount = 3};
    EXPECT(D3DKMTDestroyAllocation2(&destroy), STATUS_SUCCESS);

    D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE query = {.hDevice = device, .hNtHandle = shared};
    EXPECT(D3DKMTQueryResourceInfoFromNtHandle(&query), STATUS_SUCCESS);
    CHECK(query.NumAllocations == 1 && query.PrivateRuntimeDataSize == sizeof data, "other sizes");
    D3DKMT_GETSHAREDRESOURCEADAPTERLUID of = {.hNtHandle = shared};
    EXPECT(D3DKMTGetSharedResourceAdapterLuid(&of), STATUS_SUCCESS);
    CHECK(of.AdapterLuid.LowPart || of.AdapterLuid.HighPart, "a resource of no adapter");
    of.hGlobalShare = create.hResource;
    EXPECT(D3DKMTGetSharedResourceAdapterLuid(&of), STATUS_INVALID_PARAMETER);
    of.hNtHandle = NULL;
    EXPECT(D3DKMTGetSharedResourceAdapterLuid(&of), STATUS_INVALID_PARAMETER);
    char buffer[sizeof data];
    D3DDDI_OPENALLOCATIONINFO2 opened = {0};
    D3DKMT_OPENRESOURCEFROMNTHANDLE open = {.hDevice = device, .hNtHandle = shared, .NumAllocations = 1};
    open.pOpenAllocationInfo2 = &opened;
    open.pPrivateRuntimeData = buffer;
    open.PrivateRuntimeDataSize = sizeof buffer - 1;
    EXPECT(D3DKMTOpenResourceFromNtHandle(&open), STATUS_INVALID_PARAMETER);
    open.PrivateRuntimeDataSize = sizeof buffer;
    EXPECT(D3DKMTOpenResourceFromNtHandle(&open), STATUS_SUCCESS);
    CHECK(open.hResource && opened.hAllocation && open.hKeyedMutex && open.hSyncObject, "a handle is missing");
    CHECK(!memcmp(buffer, data, sizeof data), "other data");
    EXPECT(D3DKMTDestroyKeyedMutex(&(D3DKMT_DESTROYKEYEDMUTEX){open.hKeyedMutex}), STATUS_SUCCESS);
    EXPECT(destroy_object(open.hSyncObject), STATUS_SUCCESS);
    destroy.hResource = open.hResource;
    EXPECT(D3DKMTDestroyAllocation2(&destroy), STATUS_SUCCESS);
    open.hNtHandle = alone;
    EXPECT(D3DKMTOpenResourceFromNtHandle(&open), STATUS_SUCCESS);
    CHECK(!open.hKeyedMutex && !open.hSyncObject, "a resource without mutexes opened some");
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 mismatch = {.hNtHandle = alone, .hDevice = device};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&mismatch), STATUS_OBJECT_TYPE_MISMATCH);
    close((int)(intptr_t)shared);
    close((int)(intptr_t)alone);
    EXPECT(D3DKMTOpenResourceFromNtHandle(&open), STATUS_INVALID_HANDLE);
    EXPECT(D3DKMTDestroyKeyedMutex(&(D3DKMT_DESTROYKEYEDMUTEX){mutex.hKeyedMutex}), STATUS_SUCCESS);
    EXPECT(destroy_object(object.hSyncObject), STATUS_SUCCESS);
    printf("opened by one NT handle with what guards it\n");
}

int main(void)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    create();
    residency();
    addresses();
    locks();
    priorities();
    shared_by_nt_handle();
    EXPECT(D3DKMTDestroyAllocation2(&(D3DKMT_DESTROYALLOCATION2){.hDevice = device, .phAllocationList = &allocation, .AllocationCount = 1}), STATUS_SUCCESS);
    destroy_device(device);
    close_adapter(adapter);
    free(heap);
    printf("memory_tour: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
