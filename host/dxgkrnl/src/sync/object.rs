//! State of a synchronization object, except for what a signal of a plain fence needs: see `objects.rs`.
//!
//! State that most objects do not have - a second waiter, a second open, a global handle - is in a box.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

use bitflags::bitflags;
use d3dkmt::{Handle, SyncObjectFlags, SyncObjectType};
use serde::{Deserialize, Serialize};

use crate::slab::Slab;
use crate::sync::open::Open;
use crate::sync::ordered::{Entry, Ordered};

/// No open.
const NONE: u32 = u32::MAX;

bitflags! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    struct Marks: u8 {
        const FIRST_MAY_SIGNAL = 1;
        const FIRST_MAY_WAIT = 2;
        const POISONED = 4;
        const WATCHED = 8;
        /// The last handle and NT handle of it are gone.
        const DESTROYED = 16;
        /// Its waits are still to be released because of that.
        const RELEASE_DUE = 32;
        /// Its adapter was stopped since, and started again.
        const REMOVED = 64;
        /// Its adapter was removed from a VM that has it, while another VM has it too: opens are checked.
        const OPENS_REMOVED = 128;
    }
}

/// State of a synchronization object, except for what a signal of a plain fence needs.
#[derive(Serialize, Deserialize)]
pub(crate) struct SyncObject {
    rare: Option<Box<Rare>>,
    pub object_type: SyncObjectType,
    pub flags: SyncObjectFlags,
    pub adapter: u32,
    /// Shares and queued packets that keep it alive.
    pub references: u32,
    /// The oldest of its opens, or [`NONE`].
    first_open: u32,
    marks: Marks,
}

/// State that most objects do not have.
#[derive(Default, Serialize, Deserialize)]
struct Rare {
    /// All waiters but the first.
    waiters: Ordered,
    /// All opens but the oldest, in the order of their creation.
    opens: Vec<u32>,
    /// Legacy sharing: its global handle.
    global: Option<Handle>,
    /// NT handles of it.
    shares: u32,
}

impl SyncObject {
    pub fn new(object_type: SyncObjectType, flags: SyncObjectFlags, adapter: u32) -> Self {
        SyncObject {
            rare: None,
            object_type,
            flags,
            adapter,
            references: 0,
            first_open: NONE,
            marks: Marks::empty(),
        }
    }

    /// Whether it is a plain fence: see `objects.rs`.
    pub fn is_plain(&self) -> bool {
        self.object_type == SyncObjectType::MONITORED_FENCE
            && !self.flags.contains(SyncObjectFlags::CROSS_ADAPTER)
            && self.opens_count() == 1
            && self.marks == Marks::FIRST_MAY_SIGNAL | Marks::FIRST_MAY_WAIT
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

    pub fn is_poisoned(&self) -> bool {
        self.marks.contains(Marks::POISONED)
    }

    pub fn set_poisoned(&mut self, poisoned: bool) {
        self.marks.set(Marks::POISONED, poisoned);
    }

    pub fn is_removed(&self) -> bool {
        self.marks.contains(Marks::REMOVED)
    }

    pub fn set_removed(&mut self) {
        self.marks.insert(Marks::REMOVED);
    }

    pub fn set_opens_removed(&mut self) {
        self.marks.insert(Marks::OPENS_REMOVED);
    }

    pub fn is_watched(&self) -> bool {
        self.marks.contains(Marks::WATCHED)
    }

    pub fn set_watched(&mut self) {
        self.marks.insert(Marks::WATCHED);
    }

    // NT handles, and the end of all handles.

    pub fn add_share(&mut self) {
        self.rare.get_or_insert_default().shares += 1;
    }

    pub fn remove_share(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.shares -= 1;
        }
    }

    /// Whether a process can still name it, by a handle or by an NT handle.
    pub fn has_handles(&self) -> bool {
        self.is_open() || self.is_shared()
    }

    /// Whether there is an NT handle of it.
    pub fn is_shared(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.shares > 0)
    }

    pub fn is_destroyed(&self) -> bool {
        self.marks.contains(Marks::DESTROYED)
    }

    /// Marks it as destroyed; true the first time.
    pub fn set_destroyed(&mut self) -> bool {
        let is_first = !self.is_destroyed();
        if is_first {
            self.marks.insert(Marks::DESTROYED | Marks::RELEASE_DUE);
        }
        is_first
    }

    /// Whether its waits are still to be released: true once.
    pub fn take_release_due(&mut self) -> bool {
        let is_due = self.marks.contains(Marks::RELEASE_DUE);
        self.marks.remove(Marks::RELEASE_DUE);
        is_due
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

    /// Whether an open allows its process what these flags, NoSignal or NoWait, deny.
    pub fn may(&self, open: u32, denied_by: SyncObjectFlags, opens: &Slab<Open>) -> bool {
        if open != self.first_open {
            return !opens[open].flags.intersects(denied_by);
        }
        let marks = self.marks;
        (marks.contains(Marks::FIRST_MAY_SIGNAL) || !denied_by.contains(SyncObjectFlags::NO_SIGNAL))
            && (marks.contains(Marks::FIRST_MAY_WAIT) || !denied_by.contains(SyncObjectFlags::NO_WAIT))
    }

    /// Adds an open, which must be complete.
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
            None => {
                self.first_open = NONE;
                self.marks.remove(Marks::FIRST_MAY_SIGNAL | Marks::FIRST_MAY_WAIT);
            }
        }
    }

    fn set_first_open(&mut self, open: u32, opens: &Slab<Open>) {
        let flags = opens[open].flags;
        self.first_open = open;
        self.marks.set(Marks::FIRST_MAY_SIGNAL, !flags.contains(SyncObjectFlags::NO_SIGNAL));
        self.marks.set(Marks::FIRST_MAY_WAIT, !flags.contains(SyncObjectFlags::NO_WAIT));
    }

    // All waiters but the first, in their order.

    pub fn other_waiters(&self) -> impl Iterator<Item = Entry> {
        self.rare.iter().flat_map(|rare| rare.waiters.iter().copied())
    }

    /// The waiters from this position on: see [`Ordered::iter_from`].
    pub fn other_waiters_from(
        &self,
        value: u64,
        among_equals: impl Fn(&Entry) -> Ordering,
    ) -> impl Iterator<Item = Entry> {
        let rare = self.rare.as_ref();
        rare.map(|rare| rare.waiters.iter_from(value, among_equals).copied()).into_iter().flatten()
    }

    pub fn other_waiters_count(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.waiters.len())
    }

    pub fn last_other_waiter(&self) -> Option<Entry> {
        self.rare.as_ref().and_then(|rare| rare.waiters.last().copied())
    }

    pub fn pop_other_waiter(&mut self) -> Option<Entry> {
        self.rare.as_mut().and_then(|rare| rare.waiters.pop_first())
    }

    /// Adds a waiter before the others. Its value must not be above theirs.
    pub fn push_front_waiter(&mut self, entry: Entry) {
        self.rare.get_or_insert_default().waiters.push_front(entry);
    }

    /// Adds a waiter behind all that wait for the same value.
    pub fn add_other_waiter(&mut self, entry: Entry) {
        self.rare.get_or_insert_default().waiters.insert(entry);
    }

    /// See [`Ordered::remove`].
    pub fn remove_other_waiter(&mut self, value: u64, among_equals: impl Fn(&Entry) -> Ordering) {
        if let Some(rare) = &mut self.rare {
            rare.waiters.remove(value, among_equals);
        }
    }
}

const _: () = assert!(Slab::<SyncObject>::ENTRY_BYTES == 40);
