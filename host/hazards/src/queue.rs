//! The order that barriers establish inside the current submission of a queue.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use d3dkmt::isa::{Barrier, BarrierAccess, BarrierSync};
use serde::{Deserialize, Serialize};

use crate::checker::Range;
use crate::limits::{GLOBALS_FOLLOWED_MAX, SPLITS_MAX, VISITS_PER_SUBMISSION_MAX};
use crate::shadow::Stamp;

/// Bits of a mask of scopes or of accesses.
const BITS: usize = 32;
type Row = [u64; BITS];

/// A scope without commands. Before a barrier, it has the writes of DISCARD barriers; behind one, what barriers have waited
/// for whose SyncAfter has no scope (NONE or SPLIT): a DISCARD with such a SyncAfter comes after that.
pub(crate) const DISCARD: BarrierSync = BarrierSync::from_bits_retain(1 << 30);

/// The scopes that a DISCARD with this SyncAfter comes before, and whose barriers it waits for.
pub(crate) fn discard_scopes(sync_after: BarrierSync) -> BarrierSync {
    let scopes = sync_after.expanded();
    if scopes.is_empty() { DISCARD } else { scopes }
}

/// The first halves of split barriers on the same addresses. Barriers of several subresources of one resource may have the
/// same first and last byte, so there can be more than one.
#[derive(Serialize, Deserialize)]
struct Split {
    named: Option<Range>,
    /// What all of them have waited for.
    waited: Row,
    /// Number of those that have not ended.
    open: u32,
}

impl Split {
    fn overlaps(&self, named: Option<Range>) -> bool {
        let Some((own, other)) = self.named.zip(named) else { return false };
        own.space == other.space && own.start < other.end && other.start < own.end
    }

    fn is_within(&self, named: Option<Range>) -> bool {
        let Some((own, other)) = self.named.zip(named) else { return false };
        own.space == other.space && own.start >= other.start && own.end <= other.end
    }
}

/// A global barrier of the current submission.
#[derive(Serialize, Deserialize)]
struct Global {
    before: BarrierAccess,
    after: BarrierAccess,
    waited: Waited,
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
    /// The last global barriers of the submission, and the number of those before them.
    globals: VecDeque<Global>,
    globals_before: u64,
    /// `shown[r]`: accesses of type r count as seeing all writes up to this number, because of global barriers before
    /// `globals`.
    shown: Row,
    splits: Vec<Split>,
    /// Whether the submission has had more open split barriers than the limit.
    has_dropped_splits: bool,
    /// Ranges of memory that the submission has visited.
    visits: usize,
}

/// For each scope, the command up to which a barrier has waited.
#[derive(Serialize, Deserialize)]
pub(crate) struct Waited(Row);

impl Waited {
    /// Whether the barrier waited for command `number` in these scopes.
    fn covers(&self, scopes: BarrierSync, number: u64) -> bool {
        bits(scopes.bits()).all(|scope| self.0[scope] >= number)
    }

    /// Whether a barrier with this AccessBefore shows a write, which the types `seen` see, to its AccessAfter: it writes
    /// the write back, or continues a barrier that did.
    pub fn shows(&self, before: BarrierAccess, write: &Stamp, seen: BarrierAccess) -> bool {
        before.intersects(write.access & BarrierAccess::WRITES | seen)
            && write.scope_sets().any(|scopes| self.covers(scopes, write.number))
    }
}

