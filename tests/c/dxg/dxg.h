/* What programs need that make ioctls of /dev/dxg themselves. */
#ifndef DXG_H
#define DXG_H

#include <d3dkmthk.h>

/* The descriptor of the D3DKMT functions of d3dkmt.c. */
extern int dxg_descriptor;

NTSTATUS dxg_status(int error);

struct dxg_share_objects {
    UINT count, reserved;
    const D3DKMT_HANDLE *objects;
    OBJECT_ATTRIBUTES *attributes;
    DWORD access, reserved1;
    HANDLE *nt_handle;
};

enum {
    DXG_CREATE_DEVICE = (int)0xC0404702,
    DXG_ENUM_ADAPTERS2 = (int)0xC0104714,
    DXG_SHARE_OBJECTS = (int)0xC028473F,
};

#endif
