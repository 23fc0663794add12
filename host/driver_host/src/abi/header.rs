//! Writes `dxgk_miniport.h` from the rows, and the list of DDIs of docs/KMD.md.

use std::fmt::Write as _;

use super::{CALLBACKS, DDIS, DXGK_MINIPORT_VERSION, Row};

/// The text of `dxgk_miniport.h`.
pub fn header() -> String {
    let mut text = String::from(PREFACE);
    _ = writeln!(text, "#define DXGK_MINIPORT_VERSION {DXGK_MINIPORT_VERSION}");
    text.push_str(TYPES);
    text.push_str("/* ---- What the kernel calls. ---- */\n\n");
    DDIS.iter().for_each(|row| structure(row, &mut text));
    text.push_str("/* ---- What a driver calls, from inside of a DDI only. ---- */\n\n");
    CALLBACKS.iter().for_each(|row| structure(row, &mut text));
    text.push_str(
        "/* The functions that a driver may call. They return STATUS_SUCCESS, or STATUS_INVALID_DEVICE_REQUEST\n \
         * outside of a DDI, or STATUS_INSUFFICIENT_RESOURCES after too many calls in one DDI. */\n\
         typedef struct _DXGKRNL_INTERFACE {\n    UINT Size;\n    UINT Version;\n    void *DxgkHandle;\n",
    );
    for row in CALLBACKS {
        _ = writeln!(text, "    NTSTATUS (*{})(void *DxgkHandle, const {} *pArgs);", row.name, row.arguments);
    }
    text.push_str("} DXGKRNL_INTERFACE;\n\n");
    text.push_str(
        "/* The functions of a driver. NULL: it does not have it, and the comment says what happens then. `Now` is\n \
         * the kernel's time in nanoseconds. */\n\
         typedef struct _DRIVER_INITIALIZATION_DATA {\n    UINT Size;\n    UINT Version;\n",
    );
    for row in DDIS {
        _ = writeln!(text, "    /* NULL: {}. */", row.default);
        _ = writeln!(
            text,
            "    NTSTATUS (*{})(void *MiniportDeviceContext, UINT64 Now, {} *pArgs);",
            row.name, row.arguments
        );
    }
    text.push_str("} DRIVER_INITIALIZATION_DATA;\n");
    text.push_str(ENTRY);
    text
}

fn structure(row: &Row, text: &mut String) {
    if !row.docs.is_empty() {
        comment("", row.docs, text);
    }
    let tag = row.arguments;
    _ = writeln!(text, "typedef struct _{tag} {{");
    if let Some((pointer, size)) = row.buffer {
        _ = writeln!(text, "    void *{pointer};\n    UINT64 {size};");
    }
    for field in row.fields {
        if !field.docs.is_empty() {
            comment("    ", field.docs, text);
        }
        let c_type = if field.c_type == "Pointer" { "void *" } else { field.c_type };
        let space = if c_type.ends_with('*') { "" } else { " " };
        _ = writeln!(text, "    {c_type}{space}{};", field.name);
    }
    _ = writeln!(text, "}} {tag};\n");
}

fn comment(indent: &str, lines: &[&str], text: &mut String) {
    let body: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    _ = writeln!(text, "{indent}/* {} */", body.join(&format!("\n{indent} * ")));
}

/// The DDIs of a driver in C, as a table of docs/KMD.md.
pub fn table_of_ddis() -> String {
    let mut text = String::from("| function | NULL |\n|---|---|\n");
    for row in DDIS {
        _ = writeln!(text, "| `{}` | {} |", row.name, row.default);
    }
    text
}

const PREFACE: &str = "\
/* dxgk_miniport.h - the interface of a kernel-mode driver in C for gpupv. Generated: see host/driver_host/src/abi.
 *
 * A driver is a shared object with the function DxgkMiniportEntry. It runs in a process of its own. Names with Dxgk
 * are the WDK's; the layouts are ours. Names with Sim are the simulated hardware's. Handles are numbers of the kernel,
 * DXGK_NO_HANDLE is none. A buffer belongs to the kernel and lasts for the call; its size is in and out, and never
 * grows. An empty buffer is NULL. A size that the driver leaves as it is counts. Capabilities come from the adapter's
 * configuration, not from the driver. docs/KMD.md explains the rest: failures, callbacks, what bugchecks.
 *
 * How it changes. DXGK_MINIPORT_VERSION changes only if an old driver could not run any more. Everything else is
 * appended: functions at the end of both tables, whose Size tells how many there are. A struct never changes, but for
 * reserved fields that get a meaning, with 0 for what was before. So a driver of an older header runs as it is. A driver
 * of a newer header runs if the functions that gpupv does not know are NULL; before it calls a function that not every
 * gpupv has, it checks that Size of DXGKRNL_INTERFACE reaches beyond it. */
#ifndef DXGK_MINIPORT_H
#define DXGK_MINIPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

";

const TYPES: &str = "\
#define DXGK_NO_HANDLE UINT64_MAX
#define SIM_NEVER UINT64_MAX

typedef uint32_t UINT;
typedef uint64_t UINT64;
typedef int32_t NTSTATUS;

#define STATUS_SUCCESS ((NTSTATUS)0)
#define STATUS_PENDING ((NTSTATUS)0x103)
#define STATUS_UNSUCCESSFUL ((NTSTATUS)0xC0000001)
#define STATUS_INVALID_PARAMETER ((NTSTATUS)0xC000000D)
#define STATUS_INVALID_DEVICE_REQUEST ((NTSTATUS)0xC0000010)
#define STATUS_NO_MEMORY ((NTSTATUS)0xC0000017)
#define STATUS_INSUFFICIENT_RESOURCES ((NTSTATUS)0xC000009A)
#define STATUS_NOT_SUPPORTED ((NTSTATUS)0xC00000BB)

/* An element of pAllocationInfo. */
typedef struct _DXGK_ALLOCATIONINFO {
    /* In and out. */
    void *pPrivateDriverData;
    UINT64 PrivateDriverDataSize;
    UINT64 hAllocation;
    /* Out, in bytes; 0 with memory of the process: the driver does not know. */
    UINT64 Size;
    /* Out: a power of two, or 0. */
    UINT Alignment;
    /* In: 1, it is memory of the process. Out: 2, it lies in the segment group LOCAL; 4 CpuVisible. */
    UINT Flags;
} DXGK_ALLOCATIONINFO;

/* An element of pValues of DxgkDdiUpdateMonitoredValues and DxgkDdiUpdateCurrentValuesFromCpu. */
typedef struct _DXGK_NATIVEFENCEVALUE {
    UINT64 hGlobalNativeFence;
    UINT64 Value;
    /* Of a CurrentValue. 1 AlwaysSignaled: the fence stays at all ones. 2 NotificationOnly: the memory has the value. */
    UINT64 Flags;
} DXGK_NATIVEFENCEVALUE;

";

const ENTRY: &str = "
/* The one function that the shared object exports. It keeps pDxgkrnl, which lasts as long as the process, stores the
 * context that each DDI gets, and returns its table, which lasts as well; NULL: it cannot start. */
const DRIVER_INITIALIZATION_DATA *DxgkMiniportEntry(const DXGKRNL_INTERFACE *pDxgkrnl, void **pMiniportDeviceContext);

#ifdef __cplusplus
}
#endif

#endif
";
