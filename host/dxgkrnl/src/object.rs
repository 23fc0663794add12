//! A synchronization object, laid out for the signal.
//!
//! ```text
//!   SyncObject, 64 bytes, one cache line          what a signal of a fence needs:
//!     value, type, adapter                          may it, and what changes
//!     the first waiter                              does anybody wake: one comparison
//!     the first open: process, slot, rights         where is the value stored
//!   Rare, if there is any of it
//!     the other waiters, the other opens, the global handle
//! ```
//! Most fences have one open and one waiter at a time; a signal then finds all of it here.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

use bitflags::bitflags;
use d3dkmt::{Handle, SyncObjectFlags, SyncObjectType};

use crate::ProcessId;
use crate::ordered::{Entry, Ordered};
use crate::slab::Slab;
use crate::sync::Open;

/// No open, no slot.
const NONE: u32 = u32::MAX;

bitflags! {
    #[derive(Clone, Copy, Debug)]
    struct Marks: u8 {
        const FIRST_MAY_SIGNAL = 1;
        const FIRST_MAY_WAIT = 2;
        const POISONED = 4;
        const WATCHED = 8;
    }
}

/// See the module. What a signal does not read belongs into [`Rare`].
#[repr(align(64))]
pub(crate) struct SyncObject {
    /// Fences: the value. Semaphore: the count. Mutex: 1 = owned.
    pub value: u64,
    /// Value of the first waiter: the lowest, then the first to come. `u64::MAX` if nobody waits.
    least_waited: u64,
    rare: Option<Box<Rare>>,
    pub object_type: SyncObjectType,
    pub flags: SyncObjectFlags,
    pub adapter: u32,
    /// Shares and queued packets that keep it alive.
    pub references: u32,
    /// Where to look for its stores of this step: see [`crate::wait::Stored`].
    pub stored: u32,
    /// Wait of the first waiter.
    first_wait: u32,
    /// The oldest of its opens, or [`NONE`]; then what [`Open`] says of it.
    first_open: u32,
    first_process: u32,
    first_slot: u32,
    marks: Marks,
    /// Item of the first waiter; `None` if nobody waits.
    first_item: Option<u8>,
}

const _: () = assert!(size_of::<Option<SyncObject>>() == 64);

/// What most objects do not have.
#[derive(Default)]
struct Rare {
    /// All waiters but the first.
    waiters: Ordered,
    /// All opens but the oldest, in the order of their making.
    opens: Vec<u32>,
    /// Legacy sharing: its global handle.
    global: Option<Handle>,
}

impl SyncObject {
    pub fn new(object_type: SyncObjectType, flags: SyncObjectFlags, value: u64, adapter: u32) -> Self {
        SyncObject {
            value,
            least_waited: u64::MAX,
            rare: None,
            object_type,
            flags,
            adapter,
            references: 0,
            stored: u32::MAX,
            first_wait: 0,
            first_open: NONE,
            first_process: 0,
            first_slot: NONE,
            marks: Marks::empty(),
            first_item: None,
        }
    }

    pub fn global(&self) -> Option<Handle> {
        self.rare.as_ref()?.global
    }

    pub fn take_global(&mut self) -> Option<Handle> {
        self.rare.as_mut()?.global.take()
    }

    pub fn set_global(&mut self, global: Handle) {
        self.rare.get_or_insert_default().global = Some(global);
    }

    /// A reset of a device that could signal it pushed it to its largest value: a state, for a 32-bit word does not
    /// show it (TDR-026).
    pub fn is_poisoned(&self) -> bool {
        self.marks.contains(Marks::POISONED)
    }

    pub fn set_poisoned(&mut self, poisoned: bool) {
        self.marks.set(Marks::POISONED, poisoned);
    }

    /// It is a native fence, or the progress fence of a hardware queue: hardware is told of its waits, and the kernel
    /// itself looks at its value.
    pub fn is_watched(&self) -> bool {
        self.marks.contains(Marks::WATCHED)
    }

    pub fn set_watched(&mut self) {
        self.marks.insert(Marks::WATCHED);
    }

    // Opens, oldest first.

    pub fn opens(&self) -> impl Iterator<Item = u32> {
        let first = self.is_open().then_some(self.first_open);
        first.into_iter().chain(self.other_opens().iter().copied())
    }

    pub fn opens_count(&self) -> usize {
        usize::from(self.is_open()) + self.other_opens().len()
    }

    pub fn is_open(&self) -> bool {
        self.first_open != NONE
    }

    pub fn other_opens(&self) -> &[u32] {
        self.rare.as_ref().map_or(&[], |rare| &rare.opens)
    }

    /// Process and slot of the oldest open, if it has a slot.
    pub fn first_slot(&self) -> Option<(ProcessId, u32)> {
        (self.first_slot != NONE).then_some((ProcessId(self.first_process), self.first_slot))
    }

