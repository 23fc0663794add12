/* Memory of the device, as a client with hardware queues uses it: allocations without pSystemMem in LOCAL, Lock2, a
 * hardware queue with its progress fence, and an event of the driver. The bytes go from the CPU to an engine and back,
 * a forked child does not have them, and neither budget nor address space keeps any of them. */
#define _GNU_SOURCE
#include "cpu_event.h"

#include <gpupv_allocation.h>
#include <gpupv_cmd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include "buffers.h"
#include "locks.h"

enum { PAGE_BYTES = 4096, BYTES = 16 * PAGE_BYTES, WORDS = BYTES / 4, USAGE = 0x22 };

static handle_t adapter, device, paging_queue, context, queue, notification;
static struct fence paging, progress;
static uint64_t last_progress;
static int event;
static uint64_t kmd_cpu_event;

static NTSTATUS allocate(uint32_t segment, uint32_t flags, uint64_t size, handle_t *allocation)
{
    struct gpupv_allocation data = {.magic = GPUPV_ALLOCATION_MAGIC, .version = GPUPV_ALLOCATION_VERSION};
    data.size = size;
    data.segment = segment;
    data.flags = flags;
    D3DDDI_ALLOCATIONINFO2 info = {.pPrivateDriverData = &data, .PrivateDriverDataSize = sizeof data};
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1, .pAllocationInfo2 = &info};
    NTSTATUS status = D3DKMTCreateAllocation2(&create);
    CHECK(status != STATUS_SUCCESS || data.segment == segment, "the driver chose segment %u", data.segment);
    *allocation = info.hAllocation;
    return status;
}

static NTSTATUS destroy(const handle_t *allocations, UINT count)
{
    D3DKMT_DESTROYALLOCATION2 args = {.hDevice = device, .phAllocationList = allocations, .AllocationCount = count};
    return D3DKMTDestroyAllocation2(&args);
}

static void wait_for_paging(UINT64 value)
{
    if (fence_value(&paging) < value)
        EXPECT(cpu_wait(device, paging.handle, value, 0), STATUS_SUCCESS);
}

/* Maps all of an allocation and makes it resident. */
static uint64_t map(handle_t allocation)
{
    D3DDDI_MAPGPUVIRTUALADDRESS map = {.hPagingQueue = paging_queue, .hAllocation = allocation};
    map.SizeInPages = BYTES / PAGE_BYTES;
    map.Protection.Write = 1;
    EXPECT(D3DKMTMapGpuVirtualAddress(&map), STATUS_PENDING);
    D3DDDI_MAKERESIDENT resident = {.hPagingQueue = paging_queue, .NumAllocations = 1, .AllocationList = &allocation};
    EXPECT(D3DKMTMakeResident(&resident), STATUS_PENDING);
    wait_for_paging(map.PagingFenceValue);
    wait_for_paging(resident.PagingFenceValue);
    return map.VirtualAddress;
}

/* Submits one command to the hardware queue. */
static void submit_work(uint32_t work, uint32_t kernel, uint32_t operand, const struct gpupv_use *uses, uint32_t count)
{
    static uint64_t commands[512];
    struct gpupv_cmd cmd;
    gpupv_cmd_begin(&cmd, commands, sizeof commands);
    gpupv_cmd_work(&cmd, work, kernel, operand, 20000, uses, count);
    gpupv_cmd_fence_write(&cmd, progress.gpu_address, ++last_progress);
    D3DKMT_SUBMITCOMMANDTOHWQUEUE args = {.hHwQueue = queue, .HwQueueProgressFenceId = last_progress};
    args.PrivateDriverDataSize = gpupv_cmd_end(&cmd);
    args.pPrivateDriverData = commands;
    EXPECT(D3DKMTSubmitCommandToHwQueue(&args), STATUS_SUCCESS);
}

/* Submits one command to the hardware queue, and waits for its progress fence. */
static void run(uint32_t work, uint32_t kernel, uint32_t operand, const struct gpupv_use *uses, uint32_t count)
{
    submit_work(work, kernel, operand, uses, count);
    EXPECT(cpu_wait(device, progress.handle, last_progress, 0), STATUS_SUCCESS);
    CHECK(fence_value(&progress) >= last_progress, "the progress fence has %lu", (unsigned long)fence_value(&progress));
}

