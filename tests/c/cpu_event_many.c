/* Ten thousand live events of a driver in one process, checked by counts: an eventfd adds 1 for each set, so a lost signal
 * and an extra signal both show. A hundred objects share an eventfd: each object keeps a duplicate, and not every machine
 * allows 20,000 descriptors. */
#include "cpu_event.h"
#include <sys/resource.h>

#define EVENTS 10000
#define EVENTFDS 100
#define SIGNALS 1000
#define USAGE 0x33u
#define DESCRIPTORS_NEEDED (EVENTS + EVENTFDS + 100)

static handle_t adapter, device, objects[EVENTS];
static uint64_t names[EVENTS];
static int events[EVENTFDS];

static int have_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < DESCRIPTORS_NEEDED)
        limit.rlim_max = DESCRIPTORS_NEEDED;
    limit.rlim_cur = limit.rlim_max;
    int allowed = setrlimit(RLIMIT_NOFILE, &limit) == 0;
    CHECK(allowed, "this process may not have %d descriptors (ulimit -Hn)", DESCRIPTORS_NEEDED);
    return allowed;
}

/* The count of an eventfd: waits until it reaches `wanted`, and then adds later sets. */
static uint64_t count_of(int event, uint64_t wanted)
{
    uint64_t count = 0;
    while (count < wanted && becomes_set(event))
        count += take_event(event, 0);
    /* All earlier messages of the host have been delivered when this answer arrives. */
    EXPECT(escape(adapter, 0, 0, NULL, 0), STATUS_SUCCESS);
    return count + take_event(event, 0);
}

static void make_all(void)
{
    for (int at = 0; at < EVENTFDS; ++at)
        events[at] = new_event();
    for (int at = 0; at < EVENTS; ++at) {
        EXPECT(create_notification(device, events[at % EVENTFDS], SIGNAL_BY_KMD, &objects[at]), STATUS_SUCCESS);
        D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE usage = {
            .EscapeType = D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE, .hSyncObject = objects[at], .Usage = {USAGE}};
        EXPECT(escape(adapter, 0, DRIVER_KNOWN_ESCAPE | NO_ADAPTER_SYNCHRONIZATION, &usage, sizeof usage),
               STATUS_SUCCESS);
        names[at] = usage.hKmdCpuEvent;
        if (failures)
            exit(1);
    }
    printf("%d events are alive\n", EVENTS);
}

static void every_event_is_set(void)
{
    COVERS("EVT-007 EVT-027");
    uint32_t signaled = 0;
    EXPECT(object_goes_bad(adapter, USAGE, &signaled), STATUS_SUCCESS);
    CHECK(signaled == EVENTS, "the driver signaled %u", signaled);
    for (int at = 0; at < EVENTFDS; ++at) {
        uint64_t count = count_of(events[at], EVENTS / EVENTFDS);
        CHECK(count == EVENTS / EVENTFDS, "eventfd %d: %lu of %d objects", at, (unsigned long)count, EVENTS / EVENTFDS);
    }
    printf("each was set once\n");
}

static void signals_collapse_or_arrive(void)
{
    COVERS("EVT-025 EVT-026");
    const int at = 4999;
    int event = events[at % EVENTFDS];
    EXPECT(driver_signals(adapter, names[at], SIGNALS), STATUS_SUCCESS);
    CHECK(count_of(event, 1) == 1, "%d signals at once set it more than once, or not at all", SIGNALS);
    for (int round = 0; round < SIGNALS; ++round)
        EXPECT(driver_signals(adapter, names[at], 1), STATUS_SUCCESS);
    uint64_t count = count_of(event, SIGNALS);
    CHECK(count == SIGNALS, "%lu of %d", (unsigned long)count, SIGNALS);
    printf("%d signals at once set it once, one after the other as often\n", SIGNALS);
}

int main(void)
{
    if (!have_descriptors())
        return 1;
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    make_all();
    every_event_is_set();
    signals_collapse_or_arrive();
    for (int at = 0; at < EVENTS; at += 2)
        EXPECT(destroy_object(objects[at]), STATUS_SUCCESS);
    destroy_device(device);
    close_adapter(adapter);
    printf("cpu_event_many: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
