//! Command buffers that wait for an engine, and the choice of the next (SCH-042, GPV-032).
//!
//! ```text
//!   VM: one client each, the host's processes together     the least engine time first (`shares.rs`)
//!     level: class of the process, then priority of the context    the highest first
//!       turns, in the order in which they were asked for             the oldest first: round robin
//!         a turn is its process's: of what that process has ready at this level, the context with the
//!         highest in-process priority takes it, of equal ones the oldest
//! ```
//! So no priority gets a VM ahead of another. Paging buffers go before everything else. Inside a VM they have their own
//! levels: one for each priority of paging queues (FEN-092), one for paging contexts, and one for the buffer that the
//! engine gave back (SCH-008).
//!
//! Levels do not starve lower ones: of [`BUFFERS_PER_ROUND`] other buffers of a VM, one is chosen by age, whatever its
//! level. It counts as above all levels, so that only paging buffers preempt it.
//!
//! So the priority inside of a process never gets that process ahead of another. The documents give the two parts but
//! not how they combine. That the class comes first is this model's reading.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{ProcessId, VmId};

/// Class of the process and priority of the context in one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Level(i64);

impl Level {
    /// `class` IDLE 0 to REALTIME 5; `priority` -7 to 7.
    pub fn new(class: u32, priority: i32) -> Self {
        Level(i64::from(class) * 16 + i64::from(priority))
    }

    /// A buffer that was chosen by age: only paging buffers preempt it.
    pub const OWED: Level = Level((1 << 48) - 1);
    /// Paging contexts.
    pub const PAGING_CONTEXT: Level = Level(1 << 48);
    /// A paging buffer that was preempted.
    pub const PAGING_AGAIN: Level = Level(i64::MAX);

    /// Paging queues: `priority` -1 to 1.
    pub fn paging(priority: i32) -> Self {
        Level(Self::PAGING_CONTEXT.0 + i64::from(priority) + 2)
    }

    pub fn is_paging(self) -> bool {
        self >= Self::PAGING_CONTEXT
    }
}

/// The position of a ready command buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ReadyPosition {
    pub level: Level,
    pub in_process: i32,
    /// When it became ready: smaller is older.
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
    /// Lowest first: the negated priority, when it became ready, and the queue.
    queues: BTreeSet<(i32, u64, u32)>,
}

/// Of so many buffers of a VM, one is chosen by age and not by its level.
const BUFFERS_PER_ROUND: u32 = 16;

/// Command buffers that one VM has ready: its paging buffers, or the others.
#[derive(Default, Serialize, Deserialize)]
struct OfVm {
    levels: BTreeMap<Level, Round>,
}

impl OfVm {
    fn insert(&mut self, process: ProcessId, queue: u32, position: ReadyPosition) {
        let round = self.levels.entry(position.level).or_default();
        // Another context of the process may have this turn, because this one was chosen ahead of it. The next free
        // turn serves as well.
        let turn = (position.turn..).find(|turn| !round.turns.contains_key(turn)).unwrap_or(position.turn);
        round.turns.insert(turn, process);
        let own = round.of_process.entry(process).or_default();
        own.turns.insert(turn);
        own.queues.insert((-position.in_process, position.turn, queue));
    }

    fn highest(&self) -> Option<Level> {
        Some(*self.levels.last_key_value()?.0)
    }

    /// The level and the turn of the next buffer: of the highest level if `by_level`, else the oldest of all.
    fn first(&self, by_level: bool) -> Option<(Level, u64)> {
        let first_of = |(level, round): (&Level, &Round)| Some((*level, *round.turns.first_key_value()?.0));
        if !by_level {
            return self.levels.iter().filter_map(first_of).min_by_key(|(_, turn)| *turn);
        }
        self.levels.last_key_value().and_then(first_of)
    }

