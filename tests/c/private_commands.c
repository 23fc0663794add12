/* Submits command buffers in the format of tests/sample_kmd_c to adapter 0, as many rounds as each line of standard
 * input says, and says "on" after them. */
#include "check.h"

enum { MAGIC = 0x31435653, BUSY = 1 };

int main(void)
{
    handle_t adapter = open_adapter(NULL);
    handle_t device = create_device(adapter);
    handle_t context = create_context(device, 0);
    struct fence fence = create_fence(device, 0, 0);
    uint64_t value = 0;
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        for (long rounds = atol(line); rounds > 0; rounds--) {
            uint32_t words[] = {MAGIC, BUSY, 100000};
            D3DKMT_SUBMITCOMMAND args = {.pPrivateDriverData = words, .PrivateDriverDataSize = sizeof words};
            args.BroadcastContextCount = 1;
            args.BroadcastContext[0] = context;
            EXPECT(D3DKMTSubmitCommand(&args), STATUS_SUCCESS);
            EXPECT(gpu_signal(context, fence.handle, ++value), STATUS_SUCCESS);
            EXPECT(cpu_wait(device, fence.handle, value, 0), STATUS_SUCCESS);
            CHECK(fence_value(&fence) >= value, "the fence has %lu", (unsigned long)fence_value(&fence));
        }
        printf("on\n");
        fflush(stdout);
    }
    /* The driver counts completed buffers, over all restarts. */
    uint32_t data[2] = {1, 0};
    D3DKMT_ESCAPE escape = {.hAdapter = adapter, .pPrivateDriverData = data, .PrivateDriverDataSize = sizeof data};
    EXPECT(D3DKMTEscape(&escape), STATUS_SUCCESS);
    CHECK(data[1] == value, "the driver has completed %u buffers of %lu", data[1], (unsigned long)value);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    destroy_context(context);
    destroy_device(device);
    close_adapter(adapter);
    printf("private commands: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
