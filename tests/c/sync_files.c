/* Sync files: descriptors that become readable when a fence reaches a value, in every process that has them, and from
 * which any process of the VM opens the fence or lets a context wait for it. */
#include "descriptors.h"
#include <fcntl.h>
#include <sys/mman.h>

static handle_t adapter, device;

#define NT_SHARED 3u /* Shared, NtSecuritySharing */

static NTSTATUS create_file(handle_t of_device, handle_t fence, uint64_t value, int *file)
{
    D3DKMT_CREATESYNCFILE args = {.hDevice = of_device, .hMonitoredFence = fence, .FenceValue = value, .hSyncFile = 77};
    NTSTATUS status = D3DKMTCreateSyncFile(&args);
    if (status == STATUS_SUCCESS)
        *file = (int)args.hSyncFile;
    else
        CHECK(args.hSyncFile == 77, "a refused call wrote its result");
    return status;
}

static int sync_file(handle_t fence, uint64_t value)
{
    int file = -1;
    EXPECT(create_file(device, fence, value, &file), STATUS_SUCCESS);
    CHECK(file > 2 && fcntl(file, F_GETFD) == FD_CLOEXEC, "descriptor %d", file);
    return file;
}

static int polled(int file, int timeout_ms)
{
    struct pollfd ready = {file, POLLIN, 0};
    int found;
    do
        found = poll(&ready, 1, timeout_ms);
    while (found < 0 && errno == EINTR);
    return found == 1 ? ready.revents : 0;
}

static NTSTATUS open_file(handle_t of_device, int file, D3DKMT_OPENSYNCOBJECTFROMSYNCFILE *opened)
{
    *opened = (D3DKMT_OPENSYNCOBJECTFROMSYNCFILE){.hSyncFile = (UINT64)(int64_t)file, .hDevice = of_device};
    return D3DKMTOpenSyncObjectFromSyncFile(opened);
}

static NTSTATUS wait_file(handle_t context, int file)
{
    D3DKMT_WAITSYNCFILE args = {.hSyncFile = (UINT64)(int64_t)file, .hContext = context};
    return D3DKMTWaitSyncFile(&args);
}

static void polls(void)
{
    COVERS("FEN-133 FEN-134 FEN-135");
    struct fence fence = create_fence(device, 1, NT_SHARED);
    int file = sync_file(fence.handle, 5), copy = dup(file), later = sync_file(fence.handle, 6);
    CHECK(polled(file, 0) == 0, "readable before the value");
    EXPECT(cpu_signal(device, fence.handle, 4, 0), STATUS_SUCCESS);
    CHECK(polled(file, 0) == 0, "readable before the value");
    EXPECT(cpu_signal(device, fence.handle, 5, 0), STATUS_SUCCESS);
    CHECK(polled(copy, LONG_MS) & POLLIN, "not readable at the value");
    /* A reader takes it away from nobody. */
    char bytes[16];
    while (read(file, bytes, sizeof bytes) > 0)
        ;
    /* It gets a byte, and then its end: between the two there may be nothing to read. */
    CHECK(polled(copy, LONG_MS) != 0, "a read made it unreadable");
    CHECK(polled(later, 0) == 0, "readable before its own value");
    close(file);
    CHECK(polled(copy, 0) != 0, "the copy is not readable");

    int there = sync_file(fence.handle, 5);
    CHECK(polled(there, LONG_MS) & POLLIN, "not readable although the value was there");
    close(later);
    EXPECT(cpu_signal(device, fence.handle, 6, 0), STATUS_SUCCESS);
    close(there);
    close(copy);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    printf("readable from the value on\n");
}

/* What another process does with a sync file of value 7 whose fence has 5: opens it, cannot signal it, lets a context wait
 * for it, and polls. Writes a byte to `told` before it polls. */
