/* The tour of the demo: all operations on one monitored fence. The output is the same on every backend:
 * it has no addresses and no times. Exit code 0 only if every check passed. */
#include "check.h"

static handle_t device, context;

static void show(const char *what)
{
    printf("%s\n", what);
    fflush(stdout);
}

static void describe_adapter(handle_t adapter, LUID luid)
{
    D3DKMT_DRIVER_DESCRIPTION *text = calloc(1, sizeof *text);
    D3DKMT_QUERYADAPTERINFO args = {adapter, KMTQAITYPE_DRIVER_DESCRIPTION, text, sizeof *text};
    EXPECT(D3DKMTQueryAdapterInfo(&args), STATUS_SUCCESS);
    CHECK(luid.LowPart || luid.HighPart, "the LUID is zero");
    printf("adapter: %ls\n", text->DriverDescription);
    free(text);
    D3DKMT_OPENADAPTERFROMLUID again = {.AdapterLuid = luid};
    EXPECT(D3DKMTOpenAdapterFromLuid(&again), STATUS_SUCCESS);
    CHECK(again.hAdapter && again.hAdapter != adapter, "opening by LUID gave no handle of its own");
    close_adapter(again.hAdapter);
}

static void poll_until(const struct fence *fence, uint64_t value)
{
    while (fence_value(fence) < value)
        usleep(50);
}

static void submit_write(const struct fence *fence, uint64_t value, uint64_t busy_ns)
{
    static struct gpupv_commands commands;
    gpupv_begin(&commands);
    gpupv_busy(&commands, busy_ns);
    gpupv_fence_write(&commands, fence->gpu_address, value);
    EXPECT(submit(context, &commands), STATUS_SUCCESS);
}

static void engine_signals(struct fence *fence)
{
    CHECK(fence_value(fence) == 1, "initial value %llu", (unsigned long long)fence_value(fence));
    show("fence: created at 1, read by a plain load");

    submit_write(fence, 2, 2000000);
    poll_until(fence, 2);
    show("engine: wrote 2; seen by polling");

    submit_write(fence, 3, 2000000);
    EXPECT(cpu_wait(device, fence->handle, 3, 0), STATUS_SUCCESS);
    CHECK(fence_value(fence) == 3, "not 3 after the wait");
    show("engine: wrote 3; seen by a blocking wait");

    int event = new_event();
    submit_write(fence, 4, 2000000);
    EXPECT(cpu_wait(device, fence->handle, 4, event), STATUS_SUCCESS);
    CHECK(take_event(event, LONG_MS) == 1, "the event was not set once");
    CHECK(fence_value(fence) == 4, "not 4 after the event");
    show("engine: wrote 4; seen by an event and poll()");

    /* Already satisfied: the event is set before the call returns. */
    EXPECT(cpu_wait(device, fence->handle, 4, event), STATUS_SUCCESS);
    CHECK(take_event(event, 0) == 1, "the event was not set at once");
    show("wait for what is reached: the event is set at once");
    close(event);
}

static void cpu_signals(struct fence *fence)
{
    EXPECT(cpu_signal(device, fence->handle, 5, 0), STATUS_SUCCESS);
    poll_until(fence, 5);
    show("cpu: signaled 5");
    EXPECT(cpu_signal(device, fence->handle, 4, 0), STATUS_INVALID_PARAMETER);
    CHECK(fence_value(fence) == 5, "a refused signal changed the value");
    show("cpu: a signal backwards is refused");
    EXPECT(cpu_signal(device, fence->handle, 2, 0x4), STATUS_SUCCESS);
    EXPECT(cpu_signal(device, fence->handle, 5, 0), STATUS_SUCCESS);
    show("cpu: a rewind is allowed when asked for");
}

static void gpu_waits_and_signals(struct fence *fence)
{
    struct fence gate = create_fence(device, 0, 0);
    EXPECT(gpu_wait(context, gate.handle, 1), STATUS_SUCCESS);
    EXPECT(gpu_signal(context, fence->handle, 6), STATUS_SUCCESS);
    int event = new_event();
    EXPECT(cpu_wait(device, fence->handle, 6, event), STATUS_SUCCESS);
    CHECK(take_event(event, 50) == 0 && fence_value(fence) == 5, "the context did not wait");
    show("gpu: a signal behind a wait stays back");
    EXPECT(cpu_signal(device, gate.handle, 1, 0), STATUS_SUCCESS);
    CHECK(take_event(event, LONG_MS) == 1, "the signal was not executed");
    CHECK(fence_value(fence) == 6, "not 6");
    show("gpu: the wait was met, the signal followed");
    close(event);
    EXPECT(destroy_object(gate.handle), STATUS_SUCCESS);
}

static void any_and_all(struct fence *fence)
{
    struct fence other = create_fence(device, 0, 0);
    handle_t both[] = {fence->handle, other.handle};
    uint64_t values[] = {7, 1};
    int any = new_event(), all = new_event();
    EXPECT(cpu_wait_many(device, 2, both, values, any, 0x1), STATUS_SUCCESS);
    EXPECT(cpu_wait_many(device, 2, both, values, all, 0), STATUS_SUCCESS);
    EXPECT(cpu_signal(device, fence->handle, 7, 0), STATUS_SUCCESS);
    CHECK(take_event(any, LONG_MS) == 1, "any: not woken");
    CHECK(take_event(all, 50) == 0, "all: woken by one of two");
    show("wait any: one of two fences is enough");
    submit_write(&other, 1, 1000000);
    EXPECT(cpu_wait_many(device, 2, both, values, 0, 0), STATUS_SUCCESS);
    CHECK(take_event(all, LONG_MS) == 1, "all: not woken");
    show("wait all: needs both");
    close(any);
    close(all);
    EXPECT(destroy_object(other.handle), STATUS_SUCCESS);
}

static void store_faults(struct fence *fence)
{
    uint64_t before = fence_value(fence);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile uint64_t *)(uintptr_t)fence->value = 1000;
        _exit(0);
    }
    CHECK(child_end(child) == -SIGSEGV, "a store through the CPU address did not fault");
    CHECK(fence_value(fence) == before, "a store changed the fence");
    show("memory: a store through the CPU address faults");
}

static void device_is_healthy(void)
{
    D3DKMT_GETDEVICESTATE args = {.hDevice = device, .StateType = D3DKMT_DEVICESTATE_EXECUTION};
    EXPECT(D3DKMTGetDeviceState(&args), STATUS_SUCCESS);
    CHECK(args.ExecutionState == D3DKMT_DEVICEEXECUTION_ACTIVE, "state %d", (int)args.ExecutionState);
    show("device: active");
}

int main(void)
{
    LUID luid;
    handle_t adapter = open_adapter(&luid);
    if (!adapter) {
        fprintf(stderr, "fence_tour: no adapter\n");
        return 1;
    }
    describe_adapter(adapter, luid);
    device = create_device(adapter);
    context = create_context(device, 0);
    show("device and context: created");
    struct fence fence = create_fence(device, 1, 0);
    CHECK((uintptr_t)fence.value % 8 == 0 && fence.gpu_address % 8 == 0, "an address is not aligned");

    engine_signals(&fence);
    cpu_signals(&fence);
    gpu_waits_and_signals(&fence);
    any_and_all(&fence);
    store_faults(&fence);
    device_is_healthy();

    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    EXPECT(destroy_object(fence.handle), STATUS_INVALID_PARAMETER);
    destroy_context(context);
    destroy_device(device);
    close_adapter(adapter);
    show("all destroyed");
    printf("%s\n", failures ? "fence_tour: FAILED" : "fence_tour: all as expected");
    return failures != 0;
}
