//! The driver's side of memory: page table entries of GPU address spaces, and paging work.

use serde::{Deserialize, Serialize};

use crate::ProcessId;

/// What engines find at pages of a GPU address space (`DXGK_PTE`, and the memory that it maps).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PageTableEntry {
    /// An access faults.
    NoAccess,
    /// Reads as 0; what is written is dropped.
    Zero,
    /// Memory of a process: the first page begins at `address` of the owner's own address space, and the next pages
    /// follow it there.
    Memory {
        /// The process that created the allocation, not the one that mapped it.
        owner: ProcessId,
        address: u64,
        /// A write faults otherwise.
        writable: bool,
    },
}

/// `DXGKARG_BUILDPAGINGBUFFER`: one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PagingOperation {
    pub adapter: u32,
    pub process: ProcessId,
    pub work: PagingWork,
}

/// What a paging buffer is for. Sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PagingWork {
    /// This range of the process's GPU address space changes.
    UpdatePageTable { base: u64, size: u64 },
    /// Allocations become resident: `size` bytes in all.
    Transfer { size: u64 },
}

/// `DXGKARG_SIGNALMONITOREDFENCE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalMonitoredFence {
    pub adapter: u32,
    pub process: ProcessId,
    pub gpu_address: u64,
    pub value: u64,
}