    /// The queue that comes next, with its process, its place, and the turn that it takes.
    fn next(&self, by_level: bool) -> Option<(ProcessId, u32, ReadyPosition, u64)> {
        let (level, turn) = self.first(by_level)?;
        let round = self.levels.get(&level)?;
        let process = *round.turns.get(&turn)?;
        let (in_process, requested_turn, queue) = *round.of_process.get(&process)?.queues.first()?;
        Some((process, queue, ReadyPosition { level, in_process: -in_process, turn: requested_turn }, turn))
    }

    fn take(&mut self, by_level: bool) -> Option<u32> {
        let (process, queue, position, turn) = self.next(by_level)?;
        self.remove_with(process, queue, position, turn).then_some(queue)
    }

    fn remove(&mut self, process: ProcessId, queue: u32, position: ReadyPosition) -> bool {
        // Another context of the process may have used its turn. Then that one's turn is left over.
        let leftover_turn = |round: &Round| {
            let turns = &round.of_process.get(&process)?.turns;
            turns.get(&position.turn).or(turns.last()).copied()
        };
        let turn = self.levels.get(&position.level).and_then(leftover_turn);
        turn.is_some_and(|turn| self.remove_with(process, queue, position, turn))
    }

    fn remove_with(&mut self, process: ProcessId, queue: u32, position: ReadyPosition, turn: u64) -> bool {
        let Some(round) = self.levels.get_mut(&position.level) else { return false };
        let Some(own) = round.of_process.get_mut(&process) else { return false };
        if !own.queues.remove(&(-position.in_process, position.turn, queue)) {
            return false;
        }
        own.turns.remove(&turn);
        round.turns.remove(&turn);
        if own.queues.is_empty() {
            round.of_process.remove(&process);
        }
        if round.of_process.is_empty() {
            self.levels.remove(&position.level);
        }
        true
    }
}

/// The next ready command buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct First {
    pub vm: VmId,
    pub level: Level,
    /// Only a higher level preempts it: see the module.
    pub counts_as: Level,
}

/// The queues whose command buffer waits for one engine.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Ready {
    paging: BTreeMap<VmId, OfVm>,
    work: BTreeMap<VmId, OfVm>,
    count: usize,
    /// Buffers of each VM that were chosen since the last that was chosen by age.
    chosen: BTreeMap<VmId, u32>,
}

impl Ready {
    pub fn len(&self) -> usize {
        self.count
    }

    fn class(&mut self, level: Level) -> &mut BTreeMap<VmId, OfVm> {
        if level.is_paging() { &mut self.paging } else { &mut self.work }
    }

    pub fn insert(&mut self, vm: VmId, process: ProcessId, queue: u32, position: ReadyPosition) {
        self.class(position.level).entry(vm).or_default().insert(process, queue, position);
        self.count += 1;
    }

    /// Whether the ready buffers of each process have as many turns.
    pub fn is_sound(&self) -> bool {
        let vms = || self.paging.values().chain(self.work.values());
        let rounds = || vms().flat_map(|vm| vm.levels.values());
        let each = |own: &OfProcess| own.turns.len() == own.queues.len() && !own.queues.is_empty();
        let queues = rounds().flat_map(|round| round.of_process.values()).map(|own| own.queues.len());
        let turns = rounds().map(|round| round.turns.len());
        vms().all(|vm| !vm.levels.is_empty())
            && rounds().all(|round| round.of_process.values().all(each))
            && (queues.sum::<usize>(), turns.sum::<usize>()) == (self.count, self.count)
    }

    /// VMs with anything ready, some perhaps twice.
    pub fn vms(&self) -> impl Iterator<Item = VmId> {
        self.paging.keys().chain(self.work.keys()).copied()
    }

    /// The highest level of a VM's ready buffers, without paging buffers.
    pub fn highest_of(&self, vm: VmId) -> Option<Level> {
        self.work.get(&vm)?.highest()
    }

