/* Private driver data of an allocation in the format of gpupv's simulated KMD: the contents of pPrivateDriverData of a
 * D3DDDI_ALLOCATIONINFO. The driver writes its answer back into the same bytes. Little-endian.
 *
 * Data that do not begin with the magic are another driver's: the simulated KMD accepts them unread, leaves them as they
 * are, and the allocation has the size of what is mapped of it.
 */
#ifndef GPUPV_ALLOCATION_H
#define GPUPV_ALLOCATION_H

#include <stdint.h>

#define GPUPV_ALLOCATION_MAGIC 0x4c415047u /* "GPAL" */
#define GPUPV_ALLOCATION_VERSION 1u

#define GPUPV_SEGMENT_ANY 0u
#define GPUPV_SEGMENT_LOCAL 1u
#define GPUPV_SEGMENT_NON_LOCAL 2u

#define GPUPV_ALLOCATION_CPU_VISIBLE 0x1u

/* STATUS_INVALID_PARAMETER for another length or version, a size of 0, an alignment that is not a power of two, and for
 * unknown segments and flags. With pSystemMem the segment is NON_LOCAL and the allocation visible to the CPU; without, it is
 * memory of the device, and ANY is NON_LOCAL. Memory that is not CPU_VISIBLE cannot be locked. */
struct gpupv_allocation {
    uint32_t magic;
    uint32_t version;
    uint64_t size;      /* in bytes; out: rounded up to whole units of the alignment */
    uint32_t alignment; /* 0 or a power of two; out: at least 4096 */
    uint32_t segment;   /* GPUPV_SEGMENT_..; out: never ANY */
    uint32_t flags;     /* GPUPV_ALLOCATION_.. */
    uint32_t width;     /* width, height and D3DDDIFORMAT of a picture; 0 for a buffer */
    uint32_t height;
    uint32_t format;
    uint64_t number;    /* out: the driver's number of the allocation */
};

#endif
