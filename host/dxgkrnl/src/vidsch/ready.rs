//! What is ready for an engine and not yet with it: the choice of what comes next (SCH-042).
//!
//! ```text
//!   level: class of the process, then priority of the context    the highest first
//!     turns, in the order in which they were asked for           the oldest first: round robin
//!       a turn is its process's: of what that process has ready at this level, the context with the
//!       highest in-process priority takes it, of equal ones the oldest
//! ```
//! Paging buffers have levels of their own above all others: one for each paging queue, by its priority and age
//! (FEN-092), one for what paging contexts have, and one for the buffer that the engine gave back (SCH-008).
//!
//! So the priority inside of a process never gets that process ahead of another. The documents give the two
//! parts and not how they combine: that the class comes first is our reading.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ProcessId;

/// Class of the process and priority of the context in one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Level(i64);

impl Level {
    /// `class` IDLE 0 to REALTIME 5; `priority` -7 to 7.
    pub fn new(class: u32, priority: i32) -> Self {
        Level(i64::from(class) * 16 + i64::from(priority))
    }

    /// Companions of contexts.
    pub const PAGING_CONTEXT: Level = Level(1 << 48);
    /// A paging buffer that was preempted.
    pub const PAGING_AGAIN: Level = Level(i64::MAX);

    /// Paging queues: `priority` -1 to 1; of equal ones the older, which has the smaller number, is first.
    pub fn paging(priority: i32, number: u64) -> Self {
        const NUMBERS: i64 = 1 << 40;
        let age = NUMBERS - (number as i64).min(NUMBERS);
        Level(Self::PAGING_CONTEXT.0 + (i64::from(priority) + 2) * NUMBERS + age)
    }

    pub fn is_paging(self) -> bool {
        self >= Self::PAGING_CONTEXT
    }
}

/// Where something that is ready stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub level: Level,
    pub in_process: i32,
    /// When it asked: smaller is older.
    pub turn: u64,
}

#[derive(Default, Serialize, Deserialize)]
struct Round {
    turns: BTreeMap<u64, ProcessId>,
    of_process: BTreeMap<ProcessId, OfProcess>,
}

#[derive(Default, Serialize, Deserialize)]
struct OfProcess {
    turns: BTreeSet<u64>,
    /// Lowest first: the negated priority, when it asked, and the queue.
    queues: BTreeSet<(i32, u64, u32)>,
}

/// The queues whose command buffer waits for one engine.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Ready {
    levels: BTreeMap<Level, Round>,
    count: usize,
}

impl Ready {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn insert(&mut self, process: ProcessId, queue: u32, place: Place) {
        let round = self.levels.entry(place.level).or_default();
        // Its turn may stand here for another context of its process, which this one went ahead of: the next is as good.
        let turn = (place.turn..).find(|turn| !round.turns.contains_key(turn)).unwrap_or(place.turn);
        round.turns.insert(turn, process);
        let own = round.of_process.entry(process).or_default();
        own.turns.insert(turn);
        own.queues.insert((-place.in_process, place.turn, queue));
        self.count += 1;
    }

    /// Each that is ready has a turn, and each turn somebody.
    pub fn is_sound(&self) -> bool {
        let rounds = || self.levels.values();
        let each = |own: &OfProcess| own.turns.len() == own.queues.len() && !own.queues.is_empty();
        let queues = rounds().flat_map(|round| round.of_process.values()).map(|own| own.queues.len());
        let turns = rounds().map(|round| round.turns.len());
        rounds().all(|round| round.of_process.values().all(each))
            && (queues.sum::<usize>(), turns.sum::<usize>()) == (self.count, self.count)
    }

    /// The level of what comes next.
    pub fn highest(&self) -> Option<Level> {
        self.levels.last_key_value().map(|(level, _)| *level)
    }

    /// Takes out what comes next.
    pub fn take(&mut self) -> Option<u32> {
        let (level, round) = self.levels.last_key_value()?;
        let process = *round.turns.first_key_value()?.1;
        let (in_process, turn, queue) = *round.of_process.get(&process)?.queues.first()?;
        let place = Place { level: *level, in_process: -in_process, turn };
        let first_turn = *round.turns.first_key_value()?.0;
        self.remove_with(process, queue, place, first_turn);
        Some(queue)
    }

    /// Takes out a queue that does not want to run any more.
    pub fn remove(&mut self, process: ProcessId, queue: u32, place: Place) {
        // Its own turn may have been taken by another context of its process: then that one's is left over.
        let left = |round: &Round| {
            let turns = &round.of_process.get(&process)?.turns;
            turns.get(&place.turn).or(turns.last()).copied()
        };
        if let Some(turn) = self.levels.get(&place.level).and_then(left) {
            self.remove_with(process, queue, place, turn);
        }
    }

    fn remove_with(&mut self, process: ProcessId, queue: u32, place: Place, turn: u64) {
        let Some(round) = self.levels.get_mut(&place.level) else { return };
        let Some(own) = round.of_process.get_mut(&process) else { return };
        if !own.queues.remove(&(-place.in_process, place.turn, queue)) {
            return;
        }
        own.turns.remove(&turn);
        round.turns.remove(&turn);
        self.count -= 1;
        if own.queues.is_empty() {
            round.of_process.remove(&process);
        }
        if round.of_process.is_empty() {
            self.levels.remove(&place.level);
        }
    }
}
