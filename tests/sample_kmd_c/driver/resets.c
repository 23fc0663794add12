/* Drivers whose resets, interrupts or doorbells are out of the ordinary: DOES says which. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dxgk_miniport.h"

enum { LEAVES_RINGS, IS_ALWAYS_DONE, DIES, NOTIFIES_LATE, SAYS_NOW, ABORTS_DOORBELLS };

#define QUEUES 16

static const DXGKRNL_INTERFACE *dxgk;
static struct { UINT64 context, progress; } queues[QUEUES];
static UINT64 running = DXGK_NO_HANDLE, ringing = DXGK_NO_HANDLE;

static NTSTATUS succeeds(void)
{
    return STATUS_SUCCESS;
}

static NTSTATUS create_hw_queue(void *context, UINT64 now, DXGKARG_CREATEHWQUEUE *args)
{
    queues[args->hHwQueue % QUEUES].context = args->hContext;
    queues[args->hHwQueue % QUEUES].progress = args->HwQueueProgressFenceGpuVirtualAddress;
    return STATUS_SUCCESS;
}

static void interrupt(const DXGKARGCB_NOTIFY_INTERRUPT_DATA *data)
{
    dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, data);
}

static NTSTATUS submit_to_hw_queue(void *context, UINT64 now, DXGKARG_SUBMITCOMMANDTOHWQUEUE *args)
{
    static int faults;
    DXGKARGCB_NOTIFY_INTERRUPT_DATA data = {.InterruptType = 11, .NodeOrdinal = args->NodeOrdinal};
    running = args->hContext;
    if (DOES == IS_ALWAYS_DONE) {
        SIM_STORE store = {
            .NodeOrdinal = args->NodeOrdinal,
            .hAddressSpace = DXGK_NO_HANDLE,
            .hHwQueue = args->hHwQueue,
            .GpuVirtualAddress = queues[args->hHwQueue % QUEUES].progress,
            .Value = args->HwQueueProgressFenceId,
        };
        dxgk->SimStore(dxgk->DxgkHandle, &store);
        running = DXGK_NO_HANDLE;
        interrupt(&data);
    }
    if (DOES == NOTIFIES_LATE) {
        if (!faults++) {
            data.InterruptType = 12;
            data.hContext = args->hHwQueue;
            data.FenceId = args->HwQueueProgressFenceId;
            data.PageFaultFlags = 1;
        }
        interrupt(&data);
    }
    return STATUS_SUCCESS;
}

/* The first interrupt waits for that of the second. */
static NTSTATUS dpc(void *context, UINT64 now, DXGKARG_DPCROUTINE *args)
{
    static int count;
    DXGKARGCB_NOTIFY_DPC notify = {0};
    if (DOES != NOTIFIES_LATE || count++)
        dxgk->DxgkCbNotifyDpc(dxgk->DxgkHandle, &notify);
    return STATUS_SUCCESS;
}

static NTSTATUS ring(void *context, UINT64 now, SIM_RINGDOORBELL *args)
{
    ringing = queues[args->hHwQueue % QUEUES].context;
    return STATUS_SUCCESS;
}

static NTSTATUS query_engine_status(void *context, UINT64 now, DXGKARG_QUERYENGINESTATUS *args)
{
    args->Responsive = DOES == IS_ALWAYS_DONE;
    return STATUS_SUCCESS;
}

/* Names what runs: a buffer before a ring. */
static NTSTATUS reset_hw_engine(void *context, UINT64 now, DXGKARG_RESETHWENGINE *args)
{
    UINT64 *lost = running != DXGK_NO_HANDLE ? &running : &ringing;
    DXGKARGCB_INVALIDATEHWCONTEXT invalidate = {.hContext = *lost};
    if (*lost != DXGK_NO_HANDLE)
        dxgk->DxgkCbInvalidateHwContext(dxgk->DxgkHandle, &invalidate);
    *lost = DXGK_NO_HANDLE;
    return STATUS_SUCCESS;
}

static NTSTATUS reset_engine(void *context, UINT64 now, DXGKARG_RESETENGINE *args)
{
    static int resets;
    if (resets++)
        abort();
    return STATUS_UNSUCCESSFUL;
}

static NTSTATUS connect_doorbell(void *context, UINT64 now, DXGKARG_CONNECTDOORBELL *args)
{
    DXGKARGCB_DISCONNECTDOORBELL disconnect = {.hHwQueue = args->hHwQueue, .DisconnectReason = 3};
    if (DOES == ABORTS_DOORBELLS)
        dxgk->DxgkCbDisconnectDoorbell(dxgk->DxgkHandle, &disconnect);
    args->DoorbellStatus = 0;
    return STATUS_SUCCESS;
}

static NTSTATUS say(const char *what, UINT64 now)
{
    char text[80];
    SIM_SETTIMER timer = {.DueTime = now + 500000000};
    int length = snprintf(text, sizeof text, "%s at %llu ms", what, (unsigned long long)now / 1000000);
    SIM_DEBUGPRINT print = {.pText = text, .TextSize = (UINT)length};
    if (DOES != SAYS_NOW)
        return STATUS_SUCCESS;
    dxgk->SimDebugPrint(dxgk->DxgkHandle, &print);
    if (strcmp(what, "the timer"))
        dxgk->SimSetTimer(dxgk->DxgkHandle, &timer);
    return STATUS_SUCCESS;
}

static NTSTATUS create_context(void *context, UINT64 now, DXGKARG_CREATECONTEXT *args)
{
    return say("a context", now);
}

static NTSTATUS reset_from_timeout(void *context, UINT64 now, DXGKARG_RESETFROMTIMEOUT *args)
{
    return say("a reset", now);
}

static NTSTATUS timer_expired(void *context, UINT64 now, SIM_TIMEREXPIRED *args)
{
    return say("the timer", now);
}

static const DRIVER_INITIALIZATION_DATA table = {
    .Size = sizeof table,
    .Version = DXGK_MINIPORT_VERSION,
    .DxgkDdiCreateContext = create_context,
    .DxgkDdiSubmitCommandVirtual = (void *)succeeds,
    .DxgkDdiCreateHwQueue = create_hw_queue,
    .DxgkDdiSubmitCommandToHwQueue = submit_to_hw_queue,
    .DxgkDdiDpcRoutine = dpc,
    .SimRingDoorbell = ring,
    .DxgkDdiQueryEngineStatus = query_engine_status,
    .DxgkDdiResetEngine = DOES == DIES ? reset_engine : NULL,
    .DxgkDdiResetHwEngine = reset_hw_engine,
    .DxgkDdiResetFromTimeout = reset_from_timeout,
    .SimTimerExpired = timer_expired,
    .DxgkDdiConnectDoorbell = connect_doorbell,
    .DxgkDdiCreateDoorbell = (void *)succeeds,
    .DxgkDdiCreateNativeFence = (void *)succeeds,
    .DxgkDdiSetNativeFenceLogBuffer = (void *)succeeds,
    .DxgkDdiEscape = (void *)succeeds,
};

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pContext)
{
    dxgk = pDxgkrnl;
    return &table;
}
