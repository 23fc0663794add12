/* The sample driver with what only some adapters have: native fences, user-mode submission, periodic frames, pictures,
 * exclusive access, paging buffers, a scheduling log.
 *
 * Its engines run the buffers of rings at once; the n-th of a queue stores n at the queue's progress fence. It has one
 * physical doorbell. An escape { code, value } returns: 2 slots that the GPU has mapped, with bit 31 set if a mapping
 * changed outside of exclusive access; 3 entries of the scheduling log of node 0; 4 CPU events that were signaled. */
#define DxgkMiniportEntry SampleEntry
#include "sample.c"
#undef DxgkMiniportEntry

/* Another driver may include this one, and name its entry. */
#ifndef NATIVE_ENTRY
#define NATIVE_ENTRY DxgkMiniportEntry
#endif

#define FENCES 32
#define PAGING_NODE UINT32_MAX
#define STORE_FENCE 9u /* address_low address_high value_low value_high: at the end of a paging buffer */

static struct {
    struct { UINT64 global, page, current, monitored; UINT offset, used; } fence[FENCES];
    struct { UINT64 global, local, space, address; UINT writable, used; } mapped[FENCES];
    struct { UINT64 queue, done, waiting; UINT node, used, notify, reserved; } ring[EVENTS];
    struct { UINT64 id, period, due; UINT target, used; } frame[EVENTS];
    struct { UINT64 allocation; UINT width, height; } picture[EVENTS];
    UINT64 bell; /* the queue with the physical doorbell; 0: it is free, and a queue has its number + 1 */
    UINT exclusive, slots, log_entries, signaled;
} n;

static void tell_timer(void)
{
    SIM_SETTIMER timer = { .DueTime = SIM_NEVER };
    for (UINT node = 0; node < NODES; node++)
        if (s.engine[node].is_busy && s.engine[node].busy_until < timer.DueTime)
            timer.DueTime = s.engine[node].busy_until;
    for (UINT at = 0; at < EVENTS; at++)
        if (n.frame[at].used && n.frame[at].due < timer.DueTime)
            timer.DueTime = n.frame[at].due;
    dxgk->SimSetTimer(dxgk->DxgkHandle, &timer);
}

/* ---- Native fences. ---- */

static void reached(UINT node, UINT64 global)
{
    SIM_NATIVEFENCESIGNALED signaled = { .NodeOrdinal = node, .hHwQueue = DXGK_NO_HANDLE,
        .pSignaledNativeFenceArray = &global, .SignaledNativeFenceArraySize = sizeof global };
    dxgk->SimNativeFenceSignaled(dxgk->DxgkHandle, &signaled);
}

static NTSTATUS create_fence(void *context, UINT64 now, DXGKARG_CREATENATIVEFENCE *args)
{
    for (UINT at = 0; at < FENCES; at++)
        if (!n.fence[at].used) {
            n.fence[at].global = args->hGlobalNativeFence;
            n.fence[at].page = args->StoragePage;
            n.fence[at].offset = args->StorageOffset;
            n.fence[at].current = args->CurrentValue;
            n.fence[at].monitored = args->MonitoredValue;
            n.fence[at].used = 1;
            return STATUS_SUCCESS;
        }
    return STATUS_NO_MEMORY;
}

static NTSTATUS destroy_fence(void *context, UINT64 now, DXGKARG_DESTROYNATIVEFENCE *args)
{
    for (UINT at = 0; at < FENCES; at++)
        n.fence[at].used &= n.fence[at].global != args->hGlobalNativeFence;
    return STATUS_SUCCESS;
}

static NTSTATUS open_fence(void *context, UINT64 now, DXGKARG_OPENNATIVEFENCE *args)
{
    for (UINT at = 0; at < FENCES; at++)
        if (!n.mapped[at].used) {
            n.mapped[at].global = args->hGlobalNativeFence;
            n.mapped[at].local = args->hLocalNativeFence;
            n.mapped[at].space = args->hAddressSpace;
            n.mapped[at].address = args->GpuVirtualAddress;
            n.mapped[at].writable = args->Writable;
            n.mapped[at].used = 1;
            break;
        }
    return STATUS_SUCCESS;
}

static NTSTATUS close_fence(void *context, UINT64 now, DXGKARG_CLOSENATIVEFENCE *args)
{
    for (UINT at = 0; at < FENCES; at++)
        n.mapped[at].used &= n.mapped[at].local != args->hLocalNativeFence;
    return STATUS_SUCCESS;
}

