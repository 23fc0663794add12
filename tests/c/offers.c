/* Memory that a program offers and takes back, its reservation, and what it asks and registers about itself. */
#include "check.h"
#include <sys/syscall.h>

/* MOST: allocations of one offer or reclaim. */
enum { PAGE_BYTES = 4096, BYTES = 4 * PAGE_BYTES, MOST = 1024 };
#define NON_LOCAL D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL
#define CURRENT_PROCESS ((HANDLE)-1)

static LUID luid;
static handle_t adapter, device, paging_queue, resource, allocation;
static struct fence paging;
static unsigned char *heap;

static void create(void)
{
    adapter = open_adapter(&luid);
    device = create_device(adapter);
    paging_queue = create_paging_queue(device, &paging);

    heap = aligned_alloc(PAGE_BYTES, BYTES);
    memset(heap, 0x5a, BYTES);
    allocation = allocate_heap(device, heap, BYTES, &resource);
    D3DDDI_MAKERESIDENT resident = {.hPagingQueue = paging_queue, .NumAllocations = 1, .AllocationList = &allocation};
    EXPECT(D3DKMTMakeResident(&resident), STATUS_PENDING);
    EXPECT(cpu_wait(device, paging.handle, resident.PagingFenceValue, 0), STATUS_SUCCESS);
}

static D3DKMT_QUERYVIDEOMEMORYINFO memory(UINT group)
{
    D3DKMT_QUERYVIDEOMEMORYINFO query = {.hAdapter = adapter, .MemorySegmentGroup = group};
    EXPECT(D3DKMTQueryVideoMemoryInfo(&query), STATUS_SUCCESS);
    return query;
}

/* Of the allocation, and of its resource, which has it alone. */
static UINT residency(void)
{
    D3DKMT_ALLOCATIONRESIDENCYSTATUS of_allocation = 77, of_resource = 77;
    D3DKMT_QUERYALLOCATIONRESIDENCY query = {
        .hDevice = device, .phAllocationList = &allocation, .AllocationCount = 1, .pResidencyStatus = &of_allocation};
    EXPECT(D3DKMTQueryAllocationResidency(&query), STATUS_SUCCESS);
    query = (D3DKMT_QUERYALLOCATIONRESIDENCY){.hDevice = device, .hResource = resource, .pResidencyStatus = &of_resource};
    EXPECT(D3DKMTQueryAllocationResidency(&query), STATUS_SUCCESS);
    CHECK(of_allocation == of_resource, "allocation %u, resource %u", of_allocation, of_resource);
    return of_allocation;
}

static NTSTATUS offer(const handle_t *resources, const handle_t *allocations, UINT count, UINT priority)
{
    D3DKMT_OFFERALLOCATIONS args = {device, resources, allocations, count, priority, {{{0}}}};
    return D3DKMTOfferAllocations(&args);
}

/* Destroys the resource of two allocations that it creates. */
static void long_lists(void)
{
    handle_t many[MOST + 1];
    for (size_t at = 0; at <= MOST; at++)
        many[at] = allocation;
    EXPECT(offer(NULL, many, MOST, D3DKMT_OFFER_PRIORITY_LOW), STATUS_SUCCESS);
    EXPECT(offer(NULL, many, MOST + 1, D3DKMT_OFFER_PRIORITY_LOW), STATUS_INVALID_PARAMETER);

    unsigned char *pages = aligned_alloc(PAGE_BYTES, 2 * PAGE_BYTES), data[64] = {1};
    D3DDDI_ALLOCATIONINFO2 infos[2] = {{0}};
    for (size_t at = 0; at < 2; at++) {
        infos[at].pSystemMem = pages + at * PAGE_BYTES;
        infos[at].pPrivateDriverData = data;
        infos[at].PrivateDriverDataSize = sizeof data;
    }
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 2, .pAllocationInfo2 = infos};
    create.Flags.CreateResource = 1;
    EXPECT(D3DKMTCreateAllocation2(&create), STATUS_SUCCESS);
    /* Resources count as many as they have allocations. */
    for (size_t at = 0; at < MOST / 2; at++)
        many[at] = create.hResource;
    many[MOST / 2] = resource;
    EXPECT(offer(many, NULL, MOST / 2, D3DKMT_OFFER_PRIORITY_LOW), STATUS_SUCCESS);
    EXPECT(offer(many, NULL, MOST / 2 + 1, D3DKMT_OFFER_PRIORITY_LOW), STATUS_INVALID_PARAMETER);
    D3DKMT_DESTROYALLOCATION2 destroy = {.hDevice = device, .hResource = create.hResource};
    EXPECT(D3DKMTDestroyAllocation2(&destroy), STATUS_SUCCESS);
    free(pages);
    D3DKMT_RECLAIMALLOCATIONS now = {device, NULL, &allocation, NULL, 1};
    EXPECT(D3DKMTReclaimAllocations(&now), STATUS_SUCCESS);
}

