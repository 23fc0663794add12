//! Who needs what: a graph of alternatives, and what is left of it that can still happen.
//!
//! ```text
//!   all of   a wait for all, a packet (what is before it in its queue, and what it needs itself)
//!   any of   a wait for any, a value (the signals under way that reach it; or else the processes that could signal)
//! ```
//! A node *happens* if all, or any, of what it needs does: the least fixpoint, so that what needs itself does not. It is
//! computed twice: first from what is under way, then with what processes may do of their own accord.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::ddi::EngineId;
use crate::{Nanos, ProcessId};

/// The whole of a command buffer, rather than what is foreseen of it up to here.
pub(super) const WHOLE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Node {
    /// A pending wait, by slot.
    Wait(u32),
    /// A pending acquire of a keyed mutex.
    Acquire(u64),
    /// An object is to have a value, for this process: its CPU, or a queue of it.
    Value { object: u32, value: u64, by: ProcessId, cpu: bool },
    /// A mutex or semaphore is to be had by the head of this queue.
    Turn { object: u32, queue: u32 },
    /// A packet of a queue is to be done, up to this of what is foreseen of it.
    Packet { queue: u32, at: u32, upto: u32 },
    /// What a queue had ready before the packets that it has, the same.
    Ready { queue: u32, upto: u32 },
    /// A broadcast signal is to be reached by the last of its queues.
    Broadcast(u32),
    /// Work that an engine has, by its place in [`crate::ddi::Miniport::work`].
    Job { engine: EngineId, at: u32, upto: u32 },
    /// A submission that the kernel believes with the driver, which does not have it.
    Unheard { engine: EngineId, submission: u64, queue: u32 },
    /// What an engine wrote is to be looked at.
    Unseen(u32),
    /// An engine is to take what comes next.
    Engine(EngineId),
    /// The ring of a hardware queue is to reach the engine.
    Ring(u32),
    /// A process is to act.
    Process(ProcessId),
    /// A process is to be thawed.
    Frozen(ProcessId),
}

impl Node {
    /// A wait, rather than work that is held up.
    pub fn is_wait(self) -> bool {
        matches!(self, Node::Wait(_) | Node::Acquire(_) | Node::Packet { .. })
    }

    /// Something is to be reached or had.
    pub fn is_value(self) -> bool {
        matches!(self, Node::Value { .. } | Node::Turn { .. } | Node::Acquire(_))
    }

