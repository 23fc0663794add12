/* What a client of /dev/dxg sees that a client of libdxcore.so does not: descriptors, errno, signals, faults. With the
 * argument "closes" or "interrupted" it waits between its steps, so that a test can look at the host. */
#include "check.h"
#include "dxg/dxg.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

/* ABOVE_OWN: the numbers that the preload object takes for itself. */
enum { PAGE = 4096, OPEN_FILES = 64, ABOVE_OWN = 128, ADAPTERS_MAX = 64, RESTARTS = 20, REOPENS = 80, INTERVAL_US = 2000 };

#define CODE(direction, bytes, number) ((unsigned long)(direction) << 30 | (bytes) << 16 | 'G' << 8 | (number))

static handle_t adapter, device, context;
static LUID luid;

/* Expects an errno, or 0 for success. */
#define EXPECT_ERRNO(result, wanted)                                          \
    do {                                                                      \
        errno = 0;                                                            \
        int result_ = (result);                                               \
        int error_ = result_ < 0 ? errno : 0;                                 \
        CHECK(error_ == (wanted), "%d: %s", result_, strerror(error_));       \
    } while (0)

static int dxg(unsigned long code, void *argument)
{
    return ioctl(dxg_descriptor, code, argument);
}

static int open_device(void)
{
    int descriptor = open("/dev/dxg", O_RDWR | O_CLOEXEC);
    CHECK(descriptor >= 0, "open: %s", strerror(errno));
    return descriptor;
}

/* Lists the adapters through this descriptor; closes them again. */
static int enumerate(int descriptor)
{
    D3DKMT_ADAPTERINFO infos[4];
    D3DKMT_ENUMADAPTERS2 list = {.NumAdapters = 4, .pAdapters = infos};
    int result = ioctl(descriptor, DXG_ENUM_ADAPTERS2, &list);
    for (UINT at = 0; result == 0 && at < list.NumAdapters; at++)
        EXPECT_ERRNO(ioctl(descriptor, CODE(3, 4, 0x15), &infos[at].hAdapter), 0);
    return result;
}

static void numbers(void)
{
    COVERS("GPV-044");
    static uint64_t words[128];
    static const unsigned char without_function[] = {0x03, 0x17, 0x1a, 0x23, 0x28, 0x29, 0x2b, 0x2d};
    for (size_t at = 0; at < sizeof without_function; at++)
        for (unsigned long bytes = 4; bytes <= 512; bytes += 4)
            EXPECT_ERRNO(dxg(CODE(3, bytes, without_function[at]), words), ENOTTY);
    EXPECT_ERRNO(dxg(CODE(3, 4, 0), words), ENOTTY);
    EXPECT_ERRNO(dxg(CODE(3, 4, 0x4a), words), ENOTTY);
    EXPECT_ERRNO(dxg(CODE(3, 4, 0xff), words), ENOTTY);
    EXPECT_ERRNO(dxg(CODE(3, 60, 0x02), words), ENOTTY);
    EXPECT_ERRNO(dxg(CODE(3, 68, 0x02), words), ENOTTY);
    EXPECT_ERRNO(dxg(CODE(1, 64, 0x02), words), ENOTTY);
    EXPECT_ERRNO(dxg(CODE(2, 64, 0x02), words), ENOTTY);
    /* The right code with a device of an adapter that does not exist. */
    EXPECT_ERRNO(dxg(CODE(3, 64, 0x02), words), EINVAL);
    /* The kernel reads 32 bits of the code. */
    EXPECT_ERRNO(dxg((unsigned long)(long)DXG_CREATE_DEVICE, words), EINVAL);
    EXPECT_ERRNO(ioctl(open("/dev/null", O_RDONLY | O_CLOEXEC), DXG_CREATE_DEVICE, words), ENOTTY);
    EXPECT_ERRNO(ioctl(-1, DXG_CREATE_DEVICE, words), EBADF);
    printf("numbers and sizes: checked\n");
}

