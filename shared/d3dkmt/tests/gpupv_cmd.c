/* Every packet of gpupv_cmd.h once, to standard output; commands_header.rs has the same from Rust. Before that, the
 * same into every smaller buffer: nothing is written beyond it, and nothing is to be submitted. C11 and C++11. */
#include <stdio.h>

#include <gpupv_cmd.h>

#define MOST 4096u
#define GUARD 0xA5

static void every_packet(struct gpupv_cmd *cmd)
{
    struct gpupv_global_barrier words = {GPUPV_SYNC_COPY, GPUPV_SYNC_PIXEL_SHADING, GPUPV_ACCESS_COPY_DEST,
                                         GPUPV_ACCESS_SHADER_RESOURCE};
    struct gpupv_texture_barrier texture = {
        words, GPUPV_LAYOUT_COPY_DEST, GPUPV_LAYOUT_SHADER_RESOURCE, 3, GPUPV_TEXTURE_DISCARD, {1, 2, 3, 4, 5, 6}};
    struct gpupv_buffer_barrier buffers[2] = {{words, 4, 0, 0, GPUPV_WHOLE}, {words, 5, 0, 0, 4096}};
    struct gpupv_ranged_barrier ranged = {words, 6, GPUPV_RANGED_ACQUIRE, 64, 128};
    struct gpupv_barrier_group groups[5] = {{GPUPV_GROUP_GLOBAL, 1, &words},
                                            {GPUPV_GROUP_TEXTURE, 1, &texture},
                                            {GPUPV_GROUP_BUFFER, 2, buffers},
                                            {GPUPV_GROUP_RANGED, 1, &ranged},
                                            {9, 7, NULL}};
    struct gpupv_legacy_barrier legacy[3] = {
        {GPUPV_LEGACY_TRANSITION, GPUPV_LEGACY_BEGIN_ONLY, 3, 1, GPUPV_STATE_COPY_DEST, GPUPV_STATE_RENDER_TARGET},
        {GPUPV_LEGACY_ALIASING, 0, 4, 5, 0, 0},
        {GPUPV_LEGACY_UNORDERED_ACCESS, 0, 6, 0, 0, 0}};
    struct gpupv_fence_value fences[2] = {{0x1000, 1}, {0x1040, UINT64_MAX}};
    struct gpupv_use uses[3] = {gpupv_use_whole(3, GPUPV_ACCESS_SHADER_RESOURCE),
                                gpupv_use_range(4, GPUPV_ACCESS_UNORDERED_ACCESS, 64, 128),
                                gpupv_use_subresource(5, GPUPV_ACCESS_RENDER_TARGET, 7)};
    uses[0].flags = GPUPV_USE_PIXEL_STAGE;

    gpupv_cmd_fence_write(cmd, 0x1000, 1);
    gpupv_cmd_busy(cmd, 5);
    gpupv_cmd_hang(cmd);
    gpupv_cmd_fence_wait(cmd, 0x1040, 2);
    gpupv_cmd_marker_in(cmd, 0x1080, 3);
    gpupv_cmd_marker_out(cmd, 0x10c0, 4);
    gpupv_cmd_begin_list(cmd, GPUPV_QUEUE_COMPUTE, GPUPV_LIST_BUNDLE, "shadow pass");
    gpupv_cmd_begin_list(cmd, GPUPV_QUEUE_VIDEO_ENCODE, 0, "");
    gpupv_cmd_begin_list(cmd, GPUPV_QUEUE_DIRECT, 0, "8 bytes!");
    gpupv_cmd_work(cmd, GPUPV_WORK_DRAW_INDEXED, GPUPV_KERNEL_XOR, 0x5a5a5a5a, 1000, uses, 3);
    gpupv_cmd_work(cmd, GPUPV_WORK_DISCARD, GPUPV_KERNEL_NONE, 0, 0, NULL, 0);
    gpupv_cmd_barrier(cmd, groups, 5);
    gpupv_cmd_barrier(cmd, NULL, 0);
    gpupv_cmd_texture_barrier(cmd, &texture);
    gpupv_cmd_buffer_barrier(cmd, &buffers[0]);
    gpupv_cmd_legacy_barrier(cmd, legacy, 3);
    gpupv_cmd_signal_barrier(cmd, 0x1000, 9, groups, 2);
    gpupv_cmd_wait_barrier(cmd, fences, 2, &groups[2], 1);
    gpupv_cmd_assert_resource_access(cmd, 3, GPUPV_ALL_SUBRESOURCES, GPUPV_ACCESS_COPY_SOURCE);
    gpupv_cmd_assert_texture_layout(cmd, 3, 1, GPUPV_LAYOUT_GENERIC_READ);
    gpupv_cmd_timestamp(cmd, 0x2000);
}

/* Whether a buffer of so many bytes is left alone behind its end; how many bytes are to be submitted. */
static int within(size_t capacity, uint32_t *submit)
{
    static unsigned char memory[MOST + 64];
    struct gpupv_cmd cmd;
    memset(memory, GUARD, sizeof memory);
    /* One byte on: no alignment is asked for. */
    gpupv_cmd_begin(&cmd, memory + 1, capacity);
    every_packet(&cmd);
    *submit = gpupv_cmd_end(&cmd);
    for (size_t at = capacity + 1; at < sizeof memory; at++)
        if (memory[at] != GUARD)
            return 0;
    return 1;
}

int main(void)
{
    static uint64_t memory[MOST / 8];
    struct gpupv_resource_desc desc = {GPUPV_KIND_TEXTURE2D, GPUPV_HEAP_DEFAULT, GPUPV_RESOURCE_ALLOW_RENDER_TARGET,
                                       GPUPV_LAYOUT_COMMON, 0x100000, 1344, 16, 16, 1, 3, 1, 1, 4,
                                       GPUPV_STATE_COMMON, "albedo"};
    struct gpupv_cmd cmd;
    uint32_t bytes, submit;
    char name[GPUPV_LIST_NAME_BYTES_MAX + 2];
    const struct gpupv_barrier_group huge = {GPUPV_GROUP_TEXTURE, UINT32_MAX, NULL};

    gpupv_cmd_begin(&cmd, memory, sizeof memory);
    every_packet(&cmd);
    bytes = gpupv_cmd_end(&cmd);
    for (size_t capacity = 0; capacity <= MOST; capacity++)
        if (!within(capacity, &submit) || submit != (capacity < bytes ? 0 : bytes)) {
            fprintf(stderr, "a buffer of %zu bytes\n", capacity);
            return 1;
        }
    fwrite(memory, 1, bytes, stdout);
    fwrite(&desc, 1, sizeof desc, stdout);

    /* What can never fit. */
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    gpupv_cmd_begin_list(&cmd, GPUPV_QUEUE_DIRECT, 0, name);
    if (gpupv_cmd_end(&cmd) != 0)
        return 2;
    gpupv_cmd_begin(&cmd, memory, sizeof memory);
    gpupv_cmd_barrier(&cmd, &huge, 1);
    gpupv_cmd_hang(&cmd);
    if (gpupv_cmd_end(&cmd) != 0 || cmd.bytes != 8)
        return 3;
    gpupv_cmd_begin(&cmd, memory, sizeof memory);
    gpupv_cmd_work(&cmd, GPUPV_WORK_DRAW, GPUPV_KERNEL_NONE, 0, 0, NULL, UINT32_MAX);
    return gpupv_cmd_end(&cmd) == 0 ? 0 : 4;
}
