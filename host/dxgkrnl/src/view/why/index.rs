//! An index that is built once for all waits: pending signals of each object, work of engines, waits of processes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::SyncObjectFlags;

use super::graph::{Node, WHOLE};
use super::leftovers::Leftovers;
use crate::ddi::{EngineId, EngineWork, HwQueueId, PendingWrite};
use crate::kernel::Kernel;
use crate::sync::Open;
use crate::sync::waits::WaitOwner;
use crate::vidsch::{Packet, Signal};
use crate::views::{AwaitedWork, WaitingCall};
use crate::{AdapterConfig, Nanos, ProcessId};

/// Pending signals that a value needs any of, listed one by one. More are needed by [`Node::AnySignal`].
pub(super) const ALTERNATIVES_LISTED_MAX: usize = 8;

/// Waits of one process that are considered at most, the first ones.
pub(super) const WAITS_OF_A_PROCESS_MAX: usize = 256;

/// A pending store or signal of a value to an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSignal {
    pub value: u64,
    pub node: Node,
    pub process: ProcessId,
}

/// The index of the kernel's waits, pending signals and engine work.
pub(super) struct WaitIndex<'a> {
    pub kernel: &'a Kernel,
    pub now: Nanos,
    /// The work of each engine; `None`: its driver cannot tell.
    pub work: BTreeMap<EngineId, Option<Vec<EngineWork>>>,
    /// By object, in the order of queues and packets.
    under_way: BTreeMap<u32, Vec<PendingSignal>>,
    /// By object with more than [`ALTERNATIVES_LISTED_MAX`] of them: their positions, by value.
    by_value: BTreeMap<u32, Vec<u32>>,
    /// By process: work whose driver cannot tell what it does.
    pub opaque: BTreeMap<ProcessId, Vec<Node>>,
    /// Calls of threads that wait for work, with the work.
    pub calls: BTreeMap<(ProcessId, u64), (AwaitedWork, Vec<Node>)>,
    /// By round that a call waits for: the work before its marks.
    pub marks: BTreeMap<u64, Vec<Node>>,
    /// The pending CPU waits and waiting calls of each process, oldest first.
    waits_of: BTreeMap<ProcessId, Vec<Node>>,
    /// Objects and values that only higher pending signals reach, which need the value themselves. Such a signal is not
    /// the one that is awaited.
    doubtful: BTreeSet<(u32, u64)>,
    /// Work of earlier steps that ends waits.
    pub(super) left: Leftovers,
}

impl<'a> WaitIndex<'a> {
    pub fn new(kernel: &'a Kernel, now: Nanos) -> Self {
        let (under_way, opaque, waits_of) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (work, doubtful, by_value) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let (calls, marks) = (BTreeMap::new(), BTreeMap::new());
        let now = now.max(kernel.now);
        let left = Leftovers::of(kernel);
        let mut index = WaitIndex {
            kernel,
            now,
            work,
            under_way,
            by_value,
            opaque,
            calls,
            marks,
            waits_of,
            doubtful,
            left,
        };
        index.index_engines();
        index.index_queues();
        index.index_calls();
        index.index_waits();
        index.index_values();
        index
    }

    fn index_values(&mut self) {
        let many = self.under_way.iter().filter(|(_, signals)| signals.len() > ALTERNATIVES_LISTED_MAX);
        let by_value = many.map(|(object, signals)| {
            let mut positions: Vec<u32> = (0..signals.len() as u32).collect();
            positions.sort_by_key(|at| signals[*at as usize].value);
            (*object, positions)
        });
        self.by_value = by_value.collect();
    }