static NTSTATUS monitored(void *context, UINT64 now, DXGKARG_UPDATEMONITOREDVALUES *args)
{
    const DXGK_NATIVEFENCEVALUE *value = args->pValues;
    for (UINT64 v = 0; v < args->ValuesSize / sizeof *value; v++)
        for (UINT at = 0; at < FENCES; at++)
            if (n.fence[at].used && n.fence[at].global == value[v].hGlobalNativeFence) {
                n.fence[at].monitored = value[v].Value;
                if (n.fence[at].current > value[v].Value)
                    reached(0, n.fence[at].global);
            }
    return STATUS_SUCCESS;
}

static NTSTATUS current(void *context, UINT64 now, DXGKARG_UPDATECURRENTVALUESFROMCPU *args)
{
    const DXGK_NATIVEFENCEVALUE *value = args->pValues;
    for (UINT64 v = 0; v < args->ValuesSize / sizeof *value; v++)
        for (UINT at = 0; at < FENCES; at++)
            if (n.fence[at].used && n.fence[at].global == value[v].hGlobalNativeFence)
                n.fence[at].current = value[v].Value;
    return STATUS_SUCCESS;
}

static NTSTATUS written(void *context, UINT64 now, SIM_NATIVEFENCEWRITTEN *args)
{
    for (UINT at = 0; at < FENCES; at++)
        if (n.fence[at].used && n.fence[at].page == args->StoragePage && n.fence[at].offset == args->StorageOffset)
            n.fence[at].current = args->Value;
    return STATUS_SUCCESS;
}

/* ---- User-mode submission. ---- */

/* Runs the buffers that a queue's ring has. */
static void run_ring(UINT at)
{
    const struct hw_queue *queue = find_queue(n.ring[at].queue);
    for (; queue && n.ring[at].waiting; n.ring[at].waiting--) {
        SIM_STORE store = { .NodeOrdinal = n.ring[at].node, .hAddressSpace = DXGK_NO_HANDLE, .hHwQueue = queue->handle,
                            .GpuVirtualAddress = queue->progress_address, .Value = ++n.ring[at].done };
        SIM_RINGBUFFERCOMPLETED completed = { .hHwQueue = queue->handle };
        dxgk->SimStore(dxgk->DxgkHandle, &store);
        dxgk->SimRingBufferCompleted(dxgk->DxgkHandle, &completed);
        s.completed++;
        for (UINT map = 0; map < FENCES; map++)
            for (UINT fence = 0; fence < FENCES; fence++)
                if (n.mapped[map].used && n.mapped[map].space == queue->address_space
                    && n.mapped[map].address == queue->progress_address && n.fence[fence].used
                    && n.fence[fence].global == n.mapped[map].global) {
                    n.fence[fence].current = store.Value;
                    if (store.Value > n.fence[fence].monitored)
                        reached(n.ring[at].node, n.fence[fence].global);
                }
    }
}

static UINT find_ring(UINT64 queue)
{
    for (UINT at = 0; at < EVENTS; at++)
        if (n.ring[at].used && n.ring[at].queue == queue)
            return at;
    return EVENTS;
}

static NTSTATUS create_queue(void *context, UINT64 now, DXGKARG_CREATEHWQUEUE *args)
{
    for (UINT at = 0; at < EVENTS; at++)
        if (!n.ring[at].used) {
            memset(&n.ring[at], 0, sizeof n.ring[at]);
            n.ring[at].queue = args->hHwQueue;
            n.ring[at].node = args->NodeOrdinal;
            n.ring[at].used = 1;
            return create_hw_queue(context, now, args);
        }
    return STATUS_NO_MEMORY;
}

static NTSTATUS destroy_queue(void *context, UINT64 now, DXGKARG_DESTROYHWQUEUE *args)
{
    UINT at = find_ring(args->hHwQueue);
    if (at < EVENTS)
        n.ring[at].used = 0;
    destroy_hw_queue(context, now, args);
    tell_timer();
    return STATUS_SUCCESS;
}

static NTSTATUS set_logs(void *context, UINT64 now, DXGKARG_SETNATIVEFENCELOGBUFFER *args)
{
    return STATUS_SUCCESS;
}

static NTSTATUS create_bell(void *context, UINT64 now, DXGKARG_CREATEDOORBELL *args)
{
    return STATUS_SUCCESS;
}