static void opens(int file, int told)
{
    COVERS("FEN-137 FEN-139");
    handle_t own_adapter = open_adapter(NULL), own_device = create_device(own_adapter);
    handle_t context = create_context(own_device, 0);
    struct fence own = create_fence(own_device, 0, 0);
    D3DKMT_OPENSYNCOBJECTFROMSYNCFILE opened;
    EXPECT(open_file(own_device, file, &opened), STATUS_SUCCESS);
    CHECK(opened.FenceValue == 7, "value %lu", (unsigned long)opened.FenceValue);
    CHECK(opened.hSyncObject && opened.FenceValueGPUVirtualAddress, "no handle or no GPU address");
    const volatile uint64_t *value = opened.FenceValueCPUVirtualAddress;
    CHECK(value && *value == 5, "the fence cannot be read");
    EXPECT(cpu_signal(own_device, opened.hSyncObject, 7, 0), STATUS_ACCESS_DENIED);
    EXPECT(wait_file(context, file), STATUS_SUCCESS);
    EXPECT(gpu_signal(context, own.handle, 1), STATUS_SUCCESS);
    CHECK(fence_value(&own) == 0, "the context did not wait");
    CHECK(polled(file, 0) == 0, "readable too early");
    CHECK(write(told, "x", 1) == 1, "write: %s", strerror(errno));
    CHECK(polled(file, LONG_MS) & POLLIN, "never readable");
    EXPECT(cpu_wait(own_device, opened.hSyncObject, 7, 0), STATUS_SUCCESS);
    EXPECT(cpu_wait(own_device, own.handle, 1, 0), STATUS_SUCCESS);
    CHECK(value && *value == 7, "the value is not there");
}

static void signals_when_told(int told, handle_t fence)
{
    char byte;
    CHECK(read(told, &byte, 1) == 1, "the other process said nothing");
    EXPECT(cpu_signal(device, fence, 7, 0), STATUS_SUCCESS);
}

static void with_a_child(void)
{
    struct fence fence = create_fence(device, 5, NT_SHARED);
    int file = sync_file(fence.handle, 7), told[2];
    CHECK(pipe(told) == 0, "pipe: %s", strerror(errno));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        failures = 0;
        opens(file, told[1]);
        fflush(stdout);
        _exit(failures);
    }
    signals_when_told(told[0], fence.handle);
    CHECK(child_end(child) == 0, "the child failed");
    close(file);
    close(told[0]);
    close(told[1]);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    printf("a child opens it and waits\n");
}

/* This program again, with this mode and a socket at `socket`. */
static pid_t run_again(const char *program, const char *mode, int socket)
{
    char number[16];
    snprintf(number, sizeof number, "%d", socket);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", program, mode, number, (char *)NULL);
        _exit(99);
    }
    return child;
}

static void with_a_stranger(const char *program)
{
    struct fence fence = create_fence(device, 5, NT_SHARED);
    int file = sync_file(fence.handle, 7), sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair: %s", strerror(errno));
    pid_t stranger = run_again(program, "receives", sockets[1]);
    send_descriptor(sockets[0], file);
    /* Only the stranger has it now. */
    close(file);
    signals_when_told(sockets[0], fence.handle);
    CHECK(child_end(stranger) == 0, "the stranger failed");
    close(sockets[0]);
    close(sockets[1]);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    printf("a process that gets it by SCM_RIGHTS opens it and waits\n");
}

/* A sync file keeps its fence, also when its creator was killed. */
static void of_a_killed_creator(const char *program)
{
    COVERS("FEN-141");
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair: %s", strerror(errno));
    pid_t creator = run_again(program, "creates", sockets[1]);
    int file = receive_descriptor(sockets[0]);
    kill(creator, SIGKILL);
    child_end(creator);
    D3DKMT_OPENSYNCOBJECTFROMSYNCFILE opened;
    EXPECT(open_file(device, file, &opened), STATUS_SUCCESS);
    const volatile uint64_t *value = opened.FenceValueCPUVirtualAddress;
    CHECK(opened.FenceValue == 9 && value && *value == 8, "another fence");
    EXPECT(destroy_object(opened.hSyncObject), STATUS_SUCCESS);
    CHECK(polled(file, 0) == 0, "readable although the fence lives");
    close(file);
    EXPECT(open_file(device, file, &opened), STATUS_INVALID_PARAMETER);
    close(sockets[0]);
    close(sockets[1]);
    printf("it outlives its creator\n");
}

