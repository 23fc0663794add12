/* A kernel-mode driver in C, with a command format of its own. docs/KMD.md explains it.
 *
 * A command buffer begins with the word MAGIC. Packets follow, each a word with its kind and its words:
 *
 *   1 BUSY ns              2 SIGNAL usage          3 FILL address_low address_high bytes pattern
 *   4 NEVER                the engine runs it for ever
 *   5 CRASH  6 SPIN        the driver itself fails, in DxgkDdiSubmitCommandVirtual: for tests
 *
 * An escape is { code, value }: 1 returns the number of completed buffers in value, 5 and 6 fail as above. A known
 * escape CPUEVENTUSAGE registers a CPU event for Usage[0]; SIGNAL sets the events of its usage. */
#include <stdlib.h>
#include <string.h>

#include "dxgk_miniport.h"

#define MAGIC 0x31435653u /* "SVC1" */
#define ALLOCATION_MAGIC 0x31415653u /* "SVA1" */
#define RESOURCE_MAGIC 0x31525653u   /* "SVR1" */
#define NODES 8
#define QUEUES 8
/* Buffers of one hardware queue at a time. A configuration says so too, with max_in_flight_hw_queue_buffers: a further
 * buffer faults, and costs its own device. */
#define IN_FLIGHT 2
/* Of contexts' own queues the kernel gives an engine two at a time, which must not fail. */
#define CONTEXT_JOBS 4
#define JOBS (QUEUES * IN_FLIGHT + CONTEXT_JOBS)
#define WORDS 64
#define EVENTS 32
#define KNOWN_ESCAPE 0x40u /* D3DDDI_ESCAPEFLAGS.DriverKnownEscape */

enum { BUSY = 1, SIGNAL, FILL, NEVER, CRASH, SPIN };

/* A command buffer that has not completed. */
struct job {
    UINT64 id, address_space, hw_queue, progress;
    UINT words, next;
    UINT word[WORDS];
};

/* An engine runs its first job. */
struct engine {
    UINT64 busy_until; /* SIM_NEVER: for ever */
    UINT64 last_submitted;
    UINT jobs, is_busy;
    struct job job[JOBS];
};

struct hw_queue {
    UINT64 handle, address_space, progress_address;
};

/* The whole state: plain memory, so that it is saved as it is. */
struct state {
    UINT64 completed;
    UINT pending_usages, reserved;
    struct engine engine[NODES];
    struct hw_queue queue[QUEUES];
    struct { UINT64 dxg; UINT usage, used; } event[EVENTS];
};

static struct state s;
static const DXGKRNL_INTERFACE *dxgk;

static void print(const char *text)
{
    SIM_DEBUGPRINT args = { .pText = (void *)text, .TextSize = strlen(text) };
    dxgk->SimDebugPrint(dxgk->DxgkHandle, &args);
}

static void interrupt(UINT type, UINT node, UINT64 fence)
{
    DXGKARGCB_NOTIFY_INTERRUPT_DATA data = { .InterruptType = type, .NodeOrdinal = node, .FenceId = fence };
    dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, &data);
}

/* The number of words after a packet's kind; -1 for an unknown kind. */
static int operands(UINT kind)
{
    switch (kind) {
    case BUSY: case SIGNAL: return 1;
    case FILL: return 4;
    case NEVER: case CRASH: case SPIN: return 0;
    default: return -1;
    }
}

/* 0, or why the buffer is bad. */
static const char *flaw(const UINT *word, UINT64 bytes)
{
    UINT64 count = bytes / 4, at = 1;
    if (bytes % 4 != 0 || count < 1 || count > WORDS)
        return "a buffer has 1 to 64 words";
    if (word[0] != MAGIC)
        return "a buffer begins with the word 0x31435653";
    while (at < count) {
        int more = operands(word[at]);
        if (more < 0)
            return "unknown packet";
        at += 1 + (UINT64)more;
    }
    return at == count ? NULL : "the last packet is cut off";
}

static void fail_for_tests(UINT kind)
{
    if (kind == CRASH)
        abort();
    for (volatile UINT forever = 1; kind == SPIN && forever;)
        ;
}

static struct hw_queue *find_queue(UINT64 handle)
{
    for (UINT n = 0; n < QUEUES; n++)
        if (s.queue[n].handle == handle)
            return &s.queue[n];
    return NULL;
}

static void complete(UINT node, const struct job *job)
{
    const struct hw_queue *queue = job->hw_queue == DXGK_NO_HANDLE ? NULL : find_queue(job->hw_queue);
    s.completed++;
    if (queue) {
        SIM_STORE store = { .NodeOrdinal = node, .hAddressSpace = DXGK_NO_HANDLE, .hHwQueue = job->hw_queue,
                            .GpuVirtualAddress = queue->progress_address, .Value = job->progress };
        dxgk->SimStore(dxgk->DxgkHandle, &store);
        interrupt(11, node, 0);
    } else {
        interrupt(1, node, job->id);
    }
}

