/* Enters the state that its argument names, prints "ready", and stays there until it is killed, or in
 * some states until its standard input ends. For tests of leaks. */
#include "attach.h"
#include <pthread.h>

enum { CALLERS = 8, WAITS = 1000 };

static handle_t adapter, device, context;
static struct fence fence;

static void open_all(void)
{
    adapter = open_adapter(NULL);
    if (!adapter)
        exit(1);
    device = create_device(adapter);
    context = create_context(device, 0);
    fence = create_fence(device, 0, 0);
}

static void ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

static void stay(void)
{
    ready();
    for (;;)
        pause();
}

/* 0 once standard input has data or has ended. */
static int nothing_to_read(void)
{
    struct pollfd input = {0, POLLIN, 0};
    return poll(&input, 1, 0) == 0;
}

/* Attached at the broker, without a Hello on the stream, which the library never does. */
static void attached(void)
{
    int descriptors[2];
    char token[TOKEN_BYTES];
    attach_by_hand(descriptors, token);
    stay();
}

/* The same, with a child that keeps every descriptor until its standard input ends. */
static void forked(void)
{
    int descriptors[2];
    char token[TOKEN_BYTES];
    attach_by_hand(descriptors, token);
    if (fork() == 0) {
        char byte;
        while (read(0, &byte, 1) > 0)
            ;
        _exit(0);
    }
    stay();
}

/* Every kind of object exists, waits are registered and packets are queued at the end. */
static void leaves(void)
{
    open_all();
    for (int i = 0; i < 100; i++) {
        struct fence other = create_fence(device, 0, 0);
        EXPECT(cpu_wait(device, other.handle, 1, new_event()), STATUS_SUCCESS);
    }
    EXPECT(gpu_wait(context, fence.handle, 5), STATUS_SUCCESS);
    EXPECT(gpu_signal(context, fence.handle, 6), STATUS_SUCCESS);
    printf("leaves everything behind\n");
}

static void blocked(void)
{
    open_all();
    ready();
    EXPECT(cpu_wait(device, fence.handle, 1, 0), STATUS_SUCCESS);
}

static void armed(void)
{
    open_all();
    EXPECT(cpu_wait(device, fence.handle, 1, new_event()), STATUS_SUCCESS);
    stay();
}

/* The first context has a command that hangs, with work behind it; the second has a GPU wait. */
static void hung(void)
{
    static struct gpupv_commands commands;
    open_all();
    gpupv_begin(&commands);
    gpupv_hang(&commands);
    EXPECT(submit(context, &commands), STATUS_SUCCESS);
    EXPECT(gpu_signal(context, fence.handle, 1), STATUS_SUCCESS);
    handle_t second = create_context(device, 1);
    EXPECT(gpu_wait(second, fence.handle, 1), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, fence.handle, 1, new_event()), STATUS_SUCCESS);
    stay();
}

static void *calls_for_ever(void *arg)
{
    (void)arg;
    for (;;) {
        struct fence own = create_fence(device, 0, 0);
        EXPECT(cpu_signal(device, own.handle, 1, 0), STATUS_SUCCESS);
        EXPECT(cpu_wait(device, own.handle, 1, 0), STATUS_SUCCESS);
        EXPECT(gpu_signal(context, own.handle, 2), STATUS_SUCCESS);
        EXPECT(cpu_wait(device, own.handle, 2, 0), STATUS_SUCCESS);
        EXPECT(destroy_object(own.handle), STATUS_SUCCESS);
    }
    return NULL;
}

static void calls(void)
{
    open_all();
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_create(&threads[i], NULL, calls_for_ever, NULL) == 0, "thread %d", i);
    stay();
}

/* Signals and waits until standard input ends: a client that must not be disturbed. */
static void steady(void)
{
    open_all();
    ready();
    uint64_t value = 0;
    do {
        value++;
        EXPECT(cpu_signal(device, fence.handle, value, 0), STATUS_SUCCESS);
        EXPECT(cpu_wait(device, fence.handle, value, 0), STATUS_SUCCESS);
        CHECK(fence_value(&fence) == value, "wrong value");
        usleep(1000);
    } while (nothing_to_read());
    printf("steady: %s\n", failures ? "FAILED" : "undisturbed");
}

/* Between the two printed lines it only waits for reached values, in both forms. */
static void satisfied(void)
{
    open_all();
    EXPECT(cpu_signal(device, fence.handle, 9, 0), STATUS_SUCCESS);
    int event = new_event();
    char byte;
    ready();
    CHECK(read(0, &byte, 1) == 1, "no word to go on");
    for (int i = 0; i < WAITS; i++) {
        EXPECT(cpu_wait(device, fence.handle, 9, 0), STATUS_SUCCESS);
        EXPECT(cpu_wait(device, fence.handle, 1, event), STATUS_SUCCESS);
        CHECK(take_event(event, 0) == 1, "the event was not set at once");
    }
    printf("waited\n");
    fflush(stdout);
    CHECK(read(0, &byte, 1) >= 0, "input");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*body)(void);
    } states[] = {
        {"attached", attached}, {"forked", forked}, {"leaves", leaves}, {"blocked", blocked},
        {"armed", armed},       {"hung", hung},     {"calls", calls},   {"steady", steady},
        {"satisfied", satisfied},
    };
    for (size_t i = 0; argc == 2 && i < sizeof states / sizeof *states; i++) {
        if (strcmp(argv[1], states[i].name) == 0) {
            states[i].body();
            return failures != 0;
        }
    }
    fprintf(stderr, "usage: states STATE\n");
    return 2;
}