static void offers(void)
{
    COVERS("MEM-011 MEM-012 MEM-013 MEM-015");
    CHECK(residency() == D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINSHAREDMEMORY, "not resident");
    CHECK(memory(NON_LOCAL).CurrentUsage == BYTES, "usage %lu", (unsigned long)memory(NON_LOCAL).CurrentUsage);
    EXPECT(offer(NULL, &allocation, 1, D3DKMT_OFFER_PRIORITY_NORMAL), STATUS_SUCCESS);
    CHECK(residency() == D3DKMT_ALLOCATIONRESIDENCYSTATUS_NOTRESIDENT, "resident although offered");
    CHECK(memory(NON_LOCAL).CurrentUsage == 0, "offered memory is used");

    D3DDDI_RECLAIM_RESULT result = 77;
    D3DKMT_RECLAIMALLOCATIONS2 reclaim = {.hPagingQueue = paging_queue, .NumAllocations = 1, .HandleList = &allocation};
    reclaim.pResults = &result;
    EXPECT(D3DKMTReclaimAllocations2(&reclaim), STATUS_PENDING);
    CHECK(result == D3DDDI_RECLAIM_RESULT_OK, "result %u", result);
    EXPECT(cpu_wait(device, paging.handle, reclaim.PagingFenceValue, 0), STATUS_SUCCESS);
    CHECK(residency() == D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINSHAREDMEMORY, "not resident after the reclaim");
    reclaim.PagingFenceValue = 77;
    EXPECT(D3DKMTReclaimAllocations2(&reclaim), STATUS_SUCCESS);
    CHECK(reclaim.PagingFenceValue == 0, "there is nothing to wait for");

    /* By resource, and at once. */
    EXPECT(offer(&resource, NULL, 1, D3DKMT_OFFER_PRIORITY_AUTO), STATUS_SUCCESS);
    CHECK(residency() == D3DKMT_ALLOCATIONRESIDENCYSTATUS_NOTRESIDENT, "resident although offered");
    BOOL discarded = 77;
    D3DKMT_RECLAIMALLOCATIONS now = {device, &resource, NULL, &discarded, 1};
    EXPECT(D3DKMTReclaimAllocations(&now), STATUS_SUCCESS);
    CHECK(!discarded, "discarded %d", discarded);
    CHECK(residency() == D3DKMT_ALLOCATIONRESIDENCYSTATUS_RESIDENTINSHAREDMEMORY, "not resident after the reclaim");
    for (size_t i = 0; i < BYTES; i++)
        if (heap[i] != 0x5a) {
            CHECK(0, "byte %zu changed", i);
            break;
        }
    printf("offered, reclaimed, and as it was\n");

    COVERS("MEM-014");
    EXPECT(offer(NULL, NULL, 1, 1), STATUS_INVALID_PARAMETER);
    EXPECT(offer(&resource, &allocation, 1, 1), STATUS_INVALID_PARAMETER);
    EXPECT(offer(NULL, &allocation, 0, 1), STATUS_INVALID_PARAMETER);
    EXPECT(offer(NULL, &allocation, 1u << 30, 1), STATUS_INVALID_PARAMETER);
    EXPECT(offer(NULL, &resource, 1, 1), STATUS_INVALID_PARAMETER);
    EXPECT(offer(&allocation, NULL, 1, 1), STATUS_INVALID_PARAMETER);
    EXPECT(offer(NULL, &allocation, 1, 0), STATUS_INVALID_PARAMETER);
    long_lists();
    result = discarded = 77;
    reclaim.HandleList = &resource;
    reclaim.PagingFenceValue = 77;
    EXPECT(D3DKMTReclaimAllocations2(&reclaim), STATUS_INVALID_PARAMETER);
    now.hDevice = paging_queue;
    EXPECT(D3DKMTReclaimAllocations(&now), STATUS_INVALID_PARAMETER);
    CHECK(result == 77 && discarded == 77 && reclaim.PagingFenceValue == 77, "a failed call wrote its output");
    D3DKMT_QUERYALLOCATIONRESIDENCY query = {.hDevice = device, .phAllocationList = &allocation, .AllocationCount = 1};
    EXPECT(D3DKMTQueryAllocationResidency(&query), STATUS_INVALID_PARAMETER);
}

