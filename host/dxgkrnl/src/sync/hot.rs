//! The part of a synchronization object that a signal reads, and the table of them.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use bitflags::bitflags;
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::sync::ordered::Entry;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Entries of a chunk: 32 KiB.
const CHUNK_LEN: usize = 1024;

bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub(super) struct Marks: u8 {
        const PLAIN = 1;
        /// There are other waiters than the first.
        const MORE_WAITERS = 2;
    }
}

/// The state that a signal of a plain fence reads. All other state belongs in [`SyncObject`](super::object::SyncObject).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[repr(align(32))]
pub(super) struct Hot {
    /// Fences: the value. Semaphore: the count. Mutex: 1 = owned.
    pub value: u64,
    /// Value of the first waiter: the lowest, then the first to arrive. `u64::MAX` without a waiter.
    pub least_waited: u64,
    /// Wait of the first waiter.
    pub first_wait: u32,
    /// Process of the oldest open.
    pub process: u32,
    /// Slot of the oldest open, or [`NONE`].
    pub slot: u32,
    /// Item of the first waiter; `None` without a waiter. A wait has 32 items at most.
    pub first_item: Option<u8>,
    /// Adapter of a plain fence.
    pub adapter: u8,
    pub marks: Marks,
}

const _: () = assert!(size_of::<Hot>() == 32);

impl Hot {
    pub fn new(value: u64) -> Self {
        Hot {
            value,
            least_waited: u64::MAX,
            first_wait: 0,
            process: 0,
            slot: NONE,
            first_item: None,
            adapter: 0,
            marks: Marks::empty(),
        }
    }

    pub fn is_plain(&self) -> bool {
        self.marks.contains(Marks::PLAIN)
    }

    pub fn has_more_waiters(&self) -> bool {
        self.marks.contains(Marks::MORE_WAITERS)
    }

    pub fn first_waiter(&self) -> Option<Entry> {
        let (key, wait) = (self.least_waited, self.first_wait);
        self.first_item.map(|item| Entry { key, wait, item: u32::from(item) })
    }

    pub fn set_first_waiter(&mut self, first: Option<Entry>) {
        let Some(Entry { key, wait, item }) = first else {
            (self.least_waited, self.first_item) = (u64::MAX, None);
            return;
        };
        (self.least_waited, self.first_wait, self.first_item) = (key, wait, Some(item as u8));
    }
}

/// The hot parts of all objects, by the indices of their slab. It grows and is shortened by chunks, none of which moves:
/// an allocation aligned to 32 bytes cannot be resized in place, and copying that of a million objects takes 10 ms.
#[derive(Default, Deserialize)]
#[serde(from = "Vec<Hot>")]
pub(super) struct HotTable {
    /// All full but the last.
    chunks: Vec<Vec<Hot>>,
}

impl HotTable {
    pub fn get(&self, index: u32) -> Option<&Hot> {
        self.chunks.get(index as usize / CHUNK_LEN)?.get(index as usize % CHUNK_LEN)
    }

    /// Sets an entry of the table, or appends one.
    pub fn put(&mut self, index: u32, hot: Hot) {
        let at = index as usize / CHUNK_LEN;
        if at == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(CHUNK_LEN));
        }
        let chunk = &mut self.chunks[at];
        match chunk.get_mut(index as usize % CHUNK_LEN) {
            Some(entry) => *entry = hot,
            None => chunk.push(hot),
        }
    }

    /// Removes the entries from `len` on. Those of a chunk in use keep their memory.
    pub fn shorten_to(&mut self, len: usize) {
        self.chunks.truncate(len.div_ceil(CHUNK_LEN));
        if let Some(last) = self.chunks.get_mut(len / CHUNK_LEN) {
            last.truncate(len % CHUNK_LEN);
        }
    }
}

impl Index<u32> for HotTable {
    type Output = Hot;

    #[inline]
    fn index(&self, index: u32) -> &Hot {
        &self.chunks[index as usize / CHUNK_LEN][index as usize % CHUNK_LEN]
    }
}

impl IndexMut<u32> for HotTable {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Hot {
        &mut self.chunks[index as usize / CHUNK_LEN][index as usize % CHUNK_LEN]
    }
}

impl From<Vec<Hot>> for HotTable {
    fn from(entries: Vec<Hot>) -> Self {
        HotTable { chunks: entries.chunks(CHUNK_LEN).map(<[Hot]>::to_vec).collect() }
    }
}

/// As one list: chunks are no part of a snapshot's layout.
impl Serialize for HotTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.chunks.iter().map(Vec::len).sum()))?;
        for hot in self.chunks.iter().flatten() {
            list.serialize_element(hot)?;
        }
        list.end()
    }
}
