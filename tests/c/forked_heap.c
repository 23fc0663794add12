/* Memory that no allocation has any more is the program's alone again: its heap, whatever a forked child does in its own,
 * and with the protection that it had. */
#include "check.h"
#include <sys/mman.h>

enum { BYTES = 65536, BLOCKS = 400 };

static handle_t adapter, device, paging_queue;
static struct fence paging;

/* An allocation of this memory begins, is mapped, and ends. */
static void allocate_and_destroy(void *memory)
{
    handle_t allocation = allocate_heap(device, memory, BYTES, NULL);
    D3DDDI_MAPGPUVIRTUALADDRESS map = {.hPagingQueue = paging_queue, .hAllocation = allocation};
    map.SizeInPages = BYTES / 4096;
    NTSTATUS status = D3DKMTMapGpuVirtualAddress(&map);
    CHECK(status == STATUS_SUCCESS || status == STATUS_PENDING, "answered %#x", (unsigned)status);
    if (status == STATUS_PENDING)
        EXPECT(cpu_wait(device, paging.handle, map.PagingFenceValue, 0), STATUS_SUCCESS);
    D3DKMT_DESTROYALLOCATION2 destroy = {.hDevice = device, .phAllocationList = &allocation, .AllocationCount = 1};
    destroy.Flags.SynchronousDestroy = 1;
    EXPECT(D3DKMTDestroyAllocation2(&destroy), STATUS_SUCCESS);
}

/* Many blocks in memory that was an allocation's. A child frees and fills its own. */
static void heap(void)
{
    void *memory = NULL;
    CHECK(posix_memalign(&memory, 4096, BYTES) == 0, "no memory");
    memset(memory, 1, BYTES);
    allocate_and_destroy(memory);
    free(memory);
    static char *blocks[BLOCKS];
    for (int at = 0; at < BLOCKS; at++) {
        blocks[at] = malloc(100 + at);
        memset(blocks[at], 'p', 100 + at);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        for (int at = 0; at < BLOCKS; at++)
            memset(blocks[at], 'c', 100 + at);
        _exit(0);
    }
    CHECK(child_end(child) == 0, "the child failed");
    int overwritten = 0;
    for (int at = 0; at < BLOCKS; at++)
        overwritten += blocks[at][0] != 'p' || blocks[at][99 + at] != 'p';
    CHECK(overwritten == 0, "the child has overwritten %d blocks of %d", overwritten, BLOCKS);
    for (int at = 0; at < BLOCKS; at++)
        free(blocks[at]);
}

/* Memory with code and data, as of a compiler at run time. */
static void code(void)
{
#ifdef __x86_64__
    static const unsigned char returns_42[] = {0xb8, 42, 0, 0, 0, 0xc3};
    unsigned char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    memcpy(memory, returns_42, sizeof returns_42);
    handle_t allocation = allocate_heap(device, memory, BYTES, NULL);
    int (*function)(void);
    memcpy(&function, &memory, sizeof function);
    CHECK(function() == 42, "of an allocation");
    EXPECT(D3DKMTDestroyAllocation2(&(D3DKMT_DESTROYALLOCATION2){.hDevice = device, .phAllocationList = &allocation, .AllocationCount = 1}), STATUS_SUCCESS);
    CHECK(function() == 42, "after it");
    munmap(memory, BYTES);
#endif
}

int main(void)
{
    adapter = open_adapter(NULL);
    if (!adapter)
        return 1;
    device = create_device(adapter);
    paging_queue = create_paging_queue(device, &paging);
    for (int round = 0; round < 3; round++)
        heap();
    code();
    destroy_device(device);
    close_adapter(adapter);
    printf("forked_heap: %s\n", failures ? "not as expected" : "all as expected");
    return failures != 0;
}
