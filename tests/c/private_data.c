/* Allocations with private driver data, as user-mode drivers of other vendors make them: 536 bytes that the host does
 * not know over the process's own memory, mapped, made resident, written by an engine, and polled by a forked child. Then
 * the simulated driver's own format, several allocations in a call, resources, and opens with the data. */
#define _GNU_SOURCE
#include "check.h"

#include <gpupv_allocation.h>
#include <gpupv_cmd.h>
#include <gpupv_escape.h>
#include <sys/mman.h>
#include "buffers.h"

enum { PAGE_BYTES = 4096, BYTES = 4 * PAGE_BYTES, WORDS = BYTES / 4, UNKNOWN_BYTES = 536 };

static handle_t adapter, device, context, paging_queue;
static struct fence paging, done;
static uint64_t last_done;
static unsigned char unknown[UNKNOWN_BYTES];

/* Memory with an inaccessible page behind it: a map beyond its end finds no neighbour to attach. */
static void *new_memory(void)
{
    void *memory = mmap(NULL, BYTES + PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    CHECK(mprotect(memory, BYTES, PROT_READ | PROT_WRITE) == 0, "mprotect: %s", strerror(errno));
    return memory;
}

/* Whether pages of this address are backing pages of the library. */
static int is_attached(const void *page)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= (unsigned long)page && (unsigned long)page < end)
            found = strstr(line, "memfd:") != NULL;
    }
    if (maps)
        fclose(maps);
    return found;
}

/* A memory address without a GPU wait: the driver's submission must not overtake its paging operations. */
static void wait_for_paging(UINT64 value)
{
    if (fence_value(&paging) < value)
        EXPECT(cpu_wait(device, paging.handle, value, 0), STATUS_SUCCESS);
    CHECK(fence_value(&paging) >= value, "the paging fence has not reached %lu", (unsigned long)value);
}

static NTSTATUS map(handle_t allocation, UINT64 offset, UINT64 pages, UINT64 *address)
{
    D3DDDI_MAPGPUVIRTUALADDRESS args = {.hPagingQueue = paging_queue, .hAllocation = allocation};
    args.OffsetInPages = offset;
    args.SizeInPages = pages;
    args.Protection.Write = 1;
    NTSTATUS status = D3DKMTMapGpuVirtualAddress(&args);
    if (status == STATUS_PENDING)
        wait_for_paging(args.PagingFenceValue);
    *address = args.VirtualAddress;
    return status == STATUS_PENDING ? STATUS_SUCCESS : status;
}

static void make_resident(handle_t allocation)
{
    D3DDDI_MAKERESIDENT args = {.hPagingQueue = paging_queue, .NumAllocations = 1, .AllocationList = &allocation};
    EXPECT(D3DKMTMakeResident(&args), STATUS_PENDING);
    wait_for_paging(args.PagingFenceValue);
}

static NTSTATUS destroy(handle_t resource, const handle_t *allocations, UINT count)
{
    D3DKMT_DESTROYALLOCATION2 args = {.hDevice = device, .hResource = resource, .phAllocationList = allocations};
    args.AllocationCount = count;
    return D3DKMTDestroyAllocation2(&args);
}

/* An engine fills `bytes` from an address on with a word, and then writes the fence. */
static void fill(uint64_t address, uint32_t bytes, uint32_t word)
{
    uint32_t flags = GPUPV_RESOURCE_ALLOW_UNORDERED_ACCESS;
    uint32_t number = create_buffer_at(adapter, device, address, bytes, flags, "");

    static uint64_t commands[512];
    struct gpupv_cmd cmd;
    gpupv_cmd_begin(&cmd, commands, sizeof commands);
    struct gpupv_use use = gpupv_use_whole(number, GPUPV_ACCESS_UNORDERED_ACCESS);
    gpupv_cmd_work(&cmd, GPUPV_WORK_DISPATCH, GPUPV_KERNEL_FILL, word, 20000, &use, 1);
    gpupv_cmd_fence_write(&cmd, done.gpu_address, ++last_done);
    D3DKMT_SUBMITCOMMAND args = {.BroadcastContextCount = 1, .BroadcastContext = {context}};
    args.PrivateDriverDataSize = gpupv_cmd_end(&cmd);
    args.pPrivateDriverData = commands;
    EXPECT(D3DKMTSubmitCommand(&args), STATUS_SUCCESS);
}