static int memory_info(HANDLE process)
{
    D3DKMT_QUERYVIDEOMEMORYINFO info = {.hProcess = process, .hAdapter = adapter};
    return dxg(CODE(3, 56, 0x0a), &info);
}

static void statuses(void)
{
    COVERS("GPV-035 GPV-045");
    D3DKMT_ADAPTERINFO infos[ADAPTERS_MAX + 1];
    D3DKMT_ENUMADAPTERS2 list = {.NumAdapters = 0, .pAdapters = infos};
    EXPECT_ERRNO(dxg(DXG_ENUM_ADAPTERS2, &list), EOVERFLOW);
    list.NumAdapters = ADAPTERS_MAX + 1;
    EXPECT_ERRNO(dxg(DXG_ENUM_ADAPTERS2, &list), EINVAL);
    handle_t none = 0;
    EXPECT_ERRNO(dxg(CODE(3, 4, 0x15), &none), 0);
    none = 0x1eadbe00;
    EXPECT_ERRNO(dxg(CODE(3, 4, 0x15), &none), EINVAL);

    /* Only the host answers INVALID_HANDLE and ACCESS_DENIED. */
    EXPECT_ERRNO(memory_info((HANDLE)0x1eadbeef), EBADF);
    int parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
    EXPECT_ERRNO(memory_info((HANDLE)(intptr_t)parent), EACCES);
    close(parent);

    static D3DKMT_QUERYSTATISTICS statistics = {.Type = 3}; /* SEGMENT */
    statistics.AdapterLuid = luid;
    EXPECT_ERRNO(dxg(CODE(3, 808, 0x43), &statistics), EPERM);

    /* A success code is the result. */
    struct fence paging;
    handle_t queue = create_paging_queue(device, &paging);
    void *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handle_t allocation = allocate_heap(device, memory, PAGE, NULL);
    D3DDDI_MAKERESIDENT resident = {.hPagingQueue = queue, .NumAllocations = 1, .AllocationList = &allocation};
    int result = dxg(CODE(3, 48, 0x0b), &resident);
    CHECK(result == STATUS_PENDING && resident.PagingFenceValue > 0, "%#x", (unsigned)result);
    EXPECT(cpu_wait(device, paging.handle, resident.PagingFenceValue, 0), STATUS_SUCCESS);

    handle_t lost = create_device(adapter);
    D3DKMT_MARKDEVICEASERROR mark = {.hDevice = lost, .Reason = D3DKMT_DEVICE_ERROR_REASON_GENERIC};
    EXPECT_ERRNO(dxg(CODE(3, 8, 0x26), &mark), 0);
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 fence = {.hDevice = lost};
    fence.Info.Type = D3DDDI_MONITORED_FENCE;
    EXPECT_ERRNO(dxg(CODE(3, 96, 0x10), &fence), ENODEV);
    /* The driver looks at the device before its own checks. */
    fence.Info.Flags.Value = 1; /* Shared alone */
    EXPECT_ERRNO(dxg(CODE(3, 96, 0x10), &fence), ENODEV);
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 of_lost = {.hNtHandle = (HANDLE)99999, .hDevice = lost};
    EXPECT_ERRNO(dxg(CODE(3, 88, 0x40), &of_lost), ENODEV);
    destroy_device(lost);

    /* A failure keeps its errno where the struct cannot be written back. */
    D3DKMT_CREATEDEVICE *read_only = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *read_only = (D3DKMT_CREATEDEVICE){.hAdapter = 0x1eadbe00};
    CHECK(mprotect(read_only, PAGE, PROT_READ) == 0, "mprotect");
    EXPECT_ERRNO(dxg(CODE(3, sizeof *read_only, 0x02), read_only), EINVAL);
    munmap(read_only, PAGE);
    printf("statuses: errno and back\n");
}