static void of_a_private_fence(void)
{
    COVERS("FEN-136 FEN-138");
    struct fence fence = create_fence(device, 0, 0);
    handle_t context = create_context(device, 0);
    int file = sync_file(fence.handle, 1), ended = sync_file(fence.handle, 2);
    D3DKMT_OPENSYNCOBJECTFROMSYNCFILE opened;
    EXPECT(open_file(device, file, &opened), STATUS_INVALID_PARAMETER);
    EXPECT(wait_file(context, file), STATUS_INVALID_PARAMETER);
    CHECK(polled(file, 0) == 0, "readable too early");
    EXPECT(cpu_signal(device, fence.handle, 1, 0), STATUS_SUCCESS);
    CHECK(polled(file, LONG_MS) & POLLIN, "never readable");
    CHECK(polled(ended, 0) == 0, "readable too early");
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    CHECK(polled(ended, LONG_MS) & POLLIN, "not readable although its fence is gone");
    close(file);
    close(ended);
    destroy_context(context);
    printf("of a private fence it can be polled only\n");
}

static void bad_calls(void)
{
    COVERS("FEN-133 FEN-140");
    struct fence fence = create_fence(device, 0, NT_SHARED);
    handle_t context = create_context(device, 0);
    int file = -1, ends[2], event = new_event();
    EXPECT(create_file(0, fence.handle, 1, &file), STATUS_INVALID_PARAMETER);
    EXPECT(create_file(device, 0, 1, &file), STATUS_INVALID_PARAMETER);
    EXPECT(create_file(device, device, 1, &file), STATUS_INVALID_PARAMETER);
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 mutex = {.hDevice = device};
    mutex.Info.Type = D3DDDI_SYNCHRONIZATION_MUTEX;
    EXPECT(D3DKMTCreateSynchronizationObject2(&mutex), STATUS_SUCCESS);
    EXPECT(create_file(device, mutex.hSyncObject, 1, &file), STATUS_INVALID_PARAMETER);
    EXPECT(destroy_object(mutex.hSyncObject), STATUS_SUCCESS);

    HANDLE nt_handle = 0;
    EXPECT(D3DKMTShareObjects(1, &fence.handle, NULL, 0x1f0003, &nt_handle), STATUS_SUCCESS);
    CHECK(pipe(ends) == 0, "pipe: %s", strerror(errno));
    int shared = (int)(intptr_t)nt_handle;
    const int others[] = {event, ends[0], ends[1], shared, 0, -1, 1 << 20};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        D3DKMT_OPENSYNCOBJECTFROMSYNCFILE opened;
        EXPECT(open_file(device, others[i], &opened), STATUS_INVALID_PARAMETER);
        EXPECT(wait_file(context, others[i]), STATUS_INVALID_PARAMETER);
    }
    file = sync_file(fence.handle, 1);
    D3DKMT_OPENSYNCOBJECTFROMSYNCFILE opened;
    EXPECT(open_file(0, file, &opened), STATUS_INVALID_PARAMETER);
    EXPECT(wait_file(0, file), STATUS_INVALID_PARAMETER);
    EXPECT(wait_file(device, file), STATUS_INVALID_PARAMETER);
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 as_nt_handle = {.hNtHandle = (HANDLE)(intptr_t)file, .hDevice = device};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&as_nt_handle), STATUS_OBJECT_TYPE_MISMATCH);
    close(file);
    close(shared);
    close(ends[0]);
    close(ends[1]);
    close(event);
    destroy_context(context);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    printf("bad calls are refused\n");
}