    fn index_engines(&mut self) {
        let kernel = self.kernel;
        for (adapter, config) in (0..).zip(&kernel.config.adapters) {
            let own_paging = EngineId { adapter, node: AdapterConfig::OWN_PAGING_NODE };
            let engines = config.engines(adapter).map(|(engine, _)| engine).chain([own_paging]);
            for engine in engines {
                let work = kernel.miniport.work(engine);
                for (at, job) in (0..).zip(work.iter().flatten()) {
                    self.index_pending_writes(engine, job.process, Some(&job.pending_writes), |upto| {
                        Node::Job { engine, at, upto }
                    });
                }
                self.work.insert(engine, work);
            }
        }
    }

    /// Adds the stores of a buffer. Without a list of them, the buffer may do anything.
    fn index_pending_writes(
        &mut self,
        engine: EngineId,
        process: ProcessId,
        pending_writes: Option<&[PendingWrite]>,
        node: impl Fn(u32) -> Node,
    ) {
        let Some(pending_writes) = pending_writes else {
            return self.opaque.entry(process).or_default().push(node(WHOLE));
        };
        // A basic engine reports its writes when the buffer is done (FEN-017).
        let signals_at_write = engine.node != AdapterConfig::OWN_PAGING_NODE && {
            let nodes = &self.kernel.config.adapters[engine.adapter as usize].nodes;
            nodes[engine.node as usize % nodes.len()].signals_at_write
        };
        for (upto, write) in (0..).zip(pending_writes) {
            let PendingWrite::Store { gpu_address, value } = write else { continue };
            if let Some(open) = self.kernel.open_at(engine, process, *gpu_address) {
                let open = &self.kernel.sync.opens()[open];
                // The kernel signals the fences of its paging queues.
                if open.flags.contains(SyncObjectFlags::NO_SIGNAL) && open.mapping.paging_queue.is_none() {
                    continue;
                }
                let object = open.object;
                let node = node(if signals_at_write { upto } else { WHOLE });
                self.add(object, PendingSignal { value: *value, node, process });
            }
        }
    }

    fn add(&mut self, object: u32, under_way: PendingSignal) {
        self.under_way.entry(object).or_default().push(under_way);
    }

    fn index_queues(&mut self) {
        let kernel = self.kernel;
        for (queue, state) in kernel.vidsch.queues().iter() {
            if self.drops_packets(queue) {
                continue;
            }
            let engine = state.engine;
            if let Some(ready) = state.ready.as_ref().filter(|ready| ready.resubmits.is_none()) {
                let pending_writes = kernel.miniport.pending_writes(engine.adapter, &ready.commands);
                self.index_pending_writes(engine, state.process, pending_writes.as_deref(), |upto| {
                    Node::Ready { queue, upto }
                });
            }
            for (at, packet) in (0..).zip(&state.packets) {
                match packet {
                    Packet::Signal(signal) => {
                        self.signal(signal, Node::Packet { queue, at, upto: WHOLE });
                    }
                    Packet::Command(commands) | Packet::HwCommand { commands, .. } => {
                        let pending_writes = kernel.miniport.pending_writes(engine.adapter, commands);
                        let node = |upto| Node::Packet { queue, at, upto };
                        self.index_pending_writes(engine, state.process, pending_writes.as_deref(), node);
                    }
                    Packet::Wait(_)
                    | Packet::Acquire(_)
                    | Packet::WaitAtHead(_)
                    | Packet::Broadcast(_)
                    | Packet::Mark(_)
                    | Packet::PageTables(_) => {}
                }
            }
        }
        for (broadcast, state) in kernel.vidsch.broadcasts().iter() {
            if state.broken || self.is_broken(broadcast) {
                continue;
            }
            self.signal(&state.signal, Node::Broadcast(broadcast));
        }
    }

    fn signal(&mut self, signal: &Signal, node: Node) {
        for (object, value) in &signal.targets {
            self.add(*object, PendingSignal { value: *value, node, process: signal.process });
        }
    }

