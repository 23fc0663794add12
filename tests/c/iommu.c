/* An IoMmu adapter: engines use the CPU address of a fence, and the program's mapping of it stays read-only. */
#include "check.h"
#include <sys/mman.h>

static handle_t device, context;

/* Waits until the engines have executed all submitted work. */
static void finish(const struct fence *done, uint64_t value)
{
    EXPECT(gpu_signal(context, done->handle, value), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, done->handle, value, 0), STATUS_SUCCESS);
}

static void engine_writes(uint64_t address, uint64_t value)
{
    struct gpupv_commands commands;
    gpupv_begin(&commands);
    gpupv_fence_write(&commands, address, value);
    EXPECT(submit(context, &commands), STATUS_SUCCESS);
}

static void writes_at_the_cpu_address(const struct fence *done, uint64_t signaled)
{
    COVERS("FEN-008");
    struct fence fence = create_fence(device, 3, 0);
    uint64_t cpu_address = (uint64_t)(uintptr_t)fence.value;
    CHECK(fence.gpu_address == cpu_address, "GPU address %llx, CPU address %llx",
          (unsigned long long)fence.gpu_address, (unsigned long long)cpu_address);
    engine_writes(cpu_address, 7);
    finish(done, signaled);
    CHECK(fence_value(&fence) == 7, "the value is %llu", (unsigned long long)fence_value(&fence));
    /* The host stores for the engine: the program itself cannot write. */
    uintptr_t page = (uintptr_t)fence.value & ~(uintptr_t)4095;
    CHECK(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE) != 0, "the mapping was made writable");
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
}

int main(void)
{
    handle_t adapter = open_adapter(NULL);
    device = create_device(adapter);
    context = create_context(device, 0);
    struct fence done = create_fence(device, 0, 0);
    /* The last fence is in memory that was added after the program attached. */
    enum { MANY = 300 };
    struct fence many[MANY];
    for (int at = 0; at < MANY; at++)
        many[at] = create_fence(device, 0, 0);
    writes_at_the_cpu_address(&done, 1);
    for (int at = 0; at < MANY; at++)
        engine_writes((uint64_t)(uintptr_t)many[at].value, 10 + at);
    finish(&done, 2);
    for (int at = 0; at < MANY; at++)
        CHECK(fence_value(&many[at]) == 10u + at, "fence %d: %llu", at, (unsigned long long)fence_value(&many[at]));
    destroy_device(device);
    close_adapter(adapter);
    printf("iommu: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
