/* A driver's event as a real client uses it (real-clients.md 3.5): a manual-reset event and an object with SignalByKmd. A
 * known escape that names only the adapter, and does not wake it, registers the event. The driver returns its own name of
 * the event in the same buffer, for private data of later calls. */
#include "cpu_event.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define USAGE 0x11u

static handle_t adapter, device, object;
static int event;
static D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE usage;

static NTSTATUS say_what_it_is_for(void)
{
    return escape(adapter, 0, DRIVER_KNOWN_ESCAPE | NO_ADAPTER_SYNCHRONIZATION, &usage, sizeof usage);
}

static void registers(void)
{
    COVERS("ESC-001 ESC-002 ESC-006 ESC-022 EVT-001");
    EXPECT(create_notification(device, event, SIGNAL_BY_KMD, &object), STATUS_SUCCESS);
    usage = (D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE){
        .EscapeType = D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE, .hSyncObject = object, .Usage = {USAGE}};
    EXPECT(say_what_it_is_for(), STATUS_SUCCESS);
    uint64_t name = usage.hKmdCpuEvent;
    CHECK(name != 0, "the driver's name of the event is 0");
    CHECK(usage.EscapeType == 2 && usage.hSyncObject == object && usage.Usage[0] == USAGE && !usage.Usage[1],
          "the escape changed more than the name");
    usage.hKmdCpuEvent = 0xDEADBEEF;
    EXPECT(say_what_it_is_for(), STATUS_SUCCESS);
    CHECK(usage.hKmdCpuEvent == name, "the kernel used the caller's name of the event");
    CHECK(take_event(event, 0) == 0, "the event is set without a signal");
    printf("registered; the driver's name of the event came back\n");
}

static void stays_set_until_it_is_reset(void)
{
    COVERS("EVT-007 EVT-026");
    EXPECT(driver_signals(adapter, usage.hKmdCpuEvent, 1), STATUS_SUCCESS);
    CHECK(becomes_set(event) && becomes_set(event), "not set");
    CHECK(take_event(event, LONG_MS) > 0, "the event was not set again");
    CHECK(take_event(event, 0) == 0, "the event is set after its reset");
    for (int round = 0; round < 100; ++round) {
        EXPECT(driver_signals(adapter, usage.hKmdCpuEvent, 1), STATUS_SUCCESS);
        CHECK(take_event(event, LONG_MS) == 1, "round %d", round);
    }
    printf("the driver signaled 101 times, and it was seen 101 times\n");
}

/* A thread that blocks for 1 of a fence. */
static struct fence awaited;
static NTSTATUS wait_status;
static atomic_int waiting_thread, wait_is_over;

static void *wait_for_one(void *unused)
{
    (void)unused;
    atomic_store(&waiting_thread, gettid());
    wait_status = cpu_wait(device, awaited.handle, 1, 0);
    atomic_store(&wait_is_over, 1);
    return NULL;
}

/* Waits until the thread sleeps: its wait is then in the stream, before the next call. */
static void await_sleep(void)
{
    char path[64], state = 0;
    while (!atomic_load(&waiting_thread))
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&waiting_thread));
    while (state != 'S' && !atomic_load(&wait_is_over)) {
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        if (file)
            fclose(file);
    }
}

/* Why the CPU event is needed: the driver gets only the number of a handle. The number is small, as are the library's
 * event ids of waits. Signaling it must neither end a wait nor set an event. */
static void a_handle_in_private_data_is_of_no_use(void)
{
    COVERS("EVT-022 EVT-027 GPV-010");
    enum { NUMBERS = 64 };
    int other = new_event(), armed = new_event();
    CHECK(other < NUMBERS, "the number of the descriptor is %d", other);
    awaited = create_fence(device, 0, 0);
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, wait_for_one, NULL) == 0, "no thread");
    await_sleep();
    EXPECT(cpu_wait(device, awaited.handle, 1, armed), STATUS_SUCCESS);
    for (int round = 0; round < 3; ++round)
        for (uint64_t number = 1; number <= NUMBERS; ++number)
            EXPECT(driver_signals_number(adapter, number), STATUS_SUCCESS);
    /* A later valid signal sets its event. */
    EXPECT(driver_signals(adapter, usage.hKmdCpuEvent, 1), STATUS_SUCCESS);
    CHECK(take_event(event, LONG_MS) == 1, "the event of the object is not set once");
    CHECK(take_event(other, 0) == 0, "an event was set by the number of its descriptor");
    CHECK(take_event(armed, 0) == 0, "the event of a wait was set by a number");
    CHECK(!atomic_load(&wait_is_over) && fence_value(&awaited) == 0, "a wait ended by a number");
    EXPECT(cpu_signal(device, awaited.handle, 1, 0), STATUS_SUCCESS);
    pthread_join(waiter, NULL);
    CHECK(wait_status == STATUS_SUCCESS, "the wait ended with %#x", (unsigned)wait_status);
    CHECK(take_event(armed, LONG_MS) == 1, "the event of the wait is not set once");
    EXPECT(destroy_object(awaited.handle), STATUS_SUCCESS);
    close(armed);
    close(other);
    printf("the number of a handle sets no event and ends no wait\n");
}

static void is_refused(void)
{
    COVERS("EVT-002 ESC-007");
    handle_t none;
    EXPECT(create_notification(0, event, SIGNAL_BY_KMD, &none), STATUS_INVALID_PARAMETER);
    struct fence fence = create_fence(device, 0, 0);
    D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE other = usage;
    other.hSyncObject = fence.handle;
    other.hKmdCpuEvent = 7;
    D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE before = other;
    EXPECT(escape(adapter, 0, DRIVER_KNOWN_ESCAPE, &other, sizeof other), STATUS_INVALID_PARAMETER);
    CHECK(memcmp(&other, &before, sizeof other) == 0, "a refused escape wrote");
    EXPECT(escape(adapter, 0, DRIVER_KNOWN_ESCAPE, &usage, 3), STATUS_INVALID_PARAMETER);
    EXPECT(escape(adapter, 0, DRIVER_KNOWN_ESCAPE, NULL, sizeof usage), STATUS_INVALID_PARAMETER);
    EXPECT(driver_signals(adapter, usage.hKmdCpuEvent + 1, 1), STATUS_INVALID_PARAMETER);
    EXPECT(cpu_signal(device, object, 1, 0), STATUS_INVALID_PARAMETER);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    CHECK(take_event(event, 0) == 0, "a refused escape set the event");
    printf("what is no such event is refused\n");
}

static void ends_with_its_object(void)
{
    COVERS("EVT-013");
    EXPECT(destroy_object(object), STATUS_SUCCESS);
    EXPECT(driver_signals(adapter, usage.hKmdCpuEvent, 1), STATUS_INVALID_PARAMETER);
    EXPECT(say_what_it_is_for(), STATUS_INVALID_PARAMETER);
    CHECK(take_event(event, 0) == 0, "the event was set after its end");
    printf("destroyed, and signaled no more\n");
}

int main(void)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    event = new_event();
    registers();
    stays_set_until_it_is_reset();
    a_handle_in_private_data_is_of_no_use();
    is_refused();
    ends_with_its_object();
    close(event);
    destroy_device(device);
    close_adapter(adapter);
    printf("cpu_event_l0: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
