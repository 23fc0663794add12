//! A table with stable small indices. Freed indices are reused, last freed first.
//!
//! Free entries form a linked list inside the table, so that freeing allocates nothing. The table grows by an eighth
//! at a time, so that a big one has few unused entries.
//!
//! Builds with debug assertions count the entries that are accessed ([`visited`]): a test checks with it that no call
//! accesses what others own.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Ends the list of free entries.
const NONE: u32 = u32::MAX;

/// Marks an entry that was taken out and whose index is not free yet.
const KEPT: u32 = u32::MAX - 1;

/// Capacity up to which an empty table keeps its memory, so that repeating one wait allocates nothing.
const KEPT_MAX: usize = 64;

/// By how many entries a full table of this length grows.
pub(crate) fn growth(len: usize) -> usize {
    (len / 8).max(4)
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Entry<T> {
    Live(T),
    /// The entry that was freed before this one, or [`NONE`].
    Free(u32),
}

#[cfg(debug_assertions)]
static VISITED: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// Number of entries accessed so far, in all tables of this program.
#[cfg(debug_assertions)]
pub fn visited() -> u64 {
    VISITED.load(core::sync::atomic::Ordering::Relaxed)
}

#[inline(always)]
pub(crate) fn visit() {
    #[cfg(debug_assertions)]
    VISITED.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
}

/// A table with stable small indices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    live: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { entries: Vec::new(), free: NONE, live: 0 }
    }
}

impl<T> Slab<T> {
    /// Bytes of an entry.
    pub const ENTRY_BYTES: usize = size_of::<Entry<T>>();

    pub fn insert(&mut self, value: T) -> u32 {
        self.live += 1;
        if let Some(entry) = self.entries.get_mut(self.free as usize)
            && let Entry::Free(next) = *entry
        {
            *entry = Entry::Live(value);
            return core::mem::replace(&mut self.free, next);
        }
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(growth(self.entries.len()));
        }
        self.entries.push(Entry::Live(value));
        (self.entries.len() - 1) as u32
    }

    pub fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?;
        if matches!(entry, Entry::Free(_)) {
            return None;
        }
        let Entry::Live(value) = core::mem::replace(entry, Entry::Free(self.free)) else { return None };
        self.freed(index);
        Some(value)
    }

    /// Takes out a value; its index is not reused before [`Slab::free`].
    pub fn take(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?;
        if matches!(entry, Entry::Free(_)) {
            return None;
        }
        match core::mem::replace(entry, Entry::Free(KEPT)) {
            Entry::Live(value) => Some(value),
            Entry::Free(_) => None,
        }
    }

    /// Frees the index of a value that [`Slab::take`] took out.
    pub fn free(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        debug_assert!(matches!(entry, Entry::Free(KEPT)), "{index} was not taken out");
        *entry = Entry::Free(self.free);
        self.freed(index);
    }

    /// Links an entry into the free list.
    fn freed(&mut self, index: u32) {
        self.free = index;
        self.live -= 1;
        if self.live == 0 {
            // The table is empty: indices restart at 0, and a big allocation is freed.
            self.free = NONE;
            self.entries.clear();
            if self.entries.capacity() > KEPT_MAX {
                self.entries = Vec::new();
            }
        }
    }

    pub fn get(&self, index: u32) -> Option<&T> {
        visit();
        match self.entries.get(index as usize)? {
            Entry::Live(value) => Some(value),
            Entry::Free(_) => None,
        }
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        visit();
        match self.entries.get_mut(index as usize)? {
            Entry::Live(value) => Some(value),
            Entry::Free(_) => None,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let visited = self.entries.iter().inspect(|_| visit());
        visited.enumerate().filter_map(|(index, entry)| match entry {
            Entry::Live(value) => Some((index as u32, value)),
            Entry::Free(_) => None,
        })
    }

    /// Number of entries, with those that were taken out and not freed.
    pub fn len(&self) -> usize {
        self.live
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;

    /// Panics if the index is free: a bug of the kernel, because indices never come from a guest.
    fn index(&self, index: u32) -> &T {
        self.get(index).expect("slab index is live")
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).expect("slab index is live")
    }
}
