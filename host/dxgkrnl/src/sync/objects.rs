//! The table of synchronization objects, laid out for fast signals.
//!
//! ```text
//!   Hot, 32 bytes, two to a cache line     what a signal of a plain fence and a wait for it need:
//!     value, adapter                         whether it is allowed, and what changes
//!     the first waiter                       whether a wait ends: one comparison
//!     process and slot of the oldest open    where the value is stored
//!   SyncObject                             the rest
//! ```
//! A fence is *plain* if it is monitored, of one adapter, open once with the rights to signal and to wait, and neither
//! poisoned nor watched. Most are. A signal of a plain fence reads and writes its `Hot` and nothing else of it, so that
//! 100,000 fences in random order take 3 MB of the processor's caches. With the 64 bytes of a whole object they took
//! 6 MB, more than a busy machine leaves to one core.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::hint::black_box;
use core::ops::Index;

use d3dkmt::{Handle, SyncObjectFlags};
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::slab::Slab;
use crate::sync::hot::{Hot, HotTable, Marks, NONE};
use crate::sync::object::SyncObject;
use crate::sync::open::Open;
use crate::sync::ordered::Entry;

/// All synchronization objects. Indices are those of the slab.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Objects {
    hot: HotTable,
    cold: Slab<SyncObject>,
}

impl Objects {
    /// Prefetches what a signal needs.
    #[inline]
    pub fn fetch(&self, index: u32) {
        black_box(self.hot.get(index).map_or(0, |hot| hot.value));
    }

    pub fn insert(&mut self, object: SyncObject, value: u64) -> u32 {
        let index = self.cold.insert(object);
        self.hot.put(index, Hot::new(value));
        index
    }

    pub fn remove(&mut self, index: u32) -> Option<SyncObject> {
        let object = self.cold.remove(index)?;
        self.hot[index] = Hot::new(0);
        if self.cold.len() == 0 {
            self.hot = HotTable::default();
        }
        Some(object)
    }

    /// See [`Slab::shorten`].
    pub fn shorten(&mut self, most: usize) -> usize {
        let removed = self.cold.shorten(most);
        self.hot.shorten_to(self.cold.end());
        removed
    }