/* What the driver checks itself. */
static void checks(void)
{
    COVERS("GPV-046");
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 object = {.hDevice = device};
    object.Info.Type = D3DDDI_FENCE;
    object.Info.Flags.Value = 1; /* Shared alone */
    EXPECT_ERRNO(dxg(CODE(3, 96, 0x10), &object), EINVAL);
    object.Info.Type = D3DDDI_CPU_NOTIFICATION;
    object.Info.Flags.Value = 0;
    object.Info.CPUNotification.Event = (HANDLE)(intptr_t)dxg_descriptor;
    EXPECT_ERRNO(dxg(CODE(3, 96, 0x10), &object), EINVAL);

    struct fence fence = create_fence(device, 0, 3);
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECT2 signal = {.hContext = context, .BroadcastContextCount = 64};
    EXPECT_ERRNO(dxg(CODE(3, 464, 0x11), &signal), EINVAL);
    handle_t both[] = {fence.handle, fence.handle};
    HANDLE shared = 0;
    struct dxg_share_objects share = {2, 0, both, NULL, 0, 0, &shared};
    EXPECT_ERRNO(dxg(DXG_SHARE_OBJECTS, &share), EINVAL);
    share.count = 1;
    EXPECT_ERRNO(dxg(DXG_SHARE_OBJECTS, &share), 0);
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 opening = {.hNtHandle = shared, .hDevice = device};
    EXPECT_ERRNO(dxg(CODE(3, 88, 0x40), &opening), 0);
    EXPECT(destroy_object(opening.hSyncObject), STATUS_SUCCESS);
    opening.hNtHandle = (HANDLE)(intptr_t)dxg_descriptor;
    EXPECT_ERRNO(dxg(CODE(3, 88, 0x40), &opening), EINVAL);
    opening.hNtHandle = (HANDLE)99999;
    EXPECT_ERRNO(dxg(CODE(3, 88, 0x40), &opening), EINVAL);
    close((int)(intptr_t)shared);

    /* A descriptor of another kind than the one to open. */
    D3DKMT_CREATESYNCFILE sync_file = {.hDevice = device, .hMonitoredFence = fence.handle, .FenceValue = 1};
    EXPECT(D3DKMTCreateSyncFile(&sync_file), STATUS_SUCCESS);
    opening.hNtHandle = (HANDLE)(uintptr_t)sync_file.hSyncFile;
    EXPECT_ERRNO(dxg(CODE(3, 88, 0x40), &opening), EINVAL);
    close((int)(intptr_t)opening.hNtHandle);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);

    /* The driver translates handles itself, whatever they are. */
    D3DDDI_DRIVERESCAPE_TRANSLATEALLOCATIONEHANDLE translate = {.EscapeType = 0, .hAllocation = 0x1eadbe00};
    D3DKMT_ESCAPE escape = {.hAdapter = adapter, .Type = D3DKMT_ESCAPE_DRIVERPRIVATE};
    escape.Flags.DriverKnownEscape = 1;
    escape.pPrivateDriverData = &translate;
    escape.PrivateDriverDataSize = sizeof translate;
    EXPECT_ERRNO(dxg(CODE(3, 32, 0x0d), &escape), 0);
    CHECK(translate.hAllocation == 0x1eadbe00, "the handle was changed");
    escape.PrivateDriverDataSize = 3;
    EXPECT_ERRNO(dxg(CODE(3, 32, 0x0d), &escape), EINVAL);
    printf("checks of the driver: made\n");
}

/* No handles, no values, and arrays that end at a page that is not there: in each signal and wait. `last` are the last 8
 * bytes before it. */