static int words_of(const uint32_t *memory, int from, int to, uint32_t word)
{
    int same = 1;
    for (int at = from; at < to; at++)
        same &= __atomic_load_n(&memory[at], __ATOMIC_RELAXED) == word;
    return same;
}

static void set_up(void)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    paging_queue = create_paging_queue(device, &paging);
    context = create_context(device, 0);
    done = create_fence(device, 0, 0);
    for (int at = 0; at < UNKNOWN_BYTES; at++)
        unknown[at] = (unsigned char)(at * 7 + 1);
}

/* The whole life of one buffer of a driver that the host has not. */
static void of_another_driver(void)
{
    uint32_t *memory = new_memory();
    memset(memory, 0x5a, BYTES);
    unsigned char data[UNKNOWN_BYTES];
    memcpy(data, unknown, sizeof data);
    D3DDDI_ALLOCATIONINFO2 info = {.pSystemMem = memory, .pPrivateDriverData = data};
    info.PrivateDriverDataSize = sizeof data;
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1, .pAllocationInfo2 = &info};
    EXPECT(D3DKMTCreateAllocation2(&create), STATUS_SUCCESS);
    CHECK(info.hAllocation && !create.hResource && !create.hGlobalShare, "the handles are wrong");
    CHECK(!memcmp(data, unknown, sizeof data), "data that the driver does not know have changed");
    CHECK(!is_attached(memory), "memory is attached before it is mapped");

    UINT64 address, part;
    EXPECT(map(info.hAllocation, 1, 1, &part), STATUS_SUCCESS);
    CHECK(!is_attached(memory) && is_attached(memory + PAGE_BYTES / 4), "other pages than the mapped one are attached");
    CHECK(!is_attached(memory + PAGE_BYTES / 2), "other pages than the mapped one are attached");
    EXPECT(map(info.hAllocation, 0, 4, &address), STATUS_SUCCESS);
    CHECK(is_attached(memory) && words_of(memory, 0, WORDS, 0x5a5a5a5a), "the mapped memory has other bytes");
    make_resident(info.hAllocation);
    fill(address, BYTES, 0x01020304);

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < LONG_MS && fence_value(&done) < last_done; i++)
            usleep(1000);
        _exit(!(fence_value(&done) == last_done && words_of(memory, 0, WORDS, 0x01020304)));
    }
    CHECK(child_end(child) == 0, "the child did not see the fence, or the engine's bytes");
    EXPECT(cpu_wait(device, done.handle, last_done, 0), STATUS_SUCCESS);
    CHECK(words_of(memory, 0, WORDS, 0x01020304), "the engine wrote other bytes");
    fill(part, PAGE_BYTES, 9);
    EXPECT(cpu_wait(device, done.handle, last_done, 0), STATUS_SUCCESS);
    CHECK(words_of(memory, WORDS / 4, WORDS / 2, 9) && words_of(memory, WORDS / 2, WORDS, 0x01020304), "the part is elsewhere");

    D3DKMT_LOCK2 lock = {.hDevice = device, .hAllocation = info.hAllocation};
    EXPECT(D3DKMTLock2(&lock), STATUS_SUCCESS);
    CHECK(lock.pData == memory, "the lock gave another address");
    EXPECT(D3DKMTUnlock2(&(D3DKMT_UNLOCK2){device, info.hAllocation}), STATUS_SUCCESS);
    EXPECT(destroy(0, &info.hAllocation, 1), STATUS_SUCCESS);
    EXPECT(destroy(0, &info.hAllocation, 1), STATUS_INVALID_PARAMETER);
    CHECK(words_of(memory, WORDS / 2, WORDS, 0x01020304), "the process lost its memory");
    munmap(memory, BYTES);
    printf("536 bytes of another driver: mapped, written by an engine, polled by a child\n");
}

static struct gpupv_allocation described(uint64_t size)
{
    struct gpupv_allocation data = {.magic = GPUPV_ALLOCATION_MAGIC, .version = GPUPV_ALLOCATION_VERSION};
    data.size = size;
    return data;
}

