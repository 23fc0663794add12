/* A user-mode driver's pending buffer (gpupv_umd.h): recorded commands stay in the process until they are flushed. A
 * signal and a wait flush them first. */
#include "check.h"
#include <gpupv_umd.h>

static handle_t device;
static struct gpupv_queue queue, other;

/* Waits until all earlier submissions are executed: idle engines ran them before this call's work. */
static void let_engines_work(void)
{
    struct fence done = create_fence(device, 0, 0);
    gpupv_busy(&other.pending, 1000000);
    gpupv_fence_write(&other.pending, done.gpu_address, 1);
    EXPECT(gpupv_queue_flush(&other), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, done.handle, 1, 0), STATUS_SUCCESS);
    EXPECT(destroy_object(done.handle), STATUS_SUCCESS);
}

static void recorded_is_not_submitted(void)
{
    struct fence fence = create_fence(device, 0, 0);
    gpupv_fence_write(&queue.pending, fence.gpu_address, 1);
    let_engines_work();
    CHECK(fence_value(&fence) == 0, "recorded commands ran");
    EXPECT(gpupv_queue_flush(&queue), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, fence.handle, 1, 0), STATUS_SUCCESS);
    EXPECT(gpupv_queue_flush(&queue), STATUS_SUCCESS);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    printf("recorded commands run when they are flushed\n");
}

static void wait_flushes_first(void)
{
    COVERS("FEN-021");
    struct fence work = create_fence(device, 0, 0), gate = create_fence(device, 0, 0);
    gpupv_fence_write(&queue.pending, work.gpu_address, 1);
    EXPECT(gpupv_queue_wait(&queue, gate.handle, 1), STATUS_SUCCESS);
    /* The gate is not signaled: this ends only if the write was submitted before the wait. */
    EXPECT(cpu_wait(device, work.handle, 1, 0), STATUS_SUCCESS);
    CHECK(fence_value(&gate) == 0, "the gate was signaled early");

    gpupv_fence_write(&queue.pending, work.gpu_address, 2);
    EXPECT(gpupv_queue_flush(&queue), STATUS_SUCCESS);
    let_engines_work();
    CHECK(fence_value(&work) == 1, "work after the wait did not wait");
    EXPECT(cpu_signal(device, gate.handle, 1, 0), STATUS_SUCCESS);
    EXPECT(cpu_wait(device, work.handle, 2, 0), STATUS_SUCCESS);
    EXPECT(destroy_object(gate.handle), STATUS_SUCCESS);
    EXPECT(destroy_object(work.handle), STATUS_SUCCESS);
    printf("a wait comes behind all that was recorded before it\n");
}

static void signal_flushes_first(void)
{
    COVERS("FEN-015");
    struct fence work = create_fence(device, 0, 0), done = create_fence(device, 0, 0);
    for (uint64_t round = 1; round <= 100; ++round) {
        gpupv_busy(&queue.pending, 20000);
        gpupv_fence_write(&queue.pending, work.gpu_address, round);
        EXPECT(gpupv_queue_signal(&queue, done.handle, round), STATUS_SUCCESS);
        EXPECT(cpu_wait(device, done.handle, round, 0), STATUS_SUCCESS);
        CHECK(fence_value(&work) == round, "signaled before the work was done");
    }
    EXPECT(destroy_object(done.handle), STATUS_SUCCESS);
    EXPECT(destroy_object(work.handle), STATUS_SUCCESS);
    printf("a signal comes behind all that was recorded before it\n");
}

static void too_much_is_said(void)
{
    struct fence fence = create_fence(device, 0, 0);
    for (uint64_t at = 0; at <= GPUPV_COMMAND_WORDS / 3; ++at)
        gpupv_fence_write(&queue.pending, fence.gpu_address, 1);
    EXPECT(gpupv_queue_signal(&queue, fence.handle, 2), STATUS_BUFFER_TOO_SMALL);
    let_engines_work();
    CHECK(fence_value(&fence) == 0, "a part of an oversized recording was submitted");
    gpupv_begin(&queue.pending);
    EXPECT(destroy_object(fence.handle), STATUS_SUCCESS);
    printf("more than a buffer holds is refused whole\n");
}

int main(void)
{
    handle_t adapter = open_adapter(NULL);
    device = create_device(adapter);
    gpupv_queue_begin(&queue, create_context(device, 0));
    gpupv_queue_begin(&other, create_context(device, 0));
    recorded_is_not_submitted();
    wait_flushes_first();
    signal_flushes_first();
    too_much_is_said();
    destroy_device(device);
    close_adapter(adapter);
    printf("pending: %s\n", failures ? "FAILED" : "all as expected");
    return failures != 0;
}
