/*
 * Drivers that want too much, one for each value of DOES. An escape { 1, value } returns how often the timer expired,
 * with ENDS how many contexts were destroyed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dxgk_miniport.h"

enum { STORES = 1, PRINTS, TIMER, NODE, SLOW, CALLS, LOADS, ENDS, QUEUES, SIGNALS, FAULTS, KEEPS, WRITES, FORKS };

/* Contexts that ENDS has at a time. */
#define LIVE 256

/* The system call of CALLS and LOADS. */
#ifndef CALL
#define CALL SYS_getpid
#endif

/* The file that WRITES wants to change. */
#ifndef VICTIM
#define VICTIM "/nowhere"
#endif

static const DXGKRNL_INTERFACE *dxgk;
static UINT expired;
/* What ENDS saves: plain memory. */
static struct {
    UINT destroyed, used;
    UINT64 context[LIVE];
} ends;
static DXGKARG_CREATEHWQUEUE queues[8];

/* Works for 3 ms on a CPU: a DDI may take 5. */
static void work(void)
{
    struct timespec time;
    for (long end = 0;;) {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        long now = time.tv_nsec + time.tv_sec * 1000000000;
        end = end ? end : now + 3000000;
        if (now >= end)
            return;
    }
}

/* Runs while the object is loaded. */
__attribute__((constructor)) static void load(void)
{
    if (DOES == LOADS)
        syscall(CALL, -1, 0, 0, 0);
    if (DOES == WRITES) {
        int file = open(VICTIM, O_WRONLY | O_APPEND);
        if (file >= 0 && write(file, "changed", 7) == 7)
            close(file);
        (void)!open(VICTIM ".made", O_WRONLY | O_CREAT, 0600);
        (void)!rename(VICTIM, VICTIM ".renamed");
    }
    if (DOES == FORKS && fork() == 0)
        for (;;)
            pause();
}

/* A timer that is due at once. */
static void set_timer(void)
{
    SIM_SETTIMER timer = { .DueTime = 0 };
    dxgk->SimSetTimer(dxgk->DxgkHandle, &timer);
}

/* The place of a live context; LIVE if there is none. */
static UINT find_live(UINT64 handle)
{
    UINT at = 0;
    while (at < ends.used && ends.context[at] != handle)
        at++;
    return at < ends.used ? at : LIVE;
}

/* A handle names one object at a time. */
static void add_live(UINT64 handle)
{
    if (ends.used == LIVE || find_live(handle) != LIVE)
        abort();
    ends.context[ends.used++] = handle;
}

/* DxgkDdiCreateContext takes no callbacks: those are for the next DDI that does. */
static NTSTATUS create_context(void *context, UINT64 now, DXGKARG_CREATECONTEXT *args)
{
    SIM_STORE store = { .NodeOrdinal = 0, .hAddressSpace = DXGK_NO_HANDLE, .hHwQueue = DXGK_NO_HANDLE };
    SIM_DEBUGPRINT print = { .pText = "again", .TextSize = 5 };
    for (UINT n = 0; n < 600; n++) {
        if (DOES == STORES)
            dxgk->SimStore(dxgk->DxgkHandle, &store);
        if (DOES == PRINTS)
            dxgk->SimDebugPrint(dxgk->DxgkHandle, &print);
    }
    if (DOES == TIMER || DOES == SIGNALS)
        set_timer();
    if (DOES == SIGNALS) {
        DXGKARGCB_SIGNALEVENT signal = { .hEvent = 1 };
        dxgk->DxgkCbSignalEvent(dxgk->DxgkHandle, &signal);
    }
    if (DOES == ENDS)
        add_live(args->hContext);
    if (DOES == CALLS)
        syscall(CALL, -1, 0, 0, 0);
    if (DOES == NODE) {
        store.NodeOrdinal = 1000000;
        dxgk->SimStore(dxgk->DxgkHandle, &store);
    }
    return STATUS_SUCCESS;
}

static NTSTATUS timer_expired(void *context, UINT64 now, SIM_TIMEREXPIRED *args)
{
    /* Without a bound it would go on for ever. */
    if (++expired == 100000)
        abort();
    if (DOES == TIMER)
        set_timer();
    return STATUS_SUCCESS;
}

static NTSTATUS escape(void *context, UINT64 now, DXGKARG_ESCAPE *args)
{
    UINT *word = args->pPrivateDriverData;
    if (args->PrivateDriverDataSize != 8)
        return STATUS_INVALID_PARAMETER;
    word[1] = DOES == ENDS ? ends.destroyed : expired;
    if (DOES == SLOW)
        work();
    return STATUS_SUCCESS;
}

