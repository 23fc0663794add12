//! Pages of system memory for the values of fences (FEN-104).
//!
//! Processes map whole pages. So a fence that may be shared has a page of its own, and the private fences of a process
//! share pages with each other only.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::ddi::{NATIVE_FENCE_PAGE_BYTES, NATIVE_FENCE_STRIDE_BYTES, NativeFenceStorage};
use crate::slab::visit;

const SLOTS: u32 = NATIVE_FENCE_PAGE_BYTES / NATIVE_FENCE_STRIDE_BYTES;

#[derive(Default, Serialize, Deserialize)]
pub(super) struct Storage {
    pages: u64,
    /// Pages with private fences: their process, and a bit for each slot in use.
    packed: BTreeMap<u64, (ProcessId, u64)>,
    /// Those of them that have a free slot, by process.
    with_room: BTreeSet<(ProcessId, u64)>,
}

impl Storage {
    pub fn allocate(&mut self, process: ProcessId, shareable: bool) -> NativeFenceStorage {
        if shareable {
            return NativeFenceStorage { page: self.new_page(), offset_bytes: 0 };
        }
        let pages = (process, 0)..=(process, u64::MAX);
        let page = self.with_room.range(pages).inspect(|_| visit()).next().map(|(_, page)| *page);
        let page = page.unwrap_or_else(|| self.new_page());
        let (_, used_slots) = self.packed.entry(page).or_insert((process, 0));
        let slot = used_slots.trailing_ones();
        *used_slots |= 1 << slot;
        match *used_slots {
            u64::MAX => self.with_room.remove(&(process, page)),
            _ => self.with_room.insert((process, page)),
        };
        NativeFenceStorage { page, offset_bytes: slot * NATIVE_FENCE_STRIDE_BYTES }
    }

    fn new_page(&mut self) -> u64 {
        self.pages += 1;
        self.pages
    }

    pub fn free(&mut self, storage: NativeFenceStorage) {
        let Some((owner, used_slots)) = self.packed.get_mut(&storage.page) else { return };
        *used_slots &= !(1 << (storage.offset_bytes / NATIVE_FENCE_STRIDE_BYTES));
        let place = (*owner, storage.page);
        if *used_slots == 0 {
            self.packed.remove(&storage.page);
            self.with_room.remove(&place);
        } else {
            self.with_room.insert(place);
        }
    }
}

const _: () = assert!(SLOTS == u64::BITS, "a page's places are the bits of a word");
