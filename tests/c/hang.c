/* A client with a hung engine: it waits for a fence that a command behind the hang would signal.
 * It blocks for ever; the test ends it. */
#include "check.h"

int main(void)
{
    handle_t adapter = open_adapter(NULL);
    handle_t device = create_device(adapter);
    handle_t context = create_context(device, 0);
    struct fence fence = create_fence(device, 6, 0);
    static struct gpupv_commands commands;
    gpupv_begin(&commands);
    gpupv_hang(&commands);
    gpupv_fence_write(&commands, fence.gpu_address, 7);
    EXPECT(submit(context, &commands), STATUS_SUCCESS);
    printf("submitted a command that hangs; now waiting for 7\n");
    fflush(stdout);
    EXPECT(cpu_wait(device, fence.handle, 7, 0), STATUS_SUCCESS);
    printf("the wait came back\n");
    return 1;
}