    /// Somebody waits in it.
    fn waits(self) -> bool {
        matches!(self, Node::Wait(_) | Node::Acquire(_) | Node::Turn { .. } | Node::Job { .. })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaf {
    Live {
        due: Option<Nanos>,
    },
    Free(ProcessId),
    /// Nobody but the process that waits.
    Itself(ProcessId),
    Unknown(EngineId),
    Hung(EngineId),
    LostInterrupt(EngineId),
    Frozen(ProcessId),
    Suspended {
        process: ProcessId,
        adapter: u32,
    },
    Removed {
        adapter: u32,
    },
    NotRung(ProcessId),
    Dead,
}

impl Leaf {
    fn is_live(self) -> bool {
        matches!(self, Leaf::Live { .. })
    }

    fn is_open(self) -> bool {
        matches!(self, Leaf::Live { .. } | Leaf::Free(_) | Leaf::Itself(_) | Leaf::Unknown(_))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Dependencies {
    All(Vec<Node>),
    Any(Vec<Node>),
    Leaf(Leaf),
}

impl Dependencies {
    pub fn nodes(&self) -> &[Node] {
        match self {
            Dependencies::All(nodes) | Dependencies::Any(nodes) => nodes,
            Dependencies::Leaf(_) => &[],
        }
    }
}

/// A way from a node to what it comes down to.
pub(super) struct DependencyPath {
    pub nodes: Vec<Node>,
    /// The last needs this one again.
    pub cycle_from: Option<usize>,
}

/// What becomes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It comes down to this, the last of its way; and the last value, turn or acquire on it.
    Leaf { leaf: Leaf, last: Node, value: Option<Node> },
    /// To a cycle: the first of its members in their order, and how many of them wait.
    Cycle { first: Node, members: usize },
}

struct Vertex {
    node: Node,
    needs: Dependencies,
    /// The numbers of what it needs.
    needed: Vec<usize>,
    /// How soon it happens by what is under way, and with what processes may do; `None`: never.
    live: Option<u32>,
    open: Option<u32>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Graph {
    numbers: BTreeMap<Node, usize>,
    vertices: Vec<Vertex>,
}

impl Graph {
    /// Everything that is needed by these, and by that.
    pub fn new(roots: &[Node], needs: impl Fn(Node) -> Dependencies) -> Graph {
        let mut graph = Graph::default();
        for root in roots {
            graph.number(*root);
        }
        let mut at = 0;
        while at < graph.vertices.len() {
            let needs = needs(graph.vertices[at].node);
            let needed = needs.nodes().iter().map(|node| graph.number(*node)).collect();
            (graph.vertices[at].needs, graph.vertices[at].needed) = (needs, needed);
            at += 1;
        }
        let (live, open) = (graph.ranks(Leaf::is_live), graph.ranks(Leaf::is_open));
        for (vertex, (live, open)) in graph.vertices.iter_mut().zip(live.into_iter().zip(open)) {
            (vertex.live, vertex.open) = (live, open);
        }
        graph
    }

    fn number(&mut self, node: Node) -> usize {
        *self.numbers.entry(node).or_insert_with(|| {
            let (needs, needed) = (Dependencies::All(Vec::new()), Vec::new());
            self.vertices.push(Vertex { node, needs, needed, live: None, open: None });
            self.vertices.len() - 1
        })
    }

    /// The least fixpoint: in which order nodes happen if these leaves do.
    fn ranks(&self, happens: impl Fn(Leaf) -> bool) -> Vec<Option<u32>> {
        let mut needed_by: Vec<Vec<usize>> = self.vertices.iter().map(|_| Vec::new()).collect();
        let mut to_come: Vec<usize> = Vec::with_capacity(self.vertices.len());
        let mut ranks = alloc::vec![None; self.vertices.len()];
        let mut ready = VecDeque::new();
        for (number, vertex) in self.vertices.iter().enumerate() {
            for needed in &vertex.needed {
                needed_by[*needed].push(number);
            }
            to_come.push(match vertex.needs {
                Dependencies::All(_) => vertex.needed.len(),
                Dependencies::Any(_) | Dependencies::Leaf(_) => 1,
            });
            let leaf_happens = matches!(vertex.needs, Dependencies::Leaf(leaf) if happens(leaf));
            if to_come[number] == 0 || leaf_happens {
                ready.push_back(number);
            }
        }
        let mut rank = 0;
        while let Some(number) = ready.pop_front() {
            if ranks[number].is_some() {
                continue;
            }
            ranks[number] = Some(rank);
            rank += 1;
            for other in &needed_by[number] {
                to_come[*other] = to_come[*other].saturating_sub(1);
                if to_come[*other] == 0 {
                    ready.push_back(*other);
                }
            }
        }
        ranks
    }

    /// From a node to what it comes down to: of what all is needed the last to happen, of alternatives the first; and of
    /// what never happens the first that does not.
    pub fn way(&self, from: Node) -> DependencyPath {
        let mut numbers: Vec<usize> = Vec::new();
        let mut seen = BTreeMap::new();
        let mut next = self.numbers.get(&from).copied();
        let mut cycle_from = None;
        while let Some(at) = next {
            if let Some(from) = seen.insert(at, numbers.len()) {
                cycle_from = Some(from);
                break;
            }
            numbers.push(at);
            next = self.next(&self.vertices[at]);
        }
        let nodes = numbers.iter().map(|number| self.vertices[*number].node).collect();
        DependencyPath { nodes, cycle_from }
    }

    /// The fate of every node, and the members of cycles. Each node has one next: what one way has found holds for all
    /// that join it.
    pub fn fates(&self) -> (BTreeMap<Node, Fate>, Vec<Node>) {
        let mut fates: Vec<Option<Fate>> = alloc::vec![None; self.vertices.len()];
        let mut on_way = alloc::vec![false; self.vertices.len()];
        let mut members = Vec::new();
        for start in 0..self.vertices.len() {
            let (mut way, mut at) = (Vec::new(), start);
            let mut fate = loop {
                if let Some(fate) = fates[at] {
                    break fate;
                }
                if on_way[at] {
                    break self.cycle(&way, at, &mut members);
                }
                on_way[at] = true;
                way.push(at);
                match self.next(&self.vertices[at]) {
                    Some(next) => at = next,
                    None => break self.end(&self.vertices[at]),
                }
            };
            for number in way.into_iter().rev() {
                let node = self.vertices[number].node;
                if let Fate::Leaf { value: value @ None, .. } = &mut fate {
                    *value = Some(node).filter(|node| node.is_value());
                }
                fates[number] = Some(fate);
            }
        }
        let known = self.vertices.iter().zip(fates);
        (known.filter_map(|(vertex, fate)| Some((vertex.node, fate?))).collect(), members)
    }

    fn cycle(&self, way: &[usize], again: usize, members: &mut Vec<Node>) -> Fate {
        let from = way.iter().position(|number| *number == again).unwrap_or(0);
        let before = members.len();
        members.extend(way[from..].iter().map(|number| self.vertices[*number].node));
        let of_it = &members[before..];
        let waits = of_it.iter().filter(|node| node.waits()).count();
        let first = of_it.iter().min().copied().unwrap_or(self.vertices[again].node);
        Fate::Cycle { first, members: waits }
    }

    fn end(&self, vertex: &Vertex) -> Fate {
        let leaf = match vertex.needs {
            Dependencies::Leaf(leaf) => leaf,
            Dependencies::Any(_) => Leaf::Dead,
            Dependencies::All(_) => Leaf::Live { due: None },
        };
        Fate::Leaf { leaf, last: vertex.node, value: None }
    }

    fn next(&self, vertex: &Vertex) -> Option<usize> {
        let rank = |number: usize| match vertex.live {
            Some(_) => self.vertices[number].live,
            None => self.vertices[number].open,
        };
        let needed = || vertex.needed.iter().copied();
        match (&vertex.needs, vertex.open) {
            (_, None) => needed().find(|number| self.vertices[*number].open.is_none()),
            // What is under way is not what it comes down to if something else is not.
            (Dependencies::All(_), Some(_)) => {
                let decides = |number: &usize| vertex.live.is_some() || self.vertices[*number].live.is_none();
                needed().filter(decides).max_by_key(|number| rank(*number))
            }
            (Dependencies::Any(_) | Dependencies::Leaf(_), Some(_)) => {
                needed().filter(|number| rank(*number).is_some()).min_by_key(|number| rank(*number))
            }
        }
    }
}