    /// Whether the next buffer of a VM is chosen by its level. Paging buffers always are, because one that the engine
    /// gave back keeps its id.
    fn is_by_level(&self, vm: VmId) -> bool {
        !self.paging.is_empty() || self.chosen.get(&vm).is_none_or(|chosen| chosen + 1 < BUFFERS_PER_ROUND)
    }

    /// The next buffer: a paging buffer that the engine gave back, because its id is older than any other; else of the
    /// VM that `rank` puts first, of equal ones the oldest.
    pub fn first<R: Ord>(&self, rank: impl Fn(VmId) -> R) -> Option<First> {
        let class = if self.paging.is_empty() { &self.work } else { &self.paging };
        let of_vm = class.iter().filter_map(|(vm, of_vm)| {
            let by_level = self.is_by_level(*vm);
            let (level, turn) = of_vm.first(by_level)?;
            let counts_as = if by_level { level } else { Level::OWED };
            Some(((level != Level::PAGING_AGAIN, rank(*vm), turn), First { vm: *vm, level, counts_as }))
        });
        of_vm.min_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, first)| first)
    }

    /// The queue of the buffer that [`Ready::first`] returned.
    pub fn queue_of(&self, first: First) -> Option<u32> {
        let class = if first.level.is_paging() { &self.paging } else { &self.work };
        let (_, queue, ..) = class.get(&first.vm)?.next(self.is_by_level(first.vm))?;
        Some(queue)
    }

    /// Removes the buffer that [`Ready::first`] returned. Returns its queue.
    pub fn take(&mut self, first: First) -> Option<u32> {
        let by_level = self.is_by_level(first.vm);
        let of_vm = self.class(first.level).get_mut(&first.vm)?;
        let queue = of_vm.take(by_level)?;
        if !first.level.is_paging() {
            let chosen = self.chosen.entry(first.vm).or_default();
            *chosen = if by_level { *chosen + 1 } else { 0 };
        }
        self.removed(first.vm, first.level);
        Some(queue)
    }

    /// Counts a buffer of this VM that came back before it began as not chosen. `was_owed`: it was chosen by age, and
    /// is still the next.
    pub fn came_back(&mut self, vm: VmId, was_owed: bool) {
        let chosen = self.chosen.entry(vm).or_default();
        *chosen = if was_owed { BUFFERS_PER_ROUND - 1 } else { chosen.saturating_sub(1) };
    }

    /// Forgets a VM that is gone.
    pub fn forget(&mut self, vm: VmId) {
        self.chosen.remove(&vm);
    }

    /// Removes a queue whose buffer is no longer ready.
    pub fn remove(&mut self, vm: VmId, process: ProcessId, queue: u32, position: ReadyPosition) {
        let of_vm = self.class(position.level).get_mut(&vm);
        if of_vm.is_some_and(|of_vm| of_vm.remove(process, queue, position)) {
            self.removed(vm, position.level);
        }
    }

    fn removed(&mut self, vm: VmId, level: Level) {
        self.count -= 1;
        let class = self.class(level);
        if class.get(&vm).is_some_and(|of_vm| of_vm.levels.is_empty()) {
            class.remove(&vm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_sixteen_is_the_one_that_has_waited_longest() {
        let mut ready = Ready::default();
        let position_at = |class, turn| ReadyPosition { level: Level::new(class, 0), in_process: 0, turn };
        ready.insert(VmId(1), ProcessId(2), 9, position_at(0, 1));
        let mut low = alloc::vec::Vec::new();
        for turn in 2..66 {
            ready.insert(VmId(1), ProcessId(1), 1, position_at(5, turn));
            let first = ready.first(|_| 0).unwrap();
            let taken = ready.take(first);
            assert_eq!(first.counts_as == Level::OWED, taken == Some(9));
            if taken == Some(9) {
                low.push(turn);
                ready.remove(VmId(1), ProcessId(1), 1, position_at(5, turn));
                ready.insert(VmId(1), ProcessId(2), 9, position_at(0, turn));
            }
        }
        assert_eq!(low, [17, 33, 49, 65]);
    }
}