/* A pidfd of another process, which waits until it is killed. */
static int other_process(pid_t *child)
{
    *child = fork();
    if (*child == 0) {
        pause();
        _exit(0);
    }
    return (int)syscall(SYS_pidfd_open, *child, 0);
}

static void reservations(int foreign)
{
    COVERS("MEM-016");
    D3DKMT_QUERYVIDEOMEMORYINFO before = memory(NON_LOCAL);
    CHECK(before.CurrentReservation == 0, "something is reserved");
    D3DKMT_CHANGEVIDEOMEMORYRESERVATION args = {
        CURRENT_PROCESS, adapter, NON_LOCAL, before.AvailableForReservation, 0};
    EXPECT(D3DKMTChangeVideoMemoryReservation(&args), STATUS_SUCCESS);
    CHECK(memory(NON_LOCAL).CurrentReservation == args.Reservation, "the reservation is not shown");
    CHECK(memory(0).CurrentReservation == 0, "it is of the other segment group");
    args.Reservation++;
    EXPECT(D3DKMTChangeVideoMemoryReservation(&args), STATUS_INVALID_PARAMETER);
    CHECK(memory(NON_LOCAL).CurrentReservation == args.Reservation - 1, "a refused reservation is shown");
    args.Reservation = 0;
    EXPECT(D3DKMTChangeVideoMemoryReservation(&args), STATUS_SUCCESS);
    CHECK(memory(NON_LOCAL).CurrentReservation == 0, "the reservation is not gone");
    args.hProcess = (HANDLE)(intptr_t)foreign;
    EXPECT(D3DKMTChangeVideoMemoryReservation(&args), STATUS_ACCESS_DENIED);
    args.hProcess = (HANDLE)0x7ffffff0;
    EXPECT(D3DKMTChangeVideoMemoryReservation(&args), STATUS_INVALID_HANDLE);
    printf("reserved, and not\n");
}

static void of_the_process(int foreign)
{
    COVERS("MEM-017 MEM-018");
    D3DKMT_TRIMPROCESSCOMMITMENT trim = {.cbSize = sizeof trim, .DecommitRequested = BYTES, .NumBytesDecommitted = 77};
    EXPECT(D3DKMTTrimProcessCommitment(&trim), STATUS_SUCCESS);
    CHECK(trim.NumBytesDecommitted == 0, "the process's own memory was decommitted");
    trim.cbSize--;
    EXPECT(D3DKMTTrimProcessCommitment(&trim), STATUS_INVALID_PARAMETER);
    trim.cbSize++;
    trim.hProcess = (HANDLE)(intptr_t)foreign;
    EXPECT(D3DKMTTrimProcessCommitment(&trim), STATUS_ACCESS_DENIED);
    D3DKMT_QUERYPROCESSOFFERINFO offered = {.cbSize = sizeof offered, .DecommittableBytes = 77};
    EXPECT(D3DKMTQueryProcessOfferInfo(&offered), STATUS_SUCCESS);
    CHECK(offered.DecommittableBytes == 0, "the process's own memory can be decommitted");
    offered.hProcess = (HANDLE)(intptr_t)foreign;
    EXPECT(D3DKMTQueryProcessOfferInfo(&offered), STATUS_ACCESS_DENIED);
    D3DKMT_GETPROCESSDEVICEREMOVALSUPPORT support = {.hProcess = CURRENT_PROCESS, .AdapterLuid = luid};
    EXPECT(D3DKMTGetProcessDeviceRemovalSupport(&support), STATUS_SUCCESS);
    CHECK(support.Support == 1, "the process does not stay when an adapter is removed");
    support.AdapterLuid.HighPart ^= 0x1000;
    EXPECT(D3DKMTGetProcessDeviceRemovalSupport(&support), STATUS_INVALID_PARAMETER);

    D3DKMT_ENUMADAPTERS adapters = {.NumAdapters = 77};
    EXPECT(D3DKMTEnumAdapters(&adapters), STATUS_SUCCESS);
    CHECK(adapters.NumAdapters == 1 && adapters.Adapters[0].NumOfSources == 0, "%u adapters", adapters.NumAdapters);
    CHECK(!memcmp(&adapters.Adapters[0].AdapterLuid, &luid, sizeof luid), "another adapter");
    close_adapter(adapters.Adapters[0].hAdapter);

    EXPECT(D3DKMTFlushHeapTransitions(&(D3DKMT_FLUSHHEAPTRANSITIONS){adapter}), STATUS_SUCCESS);
    EXPECT(D3DKMTSetStablePowerState(&(D3DKMT_SETSTABLEPOWERSTATE){adapter, 1}), STATUS_SUCCESS);
    EXPECT(D3DKMTInvalidateCache(&(D3DKMT_INVALIDATECACHE){device, allocation, 0, BYTES}), STATUS_SUCCESS);
    EXPECT(D3DKMTInvalidateCache(&(D3DKMT_INVALIDATECACHE){device, allocation, 1, BYTES}), STATUS_INVALID_PARAMETER);
    printf("nothing to decommit, one adapter\n");
}

