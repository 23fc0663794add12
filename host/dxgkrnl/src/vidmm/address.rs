//! GPU virtual addresses: ranges are reserved, mapped and freed, and the page tables of engines are updated.
//!
//! ```text
//!   Map..VirtualAddress ──▶ pages of the range ── paging buffer ──▶ engines see it      PENDING with a paging fence value
//!   Update..VirtualAddress ── wait, paging buffers ──▶ both at once ──▶ signal          on the context's paging context
//!   Free..VirtualAddress, the end of an allocation or of its creator: engines see NoAccess at once
//! ```
//! An allocation may be mapped any number of times, whole or in part. Engines find its pages there while it is
//! resident (`residency.rs`); its memory is that of the process that created it, wherever it was opened. A mapping
//! ends with the handle that it was made by. So does its range if Map made it; a range of Reserve stays until it is freed.
//!
//! Protection: Write, or else an engine's write faults; Execute means nothing here. SystemUseOnly is not for user mode.

use alloc::vec::Vec;

use d3dkmt::{GpuVaOperation, Handle};
use serde::{Deserialize, Serialize};

use crate::vidmm::vaspace::VaPage;

/// Parameters of `D3DKMTUpdateGpuVirtualAddress`.
pub(crate) struct GpuVaUpdate {
    pub device: Handle,
    pub context: Handle,
    pub fence: Handle,
    pub fence_value: u64,
    pub operations: Vec<GpuVaOperation>,
    pub flags: u32,
}

/// Pages whose entries for engines are about to change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PageChange {
    pub(super) base: u64,
    pub(super) end: u64,
    /// The number of their range, which may be freed and replaced by another.
    pub(super) range: u64,
}

/// The pages of an allocation from one on, wherever it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct AllocationPages {
    pub(super) allocation: u32,
    /// The number of the allocation, because another may have its index by now.
    pub(super) number: u64,
    /// The open by which the first is mapped, and its address there.
    pub(super) open: u32,
    pub(super) base: u64,
}

/// How far page tables are updated for the memory of a process that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GoneMemory {
    /// The next allocation.
    pub(super) allocation: u32,
    /// Pages of the one before it that are left.
    pub(super) pages: Option<AllocationPages>,
}

/// One operation of an update that is queued. It is left out if a range is gone by then, though another is in its place.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct QueuedUpdate {
    pub(super) update: VaUpdate,
    /// The number of the range that it changes.
    pub(super) range: u64,
    /// The number of the range that it copies from.
    pub(super) source: Option<u64>,
}

/// One operation of an update.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum VaUpdate {
    Set {
        base: u64,
        size: u64,
        /// The page at the base; after `span` bytes it begins anew.
        page: Option<VaPage>,
        span: u64,
        handle: Handle,
    },
    Copy {
        from: u64,
        to: u64,
        size: u64,
    },
}

impl VaUpdate {
    /// Base and size of what it changes.
    pub(super) fn target(&self) -> (u64, u64) {
        let (VaUpdate::Set { base, size, .. } | VaUpdate::Copy { to: base, size, .. }) = *self;
        (base, size)
    }
}