/* Polls a sync file and makes no call: it ends with 0 if the file is readable only once `*signaled` is set. */
static pid_t start_poller(int file, const volatile int *signaled)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(!(polled(file, -1) && *signaled));
    return child;
}

static void next_line(void)
{
    char line[16];
    CHECK(fgets(line, sizeof line, stdin) != NULL, "no line came");
}

/* The broker is killed after "ready", and restarted as often as there are lines. The sync file is signaled after that.
 * "kept": this process has it. "passed": only a process has it that makes no call. */
static int across_restarts(const char *mode)
{
    int *signaled = mmap(NULL, sizeof *signaled, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(signaled != MAP_FAILED, "mmap: %s", strerror(errno));
    struct fence fence = create_fence(device, 0, NT_SHARED);
    int file = sync_file(fence.handle, 1);
    pid_t poller = start_poller(file, signaled);
    if (!strcmp(mode, "passed"))
        close(file);
    printf("ready\n");
    fflush(stdout);
    next_line();
    EXPECT(cpu_wait(device, fence.handle, 0, 0), STATUS_SUCCESS);
    if (!strcmp(mode, "kept")) {
        D3DKMT_OPENSYNCOBJECTFROMSYNCFILE opened;
        CHECK(polled(file, 0) == 0, "readable before the value");
        EXPECT(open_file(device, file, &opened), STATUS_SUCCESS);
        CHECK(opened.FenceValue == 1, "another fence");
    }
    CHECK(waitpid(poller, NULL, WNOHANG) == 0, "readable before the value");
    printf("resumed\n");
    fflush(stdout);
    next_line();
    *signaled = 1;
    EXPECT(cpu_signal(device, fence.handle, 1, 0), STATUS_SUCCESS);
    CHECK(child_end(poller) == 0, "readable too early");
    printf("signaled\n");
    return failures != 0;
}

/* The broker is killed after "ready" and nothing is resumed: the sync file is readable, and calls with it end. */
static int without_a_broker(void)
{
    struct fence fence = create_fence(device, 0, NT_SHARED);
    handle_t context = create_context(device, 0);
    int file = sync_file(fence.handle, 1), always = 1;
    pid_t poller = start_poller(file, &always);
    CHECK(polled(file, 0) == 0, "readable before the value");
    printf("ready\n");
    fflush(stdout);
    CHECK(polled(file, LONG_MS) & POLLHUP, "the death of the broker is not seen");
    CHECK(child_end(poller) == 0, "another process does not see it");
    D3DKMT_OPENSYNCOBJECTFROMSYNCFILE opened;
    EXPECT(wait_file(context, file), STATUS_DEVICE_REMOVED);
    EXPECT(open_file(device, file, &opened), STATUS_DEVICE_REMOVED);
    printf("readable\n");
    return failures != 0;
}

/* Runs in a process of its own. */
static int other_mode(const char *mode, int socket)
{
    if (!strcmp(mode, "receives")) {
        opens(receive_descriptor(socket), socket);
        fflush(stdout);
        return failures;
    }
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    if (!strcmp(mode, "kept") || !strcmp(mode, "passed"))
        return across_restarts(mode);
    if (!strcmp(mode, "lost"))
        return without_a_broker();
    struct fence fence = create_fence(device, 8, NT_SHARED);
    int file = sync_file(fence.handle, 9);
    if (!strcmp(mode, "creates"))
        send_descriptor(socket, file);
    else
        printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return other_mode(argv[1], argc > 2 ? atoi(argv[2]) : -1);
    adapter = open_adapter(NULL);
    device = create_device(adapter);
    polls();
    with_a_child();
    with_a_stranger(argv[0]);
    of_a_killed_creator(argv[0]);
    of_a_private_fence();
    bad_calls();
    destroy_device(device);
    close_adapter(adapter);
    if (!failures)
        printf("sync_files: all as expected\n");
    return failures != 0;
}