/* What the process may know of the processes that use an adapter: itself. */
static void processes(int foreign)
{
    COVERS("MEM-025 MEM-026");
    UINT ids[2] = {77, 77};
    D3DKMT_ENUMPROCESSES found = {.AdapterLuid = luid, .Buffer = ids, .BufferCount = 2};
    EXPECT(D3DKMTEnumProcesses(&found), STATUS_SUCCESS);
    CHECK(found.BufferCount == 1 && ids[0] == (UINT)getpid() && ids[1] == 77, "%u processes, %u", (UINT)found.BufferCount, ids[0]);
    found.Buffer = NULL;
    found.BufferCount = 0;
    EXPECT(D3DKMTEnumProcesses(&found), STATUS_SUCCESS);
    CHECK(found.BufferCount == 1, "%u processes", (UINT)found.BufferCount);
    found.Buffer = ids;
    found.BufferCount = 0;
    EXPECT(D3DKMTEnumProcesses(&found), STATUS_BUFFER_TOO_SMALL);
    found.AdapterLuid.HighPart ^= 0x1000;
    EXPECT(D3DKMTEnumProcesses(&found), STATUS_INVALID_PARAMETER);

    D3DKMT_GETPROCESSDEVICELOSTSUPPORT support = {.hProcess = CURRENT_PROCESS, .AdapterLuid = luid};
    EXPECT(D3DKMTGetProcessDeviceLostSupport(&support), STATUS_SUCCESS);
    CHECK(support.Support == 1, "the process does not recover from a lost device");
    support.hProcess = (HANDLE)(intptr_t)foreign;
    EXPECT(D3DKMTGetProcessDeviceLostSupport(&support), STATUS_ACCESS_DENIED);
    support = (D3DKMT_GETPROCESSDEVICELOSTSUPPORT){.AdapterLuid = {luid.LowPart, luid.HighPart ^ 0x1000}};
    EXPECT(D3DKMTGetProcessDeviceLostSupport(&support), STATUS_INVALID_PARAMETER);
    printf("the process knows itself\n");
}

/* No driver here lets properties of an allocation change. */
static void properties(void)
{
    COVERS("MEM-027");
    D3DDDI_UPDATEALLOCPROPERTY update = {.hPagingQueue = paging_queue, .hAllocation = allocation, .PagingFenceValue = 77};
    update.SetPreferredSegment = 1;
    EXPECT(D3DKMTUpdateAllocationProperty(&update), STATUS_NOT_SUPPORTED);
    CHECK(update.PagingFenceValue == 77, "a refused call wrote its result");
    update.Reserved = 1;
    EXPECT(D3DKMTUpdateAllocationProperty(&update), STATUS_INVALID_PARAMETER);
    update.PropertyMaskValue = 0;
    EXPECT(D3DKMTUpdateAllocationProperty(&update), STATUS_SUCCESS);
    CHECK(update.PagingFenceValue == 0, "nothing changes, but a fence value came");
    update.Flags.Reserved = 1;
    EXPECT(D3DKMTUpdateAllocationProperty(&update), STATUS_INVALID_PARAMETER);
    update.Flags.Value = 0;
    update.hPagingQueue = device;
    EXPECT(D3DKMTUpdateAllocationProperty(&update), STATUS_INVALID_PARAMETER);
    update.hPagingQueue = paging_queue;
    update.hAllocation = resource;
    EXPECT(D3DKMTUpdateAllocationProperty(&update), STATUS_INVALID_PARAMETER);
    printf("properties stay\n");
}

static void on_trim(D3DKMT_TRIMNOTIFICATION *notification)
{
    CHECK(!notification, "called");
}

static void on_budget(const D3DKMT_BUDGETCHANGENOTIFICATION *notification)
{
    CHECK(!notification, "called");
}

