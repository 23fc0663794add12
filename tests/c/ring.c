/* One of three processes in a ring. Each waits for its neighbour on the CPU, on the GPU and by event, while the daemon is
 * killed and restarted. The argument is its number. Each line of its input is a number of rounds, after which it prints
 * "on". At the end of its input it stops and prints its counts. Nothing may be lost or executed twice.
 * With a second argument, a path, it detaches, prints to PATH.out, and runs until PATH.stop exists. */
#include "check.h"
#include <pthread.h>

enum { PROCESSES = 3 };
#define LAST (UINT64_C(1) << 40)

static handle_t device, context, queue;
static struct fence own, work, queued, neighbour;
static int stopping;
static uint64_t rounds, submissions, created, reads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, signals = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t advanced = PTHREAD_COND_INITIALIZER;

static int is_stopping(void)
{
    return __atomic_load_n(&stopping, __ATOMIC_ACQUIRE);
}

static uint16_t *path_of(int process)
{
    static uint16_t path[PROCESSES][64];
    const char *text = "\\BaseNamedObjects\\ring ";
    size_t at = 0;
    for (; text[at]; at++)
        path[process][at] = (uint16_t)text[at];
    path[process][at] = (uint16_t)('0' + process);
    return path[process];
}

static OBJECT_ATTRIBUTES *attributes_of(int process)
{
    static UNICODE_STRING text[PROCESSES];
    static OBJECT_ATTRIBUTES attributes[PROCESSES];
    const uint16_t *path = path_of(process);
    uint16_t units = 0;
    while (path[units])
        units++;
    text[process] = (UNICODE_STRING){units * 2, units * 2 + 2, path};
    attributes[process] = (OBJECT_ATTRIBUTES){.Length = sizeof *attributes, .ObjectName = &text[process]};
    return &attributes[process];
}

/* The neighbour waits for this process as this one waits for it. */
static void *ring(void *arg)
{
    (void)arg;
    for (uint64_t round = 1;; round++) {
        pthread_mutex_lock(&signals);
        int over = is_stopping();
        if (!over)
            EXPECT(cpu_signal(device, own.handle, round, 0), STATUS_SUCCESS);
        pthread_mutex_unlock(&signals);
        if (over)
            return NULL;
        CHECK(fence_value(&own) >= round, "%llu after the signal of %llu", (unsigned long long)fence_value(&own),
              (unsigned long long)round);
        EXPECT(cpu_wait(device, neighbour.handle, round, 0), STATUS_SUCCESS);
        CHECK(fence_value(&neighbour) >= round, "the wait ended too early");
        pthread_mutex_lock(&lock);
        rounds = round;
        pthread_cond_broadcast(&advanced);
        pthread_mutex_unlock(&lock);
    }
}

/* Submits engine work, and waits by an event for each. */
static void *submitter(void *arg)
{
    (void)arg;
    for (uint64_t value = 1; !is_stopping(); value++) {
        static struct gpupv_commands commands;
        gpupv_begin(&commands);
        gpupv_busy(&commands, 200000);
        gpupv_fence_write(&commands, work.gpu_address, value);
        EXPECT(submit(context, &commands), STATUS_SUCCESS);
        int event = new_event();
        EXPECT(cpu_wait(device, work.handle, value, event), STATUS_SUCCESS);
        CHECK(take_event(event, LONG_MS) == 1, "event %llu", (unsigned long long)value);
        CHECK(fence_value(&work) == value, "%llu is not %llu", (unsigned long long)fence_value(&work),
              (unsigned long long)value);
        close(event);
        submissions = value;
    }
    return NULL;
}

/* Queues packets that wait for the neighbour. */
static void *queuer(void *arg)
{
    (void)arg;
    uint64_t value = 0;
    while (!is_stopping()) {
        for (int ahead = 0; ahead < 8; ahead++) {
            value++;
            EXPECT(gpu_wait(queue, neighbour.handle, value), STATUS_SUCCESS);
            EXPECT(gpu_signal(queue, queued.handle, value), STATUS_SUCCESS);
        }
        EXPECT(cpu_wait(device, queued.handle, value, 0), STATUS_SUCCESS);
    }
    return NULL;
}

/* Creates and destroys objects, which reuse slots and indices. */
static void *churner(void *arg)
{
    (void)arg;
    for (uint64_t i = 1; !is_stopping(); i++) {
        struct fence fence = create_fence(device, i, 0);
        CHECK(fence_value(&fence) == i, "a new fence has the value of an earlier one");
        EXPECT(cpu_signal(device, fence.handle, i + 1, 0), STATUS_SUCCESS);
        EXPECT(cpu_wait(device, fence.handle, i + 1, 0), STATUS_SUCCESS);
        CHECK(fence_value(&fence) == i + 1, "a signal was lost");
        EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
        created = i;
    }
    return NULL;
}

