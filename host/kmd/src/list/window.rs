//! The window of a scope: the commands and barriers that were looked at and are not done, in the order of the lists, with the
//! nodes that each waits for.
//!
//! Ready nodes, nodes that may start and running nodes are sets of places, a bit for each place: no question about the window as a
//! whole looks at all nodes.

use alloc::collections::VecDeque;

use d3dkmt::limits::LIST_WINDOW_MAX;
use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};

use super::scope::Work;

#[derive(Serialize, Deserialize)]
pub(super) struct Node {
    pub id: u64,
    /// Its packet in the buffer.
    packet: u32,
    pub work: Work,
    waits: Places,
    /// When it ends, if it runs.
    until: Option<Nanos>,
}

/// Places of a window: a bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Places(u64);

/// A bit for each node of the window.
const _: () = assert!(LIST_WINDOW_MAX <= u64::BITS as usize);

impl Places {
    fn below(at: usize) -> u64 {
        1u64.checked_shl(at as u32).map_or(u64::MAX, |bit| bit - 1)
    }

    fn add(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    /// Removes a place: later places move ahead by one.
    fn close_gap(&mut self, at: usize) {
        let ahead = Self::below(at);
        self.0 = self.0 & ahead | self.0 >> 1 & !ahead;
    }

    fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let at = self.first()?;
        self.0 &= self.0 - 1;
        Some(at)
    }
}

/// See the module.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Window {
    nodes: VecDeque<Node>,
    commands: Places,
    barriers: Places,
    markers_in: Places,
    /// Commands and barriers that have started.
    running: Places,
    /// Nodes that wait for no other.
    free: Places,
}

impl Window {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn has_room(&self) -> bool {
        self.nodes.len() < LIST_WINDOW_MAX
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    pub fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.nodes.iter_mut()
    }

    /// The packet that this node was read from.
    pub fn packet(&self, at: usize) -> u32 {
        self.nodes.get(at).map_or(0, |node| node.packet)
    }

    pub fn work(&mut self, at: usize) -> Option<&mut Work> {
        self.nodes.get_mut(at).map(|node| &mut node.work)
    }

    /// Whether commands or barriers run.
    pub fn is_running(&self) -> bool {
        self.running != Places::default()
    }

    pub fn commands_running(&self) -> usize {
        (self.running.0 & self.commands.0).count_ones() as usize
    }

    /// The places of the nodes that are so.
    pub fn places(&self, wanted: impl Fn(&Node) -> bool) -> Places {
        let mut places = Places::default();
        let found = self.nodes.iter().enumerate().filter(|(_, node)| wanted(node));
        found.for_each(|(at, _)| places.add(at));
        places
    }

    pub fn everywhere(&self) -> Places {
        Places(Places::below(self.nodes.len()))
    }

    /// Behind all others; it waits for these.
    pub fn push(&mut self, id: u64, packet: u32, work: Work, waits: Places) {
        let at = self.nodes.len();
        match &work {
            Work::Command(_) => self.commands.add(at),
            Work::Barrier(_) => self.barriers.add(at),
            Work::MarkerIn(_) => self.markers_in.add(at),
            Work::MarkerOut(_) | Work::Signal { .. } | Work::Timestamp { .. } => {}
        }
        if waits == Places::default() {
            self.free.add(at);
        }
        self.nodes.push_back(Node { id, packet, work, waits, until: None });
    }

    /// The first that is no command, waits for nothing, and has not started.
    pub fn first_ready(&self) -> Option<usize> {
        let ready = Places(self.free.0 & !self.commands.0 & !self.running.0 & !self.markers_in.0).first();
        let unstarted = (self.commands.0 | self.barriers.0) & !self.running.0;
        // If the first of them has to wait until all before it have started, so have all others.
        let marker = self.markers_in.first().filter(|at| unstarted & Places::below(*at) == 0);
        ready.into_iter().chain(marker).min()
    }

    /// The commands that may start.
    pub fn may_start(&self) -> Places {
        Places(self.free.0 & self.commands.0 & !self.running.0)
    }

    /// When the next running node ends.
    pub fn next_end(&self) -> Option<Nanos> {
        self.running.filter_map(|at| self.nodes.get(at)?.until).min()
    }

    /// The nodes that end first, by this time: all of one moment, in the order of the lists.
    pub fn first_done(&self, clock: Nanos) -> impl Iterator<Item = usize> + use<'_> {
        let first = self.next_end().filter(|until| *until <= clock);
        let ends = move |at: &usize| self.nodes.get(*at).is_some_and(|node| node.until == first);
        self.running.filter(move |at| first.is_some() && ends(at))
    }

    /// It runs, until then.
    pub fn start(&mut self, at: usize, until: Nanos) {
        let Some(node) = self.nodes.get_mut(at) else { return };
        node.until = Some(until);
        self.running.add(at);
    }

    /// It is done: nobody waits for it any more.
    pub fn take(&mut self, at: usize) -> Option<Work> {
        let node = self.nodes.remove(at)?;
        let sets =
            [&mut self.commands, &mut self.barriers, &mut self.markers_in, &mut self.running, &mut self.free];
        sets.into_iter().for_each(|set| set.close_gap(at));
        // Only later nodes wait for it.
        for (place, other) in self.nodes.iter_mut().enumerate().skip(at) {
            other.waits.close_gap(at);
            if other.waits == Places::default() {
                self.free.add(place);
            }
        }
        Some(node.work)
    }
}
