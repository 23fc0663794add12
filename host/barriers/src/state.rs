//! The tracked state of each subresource. A texture's layout persists; all other state lasts for one
//! ExecuteCommandLists, whose end is a full flush (BAR-012).
//!
//! ```text
//!                     barrier (SyncAfter SPLIT)
//!   usable -----------------------------------------> being moved
//!     |  ^  <----------------------------------------   (lasts over ExecuteCommandLists, for layouts)
//!     |  |            barrier (SyncBefore SPLIT)
//!     |  `--- barrier with AccessBefore NO_ACCESS ---.
//!     |------ AccessAfter NO_ACCESS, some sync ---> deactivated
//!     `------ SyncAfter NONE ---------------------> closed, up to the end of the ExecuteCommandLists
//! ```

use serde::{Deserialize, Serialize};

use crate::limits::USES_COMPARED_MAX;
use crate::tables::LayoutSet;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use d3dkmt::isa::{
    Barrier, BarrierAccess as A, BarrierLayout as L, BarrierSync as S, LegacyState, QueueType, ResourceDesc,
};

/// The begin of a split barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Split {
    pub barrier: Barrier,
    pub layouts: (L, L),
    /// Its ExecuteCommandLists, and the list in it.
    pub scope: u64,
    pub list: u32,
}

/// The last fence barrier that changed the layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum FenceLayout {
    Signaled(L),
    Waited,
}

/// The last barrier of the current ExecuteCommandLists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Last {
    pub sync_after: S,
    /// What a write waits for.
    pub for_writes: Guard,
    /// What a read waits for. It need not wait for other reads.
    pub for_reads: Guard,
    pub access_after: A,
    pub list: u32,
    pub of_fence: bool,
}

/// The order that barriers give later uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Guard {
    /// The expanded scopes that the barriers block.
    pub scopes: S,
    /// Whether they had something to wait for: a use, or a change of layout.
    pub guards: bool,
}

/// A use since the last barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Used {
    pub access: A,
    pub writes: bool,
    pub scope: S,
    /// Alternative scopes: each represents the whole use, as `scope` does (`d3dkmt::isa::other_scopes`).
    pub others: S,
    pub start: u64,
    pub end: u64,
    pub list: u32,
    pub command: u32,
    /// Scopes, expanded, that global barriers since have blocked for it.
    pub blocks: S,
    /// Types of access to which global barriers since have shown what it wrote; all of them for COMMON. NO_ACCESS: it was
    /// written back.
    pub shown_to: A,
}

/// Bytes that are charged for a use: the same in every build.
pub(crate) const USE_BYTES: usize = 48;
const _: () = assert!(size_of::<Used>() <= USE_BYTES);

/// Whether a barrier's AccessBefore has one of these types. NO_ACCESS writes nothing back, and goes on with what has been.
pub(crate) fn covers(access_before: A, of: A) -> bool {
    access_before.types().intersects(of.types()) || (access_before & of).contains(A::NO_ACCESS)
}

impl Used {
    /// Whether a barrier with this SyncBefore, expanded, waits for it.
    pub fn is_waited_for(&self, before: S) -> bool {
        before.contains(self.scope.expanded()) || before.intersects(self.others)
    }

    /// Takes part in a global barrier, if that waits for it, itself or through an earlier one. Returns whether it does.
    pub fn pass(&mut self, barrier: &Barrier) -> bool {
        let before = barrier.sync_before.expanded();
        if !self.is_waited_for(before) && !before.intersects(self.blocks) {
            return false;
        }
        self.blocks |= barrier.sync_after.expanded();
        if covers(barrier.access_before, self.access | self.shown_to) {
            self.shown_to |= barrier.access_after.types() | (barrier.access_after & A::NO_ACCESS);
        }
        true
    }

    /// Whether global barriers have ordered it before any use, and shown it to any.
    pub fn is_over(&self) -> bool {
        self.blocks == S::SCOPES && (!self.writes || self.shown_to.contains(A::COMMON.types()))
    }