/* The driver's own format, written back; by both forms of the struct. */
static void of_this_driver(void)
{
    uint32_t *memory = new_memory();
    struct gpupv_allocation data = described(BYTES - 100);
    data.width = 64;
    data.height = 60;
    data.format = 21;
    D3DDDI_ALLOCATIONINFO info = {.pSystemMem = memory, .pPrivateDriverData = &data};
    info.PrivateDriverDataSize = sizeof data;
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1, .pAllocationInfo = &info};
    create.Flags.ExistingSysMem = 1;
    EXPECT(D3DKMTCreateAllocation(&create), STATUS_SUCCESS);
    CHECK(data.size == BYTES && data.alignment == PAGE_BYTES, "%lu bytes", (unsigned long)data.size);
    CHECK(data.segment == GPUPV_SEGMENT_NON_LOCAL && data.flags == GPUPV_ALLOCATION_CPU_VISIBLE, "segment %u", data.segment);
    CHECK(data.number != 0, "the driver gave no number");
    UINT64 address, beyond;
    EXPECT(map(info.hAllocation, 0, 5, &beyond), STATUS_INVALID_PARAMETER);
    EXPECT(map(info.hAllocation, 0, 4, &address), STATUS_SUCCESS);
    make_resident(info.hAllocation);
    fill(address, BYTES, 3);
    EXPECT(cpu_wait(device, done.handle, last_done, 0), STATUS_SUCCESS);
    CHECK(words_of(memory, 0, WORDS, 3), "the engine wrote other bytes");
    EXPECT(destroy(0, &info.hAllocation, 1), STATUS_SUCCESS);
    munmap(memory, BYTES);

    /* The memory goes on behind the allocation: still nothing of it is attached. */
    memory = new_memory();
    data = described(2 * PAGE_BYTES);
    info.pSystemMem = memory;
    EXPECT(D3DKMTCreateAllocation(&create), STATUS_SUCCESS);
    EXPECT(map(info.hAllocation, 0, 3, &beyond), STATUS_INVALID_PARAMETER);
    CHECK(!is_attached(memory), "a map beyond the size has attached memory");
    EXPECT(map(info.hAllocation, 0, 2, &address), STATUS_SUCCESS);
    CHECK(is_attached(memory) && !is_attached(memory + 2 * PAGE_BYTES / 4), "other pages are attached");
    EXPECT(destroy(0, &info.hAllocation, 1), STATUS_SUCCESS);
    munmap(memory, BYTES);
    printf("the driver's own format: its answer is in the caller's buffer\n");
}

/* Whatever is refused leaves the caller's structs as they were. */
static void bad_data(void)
{
    uint32_t *memory = new_memory();
    struct gpupv_allocation data = described(BYTES), before;
    D3DDDI_ALLOCATIONINFO2 info = {.hAllocation = 77, .pSystemMem = memory, .pPrivateDriverData = &data};
    info.PrivateDriverDataSize = sizeof data;
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1, .pAllocationInfo2 = &info};
    const D3DKMT_CREATEALLOCATION good = create;
    const D3DDDI_ALLOCATIONINFO2 good_info = info;
    struct {
        const char *what;
        NTSTATUS status;
    } cases[] = {
        {"a size without data", STATUS_INVALID_PARAMETER},     {"a lying size", STATUS_INVALID_PARAMETER},
        {"data without a size", STATUS_INVALID_PARAMETER},     {"another version", STATUS_INVALID_PARAMETER},
        {"an alignment of 3", STATUS_INVALID_PARAMETER},       {"a size of 0", STATUS_INVALID_PARAMETER},
        {"a part of a page", STATUS_INVALID_PARAMETER},        {"no allocations", STATUS_INVALID_PARAMETER},
        {"no array", STATUS_INVALID_PARAMETER},                {"too many allocations", STATUS_INVALID_PARAMETER},
        {"a resource's size without data", STATUS_INVALID_PARAMETER},
        {"ExistingSysMem without memory", STATUS_INVALID_PARAMETER},
        {"too much data", STATUS_INVALID_PARAMETER},           {"ExistingSection", STATUS_NOT_SUPPORTED},
        {"memory of unknown size", STATUS_NOT_SUPPORTED},      {"a primary", STATUS_NOT_SUPPORTED},
        {"a foreign device", STATUS_INVALID_PARAMETER},
    };
    for (unsigned at = 0; at < sizeof cases / sizeof cases[0]; at++) {
        create = good;
        info = good_info;
        data = described(BYTES);
        switch (at) {
        case 0: info.pPrivateDriverData = NULL; break;
        case 1: info.PrivateDriverDataSize = sizeof data - 1; break;
        case 2: info.PrivateDriverDataSize = 0; break;
        case 3: data.version = 9; break;
        case 4: data.alignment = 3; break;
        case 5: data.size = 0; break;
        case 6: info.pSystemMem = memory + 1; break;
        case 7: create.NumAllocations = 0; break;
        case 8: create.pAllocationInfo2 = NULL; break;
        case 9: create.NumAllocations = 0x7fffffff; break;
        case 10: create.PrivateDriverDataSize = 8; break;
        case 11: create.Flags.ExistingSysMem = 1; info.pSystemMem = NULL; break;
        case 12: info.PrivateDriverDataSize = 0x7fffffff; break;
        case 13: create.Flags.ExistingSection = 1; break;
        case 14: info.pSystemMem = NULL; data.magic = 1; break;
        case 15: info.Flags.Value = 1; break;
        case 16: create.hDevice = 0x40001000; break;
        }
        before = data;
        NTSTATUS status = D3DKMTCreateAllocation2(&create);
        CHECK(status == cases[at].status, "%s: answered %#x", cases[at].what, (unsigned)status);
        CHECK(info.hAllocation == 77 && !memcmp(&data, &before, sizeof data), "%s: something was written", cases[at].what);
    }
    munmap(memory, BYTES);
    printf("%zu bad calls refused\n", sizeof cases / sizeof cases[0]);
}

