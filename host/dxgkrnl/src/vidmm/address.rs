//! GPU virtual addresses: ranges are reserved, mapped and freed, and engines are told what stands there.
//!
//! ```text
//!   Map..VirtualAddress ──▶ pages of the range ── paging buffer ──▶ engines see it      PENDING with a paging fence value
//!   Update..VirtualAddress ── wait, paging buffers ──▶ both at once ──▶ signal          on the context's paging context
//!   Free..VirtualAddress, the end of an allocation or of its creator: engines see NoAccess at once
//! ```
//! An allocation may be mapped as often as one likes, whole or in part. Engines find its pages there while it is
//! resident (`residency.rs`); its memory is that of the process that created it, wherever it was opened. What is mapped
//! ends with the handle that it was mapped by; the range stays until it is freed.
//!
//! Protection: Write, or else an engine's write faults; Execute means nothing here. SystemUseOnly is not for user mode.

use alloc::vec::Vec;

use d3dkmt::{GpuVaOperation, Handle};
use serde::{Deserialize, Serialize};

use crate::vidmm::vaspace::VaPage;

/// What `D3DKMTUpdateGpuVirtualAddress` asks for.
pub(crate) struct GpuVaUpdate {
    pub device: Handle,
    pub context: Handle,
    pub fence: Handle,
    pub fence_value: u64,
    pub operations: Vec<GpuVaOperation>,
    pub flags: u32,
}

/// Pages that engines are about to see something else at.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PageChange {
    pub(super) base: u64,
    pub(super) end: u64,
    /// The range that they are of: it may be freed, and another made there.
    pub(super) range: u64,
}

/// One operation of an update that is queued.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum VaUpdate {
    Set {
        base: u64,
        size: u64,
        /// Stands at the base; after so many bytes it begins anew.
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
