//! What a driver is told of GPU address spaces.

use serde::{Deserialize, Serialize};

use crate::ProcessId;

/// What engines find at pages of a GPU address space (`DXGK_PTE`, and what is behind it).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PageTableEntry {
    /// A touch faults.
    NoAccess,
    /// Reads as 0; what is written is dropped.
    Zero,
    /// Memory of a process: the page's bytes begin at an address of that process's own address space, and those of the
    /// pages behind it follow.
    Memory {
        /// Whose pages they are: who created the allocation, not who mapped it.
        owner: ProcessId,
        address: u64,
        /// A write faults otherwise.
        writable: bool,
    },
}
