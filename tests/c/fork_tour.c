/* Fork before connect: two processes, each with addresses of its own. Fork after connect: the child reads the parent's
 * fences and gets its own session. No end of the child disturbs the parent, and no end of the parent disturbs the child. */
#include "check.h"
#include "descriptors.h"
#include <stdbool.h>
#include <sys/prctl.h>

static handle_t adapter, device;
static struct fence fence;

/* Runs `body` in a child; its exit code is the number of its failures. */
static pid_t in_child(void (*body)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        failures = 0;
        body();
        fflush(stdout);
        _exit(failures);
    }
    CHECK(child > 0, "fork: %s", strerror(errno));
    return child;
}

#ifndef DEV_DXG
enum { PRIVATE_VALUE = 0x5eed, SHARED_VALUE = 0x5a5a, OWN_VALUE = 7, OWN_FENCES = 5 };

/* Whether there is memory with this value. */
static bool is_there(uintptr_t address, uint64_t value)
{
    int ends[2];
    uint64_t found = 0;
    CHECK(pipe(ends) == 0, "pipe: %s", strerror(errno));
    bool is_mapped = write(ends[1], (const void *)address, sizeof found) == sizeof found;
    bool is_same = is_mapped && read(ends[0], &found, sizeof found) == sizeof found && found == value;
    close(ends[0]);
    close(ends[1]);
    return is_same;
}

struct addresses {
    uintptr_t private_one, shared_one;
};

/* Opens the fence of another process, at an address of its own. */
static void opens_the_fence_of_another(int socket)
{
    handle_t own_adapter = open_adapter(NULL);
    device = create_device(own_adapter);
    struct fence own[OWN_FENCES];
    for (int at = 0; at < OWN_FENCES; at++)
        own[at] = create_fence(device, OWN_VALUE, 0);
    struct addresses others;
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 opened = {.hDevice = device};
    opened.hNtHandle = (HANDLE)(intptr_t)receive_descriptor(socket);
    CHECK(read(socket, &others, sizeof others) == sizeof others, "read: %s", strerror(errno));
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&opened), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, opened.hSyncObject, SHARED_VALUE, 0), STATUS_SUCCESS);
    CHECK(is_there((uintptr_t)opened.MonitoredFence.FenceValueCPUVirtualAddress, SHARED_VALUE), "not at its own address");
    CHECK(!is_there(others.shared_one, SHARED_VALUE), "the shared fence is at the other process's address");
    CHECK(!is_there(others.private_one, PRIVATE_VALUE), "a fence of the other process can be read");
    for (int at = 0; at < OWN_FENCES; at++)
        CHECK(fence_value(&own[at]) == OWN_VALUE, "another value at an own address");
    _exit(failures);
}

/* Two processes, of which none inherits memory of the other's fences: the library has made no session before the fork.
 * Through /dev/dxg it has one as soon as the device is open. */
static void addresses_of_two_processes(void)
{
    COVERS("FEN-061");
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair: %s", strerror(errno));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        opens_the_fence_of_another(sockets[1]);
    handle_t own_adapter = open_adapter(NULL);
    device = create_device(own_adapter);
    struct fence private_one = create_fence(device, PRIVATE_VALUE, 0);
    struct fence shared_one = create_fence(device, 0, 3 /* Shared, NtSecuritySharing */);
    HANDLE handle = NULL;
    EXPECT(D3DKMTShareObjects(1, &shared_one.handle, NULL, 0x1f0003, &handle), STATUS_SUCCESS);
    struct addresses mine = {(uintptr_t)private_one.value, (uintptr_t)shared_one.value};
    send_descriptor(sockets[0], (int)(intptr_t)handle);
    CHECK(write(sockets[0], &mine, sizeof mine) == sizeof mine, "write: %s", strerror(errno));
    EXPECT(cpu_signal(device, shared_one.handle, SHARED_VALUE, 0), STATUS_SUCCESS);
    CHECK(child_end(child) == 0, "the child failed");
    CHECK(is_there(mine.private_one, PRIVATE_VALUE) && is_there(mine.shared_one, SHARED_VALUE), "wrong values");
    close((int)(intptr_t)handle);
    close(sockets[0]);
    close(sockets[1]);
    destroy_device(device);
    close_adapter(own_adapter);
}
#endif