/* Runs an engine's jobs up to the next packet that takes time. */
static void run(UINT node, UINT64 now)
{
    struct engine *e = &s.engine[node];
    while (e->jobs > 0 && (!e->is_busy || e->busy_until <= now)) {
        struct job *job = &e->job[0];
        if (e->is_busy)
            now = e->busy_until;
        e->is_busy = 0;
        while (job->next < job->words && !e->is_busy) {
            const UINT *word = &job->word[job->next];
            job->next += 1 + (UINT)operands(word[0]);
            if (word[0] == BUSY || word[0] == NEVER) {
                e->is_busy = 1;
                e->busy_until = word[0] == BUSY ? now + word[1] : SIM_NEVER;
            } else if (word[0] == SIGNAL) {
                s.pending_usages |= 1u << (word[1] & 31);
            } else if (word[0] == FILL) {
                SIM_FILLMEMORY fill = { .NodeOrdinal = node, .Pattern = word[4], .hAddressSpace = job->address_space,
                                        .GpuVirtualAddress = word[1] | (UINT64)word[2] << 32, .Bytes = word[3] };
                dxgk->SimFillMemory(dxgk->DxgkHandle, &fill);
            }
        }
        if (e->is_busy)
            continue;
        complete(node, job);
        e->jobs--;
        memmove(&e->job[0], &e->job[1], e->jobs * sizeof(struct job));
    }
}

/* Asks for a call when the first engine is done. */
static void set_timer(void)
{
    SIM_SETTIMER timer = { .DueTime = SIM_NEVER };
    for (UINT node = 0; node < NODES; node++)
        if (s.engine[node].is_busy && s.engine[node].busy_until < timer.DueTime)
            timer.DueTime = s.engine[node].busy_until;
    dxgk->SimSetTimer(dxgk->DxgkHandle, &timer);
}

/* Whether an engine has room for one more job of a hardware queue, or of the contexts' own queues. */
static int has_room(const struct engine *e, UINT64 hw_queue)
{
    UINT jobs = 0;
    for (UINT n = 0; n < e->jobs; n++)
        jobs += e->job[n].hw_queue == hw_queue;
    return jobs < (hw_queue == DXGK_NO_HANDLE ? CONTEXT_JOBS : IN_FLIGHT) && e->jobs < JOBS;
}

static NTSTATUS submit(UINT node, UINT64 now, struct job job, const UINT *word, UINT64 bytes)
{
    struct engine *e = node < NODES ? &s.engine[node] : NULL;
    if (!e || bytes > sizeof job.word)
        return STATUS_INVALID_PARAMETER;
    if (!has_room(e, job.hw_queue)) {
        DXGKARGCB_NOTIFY_INTERRUPT_DATA faulted = { .InterruptType = 12, .NodeOrdinal = node, .FenceId = job.progress,
                                                    .hContext = job.hw_queue };
        return job.hw_queue == DXGK_NO_HANDLE ? STATUS_NO_MEMORY
                                              : dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, &faulted);
    }
    if (bytes)
        memcpy(job.word, word, bytes);
    job.words = (UINT)(bytes / 4);
    job.next = 1;
    for (UINT at = 1; at < job.words; at += 1 + (UINT)operands(job.word[at]))
        fail_for_tests(job.word[at]);
    e->last_submitted = job.id;
    e->job[e->jobs++] = job;
    run(node, now);
    set_timer();
    return STATUS_SUCCESS;
}

static NTSTATUS submit_command(void *context, UINT64 now, DXGKARG_SUBMITCOMMANDVIRTUAL *args)
{
    struct job job = { .id = args->SubmissionFenceId, .address_space = args->hAddressSpace, .hw_queue = DXGK_NO_HANDLE };
    return submit(args->NodeOrdinal, now, job, args->pDmaBuffer, args->DmaBufferSize);
}

static NTSTATUS submit_to_hw_queue(void *context, UINT64 now, DXGKARG_SUBMITCOMMANDTOHWQUEUE *args)
{
    const struct hw_queue *queue = find_queue(args->hHwQueue);
    struct job job = { .id = args->SubmissionFenceId, .hw_queue = args->hHwQueue,
                       .address_space = queue ? queue->address_space : DXGK_NO_HANDLE,
                       .progress = args->HwQueueProgressFenceId };
    return submit(args->NodeOrdinal, now, job, args->pDmaBuffer, args->DmaBufferSize);
}

static NTSTATUS timer_expired(void *context, UINT64 now, SIM_TIMEREXPIRED *args)
{
    for (UINT node = 0; node < NODES; node++)
        run(node, now);
    set_timer();
    return STATUS_SUCCESS;
}