    /// Whether global barriers have ordered it before a later use, and shown it to that. A type of access sees its own
    /// writes, and needs to see no bytes but its own.
    pub fn is_before(&self, later: &Used) -> bool {
        let shown_to = self.shown_to - A::NO_ACCESS;
        let is_visible = !self.writes
            || self.access == later.access
            || !shown_to.is_empty() && shown_to.contains(later.access)
            || !self.overlaps(later);
        is_visible && later.is_held_by(self.blocks)
    }

    pub fn overlaps(&self, other: &Used) -> bool {
        self.start < other.end && other.start < self.end
    }

    pub fn is_within(&self, (start, end): (u64, u64)) -> bool {
        start <= self.start && self.end <= end
    }

    /// Whether it breaks each rule that an earlier use breaks.
    fn repeats(&self, earlier: &Used) -> bool {
        let Used { start, end, list, command, .. } = *earlier;
        earlier.is_within((self.start, self.end)) && Used { start, end, list, command, ..*self } == *earlier
    }

    /// The part of the last barrier that it waits for.
    pub fn guard(&self, last: &Last) -> Guard {
        if self.writes { last.for_writes } else { last.for_reads }
    }

    /// Whether a barrier with this SyncAfter, expanded, blocks it.
    pub fn is_held_by(&self, after: S) -> bool {
        after.intersects(self.scope.expanded() | self.others)
    }
}

/// A layout that was discarded or never set: the next LayoutBefore must be UNDEFINED. No real layout has this value.
pub(crate) const LOST: L = L(0xFFFF_FFFE);

/// Bytes that are charged for a record of a subresource: the same in every build.
pub(crate) const SUB_BYTES: usize = 192;
const _: () = assert!(size_of::<Sub>() <= SUB_BYTES);
/// Bytes that are charged for a resource, with its first record.
pub(crate) const RESOURCE_BYTES: usize = 640;
const _: () = assert!(size_of::<Resource>() <= RESOURCE_BYTES);

/// The state of one subresource, or of all subresources of a resource while they are equal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Sub {
    /// The ExecuteCommandLists to which the fields from `moved` on belong.
    scope: u64,
    /// UNDEFINED if unknown; [`LOST`] if it has none.
    pub layout: L,
    pub split: Option<Split>,
    pub fence_layout: Option<FenceLayout>,
    /// Its legacy state (ResourceBarrier); COMMON if it never had another.
    pub legacy: LegacyState,
    /// Until the next transition.
    pub is_legacy_unknown: bool,

    /// Whether a barrier of this ExecuteCommandLists has set the layout.
    pub moved: bool,
    pub last: Option<Last>,
    /// Whether a command of this ExecuteCommandLists has used it.
    pub touched: bool,
    pub uses: Vec<Used>,
    pub globals_seen: u32,

    /// The layouts that are possible as far as list `list` alone determines.
    pub possible: LayoutSet,
    pub list: u32,
}

const NO_LIST: u32 = u32::MAX;
const NO_SCOPE: u64 = 0;

impl Sub {
    fn new(layout: L, legacy: LegacyState) -> Self {
        Sub {
            scope: NO_SCOPE,
            layout,
            split: None,
            fence_layout: None,
            legacy,
            is_legacy_unknown: false,
            moved: false,
            last: None,
            touched: false,
            uses: Vec::new(),
            globals_seen: 0,
            possible: LayoutSet::ALL,
            list: NO_LIST,
        }
    }

    /// Enters an ExecuteCommandLists, and a list of it. Returns whether the state of the former begins here. The state of
    /// another one that waits in hardware is lost.
    pub fn enter(&mut self, scope: u64, list: u32, decays: bool) -> bool {
        let is_first = self.scope != scope;
        if is_first && self.scope != NO_SCOPE {
            self.leave(decays);
        }
        self.scope = scope;
        if self.list != list {
            self.list = list;
            self.possible = LayoutSet::ALL;
        }
        is_first
    }

    /// Whether its layout is not known, because it may have a legacy state that is not known.
    pub fn may_have_legacy_state(&self) -> bool {
        self.is_legacy_unknown && self.layout == L::COMMON
    }

    /// Leaves an ExecuteCommandLists: only what outlasts it is kept, so that subresources become equal again.
    fn leave(&mut self, decays: bool) {
        let Sub { layout, split, fence_layout, legacy, is_legacy_unknown, .. } = *self;
        let legacy = if decays { LegacyState::COMMON } else { legacy };
        let is_legacy_unknown = is_legacy_unknown && !decays;
        *self = Sub { split, fence_layout, is_legacy_unknown, ..Sub::new(layout, legacy) };
    }

