/* Buffers of command lists, for the programs that submit some. */
#ifndef BUFFERS_H
#define BUFFERS_H

#include "check.h"
#include <gpupv_cmd.h>
#include <gpupv_escape.h>

/* A buffer of this memory for command lists; returns its number. */
static inline uint32_t create_buffer_at(handle_t adapter, handle_t device, uint64_t address, uint32_t bytes, uint32_t flags, const char *name)
{
    struct gpupv_resource_desc desc = {.kind = GPUPV_KIND_BUFFER, .gpu_address = address, .bytes = bytes, .heap = GPUPV_HEAP_DEFAULT};
    desc.initial_layout = GPUPV_LAYOUT_UNDEFINED;
    desc.width = desc.height = desc.depth = desc.mips = desc.array_size = desc.planes = desc.texel_bytes = 1;
    desc.flags = flags;
    strncpy(desc.name, name, sizeof desc.name - 1);
    struct gpupv_escape_create_resource create = {.command = GPUPV_ESCAPE_CREATE_RESOURCE};
    memcpy(create.desc, &desc, sizeof desc);
    D3DKMT_ESCAPE escape = {.hAdapter = adapter, .hDevice = device, .Type = D3DKMT_ESCAPE_DRIVERPRIVATE};
    escape.pPrivateDriverData = &create;
    escape.PrivateDriverDataSize = sizeof create;
    EXPECT(D3DKMTEscape(&escape), STATUS_SUCCESS);
    CHECK(create.number != 0, "no number");
    return create.number;
}

#endif