static void arrays_with_faults(const struct fence *fence, char *last)
{
    static const uint64_t values[3] = {6, 6, 6};
    const handle_t handles[3] = {fence->handle, fence->handle, fence->handle};
    const struct {
        const handle_t *handles;
        const uint64_t *values;
    } faulty[] = {{NULL, values}, {handles, NULL}, {(handle_t *)last, values}, {handles, (uint64_t *)last}};
    for (size_t at = 0; at < sizeof faulty / sizeof *faulty; at++) {
        const handle_t *of = faulty[at].handles;
        const uint64_t *to = faulty[at].values;
        D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU signal = {device, 3, of, to, {{{0}}}};
        EXPECT_ERRNO(dxg(CODE(3, sizeof signal, 0x31), &signal), EFAULT);
        D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU queued = {context, 3, of, {.MonitoredFenceValueArray = to}};
        EXPECT_ERRNO(dxg(CODE(3, sizeof queued, 0x32), &queued), EFAULT);
        D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU2 broadcast = {.ObjectCount = 3, .ObjectHandleArray = of};
        broadcast.BroadcastContextCount = 1;
        broadcast.BroadcastContextArray = &context;
        broadcast.MonitoredFenceValueArray = to;
        EXPECT_ERRNO(dxg(CODE(3, sizeof broadcast, 0x33), &broadcast), EFAULT);
        D3DKMT_SUBMITSIGNALSYNCOBJECTSTOHWQUEUE of_queue = {{{{0}}}, 1, &context, 3, of, to};
        EXPECT_ERRNO(dxg(CODE(3, sizeof of_queue, 0x35), &of_queue), EFAULT);
        D3DKMT_SUBMITWAITFORSYNCOBJECTSTOHWQUEUE in_queue = {context, 3, of, to};
        EXPECT_ERRNO(dxg(CODE(3, sizeof in_queue, 0x36), &in_queue), EFAULT);
        D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU wait = {device, 3, of, to, 0, {{{0}}}};
        EXPECT_ERRNO(dxg(CODE(3, sizeof wait, 0x3a), &wait), EFAULT);
        /* Whether the values are an array is the host's to say. */
        D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU queued_wait = {context, 3, of, {.MonitoredFenceValueArray = to}};
        if (of != handles)
            EXPECT_ERRNO(dxg(CODE(3, sizeof queued_wait, 0x3b), &queued_wait), EFAULT);
    }
    CHECK(fence_value(fence) == 5, "a call with a fault signaled");
}

static void faults(void)
{
    COVERS("GPV-047");
    char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + PAGE, PAGE);
    char *last = page + PAGE - 8;
    EXPECT_ERRNO(dxg(DXG_CREATE_DEVICE, NULL), EFAULT);
    EXPECT_ERRNO(dxg(DXG_CREATE_DEVICE, last), EFAULT);
    EXPECT_ERRNO(dxg(CODE(3, 4, 0x15), page + PAGE), EFAULT);

    struct fence fence = create_fence(device, 5, 0);
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU signal = {device, 1, &fence.handle, NULL, {{{0}}}};
    EXPECT_ERRNO(dxg(CODE(3, 32, 0x31), &signal), EFAULT);
    handle_t *objects = (handle_t *)last;
    uint64_t values[3] = {6, 6, 6};
    objects[0] = objects[1] = fence.handle;
    arrays_with_faults(&fence, last);
    signal = (D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU){device, 3, objects, values, {{{0}}}};
    EXPECT_ERRNO(dxg(CODE(3, 32, 0x31), &signal), EFAULT);
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU wait = {device, 3, objects, values, 0, {{{0}}}};
    EXPECT_ERRNO(dxg(CODE(3, 40, 0x3a), &wait), EFAULT);
    CHECK(fence_value(&fence) == 5, "a call with a fault signaled");
    signal.ObjectCount = 2;
    EXPECT_ERRNO(dxg(CODE(3, 32, 0x31), &signal), 0);
    CHECK(fence_value(&fence) == 6, "not signaled");

    /* A struct that cannot be written back. */
    D3DKMT_GETDEVICESTATE *state = (void *)page;
    *state = (D3DKMT_GETDEVICESTATE){.hDevice = device, .StateType = D3DKMT_DEVICESTATE_EXECUTION};
    EXPECT_ERRNO(dxg(CODE(3, 56, 0x0e), state), 0);
    mprotect(page, PAGE, PROT_READ);
    EXPECT_ERRNO(dxg(CODE(3, 56, 0x0e), state), EFAULT);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    printf("faults: EFAULT, and nothing done\n");
}

static atomic_int interruptions;

