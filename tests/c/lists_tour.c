/* Command lists on the process's own memory: engines read and write the same bytes as the program. A list with its five
 * barriers gives the right bytes. Without any one of them the bytes are wrong, and the debug layer names the broken
 * rule. */
#define _GNU_SOURCE
#include "check.h"

#define GPUPV_D3D12DDI_NAMES
#include <gpupv_cmd.h>
#include <gpupv_escape.h>
#include <sys/mman.h>
#include "buffers.h"

_Static_assert(D3D12DDI_BARRIER_SYNC_INPUT_ASSEMBLER == 0x4 && D3D12DDI_BARRIER_SYNC_PREDICATION == 0x800 &&
                   D3D12DDI_BARRIER_SYNC_EMIT_RAYTRACING_ACCELERATION_STRUCTURE_POSTBUILD_INFO == 0x4000 &&
                   D3D12DDI_BARRIER_SYNC_COPY_RAYTRACING_ACCELERATION_STRUCTURE == 0x1000000 &&
                   D3D12DDI_BARRIER_SYNC_SPLIT == 0x80000000,
               "the names of the DDI have its values");

enum { STAGES = 6, STAGE_BYTES = 64 * 1024, BYTES = STAGES * STAGE_BYTES, WORDS = STAGE_BYTES / 4 };

static handle_t adapter, device, context, paging_queue, allocation;
static struct fence done;
static uint64_t gpu_address, last_done;
static uint32_t *memory, stage[STAGES];
static uint64_t commands[1024];

static NTSTATUS escape(void *data, uint32_t bytes)
{
    D3DKMT_ESCAPE args = {.hAdapter = adapter, .hDevice = device, .Type = D3DKMT_ESCAPE_DRIVERPRIVATE};
    args.pPrivateDriverData = data;
    args.PrivateDriverDataSize = bytes;
    return D3DKMTEscape(&args);
}

static void create_memory(void)
{
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    for (int word = 0; word < BYTES / 4; word++)
        memory[word] = (uint32_t)word;
    allocation = allocate_heap(device, memory, BYTES, NULL);
    int same = 1;
    for (int word = 0; word < BYTES / 4; word++)
        same &= memory[word] == (uint32_t)word;
    CHECK(same, "the bytes have changed");

    D3DKMT_CREATEPAGINGQUEUE queue = {.hDevice = device};
    EXPECT(D3DKMTCreatePagingQueue(&queue), STATUS_SUCCESS);
    paging_queue = queue.hPagingQueue;
    D3DDDI_MAPGPUVIRTUALADDRESS map = {.hPagingQueue = paging_queue, .hAllocation = allocation};
    map.SizeInPages = BYTES / 4096;
    map.Protection.Write = 1;
    NTSTATUS status = D3DKMTMapGpuVirtualAddress(&map);
    CHECK(status == STATUS_PENDING, "the map answered %#x", (unsigned)status);
    D3DDDI_MAKERESIDENT resident = {.hPagingQueue = paging_queue, .NumAllocations = 1, .AllocationList = &allocation};
    EXPECT(D3DKMTMakeResident(&resident), STATUS_PENDING);
    EXPECT(cpu_wait(device, queue.hSyncObject, resident.PagingFenceValue, 0), STATUS_SUCCESS);
    gpu_address = map.VirtualAddress;
}

static uint32_t create_buffer(uint64_t address, const char *name)
{
    uint32_t flags = GPUPV_RESOURCE_ALLOW_UNORDERED_ACCESS | GPUPV_RESOURCE_ALLOW_RENDER_TARGET;
    return create_buffer_at(adapter, device, address, STAGE_BYTES, flags, name);
}

static void work(struct gpupv_cmd *cmd, uint32_t kind, uint32_t kernel, uint32_t operand, int from, uint32_t reads, int to,
                 uint32_t writes)
{
    struct gpupv_use uses[2] = {gpupv_use_whole(stage[to], writes)};
    if (from >= 0)
        uses[1] = gpupv_use_whole(stage[from], reads);
    gpupv_cmd_work(cmd, kind, kernel, operand, 20000, uses, from >= 0 ? 2 : 1);
}