static int words_of(const uint32_t *words, int from, int to, uint32_t word)
{
    int same = 1;
    for (int at = from; at < to; at++)
        same &= __atomic_load_n(&words[at], __ATOMIC_RELAXED) == word;
    return same;
}

/* Whether this process can read the address. */
static int is_mapped(const void *address)
{
    char byte;
    struct iovec local = {&byte, 1}, remote = {(void *)address, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

static void set_up(void)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    paging_queue = create_paging_queue(device, &paging);
    D3DKMT_CREATECONTEXTVIRTUAL create = {.hDevice = device, .Flags = {.HwQueueSupported = 1}};
    EXPECT(D3DKMTCreateContextVirtual(&create), STATUS_SUCCESS);
    context = create.hContext;
    D3DKMT_CREATEHWQUEUE args = {.hHwContext = context};
    EXPECT(D3DKMTCreateHwQueue(&args), STATUS_SUCCESS);
    queue = args.hHwQueue;
    progress = (struct fence){args.hHwQueueProgressFence, args.HwQueueProgressFenceCPUVirtualAddress,
                              args.HwQueueProgressFenceGPUVirtualAddress};
    event = new_event();
    EXPECT(create_notification(device, event, SIGNAL_BY_KMD, &notification), STATUS_SUCCESS);
    D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE usage = {
        .EscapeType = D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE, .hSyncObject = notification, .Usage = {USAGE}};
    EXPECT(escape(adapter, device, DRIVER_KNOWN_ESCAPE, &usage, sizeof usage), STATUS_SUCCESS);
    kmd_cpu_event = usage.hKmdCpuEvent;
}

/* The whole life of one allocation. */
static void from_the_cpu_to_an_engine_and_back(uint32_t segment, UINT group)
{
    COVERS("MEM-030 MEM-031 MEM-032 MEM-034");
    handle_t allocation;
    uint64_t other = usage(adapter, !group);
    EXPECT(allocate(segment, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES - 100, &allocation), STATUS_SUCCESS);
    CHECK(usage(adapter, group) == 0, "it counts before it is resident");
    uint64_t address = map(allocation);
    CHECK(usage(adapter, group) == BYTES && usage(adapter, !group) == other, "%lu bytes are used", (unsigned long)usage(adapter, group));

    uint32_t *words, *again;
    EXPECT(lock(device, allocation, &words), STATUS_SUCCESS);
    CHECK(words && (uintptr_t)words % PAGE_BYTES == 0 && words_of(words, 0, WORDS, 0), "it does not begin as zeros");
    for (int at = 0; at < WORDS / 2; at++)
        words[at] = 0x1000 + at;
    EXPECT(unlock(device, allocation), STATUS_SUCCESS);

    uint32_t half = create_buffer_at(adapter, device, address, BYTES / 2, 0, "");
    uint32_t rest = create_buffer_at(adapter, device, address + BYTES / 2, BYTES / 2, GPUPV_RESOURCE_ALLOW_UNORDERED_ACCESS, "");
    struct gpupv_use uses[] = {gpupv_use_whole(half, GPUPV_ACCESS_COPY_SOURCE), gpupv_use_whole(rest, GPUPV_ACCESS_COPY_DEST)};
    run(GPUPV_WORK_COPY, GPUPV_KERNEL_COPY, 0, uses, 2);
    EXPECT(lock(device, allocation, &again), STATUS_SUCCESS);
    CHECK(again == words, "a second lock gave another address");
    CHECK(!memcmp(words, words + WORDS / 2, BYTES / 2) && words[WORDS - 1] == 0x1000 + WORDS / 2 - 1, "the engine copied other bytes");
    struct gpupv_use fill = gpupv_use_whole(rest, GPUPV_ACCESS_UNORDERED_ACCESS);
    run(GPUPV_WORK_DISPATCH, GPUPV_KERNEL_FILL, 7, &fill, 1);
    CHECK(words_of(words, WORDS / 2, WORDS, 7) && words[1] == 0x1001, "the engine filled other bytes");
    EXPECT(driver_signals(adapter, kmd_cpu_event, 1), STATUS_SUCCESS);
    CHECK(take_event(event, LONG_MS) == 1, "the driver's event is not set");

    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(is_mapped(words) || is_mapped(words + WORDS - 1));
    CHECK(child_end(child) == 0, "a child has the memory of the device");
    CHECK(is_mapped(words), "a fork took the memory");

    EXPECT(unlock(device, allocation), STATUS_SUCCESS);
    EXPECT(unlock(device, allocation), STATUS_INVALID_PARAMETER);
    EXPECT(destroy(&allocation, 1), STATUS_SUCCESS);
    CHECK(usage(adapter, group) == 0, "%lu bytes are left", (unsigned long)usage(adapter, group));
    CHECK(!is_mapped(words), "the memory is mapped after its end");
    printf("memory in segment group %u: from the CPU to an engine and back\n", group);
}

/* Pages that one allocation wrote are zeros in the next. */
static void never_the_bytes_of_before(void)
{
    COVERS("MEM-034");
    for (int round = 0; round < 20; round++) {
        handle_t allocations[2];
        uint32_t *words[2];
        for (int at = 0; at < 2; at++) {
            EXPECT(allocate(GPUPV_SEGMENT_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES, &allocations[at]), STATUS_SUCCESS);
            EXPECT(lock(device, allocations[at], &words[at]), STATUS_SUCCESS);
            CHECK(words_of(words[at], 0, WORDS, 0), "round %d: bytes of before", round);
        }
        memset(words[0], 0xaa, BYTES);
        CHECK(words_of(words[1], 0, WORDS, 0), "two allocations have the same bytes");
        memset(words[1], 0x55, BYTES);
        EXPECT(destroy(allocations, 2), STATUS_SUCCESS);
    }
    printf("20 times two allocations began as zeros\n");
}

/* Engines write memory before the CPU locks it, or although it never does. */
static void by_engines_first(void)
{
    COVERS("MEM-030");
    handle_t allocations[2];
    uint32_t *words;
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, 0, BYTES, &allocations[0]), STATUS_SUCCESS);
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES, &allocations[1]), STATUS_SUCCESS);
    uint64_t hidden = map(allocations[0]), visible = map(allocations[1]);
    uint32_t source = create_buffer_at(adapter, device, hidden, BYTES, GPUPV_RESOURCE_ALLOW_UNORDERED_ACCESS, "");
    uint32_t target = create_buffer_at(adapter, device, visible, BYTES, 0, "");
    struct gpupv_use fill = gpupv_use_whole(source, GPUPV_ACCESS_UNORDERED_ACCESS);
    run(GPUPV_WORK_DISPATCH, GPUPV_KERNEL_FILL, 9, &fill, 1);
    struct gpupv_use uses[] = {gpupv_use_whole(source, GPUPV_ACCESS_COPY_SOURCE), gpupv_use_whole(target, GPUPV_ACCESS_COPY_DEST)};
    run(GPUPV_WORK_COPY, GPUPV_KERNEL_COPY, 0, uses, 2);
    EXPECT(lock(device, allocations[1], &words), STATUS_SUCCESS);
    CHECK(words_of(words, 0, WORDS, 9), "the engine's bytes are lost");
    EXPECT(destroy(allocations, 2), STATUS_SUCCESS);
    printf("engines write memory that the CPU has not locked\n");
}