static void count_interruption(int number)
{
    (void)number;
    atomic_fetch_add(&interruptions, 1);
}

static void interrupt_every(int microseconds, int flags)
{
    struct sigaction action = {.sa_handler = count_interruption, .sa_flags = flags};
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
}

static void *signal_after_restarts(void *fence)
{
    while (atomic_load(&interruptions) < RESTARTS)
        usleep(INTERVAL_US);
    EXPECT(cpu_signal(device, ((struct fence *)fence)->handle, 2, 0), STATUS_SUCCESS);
    return NULL;
}

static void interrupted_waits(void)
{
    COVERS("GPV-048");
    struct fence fence = create_fence(device, 0, 0);
    uint64_t value = 1;
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU wait = {device, 1, &fence.handle, &value, 0, {{{0}}}};
    interrupt_every(INTERVAL_US, 0);
    EXPECT_ERRNO(dxg(CODE(3, 40, 0x3a), &wait), EINTR);
    CHECK(cpu_wait(device, fence.handle, 1, 0) == STATUS_UNSUCCESSFUL, "not the status of EINTR");
    interrupt_every(0, 0);
    EXPECT(cpu_signal(device, fence.handle, 1, 0), STATUS_SUCCESS);
    EXPECT_ERRNO(dxg(CODE(3, 40, 0x3a), &wait), 0);

    /* A thread that does not take the signals. */
    sigset_t alarm, before;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, &before);
    pthread_t thread;
    atomic_store(&interruptions, 0);
    CHECK(pthread_create(&thread, NULL, signal_after_restarts, &fence) == 0, "no thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    interrupt_every(INTERVAL_US, SA_RESTART);
    value = 2;
    EXPECT_ERRNO(dxg(CODE(3, 40, 0x3a), &wait), 0);
    interrupt_every(0, SA_RESTART);
    CHECK(atomic_load(&interruptions) >= RESTARTS && fence_value(&fence) == 2, "the wait ended early");
    pthread_join(thread, NULL);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    printf("signals: EINTR without SA_RESTART, restarted with it\n");
}

static void waits_for_a_byte(const char *text)
{
    char byte;
    printf("%s\n", text);
    fflush(stdout);
    CHECK(read(0, &byte, 1) == 1, "no word to go on");
}

/* The test that runs this program looks at the waits of the host at each line. */
static void interrupted_wait_stays(void)
{
    COVERS("GPV-048");
    struct fence fence = create_fence(device, 0, 0);
    uint64_t value = 1;
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU wait = {device, 1, &fence.handle, &value, 0, {{{0}}}};
    interrupt_every(INTERVAL_US, 0);
    EXPECT_ERRNO(dxg(CODE(3, 40, 0x3a), &wait), EINTR);
    interrupt_every(0, 0);
    waits_for_a_byte("interrupted");
    EXPECT(cpu_signal(device, fence.handle, 1, 0), STATUS_SUCCESS);
    waits_for_a_byte("signaled");
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
}

static void in_child(void)
{
    failures = 0;
    EXPECT_ERRNO(enumerate(dxg_descriptor), ENOTTY);
    int copy = dup(dxg_descriptor);
    EXPECT_ERRNO(enumerate(copy), ENOTTY);
    close(copy);
    int own = open_device();
    EXPECT_ERRNO(enumerate(own), 0);
    CHECK(enumerate(dxg_descriptor) < 0, "the parent's descriptor works in the child");
    close(own);
    close(dxg_descriptor);
    EXPECT_ERRNO(enumerate(dxg_descriptor), EBADF);
    fflush(stdout);
    _exit(failures);
}

static void forks(void)
{
    COVERS("GPV-049");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        in_child();
    CHECK(child_end(child) == 0, "the child failed");
    EXPECT_ERRNO(enumerate(dxg_descriptor), 0);
    struct fence fence = create_fence(device, 1, 0);
    EXPECT(cpu_signal(device, fence.handle, 2, 0), STATUS_SUCCESS);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    printf("fork: ENOTTY until the child opens the device\n");
}

