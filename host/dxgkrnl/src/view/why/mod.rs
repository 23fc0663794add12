//! Why a wait does not end.
//!
//! ```text
//!   who waits          CPU waits, heads of queues, acquires, work that waits in hardware, hangs, or has ended unheard
//!      │ needs
//!   values             each by the signals under way that reach it: packets of queues, stores of command buffers.
//!      │               Nothing under way: by the processes that have the right to signal, others before itself
//!   queues, engines    each packet by what is before it, each submission by its engine
//!   processes          free to act unless all that they do is wait
//! ```
//! `graph.rs` finds out what of this can happen, `needs.rs` says what needs what, `look.rs` looks up once what all
//! questions need, `tell.rs` and `names.rs` have the words, `report.rs` is the answer
//! and `text.rs` prints it.
//!
//! What is not known: what a process is about to do. One that waits on its CPU is taken to do nothing else, though another
//! thread of it may; one that does not is taken to be free. So [`Verdict::Cycle`] through processes, and
//! [`Verdict::WaitsFor`], are what the kernel sees; the other verdicts are facts.

mod collect;
mod dependencies;
mod format;
mod graph;
mod index;
mod names;
mod report;
mod text;
mod trial;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use collect::Root;
use graph::{DependencyPath, Fate, Graph, Leaf, Node};
use index::WaitIndex;

pub use report::{
    Cause, Gone, Missing, Object, Owner, Question, Release, Source, Step, StepKind, Verdict, Waiter,
    WaiterKind, Why,
};

use crate::ProcessId;
use crate::ddi::{EngineId, Miniport};
use crate::kernel::Kernel;

/// Of those who wait so many are looked at, who has waited longest first.
const LOOKED_AT_MAX: usize = 4096;

/// Cycles are looked at anew so often.
const DOUBTS_MAX: usize = 8;

