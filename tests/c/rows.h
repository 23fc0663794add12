/* Helpers of the programs rows_*.c. Each checks a part of the answers observed on Windows (reference
 * windows-observed.md), row by row, with its own inputs. It prints one line a row, "ok W-024 .." or
 * "not ok W-024 ..", and exits with 1 if any row is not ok. */
#ifndef ROWS_H
#define ROWS_H

#include "check.h"

#define OK STATUS_SUCCESS
#define IP STATUS_INVALID_PARAMETER
#define IH STATUS_INVALID_HANDLE
#define AD STATUS_ACCESS_DENIED
#define NF STATUS_OBJECT_NAME_NOT_FOUND
#define TO STATUS_TIMEOUT

/* Value of an output field before a call, to detect whether the call wrote it. */
#define POISON 0x1eadbeefu
/* STANDARD_RIGHTS_READ, _WRITE and _EXECUTE are all READ_CONTROL. */
#define STANDARD_RIGHTS_WRITE 0x00020000u

enum { SHARED = 0x1, NT_SECURITY_SHARING = 0x2 };

static inline void row(const char *name, int good, const char *what)
{
    printf("%s %s %s\n", good ? "ok" : "not ok", name, what);
    failures += !good;
}

static inline void status_row(const char *name, NTSTATUS status, NTSTATUS wanted, const char *what)
{
    row(name, status == wanted, what);
    if (status != wanted)
        printf("# answered %#010x instead of %#010x\n", (unsigned)status, (unsigned)wanted);
}

static inline int is_local(handle_t handle)
{
    return (handle & 0xC0000000) && (handle & 0x3F) == 0;
}

static inline int is_global(handle_t handle)
{
    return (handle & 0xC0000000) && (handle & 0x3F) == 2;
}

/* The last new local handle. */
static handle_t last;

/* Whether this is a local handle and the next of the sequence. */
static inline int is_next(handle_t handle)
{
    int next = is_local(handle) && handle == last + 0x40;
    last = handle;
    return next;
}

static inline D3DKMT_CREATESYNCHRONIZATIONOBJECT2 info2(handle_t device, UINT type, UINT flags)
{
    D3DKMT_CREATESYNCHRONIZATIONOBJECT2 args = {.hDevice = device, .hSyncObject = POISON};
    args.Info.Type = type;
    args.Info.Flags.Value = flags;
    args.Info.SharedHandle = POISON;
    return args;
}

static inline int end_of_rows(const char *program)
{
    printf("%s: %d not ok\n", program, failures);
    return failures != 0;
}

#endif
