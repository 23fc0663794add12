//! Global barriers: each affects every resource, and is applied to a subresource at its next use. A ranged barrier of
//! some bytes, or with one half, is applied likewise, to its own resource, as is a legacy one of unordered access.

use serde::{Deserialize, Serialize};

use crate::limits::GLOBALS_APPLIED_MAX;
use crate::state::{Sub, covers};
use alloc::collections::VecDeque;
use d3dkmt::isa::{Barrier, BarrierAccess as A, BarrierSync as S};

/// A barrier as it is applied to the uses of a subresource.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct GlobalBarrier {
    barrier: Barrier,
    /// SyncAfter and AccessAfter as an enhanced barrier has them: the next one must contain the SyncAfter. A legacy barrier
    /// has none, because its program knows nothing of enhanced ones.
    after: (S, A),
}

impl GlobalBarrier {
    pub fn enhanced(barrier: Barrier) -> Self {
        GlobalBarrier { barrier, after: (barrier.sync_after, barrier.access_after) }
    }

    pub fn legacy(barrier: Barrier) -> Self {
        GlobalBarrier { barrier, after: (S::NONE, A::COMMON) }
    }
}

/// The global barriers of an ExecuteCommandLists so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Globals {
    count: u32,
    recent: VecDeque<GlobalBarrier>,
    /// The older ones, merged into one; `None` if there are none.
    older: Option<GlobalBarrier>,
}

impl Globals {
    pub fn push(&mut self, barrier: GlobalBarrier) {
        self.count += 1;
        self.recent.push_back(barrier);
        if self.recent.len() > GLOBALS_APPLIED_MAX
            && let Some(oldest) = self.recent.pop_front()
        {
            self.older = Some(self.older.map_or(oldest, |older| both(older, oldest)));
        }
    }

    /// Applies the barriers since the subresource's last use.
    pub fn apply(&self, sub: &mut Sub) {
        let missed = self.count - sub.globals_seen;
        if missed == 0 {
            return;
        }
        sub.globals_seen = self.count;
        if missed as usize > self.recent.len()
            && let Some(older) = &self.older
        {
            apply(older, ALL, sub);
        }
        let skip = self.recent.len().saturating_sub(missed as usize);
        self.recent.iter().skip(skip).for_each(|barrier| apply(barrier, ALL, sub));
    }

    /// Whether an enhanced one of them has this access in AccessAfter.
    pub fn named_after(&self, access: A) -> bool {
        self.recent.iter().chain(&self.older).any(|barrier| barrier.after.1.intersects(access))
    }
}

fn both(older: GlobalBarrier, newer: GlobalBarrier) -> GlobalBarrier {
    let (one, other) = (older.barrier, newer.barrier);
    let sync_after = if newer.after.0.is_empty() { older.after.0 } else { newer.after.0 };
    // An empty mask is COMMON, that is, every type.
    let access = |one: A, other: A| {
        if one.is_empty() || other.is_empty() { A::COMMON } else { one | other }
    };
    let barrier = Barrier {
        sync_before: one.sync_before | other.sync_before,
        sync_after: one.sync_after | other.sync_after,
        access_before: access(one.access_before, other.access_before),
        access_after: access(one.access_after, other.access_after),
    };
    GlobalBarrier { barrier, after: (sync_after, older.after.1 | newer.after.1) }
}

/// A range of all bytes.
pub(super) const ALL: (u64, u64) = (0, u64::MAX);

/// Applies a barrier to the uses of a subresource. It orders all, and shows those within a range.
pub(super) fn apply(global: &GlobalBarrier, range: (u64, u64), sub: &mut Sub) {
    let GlobalBarrier { barrier, after: (contained_next, _) } = global;
    let order = Barrier { access_before: A::NO_ACCESS, access_after: A::NO_ACCESS, ..*barrier };
    let (before, after) = (barrier.sync_before.expanded(), barrier.sync_after.expanded());
    let (mut waits_for_use, mut has_new) = (false, false);
    sub.uses.retain_mut(|used| {
        let was = (used.blocks, used.shown_to);
        waits_for_use |= used.pass(if used.is_within(range) { barrier } else { &order });
        has_new |= was != (used.blocks, used.shown_to);
        !used.is_over()
    });
    // Legacy programs repeat such a barrier behind each use, and have no other that ends the uses.
    if has_new && contained_next.is_empty() {
        sub.drop_repeated_uses();
    }
    let Some(last) = &mut sub.last else { return };
    // It goes on with what the last barrier has ordered only if it waits for that.
    let mut goes_on = false;
    for guard in [&mut last.for_writes, &mut last.for_reads] {
        if waits_for_use || before.intersects(guard.scopes) {
            guard.scopes |= after;
            goes_on = true;
        }
    }
    // The next barrier of the subresource follows this one, which has waited for all that the last one let go.
    let released = last.sync_after.expanded();
    if !last.of_fence && !released.is_empty() && before.contains(released) && !contained_next.is_empty() {
        last.sync_after = *contained_next;
    }
    let is_limited = last.access_after != A::NO_ACCESS && !last.access_after.is_empty();
    // An acquire alone covers nothing, but reads need not be written back.
    let is_acquire = barrier.access_before.contains(A::NO_ACCESS);
    if goes_on && is_limited && (is_acquire || covers(barrier.access_before, last.access_after)) {
        let all = barrier.access_after.is_empty();
        last.access_after = if all { A::COMMON } else { last.access_after | barrier.access_after };
    }
}