/* Two allocations in a resource with data of its own, a third one added, opened by both kinds of handles. */
static void resources(void)
{
    uint32_t *memory = new_memory();
    static const char own[] = "data of the resource", runtime[] = "runtime data";
    struct gpupv_allocation data[3] = {described(PAGE_BYTES), described(2 * PAGE_BYTES), described(PAGE_BYTES)};
    D3DDDI_ALLOCATIONINFO2 infos[3] = {{0}};
    for (int at = 0; at < 3; at++) {
        infos[at].pSystemMem = memory + at * PAGE_BYTES / 4;
        infos[at].pPrivateDriverData = &data[at];
        infos[at].PrivateDriverDataSize = sizeof data[at];
    }
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 2, .pAllocationInfo2 = infos};
    create.pPrivateDriverData = own;
    create.PrivateDriverDataSize = sizeof own;
    create.pPrivateRuntimeData = runtime;
    create.PrivateRuntimeDataSize = sizeof runtime;
    create.Flags.CreateResource = 1;
    EXPECT(D3DKMTCreateAllocation2(&create), STATUS_SUCCESS);
    CHECK(create.hResource && infos[0].hAllocation && infos[1].hAllocation, "a handle is missing");
    D3DKMT_CREATEALLOCATION more = {.hDevice = device, .hResource = create.hResource, .NumAllocations = 1};
    more.pAllocationInfo2 = &infos[2];
    EXPECT(D3DKMTCreateAllocation2(&more), STATUS_SUCCESS);
    CHECK(more.hResource == create.hResource && infos[2].hAllocation, "the third one is elsewhere");
    /* Shared memory of the device is named by its resource, which is not shared here. */
    struct gpupv_allocation fourth = described(PAGE_BYTES);
    D3DDDI_ALLOCATIONINFO2 one_more = {.pPrivateDriverData = &fourth, .PrivateDriverDataSize = sizeof fourth};
    D3DKMT_CREATEALLOCATION shared_one = {.hDevice = device, .hResource = create.hResource, .NumAllocations = 1};
    shared_one.pAllocationInfo2 = &one_more;
    shared_one.Flags.CreateShared = 1;
    EXPECT(D3DKMTCreateAllocation2(&shared_one), STATUS_INVALID_PARAMETER);
    CHECK(!one_more.hAllocation, "an allocation of a refused call");
    shared_one.Flags.NtSecuritySharing = 1;
    EXPECT(D3DKMTCreateAllocation2(&shared_one), STATUS_INVALID_PARAMETER);
    EXPECT(destroy(create.hResource, NULL, 0), STATUS_SUCCESS);
    EXPECT(destroy(0, &infos[2].hAllocation, 1), STATUS_INVALID_PARAMETER);

    data[2] = described(PAGE_BYTES);
    memset(unknown, 3, sizeof unknown);
    infos[1].pPrivateDriverData = unknown;
    infos[1].PrivateDriverDataSize = sizeof unknown;
    for (int by_nt_handle = 0; by_nt_handle < 2; by_nt_handle++) {
        create.Flags.CreateShared = 1;
        create.Flags.NtSecuritySharing = by_nt_handle;
        create.hResource = create.hGlobalShare = 0;
        EXPECT(D3DKMTCreateAllocation2(&create), STATUS_SUCCESS);
        more.hResource = create.hResource;
        EXPECT(D3DKMTCreateAllocation2(&more), STATUS_INVALID_PARAMETER);

        HANDLE shared = NULL;
        D3DKMT_QUERYRESOURCEINFO query = {.hDevice = device, .hGlobalShare = create.hGlobalShare};
        D3DKMT_QUERYRESOURCEINFOFROMNTHANDLE by_handle = {.hDevice = device};
        if (by_nt_handle) {
            EXPECT(D3DKMTShareObjects(1, &create.hResource, NULL, 0x1F0003, &shared), STATUS_SUCCESS);
            by_handle.hNtHandle = shared;
            EXPECT(D3DKMTQueryResourceInfoFromNtHandle(&by_handle), STATUS_SUCCESS);
            query.NumAllocations = by_handle.NumAllocations;
            query.ResourcePrivateDriverDataSize = by_handle.ResourcePrivateDriverDataSize;
            query.TotalPrivateDriverDataSize = by_handle.TotalPrivateDriverDataSize;
        } else {
            EXPECT(D3DKMTQueryResourceInfo(&query), STATUS_SUCCESS);
        }
        const UINT total = sizeof data[0] + sizeof unknown;
        CHECK(query.NumAllocations == 2 && query.ResourcePrivateDriverDataSize == sizeof own, "other sizes");
        CHECK(query.TotalPrivateDriverDataSize == total, "%u bytes in all", query.TotalPrivateDriverDataSize);

        char own_copy[sizeof own], runtime_copy[sizeof runtime];
        unsigned char *all = malloc(total + 32);
        D3DDDI_OPENALLOCATIONINFO opened[2] = {{0}};
        D3DDDI_OPENALLOCATIONINFO2 opened2[2] = {{0}};
        handle_t resource = 0;
        for (UINT size = total - 1; size <= total + 32; size += 33) {
            NTSTATUS wanted = size < total ? STATUS_INVALID_PARAMETER : STATUS_SUCCESS, status;
            UINT used;
            memset(all, 0x55, total + 32);
            if (by_nt_handle) {
                D3DKMT_OPENRESOURCEFROMNTHANDLE open = {.hDevice = device, .hNtHandle = shared, .NumAllocations = 2};
                open.pOpenAllocationInfo2 = opened2;
                open.pPrivateRuntimeData = runtime_copy;
                open.PrivateRuntimeDataSize = sizeof runtime_copy;
                open.pResourcePrivateDriverData = own_copy;
                open.ResourcePrivateDriverDataSize = sizeof own_copy;
                open.pTotalPrivateDriverDataBuffer = all;
                open.TotalPrivateDriverDataBufferSize = size;
                status = D3DKMTOpenResourceFromNtHandle(&open);
                resource = open.hResource;
                used = open.TotalPrivateDriverDataBufferSize;
                for (int at = 0; at < 2; at++) {
                    opened[at].pPrivateDriverData = opened2[at].pPrivateDriverData;
                    opened[at].PrivateDriverDataSize = opened2[at].PrivateDriverDataSize;
                }
            } else {
                D3DKMT_OPENRESOURCE open = {.hDevice = device, .hGlobalShare = create.hGlobalShare, .NumAllocations = 2};
                open.pOpenAllocationInfo = opened;
                open.pPrivateRuntimeData = runtime_copy;
                open.PrivateRuntimeDataSize = sizeof runtime_copy;
                open.pResourcePrivateDriverData = own_copy;
                open.ResourcePrivateDriverDataSize = sizeof own_copy;
                open.pTotalPrivateDriverDataBuffer = all;
                open.TotalPrivateDriverDataBufferSize = size;
                status = D3DKMTOpenResource(&open);
                resource = open.hResource;
                used = open.TotalPrivateDriverDataBufferSize;
            }
            CHECK(status == wanted, "answered %#x for %u bytes", (unsigned)status, size);
            CHECK(used == (size < total ? size : total) && all[total] == 0x55, "%u bytes are used", used);
            CHECK(size >= total || all[0] == 0x55, "a failed open wrote data");
        }
        CHECK(!memcmp(own_copy, own, sizeof own) && !memcmp(runtime_copy, runtime, sizeof runtime), "other data");
        CHECK(opened[0].pPrivateDriverData == all && opened[0].PrivateDriverDataSize == sizeof data[0], "the first data are elsewhere");
        CHECK(!memcmp(all, &data[0], sizeof data[0]), "the first data are not what the driver left");
        CHECK(opened[1].pPrivateDriverData == all + sizeof data[0] && opened[1].PrivateDriverDataSize == sizeof unknown,
              "the second data are elsewhere");
        CHECK(!memcmp(opened[1].pPrivateDriverData, unknown, sizeof unknown), "the second data have changed");
        EXPECT(destroy(resource, NULL, 0), STATUS_SUCCESS);
        EXPECT(destroy(create.hResource, NULL, 0), STATUS_SUCCESS);
        if (shared)
            close((int)(intptr_t)shared);
        free(all);
    }
    munmap(memory, BYTES);
    printf("a resource with private data, opened by global and by NT handle\n");
}