/* A program closes all numbers above its own, and uses them again: its open device works on. */
static void closes_all_above(void)
{
    fflush(stdout);
    pid_t forked = fork();
    if (forked == 0) {
        int own = open("/dev/dxg", O_RDONLY | O_CLOEXEC);
        CHECK(close_range(ABOVE_OWN, ~0u, 0) == 0, "close_range: %s", strerror(errno));
        EXPECT_ERRNO(enumerate(own), 0);
        int again = fcntl(0, F_DUPFD, ABOVE_OWN);
        CHECK(again >= ABOVE_OWN && close(again) == 0, "close: %s", strerror(errno));
        EXPECT_ERRNO(enumerate(own), 0);
        close(own);
        fflush(stdout);
        _exit(failures != 0);
    }
    CHECK(child_end(forked) == 0, "the child failed");
}

/* The number of the socket end that the preload object keeps of the device's only open file. */
static int kept_end(void)
{
    struct stat status;
    int number = ABOVE_OWN;
    while (number < 4096 && (fstat(number, &status) != 0 || !S_ISSOCK(status.st_mode)))
        number++;
    CHECK(number < 4096, "no end is kept");
    return number;
}

/* A program takes a number above its own without a call that the preload object sees. What it has there is its own, and
 * its open device works on. */
static void takes_a_kept_number(void)
{
    fflush(stdout);
    pid_t forked = fork();
    if (forked == 0) {
        syscall(SYS_close_range, ABOVE_OWN, ~0u, 0);
        for (int is_closed_last = 0; is_closed_last < 2; is_closed_last++) {
            int own = open_device(), ends[2];
            EXPECT_ERRNO(enumerate(own), 0);
            int kept = kept_end();
            EXPECT_ERRNO(close(kept), EBADF);
            /* A pipe that has hung up, as the kept end of a closed file has. */
            CHECK(pipe(ends) == 0 && close(ends[1]) == 0, "pipe: %s", strerror(errno));
            CHECK(syscall(SYS_dup2, ends[0], kept) == kept, "dup2: %s", strerror(errno));
            if (!is_closed_last)
                EXPECT_ERRNO(close(kept), 0);
            close(ends[0]);
            EXPECT_ERRNO(enumerate(own), 0);
            close(own);
            if (is_closed_last)
                EXPECT_ERRNO(close(kept), 0);
        }
        /* Both ends go at once, more often than files can be open. */
        for (int round = 0; round <= OPEN_FILES; round++) {
            int own = open("/dev/dxg", O_RDONLY | O_CLOEXEC);
            CHECK(own >= 0 && close_range((unsigned)own, ~0u, 0) == 0, "round %d: %s", round, strerror(errno));
        }
        fflush(stdout);
        _exit(failures != 0);
    }
    CHECK(child_end(forked) == 0, "the child failed");
}

#ifdef __x86_64__
/* What stat and its kin are in programs that were linked with an older glibc. */
__asm__(".symver old_stat,__xstat@GLIBC_2.2.5\n.symver old_lstat64,__lxstat64@GLIBC_2.2.5\n"
        ".symver old_fstatat,__fxstatat@GLIBC_2.4");
int old_stat(int version, const char *path, struct stat *status);
int old_lstat64(int version, const char *path, struct stat *status);
int old_fstatat(int version, int folder, const char *path, struct stat *status, int flags);

static void older_programs(const char *volatile nowhere)
{
    struct stat status = {0}, same = {0};
    EXPECT_ERRNO(old_stat(1, "/dev/dxg", &status), 0);
    EXPECT_ERRNO(old_fstatat(1, AT_FDCWD, "/dev/dxg", &same, 0), 0);
    CHECK(S_ISCHR(status.st_mode) && memcmp(&status, &same, sizeof status) == 0, "no character device");
    EXPECT_ERRNO(old_stat(1, "/", &status), 0);
    EXPECT_ERRNO(stat("/", &same), 0);
    CHECK(S_ISDIR(status.st_mode) && status.st_ino == same.st_ino, "another folder");
    EXPECT_ERRNO(old_lstat64(1, "/dev/dxh", &status), ENOENT);
    EXPECT_ERRNO(old_stat(1, nowhere, &status), EFAULT);
    EXPECT_ERRNO(old_stat(99, "/dev/dxg", &status), EINVAL);
}
#else
static void older_programs(const char *volatile nowhere)
{
    (void)nowhere;
}
#endif

