//! `/dev/dxg` for one process: `libgpupv_dev_dxg.so`, loaded by `LD_PRELOAD`, answers the ioctls of the Linux GPU-PV
//! guest driver through `libdxcore.so`. For clients that have D3DKMT linked in as bare ioctls. docs/DEV_DXG.md is its
//! manual.
//!
//! ```text
//!  open("/dev/dxg") ─▶ exports ─▶ files: a socket pair; the client gets one end
//!  ioctl(fd, 'G' ..) ─▶ exports ─▶ files: is it one of them, of this process?
//!                                   └▶ table: number and size ─▶ memory: copy in ─▶ checks ─▶ libdxcore.so
//!                       errno, or a status ≥ 0 ◀─ status: NTSTATUS to errno ◀─ memory: copy out ◀─┘
//!  close, dup2, .. ─▶ exports ─▶ files: the other end hangs up at the last close ─▶ the session ends
//! ```
//!
//! Facts about the driver are from the reference (guest-driver.md, real-clients.md). `table` has the numbers, names and
//! sizes; the layouts are those of crate `abi`.
//!
//! `unsafe` here: the exported functions have C callers, and `libdxcore.so` is loaded at run time.

#![cfg_attr(
    test,
    allow(dead_code, reason = "tests have no exports, which would take the place of libc's functions")
)]

mod calls;
mod checks;
mod defects;
#[cfg(not(test))]
mod exports;
mod files;
mod library;
mod limits;
mod memory;
mod next;
mod notice;
mod status;
mod table;
