//! Why a wait does not end.
//!
//! ```text
//!   waiters            CPU waits, heads of queues, acquires, work that waits in hardware, hangs, or ended unreported
//!      │ needs
//!   values             each by pending signals that reach it: packets of queues, stores of command buffers.
//!      │               Without any: by the processes that have the right to signal, others before the waiter itself
//!   queues, engines    each packet by what is before it, each submission by its engine
//!   processes          free to act unless they have pending CPU waits
//! ```
//! `graph.rs` finds the nodes that can still happen, `dependencies.rs` has the needs of each node, and `index.rs`
//! collects once what all waits need, with `leftovers.rs` for what later steps end. `collect.rs` finds the waiters, `format.rs` and `names.rs` word the steps,
//! `trial.rs` tries signals on a copy. `report.rs` is the answer, and `text.rs` prints it.
//!
//! The kernel does not know what a process will do next. A process with a wait on its CPU counts as blocked, though
//! another of its threads may act; a process without one counts as free. So [`Verdict::Cycle`] through processes and
//! [`Verdict::WaitsFor`] are the kernel's view; the other verdicts are facts.

mod collect;
mod dependencies;
mod format;
mod graph;
mod index;
mod leftovers;
mod names;
mod report;
mod text;
mod trial;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use collect::Root;
use graph::{DependencyPath, Fate, Graph, Leaf, Node};
use index::WaitIndex;

pub use report::{
    Cause, Gone, Missing, Object, Owner, Question, Release, Source, Step, StepKind, Verdict, Waiter,
    WaiterKind, Why,
};

use crate::ProcessId;
use crate::ddi::EngineId;
use crate::kernel::Kernel;

/// Waiters that are examined at most, the longest wait first.
const ROOTS_MAX: usize = 4096;

/// Times that cycles are examined again at most.
const DOUBTS_MAX: usize = 8;