/* Paths and structs that cannot be read or written, as without the preload object. */
static void bad_addresses(void)
{
    static const char path[] = "/dev/dxg";
    const char *volatile nowhere = (const char *)8;
    struct stat status, *volatile no_status = (struct stat *)8;
    EXPECT_ERRNO(access(nowhere, F_OK), EFAULT);
    EXPECT_ERRNO(stat(nowhere, &status), EFAULT);
    EXPECT_ERRNO(stat(path, no_status), EFAULT);
    EXPECT_ERRNO(statx(AT_FDCWD, path, 0, STATX_TYPE, (struct statx *)no_status), EFAULT);
    EXPECT_ERRNO(open(nowhere, O_RDONLY), EFAULT);
    EXPECT_ERRNO(openat(AT_FDCWD, nowhere, O_RDWR), EFAULT);
    EXPECT_ERRNO(open(nowhere, O_RDWR | O_CREAT, 0600), EFAULT);
    EXPECT_ERRNO(open(nowhere, O_RDONLY | O_TMPFILE), EINVAL);
    nowhere = NULL;
    EXPECT_ERRNO(open(nowhere, O_RDONLY), EFAULT);
    int created = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_ERRNO(enumerate(created), 0);
    close(created);
    CHECK(stat(path, &status) == 0 && S_ISCHR(status.st_mode), "a file was created");
    if (S_ISREG(status.st_mode))
        unlink(path);
    /* A path at the end of a page before one that is not there. */
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + PAGE, PAGE);
    char *volatile last = memcpy(pages + PAGE - sizeof path, path, sizeof path);
    int opened = open(last, O_RDWR | O_CLOEXEC);
    EXPECT_ERRNO(enumerate(opened), 0);
    close(opened);
    last = memcpy(pages + PAGE - 2, "/", 2);
    EXPECT_ERRNO(opened = open(last, O_RDONLY | O_CLOEXEC), 0);
    close(opened);
    last = memcpy(pages + PAGE - strlen(path), path, strlen(path));
    EXPECT_ERRNO(open(last, O_RDWR), EFAULT);
    munmap(pages, PAGE);
    older_programs((const char *)8);
}

