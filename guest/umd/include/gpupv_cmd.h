/* Command lists for gpupv's simulated engines: the packets of docs/COMMANDS.md, built in a caller's buffer. One buffer
 * is one ExecuteCommandLists; it goes into the private driver data of D3DKMTSubmitCommand or
 * D3DKMTSubmitCommandToHwQueue.
 *
 *   uint64_t memory[512];
 *   struct gpupv_cmd cmd;
 *   gpupv_cmd_begin(&cmd, memory, sizeof memory);
 *   gpupv_cmd_begin_list(&cmd, GPUPV_QUEUE_DIRECT, 0, "upload");
 *   struct gpupv_use uses[] = {gpupv_use_whole(source, GPUPV_ACCESS_COPY_SOURCE),
 *                              gpupv_use_whole(target, GPUPV_ACCESS_COPY_DEST)};
 *   gpupv_cmd_work(&cmd, GPUPV_WORK_COPY, GPUPV_KERNEL_COPY, 0, 1000, uses, 2);
 *   args.pPrivateDriverData = memory;
 *   args.PrivateDriverDataSize = gpupv_cmd_end(&cmd);      0 if something did not fit
 *
 * A packet that does not fit is left out, and so is everything after it. Nothing allocates; every struct has the
 * layout of the wire, little-endian, its size a multiple of 8. Words of barriers have the values that D3D12 publishes
 * (D3D12_BARRIER_SYNC, _ACCESS, _LAYOUT, D3D12_RESOURCE_STATES and so on). C11 and C++11.
 */
#ifndef GPUPV_CMD_H
#define GPUPV_CMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <gpupv_isa.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "command buffers are little-endian: this header copies structs as they are"
#endif

