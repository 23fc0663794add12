/* WaitForIdle returns once the contexts and hardware queues of a device have done what they had queued. */
#include "check.h"
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

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
    /* A queue that takes no packets of the kernel has a progress fence, too: it is at the last value that was queued. */
    D3DKMT_CREATEHWQUEUE user_mode = {.hHwContext = hw_context.hContext};
    user_mode.Flags.UserModeSubmission = user_mode.Flags.NativeProgressFence = 1;
    EXPECT(D3DKMTCreateHwQueue(&user_mode), STATUS_SUCCESS);
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
    struct fence gate = create_fence(device, 0, 0);
    for (unsigned round = 0; round < 20; round++) {
        handle_t context = create_context(device, 0);
        EXPECT(gpu_wait(context, gate.handle, round + 1), STATUS_SUCCESS);
        NTSTATUS status = 77;
        pthread_t waiter;
        CHECK(pthread_create(&waiter, NULL, waits, &status) == 0, "pthread_create");
        usleep(round * 300);
        EXPECT(cpu_signal(device, gate.handle, round + 1, 0), STATUS_SUCCESS);
        destroy_context(context);
        pthread_join(waiter, NULL);
        EXPECT(status, STATUS_SUCCESS);
    }
    EXPECT(destroy_object(gate.handle), STATUS_SUCCESS);
    printf("a context that ends is idle\n");
}

static bool ends_within(pthread_t thread, unsigned seconds)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += seconds;
    return pthread_timedjoin_np(thread, NULL, &end) == 0;
}

/* Work that is queued during the call does not count, whichever queue it is in. The test that runs this program writes a
 * byte once the daemon has a CPU wait. */
static void later_work(void)
{
    COVERS("FEN-142");
    enum { CONTEXTS = 6 };
    handle_t contexts[CONTEXTS];
    struct fence gate = create_fence(device, 0, 0), late = create_fence(device, 0, 0);
    for (unsigned at = 0; at < CONTEXTS; at++) {
        contexts[at] = create_context(device, 0);
        EXPECT(gpu_wait(contexts[at], gate.handle, 1), STATUS_SUCCESS);
    }
    NTSTATUS status = 77;
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, waits, &status) == 0, "pthread_create");
    printf("waiting\n");
    fflush(stdout);
    CHECK(getchar() == 'x', "the input ended");
    for (unsigned at = 0; at < CONTEXTS; at++)
        EXPECT(gpu_wait(contexts[at], late.handle, 1), STATUS_SUCCESS);
    EXPECT(cpu_signal(device, gate.handle, 1, 0), STATUS_SUCCESS);
    bool ended = ends_within(waiter, 20);
    CHECK(ended, "the call waits for work that was queued after it");
    EXPECT(cpu_signal(device, late.handle, 1, 0), STATUS_SUCCESS);
    if (!ended)
        pthread_join(waiter, NULL);
    EXPECT(status, STATUS_SUCCESS);
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

int main(int count, char **arguments)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    if (count > 1 && strcmp(arguments[1], "later") == 0) {
        later_work();
    } else {
        bad_calls();
        contexts();
        hw_queues();
        of_a_context_that_ends();
        of_a_lost_device();
    }
    destroy_device(device);
    close_adapter(adapter);
    if (!failures)
        printf("wait_for_idle: all as expected\n");
    return failures != 0;
}
