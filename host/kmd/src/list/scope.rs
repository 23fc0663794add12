//! One ExecuteCommandLists on its way through an engine: what of it has been looked at and is not done, and what each waits for.
//!
//! ```text
//!   packets ──▶ [ window: up to LIST_WINDOW_MAX, in the order of the lists ]
//!                 a command   waits for the barriers before it whose SyncAfter has a scope of it
//!                 a barrier   waits for the commands before it that its SyncBefore names, the barriers before it that hold
//!                             such scopes up, and those of its own subresource
//!                 MARKER_IN   waits until all before it have started; MARKER_OUT, a timestamp: until all are done
//! ```
//! What waits for nothing happens; nothing else orders commands.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use d3dkmt::isa::{BarrierSync, Packet, ResourceDesc};
use d3dkmt::limits::LIST_WINDOW_MAX;
use dxgkrnl::{EngineType, Nanos};

use super::barrier::Barrier;
use super::command::Command;

/// A fence value for an address.
pub(crate) type Store = (u64, u64);

pub(super) enum Work {
    Command(Box<Command>),
    Barrier(Box<Barrier>),
    MarkerIn(Store),
    MarkerOut(Store),
    /// Of a SignalBarrier: waits for its barriers.
    Signal {
        store: Store,
        barriers: usize,
    },
    Timestamp {
        gpu_address: u64,
    },
}

pub(super) struct Node {
    id: u64,
    waits: BTreeSet<u64>,
    pub work: Work,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Scope {
    nodes: VecDeque<Node>,
    /// Read, and not in the window yet.
    ahead: VecDeque<Work>,
    last_id: u64,
    /// Barriers with no command behind them.
    adjacent: Vec<u64>,
    /// How many commands may run at once.
    pub width: usize,
}

/// Whether a packet is part of the lists: what is not waits until all before it is done, and holds up what is behind it.
pub(crate) fn is_of_lists(packet: &Packet) -> bool {
    match packet {
        Packet::Work { .. }
        | Packet::Barrier { .. }
        | Packet::LegacyBarrier { .. }
        | Packet::SignalBarrier { .. }
        | Packet::BeginList { .. }
        | Packet::AssertResourceAccess { .. }
        | Packet::AssertTextureLayout { .. }
        | Packet::MarkerIn { .. }
        | Packet::MarkerOut { .. }
        | Packet::Timestamp { .. } => true,
        Packet::FenceWrite { .. }
        | Packet::Busy { .. }
        | Packet::Hang
        | Packet::FenceWait { .. }
        | Packet::WaitBarrier { .. } => false,
    }
}

/// Whether a packet needs a scope to run.
pub(crate) fn begins_scope(packet: &Packet) -> bool {
    let marker = matches!(packet, Packet::MarkerIn { .. } | Packet::MarkerOut { .. });
    is_of_lists(packet) && !marker
}

impl Node {
    /// A command or a barrier that has not started. Markers are nobody's concern.
    fn has_not_started(&self) -> bool {
        match &self.work {
            Work::Command(command) => command.until.is_none(),
            Work::Barrier(_) => true,
            Work::MarkerIn(_) | Work::MarkerOut(_) | Work::Signal { .. } | Work::Timestamp { .. } => false,
        }
    }

    fn is_command(&self) -> bool {
        matches!(self.work, Work::Command(_))
    }
}

impl Scope {
    pub fn new(width: usize) -> Self {
        Scope { width, ..Scope::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.ahead.is_empty()
    }

    pub fn has_room(&self) -> bool {
        self.nodes.len() < LIST_WINDOW_MAX
    }

    /// There is more than the window has room for.
    pub fn has_more_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Commands that run.
    pub fn running(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_command() && !node.has_not_started()).count()
    }

    /// When the next command ends.
    pub fn next_end(&self) -> Option<Nanos> {
        let until = |node: &Node| match &node.work {
            Work::Command(command) => command.until,
            _ => None,
        };
        self.nodes.iter().filter_map(until).min()
    }

    /// Puts what is ahead into the window as far as there is room. Whether it is all there.
    pub fn fill_window(&mut self) -> bool {
        while self.has_room() {
            let Some(work) = self.ahead.pop_front() else { return true };
            self.add(work);
        }
        self.ahead.is_empty()
    }

    /// A packet of the lists.
    pub fn read<'a>(
        &mut self,
        packet: Packet,
        engine: EngineType,
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
    ) {
        let barrier = |barrier| Work::Barrier(Box::new(barrier));
        match packet {
            Packet::Work { kind, kernel, operand, duration_ns, uses } => {
                let command = Command::new((kind, kernel, operand, duration_ns), &uses, engine, find);
                self.ahead.push_back(Work::Command(Box::new(command)));
            }
            Packet::Barrier { groups } => {
                let barriers = groups.iter().flat_map(|group| Barrier::group(group, &find));
                self.ahead.extend(barriers.map(barrier));
            }
            Packet::LegacyBarrier { barriers } => {
                let known = barriers.iter().filter_map(|one| Barrier::legacy(one, &find));
                self.ahead.extend(known.map(barrier));
            }
            Packet::SignalBarrier { fence, groups } => {
                let found: Vec<_> = groups.iter().flat_map(|group| Barrier::group(group, &find)).collect();
                let (store, barriers) = ((fence.gpu_address, fence.value), found.len());
                self.ahead.extend(found.into_iter().map(barrier));
                self.ahead.push_back(Work::Signal { store, barriers });
            }
            Packet::MarkerIn { gpu_address, value } => {
                self.ahead.push_back(Work::MarkerIn((gpu_address, value)));
            }
            Packet::MarkerOut { gpu_address, value } => {
                self.ahead.push_back(Work::MarkerOut((gpu_address, value)));
            }
            Packet::Timestamp { gpu_address } => self.ahead.push_back(Work::Timestamp { gpu_address }),
            Packet::BeginList { .. }
            | Packet::AssertResourceAccess { .. }
            | Packet::AssertTextureLayout { .. }
            | Packet::FenceWrite { .. }
            | Packet::Busy { .. }
            | Packet::Hang
            | Packet::FenceWait { .. }
            | Packet::WaitBarrier { .. } => {}
        }
    }

