/* Signal handlers that interrupt a thread in a blocking wait: one forks, the other makes a call. And one that forks at any
 * point of short calls. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { EXIT_OF_CHILD = 7, VALUE = 5, CHILDREN = 250, PERIOD_US = 1777 };

static handle_t device;
static struct fence fence, other;
static volatile pid_t child;
static volatile NTSTATUS nested;
static pid_t parent;

static void forks(int signal)
{
    (void)signal;
    pid_t forked = fork();
    if (forked)
        child = forked;
}

static volatile int forked, is_child;
static pid_t children[CHILDREN];

static void forks_many_times(int signal)
{
    (void)signal;
    int before = errno;
    if (forked < CHILDREN && !is_child) {
        pid_t child = fork();
        if (child == 0)
            is_child = 1;
        else
            children[forked++] = child;
    }
    errno = before;
}

/* Most of the time such a call looks for its answer in memory that the child does not have. */
static void short_calls(void)
{
    struct sigaction action = {.sa_handler = forks_many_times, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, PERIOD_US}, {0, PERIOD_US}}, NULL);
    uint64_t value = 1000;
    while (forked < CHILDREN) {
        NTSTATUS status = cpu_signal(device, other.handle, value++, 0);
        /* Removed in a call, invalid if the child makes the call, and a success that the handler has interrupted late. */
        if (is_child)
            _exit(status != STATUS_DEVICE_REMOVED && status != STATUS_INVALID_PARAMETER && status != STATUS_SUCCESS);
        CHECK(status == STATUS_SUCCESS, "the parent's call answered %#x", (unsigned)status);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        int code = child_end(children[i]);
        CHECK(code == 0, "child %d: %d", i, code);
    }
}

static void calls(int signal)
{
    (void)signal;
    nested = cpu_signal(device, other.handle, 1, 0);
}

struct waiter {
    pthread_t thread;
    _Atomic pid_t id;
    NTSTATUS status;
};

static void *wait_for_value(void *argument)
{
    struct waiter *waiter = argument;
    waiter->id = syscall(SYS_gettid);
    waiter->status = cpu_wait(device, fence.handle, VALUE, 0);
    if (getpid() != parent)
        _exit(waiter->status == STATUS_DEVICE_REMOVED ? EXIT_OF_CHILD : EXIT_FAILURE);
    return NULL;
}

static void start(struct waiter *waiter)
{
    *waiter = (struct waiter){0};
    CHECK(pthread_create(&waiter->thread, NULL, wait_for_value, waiter) == 0, "no thread");
    while (waiter->id == 0)
        sched_yield();
}

/* Waits until the thread is in this system call. */
static void await_system_call(const struct waiter *waiter, long system_call)
{
    char path[64], text[32];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter->id);
    do {
        int file = open(path, O_RDONLY);
        ssize_t length = read(file, text, sizeof text - 1);
        text[length > 0 ? length : 0] = 0;
        close(file);
    } while (strtol(text, NULL, 10) != system_call);
}

static void handle(void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
}

static void end(struct waiter *waiter)
{
    pthread_join(waiter->thread, NULL);
    CHECK(waiter->status == STATUS_SUCCESS, "the wait answered %#x", (unsigned)waiter->status);
}

int main(void)
{
    parent = getpid();
    handle_t adapter = open_adapter(0);
    device = create_device(adapter);
    other = create_fence(device, 0, 0);
    static const int flags[] = {0, SA_RESTART};
    for (int i = 0; i < 2; i++) {
        /* The first waiter reads the stream for both, the second one sleeps until the first has something for it. */
        struct waiter reader, sleeper, *both[] = {&reader, &sleeper};
        fence = create_fence(device, 0, 0);
        start(&reader);
        await_system_call(&reader, SYS_recvfrom);
        start(&sleeper);
        await_system_call(&sleeper, SYS_futex);
        /* The answer to this call comes behind those to the waits, so the threads have nothing more to do. */
        EXPECT(cpu_signal(device, other.handle, i + 1, 0), STATUS_SUCCESS);
        await_system_call(&reader, SYS_recvfrom);
        await_system_call(&sleeper, SYS_futex);
        handle(forks, flags[i]);
        for (int j = 0; j < 2; j++) {
            child = 0;
            pthread_kill(both[j]->thread, SIGUSR1);
            while (child == 0)
                sched_yield();
            int code = child_end(child);
            CHECK(code == EXIT_OF_CHILD, "waiter %d of the child: %d", j, code);
        }
        handle(calls, flags[i]);
        for (int j = 0; j < 2; j++) {
            nested = STATUS_PENDING;
            pthread_kill(both[j]->thread, SIGUSR1);
            while (nested == STATUS_PENDING)
                sched_yield();
            CHECK(nested == STATUS_UNSUCCESSFUL, "the handler's call answered %#x", (unsigned)nested);
        }
        EXPECT(cpu_signal(device, fence.handle, VALUE, 0), STATUS_SUCCESS);
        end(&reader);
        end(&sleeper);
    }
    short_calls();
    destroy_device(device);
    close_adapter(adapter);
    printf("signal_handlers: %s\n", failures ? "not as expected" : "all as expected");
    return failures != 0;
}