    /// The write that has promoted it from the legacy state COMMON, if any. A transition ends a promotion. In a program with
    /// enhanced barriers there is none, so it is not remembered for later ExecuteCommandLists, which may be of another program.
    pub fn promotion(&self) -> Option<&Used> {
        let is_common = self.legacy == LegacyState::COMMON && self.last.is_none();
        self.uses.iter().find(|used| is_common && used.writes && used.blocks.is_empty())
    }

    /// Cuts the uses where a range begins and ends, so that each is inside it or outside.
    pub fn cut_uses(&mut self, (start, end): (u64, u64)) {
        for used in core::mem::take(&mut self.uses) {
            let [start, end] = [start, end].map(|at| at.clamp(used.start, used.end));
            let pieces = [(used.start, start), (start, end), (end, used.end)];
            for (start, end) in pieces.into_iter().filter(|(start, end)| start < end) {
                self.push_use(Used { start, end, ..used });
            }
        }
    }

    /// Drops each use that differs from a later one in its command alone, and is within its bytes.
    pub fn drop_repeated_uses(&mut self) {
        for index in (0..self.uses.len()).rev() {
            if let Some((used, later)) = self.uses[index..].split_first()
                && later.iter().any(|later| later.repeats(used))
            {
                self.uses.remove(index);
            }
        }
    }

    pub fn push_use(&mut self, used: Used) {
        let alike = |last: &&mut Used| Used { command: used.command, ..**last } == used;
        match self.uses.last_mut().filter(alike) {
            Some(last) => last.command = used.command,
            None => {
                if self.uses.len() == USES_COMPARED_MAX {
                    self.uses.remove(0);
                }
                self.uses.push(used);
            }
        }
    }
}

/// The subresources of a resource that an ExecuteCommandLists has entered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Entered {
    All,
    /// Each once.
    Some(BTreeSet<u32>),
}

impl Entered {
    /// Adds a subresource. Returns whether it was added before.
    pub fn add(&mut self, index: u32) -> bool {
        match self {
            Entered::All => true,
            Entered::Some(indexes) => !indexes.insert(index),
        }
    }
}

/// The subresources of a resource: one record while they are equal.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Subs {
    Alike(Sub),
    Each(Vec<Sub>),
}

/// The state of a resource.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State(Subs);

impl State {
    fn new(layout: L, legacy: LegacyState) -> Self {
        State(Subs::Alike(Sub::new(layout, legacy)))
    }

    /// Resets the state to unknown, but for one that the resource never leaves.
    pub fn forget(&mut self, desc: &ResourceDesc) {
        let legacy = if is_rtas_by_state(desc) { desc.initial_state } else { LegacyState::COMMON };
        let known = Sub::new(L::UNDEFINED, legacy);
        *self = State(Subs::Alike(Sub { is_legacy_unknown: true, ..known }));
    }

    /// Number of records in addition to one.
    pub fn more_records(&self) -> usize {
        self.subs().len() - 1
    }

    /// Ends an ExecuteCommandLists for the subresources that it entered and no later one. `decays`: the legacy state goes
    /// to COMMON.
    pub fn leave(&mut self, entered: &Entered, scope: u64, decays: bool) {
        let leave = |sub: &mut Sub| {
            if sub.scope == scope {
                sub.leave(decays);
            }
        };
        let subs = self.subs_mut();
        let mut all = subs.len();
        match entered {
            Entered::Some(indexes) if all > 1 => {
                all = indexes.len();
                for index in indexes {
                    subs.get_mut(*index as usize).map(leave);
                }
            }
            Entered::All | Entered::Some(_) => subs.iter_mut().for_each(leave),
        }
        if all == self.subs().len() {
            self.join_equal();
        }
    }

    /// Number of records and their uses that `select` and `join` would visit or make.
    pub fn visits(&self, total: u32, picks: &Picks) -> usize {
        match &self.0 {
            Subs::Alike(_) if picks.count() == total as usize => 1,
            Subs::Alike(sub) => (total as usize).saturating_mul(1 + sub.uses.len()),
            Subs::Each(_) => picks.count(),
        }
    }