/* Runs a command buffer at once, if its first word is not 0 slowly. FAULTS: ends it by the interrupt of that number. */
static NTSTATUS submit(void *context, UINT64 now, DXGKARG_SUBMITCOMMANDVIRTUAL *args)
{
    const UINT *words = args->pDmaBuffer;
    DXGKARGCB_NOTIFY_INTERRUPT_DATA data = {
        .InterruptType = DOES == FAULTS ? words[0] : 1, .NodeOrdinal = args->NodeOrdinal, .FenceId = args->SubmissionFenceId,
    };
    if (DOES == SLOW && args->DmaBufferSize >= sizeof *words && words[0])
        work();
    return dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, &data);
}

/* Each end of a context is slow. */
static NTSTATUS destroy_context(void *context, UINT64 now, DXGKARG_DESTROYCONTEXT *args)
{
    UINT at = find_live(args->hContext);
    if (at == LIVE)
        abort();
    ends.context[at] = ends.context[--ends.used];
    work();
    ends.destroyed++;
    return STATUS_SUCCESS;
}

static NTSTATUS create_hw_queue(void *context, UINT64 now, DXGKARG_CREATEHWQUEUE *args)
{
    static UINT count;
    queues[count++ % 8] = *args;
    return STATUS_SUCCESS;
}

/* Runs a command buffer of a hardware queue at once, if its first word is not 0 slowly. KEEPS: never. */
static NTSTATUS submit_to_hw_queue(void *context, UINT64 now, DXGKARG_SUBMITCOMMANDTOHWQUEUE *args)
{
    const UINT *words = args->pDmaBuffer;
    SIM_STORE store = {
        .NodeOrdinal = args->NodeOrdinal, .hAddressSpace = DXGK_NO_HANDLE, .hHwQueue = args->hHwQueue,
        .Value = args->HwQueueProgressFenceId,
    };
    DXGKARGCB_NOTIFY_INTERRUPT_DATA data = { .InterruptType = 11, .NodeOrdinal = args->NodeOrdinal };
    if (DOES == FAULTS) {
        data.InterruptType = words[0];
        data.hContext = args->hHwQueue;
        data.FenceId = args->HwQueueProgressFenceId;
        return dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, &data);
    }
    if (DOES == KEEPS)
        return STATUS_SUCCESS;
    if (words[0])
        work();
    for (UINT n = 0; n < 8; n++)
        if (queues[n].hHwQueue == args->hHwQueue)
            store.GpuVirtualAddress = queues[n].HwQueueProgressFenceGpuVirtualAddress;
    dxgk->SimStore(dxgk->DxgkHandle, &store);
    return dxgk->DxgkCbNotifyInterrupt(dxgk->DxgkHandle, &data);
}

/* PRINTS: every buffer is bad, without a word. */
static NTSTATUS validate(void *context, UINT64 now, SIM_VALIDATECOMMANDS *args)
{
    return STATUS_INVALID_PARAMETER;
}

static NTSTATUS save(void *context, UINT64 now, SIM_SAVESTATE *args)
{
    if (args->StateSize < sizeof ends)
        return STATUS_INSUFFICIENT_RESOURCES;
    memcpy(args->pState, &ends, sizeof ends);
    args->StateSize = sizeof ends;
    return STATUS_SUCCESS;
}

static NTSTATUS restore(void *context, UINT64 now, SIM_RESTORESTATE *args)
{
    memcpy(&ends, args->pState, sizeof ends);
    return STATUS_SUCCESS;
}

static const DRIVER_INITIALIZATION_DATA table = {
    .Size = sizeof table, .Version = DXGK_MINIPORT_VERSION,
    .SimValidateCommands = DOES == PRINTS ? validate : NULL,
    .DxgkDdiSubmitCommandVirtual = DOES == SLOW || DOES == FAULTS ? submit : NULL,
    .DxgkDdiDestroyContext = DOES == ENDS ? destroy_context : NULL,
    .DxgkDdiCreateHwQueue = create_hw_queue, .DxgkDdiSubmitCommandToHwQueue = submit_to_hw_queue,
    .SimSaveState = DOES == ENDS ? save : NULL, .SimRestoreState = DOES == ENDS ? restore : NULL,
    .DxgkDdiCreateContext = create_context, .SimTimerExpired = timer_expired, .DxgkDdiEscape = escape,
};

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pContext)
{
    (void)pContext;
    dxgk = pDxgkrnl;
    return &table;
}