    pub fn get(&self, index: u32) -> Option<&SyncObject> {
        self.cold.get(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &SyncObject)> {
        self.cold.iter()
    }

    pub fn len(&self) -> usize {
        self.cold.len()
    }

    #[inline]
    pub fn value(&self, index: u32) -> u64 {
        self.hot[index].value
    }

    #[inline]
    pub fn set_value(&mut self, index: u32, value: u64) {
        self.hot[index].value = value;
    }

    #[inline]
    pub fn is_plain(&self, index: u32) -> bool {
        self.hot[index].is_plain()
    }

    /// Whether it is a plain fence of this adapter.
    #[inline]
    pub fn is_plain_on(&self, index: u32, adapter: u32) -> bool {
        let hot = &self.hot[index];
        hot.is_plain() && u32::from(hot.adapter) == adapter
    }

    /// Adds the reference of a share, a queued packet or the like, which keeps it alive.
    pub fn hold(&mut self, index: u32) {
        self.cold[index].references += 1;
    }

    /// Releases a reference.
    pub fn release(&mut self, index: u32) {
        self.cold[index].references -= 1;
    }

    /// Adds an NT handle, which keeps it alive and names it.
    pub fn add_share(&mut self, index: u32) {
        self.cold[index].add_share();
        self.hold(index);
    }

    /// Removes an NT handle; [`Self::release`] releases its reference.
    pub fn remove_share(&mut self, index: u32) {
        self.cold[index].remove_share();
    }

    /// See [`SyncObject::set_destroyed`].
    pub fn set_destroyed(&mut self, index: u32) -> bool {
        self.cold[index].set_destroyed()
    }

    /// See [`SyncObject::take_release_due`].
    pub fn take_release_due(&mut self, index: u32) -> bool {
        self.cold[index].take_release_due()
    }

    pub fn set_global(&mut self, index: u32, global: Handle) {
        self.cold[index].set_global(global);
    }

    pub fn take_global(&mut self, index: u32) -> Option<Handle> {
        self.cold[index].take_global()
    }

    /// Whether a reset of a device that could signal it set it to its largest value. This is a state of its own,
    /// because a 32-bit word does not show it (TDR-026).
    #[inline]
    pub fn is_poisoned(&self, index: u32) -> bool {
        !self.is_plain(index) && self.cold[index].is_poisoned()
    }

    pub fn set_poisoned(&mut self, index: u32, poisoned: bool) {
        self.cold[index].set_poisoned(poisoned);
        self.refresh(index);
    }

    /// Marks all objects of an adapter that was stopped and starts again.
    pub fn mark_removed(&mut self, adapter: u32) {
        let of_adapter: Vec<u32> = self
            .cold
            .iter()
            .filter(|(_, object)| object.adapter == adapter)
            .map(|(index, _)| index)
            .collect();
        for index in of_adapter {
            self.set_removed(index, true);
        }
    }

    /// Marks an object whose adapter is gone for everyone who has it, or for some of its opens.
    pub fn set_removed(&mut self, index: u32, for_all: bool) {
        match for_all {
            true => self.cold[index].set_removed(),
            false => self.cold[index].set_opens_removed(),
        }
        self.refresh(index);
    }

    /// Whether it is a native fence, or the progress fence of a hardware queue: hardware is notified of its waits, and
    /// the kernel itself evaluates its value. False for an object that is gone.
    #[inline]
    pub fn is_watched(&self, index: u32) -> bool {
        self.hot.get(index).is_some_and(|hot| !hot.is_plain())
            && self.cold.get(index).is_some_and(SyncObject::is_watched)
    }

    pub fn set_watched(&mut self, index: u32) {
        self.cold[index].set_watched();
        self.refresh(index);
    }

    // Opens, oldest first.

    /// Process and slot of the oldest open, if it has a slot.
    #[inline]
    pub fn first_slot(&self, index: u32) -> Option<(ProcessId, u32)> {
        let hot = &self.hot[index];
        (hot.slot != NONE).then_some((ProcessId(hot.process), hot.slot))
    }

    /// All opens but the oldest.
    #[inline]
    pub fn other_opens(&self, index: u32) -> &[u32] {
        if self.is_plain(index) { &[] } else { self.cold[index].other_opens() }
    }

    /// Whether an open allows its process what these flags, NoSignal or NoWait, deny.
    #[inline]
    pub fn may(&self, index: u32, open: u32, denied_by: SyncObjectFlags, opens: &Slab<Open>) -> bool {
        self.is_plain(index) || self.cold[index].may(open, denied_by, opens)
    }

    /// Adds an open, which must be complete.
    pub fn add_open(&mut self, index: u32, open: u32, opens: &Slab<Open>) {
        self.cold[index].add_open(open, opens);
        self.place_first_open(index, opens);
    }

    pub fn remove_open(&mut self, index: u32, open: u32, opens: &Slab<Open>) {
        self.cold[index].remove_open(open, opens);
        self.place_first_open(index, opens);
    }

    fn place_first_open(&mut self, index: u32, opens: &Slab<Open>) {
        let first = self.cold[index].opens().next().map(|open| &opens[open]);
        let hot = &mut self.hot[index];
        (hot.process, hot.slot) = first.map_or((0, NONE), |open| (open.process.0, open.slot.unwrap_or(NONE)));
        self.refresh(index);
    }

    fn refresh(&mut self, index: u32) {
        let object = &self.cold[index];
        let adapter = u8::try_from(object.adapter).ok().filter(|_| object.is_plain());
        let hot = &mut self.hot[index];
        hot.marks.set(Marks::PLAIN, adapter.is_some());
        hot.adapter = adapter.unwrap_or(0);
    }

    /// Whether the redundant state of an object disagrees.
    pub fn miscounted(&self, opens: &Slab<Open>) -> bool {
        self.cold.iter().any(|(index, object)| {
            let hot = &self.hot[index];
            let first = object.opens().next().and_then(|open| opens.get(open));
            let first_slot = first.and_then(|open| Some((open.process, open.slot?)));
            let adapter_is_right = !hot.is_plain() || u32::from(hot.adapter) == object.adapter;
            first_slot != self.first_slot(index)
                || hot.is_plain() != (object.is_plain() && object.adapter <= u32::from(u8::MAX))
                || !adapter_is_right
                || hot.has_more_waiters() != (object.other_waiters_count() > 0)
                || (hot.first_item.is_none() && hot.has_more_waiters())
        })
    }

    // Waits for values that it has not reached, lowest value first, then in the order of arrival.

    fn next_waiter_is_first(&mut self, index: u32) {
        let hot = &mut self.hot[index];
        if !hot.has_more_waiters() {
            hot.set_first_waiter(None);
            return;
        }
        let object = &mut self.cold[index];
        hot.set_first_waiter(object.pop_other_waiter());
        hot.marks.set(Marks::MORE_WAITERS, object.other_waiters_count() > 0);
    }

    /// The least value that is waited for.
    pub fn least_waited(&self, index: u32) -> Option<u64> {
        let hot = &self.hot[index];
        hot.first_item.map(|_| hot.least_waited)
    }

    pub fn waiters_count(&self, index: u32) -> usize {
        usize::from(self.least_waited(index).is_some()) + self.cold[index].other_waiters_count()
    }

    pub fn waiters(&self, index: u32) -> impl Iterator<Item = Entry> {
        let first = self.hot[index].first_waiter();
        first.into_iter().chain(self.cold[index].other_waiters())
    }

    /// The waiters from this position on, and perhaps the first of all: see
    /// [`crate::sync::ordered::Ordered::iter_from`].
    pub fn waiters_from(
        &self,
        index: u32,
        value: u64,
        among_equals: impl Fn(&Entry) -> Ordering,
    ) -> impl Iterator<Item = Entry> {
        let first = self.hot[index].first_waiter();
        first.into_iter().chain(self.cold[index].other_waiters_from(value, among_equals))
    }

    /// The waiter for the highest value.
    pub fn last_waiter(&self, index: u32) -> Option<Entry> {
        self.cold[index].last_other_waiter().or_else(|| self.hot[index].first_waiter())
    }

    /// Whether its value may have reached a waiter's. At `u64::MAX` it may be true without a waiter.
    #[inline]
    pub fn may_wake(&self, index: u32) -> bool {
        let hot = &self.hot[index];
        hot.value >= hot.least_waited
    }

    /// Adds a waiter behind all that wait for the same value.
    pub fn add_waiter(&mut self, index: u32, entry: Entry) {
        let hot = &mut self.hot[index];
        let Some(first) = hot.first_waiter() else { return hot.set_first_waiter(Some(entry)) };
        hot.marks.insert(Marks::MORE_WAITERS);
        if entry.key < first.key {
            self.cold[index].push_front_waiter(first);
            hot.set_first_waiter(Some(entry));
        } else {
            self.cold[index].add_other_waiter(entry);
        }
    }

    /// Takes out the first waiter if the value has reached its.
    #[inline]
    pub fn pop_reached(&mut self, index: u32) -> Option<Entry> {
        let hot = &self.hot[index];
        let first = hot.first_waiter().filter(|first| first.key <= hot.value)?;
        self.next_waiter_is_first(index);
        Some(first)
    }

    /// Removes the waiter for this value for which `among_equals` is equal: see
    /// [`crate::sync::ordered::Ordered::remove`].
    pub fn remove_waiter(&mut self, index: u32, value: u64, among_equals: impl Fn(&Entry) -> Ordering) {
        let hot = &mut self.hot[index];
        match hot.first_waiter() {
            Some(first) if first.key == value && among_equals(&first).is_eq() => {
                self.next_waiter_is_first(index);
            }
            _ => {
                let object = &mut self.cold[index];
                object.remove_other_waiter(value, among_equals);
                hot.marks.set(Marks::MORE_WAITERS, object.other_waiters_count() > 0);
            }
        }
    }
}

impl Index<u32> for Objects {
    type Output = SyncObject;

    /// Panics if the index is free: a bug of the kernel, because indices never come from a guest.
    fn index(&self, index: u32) -> &SyncObject {
        &self.cold[index]
    }
}
