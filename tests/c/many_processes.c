/* More processes than the daemon has rings that it looks at (64), all with a session at the same time: each signals and
 * waits by turns, so that idle rings become busy again, and no call and no wake gets lost. */
#include "check.h"
#include <sys/socket.h>

enum { PROCESSES = 72, ROUNDS = 6, CALLS = 20 };

/* Each process calls in its turn of each round, and waits for a byte in between. */
static int process(int turns)
{
    handle_t device = create_device(open_adapter(NULL));
    handle_t context = create_context(device, 0);
    struct fence fence = create_fence(device, 0, 0);
    uint64_t value = 0;
    char byte = 0;
    while (read(turns, &byte, 1) == 1 && byte != 'q') {
        for (int i = 0; i < CALLS; i++) {
            value++;
            EXPECT(gpu_signal(context, fence.handle, value), STATUS_SUCCESS);
            EXPECT(cpu_wait(device, fence.handle, value, 0), STATUS_SUCCESS);
            CHECK(fence_value(&fence) >= value, "%llu", (unsigned long long)fence_value(&fence));
        }
        if (write(turns, "d", 1) != 1)
            return 2;
    }
    return failures != 0;
}

int main(void)
{
    int turns[PROCESSES];
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            return 2;
        children[i] = fork();
        if (children[i] == 0) {
            for (int j = 0; j < i; j++)
                close(turns[j]);
            close(pair[0]);
            _exit(process(pair[1]));
        }
        close(pair[1]);
        turns[i] = pair[0];
    }
    int rounds_done = 0;
    for (int round = 0; round < ROUNDS; round++) {
        /* All at once, then one after the other. */
        for (int i = 0; i < PROCESSES; i++)
            CHECK(write(turns[i], "g", 1) == 1, "process %d", i);
        char byte;
        for (int i = 0; i < PROCESSES; i++)
            rounds_done += read(turns[i], &byte, 1) == 1;
        for (int i = 0; i < PROCESSES; i += 5) {
            CHECK(write(turns[i], "g", 1) == 1, "process %d", i);
            CHECK(read(turns[i], &byte, 1) == 1, "process %d", i);
        }
    }
    printf("turns of all at once: %d\n", rounds_done);
    for (int i = 0; i < PROCESSES; i++)
        CHECK(write(turns[i], "q", 1) == 1, "process %d", i);
    int ended_well = 0;
    for (int i = 0; i < PROCESSES; i++)
        ended_well += child_end(children[i]) == 0;
    printf("processes that ended well: %d\n", ended_well);
    CHECK(rounds_done == PROCESSES * ROUNDS && ended_well == PROCESSES, "a process stopped early");
    printf("many_processes: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
