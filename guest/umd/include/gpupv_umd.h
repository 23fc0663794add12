/* A minimal correct user-mode driver for one context: it collects commands in a pending buffer, and submits them to
 * the kernel on a flush. Plain functions over D3DKMT calls; use them, or read here what a
 * user-mode driver has to do.
 *
 *   record    gpupv_fence_write(&queue.pending, ..), gpupv_busy(&queue.pending, ..): not submitted yet
 *   flush     one D3DKMTSubmitCommand of the pending commands; no call if there are none
 *   signal    flush, then D3DKMTSignalSynchronizationObjectFromGpu: earlier commands are complete when
 *             the fence is signaled
 *   wait      flush, then D3DKMTWaitForSynchronizationObjectFromGpu: earlier commands do not
 *             wait. If they were still pending, they would be submitted after the wait; and if the wait's
 *             signal depends on them, neither would ever complete.
 *
 * One thread at a time per queue. Every function returns the NTSTATUS of the first call that failed; the pending
 * commands then stay pending.
 */
#ifndef GPUPV_UMD_H
#define GPUPV_UMD_H

#include <d3dkmthk.h>
#include <gpupv_isa.h>

/* A fence that D3DKMTOpenSyncObjectFromNtHandle2 opened is mapped for engines once the paging fence of the device's
 * oldest paging queue has this value: wait for that before an engine writes there. 0: it is mapped already, which is
 * always so without a paging queue. Waits, signals and the CPU address are usable before. The published struct has
 * no field for it, so the library puts it into the reserved words of its union. */
static inline UINT64 gpupv_opened_paging_fence_value(const D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 *opened)
{
    return opened->Reserved[3];
}

struct gpupv_queue {
    D3DKMT_HANDLE context;
    struct gpupv_commands pending;
};

static inline void gpupv_queue_begin(struct gpupv_queue *queue, D3DKMT_HANDLE context)
{
    queue->context = context;
    gpupv_begin(&queue->pending);
}

/* STATUS_BUFFER_TOO_SMALL if more commands were recorded than fit a buffer: none are submitted. */
static inline NTSTATUS gpupv_queue_flush(struct gpupv_queue *queue)
{
    if (queue->pending.full)
        return STATUS_BUFFER_TOO_SMALL;
    if (gpupv_is_empty(&queue->pending))
        return STATUS_SUCCESS;
    D3DKMT_SUBMITCOMMAND args = {.BroadcastContextCount = 1, .BroadcastContext = {queue->context}};
    args.pPrivateDriverData = queue->pending.words;
    args.PrivateDriverDataSize = queue->pending.bytes;
    NTSTATUS status = D3DKMTSubmitCommand(&args);
    if (NT_SUCCESS(status))
        gpupv_begin(&queue->pending);
    return status;
}

static inline NTSTATUS gpupv_queue_signal(struct gpupv_queue *queue, D3DKMT_HANDLE object, UINT64 value)
{
    NTSTATUS status = gpupv_queue_flush(queue);
    if (!NT_SUCCESS(status))
        return status;
    D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU args = {
        queue->context, 1, &object, {.MonitoredFenceValueArray = &value}};
    return D3DKMTSignalSynchronizationObjectFromGpu(&args);
}

static inline NTSTATUS gpupv_queue_wait(struct gpupv_queue *queue, D3DKMT_HANDLE object, UINT64 value)
{
    NTSTATUS status = gpupv_queue_flush(queue);
    if (!NT_SUCCESS(status))
        return status;
    D3DKMT_WAITFORSYNCHRONIZATIONOBJECTFROMGPU args = {
        queue->context, 1, &object, {.MonitoredFenceValueArray = &value}};
    return D3DKMTWaitForSynchronizationObjectFromGpu(&args);
}

#endif
