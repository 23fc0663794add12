//! The stores of one call of `handle`, by object. Readers never see the intermediate values of a call, so a fence is
//! stored once, however often a command buffer writes it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use d3dkmt::limits;

/// Longest list that is searched linearly: more than the objects that one call can signal. A longer one has a map.
const LOOKED_THROUGH_MAX: usize = 2 * limits::OBJECTS_SIGNALED_MAX;

#[derive(Clone, Debug)]
struct Stored {
    object: u32,
    /// Their range among the effects.
    stores: Range<usize>,
}

/// The stores of the present call of `handle`, by object.
#[derive(Default, Debug)]
pub(crate) struct StoredNow {
    list: Vec<Stored>,
    /// Index in the list by object, once that is too long to search linearly.
    index: BTreeMap<u32, usize>,
}

impl StoredNow {
    #[inline]
    pub fn clear(&mut self) {
        self.list.clear();
        if !self.index.is_empty() {
            self.index.clear();
        }
    }

    /// Range of the stores of this object among the effects.
    #[inline]
    pub fn of(&self, object: u32) -> Option<Range<usize>> {
        let stored = if self.index.is_empty() {
            self.list.iter().find(|stored| stored.object == object)
        } else {
            self.index.get(&object).map(|at| &self.list[*at])
        };
        stored.map(|stored| stored.stores.clone())
    }

    /// Records the first stores of an object in this call.
    #[inline]
    pub fn note(&mut self, object: u32, stores: Range<usize>) {
        self.list.push(Stored { object, stores });
        match self.list.len() {
            0..=LOOKED_THROUGH_MAX => {}
            count if self.index.is_empty() => {
                self.index = self.list.iter().map(|stored| stored.object).zip(0..count).collect();
            }
            count => {
                self.index.insert(object, count - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LOOKED_THROUGH_MAX, StoredNow};

    #[test]
    fn each_object_is_found_however_many_were_stored_and_none_after_the_call() {
        let mut stored = StoredNow::default();
        for count in [1, LOOKED_THROUGH_MAX, LOOKED_THROUGH_MAX + 1, 3 * LOOKED_THROUGH_MAX] {
            for object in 0..count {
                assert_eq!(stored.of(object as u32), None);
                stored.note(object as u32, object..object + 2);
            }
            assert!((0..count).all(|object| stored.of(object as u32) == Some(object..object + 2)));
            stored.clear();
            assert_eq!(stored.of(0), None);
        }
    }
}