/// What makes two causes one: the verdict, what they wait for if a process is to act, and where the way ends.
type Key = (&'static str, Option<Node>, Node);

/// What could be tried to release who waits first for a cause.
struct Trial {
    node: Node,
    /// Objects and values on the way, in its order.
    candidates: Vec<(u32, u64)>,
}

impl<M: Miniport> Kernel<M> {
    /// Why what waits does not go on. Looks, and changes nothing.
    pub fn why(&self, question: &Question) -> Why {
        self.why_with_trials(question).0
    }

    /// The same, and for each cause what could be tried.
    fn why_with_trials(&self, question: &Question) -> (Why, Vec<Trial>) {
        let mut look = WaitIndex::new(self, question.now);
        let mut roots = look.roots(question);
        let waiting = roots.len();
        roots.truncate(LOOKED_AT_MAX);
        let nodes: Vec<Node> = roots.iter().filter_map(|root| root.node).collect();
        let mut graph = Graph::new(&nodes, |node| look.dependencies(node));
        let (mut fates, mut members) = graph.fates();
        for _ in 0..DOUBTS_MAX {
            if !look.doubts(&members) {
                break;
            }
            graph = Graph::new(&nodes, |node| look.dependencies(node));
            (fates, members) = graph.fates();
        }
        let mut places: BTreeMap<Key, usize> = BTreeMap::new();
        let mut causes: Vec<Cause> = Vec::new();
        let mut trials: Vec<Trial> = Vec::new();
        for root in &roots {
            let fate = root.node.and_then(|node| fates.get(&node)).copied();
            let verdict = look.verdict(root, fate);
            let key = look.key(root, fate, verdict);
            let tell = || {
                let way = root.node.map(|node| graph.way(node));
                let nodes = way.as_ref().map_or(&[][..], |way| &way.nodes);
                let trial = Trial::new(root.node.unwrap_or(Node::Process(root.process)), nodes);
                (look.cause(root, way.as_ref(), verdict), trial)
            };
            if let Some(place) = places.get(&key) {
                let cause = &mut causes[*place];
                cause.waiters_count += 1;
                if cause.root.is_none() && root.node.is_some_and(Node::is_wait) {
                    // What is told is how a value comes to be missing, if one is.
                    let (fuller, trial) = tell();
                    let others = core::mem::replace(cause, fuller);
                    trials[*place] = trial;
                    cause.waiters.extend(others.waiters);
                    cause.waiters.truncate(question.waiters.max(1));
                    cause.waiters_count += others.waiters_count - 1;
                } else if cause.waiters.len() < question.waiters {
                    cause.waiters.push(look.waiter(root));
                }
                continue;
            }
            if causes.len() >= question.most {
                continue;
            }
            places.insert(key, causes.len());
            let (cause, trial) = tell();
            causes.push(cause);
            trials.push(trial);
        }
        let told: usize = causes.iter().map(|cause| cause.waiters_count).sum();
        (Why { now: look.now, waiting, causes, left_out: waiting - told }, trials)
    }
}

impl<M: Miniport> WaitIndex<'_, M> {
    fn verdict(&self, root: &Root, fate: Option<Fate>) -> Verdict {
        let number = |engine: EngineId| (engine.adapter, engine.node);
        let leaf = match fate {
            None => return Verdict::Frozen { process: root.process.0 },
            Some(Fate::Cycle { members, .. }) => return Verdict::Cycle { members },
            Some(Fate::Leaf { leaf, .. }) => leaf,
        };
        match leaf {
            Leaf::Live { due } => Verdict::Progressing { due },
            Leaf::Free(process) | Leaf::Itself(process) => Verdict::WaitsFor { process: process.0 },
            Leaf::Unknown(engine) => Verdict::Unknown { engine: number(engine) },
            Leaf::Hung(engine) => Verdict::Hang { engine: number(engine), looked_at: self.looked_at(engine) },
            Leaf::LostInterrupt(engine) => {
                Verdict::LostInterrupt { engine: number(engine), looked_at: self.looked_at(engine) }
            }
            Leaf::Frozen(process) => Verdict::Frozen { process: process.0 },
            Leaf::Suspended { process, adapter } => Verdict::Suspended { process: process.0, adapter },
            Leaf::Removed { adapter } => Verdict::Removed { adapter },
            Leaf::NotRung(process) => Verdict::NotRung { process: process.0 },
            Leaf::Dead => Verdict::DeadEnd,
        }
    }

    /// When timeout detection next looks at an engine.
    fn looked_at(&self, engine: EngineId) -> Option<u64> {
        let kernel = self.kernel;
        crate::ids::earliest(kernel.watch_due(engine), kernel.hw_queues_due(engine))
    }

    /// Who waits for other values of one object, that nothing will tell of, waits for the same cause; and so does
    /// everybody whom one engine holds up.
    fn key(&self, root: &Root, fate: Option<Fate>, verdict: Verdict) -> Key {
        let alike = |node: Node| match node {
            Node::Value { object, .. } => Node::Value { object, value: 0, by: ProcessId(0), cpu: false },
            Node::Acquire(id) => Node::Turn { object: self.mutex_of(id), queue: u32::MAX },
            Node::Job { engine, at, .. } => Node::Job { engine, at, upto: 0 },
            other => other,
        };
        let (value, last) = match fate {
            None => (None, Node::Process(root.process)),
            Some(Fate::Cycle { first, .. }) => (None, first),
            Some(Fate::Leaf { leaf: Leaf::Hung(engine) | Leaf::LostInterrupt(engine), .. }) => {
                (None, Node::Engine(engine))
            }
            Some(Fate::Leaf { last: last @ Node::Process(_), value, .. }) => (value, last),
            Some(Fate::Leaf { last, .. }) => (None, last),
        };
        (verdict.name(), value.map(alike), alike(last))
    }

    fn mutex_of(&self, acquire: u64) -> u32 {
        let keyed = &self.kernel.keyed;
        keyed.opens()[keyed.acquires()[&acquire].open].mutex
    }

    fn cause(&self, root: &Root, way: Option<&DependencyPath>, verdict: Verdict) -> Cause {
        let (chain, back_to) = way.map(|way| self.chain(way)).unwrap_or_default();
        let mut cause = Cause {
            verdict,
            waiters: alloc::vec![self.waiter(root)],
            waiters_count: 1,
            chain,
            back_to,
            root: None,
            could: Vec::new(),
            too_low: Vec::new(),
            gone: Vec::new(),
            release: None,
        };
        let Some(way) = way else { return cause };
        // A cycle has no end: what it is about is what the first waits for.
        let told = |node: &&Node| self.missing_of(**node).is_some();
        let node = match way.cycle_from {
            None => way.nodes.iter().rev().find(told),
            Some(_) => way.nodes.iter().find(told),
        };
        let Some(node) = node else { return cause };
        cause.root = self.missing_of(*node);
        match node {
            Node::Value { object, value, .. } => {
                cause.could = self.could(*object);
                cause.too_low = self.too_low(*object, *value);
                cause.gone = self.gone(*object);
            }
            Node::Turn { object, .. } => {
                cause.could = self.could_release(*object);
                cause.gone = self.gone(*object);
            }
            Node::Acquire(id) => cause.could = self.could_give(*id),
            _ => {}
        }
        cause
    }
}
