//! Handle tables.
//!
//! Handles are allocated in sequence, each the previous one + 0x40, one sequence for all kinds of a
//! process (W-005); a destroyed handle is not reused by the next create (W-006). A table grows by 1024
//! entries; when these are used and more than 128 of them are free, the longest-free entry is reused with
//! another generation, so that a stale handle is refused. A table with the largest number of entries does not grow:
//! there any free entry is reused.
//!
//! An entry is 8 bytes. Calls read entries in any order: those of 100,000 fences take 0.8 MB of the processor's
//! caches.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hint::black_box;
use core::marker::PhantomData;

use d3dkmt::{Handle, limits};
use serde::{Deserialize, Serialize};

const GROWTH: usize = 1024;

const FREE_BEFORE_REUSE: usize = 128;

/// Indices 0 and 1 are never used: the first local handle is 0x40000080, as seen in the field.
const FIRST_INDEX: usize = 2;

const _: () = assert!(limits::HANDLES_PER_PROCESS_MAX + FIRST_INDEX == 1 << 24);

/// Target of a handle: an index in a table.
pub(crate) trait Referent: Copy {
    /// The kind, 1 to 15, and its index in [`REFERENT_BITS`] bits; `None` if an index does not fit.
    fn pack(self) -> Option<(u64, u64)>;
    /// Inverse of [`Self::pack`].
    fn unpack(kind: u64, bits: u64) -> Option<Self>;
}

const UNIQUE_BITS: u32 = 2;

const KIND_BITS: u32 = 4;

/// Bits of a packed [`Referent`], without its kind.
pub(crate) const REFERENT_BITS: u32 = u64::BITS - UNIQUE_BITS - KIND_BITS;

/// Generation, 1 to 3; kind, 0 for a free entry; packed target. From the lowest bit up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Entry(u64);

impl Entry {
    fn new(unique: u8, (kind, bits): (u64, u64)) -> Self {
        Entry(u64::from(unique) | kind << UNIQUE_BITS | bits << (UNIQUE_BITS + KIND_BITS))
    }

    #[inline]
    fn unique(self) -> u8 {
        (self.0 & ((1 << UNIQUE_BITS) - 1)) as u8
    }

    #[inline]
    fn target<T: Referent>(self) -> Option<T> {
        let kind = self.0 >> UNIQUE_BITS & ((1 << KIND_BITS) - 1);
        T::unpack(kind, self.0 >> (UNIQUE_BITS + KIND_BITS))
    }
}

/// A handle table; `T` is the target of a handle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HandleTable<T> {
    entries: Vec<Entry>,
    free: VecDeque<u32>,
    limit: usize,
    most: usize,
    live: usize,
    of: PhantomData<T>,
}

impl<T: Referent> HandleTable<T> {
    /// A table of at most `most` handles at a time.
    pub fn new(most: usize) -> Self {
        debug_assert!(
            most <= limits::HANDLES_PER_PROCESS_MAX,
            "a handle has no number for the last of {most}"
        );
        HandleTable {
            entries: Vec::new(),
            free: VecDeque::new(),
            limit: GROWTH.min(most),
            most,
            live: 0,
            of: PhantomData,
        }
    }

    /// Gives a local handle to `object`; `None` if the table is full.
    pub fn insert(&mut self, object: T) -> Option<Handle> {
        let target = object.pack()?;
        if self.live >= self.most {
            return None;
        }
        if self.entries.len() >= self.limit && self.free.len() <= FREE_BEFORE_REUSE {
            self.limit = (self.limit + GROWTH).min(self.most);
        }
        let reused = if self.entries.len() >= self.limit { self.free.pop_front() } else { None };
        self.live += 1;
        let index = match reused {
            Some(index) => {
                let entry = &mut self.entries[index as usize];
                // 1, 2, 3, 1, ..: never 0, so that a handle always has a top bit.
                *entry = Entry::new(entry.unique() % 3 + 1, target);
                index as usize
            }
            None => {
                self.entries.push(Entry::new(1, target));
                self.entries.len() - 1
            }
        };
        Some(Handle::local((index + FIRST_INDEX) as u32, self.entries[index].unique()))
    }

    #[inline]
    fn position(&self, handle: Handle) -> Option<usize> {
        let index = (handle.index() as usize).checked_sub(FIRST_INDEX)?;
        // A handle with other bits is not the handle of this entry.
        (Handle::local(handle.index(), self.entries.get(index)?.unique()) == handle).then_some(index)
    }

    /// Prefetches the entry of a handle.
    #[inline]
    pub fn fetch(&self, handle: Handle) {
        let entry = self.entries.get((handle.index() as usize).wrapping_sub(FIRST_INDEX));
        black_box(entry.map_or(0, |entry| entry.0));
    }

    #[inline]
    pub fn get(&self, handle: Handle) -> Option<T> {
        self.entries[self.position(handle)?].target()
    }

    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let index = self.position(handle)?;
        let entry = &mut self.entries[index];
        let object = entry.target()?;
        *entry = Entry::new(entry.unique(), (0, 0));
        self.free.push_back(index as u32);
        self.live -= 1;
        Some(object)
    }

    /// Live handles in order of their index.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, T)> {
        (0..self.entries.len()).filter_map(|index| self.target_at(index))
    }

    fn target_at(&self, index: usize) -> Option<(Handle, T)> {
        let entry = self.entries[index];
        Some((Handle::local((index + FIRST_INDEX) as u32, entry.unique()), entry.target()?))
    }

    /// The first matching handle among `many` entries from this index on; or the index behind them, `None` at the end.
    pub fn find_from(
        &self,
        from: usize,
        many: usize,
        is_match: impl Fn(&T) -> bool,
    ) -> Result<Handle, Option<usize>> {
        let end = (from + many).min(self.entries.len());
        let mut targets = (from..end).filter_map(|index| self.target_at(index));
        let found = targets.find(|(_, target)| is_match(target)).map(|(handle, _)| handle);
        found.ok_or((end < self.entries.len()).then_some(end))
    }

    pub fn len(&self) -> usize {
        self.live
    }
}

const _: () = assert!(size_of::<Entry>() == 8);