#ifdef __cplusplus
#define GPUPV_CMD_ASSERT static_assert
extern "C" {
#else
#define GPUPV_CMD_ASSERT _Static_assert
#endif

/* Opcodes beyond those of gpupv_isa.h. */
#define GPUPV_OP_BEGIN_LIST 16u
#define GPUPV_OP_WORK 17u
#define GPUPV_OP_BARRIER 18u
#define GPUPV_OP_LEGACY_BARRIER 19u
#define GPUPV_OP_SIGNAL_BARRIER 20u
#define GPUPV_OP_WAIT_BARRIER 21u
#define GPUPV_OP_ASSERT_RESOURCE_ACCESS 22u
#define GPUPV_OP_ASSERT_TEXTURE_LAYOUT 23u
#define GPUPV_OP_TIMESTAMP 24u

/* The synchronization scopes of a barrier. */
#define GPUPV_SYNC_NONE 0u
#define GPUPV_SYNC_ALL                         0x1u
#define GPUPV_SYNC_DRAW                        0x2u
#define GPUPV_SYNC_INDEX_INPUT                 0x4u
#define GPUPV_SYNC_VERTEX_SHADING              0x8u
#define GPUPV_SYNC_PIXEL_SHADING               0x10u
#define GPUPV_SYNC_DEPTH_STENCIL               0x20u
#define GPUPV_SYNC_RENDER_TARGET               0x40u
#define GPUPV_SYNC_COMPUTE_SHADING             0x80u
#define GPUPV_SYNC_RAYTRACING                  0x100u
#define GPUPV_SYNC_COPY                        0x200u
#define GPUPV_SYNC_RESOLVE                     0x400u
#define GPUPV_SYNC_EXECUTE_INDIRECT            0x800u
#define GPUPV_SYNC_ALL_SHADING                 0x1000u
#define GPUPV_SYNC_NON_PIXEL_SHADING           0x2000u
#define GPUPV_SYNC_EMIT_RTAS_POSTBUILD_INFO    0x4000u
#define GPUPV_SYNC_CLEAR_UNORDERED_ACCESS_VIEW 0x8000u
#define GPUPV_SYNC_VIDEO_DECODE                0x100000u
#define GPUPV_SYNC_VIDEO_PROCESS               0x200000u
#define GPUPV_SYNC_VIDEO_ENCODE                0x400000u
#define GPUPV_SYNC_BUILD_RTAS                  0x800000u
#define GPUPV_SYNC_COPY_RTAS                   0x1000000u
#define GPUPV_SYNC_SPLIT                       0x80000000u
#define GPUPV_SYNC_INPUT_ASSEMBLER GPUPV_SYNC_INDEX_INPUT
#define GPUPV_SYNC_PREDICATION GPUPV_SYNC_EXECUTE_INDIRECT

/* The names of D3D12DDI_BARRIER_SYNC. They are enumerators in d3d12umddi.h, so a file that includes it must not
 * define this. */
#ifdef GPUPV_D3D12DDI_NAMES
#define D3D12DDI_BARRIER_SYNC_NONE GPUPV_SYNC_NONE
#define D3D12DDI_BARRIER_SYNC_ALL GPUPV_SYNC_ALL
#define D3D12DDI_BARRIER_SYNC_DRAW GPUPV_SYNC_DRAW
#define D3D12DDI_BARRIER_SYNC_INPUT_ASSEMBLER GPUPV_SYNC_INPUT_ASSEMBLER
#define D3D12DDI_BARRIER_SYNC_INDEX_INPUT GPUPV_SYNC_INDEX_INPUT
#define D3D12DDI_BARRIER_SYNC_VERTEX_SHADING GPUPV_SYNC_VERTEX_SHADING
#define D3D12DDI_BARRIER_SYNC_PIXEL_SHADING GPUPV_SYNC_PIXEL_SHADING
#define D3D12DDI_BARRIER_SYNC_DEPTH_STENCIL GPUPV_SYNC_DEPTH_STENCIL
#define D3D12DDI_BARRIER_SYNC_RENDER_TARGET GPUPV_SYNC_RENDER_TARGET
#define D3D12DDI_BARRIER_SYNC_COMPUTE_SHADING GPUPV_SYNC_COMPUTE_SHADING
#define D3D12DDI_BARRIER_SYNC_RAYTRACING GPUPV_SYNC_RAYTRACING
#define D3D12DDI_BARRIER_SYNC_COPY GPUPV_SYNC_COPY
#define D3D12DDI_BARRIER_SYNC_RESOLVE GPUPV_SYNC_RESOLVE
#define D3D12DDI_BARRIER_SYNC_EXECUTE_INDIRECT GPUPV_SYNC_EXECUTE_INDIRECT
#define D3D12DDI_BARRIER_SYNC_PREDICATION GPUPV_SYNC_PREDICATION
#define D3D12DDI_BARRIER_SYNC_ALL_SHADING GPUPV_SYNC_ALL_SHADING
#define D3D12DDI_BARRIER_SYNC_NON_PIXEL_SHADING GPUPV_SYNC_NON_PIXEL_SHADING
#define D3D12DDI_BARRIER_SYNC_EMIT_RAYTRACING_ACCELERATION_STRUCTURE_POSTBUILD_INFO GPUPV_SYNC_EMIT_RTAS_POSTBUILD_INFO
#define D3D12DDI_BARRIER_SYNC_CLEAR_UNORDERED_ACCESS_VIEW GPUPV_SYNC_CLEAR_UNORDERED_ACCESS_VIEW
#define D3D12DDI_BARRIER_SYNC_VIDEO_DECODE GPUPV_SYNC_VIDEO_DECODE
#define D3D12DDI_BARRIER_SYNC_VIDEO_PROCESS GPUPV_SYNC_VIDEO_PROCESS
#define D3D12DDI_BARRIER_SYNC_VIDEO_ENCODE GPUPV_SYNC_VIDEO_ENCODE
#define D3D12DDI_BARRIER_SYNC_BUILD_RAYTRACING_ACCELERATION_STRUCTURE GPUPV_SYNC_BUILD_RTAS
#define D3D12DDI_BARRIER_SYNC_COPY_RAYTRACING_ACCELERATION_STRUCTURE GPUPV_SYNC_COPY_RTAS
#define D3D12DDI_BARRIER_SYNC_SPLIT GPUPV_SYNC_SPLIT
#endif

/* How memory is accessed. A use of a command has one of them. */
#define GPUPV_ACCESS_COMMON 0u
#define GPUPV_ACCESS_VERTEX_BUFFER       0x1u
#define GPUPV_ACCESS_CONSTANT_BUFFER     0x2u
#define GPUPV_ACCESS_INDEX_BUFFER        0x4u
#define GPUPV_ACCESS_RENDER_TARGET       0x8u
#define GPUPV_ACCESS_UNORDERED_ACCESS    0x10u
#define GPUPV_ACCESS_DEPTH_STENCIL_WRITE 0x20u
#define GPUPV_ACCESS_DEPTH_STENCIL_READ  0x40u
#define GPUPV_ACCESS_SHADER_RESOURCE     0x80u
#define GPUPV_ACCESS_STREAM_OUTPUT       0x100u
#define GPUPV_ACCESS_INDIRECT_ARGUMENT   0x200u
#define GPUPV_ACCESS_COPY_DEST           0x400u
#define GPUPV_ACCESS_COPY_SOURCE         0x800u
#define GPUPV_ACCESS_RESOLVE_DEST        0x1000u
#define GPUPV_ACCESS_RESOLVE_SOURCE      0x2000u
#define GPUPV_ACCESS_RTAS_READ           0x4000u
#define GPUPV_ACCESS_RTAS_WRITE          0x8000u
#define GPUPV_ACCESS_SHADING_RATE_SOURCE 0x10000u
#define GPUPV_ACCESS_VIDEO_DECODE_READ   0x20000u
#define GPUPV_ACCESS_VIDEO_DECODE_WRITE  0x40000u
#define GPUPV_ACCESS_VIDEO_PROCESS_READ  0x80000u
#define GPUPV_ACCESS_VIDEO_PROCESS_WRITE 0x100000u
#define GPUPV_ACCESS_VIDEO_ENCODE_READ   0x200000u
#define GPUPV_ACCESS_VIDEO_ENCODE_WRITE  0x400000u
#define GPUPV_ACCESS_GLOBAL              0x40000000u
#define GPUPV_ACCESS_NO_ACCESS           0x80000000u
#define GPUPV_ACCESS_PREDICATION GPUPV_ACCESS_INDIRECT_ARGUMENT

/* How the bytes of a texture are arranged. */
#define GPUPV_LAYOUT_COMMON                                             0x0u
#define GPUPV_LAYOUT_GENERIC_READ                                       0x1u
#define GPUPV_LAYOUT_RENDER_TARGET                                      0x2u
#define GPUPV_LAYOUT_UNORDERED_ACCESS                                   0x3u
#define GPUPV_LAYOUT_DEPTH_STENCIL_WRITE                                0x4u
#define GPUPV_LAYOUT_DEPTH_STENCIL_READ                                 0x5u
#define GPUPV_LAYOUT_SHADER_RESOURCE                                    0x6u
#define GPUPV_LAYOUT_COPY_SOURCE                                        0x7u
#define GPUPV_LAYOUT_COPY_DEST                                          0x8u
#define GPUPV_LAYOUT_RESOLVE_SOURCE                                     0x9u
#define GPUPV_LAYOUT_RESOLVE_DEST                                       0xau
#define GPUPV_LAYOUT_SHADING_RATE_SOURCE                                0xbu
#define GPUPV_LAYOUT_VIDEO_DECODE_READ                                  0xcu
#define GPUPV_LAYOUT_VIDEO_DECODE_WRITE                                 0xdu
#define GPUPV_LAYOUT_VIDEO_PROCESS_READ                                 0xeu
#define GPUPV_LAYOUT_VIDEO_PROCESS_WRITE                                0xfu
#define GPUPV_LAYOUT_VIDEO_ENCODE_READ                                  0x10u
#define GPUPV_LAYOUT_VIDEO_ENCODE_WRITE                                 0x11u
#define GPUPV_LAYOUT_DIRECT_QUEUE_COMMON                                0x12u
#define GPUPV_LAYOUT_DIRECT_QUEUE_GENERIC_READ                          0x13u
#define GPUPV_LAYOUT_DIRECT_QUEUE_UNORDERED_ACCESS                      0x14u
#define GPUPV_LAYOUT_DIRECT_QUEUE_SHADER_RESOURCE                       0x15u
#define GPUPV_LAYOUT_DIRECT_QUEUE_COPY_SOURCE                           0x16u
#define GPUPV_LAYOUT_DIRECT_QUEUE_COPY_DEST                             0x17u
#define GPUPV_LAYOUT_COMPUTE_QUEUE_COMMON                               0x18u
#define GPUPV_LAYOUT_COMPUTE_QUEUE_GENERIC_READ                         0x19u
#define GPUPV_LAYOUT_COMPUTE_QUEUE_UNORDERED_ACCESS                     0x1au
#define GPUPV_LAYOUT_COMPUTE_QUEUE_SHADER_RESOURCE                      0x1bu
#define GPUPV_LAYOUT_COMPUTE_QUEUE_COPY_SOURCE                          0x1cu
#define GPUPV_LAYOUT_COMPUTE_QUEUE_COPY_DEST                            0x1du
#define GPUPV_LAYOUT_VIDEO_QUEUE_COMMON                                 0x1eu
#define GPUPV_LAYOUT_DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE 0x1fu
#define GPUPV_LAYOUT_LEGACY_COPY_SOURCE                                 0x80000000u
#define GPUPV_LAYOUT_LEGACY_COPY_DEST                                   0x80000001u
#define GPUPV_LAYOUT_LEGACY_SHADER_RESOURCE                             0x80000002u
#define GPUPV_LAYOUT_LEGACY_PIXEL_SHADER_RESOURCE                       0x80000003u
#define GPUPV_LAYOUT_UNDEFINED                                          0xffffffffu
#define GPUPV_LAYOUT_PRESENT GPUPV_LAYOUT_COMMON

/* D3D12_RESOURCE_STATES, for legacy barriers. */
#define GPUPV_STATE_COMMON 0u
#define GPUPV_STATE_VERTEX_AND_CONSTANT_BUFFER        0x1u
#define GPUPV_STATE_INDEX_BUFFER                      0x2u
#define GPUPV_STATE_RENDER_TARGET                     0x4u
#define GPUPV_STATE_UNORDERED_ACCESS                  0x8u
#define GPUPV_STATE_DEPTH_WRITE                       0x10u
#define GPUPV_STATE_DEPTH_READ                        0x20u
#define GPUPV_STATE_NON_PIXEL_SHADER_RESOURCE         0x40u
#define GPUPV_STATE_PIXEL_SHADER_RESOURCE             0x80u
#define GPUPV_STATE_STREAM_OUT                        0x100u
#define GPUPV_STATE_INDIRECT_ARGUMENT                 0x200u
#define GPUPV_STATE_COPY_DEST                         0x400u
#define GPUPV_STATE_COPY_SOURCE                       0x800u
#define GPUPV_STATE_RESOLVE_DEST                      0x1000u
#define GPUPV_STATE_RESOLVE_SOURCE                    0x2000u
#define GPUPV_STATE_VIDEO_DECODE_READ                 0x10000u
#define GPUPV_STATE_VIDEO_DECODE_WRITE                0x20000u
#define GPUPV_STATE_VIDEO_PROCESS_READ                0x40000u
#define GPUPV_STATE_VIDEO_PROCESS_WRITE               0x80000u
#define GPUPV_STATE_VIDEO_ENCODE_READ                 0x200000u
#define GPUPV_STATE_RAYTRACING_ACCELERATION_STRUCTURE 0x400000u
#define GPUPV_STATE_VIDEO_ENCODE_WRITE                0x800000u
#define GPUPV_STATE_SHADING_RATE_SOURCE               0x1000000u
#define GPUPV_STATE_PRESENT GPUPV_STATE_COMMON
#define GPUPV_STATE_PREDICATION GPUPV_STATE_INDIRECT_ARGUMENT

/* D3D12_COMMAND_LIST_TYPE; a bundle is a direct list with a flag. */
#define GPUPV_QUEUE_DIRECT        0u
#define GPUPV_QUEUE_COMPUTE       2u
#define GPUPV_QUEUE_COPY          3u
#define GPUPV_QUEUE_VIDEO_DECODE  4u
#define GPUPV_QUEUE_VIDEO_PROCESS 5u
#define GPUPV_QUEUE_VIDEO_ENCODE  6u
#define GPUPV_LIST_BUNDLE 0x1u

/* The kind of a command. */
#define GPUPV_WORK_DRAW                     0u
#define GPUPV_WORK_DRAW_INDEXED             1u
#define GPUPV_WORK_DISPATCH                 2u
#define GPUPV_WORK_DISPATCH_RAYS            3u
#define GPUPV_WORK_COPY                     4u
#define GPUPV_WORK_RESOLVE                  5u
#define GPUPV_WORK_CLEAR_RENDER_TARGET      6u
#define GPUPV_WORK_CLEAR_DEPTH_STENCIL      7u
#define GPUPV_WORK_CLEAR_UNORDERED_ACCESS   8u
#define GPUPV_WORK_EXECUTE_INDIRECT         9u
#define GPUPV_WORK_BUILD_RTAS               10u
#define GPUPV_WORK_COPY_RTAS                11u
#define GPUPV_WORK_EMIT_RTAS_POSTBUILD_INFO 12u
#define GPUPV_WORK_VIDEO_DECODE             13u
#define GPUPV_WORK_VIDEO_PROCESS            14u
#define GPUPV_WORK_VIDEO_ENCODE             15u
#define GPUPV_WORK_PRESENT                  16u
#define GPUPV_WORK_SET_GRAPHICS_ROOT        17u
#define GPUPV_WORK_SET_COMPUTE_ROOT         18u
#define GPUPV_WORK_DISCARD                  19u
#define GPUPV_WORK_DISPATCH_MESH            20u

/* The data operation of a command: see docs/COMMANDS.md. */
#define GPUPV_KERNEL_NONE 0u
#define GPUPV_KERNEL_COPY 1u
#define GPUPV_KERNEL_FILL 2u
#define GPUPV_KERNEL_ADD  3u
#define GPUPV_KERNEL_XOR  4u
#define GPUPV_KERNEL_SUM  5u

/* Flags of a use. */
#define GPUPV_USE_ONLY_READS 0x1u /* an unordered access that does not write */
#define GPUPV_USE_VERTEX_STAGE 0x2u
#define GPUPV_USE_PIXEL_STAGE 0x4u
#define GPUPV_USE_COMPUTE_STAGE 0x8u
#define GPUPV_USE_HULL_STAGE 0x10u
#define GPUPV_USE_DOMAIN_STAGE 0x20u
#define GPUPV_USE_GEOMETRY_STAGE 0x40u
#define GPUPV_USE_AMPLIFICATION_STAGE 0x80u /* of DispatchMesh, like the next one */
#define GPUPV_USE_MESH_STAGE 0x100u

#define GPUPV_TEXTURE_DISCARD 0x1u

#define GPUPV_RANGED_ATOMIC_COPY 0x1u
#define GPUPV_RANGED_ACQUIRE 0x2u
#define GPUPV_RANGED_RELEASE 0x4u

#define GPUPV_LEGACY_BEGIN_ONLY 0x1u
#define GPUPV_LEGACY_END_ONLY 0x2u

#define GPUPV_LEGACY_TRANSITION 0u
#define GPUPV_LEGACY_ALIASING 1u
#define GPUPV_LEGACY_UNORDERED_ACCESS 2u

#define GPUPV_GROUP_GLOBAL 0u
#define GPUPV_GROUP_TEXTURE 1u
#define GPUPV_GROUP_BUFFER 2u
#define GPUPV_GROUP_RANGED 3u

#define GPUPV_KIND_BUFFER 1u
#define GPUPV_KIND_TEXTURE1D 2u
#define GPUPV_KIND_TEXTURE2D 3u
#define GPUPV_KIND_TEXTURE3D 4u

#define GPUPV_HEAP_DEFAULT 1u
#define GPUPV_HEAP_UPLOAD 2u
#define GPUPV_HEAP_READBACK 3u

/* D3D12_RESOURCE_FLAGS. */
#define GPUPV_RESOURCE_ALLOW_RENDER_TARGET               0x1u
#define GPUPV_RESOURCE_ALLOW_DEPTH_STENCIL               0x2u
#define GPUPV_RESOURCE_ALLOW_UNORDERED_ACCESS            0x4u
#define GPUPV_RESOURCE_DENY_SHADER_RESOURCE              0x8u
#define GPUPV_RESOURCE_ALLOW_CROSS_ADAPTER               0x10u
#define GPUPV_RESOURCE_ALLOW_SIMULTANEOUS_ACCESS         0x20u
#define GPUPV_RESOURCE_VIDEO_DECODE_REFERENCE_ONLY       0x40u
#define GPUPV_RESOURCE_VIDEO_ENCODE_REFERENCE_ONLY       0x80u
#define GPUPV_RESOURCE_RAYTRACING_ACCELERATION_STRUCTURE 0x100u

#define GPUPV_ALL_SUBRESOURCES 0xffffffffu
#define GPUPV_WHOLE UINT64_MAX
#define GPUPV_LIST_NAME_BYTES_MAX 256u

/* One range that a command accesses. */
struct gpupv_use {
    uint32_t resource; /* the resource's number, not 0 */
    uint32_t access;   /* one GPUPV_ACCESS_.. */
    uint32_t first_subresource;
    uint32_t count;  /* or GPUPV_ALL_SUBRESOURCES */
    uint64_t offset; /* in the buffer or subresource; 0 if there are several */
    uint64_t bytes;  /* or GPUPV_WHOLE */
    uint32_t flags;  /* GPUPV_USE_.. */
    uint32_t reserved;
};

struct gpupv_global_barrier {
    uint32_t sync_before;
    uint32_t sync_after;
    uint32_t access_before;
    uint32_t access_after;
};

/* If mips is 0, first_mip is a flat index or GPUPV_ALL_SUBRESOURCES, and the other fields are ignored. */
struct gpupv_subresources {
    uint32_t first_mip;
    uint32_t mips;
    uint32_t first_slice;
    uint32_t slices;
    uint32_t first_plane;
    uint32_t planes;
};

struct gpupv_texture_barrier {
    struct gpupv_global_barrier barrier;
    uint32_t layout_before;
    uint32_t layout_after;
    uint32_t resource;
    uint32_t flags; /* GPUPV_TEXTURE_.. */
    struct gpupv_subresources subresources;
};

struct gpupv_buffer_barrier {
    struct gpupv_global_barrier barrier;
    uint32_t resource;
    uint32_t reserved;
    uint64_t offset; /* 0 */
    uint64_t bytes;  /* UINT64_MAX, or all of the buffer */
};

struct gpupv_ranged_barrier {
    struct gpupv_global_barrier barrier;
    uint32_t resource; /* 0: the whole cache */
    uint32_t flags;    /* GPUPV_RANGED_.. */
    uint64_t offset;
    uint64_t bytes;
};

/* Barriers of one type; `barriers` points to `count` structs of it. */
struct gpupv_barrier_group {
    uint32_t type;
    uint32_t count;
    const void *barriers;
};

/* Fields that the type does not use are 0. */
struct gpupv_legacy_barrier {
    uint32_t type;
    uint32_t flags;       /* GPUPV_LEGACY_BEGIN_ONLY, GPUPV_LEGACY_END_ONLY */
    uint32_t resource;    /* of aliasing: the resource before */
    uint32_t subresource; /* of aliasing: the resource after */
    uint32_t state_before;
    uint32_t state_after;
};

struct gpupv_fence_value {
    uint64_t gpu_address;
    uint64_t value;
};

/* Description of a resource. A texture's subresources are contiguous, ordered by their flat index (mip, then slice,
 * then plane), with no padding anywhere. */
struct gpupv_resource_desc {
    uint32_t kind;
    uint32_t heap;
    uint32_t flags;
    uint32_t initial_layout; /* GPUPV_LAYOUT_UNDEFINED for a buffer */
    uint64_t gpu_address;
    uint64_t bytes;
    uint32_t width; /* 1 for a buffer, like all below */
    uint32_t height;
    uint32_t depth;
    uint32_t mips;
    uint32_t array_size;
    uint32_t planes;
    uint32_t texel_bytes;
    uint32_t initial_state; /* GPUPV_STATE_COMMON, or of a resource created in a legacy state */
    char name[32];          /* UTF-8, zero-padded */
};

GPUPV_CMD_ASSERT(sizeof(struct gpupv_use) == 40, "as it travels");
GPUPV_CMD_ASSERT(sizeof(struct gpupv_global_barrier) == 16, "as it travels");
GPUPV_CMD_ASSERT(sizeof(struct gpupv_texture_barrier) == 56, "as it travels");
GPUPV_CMD_ASSERT(sizeof(struct gpupv_buffer_barrier) == 40, "as it travels");
GPUPV_CMD_ASSERT(sizeof(struct gpupv_ranged_barrier) == 40, "as it travels");
GPUPV_CMD_ASSERT(sizeof(struct gpupv_legacy_barrier) == 24, "as it travels");
GPUPV_CMD_ASSERT(sizeof(struct gpupv_fence_value) == 16, "as it travels");
GPUPV_CMD_ASSERT(sizeof(struct gpupv_resource_desc) == 96, "as it travels");

/* A command buffer under construction in the caller's memory. */
struct gpupv_cmd {
    unsigned char *memory;
    uint32_t capacity;
    uint32_t bytes;
    int full; /* something did not fit, or was invalid */
};

static inline void gpupv_cmd_put(struct gpupv_cmd *cmd, const void *data, size_t bytes)
{
    if (bytes > 0)
        memcpy(cmd->memory + cmd->bytes, data, bytes);
    cmd->bytes += (uint32_t)bytes;
}

static inline void gpupv_cmd_put2(struct gpupv_cmd *cmd, uint32_t first, uint32_t second)
{
    const uint32_t words[2] = {first, second};
    gpupv_cmd_put(cmd, words, sizeof words);
}

/* Opens a packet of this many bytes, its 8-byte header included; 0 if there is no room, also for all later packets. */
static inline int gpupv_cmd_packet(struct gpupv_cmd *cmd, uint32_t opcode, uint64_t bytes)
{
    if (cmd->full || bytes > cmd->capacity - cmd->bytes) {
        cmd->full = 1;
        return 0;
    }
    gpupv_cmd_put2(cmd, opcode, (uint32_t)bytes);
    return 1;
}

/* Begins a buffer in `bytes` bytes at `memory`, of any alignment. */
static inline void gpupv_cmd_begin(struct gpupv_cmd *cmd, void *memory, size_t bytes)
{
    cmd->memory = (unsigned char *)memory;
    cmd->capacity = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
    cmd->bytes = 0;
    cmd->full = cmd->capacity < 8;
    if (!cmd->full)
        gpupv_cmd_put2(cmd, GPUPV_MAGIC, 8);
}

/* Writes the length. Returns the number of bytes to submit, or 0 if something did not fit. */
static inline uint32_t gpupv_cmd_end(struct gpupv_cmd *cmd)
{
    if (cmd->full)
        return 0;
    memcpy(cmd->memory + 4, &cmd->bytes, sizeof cmd->bytes);
    return cmd->bytes;
}

static inline void gpupv_cmd_longs(struct gpupv_cmd *cmd, uint32_t opcode, const uint64_t *operands, uint32_t count)
{
    if (gpupv_cmd_packet(cmd, opcode, 8 + (uint64_t)count * 8))
        gpupv_cmd_put(cmd, operands, (size_t)count * 8);
}

static inline void gpupv_cmd_fence_write(struct gpupv_cmd *cmd, uint64_t gpu_address, uint64_t value)
{
    const uint64_t operands[2] = {gpu_address, value};
    gpupv_cmd_longs(cmd, GPUPV_OP_FENCE_WRITE, operands, 2);
}

static inline void gpupv_cmd_fence_wait(struct gpupv_cmd *cmd, uint64_t gpu_address, uint64_t value)
{
    const uint64_t operands[2] = {gpu_address, value};
    gpupv_cmd_longs(cmd, GPUPV_OP_FENCE_WAIT, operands, 2);
}

/* Copies the value of the fence at `gpu_address`, 8 bytes, to `destination`, which is a multiple of 8. */
static inline void gpupv_cmd_fence_read(struct gpupv_cmd *cmd, uint64_t gpu_address, uint64_t destination)
{
    const uint64_t operands[2] = {gpu_address, destination};
    gpupv_cmd_longs(cmd, GPUPV_OP_FENCE_READ, operands, 2);
}

static inline void gpupv_cmd_marker_in(struct gpupv_cmd *cmd, uint64_t gpu_address, uint64_t value)
{
    const uint64_t operands[2] = {gpu_address, value};
    gpupv_cmd_longs(cmd, GPUPV_OP_MARKER_IN, operands, 2);
}

static inline void gpupv_cmd_marker_out(struct gpupv_cmd *cmd, uint64_t gpu_address, uint64_t value)
{
    const uint64_t operands[2] = {gpu_address, value};
    gpupv_cmd_longs(cmd, GPUPV_OP_MARKER_OUT, operands, 2);
}

static inline void gpupv_cmd_busy(struct gpupv_cmd *cmd, uint64_t duration_ns)
{
    gpupv_cmd_longs(cmd, GPUPV_OP_BUSY, &duration_ns, 1);
}

static inline void gpupv_cmd_hang(struct gpupv_cmd *cmd)
{
    gpupv_cmd_longs(cmd, GPUPV_OP_HANG, NULL, 0);
}

/* Stores the engine's time, 8 bytes, when all earlier packets are complete. */
static inline void gpupv_cmd_timestamp(struct gpupv_cmd *cmd, uint64_t gpu_address)
{
    gpupv_cmd_longs(cmd, GPUPV_OP_TIMESTAMP, &gpu_address, 1);
}

/* Begins a command list; `name` is UTF-8, for messages, at most GPUPV_LIST_NAME_BYTES_MAX bytes, and may be "". */
static inline void gpupv_cmd_begin_list(struct gpupv_cmd *cmd, uint32_t queue, uint32_t flags, const char *name)
{
    static const char zeros[8] = {0};
    size_t length = strlen(name);
    size_t padding = (8 - length % 8) % 8;
    if (length > GPUPV_LIST_NAME_BYTES_MAX) {
        cmd->full = 1;
        return;
    }
    if (!gpupv_cmd_packet(cmd, GPUPV_OP_BEGIN_LIST, 24 + length + padding))
        return;
    gpupv_cmd_put2(cmd, queue, flags);
    gpupv_cmd_put2(cmd, (uint32_t)length, 0);
    gpupv_cmd_put(cmd, name, length);
    gpupv_cmd_put(cmd, zeros, padding);
}

/* All of a resource. */
static inline struct gpupv_use gpupv_use_whole(uint32_t resource, uint32_t access)
{
    struct gpupv_use use = {resource, access, 0, GPUPV_ALL_SUBRESOURCES, 0, GPUPV_WHOLE, 0, 0};
    return use;
}

/* Bytes of a buffer. */
static inline struct gpupv_use gpupv_use_range(uint32_t resource, uint32_t access, uint64_t offset, uint64_t bytes)
{
    struct gpupv_use use = {resource, access, 0, 1, offset, bytes, 0, 0};
    return use;
}

/* One subresource. */
static inline struct gpupv_use gpupv_use_subresource(uint32_t resource, uint32_t access, uint32_t subresource)
{
    struct gpupv_use use = {resource, access, subresource, 1, 0, GPUPV_WHOLE, 0, 0};
    return use;
}

/* A command: GPUPV_WORK_.., GPUPV_KERNEL_.., how long it takes, what it uses. */
static inline void gpupv_cmd_work(struct gpupv_cmd *cmd, uint32_t kind, uint32_t kernel, uint32_t operand,
                                  uint64_t duration_ns, const struct gpupv_use *uses, uint32_t count)
{
    if (!gpupv_cmd_packet(cmd, GPUPV_OP_WORK, 32 + (uint64_t)count * sizeof *uses))
        return;
    gpupv_cmd_put2(cmd, kind, kernel);
    gpupv_cmd_put2(cmd, operand, count);
    gpupv_cmd_put(cmd, &duration_ns, sizeof duration_ns);
    gpupv_cmd_put(cmd, uses, (size_t)count * sizeof *uses);
}

/* Bytes of a barrier of a type; 0 for an unknown type, whose barriers are left out. */
static inline uint32_t gpupv_barrier_bytes(uint32_t type)
{
    switch (type) {
    case GPUPV_GROUP_GLOBAL:
        return sizeof(struct gpupv_global_barrier);
    case GPUPV_GROUP_TEXTURE:
        return sizeof(struct gpupv_texture_barrier);
    case GPUPV_GROUP_BUFFER:
        return sizeof(struct gpupv_buffer_barrier);
    case GPUPV_GROUP_RANGED:
        return sizeof(struct gpupv_ranged_barrier);
    default:
        return 0;
    }
}

/* At most 2^32 groups of 2^32 barriers of 56 bytes: no sum overflows before it exceeds the buffer. */
static inline uint64_t gpupv_groups_bytes(const struct gpupv_cmd *cmd, const struct gpupv_barrier_group *groups,
                                          uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t at = 0; at < count && bytes <= cmd->capacity; at++)
        bytes += 8 + (uint64_t)groups[at].count * gpupv_barrier_bytes(groups[at].type);
    return bytes;
}

