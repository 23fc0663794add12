/* Helpers of the C programs: checks, and short forms of calls. Plain C11, for -Wall -Wextra -Werror. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <d3dkmthk.h>
#include <errno.h>
#include <gpupv_isa.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

/* Prints location and message if the condition is false; the program continues. */
#define CHECK(condition, ...)                                                 \
    do {                                                                      \
        if (!(condition)) {                                                   \
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);               \
            printf("FAILED %s:%d: %s: ", __FILE__, __LINE__, #condition);     \
            printf(__VA_ARGS__);                                              \
            printf("\n");                                                     \
            fflush(stdout);                                                   \
        }                                                                     \
    } while (0)

/* CHECK for a status. */
#define EXPECT(call, wanted)                                                  \
    do {                                                                      \
        NTSTATUS status_ = (call);                                            \
        CHECK(status_ == (wanted), "answered %#010x instead of %#010x",       \
              (unsigned)status_, (unsigned)(wanted));                         \
    } while (0)

/* Lists the rules that the rest of the block covers, for the test that runs this program (tests/covers). Rules are words
 * in one string. */
#define COVERS(rules)                                                         \
    do {                                                                      \
        const char *path_ = getenv("GPUPV_COVERS");                           \
        FILE *file_ = path_ ? fopen(path_, "a") : NULL;                       \
        if (file_) {                                                          \
            const char *name_ = strrchr(__FILE__, '/');                       \
            fprintf(file_, "tests/c%s:%d %s\n", name_, __LINE__, rules);      \
            fclose(file_);                                                    \
        }                                                                     \
    } while (0)

/* What a forked child gets from calls that start no session: of libdxcore.so, or of the parent's /dev/dxg. */
#ifdef DEV_DXG
#define STATUS_WITHOUT_SESSION STATUS_UNSUCCESSFUL
#else
#define STATUS_WITHOUT_SESSION STATUS_INVALID_PARAMETER
#endif

typedef D3DKMT_HANDLE handle_t;

struct fence {
    handle_t handle;
    const volatile uint64_t *value; /* one load reads the fence */
    uint64_t gpu_address;
};

static inline uint64_t fence_value(const struct fence *fence)
{
    return __atomic_load_n(fence->value, __ATOMIC_ACQUIRE);
}

/* The first adapter, enumerated with an array for one; 0 if there is none. */
static inline handle_t open_adapter(LUID *luid)
{
    D3DKMT_ADAPTERINFO info = {0};
    D3DKMT_ENUMADAPTERS2 args = {.NumAdapters = 1, .pAdapters = &info};
    EXPECT(D3DKMTEnumAdapters2(&args), STATUS_SUCCESS);
    if (luid)
        *luid = info.AdapterLuid;
    return info.hAdapter;
}

static inline void close_adapter(handle_t adapter)
{
    EXPECT(D3DKMTCloseAdapter(&(D3DKMT_CLOSEADAPTER){adapter}), STATUS_SUCCESS);
}

static inline handle_t create_device(handle_t adapter)
{
    D3DKMT_CREATEDEVICE args = {.hAdapter = adapter};
    EXPECT(D3DKMTCreateDevice(&args), STATUS_SUCCESS);
    return args.hDevice;
}

static inline void destroy_device(handle_t device)
{
    EXPECT(D3DKMTDestroyDevice(&(D3DKMT_DESTROYDEVICE){device}), STATUS_SUCCESS);
}

static inline handle_t create_context(handle_t device, UINT node)
{
    D3DKMT_CREATECONTEXTVIRTUAL args = {.hDevice = device, .NodeOrdinal = node};
    EXPECT(D3DKMTCreateContextVirtual(&args), STATUS_SUCCESS);
    return args.hContext;
}

static inline void destroy_context(handle_t context)
{
    EXPECT(D3DKMTDestroyContext(&(D3DKMT_DESTROYCONTEXT){context}), STATUS_SUCCESS);
}

static inline struct fence create_fence(handle_t device, uint64_t initial, UINT flags)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = {.hDevice = device};
    args.Info.Type = D3DDDI_MONITORED_FENCE;
    args.Info.Flags.Value = flags;
    args.Info.MonitoredFence.InitialFenceValue = initial;
    EXPECT(D3DKMTCreateSynchronizationObject2(&args), STATUS_SUCCESS);
    static const uint64_t nothing;
    struct fence fence = {args.hSyncObject, &nothing, args.Info.MonitoredFence.FenceValueGPUVirtualAddress};
    CHECK(args.Info.MonitoredFence.FenceValueCPUVirtualAddress, "the fence has no CPU address");
    if (args.Info.MonitoredFence.FenceValueCPUVirtualAddress)
        fence.value = args.Info.MonitoredFence.FenceValueCPUVirtualAddress;
    return fence;
}

