//! A table with stable small indices. Freed indices are reused, last freed first.
//!
//! What is free is linked through the free entries themselves, so that freeing allocates nothing. The table grows
//! by an eighth at a time, so that not much of a big one stands empty.
//!
//! Builds with debug assertions count the entries that are looked at ([`visited`]): a test shows by it that no call looks at
//! what others own.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Ends the list of free entries.
const NONE: u32 = u32::MAX;

/// In place of the next free entry: this one is not free yet.
const KEPT: u32 = u32::MAX - 1;

/// A table this small is kept when its last entry goes: one wait that comes and goes asks for no memory.
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

/// Entries of all tables of this program that were looked at so far.
#[cfg(debug_assertions)]
pub fn visited() -> u64 {
    VISITED.load(core::sync::atomic::Ordering::Relaxed)
}

#[inline(always)]
fn visit() {
    #[cfg(debug_assertions)]
    VISITED.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
}

/// See the module.
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
    /// What an entry takes.
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

    /// Nobody uses the index of a value any more that was taken out.
    pub fn free(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        debug_assert!(matches!(entry, Entry::Free(KEPT)), "{index} was not taken out");
        *entry = Entry::Free(self.free);
        self.freed(index);
    }

    /// An entry is linked to those that are free.
    fn freed(&mut self, index: u32) {
        self.free = index;
        self.live -= 1;
        if self.live == 0 {
            // Nothing left: indices begin anew, and no memory stays behind after a busy time.
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

    /// With those that were taken out and are kept.
    pub fn len(&self) -> usize {
        self.live
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;

    /// Panics if the index is free: a bug of ours, indices never come from a guest.
    fn index(&self, index: u32) -> &T {
        self.get(index).expect("slab index is live")
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).expect("slab index is live")
    }
}