    fn index_calls(&mut self) {
        let kernel = self.kernel;
        let mut calls = Vec::new();
        // A one-way call keeps no thread.
        kernel.waiting_calls(&mut |call| calls.extend((call.request != 0).then_some(call)));
        if calls.is_empty() {
            return;
        }
        let mut marks: BTreeMap<u64, Vec<Node>> = BTreeMap::new();
        for (queue, state) in kernel.vidsch.queues().iter() {
            for (at, packet) in (0..).zip(&state.packets) {
                if let Packet::Mark(round) = packet {
                    marks.entry(*round).or_default().push(Node::Packet { queue, at, upto: WHOLE });
                }
            }
            if let Some((round, last)) = state.passed_mark {
                marks.entry(round).or_default().extend(self.submitted(queue, state, last.unwrap_or(0)));
            }
        }
        let ends = kernel.vidsch.waiting_ends().iter();
        let ends =
            ends.map(|(context, end)| ((kernel.vidsch.contexts()[*context].process, end.request), &end.busy));
        let ends: BTreeMap<(ProcessId, u64), _> = ends.collect();
        for WaitingCall { process, request, waits_for } in calls {
            let nodes = match waits_for {
                // It ends by itself.
                AwaitedWork::OfGpu => continue,
                AwaitedWork::OfDevice { round } => vec![Node::Marks(round)],
                AwaitedWork::OfContext(_) | AwaitedWork::OfPagingQueue(_) => {
                    let busy = ends.get(&(process, request)).into_iter().flat_map(|busy| busy.iter());
                    busy.flat_map(|(queue, up_to)| self.rest_of_queue(*queue, *up_to)).collect()
                }
            };
            self.calls.insert((process, request), (waits_for, nodes));
        }
        self.marks = marks;
    }

    fn index_waits(&mut self) {
        let kernel = self.kernel;
        let mut add = |process: ProcessId, node: Node| {
            let waits = self.waits_of.entry(process).or_default();
            if waits.len() < WAITS_OF_A_PROCESS_MAX {
                waits.push(node);
            }
        };
        for (id, wait) in kernel.waits_in_order() {
            if let WaitOwner::Cpu { process, .. } = wait.owner() {
                add(process, Node::Wait(id.slot));
            }
        }
        for (id, acquire) in kernel.keyed.acquires() {
            add(acquire.process, Node::Acquire(*id));
        }
        for (process, request) in self.calls.keys() {
            add(*process, Node::Call { process: *process, request: *request });
        }
    }

    /// Marks doubtful members of cycles; true if there are new ones, so that the graph has to be built again. A queue
    /// that waits for a value and then signals a higher one is no cycle, although that one reaches the first too:
    /// another signal has to come first.
    pub fn doubts(&mut self, members: &[Node]) -> bool {
        let before = self.doubtful.len();
        for member in members {
            if let Node::Value { object, value, .. } = *member
                && !self.under_way(object).iter().any(|one| one.value == value)
                && self.under_way(object).iter().any(|one| one.value > value)
            {
                self.doubtful.insert((object, value));
            }
        }
        self.doubtful.len() > before
    }

    pub fn is_doubtful(&self, object: u32, value: u64) -> bool {
        self.doubtful.contains(&(object, value))
    }

    pub fn under_way(&self, object: u32) -> &[PendingSignal] {
        self.under_way.get(&object).map_or(&[], |under_way| under_way)
    }

    /// The nodes of which any reaches a value: a few signals in the order of queues and packets, or a few nodes that
    /// stand for many. So a graph of many values and many signals has not each pair of them.
    pub fn reaching(&self, object: u32, value: u64) -> Vec<Node> {
        let signals = self.under_way(object);
        let Some(by_value) = self.by_value.get(&object) else {
            return signals.iter().filter(|one| one.value >= value).map(|one| one.node).collect();
        };
        let from = by_value.partition_point(|at| signals[*at as usize].value < value);
        let reaching = &by_value[from..];
        if reaching.len() <= ALTERNATIVES_LISTED_MAX {
            let mut positions = reaching.to_vec();
            positions.sort_unstable();
            return positions.iter().map(|at| signals[*at as usize].node).collect();
        }
        let (mut at, mut nodes) = (from, Vec::new());
        while at < by_value.len() {
            let fits = (by_value.len() - at).ilog2();
            let level = at.trailing_zeros().min(fits);
            nodes.push(self.any_signal(object, at as u32, level));
            at += 1 << level;
        }
        nodes
    }