static void parent_is_well(const char *after)
{
    uint64_t next = fence_value(&fence) + 1;
    EXPECT(cpu_signal(device, fence.handle, next, 0), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, fence.handle, next, 0), STATUS_SUCCESS);
    CHECK(fence_value(&fence) == next, "after %s", after);
    printf("parent at work after: %s\n", after);
}

static void only_exits(void)
{
}

static void kills_itself(void)
{
    raise(SIGKILL);
}

static void reads_and_reconnects(void)
{
    uint64_t before = fence_value(&fence);
    CHECK(before > 0, "the fence is not readable");
    /* Only the three calls that start a session work before the child has one. */
    EXPECT(cpu_signal(device, fence.handle, before + 1, 0), STATUS_WITHOUT_SESSION);
    handle_t own_adapter = open_adapter(NULL);
    handle_t own_device = create_device(own_adapter);
    struct fence own = create_fence(own_device, 41, 0);
    CHECK(own.value != fence.value, "the child's fence has the address of the parent's fence");
    EXPECT(cpu_signal(own_device, own.handle, 42, 0), STATUS_SUCCESS);
    EXPECT(cpu_wait(own_device, own.handle, 42, 0), STATUS_SUCCESS);
    CHECK(fence_value(&own) == 42 && fence_value(&fence) == before, "wrong values");
    /* No cleanup: the host does it. */
}

/* The parent signals while the child watches the same fence in inherited memory. */
static void watches(void)
{
    for (int i = 0; i < LONG_MS && fence_value(&fence) < 1000; i++)
        usleep(1000);
    CHECK(fence_value(&fence) == 1000, "the parent's signal was not seen");
}

/* Forks a child and is killed; the grandchild must be able to continue. */
static int killed_parents_pipe[2];

static void grandchild_outlives(void)
{
    handle_t own_adapter = open_adapter(NULL);
    handle_t own_device = create_device(own_adapter);
    struct fence own = create_fence(own_device, 5, 0);
    pid_t me = getpid();
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        while (getppid() == me)
            usleep(1000);
        failures = 0;
        CHECK(fence_value(&own) == 5, "the child's fence memory is lost");
        reads_and_reconnects();
        char code = (char)failures;
        CHECK(write(killed_parents_pipe[1], &code, 1) == 1, "pipe");
        _exit(0);
    }
    raise(SIGKILL);
}

int main(void)
{
#ifndef DEV_DXG
    addresses_of_two_processes();
#endif
    adapter = open_adapter(NULL);
    if (!adapter)
        return 1;
    device = create_device(adapter);
    fence = create_fence(device, 1, 0);

    CHECK(child_end(in_child(only_exits)) == 0, "the child failed");
    parent_is_well("a child that only exits");
    CHECK(child_end(in_child(kills_itself)) == -SIGKILL, "the child was not killed");
    parent_is_well("a child that is killed");
    CHECK(child_end(in_child(reads_and_reconnects)) == 0, "the child failed");
    parent_is_well("a child with a process of its own");

    /* Registered before the fork, and delivered to the parent after it. */
    int event = new_event();
    uint64_t next = fence_value(&fence) + 1;
    EXPECT(cpu_wait(device, fence.handle, next, event), STATUS_SUCCESS);
    CHECK(child_end(in_child(reads_and_reconnects)) == 0, "the child failed");
    parent_is_well("a fork with an armed event");
    CHECK(take_event(event, LONG_MS) == 1, "the event was lost");
    close(event);

    pid_t watcher = in_child(watches);
    EXPECT(cpu_signal(device, fence.handle, 1000, 0), STATUS_SUCCESS);
    CHECK(child_end(watcher) == 0, "the child failed");
    parent_is_well("a child that watches the parent's fence");

    CHECK(pipe(killed_parents_pipe) == 0, "pipe");
    char code = 1;
    CHECK(child_end(in_child(grandchild_outlives)) == -SIGKILL, "the child was not killed");
    CHECK(read(killed_parents_pipe[0], &code, 1) == 1 && code == 0, "the grandchild failed");
    parent_is_well("a grandchild whose parent was killed");

    for (int i = 0; i < 20; i++)
        CHECK(child_end(in_child(i % 2 ? reads_and_reconnects : only_exits)) == 0, "child %d", i);
    parent_is_well("twenty more children");
    printf("%s\n", failures ? "fork_tour: FAILED" : "fork_tour: all as expected");
    /* Exits without destroying anything. */
    return failures != 0;
}
