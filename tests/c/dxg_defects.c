/* One call for each defect of GPUPV_DXG_DEFECTS; prints what it answers. The test runs it with and without each. */
#include "check.h"
#include "dxg/dxg.h"
#include <fcntl.h>
#include <sys/ioctl.h>

static handle_t adapter, device, context;

static void answer(const char *call, NTSTATUS status)
{
    printf("%s: %#010x\n", call, (unsigned)status);
}

static void escape_status(void)
{
    D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE usage = {.EscapeType = 2, .hSyncObject = 0x1eadbe00};
    D3DKMT_ESCAPE escape = {.hAdapter = adapter, .Type = D3DKMT_ESCAPE_DRIVERPRIVATE};
    escape.Flags.DriverKnownEscape = 1;
    escape.pPrivateDriverData = &usage;
    escape.PrivateDriverDataSize = sizeof usage;
    answer("an escape about no object", D3DKMTEscape(&escape));
}

static void create(const char *what, handle_t of, UINT type)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 object = {.hDevice = of, .hSyncObject = 0x1eadbe00};
    object.Info.Type = type;
    object.Info.Flags.Value = 0x40000000; /* reserved */
    answer(what, D3DKMTCreateSynchronizationObject2(&object));
    printf("handle %#x\n", (unsigned)object.hSyncObject);
}

static void create_status(void)
{
    create("a fence with a reserved flag", device, D3DDDI_FENCE);
    create("a monitored fence with a reserved flag", device, D3DDDI_MONITORED_FENCE);
    create("a fence of no device", 0x1eadbe00, D3DDDI_FENCE);
}

static void event_id(void)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 object = {.hDevice = device};
    object.Info.Type = D3DDDI_CPU_NOTIFICATION;
    int event = new_event();
    object.Info.CPUNotification.Event = (HANDLE)(intptr_t)event;
    answer("a CPU notification", D3DKMTCreateSynchronizationObject2(&object));
    printf("its event is the descriptor: %d\n", object.Info.CPUNotification.Event == (HANDLE)(intptr_t)event);
}

static void einval_for_efault(void)
{
    NTSTATUS status = ioctl(dxg_descriptor, DXG_CREATE_DEVICE, NULL) < 0 ? dxg_status(errno) : 0;
    answer("a struct at NULL", status);
}

static void wait_seconds(void)
{
    struct fence fence = create_fence(device, 0, 0);
    static struct gpupv_commands commands;
    gpupv_begin(&commands);
    gpupv_busy(&commands, 1500000000);
    gpupv_fence_write(&commands, fence.gpu_address, 1);
    EXPECT(submit(context, &commands), STATUS_SUCCESS);
    answer("a wait of 1.5 seconds", cpu_wait(device, fence.handle, 1, 0));
    int attempts = 0;
    while (fence_value(&fence) < 1 && attempts++ < 10)
        cpu_wait(device, fence.handle, 1, 0);
    CHECK(fence_value(&fence) == 1, "waiting again did not help");
}

static void async_waits(void)
{
    struct fence fence = create_fence(device, 1, 0);
    for (int at = 0; at < 3; at++) {
        int event = new_event();
        answer("an asynchronous wait", cpu_wait(device, fence.handle, 1, event));
        close(event);
    }
}

static void full_ring(void)
{
    struct fence fence = create_fence(device, 0, 0);
    for (uint64_t value = 1; value <= 4; value++)
        answer("a signal of the context", gpu_signal(context, fence.handle, value));
}

static void open_refused(void)
{
    int descriptor = open("/dev/dxg", O_RDONLY | O_CLOEXEC);
    printf("open: %s\n", descriptor < 0 ? strerror(errno) : "a descriptor");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*body)(void);
    } defects[] = {
        {"escape-status", escape_status}, {"create-status", create_status},
        {"event-id", event_id},           {"einval-for-efault", einval_for_efault},
        {"wait-seconds", wait_seconds},   {"async-waits", async_waits},
        {"full-ring", full_ring},
    };
    if (argc == 2 && strcmp(argv[1], "open-refused") == 0) {
        open_refused();
        return 0;
    }
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    context = create_context(device, 0);
    for (size_t at = 0; argc == 2 && at < sizeof defects / sizeof *defects; at++) {
        if (strcmp(argv[1], defects[at].name) == 0) {
            defects[at].body();
            return failures != 0;
        }
    }
    fprintf(stderr, "usage: dxg_defects DEFECT\n");
    return 2;
}