/// Identifies a cause: the verdict, the missing value if a process has to act, and the end of the path.
type Key = (&'static str, Option<Node>, Node);

/// Signals to try that may release the first waiter of a cause.
struct Trial {
    node: Node,
    /// Objects and values on the path, in its order.
    candidates: Vec<(u32, u64)>,
}

impl Kernel {
    /// Why waits do not end. Changes nothing.
    pub fn why(&self, question: &Question) -> Why {
        self.why_with_trials(question).0
    }

    /// [`Kernel::why`], and the signals to try for each cause.
    fn why_with_trials(&self, question: &Question) -> (Why, Vec<Trial>) {
        let mut index = WaitIndex::new(self, question.now);
        let mut roots = index.roots(question);
        let waiting = roots.len();
        roots.truncate(ROOTS_MAX);
        let nodes: Vec<Node> = roots.iter().filter_map(|root| root.node).collect();
        let mut graph = Graph::new(&nodes, |node| index.dependencies(node));
        let (mut fates, mut members) = graph.fates();
        for _ in 0..DOUBTS_MAX {
            if !index.doubts(&members) {
                break;
            }
            graph = Graph::new(&nodes, |node| index.dependencies(node));
            (fates, members) = graph.fates();
        }
        let judge = |root: &Root| {
            let fate = root.node.and_then(|node| fates.get(&node)).copied();
            let verdict = index.verdict(root, fate);
            (index.key(root, fate, verdict), verdict)
        };
        let judged: Vec<(Key, Verdict)> = roots.iter().map(judge).collect();
        let listed = listed_keys(&judged, question.most);
        let mut why = Why { now: index.now, waiting, unexamined: waiting - roots.len(), ..Why::default() };
        let mut cause_numbers: BTreeMap<Key, usize> = BTreeMap::new();
        let mut trials: Vec<Trial> = Vec::new();
        for (root, (key, verdict)) in roots.iter().zip(judged) {
            if !listed.contains(&key) {
                why.stuck_left_out += usize::from(verdict.is_stuck());
                continue;
            }
            let describe = || {
                let path = root.node.map(|node| graph.path(node));
                let nodes = path.as_ref().map_or(&[][..], |path| &path.nodes);
                let trial = Trial::new(root.node.unwrap_or(Node::Process(root.process)), nodes);
                (index.cause(root, path.as_ref(), verdict), trial)
            };
            let Some(number) = cause_numbers.get(&key) else {
                cause_numbers.insert(key, why.causes.len());
                let (cause, trial) = describe();
                why.causes.push(cause);
                trials.push(trial);
                continue;
            };
            let cause = &mut why.causes[*number];
            cause.waiters_count += 1;
            if cause.root.is_none() && root.node.is_some_and(Node::is_wait) {
                // The report prefers a waiter whose path has a missing value.
                let (fuller, trial) = describe();
                let previous = core::mem::replace(cause, fuller);
                trials[*number] = trial;
                cause.waiters.extend(previous.waiters);
                cause.waiters.truncate(question.waiters.max(1));
                cause.waiters_count += previous.waiters_count - 1;
            } else if cause.waiters.len() < question.waiters {
                cause.waiters.push(index.waiter(root));
            }
        }
        let listed: usize = why.causes.iter().map(|cause| cause.waiters_count).sum();
        why.left_out = waiting - listed;
        (why, trials)
    }
}

/// The keys of the causes that the answer lists: at most `most`, those of stuck waits before others, the longest wait
/// first.
fn listed_keys(judged: &[(Key, Verdict)], most: usize) -> BTreeSet<Key> {
    let (stuck, others): (Vec<&(Key, Verdict)>, Vec<_>) =
        judged.iter().partition(|(_, verdict)| verdict.is_stuck());
    let mut listed = BTreeSet::new();
    for &(key, _) in stuck.into_iter().chain(others) {
        if listed.len() >= most {
            break;
        }
        listed.insert(key);
    }
    listed
}

impl WaitIndex<'_> {
    fn verdict(&self, root: &Root, fate: Option<Fate>) -> Verdict {
        let number = |engine: EngineId| (engine.adapter, engine.node);
        let leaf = match fate {
            None => return Verdict::Frozen { process: root.process.0 },
            Some(Fate::Cycle { members, has_process, .. }) => {
                return Verdict::Cycle { members, has_process };
            }
            Some(Fate::Leaf { leaf, .. }) => leaf,
        };
        match leaf {
            Leaf::Live { due } => Verdict::Progressing { due },
            Leaf::Free(process) | Leaf::Itself(process) => Verdict::WaitsFor { process: process.0 },
            Leaf::Unknown(engine) => Verdict::Unknown { engine: number(engine) },
            Leaf::Hung(engine) => {
                Verdict::Hang { engine: number(engine), looked_at: self.kernel.check_due(engine) }
            }
            Leaf::LostInterrupt(engine) => {
                Verdict::LostInterrupt { engine: number(engine), looked_at: self.kernel.check_due(engine) }
            }
            Leaf::Frozen(process) => Verdict::Frozen { process: process.0 },
            Leaf::Suspended { process, adapter } => Verdict::Suspended { process: process.0, adapter },
            Leaf::Removed { adapter } => Verdict::Removed { adapter },
            Leaf::NotRung(process) => Verdict::NotRung { process: process.0 },
            Leaf::Dead => Verdict::DeadEnd,
        }
    }

    /// The key of a root's cause. Waits for different values of one object share a cause, and so do all waits that one
    /// engine blocks.
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

    fn cause(&self, root: &Root, path: Option<&DependencyPath>, verdict: Verdict) -> Cause {
        let (chain, back_to) = path.map(|path| self.chain(path)).unwrap_or_default();
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
        let Some(path) = path else { return cause };
        // A cycle has no end, so its missing value is that of the first wait.
        let has_missing = |node: &&Node| self.missing_of(**node).is_some();
        let node = match path.cycle_from {
            None => path.nodes.iter().rev().find(has_missing),
            Some(_) => path.nodes.iter().find(has_missing),
        };
        let Some(node) = node else { return cause };
        cause.root = self.missing_of(*node);
        match node {
            Node::Value { object, value, .. } => {
                cause.could = self.could(*object);
                cause.too_low = self.too_low(*object, *value);
                cause.gone = self.past_signalers(*object);
            }
            Node::Turn { object, .. } => {
                cause.could = self.could_release(*object);
                cause.gone = self.past_signalers(*object);
            }
            Node::Acquire(id) => {
                cause.could = self.could_give(*id);
                cause.gone = self.past_owners(self.mutex_of(*id));
            }
            _ => {}
        }
        cause
    }
}