static const struct gpupv_global_barrier BARRIERS[STAGES - 1] = {
    {GPUPV_SYNC_COMPUTE_SHADING, GPUPV_SYNC_COPY, GPUPV_ACCESS_UNORDERED_ACCESS, GPUPV_ACCESS_COPY_SOURCE},
    {GPUPV_SYNC_COPY, GPUPV_SYNC_COMPUTE_SHADING, GPUPV_ACCESS_COPY_DEST, GPUPV_ACCESS_SHADER_RESOURCE},
    {GPUPV_SYNC_COMPUTE_SHADING, GPUPV_SYNC_COPY, GPUPV_ACCESS_UNORDERED_ACCESS, GPUPV_ACCESS_COPY_SOURCE},
    {GPUPV_SYNC_COPY, GPUPV_SYNC_COMPUTE_SHADING, GPUPV_ACCESS_COPY_DEST, GPUPV_ACCESS_SHADER_RESOURCE},
    {GPUPV_SYNC_COMPUTE_SHADING, GPUPV_SYNC_COPY, GPUPV_ACCESS_UNORDERED_ACCESS, GPUPV_ACCESS_COPY_SOURCE},
};

/* Stage 0 is filled, and each other stage is computed from the one before: from 5 the last stage gets (5 + 7) ^ 3. */
static uint32_t build(int missing)
{
    struct gpupv_cmd cmd;
    gpupv_cmd_begin(&cmd, commands, sizeof commands);
    gpupv_cmd_begin_list(&cmd, GPUPV_QUEUE_DIRECT, 0, "tour");
    for (int number = 0; number < STAGES; number++) {
        switch (number) {
        case 0: work(&cmd, GPUPV_WORK_DISPATCH, GPUPV_KERNEL_FILL, 5, -1, 0, 0, GPUPV_ACCESS_UNORDERED_ACCESS); break;
        case 2: work(&cmd, GPUPV_WORK_DISPATCH, GPUPV_KERNEL_ADD, 7, 1, GPUPV_ACCESS_SHADER_RESOURCE, 2, GPUPV_ACCESS_UNORDERED_ACCESS); break;
        case 4: work(&cmd, GPUPV_WORK_DISPATCH, GPUPV_KERNEL_XOR, 3, 3, GPUPV_ACCESS_SHADER_RESOURCE, 4, GPUPV_ACCESS_UNORDERED_ACCESS); break;
        default: work(&cmd, GPUPV_WORK_COPY, GPUPV_KERNEL_COPY, 0, number - 1, GPUPV_ACCESS_COPY_SOURCE, number, GPUPV_ACCESS_COPY_DEST); break;
        }
        if (number < STAGES - 1 && number != missing) {
            struct gpupv_buffer_barrier barrier = {.barrier = BARRIERS[number], .resource = stage[number]};
            barrier.bytes = UINT64_MAX;
            gpupv_cmd_buffer_barrier(&cmd, &barrier);
        }
    }
    gpupv_cmd_fence_write(&cmd, done.gpu_address, ++last_done);
    uint32_t bytes = gpupv_cmd_end(&cmd);
    CHECK(bytes > 0, "the list does not fit");
    return bytes;
}

/* Runs the list; returns the number of correct words of the last stage. */
static int run(int missing)
{
    memset(memory, 0, BYTES);
    D3DKMT_SUBMITCOMMAND args = {.BroadcastContextCount = 1, .BroadcastContext = {context}};
    args.PrivateDriverDataSize = build(missing);
    args.pPrivateDriverData = commands;
    EXPECT(D3DKMTSubmitCommand(&args), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, done.handle, last_done, 0), STATUS_SUCCESS);
    int right = 0;
    for (int word = 0; word < WORDS; word++)
        right += memory[(STAGES - 1) * WORDS + word] == ((5 + 7) ^ 3);
    return right;
}

static void debug(uint32_t level)
{
    struct gpupv_escape_set_debug set = {GPUPV_ESCAPE_SET_DEBUG, level};
    EXPECT(escape(&set, sizeof set), STATUS_SUCCESS);
}

/* Number of errors and hazards, and whether one names the resource. */
static uint32_t read_messages(const char *name, int *named)
{
    static union { uint64_t words[2048]; struct gpupv_escape_read_messages head; } data;
    data.head.command = GPUPV_ESCAPE_READ_MESSAGES;
    EXPECT(escape(&data, sizeof data), STATUS_SUCCESS);
    const char *at = (const char *)(&data.head + 1);
    *named = 0;
    for (uint32_t number = 0; number < data.head.count; number++) {
        const struct gpupv_message *message = (const void *)at;
        *named |= memmem(message + 1, message->text_bytes, name, strlen(name)) != NULL;
        at += message->bytes;
    }
    return data.head.count;
}

