/* A driver's events as another real client uses them (real-clients.md 3.6): an eventfd and an object each, a known escape
 * with its one flag and both handles, the event's number in Usage[0], and polling waiters. The client ignores whether the
 * driver knows the escape. A registration ends with its object. */
#include "cpu_event.h"
#include <pthread.h>

enum { EVENTS = 8, ROUNDS = 20 };

static handle_t adapter, device, objects[EVENTS];
static int events[EVENTS], seen[2];

static NTSTATUS register_event(int at)
{
    D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE usage = {.EscapeType = D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE,
                                              .hSyncObject = objects[at],
                                              .Usage = {(UINT)at + 1}};
    return escape(adapter, device, DRIVER_KNOWN_ESCAPE, &usage, sizeof usage);
}

static void makes_events(void)
{
    for (int at = 0; at < EVENTS; ++at) {
        events[at] = new_event();
        EXPECT(create_notification(device, events[at], SIGNAL_BY_KMD, &objects[at]), STATUS_SUCCESS);
        EXPECT(register_event(at), STATUS_SUCCESS);
    }
    printf("%d events registered\n", EVENTS);
}

static void each_is_signaled_by_its_number(void)
{
    COVERS("ESC-001 EVT-026");
    for (int at = EVENTS; at-- > 0;) {
        uint32_t signaled;
        EXPECT(object_goes_bad(adapter, (uint32_t)at + 1, &signaled), STATUS_SUCCESS);
        CHECK(signaled == 1, "%u events have the number %d", signaled, at + 1);
        CHECK(take_event(events[at], LONG_MS) == 1, "event %d is not set", at + 1);
        for (int other = 0; other < EVENTS; ++other)
            CHECK(take_event(events[other], 0) == 0, "event %d is set by number %d", other + 1, at + 1);
    }
    printf("each is signaled by its own number\n");
}

/* Waits for one event this many times, and reports each set. */
static void *waiter(void *number)
{
    for (int round = 0; round < ROUNDS; ++round) {
        CHECK(take_event(events[(intptr_t)number], LONG_MS) == 1, "round %d", round);
        uint64_t one = 1;
        CHECK(write(seen[(intptr_t)number], &one, sizeof one) == sizeof one, "told");
    }
    return NULL;
}

static void threads_wait_by_polling(void)
{
    pthread_t threads[2];
    for (intptr_t at = 0; at < 2; ++at) {
        seen[at] = new_event();
        CHECK(pthread_create(&threads[at], NULL, waiter, (void *)at) == 0, "thread");
    }
    for (int round = 0; round < ROUNDS; ++round) {
        for (int at = 0; at < 2; ++at) {
            uint32_t signaled;
            EXPECT(object_goes_bad(adapter, (uint32_t)at + 1, &signaled), STATUS_SUCCESS);
        }
        for (int at = 0; at < 2; ++at)
            CHECK(take_event(seen[at], LONG_MS) == 1, "round %d of event %d", round, at + 1);
    }
    for (int at = 0; at < 2; ++at) {
        pthread_join(threads[at], NULL);
        close(seen[at]);
    }
    printf("two threads waited %d times each\n", ROUNDS);
}

static void another_kind_of_event_is_not_the_drivers(void)
{
    COVERS("EVT-004 ESC-007");
    handle_t plain;
    int event = new_event();
    EXPECT(create_notification(device, event, 0, &plain), STATUS_SUCCESS);
    D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE usage = {
        .EscapeType = D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE, .hSyncObject = plain, .Usage = {99}};
    EXPECT(escape(adapter, device, DRIVER_KNOWN_ESCAPE, &usage, sizeof usage), STATUS_INVALID_PARAMETER);
    uint32_t signaled;
    EXPECT(object_goes_bad(adapter, 99, &signaled), STATUS_SUCCESS);
    CHECK(signaled == 0 && take_event(event, 0) == 0, "the driver signaled an object without SignalByKmd");
    EXPECT(destroy_object(plain), STATUS_SUCCESS);
    close(event);
    printf("without SignalByKmd the driver knows nothing of it\n");
}

static void a_registration_ends_with_its_object_or_its_device(void)
{
    COVERS("EVT-013 EVT-017");
    uint32_t signaled;
    EXPECT(destroy_object(objects[0]), STATUS_SUCCESS);
    EXPECT(object_goes_bad(adapter, 1, &signaled), STATUS_SUCCESS);
    CHECK(signaled == 0, "the object is destroyed, but still registered");
    destroy_device(device);
    device = create_device(adapter);
    for (uint32_t number = 2; number <= EVENTS; ++number) {
        EXPECT(object_goes_bad(adapter, number, &signaled), STATUS_SUCCESS);
        CHECK(signaled == 0, "the device is destroyed, but registration %u is not", number);
    }
    for (int at = 0; at < EVENTS; ++at) {
        CHECK(take_event(events[at], 0) == 0, "event %d was signaled after its end", at + 1);
        close(events[at]);
    }
    printf("a registration ends with its object, and with its device\n");
}

int main(void)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    makes_events();
    each_is_signaled_by_its_number();
    threads_wait_by_polling();
    another_kind_of_event_is_not_the_drivers();
    a_registration_ends_with_its_object_or_its_device();
    destroy_device(device);
    close_adapter(adapter);
    printf("cpu_event_rocr: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
