/* Events of a driver that the broker sets itself, checked by counts in every state of an eventfd. An eventfd adds 1 for
 * each set, so a lost signal and a spurious signal both show. */
#include "cpu_event.h"

#include "broker.h"

enum { SIGNALS = 1000, EVENTS = 40, LIVES = 50, WAKES = 20, HELD = 16 };

static handle_t adapter, device;

struct event {
    int descriptor;
    handle_t object;
    uint64_t name; /* the driver's name */
};

static void make(struct event *event, uint32_t usage)
{
    EXPECT(create_notification(device, event->descriptor, SIGNAL_BY_KMD, &event->object), STATUS_SUCCESS);
    D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE known = {
        .EscapeType = D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE, .hSyncObject = event->object, .Usage = {usage}};
    EXPECT(escape(adapter, 0, DRIVER_KNOWN_ESCAPE, &known, sizeof known), STATUS_SUCCESS);
    event->name = known.hKmdCpuEvent;
}

static void signals(const struct event *event, int times)
{
    for (int time = 0; time < times; ++time)
        EXPECT(driver_signals(adapter, event->name, 1), STATUS_SUCCESS);
}

/* Number of sets by all earlier signals. */
static uint64_t settled(const struct event *event)
{
    gpupv_settle_events();
    return take_event(event->descriptor, 0);
}

static void every_signal_is_counted(struct event *event)
{
    COVERS("EVT-025 EVT-026");
    signals(event, SIGNALS);
    uint64_t count = settled(event);
    CHECK(count == SIGNALS, "%lu of %d", (unsigned long)count, SIGNALS);
    EXPECT(driver_signals(adapter, event->name, SIGNALS), STATUS_SUCCESS);
    count = settled(event);
    CHECK(count == 1, "%d signals at once set it %lu times", SIGNALS, (unsigned long)count);
    CHECK(settled(event) == 0, "the event is set without a signal");
    printf("%d signals set it as often, as many at once set it once\n", SIGNALS);
}

static void more_events_than_the_broker_keeps_are_set_all_the_same(void)
{
    COVERS("EVT-007 EVT-027");
    static struct event events[EVENTS];
    const uint32_t usage = 77;
    for (int at = 0; at < EVENTS; ++at) {
        events[at].descriptor = new_event();
        make(&events[at], usage);
    }
    for (int round = 0; round < 3; ++round) {
        uint32_t signaled = 0;
        EXPECT(object_goes_bad(adapter, usage, &signaled), STATUS_SUCCESS);
        CHECK(signaled == EVENTS, "the driver signaled %u", signaled);
        for (int at = 0; at < EVENTS; ++at)
            CHECK(take_event(events[at].descriptor, LONG_MS) == 1, "event %d of round %d", at, round);
        gpupv_settle_events();
        for (int at = 0; at < EVENTS; ++at)
            CHECK(take_event(events[at].descriptor, 0) == 0, "event %d is set again", at);
    }
    for (int at = 0; at < EVENTS; ++at) {
        EXPECT(destroy_object(events[at].object), STATUS_SUCCESS);
        close(events[at].descriptor);
    }
    printf("%d events were set three times each\n", EVENTS);
}

/* An event whose eventfd is full: setting it would block. The broker does not block and sets other events. */
static void a_full_counter_stops_nobody(const struct event *other)
{
    struct event full = {.descriptor = eventfd(0, EFD_CLOEXEC)};
    make(&full, 1);
    const uint64_t most = UINT64_MAX - 1;
    CHECK(write(full.descriptor, &most, sizeof most) == sizeof most, "%s", strerror(errno));
    signals(&full, 3);
    signals(other, 3);
    CHECK(settled(other) == 3, "the other event was not set");
    CHECK(settled(&full) >= most, "the full event lost its count");
    signals(&full, 3);
    CHECK(settled(&full) == 3, "the formerly full event was not set three times");
    EXPECT(destroy_object(full.object), STATUS_SUCCESS);
    close(full.descriptor);
    printf("an event that is full stops nobody\n");
}

static void the_end_of_an_object_sets_nothing(void)
{
    COVERS("EVT-013");
    struct event event = {.descriptor = new_event()};
    for (int life = 0; life < LIVES; ++life) {
        make(&event, 1);
        EXPECT(destroy_object(event.object), STATUS_SUCCESS);
        CHECK(settled(&event) == 0, "the end of the event set it");
        make(&event, 1);
        signals(&event, 1);
        CHECK(settled(&event) == 1, "life %d", life);
        EXPECT(destroy_object(event.object), STATUS_SUCCESS);
        CHECK(settled(&event) == 0, "the end of the event set it after a signal");
        /* This signal may come before or after the end. */
        make(&event, 1);
        signals(&event, 1);
        EXPECT(destroy_object(event.object), STATUS_SUCCESS);
        CHECK(settled(&event) <= 1, "the event was set more often than signaled");
        CHECK(settled(&event) == 0, "the event was set after its end");
    }
    close(event.descriptor);
    printf("%d lives: no end sets an event\n", LIVES);
}