static inline void gpupv_cmd_groups(struct gpupv_cmd *cmd, const struct gpupv_barrier_group *groups, uint32_t count)
{
    for (uint32_t at = 0; at < count; at++) {
        gpupv_cmd_put2(cmd, groups[at].type, groups[at].count);
        gpupv_cmd_put(cmd, groups[at].barriers, (size_t)groups[at].count * gpupv_barrier_bytes(groups[at].type));
    }
}

/* Barrier(groups). */
static inline void gpupv_cmd_barrier(struct gpupv_cmd *cmd, const struct gpupv_barrier_group *groups, uint32_t count)
{
    if (!gpupv_cmd_packet(cmd, GPUPV_OP_BARRIER, 16 + gpupv_groups_bytes(cmd, groups, count)))
        return;
    gpupv_cmd_put2(cmd, count, 0);
    gpupv_cmd_groups(cmd, groups, count);
}

/* Barrier of one group of one texture barrier. */
static inline void gpupv_cmd_texture_barrier(struct gpupv_cmd *cmd, const struct gpupv_texture_barrier *barrier)
{
    const struct gpupv_barrier_group group = {GPUPV_GROUP_TEXTURE, 1, barrier};
    gpupv_cmd_barrier(cmd, &group, 1);
}

/* Barrier of one group of one buffer barrier. */
static inline void gpupv_cmd_buffer_barrier(struct gpupv_cmd *cmd, const struct gpupv_buffer_barrier *barrier)
{
    const struct gpupv_barrier_group group = {GPUPV_GROUP_BUFFER, 1, barrier};
    gpupv_cmd_barrier(cmd, &group, 1);
}