static void barriers(void)
{
    static const char *const names[STAGES] = {"filled", "copied", "added", "copied again", "xored", "result"};
    for (int number = 0; number < STAGES; number++)
        stage[number] = create_buffer(gpu_address + (uint64_t)number * STAGE_BYTES, names[number]);
    int named;
    debug(GPUPV_DEBUG_ERRORS);
    int right = run(-1);
    CHECK(right == WORDS, "%d of %d words are right", right, WORDS);
    CHECK(read_messages("", &named) == 0, "the debug layer reported a message");
    printf("five barriers: every word of the result is right, the debug layer is silent\n");
    for (int missing = 0; missing < STAGES - 1; missing++) {
        right = run(missing);
        CHECK(right == 0, "without barrier %d %d words are right", missing, right);
        uint32_t count = read_messages(names[missing], &named);
        CHECK(count > 0 && named, "without barrier %d %u messages", missing, count);
        printf("without the barrier of '%s': no word is right, and the debug layer names it\n", names[missing]);
    }
    debug(GPUPV_DEBUG_OFF);
}

/* An engine reads the CPU's writes directly, without a copy. */
static void shares(void)
{
    for (int word = 0; word < WORDS; word++)
        memory[word] = (uint32_t)word * 3;
    struct gpupv_cmd cmd;
    gpupv_cmd_begin(&cmd, commands, sizeof commands);
    work(&cmd, GPUPV_WORK_COPY, GPUPV_KERNEL_COPY, 0, 0, GPUPV_ACCESS_COPY_SOURCE, 1, GPUPV_ACCESS_COPY_DEST);
    gpupv_cmd_fence_write(&cmd, done.gpu_address, ++last_done);
    D3DKMT_SUBMITCOMMAND args = {.BroadcastContextCount = 1, .BroadcastContext = {context}};
    args.PrivateDriverDataSize = gpupv_cmd_end(&cmd);
    args.pPrivateDriverData = commands;
    EXPECT(D3DKMTSubmitCommand(&args), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, done.handle, last_done, 0), STATUS_SUCCESS);
    CHECK(memcmp(memory, memory + WORDS, STAGE_BYTES) == 0, "the copy differs from its source");
    printf("what the CPU wrote an engine copied\n");
}

/* An unmapped address faults, without other effects. */
static void faults(void)
{
    EXPECT(D3DKMTFreeGpuVirtualAddress(&(D3DKMT_FREEGPUVIRTUALADDRESS){adapter, gpu_address, BYTES}), STATUS_SUCCESS);
    struct gpupv_cmd cmd;
    gpupv_cmd_begin(&cmd, commands, sizeof commands);
    work(&cmd, GPUPV_WORK_DISPATCH, GPUPV_KERNEL_FILL, 0xbad, -1, 0, 0, GPUPV_ACCESS_UNORDERED_ACCESS);
    D3DKMT_SUBMITCOMMAND args = {.BroadcastContextCount = 1, .BroadcastContext = {context}};
    args.PrivateDriverDataSize = gpupv_cmd_end(&cmd);
    args.pPrivateDriverData = commands;
    EXPECT(D3DKMTSubmitCommand(&args), STATUS_SUCCESS);
    D3DKMT_GETDEVICESTATE state;
    do {
        state = (D3DKMT_GETDEVICESTATE){.hDevice = device, .StateType = D3DKMT_DEVICESTATE_EXECUTION};
        EXPECT(D3DKMTGetDeviceState(&state), STATUS_SUCCESS);
        usleep(100);
    } while (state.ExecutionState == D3DKMT_DEVICEEXECUTION_ACTIVE);
    CHECK(memory[0] == 0 && memory[WORDS - 1] == (WORDS - 1) * 3, "the faulting list wrote memory");
    printf("an address that was freed faults, and nothing is written\n");
}

/* Runs lists without end, until the program is killed. */
static void run_for_ever(void)
{
    printf("ready\n");
    fflush(stdout);
    for (;;)
        run(-1);
}

/* Runs a list for each line of the input. */
static int run_on_demand(void)
{
    char line[16];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int right = run(-1);
        CHECK(right == WORDS, "%d of %d words are right", right, WORDS);
        printf("%s\n", right == WORDS ? "right" : "wrong");
        fflush(stdout);
    }
    destroy_device(device);
    close_adapter(adapter);
    return failures != 0;
}

int main(int count, char **words)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    context = create_context(device, 0);
    done = create_fence(device, 0, 0);
    create_memory();
    if (count > 1) {
        for (int number = 0; number < STAGES; number++)
            stage[number] = create_buffer(gpu_address + (uint64_t)number * STAGE_BYTES, "stage");
        if (strcmp(words[1], "on-demand") == 0)
            return run_on_demand();
        run_for_ever();
    }
    barriers();
    shares();
    faults();
    destroy_device(device);
    close_adapter(adapter);
    CHECK(memory[WORDS - 1] == (WORDS - 1) * 3, "destroying the device changed the process's memory");
    printf("lists_tour: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
