/* The driver of native.c, which calls back about objects at odd times. One for each value of DOES:
 *   STORES   DxgkDdiCreateHwQueue stores the first value of the progress fence, and there are no logs of native fences
 *   ENDS     each end of a context is slow, and the timer's interrupt reports all native fences
 *   REPORTS  DxgkDdiCreateNativeFence reports all native fences that there are
 */
#define _GNU_SOURCE
#include <time.h>

#define NATIVE_ENTRY NativeEntry
#include "native.c"

enum { STORES = 1, ENDS, REPORTS };

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

static void report_all(void)
{
    for (UINT at = 0; at < FENCES; at++)
        if (n.fence[at].used)
            reached(0, n.fence[at].global);
}

static NTSTATUS storing_create(void *context, UINT64 now, DXGKARG_CREATEHWQUEUE *args)
{
    SIM_STORE store = { .NodeOrdinal = args->NodeOrdinal, .hAddressSpace = DXGK_NO_HANDLE, .hHwQueue = args->hHwQueue,
                        .GpuVirtualAddress = args->HwQueueProgressFenceGpuVirtualAddress, .Value = 0 };
    dxgk->SimStore(dxgk->DxgkHandle, &store);
    return create_queue(context, now, args);
}

static NTSTATUS no_logs(void *context, UINT64 now, DXGKARG_SETNATIVEFENCELOGBUFFER *args)
{
    return STATUS_NO_MEMORY;
}

static NTSTATUS slow_destroy(void *context, UINT64 now, DXGKARG_DESTROYCONTEXT *args)
{
    work();
    return destroy_any(context, now, args);
}

static NTSTATUS reporting_expired(void *context, UINT64 now, SIM_TIMEREXPIRED *args)
{
    report_all();
    return expired(context, now, args);
}

static NTSTATUS reporting_create(void *context, UINT64 now, DXGKARG_CREATENATIVEFENCE *args)
{
    report_all();
    return create_fence(context, now, args);
}

const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pContext)
{
    static DRIVER_INITIALIZATION_DATA late;
    late = *NativeEntry(pDxgkrnl, pContext);
    if (DOES == STORES) {
        late.DxgkDdiCreateHwQueue = storing_create;
        late.DxgkDdiSetNativeFenceLogBuffer = no_logs;
    }
    if (DOES == ENDS) {
        late.DxgkDdiDestroyContext = slow_destroy;
        late.SimTimerExpired = reporting_expired;
    }
    if (DOES == REPORTS)
        late.DxgkDdiCreateNativeFence = reporting_create;
    return &late;
}