static void its_number_may_be_closed(void)
{
    struct event event = {.descriptor = new_event()};
    make(&event, 1);
    int copy = dup(event.descriptor);
    close(event.descriptor);
    event.descriptor = copy;
    signals(&event, 5);
    CHECK(settled(&event) == 5, "the event was not set five times");
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(child_end(child) == 0, "the child");
    signals(&event, 5);
    CHECK(settled(&event) == 5, "the event was not set five times after a fork");
    EXPECT(destroy_object(event.object), STATUS_SUCCESS);
    close(copy);
    printf("closed numbers and children change nothing\n");
}

/* Number of context switches of the library's thread that reads the stream for events; -1 if it does not exist or is
 * running. */
static long switches_of_library(void)
{
    long switches = -1;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300], line[200], state = 0;
        long found = 0;
        int is_it = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            long count;
            is_it |= strcmp(line, "Name:\tgpupv-events\n") == 0;
            sscanf(line, "State: %c", &state);
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &count) == 1 ||
                sscanf(line, "nonvoluntary_ctxt_switches: %ld", &count) == 1)
                found += count;
        }
        if (status)
            fclose(status);
        if (is_it && state == 'S')
            switches = found;
    }
    if (tasks)
        closedir(tasks);
    return switches;
}

/* Waits for wakes; the test lets the driver signal each time this program prints that it waits. */
static int waits(void)
{
    struct event event = {.descriptor = eventfd(0, EFD_CLOEXEC)};
    make(&event, 5);
    long before = -1, last = -2;
    while (before < 0 || before != last) {
        last = before;
        before = switches_of_library();
    }
    for (int wake = 0; wake < WAKES; ++wake) {
        uint64_t count = 0;
        printf("wake %d\n", wake);
        fflush(stdout);
        CHECK(read(event.descriptor, &count, sizeof count) == sizeof count && count == 1, "%lu", (unsigned long)count);
    }
    long after = switches_of_library();
    CHECK(after == before, "the library's thread ran: %ld, then %ld", before, after);
    printf("%s\n", failures ? "FAILED" : "woken without an intermediate thread");
    return failures != 0;
}

/* As many events as a broker keeps for a process. The test lets the driver signal each of them once. */
static int holds(void)
{
    static struct event events[HELD];
    for (int at = 0; at < HELD; ++at) {
        events[at].descriptor = new_event();
        make(&events[at], 6);
    }
    printf("ready\n");
    fflush(stdout);
    for (int at = 0; at < HELD; ++at)
        CHECK(take_event(events[at].descriptor, LONG_MS) == 1, "event %d", at);
    gpupv_settle_events();
    for (int at = 0; at < HELD; ++at)
        CHECK(take_event(events[at].descriptor, 0) == 0, "event %d is set twice", at);
    printf("%s\n", failures ? "FAILED" : "each was set once");
    return failures != 0;
}

static int is_stopped(pid_t process)
{
    char path[64], line[200] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *stat = fopen(path, "r");
    if (stat && !fgets(line, sizeof line, stat))
        line[0] = 0;
    if (stat)
        fclose(stat);
    return strstr(line, ") T ") != NULL;
}

/* In a VM: the broker is stopped. An event is still set once. The host continues, and its
 * later signals arrive when the broker continues. */
static int without_the_broker(void)
{
    struct event event = {.descriptor = new_event()};
    make(&event, 8);
    pid_t broker = broker_process();
    CHECK(broker > 1 && kill(broker, SIGSTOP) == 0, "%s", strerror(errno));
    while (!failures && !is_stopped(broker))
        usleep(1000);
    signals(&event, 1);
    CHECK(take_event(event.descriptor, LONG_MS) == 1, "not set");
    signals(&event, SIGNALS);
    struct fence fence = create_fence(device, 0, 0);
    EXPECT(cpu_signal(device, fence.handle, 1, 0), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, fence.handle, 1, 0), STATUS_SUCCESS);
    CHECK(take_event(event.descriptor, 0) == 0, "the event was set again while the broker was stopped");
    CHECK(kill(broker, SIGCONT) == 0, "%s", strerror(errno));
    uint64_t count = settled(&event);
    CHECK(count == SIGNALS, "%lu of %d", (unsigned long)count, SIGNALS);
    printf("%s\n", failures ? "FAILED" : "set without the broker");
    return failures != 0;
}

int main(int argc, char **argv)
{
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    if (argc > 1 && strcmp(argv[1], "waits") == 0)
        return waits();
    if (argc > 1 && strcmp(argv[1], "holds") == 0)
        return holds();
    if (argc > 1)
        return without_the_broker();
    struct event event = {.descriptor = new_event()};
    make(&event, 1);
    every_signal_is_counted(&event);
    more_events_than_the_broker_keeps_are_set_all_the_same();
    a_full_counter_stops_nobody(&event);
    the_end_of_an_object_sets_nothing();
    its_number_may_be_closed();
    destroy_device(device);
    close_adapter(adapter);
    printf("cpu_event_channel: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
