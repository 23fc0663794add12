//! The window of a scope: its commands and barriers that are not complete, and which of them each waits for.
//!
//! Each node occupies a slot. Sets of nodes are bit sets of slots: nodes that are ready, that may start, that run. The
//! data needed to find what a new node waits for is in tables by slot, so no query of the whole window follows 64
//! pointers.

use alloc::vec::Vec;

use d3dkmt::isa::BarrierSync;
use d3dkmt::limits::LIST_WINDOW_MAX;
use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::barrier::Barrier;
use super::cache::Range;
use super::command::Command;
use super::scope::{Work, value_range};

#[derive(Serialize, Deserialize)]
struct Node {
    /// Number of its packet in the buffer.
    packet: u32,
    work: Work,
    /// When it ends; `None` if it does not run.
    until: Option<Nanos>,
}

/// A set of slots of a window: one bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slots(u64);

/// A bit for each slot of the window.
const _: () = assert!(LIST_WINDOW_MAX <= u64::BITS as usize);

impl Slots {
    fn add(&mut self, slot: usize) {
        self.0 |= 1 << slot;
    }

    fn remove(&mut self, slot: usize) {
        self.0 &= !(1 << slot);
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn and(self, others: Slots) -> Slots {
        Slots(self.0 & others.0)
    }

    fn but(self, others: Slots) -> Slots {
        Slots(self.0 & !others.0)
    }

    fn or(self, others: Slots) -> Slots {
        Slots(self.0 | others.0)
    }

    /// Slots whose table entry satisfies `is_in`.
    fn of<T>(table: &[T], is_in: impl Fn(&T) -> bool) -> Slots {
        Slots(table.iter().rev().fold(0, |slots, entry| slots << 1 | u64::from(is_in(entry))))
    }
}

impl Iterator for Slots {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let slot = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

impl FromIterator<usize> for Slots {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Self {
        let mut all = Slots::default();
        slots.into_iter().for_each(|slot| all.add(slot));
        all
    }
}

/// The nodes of a window, in tables by slot.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Window {
    nodes: Vec<Option<Node>>,
    /// Number of each node, in list order.
    numbers: Vec<u64>,
    last_number: u64,
    /// Scopes that later nodes are compared with: SyncAfter of a barrier, all scopes of a command.
    scopes: Vec<BarrierSync>,
    /// Resource of a barrier; 0 for all resources, or if the node is no barrier.
    resources: Vec<u32>,
    waits: Vec<Slots>,
    commands: Slots,
    barriers: Slots,
    /// Barriers with no command after them.
    adjacent: Slots,
    markers_in: Slots,
    others: Slots,
    /// Commands and barriers that have started.
    running: Slots,
    /// Nodes that wait for no other.
    free: Slots,
}

impl Window {
    /// Bytes charged for a node, without the uses of a command.
    pub const NODE_BYTES: usize = 512;

    /// Bytes charged for its nodes.
    pub fn held_bytes(&self) -> usize {
        const TABLE_BYTES: usize = 64;
        const {
            let node = size_of::<Option<Node>>() + TABLE_BYTES;
            assert!(node + size_of::<Command>() <= Self::NODE_BYTES);
            assert!(node + size_of::<Barrier>() <= Self::NODE_BYTES);
        }
        let bytes = |work: &Work| match work {
            Work::Command(command) => Self::NODE_BYTES + command.use_bytes(),
            Work::Barrier(_)
            | Work::MarkerIn(_)
            | Work::MarkerOut(_)
            | Work::Signal { .. }
            | Work::Timestamp { .. } => Self::NODE_BYTES,
        };
        self.works().map(bytes).sum()
    }

    fn used(&self) -> Slots {
        self.commands.or(self.barriers).or(self.markers_in).or(self.others)
    }

    pub fn is_empty(&self) -> bool {
        self.used().is_empty()
    }

    pub fn has_room(&self) -> bool {
        (self.used().0.count_ones() as usize) < LIST_WINDOW_MAX
    }

    /// All work in the window, in no particular order.
    pub fn works(&self) -> impl Iterator<Item = &Work> {
        self.nodes.iter().flatten().map(|node| &node.work)
    }

    /// The packet that this node was read from.
    pub fn packet(&self, slot: usize) -> u32 {
        self.node(slot).map_or(0, |node| node.packet)
    }