static NTSTATUS connect(void *context, UINT64 now, DXGKARG_CONNECTDOORBELL *args)
{
    UINT at = find_ring(args->hHwQueue);
    if (at == EVENTS)
        return STATUS_INVALID_PARAMETER;
    if (n.bell != 0 && n.bell != args->hHwQueue + 1) {
        DXGKARGCB_DISCONNECTDOORBELL victim = { .hHwQueue = n.bell - 1, .DisconnectReason = 2 };
        args->DoorbellStatus = 2;
        return dxgk->DxgkCbDisconnectDoorbell(dxgk->DxgkHandle, &victim);
    }
    n.bell = args->hHwQueue + 1;
    n.ring[at].notify = n.ring[at].node != 0;
    args->DoorbellStatus = n.ring[at].notify;
    return STATUS_SUCCESS;
}

static NTSTATUS free_bell(UINT64 queue)
{
    if (n.bell == queue + 1)
        n.bell = 0;
    return STATUS_SUCCESS;
}

static NTSTATUS disconnect(void *context, UINT64 now, DXGKARG_DISCONNECTDOORBELL *args)
{
    return free_bell(args->hHwQueue);
}

static NTSTATUS destroy_bell(void *context, UINT64 now, DXGKARG_DESTROYDOORBELL *args)
{
    return free_bell(args->hHwQueue);
}

static NTSTATUS disconnected(void *context, UINT64 now, SIM_DOORBELLDISCONNECTED *args)
{
    return args->Status == STATUS_SUCCESS ? free_bell(args->hHwQueue) : STATUS_SUCCESS;
}

static NTSTATUS ring(void *context, UINT64 now, SIM_RINGDOORBELL *args)
{
    UINT at = find_ring(args->hHwQueue);
    if (at == EVENTS || n.bell != args->hHwQueue + 1)
        return STATUS_INVALID_PARAMETER;
    n.ring[at].waiting++;
    if (!n.ring[at].notify)
        run_ring(at);
    return STATUS_SUCCESS;
}

static NTSTATUS notify(void *context, UINT64 now, DXGKARG_NOTIFYWORKSUBMISSION *args)
{
    UINT at = find_ring(args->hHwQueue);
    if (at < EVENTS)
        run_ring(at);
    return STATUS_SUCCESS;
}

static NTSTATUS to_f1(void *context, UINT64 now, SIM_ENGINETOF1 *args)
{
    interrupt(20, args->NodeOrdinal, 0);
    return STATUS_SUCCESS;
}

/* ---- Periodic frames. ---- */

static NTSTATUS create_frame(void *context, UINT64 now, DXGKARG_CREATEPERIODICFRAMENOTIFICATION *args)
{
    UINT64 before = args->Time * 100;
    if (args->VsyncPeriod == SIM_NEVER || before > args->VsyncPeriod)
        return STATUS_INVALID_PARAMETER;
    if (args->VsyncPeriod == 0)
        return STATUS_UNSUCCESSFUL;
    for (UINT at = 0; at < EVENTS; at++)
        if (!n.frame[at].used) {
            n.frame[at].id = args->NotificationID;
            n.frame[at].target = args->VidPnTargetId;
            n.frame[at].period = args->VsyncPeriod;
            n.frame[at].due = ((now + before) / args->VsyncPeriod + 1) * args->VsyncPeriod - before;
            n.frame[at].used = 1;
            args->hNotification = at + 1;
            tell_timer();
            return STATUS_SUCCESS;
        }
    return STATUS_NO_MEMORY;
}

static NTSTATUS destroy_frame(void *context, UINT64 now, DXGKARG_DESTROYPERIODICFRAMENOTIFICATION *args)
{
    if (args->hNotification - 1 < EVENTS)
        n.frame[args->hNotification - 1].used = 0;
    return STATUS_SUCCESS;
}

static NTSTATUS expired(void *context, UINT64 now, SIM_TIMEREXPIRED *args)
{
    timer_expired(context, now, args);
    for (UINT at = 0; at < EVENTS; at++)
        while (n.frame[at].used && n.frame[at].due <= now) {
            DXGKARGCB_NOTIFY_INTERRUPT_DATA data = { .InterruptType = 14, .FenceId = n.frame[at].id,
                                                     .VidPnTargetId = n.frame[at].target };
            dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, &data);
            n.frame[at].due += n.frame[at].period;
        }
    tell_timer();
    return STATUS_SUCCESS;
}

/* ---- Pictures, exclusive access, paging, and the sample's DDIs that set the timer. ---- */

static NTSTATUS create_pictures(void *context, UINT64 now, DXGKARG_CREATEALLOCATION *args)
{
    NTSTATUS status = create_allocation(context, now, args);
    const DXGK_ALLOCATIONINFO *info = args->pAllocationInfo;
    for (UINT of = 0; status == STATUS_SUCCESS && of < args->NumAllocations; of++)
        for (UINT at = 0; at < EVENTS; at++)
            if (n.picture[at].width == 0) {
                const UINT *word = info[of].pPrivateDriverData;
                n.picture[at].allocation = info[of].hAllocation;
                n.picture[at].width = word[1];
                n.picture[at].height = word[2];
                break;
            }
    return status;
}

