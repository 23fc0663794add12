/* Drivers that report ids which the kernel does not wait for, or fail in a recovery or a start: DOES says which. */
#include <stdlib.h>
#include "dxgk_miniport.h"

enum {
    PREEMPTS_ANOTHER, COMPLETES_AN_OLDER, FAULTS_AN_OLDER, FAILS_TO_RESET, FAILS_TO_RESTART, LEAVES_ITSELF_OUT,
    DIES_AT_RESTART, REFUSES_RESTART
};

static const DXGKRNL_INTERFACE *dxgk;

static void report(UINT type, UINT node, UINT64 id)
{
    DXGKARGCB_NOTIFY_INTERRUPT_DATA data = {.InterruptType = type, .NodeOrdinal = node, .FenceId = id};
    dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, &data);
}

/* Of three submissions the last is reported as the first. The other drivers report none. */
static NTSTATUS submit(void *context, UINT64 now, DXGKARG_SUBMITCOMMANDVIRTUAL *args)
{
    UINT64 id = args->SubmissionFenceId;
    if (DOES == COMPLETES_AN_OLDER)
        report(1, args->NodeOrdinal, id < 3 ? id : 1);
    if (DOES == FAULTS_AN_OLDER)
        report(id < 3 ? 1 : 4, args->NodeOrdinal, id < 3 ? id : 1);
    return STATUS_SUCCESS;
}

static NTSTATUS preempt(void *context, UINT64 now, DXGKARG_PREEMPTCOMMAND *args)
{
    if (DOES == PREEMPTS_ANOTHER)
        report(2, args->NodeOrdinal, args->PreemptionFenceId + 1);
    return STATUS_SUCCESS;
}

static NTSTATUS query_engine_status(void *context, UINT64 now, DXGKARG_QUERYENGINESTATUS *args)
{
    args->Responsive = DOES == PREEMPTS_ANOTHER;
    return STATUS_SUCCESS;
}

static NTSTATUS dependents(void *context, UINT64 now, DXGKARG_QUERYDEPENDENTENGINEGROUP *args)
{
    args->DependentNodeOrdinalMask = DOES == LEAVES_ITSELF_OUT ? 0 : 1ull << args->NodeOrdinal;
    return STATUS_SUCCESS;
}

static NTSTATUS reset(void *context, UINT64 now, DXGKARG_RESETFROMTIMEOUT *args)
{
    return DOES == FAILS_TO_RESET ? STATUS_UNSUCCESSFUL : STATUS_SUCCESS;
}

static NTSTATUS restart(void *context, UINT64 now, DXGKARG_RESTARTFROMTIMEOUT *args)
{
    return DOES == FAILS_TO_RESTART ? STATUS_UNSUCCESSFUL : STATUS_SUCCESS;
}

static NTSTATUS start(void *context, UINT64 now, DXGKARG_STARTDEVICE *args)
{
    SIM_DEBUGPRINT print = {.pText = "why", .TextSize = 3};
    if (DOES == DIES_AT_RESTART && args->Restart)
        abort();
    for (int times = 0; DOES == REFUSES_RESTART && args->Restart && times < 600; times++)
        dxgk->SimDebugPrint(dxgk->DxgkHandle, &print);
    return DOES == REFUSES_RESTART && args->Restart ? STATUS_UNSUCCESSFUL : STATUS_SUCCESS;
}

static const DRIVER_INITIALIZATION_DATA table = {
    .Size = sizeof table,
    .Version = DXGK_MINIPORT_VERSION,
    .DxgkDdiStartDevice = start,
    .DxgkDdiSubmitCommandVirtual = submit,
    .DxgkDdiPreemptCommand = preempt,
    .DxgkDdiQueryEngineStatus = query_engine_status,
    .DxgkDdiQueryDependentEngineGroup = dependents,
    .DxgkDdiResetFromTimeout = reset,
    .DxgkDdiRestartFromTimeout = restart,
};

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pContext)
{
    dxgk = pDxgkrnl;
    return &table;
}
