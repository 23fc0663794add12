/* A guest that unbinds its vsock device while engines write the memory of one of its processes. The pages of that memory
 * are soon those of others, and no engine may write them any more.
 *
 *   unbound_device             queues writes, unbinds the device, looks at new memory, binds the device, writes the result
 *   unbound_device result      prints the result: the agent's connection has ended with the device */
#include "buffers.h"
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { WORK_MS = 50, SUBMISSIONS = 60, BYTES = 32 << 20 };

static const char RESULT[] = "/unbound_device.result";
static const char DRIVER[] = "/sys/bus/virtio/drivers/vmw_vsock_virtio_transport";
static const unsigned char NEW = 0x55;

static uint64_t commands[8192];

static void write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), "cannot write %s", path);
    close(file);
}

static void set_driver(const char *what)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", DRIVER, what);
    int file = open(path, O_WRONLY);
    /* The vsock device is one of the virtio devices. */
    for (int number = 0; number < 8; number++) {
        char name[16];
        int length = snprintf(name, sizeof name, "virtio%d", number);
        if (write(file, name, length) == length) {
            break;
        }
    }
    close(file);
}

static struct fence queue_writes(void)
{
    handle_t adapter = open_adapter(0), device = create_device(adapter), context = create_context(device, 0);
    struct fence paging, fence = create_fence(device, 0, 0);
    handle_t queue = create_paging_queue(device, &paging);
    void *heap = aligned_alloc(4096, BYTES);
    memset(heap, 1, BYTES);
    handle_t allocation = allocate_heap(device, heap, BYTES, NULL);
    D3DDDI_MAPGPUVIRTUALADDRESS map = {.hPagingQueue = queue, .hAllocation = allocation, .SizeInPages = BYTES / 4096};
    map.Protection.Write = 1;
    if (D3DKMTMapGpuVirtualAddress(&map) == STATUS_PENDING) {
        EXPECT(cpu_wait(device, paging.handle, map.PagingFenceValue, 0), STATUS_SUCCESS);
    }
    D3DDDI_MAKERESIDENT resident = {.hPagingQueue = queue, .NumAllocations = 1, .AllocationList = &allocation};
    if (D3DKMTMakeResident(&resident) == STATUS_PENDING) {
        EXPECT(cpu_wait(device, paging.handle, resident.PagingFenceValue, 0), STATUS_SUCCESS);
    }
    uint32_t buffer =
        create_buffer_at(adapter, device, map.VirtualAddress, BYTES, GPUPV_RESOURCE_ALLOW_UNORDERED_ACCESS, "heap");
    for (int at = 0; at < SUBMISSIONS; at++) {
        struct gpupv_cmd cmd;
        gpupv_cmd_begin(&cmd, commands, sizeof commands);
        gpupv_cmd_begin_list(&cmd, GPUPV_QUEUE_DIRECT, 0, "fill");
        struct gpupv_use use = gpupv_use_whole(buffer, GPUPV_ACCESS_UNORDERED_ACCESS);
        gpupv_cmd_work(&cmd, GPUPV_WORK_DISPATCH, GPUPV_KERNEL_FILL, 0xDEAD0000 + at, WORK_MS * 1000000ull, &use, 1);
        gpupv_cmd_fence_write(&cmd, fence.gpu_address, at + 1);
        D3DKMT_SUBMITCOMMAND submit = {.BroadcastContextCount = 1, .BroadcastContext = {context}};
        submit.pPrivateDriverData = commands;
        submit.PrivateDriverDataSize = gpupv_cmd_end(&cmd);
        EXPECT(D3DKMTSubmitCommand(&submit), STATUS_SUCCESS);
    }
    EXPECT(cpu_wait(device, fence.handle, 1, 0), STATUS_SUCCESS);
    CHECK(*(unsigned *)heap >= 0xDEAD0000, "engines do not write");
    return fence;
}

/* Whether new memory, most of what is free, keeps what is in it for a second. */
static int keeps_new_memory(void)
{
    size_t new_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) / 8 * 7 * 4096;
    unsigned char *memory = mmap(NULL, new_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "no memory");
    memset(memory, NEW, new_bytes);
    int foreign = 0;
    for (int times = 0; times < 10; times++) {
        usleep(100000);
        for (size_t at = 0; at < new_bytes; at += 4096) {
            foreign += memory[at] != NEW;
            memory[at] = NEW;
        }
    }
    munmap(memory, new_bytes);
    return foreign == 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "result") == 0) {
        char text[64] = "none yet";
        int file = open(RESULT, O_RDONLY);
        if (file >= 0) {
            text[read(file, text, sizeof text - 1)] = 0;
        }
        puts(text);
        return 0;
    }
    int ready[2];
    CHECK(pipe(ready) == 0, "no pipe");
    /* The agent ends its program with its connection, but not what that started in a session of its own. */
    if (fork() == 0) {
        setsid();
        char byte;
        CHECK(read(ready[0], &byte, 1) == 1, "the other process has failed");
        set_driver("unbind");
        /* guestd ends the process and frees its pages meanwhile. Engines have work for all of this time. */
        int keeps = 1;
        for (int at = 0; at < SUBMISSIONS * WORK_MS / 1000; at++) {
            keeps &= keeps_new_memory();
        }
        write_file(RESULT, keeps && failures == 0 ? "kept" : "engines wrote memory of another process");
        set_driver("bind");
        return 0;
    }
    queue_writes();
    CHECK(write(ready[1], "", 1) == 1, "no reader");
    pause();
    return 0;
}