/* More than one message can attach: 40 MiB, which the broker makes in three pieces. */
static void many_pages(void)
{
    enum { MANY = 40 << 20 };
    handle_t allocation;
    uint32_t *words;
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, MANY, &allocation), STATUS_SUCCESS);
    EXPECT(lock(device, allocation, &words), STATUS_SUCCESS);
    for (uint64_t at = 0; at < MANY / 4; at += 1 << 18)
        words[at] = (uint32_t)at + 1;
    for (uint64_t at = 0; at < MANY / 4; at += 1 << 18)
        CHECK(words[at] == at + 1, "word %lu is %u", (unsigned long)at, words[at]);
    EXPECT(destroy(&allocation, 1), STATUS_SUCCESS);
    CHECK(!is_mapped(words) && !is_mapped((char *)words + MANY - 1), "it is mapped after its end");
    printf("40 MiB in one allocation\n");
}

static void what_is_refused(void)
{
    COVERS("MEM-033");
    handle_t hidden, visible, none;
    uint32_t *words;
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, 0, BYTES, &hidden), STATUS_SUCCESS);
    EXPECT(lock(device, hidden, &words), STATUS_INVALID_PARAMETER);
    EXPECT(unlock(device, hidden), STATUS_INVALID_PARAMETER);
    EXPECT(allocate(GPUPV_SEGMENT_NON_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES, &visible), STATUS_SUCCESS);
    EXPECT(unlock(device, visible), STATUS_INVALID_PARAMETER);
    D3DKMT_LOCK2 flags = {.hDevice = device, .hAllocation = visible, .Flags = {.Value = 1}};
    EXPECT(D3DKMTLock2(&flags), STATUS_INVALID_PARAMETER);
    CHECK(flags.pData == NULL, "a refused lock gave an address");
    EXPECT(lock(device, visible, &words), STATUS_SUCCESS);
    handle_t other = create_device(adapter);
    EXPECT(D3DKMTUnlock2(&(D3DKMT_UNLOCK2){other, visible}), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTLock2(&(D3DKMT_LOCK2){.hDevice = other, .hAllocation = visible}), STATUS_INVALID_PARAMETER);
    destroy_device(other);
    EXPECT(unlock(device, visible), STATUS_SUCCESS);
    EXPECT(unlock(device, visible), STATUS_INVALID_PARAMETER);
    EXPECT(lock(device, visible, &words), STATUS_SUCCESS);
    handle_t both[] = {hidden, visible};
    EXPECT(destroy(both, 2), STATUS_SUCCESS);
    EXPECT(unlock(device, visible), STATUS_INVALID_PARAMETER);
    EXPECT(lock(device, visible, &words), STATUS_INVALID_PARAMETER);

    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, 0, 1ull << 40, &none), STATUS_NO_MEMORY);
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, 0, UINT64_MAX, &none), STATUS_INVALID_PARAMETER);
    /* What a broker cannot provide is neither locked nor mapped. */
    enum { MOST = 4 };
    handle_t big[MOST];
    int locked = 0;
    for (int at = 0; at < MOST; at++)
        EXPECT(allocate(GPUPV_SEGMENT_NON_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, 512 << 20, &big[at]), STATUS_SUCCESS);
    while (locked < MOST && lock(device, big[locked], &words) == STATUS_SUCCESS)
        locked++;
    CHECK(locked < MOST, "%d times 512 MiB", locked);
    EXPECT(unlock(device, big[MOST - 1]), STATUS_INVALID_PARAMETER);
    /* A small guest has no room for the first one, and none to try again. */
    if (locked > 0) {
        D3DDDI_MAPGPUVIRTUALADDRESS too_much = {.hPagingQueue = paging_queue, .hAllocation = big[MOST - 1], .SizeInPages = 1};
        EXPECT(D3DKMTMapGpuVirtualAddress(&too_much), STATUS_NO_MEMORY);
        EXPECT(destroy(big, 1), STATUS_SUCCESS);
        EXPECT(allocate(GPUPV_SEGMENT_NON_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, 512 << 20, &big[0]), STATUS_SUCCESS);
        EXPECT(lock(device, big[MOST - 1], &words), STATUS_SUCCESS);
    }
    EXPECT(destroy(big, MOST), STATUS_SUCCESS);
    EXPECT(allocate(GPUPV_SEGMENT_NON_LOCAL, 0, BYTES, &none), STATUS_SUCCESS);
    EXPECT(destroy(&none, 1), STATUS_SUCCESS);
    printf("what cannot be locked or created is refused\n");
}

