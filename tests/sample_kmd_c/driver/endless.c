/* Drivers whose answers cause further DDIs, one for each value of DOES: without a bound a step of the kernel has no end. */
#include "dxgk_miniport.h"

enum { HANGS = 1, RESETS, LOGS, FENCES, BURST };

/* Callbacks that a DDI may make at most. */
#define CALLBACKS 1024

static const DXGKRNL_INTERFACE *dxgk;
static UINT64 submitted;

static NTSTATUS interrupt(UINT type, UINT64 fence)
{
    DXGKARGCB_NOTIFY_INTERRUPT_DATA data = { .InterruptType = type, .FenceId = fence };
    return dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, &data);
}

static NTSTATUS native_fences_signaled(UINT evaluate)
{
    SIM_NATIVEFENCESIGNALED signaled = { .Evaluate = evaluate, .hHwQueue = DXGK_NO_HANDLE };
    return dxgk->SimNativeFenceSignaled(dxgk->DxgkHandle, &signaled);
}

/* HANGS and RESETS: the engine reports its own timeout, BURST: as many interrupts as a DDI may report, soon. */
static NTSTATUS submit(void *context, UINT64 now, DXGKARG_SUBMITCOMMANDVIRTUAL *args)
{
    SIM_SETTIMER timer = { .DueTime = now + 1000 };
    submitted = args->SubmissionFenceId;
    if (DOES == HANGS || DOES == RESETS)
        return interrupt(16, 0);
    return dxgk->SimSetTimer(dxgk->DxgkHandle, &timer);
}

static NTSTATUS timer_expired(void *context, UINT64 now, SIM_TIMEREXPIRED *args)
{
    for (UINT n = 0; n < CALLBACKS; n++)
        interrupt(11, 0);
    return STATUS_SUCCESS;
}

/* The last callback lets the kernel take the interrupts. */
static NTSTATUS dpc(void *context, UINT64 now, DXGKARG_DPCROUTINE *args)
{
    DXGKARGCB_NOTIFY_DPC done = { 0 };
    DXGKARGCB_SIGNALEVENT signal = { .hEvent = 1 };
    for (UINT n = 1; DOES == BURST && n < CALLBACKS; n++)
        dxgk->DxgkCbSignalEvent(dxgk->DxgkHandle, &signal);
    return dxgk->DxgkCbNotifyDpc(dxgk->DxgkHandle, &done);
}

/* HANGS: an engine that is at work and reports a timeout. */
static NTSTATUS query_status(void *context, UINT64 now, DXGKARG_QUERYENGINESTATUS *args)
{
    args->Responsive = DOES == HANGS;
    return DOES == HANGS ? interrupt(16, 0) : STATUS_SUCCESS;
}

/* RESETS: a reset that aborts nothing, so that all work is submitted again. */
static NTSTATUS reset_engine(void *context, UINT64 now, DXGKARG_RESETENGINE *args)
{
    args->LastAbortedFenceId = submitted - 1;
    return STATUS_SUCCESS;
}

static NTSTATUS create_hw_queue(void *context, UINT64 now, DXGKARG_CREATEHWQUEUE *args)
{
    return STATUS_SUCCESS;
}

static NTSTATUS set_logs(void *context, UINT64 now, DXGKARG_SETNATIVEFENCELOGBUFFER *args)
{
    return STATUS_SUCCESS;
}

static NTSTATUS update_logs(void *context, UINT64 now, DXGKARG_UPDATENATIVEFENCELOGS *args)
{
    return native_fences_signaled(3);
}

static NTSTATUS create_fence(void *context, UINT64 now, DXGKARG_CREATENATIVEFENCE *args)
{
    return STATUS_SUCCESS;
}

/* FENCES: every value is news for the other adapter. */
static NTSTATUS update_values(void *context, UINT64 now, DXGKARG_UPDATECURRENTVALUESFROMCPU *args)
{
    return DOES == FENCES ? native_fences_signaled(1) : STATUS_SUCCESS;
}

static NTSTATUS escape(void *context, UINT64 now, DXGKARG_ESCAPE *args)
{
    return DOES == LOGS ? native_fences_signaled(3) : STATUS_SUCCESS;
}

static const DRIVER_INITIALIZATION_DATA table = {
    .Size = sizeof table, .Version = DXGK_MINIPORT_VERSION,
    .DxgkDdiSubmitCommandVirtual = submit, .SimTimerExpired = timer_expired, .DxgkDdiDpcRoutine = dpc,
    .DxgkDdiQueryEngineStatus = query_status, .DxgkDdiResetEngine = reset_engine, .DxgkDdiEscape = escape,
    .DxgkDdiCreateHwQueue = create_hw_queue, .DxgkDdiSetNativeFenceLogBuffer = set_logs,
    .DxgkDdiUpdateNativeFenceLogs = update_logs, .DxgkDdiCreateNativeFence = create_fence,
    .DxgkDdiUpdateCurrentValuesFromCpu = update_values,
};

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pContext)
{
    (void)pContext;
    dxgk = pDxgkrnl;
    return &table;
}
