/* Escapes with big private data by several threads at once. Each caller gets its own bytes back, by any transport, and a
 * refused escape leaves the caller's buffer unchanged. Prints the counts.
 * With the argument "on" it continues to the end of its input; with "big" it makes only the biggest escape; with
 * "then-idle" it makes less than a MiB of those, and its last calls once it reads a line. */
#include "cpu_event.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 40, LIMIT = 127 * 1024 };

static handle_t adapter;
static int right[THREADS], refused[THREADS], rounds[THREADS];
static int goes_on, only_big, then_idle, stopping, rounds_max = ROUNDS;
/* Sizes around the limits of each transport, and around the largest size. */
static const UINT sizes[] = {8191, 8192, 8193, 40000, 65536, LIMIT - 1, LIMIT};

static unsigned char pattern(int thread, int round, UINT at)
{
    return (unsigned char)(at * 7 + (UINT)round * 13 + (UINT)thread * 101);
}

static void *caller(void *arg)
{
    int thread = (int)(intptr_t)arg;
    unsigned char *data = malloc(LIMIT + 64);
    for (int round = 0; goes_on ? !__atomic_load_n(&stopping, __ATOMIC_ACQUIRE) : round < rounds_max; round++) {
        rounds[thread]++;
        UINT size = only_big ? LIMIT : sizes[(round + thread) % (int)(sizeof sizes / sizeof *sizes)];
        /* At each offset within a cache line. */
        unsigned char *at = data + (round * 3) % 64;
        for (UINT i = 0; i < size; i++)
            at[i] = pattern(thread, round, i);
        uint32_t command = GPUPV_ESCAPE_ECHO, unknown = 0xFFFFFFF0u;
        memcpy(at, &unknown, sizeof unknown);
        int intact = only_big || escape(adapter, 0, 0, at, size) != STATUS_SUCCESS;
        intact &= !memcmp(at, &unknown, sizeof unknown);
        for (UINT i = 4; i < size; i++)
            intact &= at[i] == pattern(thread, round, i);
        refused[thread] += intact;
        memcpy(at, &command, sizeof command);
        EXPECT(escape(adapter, 0, 0, at, size), STATUS_SUCCESS);
        /* The driver stores the caller in the first 32 bytes. */
        int same = 1;
        for (UINT i = 32; i < size; i++)
            same &= at[i] == pattern(thread, round, i);
        right[thread] += same;
    }
    free(data);
    return NULL;
}

int main(int argc, char **argv)
{
    goes_on = argc > 1 && !strcmp(argv[1], "on");
    then_idle = argc > 1 && !strcmp(argv[1], "then-idle");
    only_big = then_idle || (argc > 1 && !strcmp(argv[1], "big"));
    if (then_idle)
        rounds_max = 2;
    adapter = open_adapter(NULL);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, caller, (void *)(intptr_t)i) == 0, "no thread");
    while (goes_on && getchar() != EOF) {
    }
    __atomic_store_n(&stopping, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        CHECK(right[i] == rounds[i] && refused[i] == rounds[i], "thread %d", i);
        if (!goes_on)
            printf("thread %d: %d of %d came back, %d of %d refused ones were left alone\n", i, right[i], rounds_max,
                   refused[i], rounds_max);
    }
    if (then_idle) {
        printf("idle\n");
        fflush(stdout);
        getchar();
    }
    EXPECT(escape(adapter, 0, 0, threads, LIMIT + 1), STATUS_INVALID_PARAMETER);
    close_adapter(adapter);
    if (failures == 0)
        printf("big_escapes: all as expected\n");
    return failures != 0;
}
