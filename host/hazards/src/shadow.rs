//! The last accesses of each range of bytes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use d3dkmt::isa::{BarrierAccess, BarrierSync};
use serde::{Deserialize, Serialize};

use crate::CommandId;
use crate::checker::Range;
use crate::limits::{CELLS_MAX, READS_PER_CELL_MAX};

/// Record of one access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub agent: u32,
    /// The agent's count at this access.
    pub number: u64,
    /// Umbrella scopes expanded; none for a CPU.
    pub scopes: BarrierSync,
    /// See [`crate::Access::others`].
    pub others: BarrierSync,
    pub access: BarrierAccess,
    pub writes: bool,
    pub command: CommandId,
    /// Access types that see the write, in addition to its own, by barriers on its range and by the first
    /// `globals_seen` global barriers of its submission.
    pub visible: BarrierAccess,
    pub globals_seen: u64,
}

impl Stamp {
    /// The sets of scopes, each of which represents the access.
    pub fn scope_sets(&self) -> impl Iterator<Item = BarrierSync> + use<> {
        let is_set = !self.scopes.is_empty() || self.others.is_empty();
        is_set.then_some(self.scopes).into_iter().chain(self.others.iter())
    }
}

/// A range of bytes with the same access history.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cell {
    end: u64,
    pub write: Option<Stamp>,
    /// Reads since the write.
    pub reads: Vec<Stamp>,
}

impl Cell {
    /// Records an access. Returns the number of older accesses that it dropped.
    fn record(&mut self, stamp: Stamp) -> usize {
        if stamp.writes {
            self.write = Some(stamp);
            self.reads.clear();
            return 0;
        }
        // A later read replaces an earlier one with the same agent, scopes and type.
        let same = |read: &&mut Stamp| {
            (read.agent, read.scopes, read.others, read.access)
                == (stamp.agent, stamp.scopes, stamp.others, stamp.access)
        };
        if let Some(read) = self.reads.iter_mut().find(same) {
            *read = stamp;
            return 0;
        }
        let forgotten = usize::from(self.reads.len() >= READS_PER_CELL_MAX);
        if forgotten > 0 {
            self.reads.remove(0);
        }
        self.reads.push(stamp);
        forgotten
    }
}

/// All cells, by space and first byte. Disjoint.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Cells {
    cells: BTreeMap<(u32, u64), Cell>,
    /// Number of accesses that were dropped.
    pub forgotten: u64,
}

impl Cells {
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Calls `visit` for every cell of a range, then records the access there.
    pub fn access(&mut self, range: Range, stamp: Stamp, mut visit: impl FnMut(Range, &Cell)) {
        self.split_at(range.space, range.start);
        self.split_at(range.space, range.end);
        let mut at = range.start;
        let mut gaps = Vec::new();
        for ((_, start), cell) in self.cells.range_mut((range.space, range.start)..(range.space, range.end)) {
            if *start > at {
                gaps.push((at, *start));
            }
            visit(Range { start: *start, end: cell.end, ..range }, cell);
            self.forgotten += cell.record(stamp) as u64;
            at = cell.end;
        }
        if at < range.end {
            gaps.push((at, range.end));
        }
        for (start, end) in gaps {
            let mut cell = Cell { end, ..Cell::default() };
            cell.record(stamp);
            self.cells.insert((range.space, start), cell);
        }
        self.bound();
    }

    /// Every cell of a range; gaps have none.
    pub fn in_range(&mut self, range: Range) -> impl Iterator<Item = &mut Cell> {
        self.split_at(range.space, range.start);
        self.split_at(range.space, range.end);
        self.cells.range_mut((range.space, range.start)..(range.space, range.end)).map(|(_, cell)| cell)
    }

    fn split_at(&mut self, space: u32, at: u64) {
        let Some((_, cell)) = self.cells.range_mut((space, 0)..(space, at)).next_back() else { return };
        if cell.end > at {
            let rest = cell.clone();
            cell.end = at;
            self.cells.insert((space, at), rest);
        }
    }

    /// Drops half of the cells above the limit, those at the lowest addresses, because their age is not known.
    fn bound(&mut self) {
        if self.cells.len() <= CELLS_MAX {
            return;
        }
        let middle = self.cells.keys().nth(CELLS_MAX / 2).copied().expect("there are more");
        let kept = self.cells.split_off(&middle);
        self.forgotten += self.cells.len() as u64;
        self.cells = kept;
    }

    /// Drops the cells of a range. Looks at no others.
    pub fn forget(&mut self, range: Range) {
        self.split_at(range.space, range.start);
        self.split_at(range.space, range.end);
        let Range { space, start, end } = range;
        while let Some((at, _)) = self.cells.range((space, start)..(space, end)).next() {
            let at = *at;
            self.cells.remove(&at);
        }
    }
}
