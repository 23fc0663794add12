/* A fence opened by its NT handle while the paging engine is busy: the open returns when engines may write it. */
#include "check.h"
#include <gpupv_umd.h>

#define MAPS 1000

static handle_t device, context, paging_queue;
static struct fence paging_fence;

/* Keeps the paging queue busy; returns its fence's value after the last operation. */
static uint64_t keep_busy(void)
{
    uint64_t last = 0;
    for (int at = 0; at < MAPS; at++) {
        D3DDDI_MAPGPUVIRTUALADDRESS map = {.hPagingQueue = paging_queue, .SizeInPages = 1};
        map.Protection.Zero = 1;
        NTSTATUS status = D3DKMTMapGpuVirtualAddress(&map);
        CHECK(status == STATUS_PENDING, "map %d answered %#x", at, (unsigned)status);
        last = map.PagingFenceValue;
    }
    return last;
}

/* Lets an engine write the fence; returns after the write was tried. */
static void write_fence(const struct fence *fence, uint64_t value, const struct fence *done, uint64_t done_value)
{
    struct gpupv_commands commands;
    gpupv_begin(&commands);
    gpupv_fence_write(&commands, fence->gpu_address, value);
    EXPECT(submit(context, &commands), STATUS_SUCCESS);
    EXPECT(gpu_signal(context, done->handle, done_value), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, done->handle, done_value, 0), STATUS_SUCCESS);
}

static void opens_while_paging_is_busy(HANDLE nt_handle, const struct fence *done)
{
    COVERS("FEN-062");
    uint64_t busy_until = keep_busy();
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 open = {.hNtHandle = nt_handle, .hDevice = device};
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&open), STATUS_SUCCESS);
    uint64_t mapped_at = gpupv_opened_paging_fence_value(&open);
    CHECK(mapped_at == busy_until + 1, "mapped at %llu, busy until %llu", (unsigned long long)mapped_at,
          (unsigned long long)busy_until);
    struct fence opened = {open.hSyncObject, open.MonitoredFence.FenceValueCPUVirtualAddress,
                           open.MonitoredFence.FenceValueGPUVirtualAddress};
    write_fence(&opened, 3, done, 1);
    uint64_t value = fence_value(&opened);
    /* If paging is not complete yet, the write came too early. */
    if (fence_value(&paging_fence) < mapped_at)
        CHECK(value == 0, "an early write was stored: %llu", (unsigned long long)value);
    EXPECT(gpu_wait(context, paging_fence.handle, mapped_at), STATUS_SUCCESS);
    write_fence(&opened, 7, done, 2);
    CHECK(fence_value(&opened) == 7, "the value is %llu", (unsigned long long)fence_value(&opened));
    EXPECT(destroy_object(opened.handle), STATUS_SUCCESS);
    printf("opened under load; written once the paging fence had the value\n");
}

static void opens_with_nothing_to_wait_for(HANDLE nt_handle)
{
    COVERS("FEN-062");
    D3DKMT_OPENSYNCOBJECTFROMNTHANDLE2 open = {.hNtHandle = nt_handle, .hDevice = device};
    open.Reserved[3] = 0xDEAD;
    EXPECT(D3DKMTOpenSyncObjectFromNtHandle2(&open), STATUS_SUCCESS);
    CHECK(gpupv_opened_paging_fence_value(&open) == 0, "without a paging queue there is nothing to wait for");
    EXPECT(destroy_object(open.hSyncObject), STATUS_SUCCESS);
}

int main(void)
{
    handle_t adapter = open_adapter(NULL);
    device = create_device(adapter);
    context = create_context(device, 0);
    struct fence shared = create_fence(device, 0, 0x3 /* Shared, NtSecuritySharing */);
    struct fence done = create_fence(device, 0, 0);
    HANDLE nt_handle = NULL;
    EXPECT(D3DKMTShareObjects(1, &shared.handle, NULL, D3DDDI_SYNC_OBJECT_ALL_ACCESS, &nt_handle),
           STATUS_SUCCESS);
    opens_with_nothing_to_wait_for(nt_handle);
    paging_queue = create_paging_queue(device, &paging_fence);
    opens_while_paging_is_busy(nt_handle, &done);
    close((int)(intptr_t)nt_handle);
    destroy_device(device);
    close_adapter(adapter);
    printf("opened_under_paging: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