    /// The node of 2^`level` signals.
    pub fn any_signal(&self, object: u32, at: u32, level: u32) -> Node {
        if level > 0 {
            return Node::AnySignal { object, at, level };
        }
        self.under_way(object)[self.by_value[&object][at as usize] as usize].node
    }

    /// The CPU waits and waiting calls of a process.
    pub fn waits_of(&self, process: ProcessId) -> &[Node] {
        self.waits_of.get(&process).map_or(&[], |waits| waits)
    }

    /// The index of a submission in its engine's work.
    pub fn place_of(&self, engine: EngineId, submission: u64) -> Option<u32> {
        let work = self.work.get(&engine)?.as_ref()?;
        let at = work.iter().position(|one| one.submission_fence_id == submission)?;
        Some(at as u32)
    }

    /// The indices of a hardware queue's work on an engine.
    pub fn jobs_of(&self, engine: EngineId, hw_queue: HwQueueId) -> impl Iterator<Item = u32> {
        let work = self.work.get(&engine).and_then(Option::as_ref);
        let jobs = (0..).zip(work.into_iter().flatten());
        jobs.filter(move |(_, one)| one.hw_queue == Some(hw_queue)).map(|(at, _)| at)
    }

    /// The processes that could signal an object, from the CPU or by their queues, in the order of their opens.
    pub fn signalers(&self, object: u32) -> Vec<ProcessId> {
        let mut signalers = Vec::new();
        for open in self.opens(object).filter(|open| self.may_signal(open)) {
            if !signalers.contains(&open.process) {
                signalers.push(open.process);
            }
        }
        signalers
    }

    /// The adapter on which another process has the right to signal an object, but no device any more. If no process
    /// has a device, the waiting process itself counts too.
    pub fn removed(&self, object: u32, by: ProcessId) -> Option<u32> {
        let right = |open: &&Open| {
            let has_right = !open.flags.contains(SyncObjectFlags::NO_SIGNAL);
            has_right && !self.has_device(open) && !self.is_ending(open)
        };
        let of_others = self.opens(object).filter(right).find(|open| open.process != by);
        let own = || self.opens(object).filter(right).find(|_| self.signalers(object).is_empty());
        of_others.or_else(own).map(|open| open.adapter)
    }

    pub fn opens(&self, object: u32) -> impl Iterator<Item = &'a Open> {
        let kernel = self.kernel;
        let state = kernel.sync.objects().get(object);
        state.into_iter().flat_map(|state| state.opens()).map(|open| &kernel.sync.opens()[open])
    }

    fn may_signal(&self, open: &Open) -> bool {
        let has_right = !open.flags.contains(SyncObjectFlags::NO_SIGNAL);
        has_right && !self.is_ending(open) && self.has_device(open)
    }

    /// Whether an open with the right to signal an object is still being cleared away.
    pub fn has_ending_signaler(&self, object: u32) -> bool {
        let mut opens = self.opens(object).filter(|open| !open.flags.contains(SyncObjectFlags::NO_SIGNAL));
        opens.any(|open| self.is_ending(open))
    }

    /// Whether the process of an open has an active device on its adapter.
    fn has_device(&self, open: &Open) -> bool {
        let kernel = self.kernel;
        !kernel.tdr.stopped_adapters().contains(&open.adapter)
            && kernel.processes.devices().iter().any(|(_, device)| {
                (device.process, device.adapter) == (open.process, open.adapter)
                    && device.state == d3dkmt::DeviceExecutionState::ACTIVE
            })
    }
}