static NTSTATUS describe(void *context, UINT64 now, DXGKARG_DESCRIBEALLOCATION *args)
{
    for (UINT at = 0; at < EVENTS; at++)
        if (n.picture[at].width && n.picture[at].allocation == args->hAllocation) {
            args->Width = n.picture[at].width;
            args->Height = n.picture[at].height;
            args->Format = 21; /* D3DDDIFMT_A8R8G8B8 */
            return STATUS_SUCCESS;
        }
    return STATUS_UNSUCCESSFUL;
}

static NTSTATUS destroy_pictures(void *context, UINT64 now, DXGKARG_DESTROYALLOCATION *args)
{
    const UINT64 *list = args->pAllocationList;
    for (UINT64 of = 0; of < args->AllocationListSize / 8; of++)
        for (UINT at = 0; at < EVENTS; at++)
            if (n.picture[at].allocation == list[of])
                n.picture[at].width = 0;
    return STATUS_SUCCESS;
}

static NTSTATUS begin(void *context, UINT64 now, DXGKARG_BEGINEXCLUSIVEACCESS *args)
{
    n.exclusive = 1;
    return STATUS_SUCCESS;
}

static NTSTATUS end(void *context, UINT64 now, DXGKARG_ENDEXCLUSIVEACCESS *args)
{
    n.exclusive = 0;
    return STATUS_SUCCESS;
}

static NTSTATUS remapped(void *context, UINT64 now, SIM_IOMMUMAPPINGCHANGED *args)
{
    n.slots = args->Removed ? 0 : n.slots + args->AddedSlots;
    if (!n.exclusive)
        n.slots |= 1u << 31;
    return STATUS_SUCCESS;
}

static NTSTATUS set_log(void *context, UINT64 now, DXGKARG_SETSCHEDULINGLOGBUFFER *args)
{
    if (args->NodeOrdinal == 0)
        n.log_entries = args->NumberOfEntries;
    return STATUS_SUCCESS;
}

static NTSTATUS event_signaled(void *context, UINT64 now, SIM_EVENTSIGNALED *args)
{
    n.signaled += args->Status == STATUS_SUCCESS;
    return STATUS_SUCCESS;
}

static NTSTATUS build_paging(void *context, UINT64 now, DXGKARG_BUILDPAGINGBUFFER *args)
{
    UINT *word = args->pDmaBuffer;
    args->DmaBufferSize = 0;
    if (args->Size) {
        word[0] = MAGIC;
        args->DmaBufferSize = 4;
    }
    return STATUS_SUCCESS;
}

static NTSTATUS signal_paging(void *context, UINT64 now, DXGKARG_SIGNALMONITOREDFENCE *args)
{
    UINT64 address = args->MonitoredFenceGpuVa, value = args->MonitoredFenceValue;
    UINT word[] = { STORE_FENCE, (UINT)address, (UINT)(address >> 32), (UINT)value, (UINT)(value >> 32) };
    memcpy(args->pDmaBuffer, word, sizeof word);
    args->DmaBufferSize = sizeof word;
    return STATUS_SUCCESS;
}

static NTSTATUS submit_any(void *context, UINT64 now, DXGKARG_SUBMITCOMMANDVIRTUAL *args)
{
    const UINT *word = args->pDmaBuffer;
    if (!(args->Flags & 1)) {
        NTSTATUS status = submit_command(context, now, args);
        tell_timer();
        return status;
    }
    for (UINT64 at = 1; at + 5 <= args->DmaBufferSize / 4; at += 5)
        if (word[at] == STORE_FENCE) {
            SIM_STORE store = { .NodeOrdinal = args->NodeOrdinal, .hAddressSpace = args->hAddressSpace,
                .hHwQueue = DXGK_NO_HANDLE, .GpuVirtualAddress = word[at + 1] | (UINT64)word[at + 2] << 32,
                .Value = word[at + 3] | (UINT64)word[at + 4] << 32 };
            dxgk->SimStore(dxgk->DxgkHandle, &store);
        }
    interrupt(1, args->NodeOrdinal, args->SubmissionFenceId);
    return STATUS_SUCCESS;
}

#define WITH_TIMER(name, of, type) \
    static NTSTATUS name(void *context, UINT64 now, type *args) \
    { \
        NTSTATUS status = of(context, now, args); \
        tell_timer(); \
        return status; \
    }