static void descriptors(void)
{
    int opened[OPEN_FILES];
    int count = 0;
    while (count < OPEN_FILES && (opened[count] = open("/dev/dxg", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    CHECK(count == OPEN_FILES - 1 && errno == ENFILE, "%d files: %s", count, strerror(errno));
    EXPECT_ERRNO(enumerate(opened[count - 1]), 0);
    for (int at = 0; at < count; at++)
        close(opened[at]);

    int own = openat(AT_FDCWD, "/dev/dxg", O_RDWR);
    CHECK(own >= 0 && fcntl(own, F_GETFD) == 0, "close-on-exec without O_CLOEXEC");
    CHECK(fcntl(dxg_descriptor, F_GETFD) == FD_CLOEXEC, "no close-on-exec");
    int copy = fcntl(own, F_DUPFD_CLOEXEC, 0);
    close(own);
    EXPECT_ERRNO(enumerate(copy), 0);
    CHECK(dup2(copy, own) == own, "dup2: %s", strerror(errno));
    close(copy);
    EXPECT_ERRNO(enumerate(own), 0);
    char byte;
    CHECK(read(own, &byte, 1) <= 0, "something to read");
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, own, 0) == MAP_FAILED && errno == ENODEV, "mmap works");
    close(own);

    struct stat status;
    CHECK(stat("/dev/dxg", &status) == 0 && S_ISCHR(status.st_mode), "no character device");
    CHECK(access("/dev/dxg", F_OK) == 0 && access("/dev/dxg", R_OK | W_OK) == 0, "no access");
    CHECK(access("/dev/dxg", X_OK) < 0 && access("/dev/dxh", F_OK) < 0, "too much access");
    EXPECT_ERRNO(open("/dev/dxg", O_RDONLY | O_DIRECTORY), ENOTDIR);
    EXPECT_ERRNO(open("/dev/dxg", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    bad_addresses();
    closes_all_above();
    takes_a_kept_number();
    printf("descriptors: as of a device\n");
}

static void *waits_for_the_engine(void *fence)
{
    EXPECT(cpu_wait(device, ((struct fence *)fence)->handle, 1, 0), STATUS_SUCCESS);
    CHECK(fence_value(fence) == 1, "the last close ended the wait");
    return NULL;
}

/* The last close ends the process object; a call in progress keeps it. */
static void last_close(void (*step)(const char *))
{
    COVERS("GPV-050");
    static struct gpupv_commands commands;
    struct fence fence = create_fence(device, 0, 0);
    gpupv_begin(&commands);
    gpupv_busy(&commands, 200000000);
    gpupv_fence_write(&commands, fence.gpu_address, 1);
    EXPECT(submit(context, &commands), STATUS_SUCCESS);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits_for_the_engine, &fence) == 0, "no thread");
    /* The wait is at the host once a later call has been answered; a short sleep lets the thread begin. */
    usleep(50000);
    int copy = dup(dxg_descriptor);
    close(dxg_descriptor);
    step("a copy is open");
    EXPECT_ERRNO(enumerate(copy), 0);
    close(copy);
    pthread_join(thread, NULL);
    step("closed");
    dxg_descriptor = -1;
    adapter = open_adapter(NULL); /* STATUS_UNSUCCESSFUL would be no descriptor; this reopens */
    D3DKMT_GETDEVICESTATE state = {.hDevice = device, .StateType = D3DKMT_DEVICESTATE_EXECUTION};
    EXPECT_ERRNO(dxg(CODE(3, 56, 0x0e), &state), EINVAL);
    step("opened again");
    printf("the last close ends the process object\n");
}

/* Ended sessions keep their descriptors. */
static void reopens(void)
{
    int times = 0;
    close(dxg_descriptor);
    while ((dxg_descriptor = open("/dev/dxg", O_RDONLY | O_CLOEXEC)) >= 0 && enumerate(dxg_descriptor) == 0) {
        close(dxg_descriptor);
        times++;
    }
    CHECK(errno == EBADF && times >= REOPENS, "%d times, then %s", times, strerror(errno));
}

/* Ends a program that hangs. */
static void *watch(void *unused)
{
    (void)unused;
    sleep(LONG_MS / 1000);
    printf("dxg_ioctls: FAILED, it hangs\n");
    fflush(stdout);
    _exit(1);
}

static void start_watch(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    CHECK(pthread_create(&thread, NULL, watch, NULL) == 0, "no thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void no_step(const char *text)
{
    (void)text;
}

int main(int argc, char **argv)
{
    start_watch();
    adapter = open_adapter(&luid);
    if (!adapter)
        return 1;
    device = create_device(adapter);
    context = create_context(device, 0);
    if (argc == 2 && strcmp(argv[1], "closes") == 0) {
        last_close(waits_for_a_byte);
        return failures != 0;
    }
    if (argc == 2 && strcmp(argv[1], "interrupted") == 0) {
        interrupted_wait_stays();
        return failures != 0;
    }
    if (argc == 2 && strcmp(argv[1], "reopens") == 0) {
        reopens();
        return failures != 0;
    }
    numbers();
    statuses();
    checks();
    faults();
    interrupted_waits();
    forks();
    descriptors();
    last_close(no_step);
    printf("%s\n", failures ? "dxg_ioctls: FAILED" : "dxg_ioctls: all as expected");
    return failures != 0;
}