static void notifications(void)
{
    COVERS("MEM-021");
    D3DKMT_REGISTERTRIMNOTIFICATION trim = {.hDevice = device, .Callback = on_trim};
    EXPECT(D3DKMTRegisterTrimNotification(&trim), STATUS_SUCCESS);
    void *first = trim.Handle;
    trim.hDevice = 0;
    EXPECT(D3DKMTRegisterTrimNotification(&trim), STATUS_INVALID_PARAMETER);
    trim.AdapterLuid = luid;
    EXPECT(D3DKMTRegisterTrimNotification(&trim), STATUS_SUCCESS);
    CHECK(first && trim.Handle && first != trim.Handle, "handles %p and %p", first, trim.Handle);
    trim.Callback = NULL;
    EXPECT(D3DKMTRegisterTrimNotification(&trim), STATUS_INVALID_PARAMETER);
    D3DKMT_REGISTERBUDGETCHANGENOTIFICATION budget = {.hDevice = device, .Callback = on_budget};
    EXPECT(D3DKMTRegisterBudgetChangeNotification(&budget), STATUS_SUCCESS);
    budget.hDevice = adapter;
    EXPECT(D3DKMTRegisterBudgetChangeNotification(&budget), STATUS_INVALID_PARAMETER);

    /* By handle, once, and only of its kind; without a handle by callback. */
    D3DKMT_UNREGISTERBUDGETCHANGENOTIFICATION end_budget = {first};
    EXPECT(D3DKMTUnregisterBudgetChangeNotification(&end_budget), STATUS_INVALID_PARAMETER);
    end_budget.Handle = NULL;
    EXPECT(D3DKMTUnregisterBudgetChangeNotification(&end_budget), STATUS_INVALID_PARAMETER);
    end_budget.Handle = budget.Handle;
    EXPECT(D3DKMTUnregisterBudgetChangeNotification(&end_budget), STATUS_SUCCESS);
    EXPECT(D3DKMTUnregisterBudgetChangeNotification(&end_budget), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTUnregisterTrimNotification(&(D3DKMT_UNREGISTERTRIMNOTIFICATION){0}), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTUnregisterTrimNotification(&(D3DKMT_UNREGISTERTRIMNOTIFICATION){first, NULL}), STATUS_SUCCESS);
    EXPECT(D3DKMTUnregisterTrimNotification(&(D3DKMT_UNREGISTERTRIMNOTIFICATION){first, on_trim}),
           STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTUnregisterTrimNotification(&(D3DKMT_UNREGISTERTRIMNOTIFICATION){NULL, on_trim}), STATUS_SUCCESS);
    EXPECT(D3DKMTUnregisterTrimNotification(&(D3DKMT_UNREGISTERTRIMNOTIFICATION){NULL, on_trim}),
           STATUS_INVALID_PARAMETER);

    enum { MOST = 1024 };
    static void *registered[MOST];
    trim.Callback = on_trim;
    for (int i = 0; i < MOST; i++) {
        EXPECT(D3DKMTRegisterTrimNotification(&trim), STATUS_SUCCESS);
        registered[i] = trim.Handle;
    }
    EXPECT(D3DKMTRegisterTrimNotification(&trim), STATUS_NO_MEMORY);
    for (int i = 0; i < MOST; i++)
        EXPECT(D3DKMTUnregisterTrimNotification(&(D3DKMT_UNREGISTERTRIMNOTIFICATION){registered[i], NULL}),
               STATUS_SUCCESS);

    /* A registration ends with its device. */
    trim.AdapterLuid = (LUID){0};
    trim.hDevice = create_device(adapter);
    for (int i = 0; i < MOST; i++)
        EXPECT(D3DKMTRegisterTrimNotification(&trim), STATUS_SUCCESS);
    destroy_device(trim.hDevice);
    EXPECT(D3DKMTUnregisterTrimNotification(&(D3DKMT_UNREGISTERTRIMNOTIFICATION){trim.Handle, NULL}),
           STATUS_INVALID_PARAMETER);
    trim.hDevice = device;
    EXPECT(D3DKMTRegisterTrimNotification(&trim), STATUS_SUCCESS);
    EXPECT(D3DKMTUnregisterTrimNotification(&(D3DKMT_UNREGISTERTRIMNOTIFICATION){trim.Handle, NULL}), STATUS_SUCCESS);
    printf("registered up to the limit, and not\n");
}

int main(void)
{
    create();
    pid_t child;
    int foreign = other_process(&child);
    CHECK(foreign > 0, "pidfd_open: %s", strerror(errno));
    offers();
    reservations(foreign);
    of_the_process(foreign);
    processes(foreign);
    properties();
    notifications();
    kill(child, SIGKILL);
    child_end(child);
    close(foreign);
    D3DKMT_DESTROYALLOCATION2 destroy = {.hDevice = device, .hResource = resource};
    EXPECT(D3DKMTDestroyAllocation2(&destroy), STATUS_SUCCESS);
    free(heap);
    destroy_device(device);
    close_adapter(adapter);
    if (!failures)
        printf("offers: all as expected\n");
    return failures != 0;
}
