//! The wait-for graph: nodes with their dependencies, and which of them can still happen.
//!
//! ```text
//!   all of   a wait for all, a packet (the packet before it in its queue, and its own objects)
//!   any of   a wait for any, a value (the pending signals that reach it; or else the processes that could signal)
//! ```
//! A node *happens* if all, or any, of its dependencies happen. This is the least fixpoint, so a node that needs itself
//! does not happen. It is computed twice: first from pending work alone, then also with actions that processes are free
//! to take.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::ddi::EngineId;
use crate::{Nanos, ProcessId};

/// The whole command buffer, rather than its pending writes up to one of them.
pub(super) const WHOLE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Node {
    /// A pending wait, by slot.
    Wait(u32),
    /// The steps that end waits for this object, because more of them end than fit one.
    LaterSteps(u32),
    /// A pending acquire of a keyed mutex.
    Acquire(u64),
    /// A value that an object has to reach for this process: for its CPU, or for a queue of it.
    Value { object: u32, value: u64, by: ProcessId, cpu: bool },
    /// A mutex or semaphore that the head of this queue has to acquire.
    Turn { object: u32, queue: u32 },
    /// A packet of a queue that has to be done, up to pending write `upto`.
    Packet { queue: u32, at: u32, upto: u32 },
    /// The ready command buffer of a queue, up to pending write `upto`.
    Ready { queue: u32, upto: u32 },
    /// A broadcast signal that the last of its queues has to reach.
    Broadcast(u32),
    /// Work of an engine, by its index in [`crate::ddi::Miniport::work`].
    Job { engine: EngineId, at: u32, upto: u32 },
    /// A submission that the kernel counts as submitted, and that the driver no longer has.
    Unheard { engine: EngineId, submission: u64, queue: u32 },
    /// An object that an engine wrote and that has to be evaluated.
    Unseen(u32),
    /// An engine that has to take the next work.
    Engine(EngineId),
    /// The ring of a hardware queue, which the engine has to read.
    Ring(u32),
    /// A process that has to act.
    Process(ProcessId),
    /// A process that has to be thawed.
    Frozen(ProcessId),
    /// Any of 2^`level` pending signals of an object, from the one at `at` in the order of their values: a value that
    /// many signals reach needs a few of these.
    AnySignal { object: u32, at: u32, level: u32 },
    /// Any work of a process whose driver cannot tell what it does.
    AnyOpaque(ProcessId),
    /// The time-out of an acquire.
    TimeOut(u64),
    /// A call that is answered once work is done.
    Call { process: ProcessId, request: u64 },
    /// All marks of a round, which many calls may wait for.
    Marks(u64),
}

impl Node {
    /// Whether it is a wait, rather than work that is blocked.
    pub fn is_wait(self) -> bool {
        matches!(self, Node::Wait(_) | Node::Acquire(_) | Node::Packet { .. } | Node::Call { .. })
    }

    /// Whether it is a value to reach, or an object to acquire.
    pub fn is_value(self) -> bool {
        matches!(self, Node::Value { .. } | Node::Turn { .. } | Node::Acquire(_))
    }

    /// Whether it counts as a waiting member of a cycle.
    fn waits(self) -> bool {
        matches!(
            self,
            Node::Wait(_) | Node::Acquire(_) | Node::Turn { .. } | Node::Job { .. } | Node::Call { .. }
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaf {
    Live {
        due: Option<Nanos>,
    },
    Free(ProcessId),
    /// Only the waiting process itself could signal.
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

/// The path from a node to the end that decides its fate.
pub(super) struct DependencyPath {
    pub nodes: Vec<Node>,
    /// Of a cycle: the index of the node that the last one needs again.
    pub cycle_from: Option<usize>,
}

/// The fate of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Its path ends at this leaf, in node `last`. `value` is the last value, turn or acquire on the path.
    Leaf { leaf: Leaf, last: Node, value: Option<Node> },
    /// Its path ends in a cycle: its first member in their order, the number of members that wait, and whether a process
    /// is one.
    Cycle { first: Node, members: usize, has_process: bool },
}

struct Vertex {
    node: Node,
    needs: Dependencies,
    /// The numbers of the nodes that it needs.
    needed: Vec<usize>,
    /// Its rank by pending work alone (`live`), and with actions of processes (`open`); `None`: it never happens.
    live: Option<u32>,
    open: Option<u32>,
}

/// The wait-for graph of some roots.
#[derive(Default)]
pub(super) struct Graph {
    numbers: BTreeMap<Node, usize>,
    vertices: Vec<Vertex>,
}

impl Graph {
    /// The graph of the roots and of all nodes that they need, directly or not.
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

    /// The least fixpoint: the order in which nodes happen if these leaves happen.
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

    /// The path that decides a node. It follows the last dependency to happen if all are needed, and the first if any
    /// is enough. In a node that never happens it follows the first dependency that never does.
    pub fn path(&self, from: Node) -> DependencyPath {
        let mut numbers: Vec<usize> = Vec::new();
        let mut visited = BTreeMap::new();
        let mut next = self.numbers.get(&from).copied();
        let mut cycle_from = None;
        while let Some(at) = next {
            if let Some(from) = visited.insert(at, numbers.len()) {
                cycle_from = Some(from);
                break;
            }
            numbers.push(at);
            next = self.next(&self.vertices[at]);
        }
        let nodes = numbers.iter().map(|number| self.vertices[*number].node).collect();
        DependencyPath { nodes, cycle_from }
    }

    /// The fate of every node, and the members of cycles. Each node has one successor, so paths that join share their
    /// fate.
    pub fn fates(&self) -> (BTreeMap<Node, Fate>, Vec<Node>) {
        let mut fates: Vec<Option<Fate>> = alloc::vec![None; self.vertices.len()];
        let mut on_path = alloc::vec![false; self.vertices.len()];
        let mut members = Vec::new();
        for start in 0..self.vertices.len() {
            let (mut path, mut at) = (Vec::new(), start);
            let mut fate = loop {
                if let Some(fate) = fates[at] {
                    break fate;
                }
                if on_path[at] {
                    break self.cycle(&path, at, &mut members);
                }
                on_path[at] = true;
                path.push(at);
                match self.next(&self.vertices[at]) {
                    Some(next) => at = next,
                    None => break self.end(&self.vertices[at]),
                }
            };
            for number in path.into_iter().rev() {
                let node = self.vertices[number].node;
                if let Fate::Leaf { value: value @ None, .. } = &mut fate {
                    *value = Some(node).filter(|node| node.is_value());
                }
                fates[number] = Some(fate);
            }
        }
        let pairs = self.vertices.iter().zip(fates);
        (pairs.filter_map(|(vertex, fate)| Some((vertex.node, fate?))).collect(), members)
    }

    fn cycle(&self, path: &[usize], again: usize, members: &mut Vec<Node>) -> Fate {
        let from = path.iter().position(|number| *number == again).unwrap_or(0);
        let before = members.len();
        members.extend(path[from..].iter().map(|number| self.vertices[*number].node));
        let of_it = &members[before..];
        let waits = of_it.iter().filter(|node| node.waits()).count();
        let first = of_it.iter().min().copied().unwrap_or(self.vertices[again].node);
        let has_process = of_it.iter().any(|node| matches!(node, Node::Process(_)));
        Fate::Cycle { first, members: waits, has_process }
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
            // Pending work does not decide the node if another dependency is not pending.
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