static NTSTATUS validate(void *context, UINT64 now, SIM_VALIDATECOMMANDS *args)
{
    const char *why = flaw(args->pDmaBuffer, args->DmaBufferSize);
    if (why)
        print(why);
    return why ? STATUS_INVALID_PARAMETER : STATUS_SUCCESS;
}

/* CPU events are signaled here, because SimTimerExpired is hardware. */
static NTSTATUS dpc(void *context, UINT64 now, DXGKARG_DPCROUTINE *args)
{
    DXGKARGCB_NOTIFY_DPC done = { 0 };
    for (UINT n = 0; n < EVENTS; n++)
        if (s.event[n].used && s.event[n].usage && (s.pending_usages & 1u << (s.event[n].usage & 31))) {
            DXGKARGCB_SIGNALEVENT signal = { .hEvent = s.event[n].dxg };
            dxgk->DxgkCbSignalEvent(dxgk->DxgkHandle, &signal);
        }
    s.pending_usages = 0;
    return dxgk->DxgkCbNotifyDpc(dxgk->DxgkHandle, &done);
}

static NTSTATUS stop(void *context, UINT64 now, DXGKARG_STOPDEVICE *args)
{
    memset(s.engine, 0, sizeof s.engine);
    set_timer();
    return STATUS_SUCCESS;
}

static NTSTATUS start(void *context, UINT64 now, DXGKARG_STARTDEVICE *args)
{
    return args->NumberOfNodes <= NODES ? STATUS_SUCCESS : STATUS_NOT_SUPPORTED;
}

static NTSTATUS query_status(void *context, UINT64 now, DXGKARG_QUERYENGINESTATUS *args)
{
    args->Responsive = args->NodeOrdinal < NODES && s.engine[args->NodeOrdinal].busy_until != SIM_NEVER;
    return STATUS_SUCCESS;
}

static NTSTATUS reset_engine(void *context, UINT64 now, DXGKARG_RESETENGINE *args)
{
    struct engine *e = &s.engine[args->NodeOrdinal % NODES];
    UINT64 last = e->last_submitted;
    memset(e, 0, sizeof *e);
    args->LastAbortedFenceId = e->last_submitted = last;
    set_timer();
    return STATUS_SUCCESS;
}

/* Drops an engine's job of a context by its id, which is the engine's own, or all of a hardware queue. */
static void drop(UINT node, UINT64 now, UINT64 id, UINT64 hw_queue)
{
    struct engine *e = &s.engine[node];
    for (UINT n = 0; n < e->jobs;) {
        int is_it = e->job[n].hw_queue == hw_queue && (hw_queue != DXGK_NO_HANDLE || e->job[n].id == id);
        if (!is_it) {
            n++;
            continue;
        }
        if (n == 0)
            e->is_busy = 0;
        e->jobs--;
        memmove(&e->job[n], &e->job[n + 1], (e->jobs - n) * sizeof(struct job));
    }
    run(node, now);
}

static NTSTATUS destroy_context(void *context, UINT64 now, DXGKARG_DESTROYCONTEXT *args)
{
    if (args->SubmissionFenceId != DXGK_NO_HANDLE && args->NodeOrdinal < NODES)
        drop(args->NodeOrdinal, now, args->SubmissionFenceId, DXGK_NO_HANDLE);
    set_timer();
    return STATUS_SUCCESS;
}

static NTSTATUS create_hw_queue(void *context, UINT64 now, DXGKARG_CREATEHWQUEUE *args)
{
    struct hw_queue *queue = find_queue(DXGK_NO_HANDLE);
    if (!queue)
        return STATUS_NO_MEMORY;
    *queue = (struct hw_queue){ args->hHwQueue, args->hAddressSpace, args->HwQueueProgressFenceGpuVirtualAddress };
    return STATUS_SUCCESS;
}

static NTSTATUS destroy_hw_queue(void *context, UINT64 now, DXGKARG_DESTROYHWQUEUE *args)
{
    struct hw_queue *queue = find_queue(args->hHwQueue);
    for (UINT node = 0; node < NODES; node++)
        drop(node, now, 0, args->hHwQueue);
    if (queue)
        queue->handle = DXGK_NO_HANDLE;
    set_timer();
    return STATUS_SUCCESS;
}

static NTSTATUS create_event(void *context, UINT64 now, DXGKARG_CREATECPUEVENT *args)
{
    for (UINT n = 0; n < EVENTS; n++)
        if (!s.event[n].used) {
            s.event[n].dxg = args->hDxgCpuEvent;
            s.event[n].used = 1;
            args->hKmdCpuEvent = n + 1;
            return STATUS_SUCCESS;
        }
    return STATUS_NO_MEMORY;
}