    /// Whether an open of it lets its process do what these flags, NoSignal or NoWait, deny.
    pub fn may(&self, open: u32, denied_by: SyncObjectFlags, opens: &Slab<Open>) -> bool {
        if open != self.first_open {
            return !opens[open].flags.intersects(denied_by);
        }
        let marks = self.marks;
        (marks.contains(Marks::FIRST_MAY_SIGNAL) || !denied_by.contains(SyncObjectFlags::NO_SIGNAL))
            && (marks.contains(Marks::FIRST_MAY_WAIT) || !denied_by.contains(SyncObjectFlags::NO_WAIT))
    }

    /// Its newest open, which is complete.
    pub fn add_open(&mut self, open: u32, opens: &Slab<Open>) {
        if self.is_open() {
            self.rare.get_or_insert_default().opens.push(open);
        } else {
            self.set_first_open(open, opens);
        }
    }

    pub fn remove_open(&mut self, open: u32, opens: &Slab<Open>) {
        let others = self.rare.as_mut().map(|rare| &mut rare.opens).filter(|others| !others.is_empty());
        match others {
            Some(others) if open == self.first_open => {
                let next = others.remove(0);
                self.set_first_open(next, opens);
            }
            Some(others) => others.retain(|other| *other != open),
            None => (self.first_open, self.first_slot) = (NONE, NONE),
        }
    }

    fn set_first_open(&mut self, open: u32, opens: &Slab<Open>) {
        let Open { process, flags, slot, .. } = &opens[open];
        (self.first_open, self.first_process, self.first_slot) = (open, process.0, slot.unwrap_or(NONE));
        self.marks.set(Marks::FIRST_MAY_SIGNAL, !flags.contains(SyncObjectFlags::NO_SIGNAL));
        self.marks.set(Marks::FIRST_MAY_WAIT, !flags.contains(SyncObjectFlags::NO_WAIT));
    }

    // Waits that this object's value holds up, lowest value first, then in the order they came.

    fn first_waiter(&self) -> Option<Entry> {
        let (key, wait) = (self.least_waited, self.first_wait);
        self.first_item.map(|item| Entry { key, wait, item: u32::from(item) })
    }

    fn set_first_waiter(&mut self, first: Option<Entry>) {
        let Some(Entry { key, wait, item }) = first else {
            (self.least_waited, self.first_item) = (u64::MAX, None);
            return;
        };
        // A wait has 32 items at most.
        (self.least_waited, self.first_wait, self.first_item) = (key, wait, Some(item as u8));
    }

    fn next_waiter_is_first(&mut self) {
        let next = self.rare.as_mut().and_then(|rare| rare.waiters.pop_first());
        self.set_first_waiter(next);
    }

    /// The least value that anybody waits for.
    pub fn least_waited(&self) -> Option<u64> {
        self.first_item.map(|_| self.least_waited)
    }

    pub fn waiters_count(&self) -> usize {
        usize::from(self.first_item.is_some()) + self.rare.as_ref().map_or(0, |rare| rare.waiters.len())
    }

    pub fn waiters(&self) -> impl Iterator<Item = Entry> {
        let others = self.rare.iter().flat_map(|rare| rare.waiters.iter().copied());
        self.first_waiter().into_iter().chain(others)
    }

    /// Who waits for the highest value.
    pub fn last_waiter(&self) -> Option<Entry> {
        let others = self.rare.as_ref().and_then(|rare| rare.waiters.last().copied());
        others.or_else(|| self.first_waiter())
    }

    /// Whether its value can have reached a waiter's. It may say so in vain at `u64::MAX`.
    pub fn may_wake(&self) -> bool {
        self.value >= self.least_waited
    }

    /// Behind all that wait for the same value.
    pub fn add_waiter(&mut self, entry: Entry) {
        match self.first_waiter() {
            None => self.set_first_waiter(Some(entry)),
            Some(first) if entry.key < first.key => {
                self.rare.get_or_insert_default().waiters.push_front(first);
                self.set_first_waiter(Some(entry));
            }
            Some(_) => self.rare.get_or_insert_default().waiters.insert(entry),
        }
    }

    /// Takes out the first waiter if the value has reached its.
    pub fn pop_reached(&mut self) -> Option<Entry> {
        let first = self.first_waiter().filter(|first| first.key <= self.value)?;
        self.next_waiter_is_first();
        Some(first)
    }

    /// Takes out the one that waits for this value and that `among_equals` calls equal: see [`Ordered::remove`].
    pub fn remove_waiter(&mut self, value: u64, among_equals: impl Fn(&Entry) -> Ordering) {
        match self.first_waiter() {
            Some(first) if first.key == value && among_equals(&first).is_eq() => self.next_waiter_is_first(),
            _ => {
                if let Some(rare) = &mut self.rare {
                    rare.waiters.remove(value, among_equals);
                }
            }
        }
    }
}
