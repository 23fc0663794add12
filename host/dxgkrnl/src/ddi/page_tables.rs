//! The driver's side of GPU address spaces: page table entries.

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