/* A paging queue, whose fence gets into `paging`. */
static inline handle_t create_paging_queue(handle_t device, struct fence *paging)
{
    D3DKMT_CREATEPAGINGQUEUE queue = {.hDevice = device, .Priority = D3DDDI_PAGINGQUEUE_PRIORITY_NORMAL};
    EXPECT(D3DKMTCreatePagingQueue(&queue), STATUS_SUCCESS);
    *paging = (struct fence){queue.hSyncObject, queue.FenceValueCPUVirtualAddress, 0};
    return queue.hPagingQueue;
}

/* A standard allocation of this memory; in a new resource, if there is a place for its handle. */
static inline handle_t allocate_heap(handle_t device, void *memory, uint64_t bytes, handle_t *resource)
{
    D3DKMT_CREATESTANDARDALLOCATION standard = {.Type = D3DKMT_STANDARDALLOCATIONTYPE_EXISTINGHEAP};
    standard.ExistingHeapData.Size = bytes;
    D3DDDI_ALLOCATIONINFO2 info = {.pSystemMem = memory};
    D3DKMT_CREATEALLOCATION create = {.hDevice = device, .NumAllocations = 1};
    create.pStandardAllocation = &standard;
    create.pAllocationInfo2 = &info;
    create.Flags.ExistingSysMem = create.Flags.StandardAllocation = 1;
    create.Flags.CreateResource = resource != NULL;
    EXPECT(D3DKMTCreateAllocation2(&create), STATUS_SUCCESS);
    if (resource)
        *resource = create.hResource;
    return info.hAllocation;
}

static inline NTSTATUS destroy_object(handle_t object)
{
    return D3DKMTDestroySynchronizationObject(&(D3DKMT_DESTROYSYNCHRONIZATIONOBJECT){object});
}

static inline NTSTATUS cpu_signal(handle_t device, handle_t object, uint64_t value, UINT flags)
{
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMCPU args = {device, 1, &object, &value, {.Value = flags}};
    return D3DKMTSignalSynchronizationObjectFromCpu(&args);
}

/* event 0: blocking. */
static inline NTSTATUS cpu_wait_many(handle_t device, UINT count, const handle_t *objects,
                                     const uint64_t *values, int event, UINT flags)
{
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMCPU args = {
        device, count, objects, values, (HANDLE)(intptr_t)event, {.Value = flags}};
    return D3DKMTWaitForSynchronizationObjectFromCpu(&args);
}

static inline NTSTATUS cpu_wait(handle_t device, handle_t object, uint64_t value, int event)
{
    return cpu_wait_many(device, 1, &object, &value, event, 0);
}

static inline NTSTATUS gpu_signal(handle_t context, handle_t object, uint64_t value)
{
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU args = {context, 1, &object, {.MonitoredFenceValueArray = &value}};
    return D3DKMTSignalSynchronizationObjectFromGpu(&args);
}

static inline NTSTATUS gpu_wait(handle_t context, handle_t object, uint64_t value)
{
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU args = {context, 1, &object, {.MonitoredFenceValueArray = &value}};
    return D3DKMTWaitForSynchronizationObjectFromGpu(&args);
}

static inline NTSTATUS submit(handle_t context, struct gpupv_commands *commands)
{
    D3DKMT_SUBMITCOMMAND args = {.BroadcastContextCount = 1, .BroadcastContext = {context}};
    args.pPrivateDriverData = commands->words;
    args.PrivateDriverDataSize = commands->bytes;
    return D3DKMTSubmitCommand(&args);
}

/* A new eventfd, never number 0. */
static inline int new_event(void)
{
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(event > 0, "eventfd: %s", strerror(errno));
    return event;
}

/* Waits for the event and resets it; returns the number of sets, 0 on a timeout. */
static inline uint64_t take_event(int event, int timeout_ms)
{
    struct pollfd ready = {event, POLLIN, 0};
    uint64_t count = 0;
    int found;
    do
        found = poll(&ready, 1, timeout_ms);
    while (found < 0 && errno == EINTR);
    if (found == 1 && read(event, &count, sizeof count) != sizeof count)
        return 0;
    return count;
}

/* Waits for a child; returns its exit code, or minus the signal that killed it. */
static inline int child_end(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A timeout long enough for any machine: a test that reaches it has failed. */
#define LONG_MS 60000

#endif
