//! The waits that one object's value holds up.
//!
//! The first of them - lowest value, then the order in which they came - stands in the object itself: a signal
//! that wakes nobody compares one number, and a fence with one waiter, as most have, needs no list.

use alloc::boxed::Box;
use core::cmp::Ordering;

use crate::ordered::{Entry, Ordered};

/// See the module.
#[derive(Debug)]
pub(crate) struct Waiters {
    /// Value of the first; `u64::MAX` if nobody waits.
    least: u64,
    rest: Option<Box<Ordered>>,
    wait: u32,
    /// Item of the first; `None` if nobody waits.
    item: Option<u8>,
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters { least: u64::MAX, rest: None, wait: 0, item: None }
    }
}

impl Waiters {
    fn first(&self) -> Option<Entry> {
        self.item.map(|item| Entry { key: self.least, wait: self.wait, item: u32::from(item) })
    }

    fn set_first(&mut self, first: Option<Entry>) {
        let Some(Entry { key, wait, item }) = first else {
            (self.least, self.item) = (u64::MAX, None);
            return;
        };
        // A wait has 32 items at most.
        (self.least, self.wait, self.item) = (key, wait, Some(item as u8));
    }

    fn take_rest(&mut self) -> Option<Entry> {
        self.rest.as_mut()?.pop_first()
    }

    pub fn len(&self) -> usize {
        usize::from(self.item.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        self.first().into_iter().chain(self.rest.iter().flat_map(|rest| rest.iter().copied()))
    }

    /// Whether nobody can be waiting for this value or a lower one. Cheap; it may say no of `u64::MAX` in vain.
    pub fn none_reached_by(&self, value: u64) -> bool {
        value < self.least
    }

    /// Behind all that wait for the same value.
    pub fn insert(&mut self, entry: Entry) {
        match self.first() {
            None => self.set_first(Some(entry)),
            Some(first) if entry.key < first.key => {
                self.rest.get_or_insert_default().push_front(first);
                self.set_first(Some(entry));
            }
            Some(_) => self.rest.get_or_insert_default().insert(entry),
        }
    }

    /// Takes out the first if it waits for this value or a lower one.
    pub fn pop_reached(&mut self, value: u64) -> Option<Entry> {
        let first = self.first().filter(|first| first.key <= value)?;
        let next = self.take_rest();
        self.set_first(next);
        Some(first)
    }

    /// Takes out the one that `compare` calls equal: see [`Ordered::remove`].
    pub fn remove(&mut self, compare: impl Fn(&Entry) -> Ordering) {
        match self.first() {
            Some(first) if compare(&first).is_eq() => {
                let next = self.take_rest();
                self.set_first(next);
            }
            _ => {
                if let Some(rest) = &mut self.rest {
                    rest.remove(compare);
                }
            }
        }
    }
}
