//! The pending CPU waits of one process, by the guest's names for them.
//!
//! A wait that ends is not looked up here, because that would cost more than all the rest of its wake-up. Its entry
//! becomes *stale* - its slot has another wait by then, or none - and is swept later, with its neighbours. Each time a
//! wait is added or ends while more than a quarter of the entries are stale, one chunk of them is swept; so there are
//! never many more entries than four for three waits, and no call pays for more than one chunk.

use d3dkmt::EventId;
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::sync::ordered::{Entry, Ordered};
use crate::sync::waits::{WaitId, Waits};

/// Number of stale entries that is not worth sweeping.
const STALE_KEPT: usize = 64;

/// The pending CPU waits of one process, by name.
#[derive(Default, Debug, Serialize, Deserialize)]
pub(crate) struct Names {
    entries: Ordered,
    pending: usize,
    /// Which chunk is swept next.
    next: usize,
}

impl Names {
    /// How many waits are pending.
    pub fn len(&self) -> usize {
        self.pending
    }

    /// The slot of the pending wait of this name.
    pub fn find(&self, process: ProcessId, event: EventId, waits: &Waits) -> Option<u32> {
        let slot = self.entries.find(event.0)?.wait;
        waits.is_named(slot, process, event).then_some(slot)
    }

    /// Adds the name of a pending wait, which no other has.
    pub fn insert(&mut self, process: ProcessId, event: EventId, slot: u32, waits: &Waits) {
        self.pending += 1;
        match self.entries.find_mut(event.0) {
            Some(stale) => stale.wait = slot,
            None => self.entries.insert(Entry { key: event.0, wait: slot, item: 0 }),
        }
        self.sweep(process, waits);
    }

    /// Counts a wait that has ended. Returns how many chunks were swept.
    pub fn forget(&mut self, process: ProcessId, waits: &Waits) -> u32 {
        self.pending -= 1;
        if self.pending == 0 {
            self.entries.clear();
            return 0;
        }
        u32::from(self.sweep(process, waits))
    }

    /// Removes the pending wait with the lowest name, which is about to end, and stale entries before it.
    pub fn pop(&mut self, process: ProcessId, waits: &Waits) -> Option<WaitId> {
        loop {
            let Entry { key, wait, .. } = self.entries.pop_first()?;
            if waits.is_named(wait, process, EventId(key)) {
                return Some(waits.id(wait));
            }
        }
    }

    fn sweep(&mut self, process: ProcessId, waits: &Waits) -> bool {
        let stale = self.entries.len() - self.pending;
        let is_worth_it = stale > STALE_KEPT + self.pending / 3;
        if is_worth_it {
            let is_live = |entry: &Entry| waits.is_named(entry.wait, process, EventId(entry.key));
            self.next = self.entries.retain_in_chunk(self.next, is_live);
        }
        is_worth_it
    }
}
