/* WaitForIdle returns once the contexts and hardware queues of a device have done what they had queued. */
#include "check.h"
#include <pthread.h>

static handle_t adapter, device;

enum { BUSY_NS = 50000000 };

static NTSTATUS wait_for_idle(handle_t of_device)
{
    return D3DKMTWaitForIdle(&(D3DKMT_WAITFORIDLE){of_device});
}

static struct gpupv_commands *busy(void)
{
    static struct gpupv_commands commands;
    gpupv_begin(&commands);
    gpupv_busy(&commands, BUSY_NS);
    return &commands;
}

static void bad_calls(void)
{
    COVERS("FEN-143");
    EXPECT(wait_for_idle(0), STATUS_INVALID_PARAMETER);
    EXPECT(wait_for_idle(adapter), STATUS_INVALID_PARAMETER);
    handle_t destroyed = create_device(adapter);
    EXPECT(wait_for_idle(destroyed), STATUS_SUCCESS);
    destroy_device(destroyed);
    EXPECT(wait_for_idle(destroyed), STATUS_INVALID_PARAMETER);
    printf("bad calls are refused\n");
}

/* Each context is busy, and signals behind that: the values are there when the call returns. */
static void contexts(void)
{
    COVERS("FEN-142");
    handle_t first = create_context(device, 0), second = create_context(device, 0);
    struct fence fence = create_fence(device, 0, 0), other = create_fence(device, 0, 0);
    for (uint64_t round = 1; round < 4; round++) {
        EXPECT(submit(first, busy()), STATUS_SUCCESS);
        EXPECT(gpu_signal(first, fence.handle, round), STATUS_SUCCESS);
        EXPECT(submit(second, busy()), STATUS_SUCCESS);
        EXPECT(gpu_signal(second, other.handle, round), STATUS_SUCCESS);
        EXPECT(wait_for_idle(device), STATUS_SUCCESS);
        CHECK(fence_value(&fence) == round && fence_value(&other) == round, "a context had work left");
        EXPECT(wait_for_idle(device), STATUS_SUCCESS);
    }
    /* Work of another device does not count. */
    handle_t own = create_device(adapter), stuck = create_context(own, 0);
    struct fence never = create_fence(own, 0, 0);
    EXPECT(gpu_wait(stuck, never.handle, 1), STATUS_SUCCESS);
    EXPECT(wait_for_idle(device), STATUS_SUCCESS);
    destroy_device(own);
    destroy_context(first);
    destroy_context(second);
    printf("contexts are idle\n");
}

static void hw_queues(void)
{
    COVERS("FEN-142");
    D3DKMT_CREATECONTEXTVIRTUAL hw_context = {.hDevice = device, .EngineAffinity = 1};
    hw_context.Flags.HwQueueSupported = 1;
    EXPECT(D3DKMTCreateContextVirtual(&hw_context), STATUS_SUCCESS);
    D3DKMT_CREATEHWQUEUE created = {.hHwContext = hw_context.hContext};
    EXPECT(D3DKMTCreateHwQueue(&created), STATUS_SUCCESS);
    struct gpupv_commands *commands = busy();
    gpupv_fence_write(commands, created.HwQueueProgressFenceGPUVirtualAddress, 1);
    D3DKMT_SUBMITCOMMANDTOHWQUEUE submitted = {.hHwQueue = created.hHwQueue, .HwQueueProgressFenceId = 1};
    submitted.pPrivateDriverData = commands->words;
    submitted.PrivateDriverDataSize = commands->bytes;
    EXPECT(D3DKMTSubmitCommandToHwQueue(&submitted), STATUS_SUCCESS);
    EXPECT(wait_for_idle(device), STATUS_SUCCESS);
    const volatile uint64_t *progress = created.HwQueueProgressFenceCPUVirtualAddress;
    CHECK(progress && *progress == 1, "the hardware queue had work left");
    destroy_context(hw_context.hContext);
    printf("hardware queues are idle\n");
}

static void *waits(void *status)
{
    *(NTSTATUS *)status = wait_for_idle(device);
    return NULL;
}

/* A queue that ends has nothing left to do, whether the wait has begun by then or not. */
static void of_a_context_that_ends(void)
{
    COVERS("FEN-144");
    struct fence never = create_fence(device, 0, 0);
    for (unsigned round = 0; round < 20; round++) {
        handle_t context = create_context(device, 0);
        EXPECT(gpu_wait(context, never.handle, 1), STATUS_SUCCESS);
        NTSTATUS status = 77;
        pthread_t waiter;
        CHECK(pthread_create(&waiter, NULL, waits, &status) == 0, "pthread_create");
        usleep(round * 300);
        destroy_context(context);
        pthread_join(waiter, NULL);
        EXPECT(status, STATUS_SUCCESS);
    }
    EXPECT(destroy_object(never.handle), STATUS_SUCCESS);
    printf("a context that ends is idle\n");
}

static void of_a_lost_device(void)
{
    COVERS("FEN-095 FEN-144");
    handle_t context = create_context(device, 0);
    struct fence never = create_fence(device, 0, 0);
    EXPECT(gpu_wait(context, never.handle, 1), STATUS_SUCCESS);
    NTSTATUS status = 77;
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, waits, &status) == 0, "pthread_create");
    usleep(20000);
    D3DKMT_MARKDEVICEASERROR mark = {.hDevice = device, .Reason = D3DKMT_DEVICE_ERROR_REASON_GENERIC};
    EXPECT(D3DKMTMarkDeviceAsError(&mark), STATUS_SUCCESS);
    pthread_join(waiter, NULL);
    EXPECT(status, STATUS_DEVICE_REMOVED);
    EXPECT(wait_for_idle(device), STATUS_DEVICE_REMOVED);
    /* The device is looked at first, so the descriptor does not matter. */
    int stale = dup(0);
    close(stale);
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 open = {.hNtHandle = (HANDLE)(intptr_t)stale, .hDevice = device};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&open), STATUS_DEVICE_REMOVED);
    printf("a lost device is removed\n");
}

int main(void)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    bad_calls();
    contexts();
    hw_queues();
    of_a_context_that_ends();
    of_a_lost_device();
    destroy_device(device);
    close_adapter(adapter);
    if (!failures)
        printf("wait_for_idle: all as expected\n");
    return failures != 0;
}
