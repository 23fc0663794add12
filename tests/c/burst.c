/* Signals a fence by an engine, one message each without an answer, for tests/e2e/tests/system_calls.rs. It prints "ready"
 * and waits for a byte of its input. Two SIGURG, which do nothing, bracket the last signals for a tracer. */
#include <signal.h>

#include "check.h"

static void burst(handle_t device, handle_t context, const struct fence *fence, uint64_t from, uint64_t count)
{
    for (uint64_t value = from + 1; value <= from + count; value++)
        EXPECT(gpu_signal(context, fence->handle, value), STATUS_SUCCESS);
    /* A call with an answer, behind the signals. */
    D3DKMT_GETDEVICESTATE state = {.hDevice = device, .StateType = D3DKMT_DEVICESTATE_EXECUTION};
    EXPECT(D3DKMTGetDeviceState(&state), STATUS_SUCCESS);
    CHECK(fence_value(fence) == from + count, "%llu", (unsigned long long)fence_value(fence));
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    handle_t device = create_device(open_adapter(NULL));
    handle_t context = create_context(device, 0);
    struct fence fence = create_fence(device, 0, 0);
    burst(device, context, &fence, 0, count);
    printf("ready\n");
    fflush(stdout);
    char byte;
    if (read(0, &byte, 1) != 1)
        return 2;
    /* Wakes the daemon. */
    burst(device, context, &fence, count, count);
    raise(SIGURG);
    burst(device, context, &fence, 2 * count, count);
    raise(SIGURG);
    return failures != 0;
}