/* For each line of input: the CPU writes, an engine copies, and the CPU reads, with a lock that began a line before; and
 * the CPU locks, for the first time, what was created a line before. */
static void on_demand(void)
{
    handle_t allocation, unused;
    uint32_t *words, *again, *first;
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES, &unused), STATUS_SUCCESS);
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES, &allocation), STATUS_SUCCESS);
    uint64_t address = map(allocation);
    uint32_t half = create_buffer_at(adapter, device, address, BYTES / 2, 0, ""), rest = create_buffer_at(adapter, device, address + BYTES / 2, BYTES / 2, 0, "");
    struct gpupv_use uses[] = {gpupv_use_whole(half, GPUPV_ACCESS_COPY_SOURCE), gpupv_use_whole(rest, GPUPV_ACCESS_COPY_DEST)};
    EXPECT(lock(device, allocation, &words), STATUS_SUCCESS);
    printf("ready\n");
    fflush(stdout);
    char line[16];
    for (uint32_t word = 1; fgets(line, sizeof line, stdin); word++) {
        CHECK(words_of(words, WORDS / 2, WORDS, word - 1), "the bytes of the line before are gone");
        for (int at = 0; at < WORDS / 2; at++)
            words[at] = word;
        run(GPUPV_WORK_COPY, GPUPV_KERNEL_COPY, 0, uses, 2);
        CHECK(words_of(words, WORDS / 2, WORDS, word), "the engine copied other bytes");
        EXPECT(unlock(device, allocation), STATUS_SUCCESS);
        EXPECT(unlock(device, allocation), STATUS_INVALID_PARAMETER);
        EXPECT(lock(device, allocation, &again), STATUS_SUCCESS);
        CHECK(again == words && usage(adapter, 0) == BYTES, "a lock gave another address");
        EXPECT(lock(device, unused, &first), STATUS_SUCCESS);
        CHECK(words_of(first, 0, WORDS, 0), "it does not begin as zeros");
        memset(first, 0xaa, BYTES);
        EXPECT(destroy(&unused, 1), STATUS_SUCCESS);
        EXPECT(allocate(GPUPV_SEGMENT_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES, &unused), STATUS_SUCCESS);
        printf("%s\n", failures ? "FAILED" : "right");
        fflush(stdout);
    }
    destroy_device(device);
    close_adapter(adapter);
}

