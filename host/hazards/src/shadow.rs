//! The last accesses of each range of bytes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use d3dkmt::isa::{BarrierAccess, BarrierSync};
use serde::{Deserialize, Serialize};

use crate::CommandId;
use crate::checker::Range;
use crate::limits::{CELLS_MAX, READS_PER_CELL_MAX};

/// One access, as it is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub agent: u32,
    /// Which of the agent's doings.
    pub number: u64,
    /// Expanded; none for a CPU.
    pub scopes: BarrierSync,
    /// See [`crate::Access::others`].
    pub others: BarrierSync,
    pub access: BarrierAccess,
    pub writes: bool,
    pub command: CommandId,
    /// The types of access that see it, beside its own.
    pub visible: BarrierAccess,
}

impl Stamp {
    /// The sets of scopes of which each stands for the access.
    pub fn ways(&self) -> impl Iterator<Item = BarrierSync> + use<> {
        core::iter::once(self.scopes).chain(self.others.iter())
    }
}

/// Bytes that were accessed alike.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cell {
    end: u64,
    pub write: Option<Stamp>,
    /// Since the write.
    pub reads: Vec<Stamp>,
}

impl Cell {
    /// Remembers an access; gives how many are not remembered any more for that.
    fn record(&mut self, stamp: Stamp) -> usize {
        if stamp.writes {
            self.write = Some(stamp);
            self.reads.clear();
            return 0;
        }
        // A later read alike in everything stands for an earlier one of the same place in the order.
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

/// All cells: by the space of their addresses and their first byte. Disjoint.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Cells {
    cells: BTreeMap<(u32, u64), Cell>,
    /// Accesses that are not remembered any more.
    pub forgotten: u64,
}

impl Cells {
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Looks at every cell of a range with `look`, then remembers the access there.
    pub fn access(&mut self, range: Range, stamp: Stamp, mut look: impl FnMut(Range, &Cell)) {
        self.split_at(range.space, range.start);
        self.split_at(range.space, range.end);
        let mut at = range.start;
        let mut gaps = Vec::new();
        for ((_, start), cell) in self.cells.range_mut((range.space, range.start)..(range.space, range.end)) {
            if *start > at {
                gaps.push((at, *start));
            }
            look(Range { start: *start, end: cell.end, ..range }, cell);
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

    /// Every cell of a range, as they are.
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

    /// Which cells are old is not known; half of all go, from the lowest addresses on.
    fn bound(&mut self) {
        if self.cells.len() <= CELLS_MAX {
            return;
        }
        let middle = self.cells.keys().nth(CELLS_MAX / 2).copied().expect("there are more");
        let kept = self.cells.split_off(&middle);
        self.forgotten += self.cells.len() as u64;
        self.cells = kept;
    }

    pub fn forget_space(&mut self, space: u32) {
        self.cells.retain(|(of, _), _| *of != space);
    }

    pub fn forget_agent(&mut self, agent: u32) {
        self.cells.retain(|_, cell| {
            cell.write = cell.write.filter(|write| write.agent != agent);
            cell.reads.retain(|read| read.agent != agent);
            cell.write.is_some() || !cell.reads.is_empty()
        });
    }
}