    /// The records for a selection: one if all of `total` subresources are selected and equal, else one for each.
    pub fn select(&mut self, total: u32, picks: &Picks) -> &mut [Sub] {
        let total = total as usize;
        if let Subs::Alike(sub) = &self.0
            && picks.count() != total
        {
            self.0 = Subs::Each(vec![sub.clone(); total]);
        }
        self.subs_mut()
    }

    /// Merges the records into one, if all subresources were selected and have become equal.
    pub fn join(&mut self, total: u32, picks: &Picks) {
        if picks.count() == total as usize {
            self.join_equal();
        }
    }

    fn join_equal(&mut self) {
        if let Subs::Each(subs) = &mut self.0
            && let [first, rest @ ..] = &subs[..]
            && rest.iter().all(|sub| sub == first)
        {
            self.0 = Subs::Alike(subs.swap_remove(0));
        }
    }

    pub fn subs(&self) -> &[Sub] {
        match &self.0 {
            Subs::Alike(sub) => core::slice::from_ref(sub),
            Subs::Each(subs) => subs,
        }
    }

    pub fn subs_mut(&mut self) -> &mut [Sub] {
        match &mut self.0 {
            Subs::Alike(sub) => core::slice::from_mut(sub),
            Subs::Each(subs) => subs,
        }
    }
}

/// A selection of subresources.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Picks {
    pub mips: (u32, u32),
    pub slices: (u32, u32),
    pub planes: (u32, u32),
    /// Instead of the above: first flat index, and count.
    pub flat: Option<(u32, u32)>,
}

impl Picks {
    pub fn flat(first: u32, count: u32) -> Self {
        Picks { mips: (0, 0), slices: (0, 0), planes: (0, 0), flat: Some((first, count)) }
    }

    /// Number of selected subresources.
    fn count(&self) -> usize {
        let count = |(_, count): (u32, u32)| count as usize;
        match self.flat {
            Some(range) => count(range),
            None => count(self.mips) * count(self.slices) * count(self.planes),
        }
    }

    /// Calls `call` with each selected index of the records, of which there is one or one for each subresource.
    pub fn each(&self, desc: &ResourceDesc, records: usize, mut call: impl FnMut(usize)) {
        if records == 1 {
            return call(0);
        }
        if let Some((first, count)) = self.flat {
            return (first..first + count).for_each(|index| call(index as usize));
        }
        let range = |(first, count): (u32, u32)| first..first + count;
        for plane in range(self.planes) {
            for slice in range(self.slices) {
                for mip in range(self.mips) {
                    call(desc.subresource_index(mip, slice, plane) as usize);
                }
            }
        }
    }
}

/// A resource of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Resource {
    pub desc: ResourceDesc,
    /// The state after the submissions so far.
    pub state: State,
}

impl Resource {
    /// Whether its legacy state decays to COMMON at the end of an ExecuteCommandLists on this queue.
    pub fn decays(&self, queue: QueueType) -> bool {
        begins_in_common(&self.desc) || queue == QueueType::Copy && !is_rtas_by_state(&self.desc)
    }

    pub fn new(desc: ResourceDesc) -> Self {
        let layout = match desc.initial_layout {
            L::UNDEFINED if desc.is_texture() => LOST,
            layout => layout,
        };
        let state = if begins_in_common(&desc) { LegacyState::COMMON } else { desc.initial_state };
        Resource { desc, state: State::new(layout, state) }
    }
}

/// Whether it is in the legacy state COMMON at the start of each ExecuteCommandLists. An initial state is ignored then;
/// what a buffer of an upload or readback heap may be used for is its heap's rule.
fn begins_in_common(desc: &ResourceDesc) -> bool {
    (!desc.is_texture() || desc.has_simultaneous_access()) && !is_rtas_by_state(desc)
}

/// Whether it was created in the legacy state of acceleration structures, which it never leaves.
pub(crate) fn is_rtas_by_state(desc: &ResourceDesc) -> bool {
    !desc.is_texture() && desc.initial_state.contains(LegacyState::RAYTRACING_ACCELERATION_STRUCTURE)
}