/* The mapping of an update attaches what it maps, too. */
static void updates(void)
{
    uint32_t *memory = new_memory();
    D3DDDI_ALLOCATIONINFO2 info = {.pSystemMem = memory, .pPrivateDriverData = unknown};
    info.PrivateDriverDataSize = sizeof unknown;
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1, .pAllocationInfo2 = &info};
    EXPECT(D3DKMTCreateAllocation2(&create), STATUS_SUCCESS);
    D3DDDI_RESERVEGPUVIRTUALADDRESS reserve = {.hPagingQueue = paging_queue, .Size = 16 * PAGE_BYTES};
    EXPECT(D3DKMTReserveGpuVirtualAddress(&reserve), STATUS_SUCCESS);
    D3DDDI_UPDATEGPUVIRTUALADDRESS_OPERATION operation = {.OperationType = D3DDDI_UPDATEGPUVIRTUALADDRESS_MAP};
    operation.Map.BaseAddress = reserve.VirtualAddress;
    operation.Map.SizeInBytes = 2 * PAGE_BYTES;
    operation.Map.hAllocation = info.hAllocation;
    operation.Map.AllocationOffsetInBytes = PAGE_BYTES;
    operation.Map.AllocationSizeInBytes = 0; /* SizeInBytes */
    struct fence updated = create_fence(device, 0, 0);
    D3DKMT_UPDATEGPUVIRTUALADDRESS update = {.hDevice = device, .hContext = context, .hFenceObject = updated.handle};
    update.NumOperations = 1;
    update.Operations = &operation;
    EXPECT(D3DKMTUpdateGpuVirtualAddress(&update), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, updated.handle, 1, 0), STATUS_SUCCESS);
    CHECK(!is_attached(memory) && is_attached(memory + PAGE_BYTES / 4), "other pages than the mapped ones are attached");
    make_resident(info.hAllocation);
    fill(reserve.VirtualAddress, 2 * PAGE_BYTES, 5);
    EXPECT(cpu_wait(device, done.handle, last_done, 0), STATUS_SUCCESS);
    CHECK(words_of(memory, 0, WORDS / 4, 0) && words_of(memory, WORDS / 4, 3 * WORDS / 4, 5), "the engine wrote elsewhere");
    EXPECT(destroy(0, &info.hAllocation, 1), STATUS_SUCCESS);
    EXPECT(destroy_object(updated.handle), STATUS_SUCCESS);
    munmap(memory, BYTES);
    printf("an update maps memory of unknown size\n");
}

int main(void)
{
    setenv("GPUPV_QUIET", "1", 1);
    set_up();
    of_another_driver();
    of_this_driver();
    bad_data();
    resources();
    updates();
    destroy_context(context);
    destroy_device(device);
    close_adapter(adapter);
    printf("private_data: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
