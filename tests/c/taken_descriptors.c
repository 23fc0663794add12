/* A program that closes every descriptor above 2, as daemons do, and opens sockets of its own with the same numbers: calls
 * answer DEVICE_REMOVED, and the sockets are the program's. */
#include "check.h"
#include <sys/socket.h>

enum { PAIRS = 8, CLOSED = 1024 };

static void make_calls_with(int kind, int arms_event)
{
    handle_t device = create_device(open_adapter(NULL));
    struct fence fence = create_fence(device, 0, 0);
    if (arms_event)
        EXPECT(cpu_wait(device, fence.handle, 7, new_event()), STATUS_SUCCESS);
    for (int number = 3; number < CLOSED; number++)
        close(number);
    int pairs[PAIRS][2];
    for (int at = 0; at < PAIRS; at++) {
        CHECK(socketpair(AF_UNIX, kind, 0, pairs[at]) == 0, "socketpair: %s", strerror(errno));
        for (int end = 0; end < 2; end++)
            CHECK(write(pairs[at][end], "mine", 4) == 4, "write: %s", strerror(errno));
    }
    /* A call that hangs is a failure. */
    alarm(LONG_MS / 1000);
    EXPECT(cpu_signal(device, fence.handle, 5, 0), STATUS_DEVICE_REMOVED);
    EXPECT(cpu_wait(device, fence.handle, 6, 0), STATUS_DEVICE_REMOVED);
    alarm(0);
    for (int at = 0; at < PAIRS; at++)
        for (int end = 0; end < 2; end++) {
            char bytes[16];
            ssize_t count = recv(pairs[at][end], bytes, sizeof bytes, MSG_DONTWAIT);
            CHECK(count == 4 && memcmp(bytes, "mine", 4) == 0, "%zd bytes", count);
            CHECK(recv(pairs[at][end], bytes, sizeof bytes, MSG_DONTWAIT) == -1 && errno == EAGAIN, "more bytes");
        }
}

int main(void)
{
    for (int kind = 0; kind < 4; kind++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            failures = 0;
            make_calls_with(kind & 1 ? SOCK_SEQPACKET : SOCK_STREAM, kind & 2);
            fflush(stdout);
            _exit(failures != 0);
        }
        int end = child_end(child);
        CHECK(end == 0, "child %d of kind %d: %s", end, kind, end < 0 ? strsignal(-end) : "failed");
    }
    printf("taken_descriptors: %s\n", failures ? "not as expected" : "all as expected");
    return failures != 0;
}
