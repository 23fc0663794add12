//! Pages of system memory for the values of fences (FEN-104).
//!
//! Processes map whole pages. So a fence that may be shared has a page of its own, and the private fences of a process
//! share pages with each other only.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::ddi::{NATIVE_FENCE_PAGE_BYTES, NATIVE_FENCE_STRIDE_BYTES, NativeFenceStorage};

const SLOTS: u32 = NATIVE_FENCE_PAGE_BYTES / NATIVE_FENCE_STRIDE_BYTES;

#[derive(Default, Serialize, Deserialize)]
pub(super) struct Storage {
    pages: u64,
    /// Pages with private fences: their process, and a bit for each slot in use.
    packed: BTreeMap<u64, (ProcessId, u64)>,
}

impl Storage {
    pub fn allocate(&mut self, process: ProcessId, shareable: bool) -> NativeFenceStorage {
        let with_room = |(owner, used_slots): &(ProcessId, u64)| *owner == process && *used_slots != u64::MAX;
        let found = self.packed.iter_mut().find(|(_, page)| !shareable && with_room(page));
        if let Some((page, (_, used_slots))) = found {
            let slot = used_slots.trailing_ones();
            *used_slots |= 1 << slot;
            return NativeFenceStorage { page: *page, offset_bytes: slot * NATIVE_FENCE_STRIDE_BYTES };
        }
        self.pages += 1;
        if !shareable {
            self.packed.insert(self.pages, (process, 1));
        }
        NativeFenceStorage { page: self.pages, offset_bytes: 0 }
    }

    pub fn free(&mut self, storage: NativeFenceStorage) {
        let Some((_, used_slots)) = self.packed.get_mut(&storage.page) else { return };
        *used_slots &= !(1 << (storage.offset_bytes / NATIVE_FENCE_STRIDE_BYTES));
        if *used_slots == 0 {
            self.packed.remove(&storage.page);
        }
    }
}

const _: () = assert!(SLOTS == u64::BITS, "a page's places are the bits of a word");
