//! A table with stable small indices. Freed indices are reused, last freed first.
//!
//! Free entries form a doubly linked list inside the table, so that freeing allocates nothing. The table grows by an
//! eighth at a time, so that a big one has few unused entries. When a process ends, the free entries at the end are
//! removed ([`Slab::shorten`]): a table that it filled does not stay as long as others have an object in it.
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
fn growth(len: usize) -> usize {
    (len / 8).max(4)
}

/// Frees the memory of a shortened table beyond what it grows by. Shortened step by step, a table never frees much at a
/// time: unmapping tens of megabytes takes milliseconds.
fn free_spare<T>(entries: &mut Vec<T>) {
    const FREED_MAX: usize = 1 << 14;
    let (len, spare) = (entries.len(), growth(entries.len()));
    if entries.capacity() > len + 2 * spare + KEPT_MAX {
        entries.shrink_to((len + spare).max(entries.capacity().saturating_sub(FREED_MAX)));
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Entry<T> {
    Live(T),
    Free {
        /// The entry that was freed before this one, or [`NONE`].
        earlier: u32,
        /// The entry that was freed after this one; meaningless in the one that was freed last.
        later: u32,
    },
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
            && let Entry::Free { earlier, .. } = *entry
        {
            *entry = Entry::Live(value);
            return core::mem::replace(&mut self.free, earlier);
        }
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(growth(self.entries.len()));
        }
        self.entries.push(Entry::Live(value));
        (self.entries.len() - 1) as u32
    }

    pub fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?;
        if matches!(entry, Entry::Free { .. }) {
            return None;
        }
        let free = Entry::Free { earlier: self.free, later: NONE };
        let Entry::Live(value) = core::mem::replace(entry, free) else { return None };
        self.freed(index);
        Some(value)
    }

    /// Takes out a value; its index is not reused before [`Slab::free`].
    pub fn take(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?;
        if matches!(entry, Entry::Free { .. }) {
            return None;
        }
        match core::mem::replace(entry, Entry::Free { earlier: KEPT, later: NONE }) {
            Entry::Live(value) => Some(value),
            Entry::Free { .. } => None,
        }
    }

    /// Frees the index of a value that [`Slab::take`] took out.
    pub fn free(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        debug_assert!(matches!(entry, Entry::Free { earlier: KEPT, .. }), "{index} was not taken out");
        *entry = Entry::Free { earlier: self.free, later: NONE };
        self.freed(index);
    }

    /// Links an entry into the free list.
    fn freed(&mut self, index: u32) {
        if let Some(Entry::Free { later, .. }) = self.entries.get_mut(self.free as usize) {
            *later = index;
        }
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

    /// Removes free entries from the end of the table, `most` at most, and frees the memory that they took.
    /// Returns the number of removed entries; fewer than `most` means that the last entry is in use.
    pub fn shorten(&mut self, most: usize) -> usize {
        let mut removed = 0;
        while removed < most
            && let Some(Entry::Free { earlier, later }) = self.entries.last()
            && *earlier != KEPT
        {
            let (earlier, later) = (*earlier, *later);
            self.entries.pop();
            removed += 1;
            visit();
            if self.free as usize == self.entries.len() {
                self.free = earlier;
            } else if let Some(Entry::Free { earlier: before, .. }) = self.entries.get_mut(later as usize) {
                *before = earlier;
            }
            if let Some(Entry::Free { later: after, .. }) = self.entries.get_mut(earlier as usize) {
                *after = later;
            }
        }
        free_spare(&mut self.entries);
        removed
    }

    /// One more than the greatest index in use, or more.
    pub fn end(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&self, index: u32) -> Option<&T> {
        visit();
        match self.entries.get(index as usize)? {
            Entry::Live(value) => Some(value),
            Entry::Free { .. } => None,
        }
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        visit();
        match self.entries.get_mut(index as usize)? {
            Entry::Live(value) => Some(value),
            Entry::Free { .. } => None,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let visited = self.entries.iter().inspect(|_| visit());
        visited.enumerate().filter_map(|(index, entry)| match entry {
            Entry::Live(value) => Some((index as u32, value)),
            Entry::Free { .. } => None,
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

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::Slab;

    #[derive(Clone, Debug)]
    enum Action {
        Insert,
        Remove(usize),
        Take(usize),
        FreeTaken,
        Shorten(usize),
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let action = prop_oneof![
            4 => Just(Action::Insert),
            3 => any::<usize>().prop_map(Action::Remove),
            1 => any::<usize>().prop_map(Action::Take),
            1 => Just(Action::FreeTaken),
            2 => (1..9_usize).prop_map(Action::Shorten),
        ];
        prop::collection::vec(action, 0..300)
    }

    proptest! {
        #[test]
        fn a_slab_is_a_map_with_small_keys(actions in actions()) {
            let (mut slab, mut map, mut taken) = (Slab::default(), BTreeMap::new(), Vec::new());
            for (number, action) in actions.into_iter().enumerate() {
                let key = |at: usize, map: &BTreeMap<u32, usize>| map.keys().nth(at % map.len().max(1)).copied();
                match action {
                    Action::Insert => {
                        let index = slab.insert(number);
                        prop_assert!(!taken.contains(&index));
                        prop_assert_eq!(map.insert(index, number), None);
                        prop_assert!(map.len() + taken.len() <= slab.end());
                    }
                    Action::Remove(at) => {
                        let Some(index) = key(at, &map) else { continue };
                        prop_assert_eq!(slab.remove(index), map.remove(&index));
                        prop_assert_eq!(slab.remove(index), None);
                    }
                    Action::Take(at) => {
                        let Some(index) = key(at, &map) else { continue };
                        prop_assert_eq!(slab.take(index), map.remove(&index));
                        taken.push(index);
                    }
                    Action::FreeTaken => {
                        if let Some(index) = taken.pop() {
                            slab.free(index);
                        }
                    }
                    Action::Shorten(most) => {
                        let removed = slab.shorten(most);
                        let used = map.keys().chain(&taken).max().map_or(0, |last| *last as usize + 1);
                        prop_assert!(removed <= most && slab.end() >= used);
                        prop_assert!(removed == most || slab.end() == used);
                    }
                }
                prop_assert_eq!(slab.len(), map.len() + taken.len());
                prop_assert!(slab.iter().map(|(index, value)| (index, *value)).eq(map.clone()));
            }
        }
    }
}
