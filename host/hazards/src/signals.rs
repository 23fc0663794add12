//! The signals of a fence, and which of them a wait relies on.

use alloc::collections::btree_map::{BTreeMap, Entry};

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::limits::SIGNALS_PER_FENCE_MAX;

/// The signals of a fence.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Signals {
    /// Clock of each signaled value.
    clocks: BTreeMap<u64, Clock>,
    /// Join of the clocks that were dropped: of signals over the limit, and of those before a rewind.
    dropped: Clock,
    /// Earlier signals of the fence may be in `Checker::lost`.
    pub is_incomplete: bool,
    /// The value at its creation, until a rewind below it: a wait for no more relies on no signal.
    created: Option<u64>,
    /// Join of the clocks of the queues that have reached a broadcast, for each that is not complete.
    broadcasts: BTreeMap<u32, Clock>,
    /// Join of those over the limit.
    dropped_broadcasts: Clock,
}

impl Signals {
    pub fn new(is_incomplete: bool, created: Option<u64>) -> Self {
        Signals { is_incomplete, created, ..Signals::default() }
    }

    pub fn words(&self) -> usize {
        let clocks = self.clocks.values().chain(self.broadcasts.values());
        clocks.chain([&self.dropped, &self.dropped_broadcasts]).map(Clock::words).sum()
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut Clock> {
        let clocks = self.clocks.values_mut().chain(self.broadcasts.values_mut());
        clocks.chain([&mut self.dropped, &mut self.dropped_broadcasts])
    }

    /// Clock that a wait for a value relies on: that of the first signal which reached it.
    pub fn of_wait(&self, value: u64) -> Clock {
        if self.created.is_some_and(|created| value <= created) {
            return Clock::default();
        }
        let first = self.clocks.range(value..).next().map(|(_, clock)| clock);
        first.unwrap_or(&self.dropped).clone()
    }

    /// The fence gets a value.
    pub fn signal(&mut self, value: u64, clock: Clock) {
        self.created = self.created.filter(|created| value >= *created);
        // After a rewind, later waits match only later signals, or what one that was satisfied before it relied on.
        while let Some(rewound) = self.clocks.last_entry().filter(|last| *last.key() > value) {
            self.dropped.join(&rewound.remove());
        }
        match self.clocks.entry(value) {
            Entry::Vacant(first) => drop(first.insert(clock)),
            // Of what is acquired, each release counts. Other waits may have ended with the first signal.
            Entry::Occupied(mut earlier) if value == 0 => earlier.get_mut().join(&clock),
            Entry::Occupied(_) => {}
        }
        if self.clocks.len() > SIGNALS_PER_FENCE_MAX
            && let Some((_, oldest)) = self.clocks.pop_first()
            && let Some(mut next) = self.clocks.first_entry()
        {
            // A wait for the oldest now relies on the next.
            next.get_mut().join(&oldest);
        }
    }

    /// A queue reaches a broadcast, and others have not.
    pub fn reach(&mut self, broadcast: u32, clock: Clock) {
        self.broadcasts.entry(broadcast).or_default().join(&clock);
        if self.broadcasts.len() > SIGNALS_PER_FENCE_MAX
            && let Some((_, any)) = self.broadcasts.pop_first()
        {
            self.dropped_broadcasts.join(&any);
        }
    }

    pub fn forget_broadcast(&mut self, broadcast: u32) {
        self.broadcasts.remove(&broadcast);
    }

    /// The last queue reaches a broadcast.
    pub fn complete(&mut self, broadcast: u32, value: u64, mut clock: Clock) {
        clock.join(&self.broadcasts.remove(&broadcast).unwrap_or_default());
        clock.join(&self.dropped_broadcasts);
        self.signal(value, clock);
    }
}
