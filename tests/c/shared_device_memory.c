/* Memory of the device in a shared resource: two processes lock the same bytes, engines of both see them, and they stay
 * when the process that created them destroys the resource, exits or is killed. */
#define _GNU_SOURCE
#include "buffers.h"
#include "descriptors.h"
#include "locks.h"

#include <gpupv_allocation.h>
#include <sys/uio.h>

enum { PAGE_BYTES = 4096, BYTES = 16 * PAGE_BYTES, WORDS = BYTES / 4, MANY = 40 << 20 };

static handle_t adapter, device, paging_queue, context;
static struct fence paging;

struct shared {
    handle_t resource, allocation;
    HANDLE nt_handle;
};

/* What the creating process is told, a byte each; it answers with one. */
enum { CHECKS = 'c', FILLS = 'f', DESTROYS = 'd', EXITS = 'x', PRIVATE = 'p' };

static NTSTATUS destroy_resource(handle_t resource)
{
    D3DKMT_DESTROYALLOCATION2 args = {.hDevice = device, .hResource = resource};
    return D3DKMTDestroyAllocation2(&args);
}

static void set_up(void)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    paging_queue = create_paging_queue(device, &paging);
    context = create_context(device, 0);
}

static struct shared create(uint64_t bytes, uint32_t flags, int is_shared)
{
    struct gpupv_allocation data = {.magic = GPUPV_ALLOCATION_MAGIC, .version = GPUPV_ALLOCATION_VERSION};
    data.size = bytes;
    data.segment = GPUPV_SEGMENT_LOCAL;
    data.flags = flags;
    D3DDDI_ALLOCATIONINFO2 info = {.pPrivateDriverData = &data, .PrivateDriverDataSize = sizeof data};
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1, .pAllocationInfo2 = &info};
    create.Flags.CreateResource = 1;
    create.Flags.CreateShared = create.Flags.NtSecuritySharing = is_shared;
    EXPECT(D3DKMTCreateAllocation2(&create), STATUS_SUCCESS);
    struct shared shared = {create.hResource, info.hAllocation, NULL};
    if (is_shared)
        EXPECT(D3DKMTShareObjects(1, &create.hResource, NULL, 0x1F0003, &shared.nt_handle), STATUS_SUCCESS);
    return shared;
}

static struct shared open_shared(HANDLE nt_handle)
{
    struct gpupv_allocation data;
    D3DDDI_OPENALLOCATIONINFO2 info = {0};
    D3DKMT_OPENRESOURCEFROMNTHANDLE open = {.hDevice = device, .hNtHandle = nt_handle, .NumAllocations = 1};
    open.pOpenAllocationInfo2 = &info;
    open.TotalPrivateDriverDataBufferSize = sizeof data;
    open.pTotalPrivateDriverDataBuffer = &data;
    EXPECT(D3DKMTOpenResourceFromNtHandle(&open), STATUS_SUCCESS);
    return (struct shared){open.hResource, info.hAllocation, nt_handle};
}

/* Maps all of an allocation and makes it resident. */
static uint64_t map(handle_t allocation)
{
    D3DDDI_MAPGPUVIRTUALADDRESS map = {.hPagingQueue = paging_queue, .hAllocation = allocation};
    map.SizeInPages = BYTES / PAGE_BYTES;
    map.Protection.Write = 1;
    EXPECT(D3DKMTMapGpuVirtualAddress(&map), STATUS_PENDING);
    D3DDDI_MAKERESIDENT resident = {.hPagingQueue = paging_queue, .NumAllocations = 1, .AllocationList = &allocation};
    NTSTATUS status = D3DKMTMakeResident(&resident);
    CHECK(status == STATUS_PENDING || status == STATUS_SUCCESS, "MakeResident answered %#010x", (unsigned)status);
    uint64_t value = map.PagingFenceValue > resident.PagingFenceValue ? map.PagingFenceValue : resident.PagingFenceValue;
    if (fence_value(&paging) < value)
        EXPECT(cpu_wait(device, paging.handle, value, 0), STATUS_SUCCESS);
    return map.VirtualAddress;
}

