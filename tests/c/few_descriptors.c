/* A program at its limit of descriptors: what needs one is NO_MEMORY. With free descriptors everything works again. Likewise
 * below the size of file that the memory of an allocation takes. */
#include "check.h"
#include "locks.h"
#include <fcntl.h>
#include <gpupv_allocation.h>
#include <gpupv_umd.h>
#include <sys/resource.h>

/* Of a notification. The Linux driver merges it with others. */
#ifdef DEV_DXG
#define STATUS_OF_NO_EVENT STATUS_INVALID_PARAMETER
#else
#define STATUS_OF_NO_EVENT STATUS_INVALID_HANDLE
#endif

enum { LIMIT = 128, FENCES = 66, MORE_FENCES = 300 };

static int filled[LIMIT], filled_count;

static void use_all(void)
{
    while ((filled[filled_count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        filled_count++;
    CHECK(errno == EMFILE, "open: %s", strerror(errno));
}

static void free_all(void)
{
    while (filled_count > 0)
        close(filled[--filled_count]);
}

static NTSTATUS create(handle_t device)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = {.hDevice = device};
    args.Info.Type = D3DDDI_MONITORED_FENCE;
    return D3DKMTCreateSynchronizationObject2(&args);
}

/* The process gets its fence memory a page of 64 values at a time. */
static void fences(handle_t device)
{
    use_all();
    int refused = 0;
    for (int i = 0; i < FENCES; i++) {
        NTSTATUS status = create(device);
        refused += status == STATUS_NO_MEMORY;
        CHECK(status == STATUS_SUCCESS || status == STATUS_NO_MEMORY, "fence %d: %#x", i, (unsigned)status);
    }
    CHECK(refused > 0, "there was memory for %d fences", FENCES);
    free_all();
    int created = 0;
    while (created < MORE_FENCES && create(device) == STATUS_SUCCESS)
        created++;
    CHECK(created == MORE_FENCES, "%d fences were created", created);
    struct fence paging;
    create_paging_queue(device, &paging);
    CHECK(fence_value(&paging) == 0, "the paging fence is at %llu", (unsigned long long)fence_value(&paging));
}

static void device_memory(handle_t device)
{
    struct gpupv_allocation data = {.magic = GPUPV_ALLOCATION_MAGIC, .version = GPUPV_ALLOCATION_VERSION};
    data.size = 65536;
    data.flags = GPUPV_ALLOCATION_CPU_VISIBLE;
    D3DDDI_ALLOCATIONINFO2 info = {.pPrivateDriverData = &data, .PrivateDriverDataSize = sizeof data};
    D3DKMT_CREATEALLOCATION allocation = {.hDevice = device, .NumAllocations = 1, .pAllocationInfo2 = &info};
    EXPECT(D3DKMTCreateAllocation2(&allocation), STATUS_SUCCESS);
    uint32_t *words = NULL;
    use_all();
    EXPECT(lock(device, info.hAllocation, &words), STATUS_NO_MEMORY);
    free_all();
    EXPECT(lock(device, info.hAllocation, &words), STATUS_SUCCESS);
    if (words) {
        words[0] = 1;
        EXPECT(unlock(device, info.hAllocation), STATUS_SUCCESS);
    }
}

static void heap(handle_t device)
{
    enum { BYTES = 1 << 20 };
    D3DKMT_CREATESTANDARDALLOCATION standard = {.Type = D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP};
    standard.ExistingHeapData.Size = BYTES;
    D3DDDI_ALLOCATIONINFO2 info = {.pSystemMem = aligned_alloc(4096, BYTES)};
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1};
    create.pStandardAllocation = &standard;
    create.pAllocationInfo2 = &info;
    create.Flags.ExistingSysMem = create.Flags.StandardAllocation = 1;
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = BYTES - 1;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit: %s", strerror(errno));
    EXPECT(D3DKMTCreateAllocation2(&create), STATUS_NO_MEMORY);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT(D3DKMTCreateAllocation2(&create), STATUS_SUCCESS);
}

static NTSTATUS create_notification(handle_t device, int event)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = {.hDevice = device};
    args.Info.Type = D3DDDI_CPU_NOTIFICATION;
    args.Info.CPUNotification.Event = (HANDLE)(intptr_t)event;
    return D3DKMTCreateSynchronizationObject2(&args);
}

static NTSTATUS enqueue_event(handle_t context, int event)
{
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2 args = {.BroadcastContextCount = 1, .BroadcastContextArray = &context};
    args.Flags.EnqueueCpuEvent = 1;
    args.CpuEventHandle = (HANDLE)(intptr_t)event;
    return D3DKMTSignalSynchronizationObjectFromGpu2(&args);
}

static void events(handle_t device)
{
    handle_t context = create_context(device, 0);
    struct fence fence = create_fence(device, 1, 0);
    int event = new_event(), closed = dup(event);
    close(closed);
    use_all();
    filled_count--;
    close(filled[filled_count]);
    int other = filled[filled_count]; /* the only free number */
    EXPECT(cpu_wait(device, fence.handle, 2, other), STATUS_INVALID_PARAMETER);
    EXPECT(create_notification(device, other), STATUS_OF_NO_EVENT);
    use_all();
    EXPECT(cpu_wait(device, fence.handle, 2, event), STATUS_NO_MEMORY);
    EXPECT(create_notification(device, event), STATUS_NO_MEMORY);
    EXPECT(enqueue_event(context, event), STATUS_NO_MEMORY);
    free_all();
    EXPECT(cpu_wait(device, fence.handle, 2, event), STATUS_SUCCESS);
    EXPECT(cpu_signal(device, fence.handle, 2, 0), STATUS_SUCCESS);
    CHECK(take_event(event, LONG_MS) == 1, "the wait did not set its event");
    EXPECT(create_notification(device, event), STATUS_SUCCESS);
    EXPECT(enqueue_event(context, event), STATUS_SUCCESS);
    CHECK(take_event(event, LONG_MS) == 1, "the signal did not set its event");
}

int main(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = LIMIT;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit: %s", strerror(errno));
    handle_t adapter = open_adapter(0), device = create_device(adapter);
    fences(device);
    device_memory(device);
    heap(device);
    events(device);
    destroy_device(device);
    close_adapter(adapter);
    printf("few_descriptors: %s\n", failures ? "not as expected" : "all as expected");
    return failures != 0;
}