    fn node(&self, slot: usize) -> Option<&Node> {
        self.nodes.get(slot)?.as_ref()
    }

    pub fn work(&mut self, slot: usize) -> Option<&mut Work> {
        self.nodes.get_mut(slot)?.as_mut().map(|node| &mut node.work)
    }

    fn command(&self, slot: usize) -> Option<&Command> {
        let Work::Command(command) = &self.node(slot)?.work else { return None };
        Some(command)
    }

    fn barrier(&self, slot: usize) -> Option<&Barrier> {
        let Work::Barrier(barrier) = &self.node(slot)?.work else { return None };
        Some(barrier)
    }

    /// Whether commands or barriers run.
    pub fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    pub fn commands_running(&self) -> usize {
        self.running.and(self.commands).0.count_ones() as usize
    }

    /// The nodes that a new last node waits for.
    fn before(&self, work: &Work) -> Slots {
        match work {
            Work::Command(command) => self.before_command(command),
            Work::Barrier(barrier) => self.before_barrier(barrier),
            Work::MarkerOut(_) | Work::Timestamp { .. } => self.used(),
            Work::Signal { barriers, .. } => {
                let own = self.last_number - *barriers as u64;
                Slots::of(&self.numbers, |number| *number > own).and(self.used())
            }
            Work::MarkerIn(_) => Slots::default(),
        }
    }

    fn before_command(&self, command: &Command) -> Slots {
        let stamps = self.stamps(|stamp| command.meets(stamp));
        if command.comes_last() {
            return self.commands.or(self.barriers).or(stamps);
        }
        let blocks = |slot: &usize| self.scopes.get(*slot).is_some_and(|after| command.is_held_by(*after));
        let mut before = self.intersecting(command.scopes()).and(self.barriers);
        if !command.meets_all_alike() {
            before = before.filter(blocks).collect();
        }
        if command.is_ordered() {
            let in_order =
                |slot: &usize| self.command(*slot).is_some_and(|earlier| command.is_in_order_with(earlier));
            before = before.or(self.commands.filter(in_order).collect());
        }
        before.or(stamps)
    }

    /// Timestamps whose eight bytes satisfy `meets`.
    fn stamps(&self, meets: impl Fn(Range) -> bool) -> Slots {
        let is_met = |slot: &usize| match self.node(*slot).map(|node| &node.work) {
            Some(Work::Timestamp { gpu_address }) => meets(value_range(*gpu_address)),
            _ => false,
        };
        self.others.filter(is_met).collect()
    }

    fn before_barrier(&self, barrier: &Barrier) -> Slots {
        let waits_for = |slot: &usize| {
            self.command(*slot).is_some_and(|command| command.is_waited_for(barrier.sync_before))
        };
        let overlapping = self.intersecting(barrier.sync_before);
        let commands: Slots = overlapping.and(self.commands).filter(waits_for).collect();
        let before = overlapping.and(self.barriers).or(commands).or(self.sharing(barrier, self.barriers));
        if !barrier.discards() {
            return before;
        }
        // It may write memory of a resource that an earlier barrier with the same SyncAfter deactivates.
        let deactivating = match barrier.sync_after.is_empty() {
            true => Slots::of(&self.scopes, |own| own.is_empty()),
            false => self.intersecting(barrier.sync_after),
        };
        before.or(deactivating.and(self.barriers)).or(self.stamps(|stamp| barrier.meets(stamp)))
    }

    /// Nodes that have one of these scopes.
    fn intersecting(&self, scopes: BarrierSync) -> Slots {
        Slots::of(&self.scopes, |own| own.intersects(scopes))
    }

    /// Barriers of the set that share a subresource with `barrier`.
    fn sharing(&self, barrier: &Barrier, barriers: Slots) -> Slots {
        let resource = barrier.resource();
        let same = Slots::of(&self.resources, |own| *own == resource && resource != 0).and(barriers);
        let shares =
            |slot: &usize| self.barrier(*slot).is_some_and(|earlier| earlier.shares_subresource(barrier));
        same.filter(shares).collect()
    }

    /// Barriers on one subresource with no command between them each block what any of them blocks (BAR-099).
    fn join(&mut self, barrier: &mut Barrier) {
        for slot in self.in_order(self.sharing(barrier, self.adjacent)) {
            if let Some(after) = self.scopes.get_mut(slot) {
                barrier.sync_after |= *after;
                *after = barrier.sync_after;
            }
        }
    }