/* Makes no calls: the values that it reads must survive each restart and never decrease. */
static void *reader(void *arg)
{
    (void)arg;
    uint64_t last[2] = {0, 0};
    while (!is_stopping()) {
        const struct fence *fences[2] = {&own, &work};
        for (int i = 0; i < 2; i++) {
            uint64_t value = fence_value(fences[i]);
            CHECK(value >= last[i], "fence %d went back from %llu to %llu", i, (unsigned long long)last[i],
                  (unsigned long long)value);
            last[i] = value;
        }
        if (++reads % 64 == 0)
            usleep(100);
    }
    return NULL;
}

static void go_on_for(uint64_t more)
{
    pthread_mutex_lock(&lock);
    uint64_t end = rounds + more;
    while (rounds < end)
        pthread_cond_wait(&advanced, &lock);
    pthread_mutex_unlock(&lock);
    printf("on\n");
    fflush(stdout);
}

/* Opens a fence that the neighbour, or this process itself, shares by name; retries until the neighbour has shared it. */
static void open_neighbour(int process, int waits)
{
    D3DKMT_OPENSYNCOBJECTNTHANDLEFROMNAME by_name = {D3DDDI_SYNC_OBJECT_ALL_ACCESS, attributes_of(process), NULL};
    NTSTATUS status;
    while ((status = D3DKMTOpenSyncObjectNtHandleFromName(&by_name)) != STATUS_SUCCESS && waits)
        usleep(10000);
    EXPECT(status, STATUS_SUCCESS);
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 open = {.hNtHandle = by_name.hNtHandle, .hDevice = device};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&open), STATUS_SUCCESS);
    neighbour = (struct fence){open.hSyncObject, open.MonitoredFence.FenceValueCPUVirtualAddress, 0};
    close((int)(intptr_t)by_name.hNtHandle);
}

static char path[64];

static const char *path_with(const char *end)
{
    static char whole[80];
    snprintf(whole, sizeof whole, "%s.%s", path, end);
    return whole;
}

static void leave(const char *named)
{
    snprintf(path, sizeof path, "%s", named);
    if (fork())
        exit(0);
    setsid();
    if (!freopen("/dev/null", "r", stdin) || !freopen(path_with("out"), "w", stdout) || dup2(1, 2) != 2)
        exit(1);
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 0, is_alone = argc > 2;
    if (is_alone)
        leave(argv[2]);
    handle_t adapter = open_adapter(NULL);
    device = create_device(adapter);
    context = create_context(device, 0);
    queue = create_context(device, 0);
    work = create_fence(device, 0, 0);
    queued = create_fence(device, 0, 0);
    own = create_fence(device, 0, 3 /* Shared, NtSecuritySharing */);
    HANDLE shared = NULL;
    EXPECT(D3DKMTShareObjects(1, &own.handle, attributes_of(number), D3DDDI_SYNC_OBJECT_ALL_ACCESS, &shared),
           STATUS_SUCCESS);
    printf("shared\n");
    fflush(stdout);
    char line[32];
    if (failures || (!is_alone && !fgets(line, sizeof line, stdin)))
        return 1;
    open_neighbour((number + 1) % PROCESSES, is_alone);
    if (failures)
        return 1;

    void *(*const bodies[])(void *) = {ring, submitter, queuer, churner, reader};
    enum { THREADS = sizeof bodies / sizeof bodies[0] };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, bodies[i], NULL) == 0, "thread %d", i);
    while (fgets(line, sizeof line, stdin))
        go_on_for(strtoull(line, NULL, 10));
    while (is_alone && access(path_with("stop"), F_OK) != 0)
        usleep(10000);

    /* Satisfies all remaining waits of the ring. */
    pthread_mutex_lock(&signals);
    __atomic_store_n(&stopping, 1, __ATOMIC_RELEASE);
    EXPECT(cpu_signal(device, own.handle, LAST, 0), STATUS_SUCCESS);
    pthread_mutex_unlock(&signals);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(fence_value(&own) == LAST, "%llu", (unsigned long long)fence_value(&own));
    CHECK(fence_value(&work) == submissions, "%llu of %llu", (unsigned long long)fence_value(&work),
          (unsigned long long)submissions);
    CHECK(rounds > 0 && submissions > 0 && created > 0 && reads > 0, "a thread did nothing");
    /* The name stays valid as long as this process has the NT handle. */
    struct fence others = neighbour;
    open_neighbour(number, 0);
    EXPECT(destroy_object(neighbour.handle), STATUS_SUCCESS);
    neighbour = others;
    printf("%llu rounds, %llu submissions, %llu objects\n", (unsigned long long)rounds,
           (unsigned long long)submissions, (unsigned long long)created);
    EXPECT(destroy_object(own.handle), STATUS_SUCCESS);
    close((int)(intptr_t)shared);
    destroy_device(device);
    close_adapter(adapter);
    printf("ring: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
