//! The order that barriers establish inside the current submission of a queue.

use alloc::boxed::Box;
use alloc::vec::Vec;

use d3dkmt::isa::{Barrier, BarrierAccess, BarrierSync};
use serde::{Deserialize, Serialize};

use crate::checker::Range;
use crate::limits::SPLITS_MAX;

/// Bits of a mask of scopes or of accesses.
const BITS: usize = 32;
type Row = [u64; BITS];

/// The first half of a split barrier.
#[derive(Serialize, Deserialize)]
struct Split {
    range: Option<Range>,
    waited: Row,
}

/// Barrier state of a queue. Commands are counted over the life of the queue.
#[derive(Serialize, Deserialize)]
pub(crate) struct Frontier {
    /// Commands so far.
    pub count: u64,
    /// Commands up to this number belong to earlier submissions: they are complete and visible to all.
    pub begun: u64,
    /// `after[t][s]`: later commands in scope t wait for the commands of scope s up to this number.
    after: Box<[Row; BITS]>,
    /// `visible[r][t]`: accesses of type r see the writes of type t up to this number.
    visible: Box<[Row; BITS]>,
    splits: Vec<Split>,
}

/// For each scope, the command up to which a barrier has waited.
#[derive(Serialize, Deserialize)]
pub(crate) struct Waited(Row);

impl Waited {
    /// Whether the barrier waited for command `number` in these scopes.
    pub fn covers(&self, scopes: BarrierSync, number: u64) -> bool {
        bits(scopes.bits()).all(|scope| self.0[scope] >= number)
    }
}

fn bits(mask: u32) -> impl Iterator<Item = usize> {
    let mut remaining = mask;
    core::iter::from_fn(move || {
        let bit = remaining.trailing_zeros();
        remaining &= remaining.wrapping_sub(1);
        (bit < u32::BITS).then_some(bit as usize)
    })
}

fn raise(row: &mut Row, by: &Row) {
    for (mine, other) in row.iter_mut().zip(by) {
        *mine = (*mine).max(*other);
    }
}

/// Access types of a mask: COMMON is all types, NO_ACCESS is none.
pub(crate) fn types(access: BarrierAccess) -> BarrierAccess {
    if access == BarrierAccess::COMMON {
        BarrierAccess::all() - BarrierAccess::NO_ACCESS
    } else {
        access - BarrierAccess::NO_ACCESS
    }
}

impl Default for Frontier {
    fn default() -> Self {
        let rows = || Box::new([[0; BITS]; BITS]);
        Frontier { count: 0, begun: 0, after: rows(), visible: rows(), splits: Vec::new() }
    }
}

impl Frontier {
    /// A submission begins: all earlier commands of the queue are complete.
    pub fn begin(&mut self) {
        self.begun = self.count;
        self.splits.clear();
    }

    /// Whether command `number` in `scopes` completes before a new command in the scopes `later` starts.
    pub fn is_before(&self, scopes: BarrierSync, number: u64, later: BarrierSync) -> bool {
        number <= self.begun
            || bits(later.bits()).all(|t| bits(scopes.bits()).all(|s| self.after[t][s] >= number))
    }

    /// Whether a global barrier made the write of command `number` visible to accesses of type `by`.
    pub fn is_visible(&self, written: BarrierAccess, number: u64, by: BarrierAccess) -> bool {
        let written = written & BarrierAccess::WRITES;
        number <= self.begun
            || bits(by.bits()).all(|r| bits(written.bits()).all(|t| self.visible[r][t] >= number))
    }

    /// Applies a barrier. Returns what it has waited for, or `None` for the first half of a split barrier and for a
    /// second half without a first.
    pub fn barrier(&mut self, barrier: &Barrier, range: Option<Range>) -> Option<Waited> {
        let waited = if barrier.sync_before == BarrierSync::SPLIT {
            let at = self.splits.iter().position(|split| split.range == range)?;
            self.splits.swap_remove(at).waited
        } else {
            self.wait_for(barrier.sync_before.expanded())
        };
        if barrier.sync_after == BarrierSync::SPLIT {
            if self.splits.len() < SPLITS_MAX {
                self.splits.push(Split { range, waited });
            }
            return None;
        }
        for t in bits(barrier.sync_after.expanded().bits()) {
            raise(&mut self.after[t], &waited);
        }
        if range.is_none() {
            self.make_all_visible(barrier, &waited);
        }
        Some(Waited(waited))
    }

    /// All commands so far in these scopes, and the commands that those waited for. This includes scopes without
    /// commands, because barriers with no command between them act as one.
    fn wait_for(&self, scopes: BarrierSync) -> Row {
        let mut waited = [self.begun; BITS];
        for s in bits(scopes.bits()) {
            raise(&mut waited, &self.after[s]);
            waited[s] = self.count;
        }
        waited
    }

    /// A global barrier makes every write visible that it waited for. The scope of an access type is not known here, so
    /// this uses the greatest number; the order of the two accesses is checked separately.
    fn make_all_visible(&mut self, barrier: &Barrier, waited: &Row) {
        let until = waited.iter().copied().max().unwrap_or(self.begun);
        for r in bits(types(barrier.access_after).bits()) {
            for t in bits((types(barrier.access_before) & BarrierAccess::WRITES).bits()) {
                self.visible[r][t] = self.visible[r][t].max(until);
            }
        }
    }
}
