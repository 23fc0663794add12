//! The log buffers of a queue of user-mode submission: what its engine did to native fences.
//!
//! The engine writes an entry and then the header, which counts it (FEN-121). The kernel reads the log on an interrupt,
//! after the driver has flushed its caches (FEN-124). That may be too late: an engine that has written more entries
//! than the log has since the last read has overwritten some. The header's WraparoundCount shows it; then every native
//! fence is evaluated (FEN-122).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::ddi::{NATIVE_FENCE_LOG_ENTRIES, NativeFenceLogEntry, NativeFenceLogHeader, NativeFenceLogWrite};

/// Both logs of a queue.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct NativeFenceLogs {
    pub waits: Log,
    pub signals: Log,
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Log {
    /// As many as were ever written, [`NATIVE_FENCE_LOG_ENTRIES`] at most.
    pub entries: Vec<NativeFenceLogEntry>,
    pub header: NativeFenceLogHeader,
    /// The header as it was last read.
    pub(super) read: NativeFenceLogHeader,
    /// The timestamp of the entry last read.
    pub(super) timestamp: Nanos,
}

impl Log {
    pub(super) fn write(&mut self, write: &NativeFenceLogWrite) {
        let (index, written) = (write.index as usize, self.entries.len());
        match self.entries.get_mut(index) {
            Some(entry) => *entry = write.entry,
            // The log grows as it is first written: an index beyond the next is ignored.
            None if index == written && write.index < NATIVE_FENCE_LOG_ENTRIES => {
                self.entries.push(write.entry);
            }
            None => return,
        }
        self.header = write.header;
    }

    /// The entries since the last read; `None` if some are lost.
    pub(super) fn read(&mut self) -> Option<Vec<NativeFenceLogEntry>> {
        let before = core::mem::replace(&mut self.read, self.header);
        let count = self.header.entries_since(before);
        if count > u64::from(NATIVE_FENCE_LOG_ENTRIES) {
            return None;
        }
        let first = u64::from(before.first_free_entry_index());
        let indices = (first..first + count).map(|at| (at % u64::from(NATIVE_FENCE_LOG_ENTRIES)) as usize);
        Some(indices.filter_map(|index| self.entries.get(index).copied()).collect())
    }
}