    /// Appends a node after all others.
    pub fn push(&mut self, packet: u32, mut work: Work) {
        if let Work::Barrier(barrier) = &mut work {
            self.join(barrier);
        }
        let waits = self.before(&work);
        let slot = (!self.used().0).trailing_zeros() as usize;
        if slot == self.nodes.len() {
            self.nodes.push(None);
            self.numbers.push(0);
            self.scopes.push(BarrierSync::NONE);
            self.resources.push(0);
            self.waits.push(Slots::default());
        }
        let (kind, scopes, resource) = match &work {
            Work::Command(command) => {
                self.adjacent = Slots::default();
                (&mut self.commands, command.scopes(), 0)
            }
            Work::Barrier(barrier) => {
                self.adjacent.add(slot);
                (&mut self.barriers, barrier.sync_after, barrier.resource())
            }
            Work::MarkerIn(_) => (&mut self.markers_in, BarrierSync::NONE, 0),
            Work::MarkerOut(_) | Work::Signal { .. } | Work::Timestamp { .. } => {
                (&mut self.others, BarrierSync::NONE, 0)
            }
        };
        kind.add(slot);
        if waits.is_empty() {
            self.free.add(slot);
        }
        self.last_number += 1;
        self.numbers[slot] = self.last_number;
        self.scopes[slot] = scopes;
        self.resources[slot] = resource;
        self.waits[slot] = waits;
        self.nodes[slot] = Some(Node { packet, work, until: None });
    }

    /// The first of these nodes in list order.
    pub fn first(&self, mut of: Slots) -> Option<usize> {
        let first = of.next()?;
        if of.is_empty() { Some(first) } else { of.chain([first]).min_by_key(|slot| self.numbers[*slot]) }
    }

    /// These nodes, in list order.
    pub fn in_order(&self, of: Slots) -> SmallVec<[usize; 4]> {
        let mut slots: SmallVec<[usize; 4]> = of.collect();
        slots.sort_unstable_by_key(|slot| self.numbers[*slot]);
        slots
    }

    /// The first node that is no command, waits for nothing, and has not started.
    pub fn first_ready(&self) -> Option<usize> {
        let ready = self.first(self.free.but(self.commands).but(self.running).but(self.markers_in));
        if self.markers_in.is_empty() {
            return ready;
        }
        let unstarted = self.commands.or(self.barriers).but(self.running);
        let number = |slot: Option<usize>| slot.map_or(u64::MAX, |slot| self.numbers[slot]);
        // A MARKER_IN waits until all before it have started. If the first one waits, all others do.
        let marker = self.first(self.markers_in);
        let marker = marker.filter(|_| number(marker) < number(self.first(unstarted)));
        if number(marker) < number(ready) { marker } else { ready }
    }

    /// The commands that may start.
    pub fn may_start(&self) -> Slots {
        self.free.and(self.commands).but(self.running)
    }

    /// When the next running node ends.
    pub fn next_end(&self) -> Option<Nanos> {
        self.running.filter_map(|slot| self.node(slot)?.until).min()
    }

    /// The running nodes with the earliest end time, if that is not after `clock`.
    pub fn first_done(&self, clock: Nanos) -> Slots {
        let Some(first) = self.next_end().filter(|until| *until <= clock) else { return Slots::default() };
        self.running.filter(|slot| self.node(*slot).is_some_and(|node| node.until == Some(first))).collect()
    }

    /// Marks a node as running until this time.
    pub fn start(&mut self, slot: usize, until: Nanos) {
        let Some(Some(node)) = self.nodes.get_mut(slot) else { return };
        node.until = Some(until);
        self.running.add(slot);
    }

    /// Removes a completed node; no other node waits for it any more.
    pub fn take(&mut self, slot: usize) -> Option<Work> {
        let node = self.nodes.get_mut(slot)?.take()?;
        let kinds = [&mut self.commands, &mut self.barriers, &mut self.markers_in, &mut self.others];
        kinds.into_iter().for_each(|kind| kind.remove(slot));
        [&mut self.adjacent, &mut self.running].into_iter().for_each(|state| state.remove(slot));
        self.waits.iter_mut().for_each(|waits| waits.remove(slot));
        self.free = Slots::of(&self.waits, |waits| waits.is_empty()).and(self.used());
        Some(node.work)
    }
}