static NTSTATUS destroy_event(void *context, UINT64 now, DXGKARG_DESTROYCPUEVENT *args)
{
    if (args->hKmdCpuEvent - 1 < EVENTS)
        memset(&s.event[args->hKmdCpuEvent - 1], 0, sizeof s.event[0]);
    return STATUS_SUCCESS;
}

static NTSTATUS escape(void *context, UINT64 now, DXGKARG_ESCAPE *args)
{
    UINT *word = args->pPrivateDriverData;
    if (args->Flags & KNOWN_ESCAPE) {
        /* CPUEVENTUSAGE: type, object, hKmdCpuEvent in two words, Usage[8]. */
        UINT64 event = args->PrivateDriverDataSize == 48 ? word[2] | (UINT64)word[3] << 32 : 0;
        if (event - 1 >= EVENTS || !s.event[event - 1].used)
            return STATUS_INVALID_PARAMETER;
        s.event[event - 1].usage = word[4];
        return STATUS_SUCCESS;
    }
    if (args->PrivateDriverDataSize != 8)
        return STATUS_INVALID_PARAMETER;
    fail_for_tests(word[0]);
    if (word[0] != 1)
        return STATUS_NOT_SUPPORTED;
    word[1] = (UINT)s.completed;
    return STATUS_SUCCESS;
}

/* Private data of a new resource: { RESOURCE_MAGIC }. Those of an allocation: { ALLOCATION_MAGIC, width, height, pitch };
 * the driver fills in the pitch. */
static NTSTATUS create_allocation(void *context, UINT64 now, DXGKARG_CREATEALLOCATION *args)
{
    DXGK_ALLOCATIONINFO *info = args->pAllocationInfo;
    const UINT *resource = args->pPrivateDriverData;
    if (args->Flags & 1 && (args->PrivateDriverDataSize != 4 || resource[0] != RESOURCE_MAGIC))
        return STATUS_INVALID_PARAMETER;
    for (UINT n = 0; n < args->NumAllocations; n++) {
        UINT *word = info[n].pPrivateDriverData;
        if (info[n].PrivateDriverDataSize != 16 || word[0] != ALLOCATION_MAGIC || word[1] == 0 || word[2] == 0)
            return STATUS_INVALID_PARAMETER;
        word[3] = (word[1] * 4 + 255) & ~255u;
        info[n].Size = (UINT64)word[3] * word[2];
        info[n].Alignment = 65536;
        info[n].Flags |= 4;
    }
    return STATUS_SUCCESS;
}

/* The data are as the driver left them. */
static NTSTATUS open_allocation(void *context, UINT64 now, DXGKARG_OPENALLOCATION *args)
{
    const UINT *word = args->pPrivateDriverData;
    if (args->PrivateDriverDataSize != 16 || word[0] != ALLOCATION_MAGIC || word[3] < word[1] * 4)
        return STATUS_INVALID_PARAMETER;
    return STATUS_SUCCESS;
}

static NTSTATUS save(void *context, UINT64 now, SIM_SAVESTATE *args)
{
    if (args->StateSize < sizeof s)
        return STATUS_INSUFFICIENT_RESOURCES;
    memcpy(args->pState, &s, sizeof s);
    args->StateSize = sizeof s;
    return STATUS_SUCCESS;
}

static NTSTATUS restore(void *context, UINT64 now, SIM_RESTORESTATE *args)
{
    if (args->StateSize != sizeof s)
        return STATUS_INVALID_PARAMETER;
    memcpy(&s, args->pState, sizeof s);
    return STATUS_SUCCESS;
}

static const DRIVER_INITIALIZATION_DATA table = {
    .Size = sizeof table, .Version = DXGK_MINIPORT_VERSION,
    .DxgkDdiStartDevice = start, .DxgkDdiStopDevice = stop,
    .SimValidateCommands = validate, .DxgkDdiSubmitCommandVirtual = submit_command, .SimTimerExpired = timer_expired,
    .DxgkDdiDpcRoutine = dpc, .DxgkDdiQueryEngineStatus = query_status, .DxgkDdiResetEngine = reset_engine,
    .DxgkDdiDestroyContext = destroy_context, .DxgkDdiCreateHwQueue = create_hw_queue,
    .DxgkDdiDestroyHwQueue = destroy_hw_queue, .DxgkDdiSubmitCommandToHwQueue = submit_to_hw_queue,
    .DxgkDdiCreateCpuEvent = create_event, .DxgkDdiDestroyCpuEvent = destroy_event, .DxgkDdiEscape = escape,
    .DxgkDdiCreateAllocation = create_allocation, .DxgkDdiOpenAllocation = open_allocation,
    .SimSaveState = save, .SimRestoreState = restore,
};

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pContext)
{
    dxgk = pDxgkrnl;
    *pContext = &s;
    for (UINT n = 0; n < QUEUES; n++)
        s.queue[n].handle = DXGK_NO_HANDLE;
    return &table;
}
