/* Locks of memory of the device, and its usage, for the programs about it. */
#ifndef LOCKS_H
#define LOCKS_H

#include "check.h"

/* Locks an allocation; stores its address in *words. */
static inline NTSTATUS lock(handle_t device, handle_t allocation, uint32_t **words)
{
    D3DKMT_LOCK2 args = {.hDevice = device, .hAllocation = allocation};
    NTSTATUS status = D3DKMTLock2(&args);
    *words = args.pData;
    return status;
}

static inline NTSTATUS unlock(handle_t device, handle_t allocation)
{
    return D3DKMTUnlock2(&(D3DKMT_UNLOCK2){device, allocation});
}

/* Bytes of a segment group that this process uses. */
static inline uint64_t usage(handle_t adapter, UINT segment_group)
{
    D3DKMT_QUERYVIDEOMEMORYINFO args = {.hAdapter = adapter, .MemorySegmentGroup = segment_group};
    EXPECT(D3DKMTQueryVideoMemoryInfo(&args), STATUS_SUCCESS);
    return args.CurrentUsage;
}

#endif
