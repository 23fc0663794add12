/* A library with fork handlers of its own, registered before the first call: they make calls, and wait for a thread that
 * makes one. */
#ifdef LATE
#include "late.h"
#endif
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

enum { FENCES_IN_A_PAGE = 64 };

static handle_t adapter, device;
static struct fence fence;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int turn;
static int event;
static handle_t device_of_child;

/* The first event of the process: the library makes a descriptor. */
static void prepare(void)
{
    EXPECT(cpu_wait(device, fence.handle, 5, event), STATUS_SUCCESS);
    turn = 1;
    while (turn != 2)
        sched_yield();
    pthread_mutex_lock(&lock);
}

static void parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void child(void)
{
    pthread_mutex_unlock(&lock);
    device_of_child = create_device(open_adapter(NULL));
}

/* Has the lock around its calls, for which the library gets more fence memory, and so a descriptor. */
static void *create_fences(void *unused)
{
    while (turn != 1)
        sched_yield();
    pthread_mutex_lock(&lock);
    turn = 2;
    for (int i = 0; i < FENCES_IN_A_PAGE; i++)
        create_fence(device, 0, 0);
    pthread_mutex_unlock(&lock);
    return unused;
}

/* A thread that has not blocked the alarm. */
static void *idle(void *unused)
{
    pause();
    return unused;
}

static int is_well_in_child(void)
{
    failures = 0;
    D3DKMT_GETDEVICESTATE state = {.hDevice = device_of_child, .StateType = D3DKMT_DEVICESTATE_EXECUTION};
    EXPECT(D3DKMTGetDeviceState(&state), STATUS_SUCCESS);
    fflush(stdout);
    return failures;
}

int main(void)
{
    pthread_t watchdog, creator;
    pthread_atfork(prepare, parent, child);
#ifdef LATE
    load();
#endif
    alarm(LONG_MS / 1000);
    pthread_create(&watchdog, NULL, idle, NULL);
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    fence = create_fence(device, 0, 0);
    event = new_event();
    pthread_create(&creator, NULL, create_fences, NULL);
    pid_t forked = fork();
    if (forked == 0)
        _exit(is_well_in_child());
    CHECK(child_end(forked) == 0, "the child failed");
    pthread_join(creator, NULL);
    EXPECT(cpu_signal(device, fence.handle, 5, 0), STATUS_SUCCESS);
    CHECK(take_event(event, LONG_MS) == 1, "the event is lost");
    destroy_device(device);
    close_adapter(adapter);
    printf("fork_handlers: %s\n", failures ? "not as expected" : "all as expected");
    return failures != 0;
}
