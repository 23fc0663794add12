/* A program to be killed at a point in the life of a driver's events. It runs to the point of its argument, prints "ready"
 * and stops there, or repeats the steps between two points. The test kills it and checks for leaks. With point 20 it ends
 * normally. */
#include "cpu_event.h"
#include <pthread.h>
#include <sched.h>

enum { LAST = 20, CALLS = 200 };

static int wanted, calls;
static handle_t adapter, device, object;
static int event;
static D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE usage;

static void ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

static void point(int number)
{
    if (number != wanted)
        return;
    ready();
    for (;;)
        pause();
}

static NTSTATUS registered(handle_t of_device)
{
    usage = (D3DDDI_DRIVERESCAPE_CPUEVENTUSAGE){
        .EscapeType = D3DDDI_DRIVERESCAPETYPE_CPUEVENTUSAGE, .hSyncObject = object, .Usage = {1}};
    return escape(adapter, of_device, DRIVER_KNOWN_ESCAPE, &usage, sizeof usage);
}

static void make(void)
{
    EXPECT(create_notification(device, event, SIGNAL_BY_KMD, &object), STATUS_SUCCESS);
}

static void called(void)
{
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
}

static void *registers_for_ever(void *unused)
{
    for (;;) {
        registered(0);
        called();
    }
    return unused;
}

static void *signals_for_ever(void *unused)
{
    for (;;) {
        driver_signals(adapter, usage.hKmdCpuEvent, 1);
        called();
    }
    return unused;
}

static void *makes_for_ever(void *unused)
{
    for (;;) {
        handle_t other;
        create_notification(device, event, SIGNAL_BY_KMD, &other);
        destroy_object(other);
        called();
    }
    return unused;
}

static void *waits_for_ever(void *unused)
{
    for (;;)
        take_event(event, LONG_MS);
    return unused;
}

/* Makes calls until the process ends; several threads run this. */
static void busy_point(int number, void *(*first)(void *), void *(*second)(void *))
{
    pthread_t threads[2];
    if (number != wanted)
        return;
    CHECK(pthread_create(&threads[0], NULL, first, NULL) == 0, "thread");
    CHECK(pthread_create(&threads[1], NULL, second, NULL) == 0, "thread");
    while (__atomic_load_n(&calls, __ATOMIC_RELAXED) < CALLS)
        sched_yield();
    point(number);
}

static void to_the_first_signal(void)
{
    adapter = open_adapter(NULL);
    point(0);
    device = create_device(adapter);
    point(1);
    event = new_event();
    make();
    point(2);
    EXPECT(registered(0), STATUS_SUCCESS);
    point(3);
    EXPECT(registered(device), STATUS_SUCCESS);
    point(4);
    EXPECT(driver_signals(adapter, usage.hKmdCpuEvent, 1), STATUS_SUCCESS);
    point(5);
    CHECK(becomes_set(event), "not set");
    point(6);
    EXPECT(driver_signals(adapter, usage.hKmdCpuEvent, GPUPV_ESCAPE_SIGNALS_MAX), STATUS_SUCCESS);
    point(7);
}

static void while_it_calls(void)
{
    busy_point(8, registers_for_ever, registers_for_ever);
    busy_point(9, signals_for_ever, waits_for_ever);
    busy_point(10, makes_for_ever, signals_for_ever);
    busy_point(11, makes_for_ever, makes_for_ever);
}

static void to_the_end(void)
{
    uint32_t signaled;
    EXPECT(object_goes_bad(adapter, 1, &signaled), STATUS_SUCCESS);
    point(12);
    EXPECT(destroy_object(object), STATUS_SUCCESS);
    point(13);
    make();
    EXPECT(registered(0), STATUS_SUCCESS);
    point(14);
    close(event);
    EXPECT(driver_signals(adapter, usage.hKmdCpuEvent, 1), STATUS_SUCCESS);
    point(15);
    pid_t child = fork();
    if (child == 0)
        _exit(registered(0) == STATUS_SUCCESS); /* the child cannot register the parent's event */
    CHECK(child_end(child) == 0, "a forked child used its parent's event");
    point(16);
    destroy_device(device);
    point(17);
    CHECK(driver_signals(adapter, usage.hKmdCpuEvent, 1) != STATUS_SUCCESS, "the event was signaled after the end of its device");
    EXPECT(destroy_object(object), STATUS_SUCCESS);
    point(18);
    close_adapter(adapter);
    point(19);
}

int main(int argc, char **argv)
{
    wanted = argc > 1 ? atoi(argv[1]) : LAST;
    to_the_first_signal();
    while_it_calls();
    to_the_end();
    printf("cpu_event_kill: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
