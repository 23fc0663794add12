/* A client of the driver in C of tests/sample_kmd_c, in that driver's own formats: a picture in memory of the device,
 * that the CPU and an engine write, a command buffer that signals a CPU event, and an escape. "keeps": it keeps all of
 * it, says "ready" and waits for its end. "spin": the driver never returns from an escape. */
#define _GNU_SOURCE
#include "cpu_event.h"

enum { MAGIC = 0x31435653, ALLOCATION_MAGIC = 0x31415653, RESOURCE_MAGIC = 0x31525653, BUSY = 1, SIGNAL, FILL, PAGE_BYTES = 4096 };
enum { WIDTH = 100, HEIGHT = 64, PITCH = 512, BYTES = PITCH * HEIGHT, USAGE = 3, PATTERN = 0x5A5A1234 };

static handle_t adapter, device, context, paging_queue, picture, notification;
static struct fence paging, done;
static int event;
static uint64_t address;

static NTSTATUS allocate(uint32_t of_resource, uint32_t magic, uint32_t *pitch, handle_t *allocation)
{
    uint32_t data[4] = {magic, WIDTH, HEIGHT, 0};
    D3DDDI_ALLOCATIONINFO2 info = {.pPrivateDriverData = data, .PrivateDriverDataSize = sizeof data};
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1, .pAllocationInfo2 = &info};
    create.Flags.CreateResource = 1;
    create.pPrivateDriverData = &of_resource;
    create.PrivateDriverDataSize = sizeof of_resource;
    NTSTATUS status = D3DKMTCreateAllocation2(&create);
    *pitch = data[3];
    *allocation = info.hAllocation;
    return status;
}

/* A driver with paging buffers has work to do. */
static void wait_for_paging(NTSTATUS status, UINT64 value)
{
    CHECK(status == STATUS_SUCCESS || status == STATUS_PENDING, "answered %#010x", (unsigned)status);
    if (status == STATUS_PENDING && fence_value(&paging) < value)
        EXPECT(cpu_wait(device, paging.handle, value, 0), STATUS_SUCCESS);
}

static void allocates(void)
{
    uint32_t pitch;
    handle_t refused;
    EXPECT(allocate(RESOURCE_MAGIC, 0, &pitch, &refused), STATUS_INVALID_PARAMETER);
    EXPECT(allocate(0, ALLOCATION_MAGIC, &pitch, &refused), STATUS_INVALID_PARAMETER);
    EXPECT(allocate(RESOURCE_MAGIC, ALLOCATION_MAGIC, &pitch, &picture), STATUS_SUCCESS);
    CHECK(pitch == PITCH, "the driver wrote the pitch %u", pitch);
    D3DDDI_MAPGPUVIRTUALADDRESS map = {.hPagingQueue = paging_queue, .hAllocation = picture};
    map.SizeInPages = BYTES / PAGE_BYTES;
    map.Protection.Write = 1;
    NTSTATUS mapped = D3DKMTMapGpuVirtualAddress(&map);
    D3DDDI_MAKERESIDENT resident = {.hPagingQueue = paging_queue, .NumAllocations = 1, .AllocationList = &picture};
    NTSTATUS is_resident = D3DKMTMakeResident(&resident);
    wait_for_paging(mapped, map.PagingFenceValue);
    wait_for_paging(is_resident, resident.PagingFenceValue);
    address = map.VirtualAddress;
    printf("allocated in the driver's format\n");
}

static void submits(void)
{
    D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE usage = {.EscapeType = D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE};
    EXPECT(create_notification(device, event, SIGNAL_BY_KMD, &notification), STATUS_SUCCESS);
    usage.hSyncObject = notification;
    usage.Usage[0] = USAGE;
    EXPECT(escape(adapter, 0, DRIVER_KNOWN_ESCAPE, &usage, sizeof usage), STATUS_SUCCESS);
    uint32_t words[] = {MAGIC, BUSY, 100000, FILL, (uint32_t)address, (uint32_t)(address >> 32), BYTES, PATTERN,
                        SIGNAL, USAGE};
    D3DKMT_SUBMITCOMMAND args = {.pPrivateDriverData = words, .PrivateDriverDataSize = sizeof words};
    args.BroadcastContextCount = 1;
    args.BroadcastContext[0] = context;
    EXPECT(D3DKMTSubmitCommand(&args), STATUS_SUCCESS);
    EXPECT(gpu_signal(context, done.handle, 1), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, done.handle, 1, 0), STATUS_SUCCESS);
    CHECK(take_event(event, LONG_MS) > 0, "the driver signaled no event");
    words[1] = 99;
    EXPECT(D3DKMTSubmitCommand(&args), STATUS_INVALID_PARAMETER);
    printf("submitted in the driver's format, and its event is set\n");
}

static void reads(void)
{
    D3DKMT_LOCK2 lock = {.hDevice = device, .hAllocation = picture};
    EXPECT(D3DKMTLock2(&lock), STATUS_SUCCESS);
    const uint32_t *word = lock.pData;
    int same = word != NULL;
    for (int at = 0; same && at < BYTES / 4; at++)
        same = __atomic_load_n(&word[at], __ATOMIC_RELAXED) == PATTERN;
    CHECK(same, "the engine's bytes are not in the picture");
    EXPECT(D3DKMTUnlock2(&(D3DKMT_UNLOCK2){device, picture}), STATUS_SUCCESS);
    uint32_t data[2] = {1, 0};
    EXPECT(escape(adapter, 0, 0, data, sizeof data), STATUS_SUCCESS);
    CHECK(data[1] >= 1, "the driver has completed %u buffers", data[1]);
    printf("the engine's bytes are in the picture\n");
}

int main(int count, char **arguments)
{
    adapter = open_adapter(NULL);
    if (count > 1 && !strcmp(arguments[1], "spin")) {
        uint32_t spin[2] = {6, 0};
        CHECK(escape(adapter, 0, 0, spin, sizeof spin) != STATUS_SUCCESS, "the driver returned");
        return failures != 0;
    }
    device = create_device(adapter);
    context = create_context(device, 0);
    paging_queue = create_paging_queue(device, &paging);
    done = create_fence(device, 0, 0);
    event = new_event();
    allocates();
    submits();
    reads();
    if (count > 1) {
        printf("ready\n");
        fflush(stdout);
        getchar();
        return failures != 0;
    }
    EXPECT(D3DKMTDestroyAllocation2(&(D3DKMT_DESTROYALLOCATION2){
               .hDevice = device, .phAllocationList = &picture, .AllocationCount = 1}),
           STATUS_SUCCESS);
    EXPECT(destroy_object(notification), STATUS_SUCCESS);
    EXPECT(destroy_object(done.handle), STATUS_SUCCESS);
    destroy_context(context);
    destroy_device(device);
    close_adapter(adapter);
    printf("private formats: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
