/* Threads that call and wait at once on one session: ping-pong over two fences, waits by event, creates and
 * destroys. A signal every other millisecond interrupts them without SA_RESTART. Prints the counts; nothing
 * may get lost. */
#include "check.h"
#include <pthread.h>
#include <sys/time.h>

enum { ROUNDS = 2000, OBJECTS = 1000, EVENTS = 1000, HELD = 1000 };

static handle_t device, context;
static struct fence ping, pong, ticks;
static int done[6];

static void *pinger(void *arg)
{
    (void)arg;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        EXPECT(cpu_signal(device, ping.handle, round, 0), STATUS_SUCCESS);
        EXPECT(cpu_wait(device, pong.handle, round, 0), STATUS_SUCCESS);
        done[0] += fence_value(&pong) >= round;
    }
    return NULL;
}

static void *ponger(void *arg)
{
    (void)arg;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        EXPECT(cpu_wait(device, ping.handle, round, 0), STATUS_SUCCESS);
        done[1] += fence_value(&ping) >= round;
        EXPECT(cpu_signal(device, pong.handle, round, 0), STATUS_SUCCESS);
    }
    return NULL;
}

/* Creates, signals, waits for, destroys. */
static void *churner(void *arg)
{
    for (int i = 0; i < OBJECTS; i++) {
        struct fence fence = create_fence(device, (uint64_t)i, 0);
        EXPECT(cpu_signal(device, fence.handle, (uint64_t)i + 1, 0), STATUS_SUCCESS);
        EXPECT(cpu_wait(device, fence.handle, (uint64_t)i + 1, 0), STATUS_SUCCESS);
        *(int *)arg += fence_value(&fence) == (uint64_t)i + 1;
        EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    }
    return NULL;
}

/* Waits by event for signals that another thread queues on the GPU. */
static void *listener(void *arg)
{
    (void)arg;
    for (uint64_t tick = 1; tick <= EVENTS; tick++) {
        int event = new_event();
        EXPECT(cpu_wait(device, ticks.handle, tick, event), STATUS_SUCCESS);
        done[4] += take_event(event, LONG_MS) == 1 && fence_value(&ticks) >= tick;
        close(event);
    }
    return NULL;
}

static void *ticker(void *arg)
{
    (void)arg;
    for (uint64_t tick = 1; tick <= EVENTS; tick++) {
        EXPECT(gpu_signal(context, ticks.handle, tick), STATUS_SUCCESS);
        done[5]++;
    }
    return NULL;
}

/* More fences at once than one page of fence memory holds: each has its own value. */
static void hold_many(void)
{
    static struct fence held[HELD];
    int right = 0;
    for (int i = 0; i < HELD; i++)
        held[i] = create_fence(device, (uint64_t)i, 0);
    for (int i = 0; i < HELD; i += 2)
        EXPECT(cpu_signal(device, held[i].handle, (uint64_t)i + 1, 0), STATUS_SUCCESS);
    for (int i = 0; i < HELD; i++) {
        right += fence_value(&held[i]) == (uint64_t)i + (i % 2 == 0);
        EXPECT(destroy_object(held[i].handle), STATUS_SUCCESS);
    }
    printf("fences at once: %d of %d\n", right, HELD);
    CHECK(right == HELD, "a fence had another's value");
}

static volatile sig_atomic_t interruptions;

static void interrupted(int number)
{
    (void)number;
    interruptions = interruptions + 1;
}

static void interrupt_every_ms(int ms)
{
    struct sigaction action = {.sa_handler = interrupted};
    struct itimerval every = {{0, ms * 1000}, {0, ms * 1000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
}

int main(void)
{
    handle_t adapter = open_adapter(NULL);
    if (!adapter)
        return 1;
    device = create_device(adapter);
    context = create_context(device, 0);
    ping = create_fence(device, 0, 0);
    pong = create_fence(device, 0, 0);
    ticks = create_fence(device, 0, 0);

    interrupt_every_ms(2);
    void *(*const bodies[])(void *) = {pinger, ponger, churner, churner, listener, ticker};
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, bodies[i], &done[i]) == 0, "thread %d", i);
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    interrupt_every_ms(0);
    CHECK(interruptions > 0, "no signal came");

    printf("ping-pong rounds: %d and %d of %d\n", done[0], done[1], ROUNDS);
    printf("objects: %d and %d of %d\n", done[2], done[3], OBJECTS);
    printf("events: %d of %d, ticks: %d\n", done[4], EVENTS, done[5]);
    CHECK(done[0] == ROUNDS && done[1] == ROUNDS, "a ping-pong round was lost");
    CHECK(done[2] == OBJECTS && done[3] == OBJECTS, "an object was lost");
    CHECK(done[4] == EVENTS && done[5] == EVENTS, "an event was lost");

    hold_many();

    /* A wait for a reached value sends no message. */
    uint64_t sent = gpupv_messages_sent();
    for (int i = 0; i < 1000; i++)
        EXPECT(cpu_wait(device, ping.handle, 1, 0), STATUS_SUCCESS);
    sent = gpupv_messages_sent() - sent;
    printf("messages of 1000 waits for what is reached: %llu\n", (unsigned long long)sent);
    CHECK(sent == 0 || sent == 1000, "only some of the waits sent a message"); /* all: recorded */

    EXPECT(destroy_object(ping.handle), STATUS_SUCCESS);
    EXPECT(destroy_object(pong.handle), STATUS_SUCCESS);
    EXPECT(destroy_object(ticks.handle), STATUS_SUCCESS);
    destroy_context(context);
    destroy_device(device);
    close_adapter(adapter);
    printf("%s\n", failures ? "threads: FAILED" : "threads: all as expected");
    return failures != 0;
}