/* An engine of this process does some work. */
static void run(uint32_t work, uint32_t kernel, uint32_t operand, const struct gpupv_use *uses, uint32_t count)
{
    static uint64_t commands[512];
    struct fence done = create_fence(device, 0, 0);
    struct gpupv_cmd cmd;
    gpupv_cmd_begin(&cmd, commands, sizeof commands);
    gpupv_cmd_work(&cmd, work, kernel, operand, 20000, uses, count);
    gpupv_cmd_fence_write(&cmd, done.gpu_address, 1);
    D3DKMT_SUBMITCOMMAND args = {.BroadcastContextCount = 1, .BroadcastContext = {context}};
    args.PrivateDriverDataSize = gpupv_cmd_end(&cmd);
    args.pPrivateDriverData = commands;
    EXPECT(D3DKMTSubmitCommand(&args), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, done.handle, 1, 0), STATUS_SUCCESS);
    EXPECT(destroy_object(done.handle), STATUS_SUCCESS);
}

/* It fills the words at this address. */
static void fill(uint64_t address, uint32_t bytes, uint32_t word)
{
    uint32_t buffer = create_buffer_at(adapter, device, address, bytes, GPUPV_RESOURCE_ALLOW_UNORDERED_ACCESS, "");
    struct gpupv_use use = gpupv_use_whole(buffer, GPUPV_ACCESS_UNORDERED_ACCESS);
    run(GPUPV_WORK_DISPATCH, GPUPV_KERNEL_FILL, word, &use, 1);
}

/* It copies bytes from one address to another. */
static void copy(uint64_t from, uint64_t to, uint32_t bytes)
{
    uint32_t source = create_buffer_at(adapter, device, from, bytes, 0, "");
    uint32_t target = create_buffer_at(adapter, device, to, bytes, 0, "");
    struct gpupv_use uses[] = {gpupv_use_whole(source, GPUPV_ACCESS_COPY_SOURCE), gpupv_use_whole(target, GPUPV_ACCESS_COPY_DEST)};
    run(GPUPV_WORK_COPY, GPUPV_KERNEL_COPY, 0, uses, 2);
}

static int words_of(const uint32_t *words, int from, int to, uint32_t word)
{
    int same = 1;
    for (int at = from; at < to; at++)
        same &= __atomic_load_n(&words[at], __ATOMIC_RELAXED) == word;
    return same;
}

static void set_words(uint32_t *words, int from, int to, uint32_t word)
{
    for (int at = from; at < to; at++)
        __atomic_store_n(&words[at], word, __ATOMIC_RELAXED);
}

