//! The basic types of all structs, and the lengths of arrays.

use super::*;

c_abi! {
    section words("words") {}

    alias NTSTATUS(i32, "int32_t") {}
    alias BOOL(i32, "int32_t") {}
    alias UINT(u32, "uint32_t") {}
    alias INT(i32, "int32_t") {}
    alias ULONG(u32, "uint32_t") {}
    alias DWORD(u32, "uint32_t") {}
    alias UINT64(u64, "uint64_t") {}
    alias ULONGLONG(u64, "uint64_t") {}
    alias HANDLE(u64, "void *") {}
    alias WCHAR(u32, "wchar_t") {}
    alias D3DKMT_HANDLE(UINT) {}
    alias D3DGPU_VIRTUAL_ADDRESS(UINT64) {}
    alias USHORT(u16, "uint16_t") {}
    alias BYTE(u8, "uint8_t") {}
    alias SIZE_T(u64, "size_t") {}
    alias LARGE_INTEGER(i64, "union _LARGE_INTEGER { struct { DWORD LowPart; INT HighPart; }; int64_t QuadPart; }") {}

    struct LUID(8) {
        0 LowPart: DWORD,
        4 HighPart: INT,
    }

    defines array_lengths(usize) {
        D3DDDI_MAX_OBJECT_WAITED_ON = 32,
        D3DDDI_MAX_OBJECT_SIGNALED = 32,
        D3DDDI_MAX_BROADCAST_CONTEXT = 64,
        D3DDDI_MAX_WRITTEN_PRIMARIES = 16,
    }

    defines sharing(UINT) {
        D3DKMT_MAX_OBJECTS_PER_HANDLE = 3,
        D3DDDI_SYNC_OBJECT_WAIT = 0x1,
        D3DDDI_SYNC_OBJECT_SIGNAL = 0x2,
        D3DDDI_SYNC_OBJECT_ALL_ACCESS = 0x1F0003 ours,
    }
}
