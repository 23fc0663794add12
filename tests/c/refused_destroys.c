/* Destroy calls that are refused change nothing. */
#include "check.h"
#include <gpupv_umd.h>

static NTSTATUS destroy_paging_queue(handle_t queue)
{
    return D3DKMTDestroyPagingQueue(&(D3DDDI_DESTROYPAGINGQUEUE){.hPagingQueue = queue});
}

/* Work that writes `value` to the progress fence after a while. */
static void submit_slow(const D3DKMT_CREATEHWQUEUE *queue, uint64_t value)
{
    struct gpupv_commands commands;
    gpupv_begin(&commands);
    gpupv_busy(&commands, 300000000);
    gpupv_fence_write(&commands, queue->HwQueueProgressFenceGPUVirtualAddress, value);
    D3DKMT_SUBMITCOMMANDTOHWQUEUE args = {.hHwQueue = queue->hHwQueue, .HwQueueProgressFenceId = value};
    args.pPrivateDriverData = commands.words;
    args.PrivateDriverDataSize = commands.bytes;
    EXPECT(D3DKMTSubmitCommandToHwQueue(&args), STATUS_SUCCESS);
}

int main(void)
{
    handle_t adapter = open_adapter(0), device = create_device(adapter);
    D3DKMT_CREATECONTEXTVIRTUAL context = {.hDevice = device, .EngineAffinity = 1};
    context.Flags.HwQueueSupported = 1;
    EXPECT(D3DKMTCreateContextVirtual(&context), STATUS_SUCCESS);
    D3DKMT_CREATEHWQUEUE queue = {.hHwContext = context.hContext};
    EXPECT(D3DKMTCreateHwQueue(&queue), STATUS_SUCCESS);
    struct fence paging;
    handle_t paging_queue = create_paging_queue(device, &paging);

    EXPECT(destroy_paging_queue(queue.hHwQueue), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTDestroyHwQueue(&(D3DKMT_DESTROYHWQUEUE){paging_queue}), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTDestroyContext(&(D3DKMT_DESTROYCONTEXT){queue.hHwQueue}), STATUS_INVALID_PARAMETER);
    EXPECT(D3DKMTDestroyContext(&(D3DKMT_DESTROYCONTEXT){device}), STATUS_INVALID_PARAMETER);
    CHECK(destroy_object(queue.hHwQueueProgressFence) != STATUS_SUCCESS, "a queue's fence was destroyed");
    submit_slow(&queue, 1);
    EXPECT(D3DKMTWaitForIdle(&(D3DKMT_WAITFORIDLE){device}), STATUS_SUCCESS);
    const volatile uint64_t *progress = queue.HwQueueProgressFenceCPUVirtualAddress;
    CHECK(*progress == 1, "the device was idle before its work was done");

    uint64_t sent = gpupv_messages_sent();
    EXPECT(cpu_wait(device, queue.hHwQueueProgressFence, 1, 0), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, paging.handle, 0, 0), STATUS_SUCCESS);
    CHECK(gpupv_messages_sent() == sent, "the library has forgotten a fence");
    destroy_device(device);
    close_adapter(adapter);
    printf("refused_destroys: %s\n", failures ? "not as expected" : "all as expected");
    return failures != 0;
}
