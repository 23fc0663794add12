/* Section 6 of windows-observed.md: CPU signals and CPU waits with an event. */
#include "rows.h"

static handle_t device;

static void wrong_types(void)
{
    COVERS("W-100 W-101 W-102 W-103");
    static const struct {
        UINT type;
        const char *wait, *signal;
    } kinds[] = {{D3DDDI_SYNCHRONIZATION_MUTEX, "W-100", "W-101"},
                 {D3DDDI_SEMAPHORE, "W-102", "W-102"},
                 {D3DDDI_FENCE, "W-103", "W-103"}};
    int event = new_event();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(device, kinds[i].type, 0);
        EXPECT(D3DKMTCreateSynchronizationObject2(&args), OK);
        status_row(kinds[i].wait, cpu_wait(device, args.hSyncObject, 0, event), IP, "CPU wait: wrong type");
        row(kinds[i].wait, take_event(event, 0) == 0, "a refused wait sets no event");
        status_row(kinds[i].signal, cpu_signal(device, args.hSyncObject, 0, 0), IP, "CPU signal: wrong type");
        EXPECT(destroy_object(args.hSyncObject), OK);
    }
    close(event);
}

static void monitored_fence(void)
{
    COVERS("W-104 W-105 W-106 W-107 W-108 W-109 W-110 W-111 W-112 W-113");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = info2(device, D3DDDI_MONITORED_FENCE, 0);
    args.Info.Fence.FenceValue = 1;
    status_row("W-104", D3DKMTCreateSynchronizationObject2(&args), OK, "initial value through the alias");
    handle_t fence = args.hSyncObject;
    int event = new_event();
    status_row("W-105", cpu_wait(device, fence, 0, event), OK, "wait 0 at 1");
    row("W-105", take_event(event, 0) == 1, "the event is set at once");
    status_row("W-106", cpu_wait(device, fence, 1, event), OK, "wait 1 at 1");
    row("W-106", take_event(event, 0) == 1, "the event is set at once");
    status_row("W-107", cpu_wait(device, fence, 2, event), OK, "wait 2 at 1");
    row("W-107", take_event(event, 100) == 0, "the event stays clear");
    status_row("W-108", cpu_signal(device, fence, 2, 0), OK, "signal 2");
    row("W-108", take_event(event, LONG_MS) == 1, "the event is set");
    status_row("W-109", cpu_signal(device, fence, 1, 0), IP, "signal 1 at 2");
    status_row("W-110", cpu_signal(device, fence, 1, 0x4), OK, "signal 1 at 2 with AllowFenceRewind");
    status_row("W-111", cpu_wait(device, fence, 2, event), OK, "wait 2 after the rewind");
    row("W-111", take_event(event, 100) == 0, "the event stays clear");
    status_row("W-112", cpu_signal(device, fence, 2, 0), OK, "signal 2 again");
    row("W-112", take_event(event, LONG_MS) == 1, "the event is set");
    status_row("W-113", destroy_object(fence), OK, "destroy");
    row("W-113", close(event) == 0, "close the event");
}

int main(void)
{
    handle_t adapter = open_adapter(NULL);
    device = create_device(adapter);
    wrong_types();
    monitored_fence();
    destroy_device(device);
    close_adapter(adapter);
    return end_of_rows("rows_cpu");
}