/* ResourceBarrier. */
static inline void gpupv_cmd_legacy_barrier(struct gpupv_cmd *cmd, const struct gpupv_legacy_barrier *barriers,
                                            uint32_t count)
{
    if (!gpupv_cmd_packet(cmd, GPUPV_OP_LEGACY_BARRIER, 16 + (uint64_t)count * sizeof *barriers))
        return;
    gpupv_cmd_put2(cmd, count, 0);
    gpupv_cmd_put(cmd, barriers, (size_t)count * sizeof *barriers);
}

/* SignalBarrier(groups, fence, value): runs the barriers, then signals. */
static inline void gpupv_cmd_signal_barrier(struct gpupv_cmd *cmd, uint64_t gpu_address, uint64_t value,
                                            const struct gpupv_barrier_group *groups, uint32_t count)
{
    if (!gpupv_cmd_packet(cmd, GPUPV_OP_SIGNAL_BARRIER, 32 + gpupv_groups_bytes(cmd, groups, count)))
        return;
    gpupv_cmd_put(cmd, &gpu_address, sizeof gpu_address);
    gpupv_cmd_put(cmd, &value, sizeof value);
    gpupv_cmd_put2(cmd, count, 0);
    gpupv_cmd_groups(cmd, groups, count);
}

/* WaitBarrier(groups, fences, values): waits for all, then runs the barriers. */
static inline void gpupv_cmd_wait_barrier(struct gpupv_cmd *cmd, const struct gpupv_fence_value *fences,
                                          uint32_t fence_count, const struct gpupv_barrier_group *groups,
                                          uint32_t count)
{
    uint64_t waits = (uint64_t)fence_count * sizeof *fences;
    if (!gpupv_cmd_packet(cmd, GPUPV_OP_WAIT_BARRIER, 16 + waits + gpupv_groups_bytes(cmd, groups, count)))
        return;
    gpupv_cmd_put2(cmd, fence_count, count);
    gpupv_cmd_put(cmd, fences, (size_t)waits);
    gpupv_cmd_groups(cmd, groups, count);
}

/* AssertResourceAccess: checked, never executed. */
static inline void gpupv_cmd_assert_resource_access(struct gpupv_cmd *cmd, uint32_t resource, uint32_t subresource,
                                                    uint32_t access)
{
    if (!gpupv_cmd_packet(cmd, GPUPV_OP_ASSERT_RESOURCE_ACCESS, 24))
        return;
    gpupv_cmd_put2(cmd, resource, subresource);
    gpupv_cmd_put2(cmd, access, 0);
}

/* AssertTextureLayout. */
static inline void gpupv_cmd_assert_texture_layout(struct gpupv_cmd *cmd, uint32_t resource, uint32_t subresource,
                                                   uint32_t layout)
{
    if (!gpupv_cmd_packet(cmd, GPUPV_OP_ASSERT_TEXTURE_LAYOUT, 24))
        return;
    gpupv_cmd_put2(cmd, resource, subresource);
    gpupv_cmd_put2(cmd, layout, 0);
}

#ifdef __cplusplus
}
#endif

#endif