    fn add(&mut self, mut work: Work) {
        self.last_id += 1;
        let id = self.last_id;
        let before = |wanted: &dyn Fn(&Node) -> bool, nodes: &VecDeque<Node>| -> BTreeSet<u64> {
            nodes.iter().filter(|node| wanted(node)).map(|node| node.id).collect()
        };
        let waits = match &mut work {
            Work::Command(command) => before(&|node| is_before_command(node, command), &self.nodes),
            Work::Barrier(barrier) => {
                self.join(barrier);
                before(&|node| is_before_barrier(node, barrier), &self.nodes)
            }
            Work::MarkerOut(_) | Work::Timestamp { .. } => before(&|_| true, &self.nodes),
            Work::Signal { barriers, .. } => {
                let own = id - *barriers as u64;
                before(&|node| node.id >= own, &self.nodes)
            }
            Work::MarkerIn(_) => BTreeSet::new(),
        };
        match &work {
            Work::Command(_) => self.adjacent.clear(),
            Work::Barrier(_) => self.adjacent.push(id),
            Work::MarkerIn(_) | Work::MarkerOut(_) | Work::Signal { .. } | Work::Timestamp { .. } => {}
        }
        self.nodes.push_back(Node { id, waits, work });
    }

    /// Barriers of one subresource with no command between them hold up what any of them does (BAR-099).
    fn join(&mut self, barrier: &mut Barrier) {
        for node in self.nodes.iter_mut().filter(|node| self.adjacent.contains(&node.id)) {
            if let Work::Barrier(earlier) = &mut node.work
                && earlier.shares_subresource(barrier)
            {
                barrier.sync_after |= earlier.sync_after;
                earlier.sync_after = barrier.sync_after;
            }
        }
    }

    /// Where the first is that is no command and that waits for nothing.
    pub fn first_ready(&self) -> Option<usize> {
        let mut all_started = true;
        self.nodes.iter().position(|node| {
            let ready = match &node.work {
                Work::Command(_) => false,
                Work::MarkerIn(_) => all_started,
                Work::Barrier(_) | Work::MarkerOut(_) | Work::Signal { .. } | Work::Timestamp { .. } => {
                    node.waits.is_empty()
                }
            };
            all_started &= !node.has_not_started();
            ready
        })
    }

    /// Where the commands are that may start, in the order of the lists.
    pub fn may_start(&self) -> Vec<usize> {
        let may = |node: &Node| node.is_command() && node.has_not_started() && node.waits.is_empty();
        (0..self.nodes.len()).filter(|at| may(&self.nodes[*at])).collect()
    }

    /// Where the commands are that end first, by this time: all of one moment, in the order of the lists.
    pub fn first_done(&self, clock: Nanos) -> Vec<usize> {
        let Some(first) = self.next_end().filter(|until| *until <= clock) else { return Vec::new() };
        let ends = |node: &Node| matches!(&node.work, Work::Command(command) if command.until == Some(first));
        (0..self.nodes.len()).filter(|at| ends(&self.nodes[*at])).collect()
    }

    pub(super) fn command(&mut self, at: usize) -> Option<&mut Command> {
        match &mut self.nodes.get_mut(at)?.work {
            Work::Command(command) => Some(command),
            _ => None,
        }
    }

    /// It is done: nobody waits for it any more.
    pub(super) fn take(&mut self, at: usize) -> Option<Work> {
        let node = self.nodes.remove(at)?;
        for other in &mut self.nodes {
            other.waits.remove(&node.id);
        }
        Some(node.work)
    }
}

fn is_before_command(node: &Node, command: &Command) -> bool {
    match &node.work {
        Work::Barrier(barrier) => command.is_held_by(barrier.sync_after) || command.comes_last(),
        Work::Command(earlier) => command.comes_last() || command.renders_where(earlier),
        Work::MarkerIn(_) | Work::MarkerOut(_) | Work::Signal { .. } | Work::Timestamp { .. } => false,
    }
}

fn is_before_barrier(node: &Node, barrier: &Barrier) -> bool {
    match &node.work {
        Work::Barrier(earlier) => {
            let held = earlier.sync_after & barrier.sync_before;
            held != BarrierSync::NONE || earlier.shares_subresource(barrier)
        }
        Work::Command(command) => command.is_waited_for(barrier.sync_before),
        Work::MarkerIn(_) | Work::MarkerOut(_) | Work::Signal { .. } | Work::Timestamp { .. } => false,
    }
}