/* Destroys memory that queued work still reads, and runs the work at the next line of input. */
static void destroyed_behind_work(void)
{
    handle_t source, target;
    uint32_t *words, *copied;
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES, &source), STATUS_SUCCESS);
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES, &target), STATUS_SUCCESS);
    uint32_t from = create_buffer_at(adapter, device, map(source), BYTES, 0, "");
    uint32_t to = create_buffer_at(adapter, device, map(target), BYTES, 0, "");
    EXPECT(lock(device, source, &words), STATUS_SUCCESS);
    EXPECT(lock(device, target, &copied), STATUS_SUCCESS);
    for (int at = 0; at < WORDS; at++)
        words[at] = 5, copied[at] = 6;
    struct fence start = create_fence(device, 0, 0);
    UINT64 value = 1;
    D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE wait = {queue, 1, &start.handle, &value};
    EXPECT(D3DKMTSubmitWaitForSyncObjectsToHwQueue(&wait), STATUS_SUCCESS);
    struct gpupv_use uses[] = {gpupv_use_whole(from, GPUPV_ACCESS_COPY_SOURCE), gpupv_use_whole(to, GPUPV_ACCESS_COPY_DEST)};
    submit_work(GPUPV_WORK_COPY, GPUPV_KERNEL_COPY, 0, uses, 2);
    EXPECT(destroy(&source, 1), STATUS_SUCCESS);
    printf("ready\n");
    fflush(stdout);
    char line[16];
    CHECK(fgets(line, sizeof line, stdin), "no line");
    EXPECT(cpu_signal(device, start.handle, 1, 0), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, progress.handle, last_progress, 0), STATUS_SUCCESS);
    printf("%s\n", words_of(copied, 0, WORDS, 5) ? "copied" : words_of(copied, 0, WORDS, 0) ? "zeros" : "other bytes");
    destroy_device(device);
    close_adapter(adapter);
}

int main(int argc, char **argv)
{
    setenv("GPUPV_QUIET", "1", 1);
    set_up();
    if (argc > 1 && !strcmp(argv[1], "on-demand")) {
        on_demand();
        return failures != 0;
    }
    if (argc > 1 && !strcmp(argv[1], "destroyed-behind-work")) {
        destroyed_behind_work();
        return failures != 0;
    }
    from_the_cpu_to_an_engine_and_back(GPUPV_SEGMENT_LOCAL, D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL);
    from_the_cpu_to_an_engine_and_back(GPUPV_SEGMENT_NON_LOCAL, D3DKMT_MEMORY_SEGMENT_GROUP_NON_LOCAL);
    never_the_bytes_of_before();
    by_engines_first();
    many_pages();
    what_is_refused();
    /* The end of the device ends its memory, locked or not. */
    handle_t last;
    uint32_t *words;
    EXPECT(allocate(GPUPV_SEGMENT_LOCAL, GPUPV_ALLOCATION_CPU_VISIBLE, BYTES, &last), STATUS_SUCCESS);
    EXPECT(lock(device, last, &words), STATUS_SUCCESS);
    destroy_device(device);
    CHECK(!is_mapped(words), "the memory is mapped after the end of its device");
    close_adapter(adapter);
    close(event);
    printf("device_memory: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