/// The types of access from which a barrier shows writes, and those to which. What it shows is in memory as well, from where
/// a barrier with GLOBAL shows it.
pub(crate) fn effect(barrier: &Barrier) -> (BarrierAccess, BarrierAccess) {
    (barrier.access_before.types(), barrier.access_after.types() | BarrierAccess::GLOBAL)
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

impl Frontier {
    /// Of a queue whose commands are counted from here on.
    pub fn since(count: u64) -> Self {
        let rows = || Box::new([[0; BITS]; BITS]);
        Frontier {
            count,
            begun: count,
            after: rows(),
            globals: VecDeque::new(),
            globals_before: 0,
            shown: [0; BITS],
            splits: Vec::new(),
            has_dropped_splits: false,
            visits: 0,
        }
    }

    /// A submission begins: all earlier commands of the queue are complete.
    pub fn begin(&mut self) {
        self.finish_all();
        self.visits = 0;
    }

    /// Counts visits of ranges. False if the submission has none left.
    pub fn visit(&mut self, ranges: usize) -> bool {
        self.visits = self.visits.saturating_add(ranges);
        self.visits <= VISITS_PER_SUBMISSION_MAX
    }

    /// All commands so far are complete and visible.
    pub fn finish_all(&mut self) {
        self.begun = self.count;
        self.splits.clear();
        self.has_dropped_splits = false;
        self.globals.clear();
        self.globals_before = 0;
    }

    /// Number of global barriers of the submission so far.
    pub fn globals(&self) -> u64 {
        self.globals_before + self.globals.len() as u64
    }

    /// Whether command `number` in `scopes` completes before a new command in the scopes `later` starts. A barrier blocks
    /// a command of which it names one scope, but of an umbrella it must name each (BAR-094).
    pub fn is_before(&self, scopes: BarrierSync, number: u64, later: BarrierSync) -> bool {
        let is_waited_for = |t: usize, s: usize| self.after[t][s] >= number;
        let is_umbrella = later.is_empty() || !BarrierSync::SCOPES.contains(later);
        let later = later.expanded() | later & DISCARD;
        let mut all = bits(scopes.bits());
        number <= self.begun
            || all.all(|s| {
                let mut blocked = bits(later.bits());
                if is_umbrella {
                    blocked.all(|t| is_waited_for(t, s))
                } else {
                    blocked.any(|t| is_waited_for(t, s))
                }
            })
    }

    /// Types of access that see a write of this queue, besides its own. A barrier passes a write on from each type that
    /// sees it, so one barrier may continue what another began.
    pub fn seen_by(&self, write: &Stamp) -> BarrierAccess {
        if write.number <= self.begun {
            return BarrierAccess::all();
        }
        let mut seen = write.visible;
        if write.globals_seen < self.globals_before {
            let shown = (0..BITS).filter(|r| self.shown[*r] >= write.number);
            seen |= BarrierAccess::from_bits_retain(shown.fold(0, |all, r| all | 1 << r));
        }
        let passed = write.globals_seen.saturating_sub(self.globals_before);
        for global in self.globals.iter().skip(passed as usize) {
            if global.waited.shows(global.before, write, seen) {
                seen |= global.after;
            }
        }
        seen
    }

    /// Applies a barrier. Returns what a barrier on addresses has waited for; `None` for a global one, for the first half
    /// of a split barrier, and for a second half without a first.
    pub fn barrier(&mut self, barrier: &Barrier, named: Option<Range>) -> Option<Waited> {
        let waited = if barrier.sync_before == BarrierSync::SPLIT {
            self.end_split(named)?
        } else {
            self.wait_for(barrier.sync_before.expanded())
        };
        for t in bits(discard_scopes(barrier.sync_after).bits()) {
            raise(&mut self.after[t], &waited);
        }
        if barrier.sync_after == BarrierSync::SPLIT {
            self.begin_split(named, &waited);
            return None;
        }
        if named.is_none() {
            self.push_global(barrier, Waited(waited));
            return None;
        }
        Some(Waited(waited))
    }

    /// The command counted last is the write of a barrier with DISCARD, behind which commands in its SyncAfter start, or
    /// in that of the second half of a split barrier.
    pub fn discard(&mut self, sync_after: BarrierSync, named: Option<Range>) {
        for s in bits(DISCARD.bits()) {
            bits(discard_scopes(sync_after).bits()).for_each(|t| self.after[t][s] = self.count);
            if sync_after == BarrierSync::SPLIT
                && let Some(split) = self.splits.iter_mut().find(|split| split.named == named)
            {
                split.waited[s] = self.count;
            }
        }
    }

    fn begin_split(&mut self, named: Option<Range>, waited: &Row) {
        if let Some(split) = self.splits.iter_mut().find(|split| split.named == named) {
            raise(&mut split.waited, waited);
            split.open += 1;
        } else if self.splits.len() < SPLITS_MAX {
            self.splits.push(Split { named, waited: *waited, open: 1 });
        } else {
            self.has_dropped_splits = true;
        }
    }

    /// What the first halves that this second half ends have waited for; `None` if there are none.
    fn end_split(&mut self, named: Option<Range>) -> Option<Row> {
        if let Some(at) = self.splits.iter().position(|split| split.named == named) {
            let split = &mut self.splits[at];
            let waited = split.waited;
            split.open -= 1;
            if split.open == 0 {
                self.splits.swap_remove(at);
            }
            return Some(waited);
        }
        if self.has_dropped_splits {
            // Its first half may be one of these.
            return Some(self.wait_for(BarrierSync::SCOPES | DISCARD));
        }
        // It ends parts of other first halves, or several of them. One of which it ends a part stays for the other parts.
        let mut waited: Option<Row> = None;
        for split in self.splits.iter().filter(|split| split.overlaps(named)) {
            raise(waited.get_or_insert(split.waited), &split.waited);
        }
        self.visits += self.splits.len();
        self.splits.retain(|split| !split.is_within(named));
        waited
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

    /// Adds a global barrier. The oldest is dropped beyond the limit: whatever it showed counts as shown.
    fn push_global(&mut self, barrier: &Barrier, waited: Waited) {
        if self.globals.len() >= GLOBALS_FOLLOWED_MAX
            && let Some(oldest) = self.globals.pop_front()
        {
            self.globals_before += 1;
            let until = oldest.waited.0.iter().copied().max().unwrap_or(self.begun);
            bits(oldest.after.bits()).for_each(|r| self.shown[r] = self.shown[r].max(until));
        }
        let (before, after) = effect(barrier);
        self.globals.push_back(Global { before, after, waited });
    }
}
