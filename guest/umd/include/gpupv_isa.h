/* Command buffers of gpupv's simulated engines: the private driver data of
 * D3DKMTSubmitCommand. Little-endian, 8-byte aligned:
 *
 *   offset 0  u32 magic "GPV1", u32 bytes in all
 *          8  packets: u32 opcode, u32 bytes of the packet including these 8, then u64 operands
 *
 * Build one in a struct gpupv_commands: gpupv_begin, then packets, then submit `bytes` bytes of `words`.
 */
#ifndef GPUPV_ISA_H
#define GPUPV_ISA_H

#include <stdint.h>

#define GPUPV_MAGIC 0x31565047u /* "GPV1" */
#define GPUPV_OP_FENCE_WRITE 1u /* u64 GPU address, u64 value: stores a fence value; without a fence there, only a note of the host */
#define GPUPV_OP_BUSY 2u        /* u64 nanoseconds: the engine is busy for that long */
#define GPUPV_OP_HANG 3u        /* the engine never completes it */
#define GPUPV_OP_FENCE_WAIT 4u  /* u64 GPU address, u64 value: waits in hardware for a native fence */
#define GPUPV_OP_MARKER_IN 5u   /* u64 GPU address, u64 value: stored when all packets before it have started */
#define GPUPV_OP_MARKER_OUT 6u  /* u64 GPU address, u64 value: stored when all packets before it are complete */
#define GPUPV_OP_FENCE_READ 7u  /* u64 GPU address of a fence, u64 GPU address: stores its value, 8 bytes, there */

/* Room for 64 KiB, far more than a test needs; `full` is set on overflow. */
#define GPUPV_COMMAND_WORDS 8192u

struct gpupv_commands {
    uint64_t words[GPUPV_COMMAND_WORDS];
    uint32_t bytes;
    int full;
};

static inline uint64_t gpupv_pair(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

static inline void gpupv_begin(struct gpupv_commands *commands)
{
    commands->words[0] = gpupv_pair(GPUPV_MAGIC, 8);
    commands->bytes = 8;
    commands->full = 0;
}

/* Whether there are no packets. */
static inline int gpupv_is_empty(const struct gpupv_commands *commands)
{
    return commands->bytes <= 8;
}

static inline void gpupv_packet(struct gpupv_commands *commands, uint32_t opcode, uint32_t operands,
                                uint64_t first, uint64_t second)
{
    uint32_t at = commands->bytes / 8;
    if (at + 1 + operands > GPUPV_COMMAND_WORDS) {
        commands->full = 1;
        return;
    }
    commands->words[at] = gpupv_pair(opcode, 8 + 8 * operands);
    if (operands > 0)
        commands->words[at + 1] = first;
    if (operands > 1)
        commands->words[at + 2] = second;
    commands->bytes += 8 + 8 * operands;
    commands->words[0] = gpupv_pair(GPUPV_MAGIC, commands->bytes);
}

static inline void gpupv_fence_write(struct gpupv_commands *commands, uint64_t gpu_address, uint64_t value)
{
    gpupv_packet(commands, GPUPV_OP_FENCE_WRITE, 2, gpu_address, value);
}

static inline void gpupv_fence_wait(struct gpupv_commands *commands, uint64_t gpu_address, uint64_t value)
{
    gpupv_packet(commands, GPUPV_OP_FENCE_WAIT, 2, gpu_address, value);
}

static inline void gpupv_marker_in(struct gpupv_commands *commands, uint64_t gpu_address, uint64_t value)
{
    gpupv_packet(commands, GPUPV_OP_MARKER_IN, 2, gpu_address, value);
}

static inline void gpupv_marker_out(struct gpupv_commands *commands, uint64_t gpu_address, uint64_t value)
{
    gpupv_packet(commands, GPUPV_OP_MARKER_OUT, 2, gpu_address, value);
}

static inline void gpupv_busy(struct gpupv_commands *commands, uint64_t duration_ns)
{
    gpupv_packet(commands, GPUPV_OP_BUSY, 1, duration_ns, 0);
}

static inline void gpupv_hang(struct gpupv_commands *commands)
{
    gpupv_packet(commands, GPUPV_OP_HANG, 0, 0, 0);
}

#endif