WITH_TIMER(submit_queue, submit_to_hw_queue, DXGKARG_SUBMITCOMMANDTOHWQUEUE)
WITH_TIMER(reset_any, reset_engine, DXGKARG_RESETENGINE)
WITH_TIMER(destroy_any, destroy_context, DXGKARG_DESTROYCONTEXT)

static NTSTATUS stop_any(void *context, UINT64 now, DXGKARG_STOPDEVICE *args)
{
    memset(n.frame, 0, sizeof n.frame);
    n.log_entries = 0;
    return stop(context, now, args);
}

static NTSTATUS escape_any(void *context, UINT64 now, DXGKARG_ESCAPE *args)
{
    UINT *word = args->pPrivateDriverData;
    if (args->Flags & KNOWN_ESCAPE || args->PrivateDriverDataSize != 8 || word[0] < 2 || word[0] > 4)
        return escape(context, now, args);
    word[1] = word[0] == 2 ? n.slots : word[0] == 3 ? n.log_entries : n.signaled;
    return STATUS_SUCCESS;
}

static NTSTATUS save_all(void *context, UINT64 now, SIM_SAVESTATE *args)
{
    if (args->StateSize < sizeof s + sizeof n)
        return STATUS_INSUFFICIENT_RESOURCES;
    memcpy((char *)args->pState + sizeof s, &n, sizeof n);
    memcpy(args->pState, &s, sizeof s);
    args->StateSize = sizeof s + sizeof n;
    return STATUS_SUCCESS;
}

static NTSTATUS restore_all(void *context, UINT64 now, SIM_RESTORESTATE *args)
{
    if (args->StateSize != sizeof s + sizeof n)
        return STATUS_INVALID_PARAMETER;
    memcpy(&s, args->pState, sizeof s);
    memcpy(&n, (char *)args->pState + sizeof s, sizeof n);
    return STATUS_SUCCESS;
}

const DRIVER_INITIALIZATION_DATA *NATIVE_ENTRY(const DXGKRNL_INTERFACE *pDxgkrnl, void **pContext)
{
    static DRIVER_INITIALIZATION_DATA all;
    all = *SampleEntry(pDxgkrnl, pContext);
    all.DxgkDdiSubmitCommandVirtual = submit_any;
    all.DxgkDdiSubmitCommandToHwQueue = submit_queue;
    all.DxgkDdiResetEngine = reset_any;
    all.DxgkDdiDestroyContext = destroy_any;
    all.DxgkDdiStopDevice = stop_any;
    all.DxgkDdiEscape = escape_any;
    all.SimTimerExpired = expired;
    all.SimSaveState = save_all;
    all.SimRestoreState = restore_all;
    all.DxgkDdiCreateNativeFence = create_fence;
    all.DxgkDdiDestroyNativeFence = destroy_fence;
    all.DxgkDdiOpenNativeFence = open_fence;
    all.DxgkDdiCloseNativeFence = close_fence;
    all.DxgkDdiUpdateMonitoredValues = monitored;
    all.DxgkDdiUpdateCurrentValuesFromCpu = current;
    all.SimNativeFenceWritten = written;
    all.DxgkDdiCreateHwQueue = create_queue;
    all.DxgkDdiDestroyHwQueue = destroy_queue;
    all.DxgkDdiSetNativeFenceLogBuffer = set_logs;
    all.DxgkDdiCreateDoorbell = create_bell;
    all.DxgkDdiConnectDoorbell = connect;
    all.DxgkDdiDisconnectDoorbell = disconnect;
    all.DxgkDdiDestroyDoorbell = destroy_bell;
    all.SimDoorbellDisconnected = disconnected;
    all.SimRingDoorbell = ring;
    all.DxgkDdiNotifyWorkSubmission = notify;
    all.SimEngineToF1 = to_f1;
    all.DxgkDdiCreatePeriodicFrameNotification = create_frame;
    all.DxgkDdiDestroyPeriodicFrameNotification = destroy_frame;
    all.DxgkDdiCreateAllocation = create_pictures;
    all.DxgkDdiDescribeAllocation = describe;
    all.DxgkDdiDestroyAllocation = destroy_pictures;
    all.DxgkDdiBeginExclusiveAccess = begin;
    all.SimIommuMappingChanged = remapped;
    all.DxgkDdiEndExclusiveAccess = end;
    all.DxgkDdiSetSchedulingLogBuffer = set_log;
    all.SimEventSignaled = event_signaled;
    all.DxgkDdiBuildPagingBuffer = build_paging;
    all.DxgkDdiSignalMonitoredFence = signal_paging;
    return &all;
}
