//! Handle tables.
//!
//! Handles are handed out in sequence, each the previous one + 0x40, one sequence for all kinds of a
//! process (W-005); a destroyed handle is not reused by the next create (W-006). A table grows by 1024
//! entries; when it is full and more than 128 entries are free, the longest-free entry is reused with
//! another generation, so that a stale handle is refused.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use d3dkmt::{Handle, HandleKind};

const GROWTH: usize = 1024;
const FREE_BEFORE_REUSE: usize = 128;
/// Indices 0 and 1 are never used: the first local handle is 0x40000080, as seen in the field.
const FIRST_INDEX: usize = 2;

#[derive(Clone, Debug)]
struct Entry<T> {
    unique: u8,
    object: Option<T>,
}

/// One table. `T` says what a handle stands for.
#[derive(Clone, Debug)]
pub(crate) struct HandleTable<T> {
    entries: Vec<Entry<T>>,
    free: VecDeque<u32>,
    limit: usize,
    most: usize,
    live: usize,
}

impl<T> HandleTable<T> {
    pub fn new(most: usize) -> Self {
        HandleTable { entries: Vec::new(), free: VecDeque::new(), limit: GROWTH, most, live: 0 }
    }

    /// Gives a local handle to `object`; `None` if the table is full.
    pub fn insert(&mut self, object: T) -> Option<Handle> {
        if self.live >= self.most {
            return None;
        }
        if self.entries.len() >= self.limit && self.free.len() <= FREE_BEFORE_REUSE {
            self.limit += GROWTH;
        }
        let reused = if self.entries.len() >= self.limit { self.free.pop_front() } else { None };
        self.live += 1;
        let index = match reused {
            Some(index) => {
                let entry = &mut self.entries[index as usize];
                // 1, 2, 3, 1, ..: never 0, so that a handle always has a top bit.
                entry.unique = entry.unique % 3 + 1;
                entry.object = Some(object);
                index as usize
            }
            None => {
                self.entries.push(Entry { unique: 1, object: Some(object) });
                self.entries.len() - 1
            }
        };
        Some(Handle::local((index + FIRST_INDEX) as u32, self.entries[index].unique))
    }

    fn position(&self, handle: Handle) -> Option<usize> {
        if handle.kind() != HandleKind::Local {
            return None;
        }
        let index = (handle.index() as usize).checked_sub(FIRST_INDEX)?;
        (self.entries.get(index)?.unique == handle.unique()).then_some(index)
    }

    pub fn get(&self, handle: Handle) -> Option<&T> {
        self.entries[self.position(handle)?].object.as_ref()
    }

    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let index = self.position(handle)?;
        let object = self.entries[index].object.take()?;
        self.free.push_back(index as u32);
        self.live -= 1;
        Some(object)
    }

    /// Live handles in order of their index.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let handle = Handle::local((index + FIRST_INDEX) as u32, entry.unique);
            Some((handle, entry.object.as_ref()?))
        })
    }

    pub fn len(&self) -> usize {
        self.live
    }
}
const _: () = assert!(size_of::<Entry<crate::process::Local>>() == 16);