/* Whether this process can read the address. */
static int is_mapped(const void *address)
{
    char byte;
    struct iovec local = {&byte, 1}, remote = {(void *)address, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

/* Waits for a command; makes a call meanwhile from time to time, so that a restarted daemon sees the process again. */
static char next_command(int socket)
{
    char command;
    struct pollfd ready = {socket, POLLIN, 0};
    while (poll(&ready, 1, 20) == 0)
        usage(adapter, D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL);
    return read(socket, &command, 1) == 1 ? command : EXITS;
}

/* The process that creates the resource: 1 in the first quarter, and the rest zeros, as it begins. */
static void creates(int socket, uint64_t bytes)
{
    set_up();
    struct shared own = create(bytes, GPUPV_ALLOCATION_CPU_VISIBLE, 1);
    struct shared hidden = create(BYTES, 0, 1), alone = create(BYTES, GPUPV_ALLOCATION_CPU_VISIBLE, 0);
    uint32_t *words, *none;
    EXPECT(lock(device, own.allocation, &words), STATUS_SUCCESS);
    CHECK(words_of(words, 0, WORDS, 0), "it does not begin as zeros");
    set_words(words, 0, WORDS / 4, 1);
    EXPECT(lock(device, alone.allocation, &none), STATUS_SUCCESS);
    set_words(none, 0, WORDS, 0x5EC4E7);
    send_descriptor(socket, (int)(intptr_t)own.nt_handle);
    send_descriptor(socket, (int)(intptr_t)hidden.nt_handle);
    CHECK(write(socket, &alone.allocation, sizeof alone.allocation) == sizeof alone.allocation, "write");
    close((int)(intptr_t)own.nt_handle);
    close((int)(intptr_t)hidden.nt_handle);
    for (char command; (command = next_command(socket)) != EXITS;) {
        char answer = 'y';
        if (command == CHECKS)
            answer = words_of(words, 0, WORDS / 4, 1) && words_of(words, WORDS / 4, WORDS / 2, 2) &&
                     words_of(words, WORDS / 2, WORDS, 3) ? 'y' : 'n';
        if (command == FILLS)
            fill(map(own.allocation), BYTES / 4, 4);
        if (command == DESTROYS)
            EXPECT(destroy_resource(own.resource), STATUS_SUCCESS);
        if (command == PRIVATE)
            answer = words_of(none, 0, WORDS, 0x5EC4E7) ? 'y' : 'n';
        CHECK(write(socket, &answer, 1) == 1, "write");
    }
    fflush(stdout);
    _exit(failures != 0);
}

struct creator {
    pid_t pid;
    int socket;
    HANDLE nt_handle, hidden;
    handle_t alone;
};

static struct creator start_creator(uint64_t bytes)
{
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair: %s", strerror(errno));
    fflush(stdout);
    struct creator creator = {fork(), sockets[0], NULL, NULL, 0};
    if (creator.pid == 0) {
        close(sockets[0]);
        creates(sockets[1], bytes);
    }
    close(sockets[1]);
    creator.nt_handle = (HANDLE)(intptr_t)receive_descriptor(creator.socket);
    creator.hidden = (HANDLE)(intptr_t)receive_descriptor(creator.socket);
    CHECK(read(creator.socket, &creator.alone, sizeof creator.alone) == sizeof creator.alone, "read");
    return creator;
}

static char tell(struct creator *creator, char command)
{
    char answer = 0;
    CHECK(write(creator->socket, &command, 1) == 1 && read(creator->socket, &answer, 1) == 1, "the creator is gone");
    return answer;
}

static void end_creator(struct creator *creator, int is_killed)
{
    if (is_killed) {
        kill(creator->pid, SIGKILL);
        CHECK(child_end(creator->pid) != 0, "it was not killed");
    } else {
        char exits = EXITS;
        CHECK(write(creator->socket, &exits, 1) == 1, "write");
        CHECK(child_end(creator->pid) == 0, "the creator failed");
    }
    close(creator->socket);
}

enum end { DESTROYED, EXITED, KILLED };

/* Both see each other's bytes and those of both engines; then the creator ends so. */
static void two_processes(enum end end)
{
    COVERS("MEM-035 MEM-036 MEM-037 MEM-038");
    struct creator creator = start_creator(BYTES);
    set_up();
    struct shared opened = open_shared(creator.nt_handle);
    uint32_t *words, *again;
    EXPECT(unlock(device, opened.allocation), STATUS_INVALID_PARAMETER);
    EXPECT(lock(device, opened.allocation, &words), STATUS_SUCCESS);
    CHECK(words && (uintptr_t)words % PAGE_BYTES == 0, "it is at %p", (void *)words);
    CHECK(words_of(words, 0, WORDS / 4, 1) && words_of(words, WORDS / 4, WORDS, 0), "other bytes than the creator's");
    EXPECT(lock(device, opened.allocation, &again), STATUS_SUCCESS);
    CHECK(again == words, "a second lock gave another address");
    set_words(words, WORDS / 4, WORDS / 2, 2);
    uint64_t address = map(opened.allocation);
    CHECK(usage(adapter, D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL) == BYTES, "%lu bytes are used", (unsigned long)usage(adapter, D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL));
    fill(address + BYTES / 2, BYTES / 2, 3);
    CHECK(words_of(words, WORDS / 2, WORDS, 3), "the engine of this process filled other bytes");
    CHECK(tell(&creator, CHECKS) == 'y', "the creator sees other bytes");
    tell(&creator, FILLS);
    CHECK(words_of(words, 0, WORDS / 4, 4), "the engine of the creator filled other bytes");
    CHECK(usage(adapter, D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL) == BYTES, "%lu bytes are used of one allocation", (unsigned long)usage(adapter, D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL));
    EXPECT(unlock(device, opened.allocation), STATUS_SUCCESS);
    set_words(words, 0, WORDS / 4, 5);

    if (end == DESTROYED)
        tell(&creator, DESTROYS);
    else
        end_creator(&creator, end == KILLED);
    close((int)(intptr_t)creator.nt_handle);
    EXPECT(lock(device, opened.allocation, &again), STATUS_SUCCESS);
    CHECK(again == words && words_of(words, 0, WORDS / 4, 5) && words_of(words, WORDS / 2, WORDS, 3), "bytes are lost");
    fill(address, BYTES / 2, 6);
    CHECK(words_of(words, 0, WORDS / 2, 6) && words_of(words, WORDS / 2, WORDS, 3), "the engine lost the memory");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(is_mapped(words) || is_mapped(words + WORDS - 1));
    CHECK(child_end(child) == 0, "a child has the memory of the device");
    EXPECT(unlock(device, opened.allocation), STATUS_SUCCESS);
    EXPECT(unlock(device, opened.allocation), STATUS_SUCCESS);
    EXPECT(unlock(device, opened.allocation), STATUS_INVALID_PARAMETER);
    EXPECT(destroy_resource(opened.resource), STATUS_SUCCESS);
    CHECK(usage(adapter, D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL) == 0 && !is_mapped(words), "the memory is there after its end");
    if (end == DESTROYED)
        end_creator(&creator, 0);
    close((int)(intptr_t)creator.hidden);
    static const char *const names[] = {"destroys it", "exits", "is killed"};
    printf("two processes lock the same bytes; the creator %s\n", names[end]);
    destroy_device(device);
    close_adapter(adapter);
}

/* The creator is gone before anyone opens the resource: an NT handle has kept it. */
static void by_an_nt_handle_alone(void)
{
    COVERS("MEM-036");
    struct creator creator = start_creator(MANY);
    end_creator(&creator, 1);
    set_up();
    struct shared opened = open_shared(creator.nt_handle);
    uint32_t *words;
    EXPECT(lock(device, opened.allocation, &words), STATUS_SUCCESS);
    CHECK(words_of(words, 0, WORDS / 4, 1), "bytes are lost");
    /* It is of three pieces of the broker. */
    for (uint64_t at = WORDS; at < MANY / 4; at += 1 << 18)
        words[at] = (uint32_t)at + 1;
    for (uint64_t at = WORDS; at < MANY / 4; at += 1 << 18)
        CHECK(words[at] == at + 1, "word %lu is %u", (unsigned long)at, words[at]);
    EXPECT(destroy_resource(opened.resource), STATUS_SUCCESS);
    CHECK(!is_mapped(words) && !is_mapped((char *)words + MANY - 1), "it is mapped after its end");
    /* The NT handle still keeps it. */
    opened = open_shared(creator.nt_handle);
    EXPECT(lock(device, opened.allocation, &words), STATUS_SUCCESS);
    CHECK(words[WORDS] == WORDS + 1, "bytes are lost");
    close((int)(intptr_t)creator.nt_handle);
    close((int)(intptr_t)creator.hidden);
    EXPECT(destroy_resource(opened.resource), STATUS_SUCCESS);
    printf("an NT handle keeps 40 MiB whose creator was killed\n");
    destroy_device(device);
    close_adapter(adapter);
}

static void what_is_not_shared(void)
{
    COVERS("MEM-039");
    struct creator creator = start_creator(BYTES);
    set_up();
    uint32_t *words;
    EXPECT(lock(device, creator.alone, &words), STATUS_INVALID_PARAMETER);
    struct shared hidden = open_shared(creator.hidden);
    EXPECT(lock(device, hidden.allocation, &words), STATUS_INVALID_PARAMETER);
    CHECK(words == NULL, "a refused lock gave an address");
    /* The opener ends first: the creator keeps its bytes. */
    struct shared opened = open_shared(creator.nt_handle);
    EXPECT(lock(device, opened.allocation, &words), STATUS_SUCCESS);
    set_words(words, WORDS / 4, WORDS / 2, 2);
    set_words(words, WORDS / 2, WORDS, 3);
    /* Its creator has neither locked nor mapped the hidden one: engines of this process reach it all the same. */
    uint64_t never_locked = map(hidden.allocation);
    copy(never_locked, map(opened.allocation) + BYTES / 2, BYTES / 2);
    CHECK(words_of(words, WORDS / 2, WORDS, 0), "it does not begin as zeros");
    fill(never_locked, BYTES / 2, 3);
    copy(never_locked, map(opened.allocation) + BYTES / 2, BYTES / 2);
    CHECK(words_of(words, WORDS / 2, WORDS, 3), "engines do not reach memory that its creator has not locked");
    destroy_device(device);
    CHECK(!is_mapped(words), "the memory is mapped after the end of its device");
    close_adapter(adapter);
    CHECK(tell(&creator, CHECKS) == 'y' && tell(&creator, PRIVATE) == 'y', "the creator's bytes have changed");
    end_creator(&creator, 0);
    close((int)(intptr_t)creator.nt_handle);
    close((int)(intptr_t)creator.hidden);
    /* No allocation begins with the bytes of one before. */
    set_up();
    for (int round = 0; round < 10; round++) {
        struct shared next = create(BYTES, GPUPV_ALLOCATION_CPU_VISIBLE, round % 2);
        EXPECT(lock(device, next.allocation, &words), STATUS_SUCCESS);
        CHECK(words_of(words, 0, WORDS, 0), "round %d: bytes of before", round);
        set_words(words, 0, WORDS, 0xAA);
        if (next.nt_handle)
            close((int)(intptr_t)next.nt_handle);
        EXPECT(destroy_resource(next.resource), STATUS_SUCCESS);
    }
    printf("what is not shared is of one process, and bytes of before are of none\n");
    destroy_device(device);
    close_adapter(adapter);
}

/* For each line of input: the CPU writes, an engine fills, and the CPU reads, with a lock that began a line before. The
 * creator is there, or was killed. */
static void on_demand(int is_killed)
{
    struct creator creator = start_creator(BYTES);
    set_up();
    struct shared opened = open_shared(creator.nt_handle);
    uint64_t address = map(opened.allocation);
    uint32_t *words, *again;
    EXPECT(lock(device, opened.allocation, &words), STATUS_SUCCESS);
    if (is_killed)
        end_creator(&creator, 1);
    set_words(words, WORDS / 4, WORDS / 2, 2);
    printf("ready\n");
    fflush(stdout);
    char line[16];
    for (uint32_t word = 1; fgets(line, sizeof line, stdin); word++) {
        CHECK(words_of(words, 0, WORDS / 4, 1) && (word == 1 || words_of(words, WORDS / 2, WORDS, 3)), "the bytes of the line before are gone");
        fill(address + BYTES / 2, BYTES / 2, word);
        CHECK(words_of(words, WORDS / 2, WORDS, word), "the engine filled other bytes");
        fill(address + BYTES / 2, BYTES / 2, 3);
        CHECK(is_killed || tell(&creator, CHECKS) == 'y', "the creator sees other bytes");
        EXPECT(unlock(device, opened.allocation), STATUS_SUCCESS);
        EXPECT(lock(device, opened.allocation, &again), STATUS_SUCCESS);
        CHECK(again == words && usage(adapter, D3DKMT_MEMORY_SEGMENT_GROUP_LOCAL) == BYTES, "a lock gave another address");
        printf("%s\n", failures ? "FAILED" : "right");
        fflush(stdout);
    }
    if (!is_killed)
        end_creator(&creator, 0);
    destroy_device(device);
    close_adapter(adapter);
}

int main(int argc, char **argv)
{
    setenv("GPUPV_QUIET", "1", 1);
    if (argc > 1) {
        on_demand(!strcmp(argv[1], "creator-is-killed"));
        return failures != 0;
    }
    two_processes(DESTROYED);
    two_processes(EXITED);
    two_processes(KILLED);
    by_an_nt_handle_alone();
    what_is_not_shared();
    printf("shared_device_memory: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
