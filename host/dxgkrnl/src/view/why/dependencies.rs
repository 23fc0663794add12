//! The dependencies of each node of the graph.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::{Handle, SignalFlags, SyncObjectType};

use super::graph::{Dependencies, Leaf, Node, WHOLE};
use super::index::{ALTERNATIVES_LISTED_MAX, WaitIndex};
use crate::ProcessId;
use crate::ddi::{EngineId, EngineState, EngineWork, HwQueueId, PendingWrite, WorkState};
use crate::policy::{AbandonedMutex, ForeignMutexRelease};
use crate::sync::keyed_mutex::State;
use crate::sync::legacy::{Acquire, Kind, MutexOwner};
use crate::sync::waits::{Wait, WaitItem, WaitOwner};
use crate::tdr::Watch;
use crate::vidsch::{DoorbellStatus, Packet, Queue, Signal};

impl WaitIndex<'_> {
    pub fn dependencies(&self, node: Node) -> Dependencies {
        match node {
            Node::Wait(slot) => {
                let (waits, id) = (self.kernel.sync.waits(), self.kernel.sync.waits().id(slot));
                let wait = waits.at(slot);
                let (by, cpu) = self.waits_by(wait);
                let items = waits.items(wait);
                if self.ends_later(id) {
                    return Dependencies::Any(
                        items.iter().take(1).map(|item| Node::LaterSteps(item.object)).collect(),
                    );
                }
                let missing = items.iter().filter(|item| !item.satisfied);
                let need = |item: WaitItem| match self.is_satisfied_later(id, item) {
                    true => Node::LaterSteps(item.object),
                    false => Node::Value { object: item.object, value: item.value, by, cpu },
                };
                let needs = missing.map(need).collect();
                if wait.any { Dependencies::Any(needs) } else { Dependencies::All(needs) }
            }
            Node::LaterSteps(_) => Dependencies::Leaf(Leaf::Live { due: None }),
            Node::Acquire(id) => self.of_acquire(id),
            Node::Value { object, value, by, cpu } => self.of_value(object, value, by, cpu),
            Node::Turn { object, queue } => self.of_turn(object, queue),
            Node::Packet { queue, at, upto } => self.of_packet(queue, at, upto),
            Node::Ready { queue, upto } => self.of_ready(queue, upto),
            Node::Broadcast(broadcast) => self.of_broadcast(broadcast),
            Node::Job { engine, at, upto } => self.of_job(engine, at, upto),
            Node::Unheard { engine, submission, .. } => self.of_unheard(engine, submission),
            Node::Unseen(object) => self.of_unseen(object),
            Node::Engine(engine) => self.of_engine(engine),
            Node::Ring(hw_queue) => {
                Dependencies::Leaf(Leaf::NotRung(self.kernel.vidsch.hw_queues()[hw_queue].process))
            }
            Node::Process(process) => self.of_process(process),
            Node::Frozen(process) => Dependencies::Leaf(Leaf::Frozen(process)),
            Node::AnySignal { object, at, level } => {
                let half = level - 1;
                let halves = [at, at + (1 << half)];
                Dependencies::Any(halves.map(|at| self.any_signal(object, at, half)).to_vec())
            }
            Node::AnyOpaque(process) => {
                Dependencies::Any(self.opaque.get(&process).cloned().unwrap_or_default())
            }
            Node::TimeOut(id) => Dependencies::Leaf(Leaf::Live { due: self.kernel.keyed.ends(id) }),
            Node::Call { process, request } => {
                let call = self.calls.get(&(process, request));
                Dependencies::All(call.map_or_else(Vec::new, |(_, work)| work.clone()))
            }
            Node::Marks(round) => Dependencies::All(self.marks.get(&round).cloned().unwrap_or_default()),
        }
    }

    /// The process that waits, and whether on its CPU.
    pub fn waits_by(&self, wait: &Wait) -> (ProcessId, bool) {
        match wait.owner() {
            WaitOwner::Cpu { process, .. } => (process, true),
            WaitOwner::Gpu { queue } => (self.kernel.vidsch.queues()[queue].process, false),
            WaitOwner::SyncFile { .. } => unreachable!("no wait of a process"),
        }
    }

    /// A value needs one of the pending signals that reach it. Without any it needs another process, and at last the
    /// waiting process itself.
    fn of_value(&self, object: u32, value: u64, by: ProcessId, cpu: bool) -> Dependencies {
        let kernel = self.kernel;
        if kernel.sync.objects().value(object) >= value {
            let is_due = kernel.sync.written().has_due() && kernel.sync.written().is_due(object);
            return Dependencies::Any(vec![if is_due {
                Node::LaterSteps(object)
            } else {
                Node::Unseen(object)
            }]);
        }
        if kernel.sync.objects()[object].object_type == SyncObjectType::PERIODIC_MONITORED_FENCE {
            let adapter = kernel.sync.objects()[object].adapter;
            let is_gone = kernel.tdr.stopped_adapters().contains(&adapter);
            let due = kernel.miniport.next_deadline();
            return Dependencies::Leaf(if is_gone { Leaf::Removed { adapter } } else { Leaf::Live { due } });
        }
        let mut nodes = self.reaching(object, value);
        nodes.extend(self.ring_of(object, value));
        let signalers = self.signalers(object);
        if nodes.is_empty() {
            nodes = self.opaque_of(&signalers);
        }
        if !nodes.is_empty() && !self.is_doubtful(object, value) {
            return Dependencies::Any(nodes);
        }
        let others: Vec<ProcessId> = signalers.iter().copied().filter(|process| *process != by).collect();
        let may_itself = signalers.contains(&by);
        if others.is_empty() {
            // A process that has the right to signal, but no device any more, counts as the one that had to.
            if let Some(adapter) = self.removed(object, by) {
                return Dependencies::Leaf(Leaf::Removed { adapter });
            }
            if !may_itself || self.had_help(object, value) || self.has_ending_signaler(object) {
                return Dependencies::Leaf(Leaf::Dead);
            }
        }
        match (cpu, others.is_empty()) {
            (true, true) => Dependencies::Leaf(Leaf::Itself(by)),
            (true, false) => Dependencies::Any(others.into_iter().map(Node::Process).collect()),
            (false, _) => Dependencies::Any(signalers.into_iter().map(Node::Process).collect()),
        }
    }

    /// Work of these processes whose driver cannot tell what it does.
    fn opaque_of(&self, processes: &[ProcessId]) -> Vec<Node> {
        let of_process = |process: &ProcessId| {
            let works = self.opaque.get(process).map_or(&[][..], |works| works);
            if works.len() > ALTERNATIVES_LISTED_MAX {
                vec![Node::AnyOpaque(*process)]
            } else {
                works.to_vec()
            }
        };
        processes.iter().flat_map(of_process).collect()
    }

    /// Whether a process that could have signaled the value, or was about to, is gone.
    fn had_help(&self, object: u32, value: u64) -> bool {
        self.kernel.history.of(object).any(|one| one.would_signal.is_some_and(|reached| reached >= value))
    }

    /// The ring of the user-mode queue whose progress fence this is, if its work would reach the value and its engine
    /// was not notified.
    pub fn ring_of(&self, object: u32, value: u64) -> Option<Node> {
        let id = *self.kernel.vidsch.progress_fences().get(&object)?;
        let hw_queue = &self.kernel.vidsch.hw_queues()[id];
        let engine = self.kernel.vidsch.queues()[hw_queue.queue].engine;
        let is_listed = self.jobs_of(engine, HwQueueId(id)).next().is_some();
        let status = hw_queue.doorbell.as_ref().map(|doorbell| doorbell.status);
        let is_deaf = match status {
            Some(DoorbellStatus::Connected) => self.is_awaited_in_vain(id),
            Some(DoorbellStatus::ConnectedNotify) => {
                self.kernel.miniport.ring_bytes(HwQueueId(id)) > 0 || self.is_awaited_in_vain(id)
            }
            Some(DoorbellStatus::DisconnectedRetry | DoorbellStatus::DisconnectedAbort) | None => true,
        };
        let is_lost = hw_queue.user_mode() && hw_queue.last_queued >= value && is_deaf && !is_listed;
        is_lost.then_some(Node::Ring(id))
    }

    /// Whether the end of a hardware queue or of its context waits for a value that nothing in the ring will reach.
    pub(super) fn is_awaited_in_vain(&self, id: u32) -> bool {
        let kernel = self.kernel;
        let hw_queue = &kernel.vidsch.hw_queues()[id];
        let is_awaited = hw_queue.handle == Handle::NULL || kernel.awaited_of(hw_queue.queue).is_some();
        is_awaited && kernel.miniport.ring_bytes(HwQueueId(id)) == 0
    }

    /// An acquire needs the mutex to be free with its key, or ends by its time-out.
    fn of_acquire(&self, id: u64) -> Dependencies {
        let keyed = &self.kernel.keyed;
        let acquire = &keyed.acquires()[&id];
        let mutex = keyed.opens()[acquire.open].mutex;
        let mut nodes: Vec<Node> = keyed.ends(id).map(|_| Node::TimeOut(id)).into_iter().collect();
        match keyed.mutexes()[mutex].state {
            State::Owned(open) => {
                nodes.push(Node::Process(keyed.opens()[open].process));
                return Dependencies::Any(nodes);
            }
            // Later steps end its acquires.
            State::Abandoned => return Dependencies::Leaf(Leaf::Live { due: None }),
            State::Free => {}
        }
        // It is free with another key. A process that acquires it with that key may release it with this one.
        let opens = keyed.opens().iter().filter(|(_, open)| open.mutex == mutex);
        let (ending, others): (BTreeSet<ProcessId>, BTreeSet<ProcessId>) = opens
            .map(|(_, open)| open.process)
            .filter(|process| *process != acquire.process)
            .partition(|process| self.kernel.is_ending(*process));
        nodes.extend(others.into_iter().map(Node::Process));
        if !nodes.is_empty() {
            return Dependencies::Any(nodes);
        }
        let had_help = self.kernel.history.of_keyed_mutex(mutex).any(|one| one.would_signal.is_some());
        let is_dead = had_help || !ending.is_empty();
        Dependencies::Leaf(if is_dead { Leaf::Dead } else { Leaf::Itself(acquire.process) })
    }

    /// A mutex needs a release by its owner; a semaphore needs a signal by any process. Both go to the queues in line
    /// one after the other.
    fn of_turn(&self, object: u32, queue: u32) -> Dependencies {
        let kernel = self.kernel;
        let is_owners = kernel.config.policy.foreign_mutex_release != ForeignMutexRelease::Releases;
        let kind = kernel.sync.legacy().objects.get(&object).map(|state| &state.kind);
        match kind {
            Some(Kind::Mutex { owner: Some(owner) }) if is_owners => {
                match self.takers_before(object, queue).next() {
                    Some((before, _)) => self.after_taker(object, before),
                    None => self.release_by(object, *owner),
                }
            }
            Some(Kind::Mutex { .. } | Kind::Semaphore { .. } | Kind::Notification { .. }) | None => {
                self.of_count(object, queue)
            }
        }
    }

    /// A mutex that has an owner needs its release.
    fn release_by(&self, object: u32, owner: MutexOwner) -> Dependencies {
        let nodes = self.releases_by(object, owner);
        if !nodes.is_empty() {
            return Dependencies::Any(nodes);
        }
        if self.abandons(owner.process, owner.by) {
            return match self.kernel.config.policy.abandoned_mutex {
                AbandonedMutex::Freed => Dependencies::Any(vec![Node::LaterSteps(object)]),
                AbandonedMutex::StaysOwned => Dependencies::Leaf(Leaf::Dead),
            };
        }
        let is_gone = owner.by == Handle::NULL || !self.kernel.processes.by_id().contains_key(&owner.process);
        if is_gone {
            Dependencies::Leaf(Leaf::Dead)
        } else {
            Dependencies::Any(vec![Node::Process(owner.process)])
        }
    }

    /// Pending releases of a mutex by this owner: the first of each queue, because later ones come after it.
    fn releases_by(&self, object: u32, owner: MutexOwner) -> Vec<Node> {
        let releases = |signal: &Signal| signal.process == owner.process && signal.by.contains(&owner.by);
        let nodes = self.under_way(object).iter().map(|one| one.node);
        let mut queues = BTreeSet::new();
        let is_first = |node: &Node| {
            if let Node::Packet { queue, .. } = node { queues.insert(*queue) } else { true }
        };
        nodes.filter(|node| self.signal_of(*node).is_some_and(releases)).filter(is_first).collect()
    }

    /// A mutex that another queue acquires first needs that, and its release there.
    fn after_taker(&self, object: u32, before: u32) -> Dependencies {
        let state = &self.kernel.vidsch.queues()[before];
        let by = self.kernel.vidsch.contexts()[state.context].handle;
        // Releases in that queue come after its acquire.
        let releases = self.releases_by(object, MutexOwner { process: state.process, by });
        if !releases.is_empty() {
            return Dependencies::Any(releases);
        }
        Dependencies::All(vec![Node::Turn { object, queue: before }, Node::Process(state.process)])
    }

    /// A semaphore needs as many signals as this queue and those before it in line acquire. So does a mutex that any
    /// signal releases.
    fn of_count(&self, object: u32, queue: u32) -> Dependencies {
        let kernel = self.kernel;
        let pending = self.under_way(object).len() as u64;
        let own = match kernel.vidsch.queues()[queue].packets.front() {
            Some(Packet::Acquire(acquire)) => acquire.takes(object).max(1),
            _ => 1,
        };
        let is_mutex = kernel.sync.legacy().owner(object).is_some();
        let there_is = if is_mutex { 0 } else { kernel.sync.objects().value(object) };
        let mut wanted = own.saturating_sub(there_is).max(1);
        for (_, acquire) in self.takers_before(object, queue) {
            if wanted > pending {
                break;
            }
            wanted += acquire.takes(object);
        }
        let nodes = self.reaching(object, 0);
        if wanted == pending {
            return Dependencies::All(self.under_way(object).iter().map(|one| one.node).collect());
        }
        if wanted < pending {
            return Dependencies::Any(nodes);
        }
        if let Some(owner) = kernel.sync.legacy().owner(object) {
            return self.release_by(object, owner);
        }
        let nodes: Vec<Node> = self.signalers(object).into_iter().map(Node::Process).collect();
        if nodes.is_empty() { Dependencies::Leaf(Leaf::Dead) } else { Dependencies::Any(nodes) }
    }

    /// The queues that wait for an object in its line before this one, and lack nothing else: the last first.
    pub fn takers_before(&self, object: u32, queue: u32) -> impl Iterator<Item = (u32, &Acquire)> {
        let acquire = |queue: u32| match self.kernel.vidsch.queues()[queue].packets.front() {
            Some(Packet::Acquire(acquire)) => Some(acquire),
            _ => None,
        };
        let position = acquire(queue).and_then(|acquire| acquire.position).unwrap_or(u64::MAX);
        let state = self.kernel.sync.legacy().objects.get(&object);
        let line = state.into_iter().flat_map(move |state| state.line.range(..position).rev());
        let takers = line.filter_map(move |(_, before)| Some((*before, acquire(*before)?)));
        takers.filter(move |(_, acquire)| acquire.watches == Some(object))
    }

    fn signal_of(&self, node: Node) -> Option<&Signal> {
        match node {
            Node::Packet { queue, at, .. } => {
                match self.kernel.vidsch.queues()[queue].packets.get(at as usize)? {
                    Packet::Signal(signal) => Some(signal),
                    _ => None,
                }
            }
            Node::Broadcast(broadcast) => Some(&self.kernel.vidsch.broadcasts()[broadcast].signal),
            _ => None,
        }
    }

    /// A packet needs the packet before it in its queue, and its own objects.
    fn of_packet(&self, queue: u32, at: u32, upto: u32) -> Dependencies {
        if self.drops_packets(queue) {
            return Dependencies::Leaf(Leaf::Live { due: None });
        }
        let state = &self.kernel.vidsch.queues()[queue];
        let packet = &state.packets[at as usize];
        let mut nodes = match at.checked_sub(1) {
            Some(before) => vec![Node::Packet { queue, at: before, upto: WHOLE }],
            None => self.before_packets(queue, state, packet),
        };
        match packet {
            Packet::Wait(wait) if self.kernel.sync.waits().contains(*wait) => {
                nodes.push(Node::Wait(wait.slot))
            }
            Packet::WaitAtHead(items) => {
                let not_yet = |item: &&WaitItem| self.kernel.sync.objects().value(item.object) < item.value;
                let (by, cpu) = (state.process, false);
                let value = |item: &WaitItem| Node::Value { object: item.object, value: item.value, by, cpu };
                nodes.extend(items.iter().filter(not_yet).map(value));
            }
            Packet::Acquire(acquire) => {
                let wait = acquire.wait.filter(|wait| self.kernel.sync.waits().contains(*wait));
                nodes.extend(wait.map(|wait| Node::Wait(wait.slot)));
                let taken = acquire.objects.iter().filter(|object| self.is_taken(acquire, **object, queue));
                nodes.extend(taken.map(|object| Node::Turn { object: *object, queue }));
            }
            Packet::Command(commands) | Packet::HwCommand { commands, .. } => {
                let pending_writes = self.kernel.miniport.pending_writes(state.engine.adapter, commands);
                if let Some(leaf) = self.steps(state.engine, state.process, pending_writes, upto, &mut nodes)
                {
                    return Dependencies::Leaf(leaf);
                }
                nodes.push(Node::Engine(state.engine));
            }
            Packet::Wait(_)
            | Packet::Signal(_)
            | Packet::Broadcast(_)
            | Packet::Mark(_)
            | Packet::PageTables(_) => {}
        }
        Dependencies::All(nodes)
    }

    /// Whether the head of this queue cannot acquire the object, because it has an owner or its count is used up.
    fn is_taken(&self, acquire: &Acquire, object: u32, queue: u32) -> bool {
        let queue = &self.kernel.vidsch.queues()[queue];
        let by = self.kernel.vidsch.contexts()[queue.context].handle;
        match self.kernel.sync.legacy().objects.get(&object).map(|state| &state.kind) {
            Some(Kind::Mutex { owner }) => {
                owner.is_some_and(|owner| (owner.process, owner.by) != (queue.process, by))
            }
            Some(Kind::Semaphore { .. }) => {
                let wanted = acquire.objects.iter().filter(|other| **other == object).count() as u64;
                self.kernel.sync.objects().value(object) < wanted
            }
            Some(Kind::Notification { .. }) | None => false,
        }
    }

    /// The work of a queue that comes before its packets.
    fn before_packets(&self, queue: u32, state: &Queue, head: &Packet) -> Vec<Node> {
        let at_submission = matches!(head, Packet::Signal(signal)
            if signal.flags.contains(SignalFlags::SIGNAL_AT_SUBMISSION));
        let comes_first = |node: &Node| !at_submission || matches!(node, Node::Ready { .. });
        self.submitted(queue, state, u64::MAX).filter(comes_first).collect()
    }

    /// The work of a queue that is no packet any more: its ready command buffer, and what its engine has, of a hardware
    /// queue up to this submission.
    pub fn submitted(&self, queue: u32, state: &Queue, last: u64) -> impl Iterator<Item = Node> {
        let ready = state.ready.is_some().then_some(Node::Ready { queue, upto: WHOLE });
        let in_flight = state.in_flight.iter().map(|one| one.submission_fence_id);
        let at_engine = state.running.into_iter().chain(in_flight.take_while(move |id| *id <= last));
        ready.into_iter().chain(at_engine.map(move |id| self.submission(queue, id)))
    }

    /// All work of a queue, and the value that its progress fence has to reach; 0: none.
    pub fn rest_of_queue(&self, queue: u32, up_to: u64) -> Vec<Node> {
        let state = &self.kernel.vidsch.queues()[queue];
        let last = (state.packets.len() as u32).checked_sub(1);
        let mut nodes: Vec<Node> =
            last.map(|at| Node::Packet { queue, at, upto: WHOLE }).into_iter().collect();
        if last.is_none() {
            nodes.extend(self.submitted(queue, state, u64::MAX));
        }
        let progress = state.hw_queue.map(|hw_queue| self.kernel.vidsch.hw_queues()[hw_queue].progress);
        let missing = progress.filter(|object| self.kernel.sync.objects().value(*object) < up_to);
        let value = |object| Node::Value { object, value: up_to, by: state.process, cpu: false };
        nodes.extend(missing.map(value));
        nodes
    }

    /// The node of a submission: its job if the driver reports it.
    pub fn submission(&self, queue: u32, submission: u64) -> Node {
        let engine = self.kernel.vidsch.queues()[queue].engine;
        match self.place_of(engine, submission) {
            Some(at) => Node::Job { engine, at, upto: WHOLE },
            None if self.work.get(&engine).is_none_or(Option::is_none) => Node::Engine(engine),
            None => self.unwritten(queue, submission).unwrap_or(Node::Unheard { engine, submission, queue }),
        }
    }

    /// The value for which a hardware queue's submission still counts, though its engine is done with it: any process that
    /// can write or signal the progress fence may complete it.
    fn unwritten(&self, queue: u32, submission: u64) -> Option<Node> {
        let state = &self.kernel.vidsch.queues()[queue];
        let hw_queue = &self.kernel.vidsch.hw_queues()[state.hw_queue?];
        let one = state.in_flight.iter().find(|one| one.submission_fence_id == submission)?;
        let (object, value) = (hw_queue.progress, one.progress_fence_id);
        let is_unwritten = self.kernel.sync.objects().value(object) < value;
        is_unwritten.then_some(Node::Value { object, value, by: state.process, cpu: false })
    }

    /// A ready command buffer needs its engine.
    fn of_ready(&self, queue: u32, upto: u32) -> Dependencies {
        let state = &self.kernel.vidsch.queues()[queue];
        let mut nodes = Vec::new();
        let pending_writes = match &state.ready {
            Some(ready) => match ready.resubmits.and_then(|id| self.place_of(state.engine, id)) {
                Some(at) => Some(
                    self.work[&state.engine].as_ref().map(|work| work[at as usize].pending_writes.clone()),
                ),
                None => Some(self.kernel.miniport.pending_writes(state.engine.adapter, &ready.commands)),
            },
            None => None,
        };
        let leaf = self.steps(state.engine, state.process, pending_writes.flatten(), upto, &mut nodes);
        if let Some(leaf) = leaf {
            return Dependencies::Leaf(leaf);
        }
        nodes.push(Node::Engine(state.engine));
        Dependencies::All(nodes)
    }

    /// Adds the hardware waits of a buffer before step `upto`. Returns a leaf if the buffer never gets there.
    fn steps(
        &self,
        engine: EngineId,
        process: ProcessId,
        pending_writes: Option<Vec<PendingWrite>>,
        upto: u32,
        nodes: &mut Vec<Node>,
    ) -> Option<Leaf> {
        for write in pending_writes.into_iter().flatten().take(upto as usize) {
            match write {
                PendingWrite::Store { .. } => {}
                PendingWrite::Wait { gpu_address, value } => {
                    nodes.extend(self.hardware_wait(engine, process, gpu_address, value));
                }
                PendingWrite::NeverEnds => return Some(Leaf::Hung(engine)),
            }
        }
        None
    }

    fn hardware_wait(
        &self,
        engine: EngineId,
        process: ProcessId,
        gpu_address: u64,
        value: u64,
    ) -> Option<Node> {
        let object = self.kernel.sync.opens()[self.kernel.open_at(engine, process, gpu_address)?].object;
        let node = Node::Value { object, value, by: process, cpu: false };
        (self.kernel.sync.objects().value(object) < value).then_some(node)
    }

    fn of_broadcast(&self, broadcast: u32) -> Dependencies {
        let mut nodes = Vec::new();
        for (queue, state) in self.kernel.vidsch.queues().iter() {
            let is_it = |packet: &Packet| matches!(packet, Packet::Broadcast(other) if *other == broadcast);
            if let Some(at) = state.packets.iter().position(is_it) {
                nodes.push(Node::Packet { queue, at: at as u32, upto: WHOLE });
            }
        }
        Dependencies::All(nodes)
    }

    fn of_job(&self, engine: EngineId, at: u32, upto: u32) -> Dependencies {
        let Some(Some(work)) = self.work.get(&engine) else {
            return Dependencies::Leaf(Leaf::Unknown(engine));
        };
        let job: &EngineWork = &work[at as usize];
        let mut nodes = Vec::new();
        let due = match job.state {
            WorkState::Hung => return Dependencies::Leaf(Leaf::Hung(engine)),
            WorkState::Suspended => {
                return Dependencies::Leaf(Leaf::Suspended { process: job.process, adapter: engine.adapter });
            }
            WorkState::Running { until } => Some(until),
            WorkState::Waiting { gpu_address, value } => {
                nodes.extend(self.hardware_wait(engine, job.process, gpu_address, value));
                None
            }
            WorkState::Queued => {
                let before = (0..at).filter(|other| {
                    let other = &work[*other as usize];
                    let runs = matches!(other.state, WorkState::Running { .. } | WorkState::Hung);
                    runs || other.hw_queue == job.hw_queue && other.state != WorkState::Preempted
                });
                nodes.extend(before.map(|at| Node::Job { engine, at, upto: WHOLE }));
                None
            }
            WorkState::Preempted => {
                nodes.push(Node::Engine(engine));
                None
            }
        };
        if let Some(leaf) =
            self.steps(engine, job.process, Some(job.pending_writes.clone()), upto, &mut nodes)
        {
            return Dependencies::Leaf(leaf);
        }
        match due {
            Some(_) if nodes.is_empty() => Dependencies::Leaf(Leaf::Live { due }),
            _ => Dependencies::All(nodes),
        }
    }

    /// A submission that ended without a report needs an interrupt of a later one, which reports the earlier ones too.
    fn of_unheard(&self, engine: EngineId, submission: u64) -> Dependencies {
        let work = self.work.get(&engine).and_then(Option::as_ref);
        let later = (0..).zip(work.into_iter().flatten()).filter(|(_, one)| {
            one.hw_queue.is_none()
                && one.submission_fence_id > submission
                && one.state != WorkState::Preempted
        });
        let nodes: Vec<Node> = later.map(|(at, _)| Node::Job { engine, at, upto: WHOLE }).collect();
        if nodes.is_empty() {
            Dependencies::Leaf(Leaf::LostInterrupt(engine))
        } else {
            Dependencies::Any(nodes)
        }
    }

    /// A written value is evaluated at the end of any buffer of a process that wrote the object or has it open.
    fn of_unseen(&self, object: u32) -> Dependencies {
        let kernel = self.kernel;
        let mut writers: Vec<ProcessId> = kernel.sync.written().processes_of(object).collect();
        writers.extend(self.opens(object).map(|open| open.process));
        let mut nodes = Vec::new();
        for (engine, work) in &self.work {
            // Of the work of one queue the first, because the rest comes after it.
            let mut queues = BTreeSet::new();
            for (at, job) in (0..).zip(work.iter().flatten()) {
                if writers.contains(&job.process)
                    && job.state != WorkState::Preempted
                    && queues.insert(job.hw_queue.map(|queue| queue.0))
                {
                    nodes.push(Node::Job { engine: *engine, at, upto: WHOLE });
                }
            }
        }
        if !nodes.is_empty() {
            return Dependencies::Any(nodes);
        }
        // The engine whose interrupt is missing: one with work of the writer, or else the next of the adapter.
        let behind = |engine: &&EngineId| {
            let known = &kernel.vidsch.in_flight().engines[*engine];
            known.submitted.iter().any(|job| writers.contains(&kernel.vidsch.queues()[job.queue].process))
                || known.hw_work.submissions_count() > 0
        };
        let adapter = kernel.sync.objects()[object].adapter;
        let mut engines = kernel.vidsch.in_flight().engines.keys().filter(|engine| engine.adapter == adapter);
        let engine = engines.clone().find(behind).or_else(|| engines.next()).copied();
        Dependencies::Leaf(Leaf::LostInterrupt(engine.unwrap_or(EngineId { adapter, node: 0 })))
    }

    fn of_engine(&self, engine: EngineId) -> Dependencies {
        let kernel = self.kernel;
        let adapter = engine.adapter;
        if kernel.tdr.stopped_adapters().contains(&adapter) {
            return Dependencies::Leaf(Leaf::Removed { adapter });
        }
        let state = kernel.vidsch.in_flight().engines.get(&engine);
        match state.map(|state| &state.watch) {
            Some(Watch::Resetting { until, .. }) => {
                return Dependencies::Leaf(Leaf::Live { due: Some(*until) });
            }
            Some(Watch::Held) => return Dependencies::Leaf(Leaf::Live { due: None }),
            Some(Watch::Running | Watch::Preempting { .. }) | None => {}
        }
        let Some(Some(work)) = self.work.get(&engine) else {
            return Dependencies::Leaf(match kernel.miniport.engine_state(engine) {
                EngineState::Idle | EngineState::Running { until: u64::MAX, .. } => Leaf::Unknown(engine),
                EngineState::Running { until, .. } => Leaf::Live { due: Some(until) },
                EngineState::Hung { .. } => Leaf::Hung(engine),
            });
        };
        let runs = |one: &EngineWork| matches!(one.state, WorkState::Running { .. } | WorkState::Hung);
        if let Some(at) = work.iter().position(runs) {
            return Dependencies::Any(vec![Node::Job { engine, at: at as u32, upto: WHOLE }]);
        }
        // Submissions of software contexts are one queue.
        let submitted = state.map_or(0, |state| state.submitted.len());
        if submitted < crate::vidsch::HARDWARE_QUEUE_DEPTH {
            return Dependencies::Leaf(Leaf::Live { due: None });
        }
        let first = state.and_then(|state| state.submitted.front());
        first.map_or(Dependencies::Leaf(Leaf::Live { due: None }), |one| {
            Dependencies::Any(vec![self.submission(one.queue, one.id)])
        })
    }

    /// A process is free to act, or blocked by all of its waits. Waits that only the process itself could end do not
    /// count.
    fn of_process(&self, process: ProcessId) -> Dependencies {
        if self.kernel.is_ending(process) {
            // The rest of its end releases what it owns.
            return Dependencies::Leaf(Leaf::Live { due: None });
        }
        if self.kernel.is_frozen(process) {
            return Dependencies::Any(vec![Node::Frozen(process)]);
        }
        let by_others = |wait: &&Node| !self.is_by_itself(**wait);
        let nodes: Vec<Node> = self.waits_of(process).iter().filter(by_others).copied().collect();
        if nodes.is_empty() { Dependencies::Leaf(Leaf::Free(process)) } else { Dependencies::Any(nodes) }
    }

    fn is_by_itself(&self, wait: Node) -> bool {
        let of_value = |node: &Node| {
            matches!(node, Node::Value { .. })
                && matches!(self.dependencies(*node), Dependencies::Leaf(Leaf::Itself(_)))
        };
        match self.dependencies(wait) {
            Dependencies::Leaf(leaf) => matches!(leaf, Leaf::Itself(_)),
            Dependencies::All(nodes) => nodes.iter().any(of_value),
            Dependencies::Any(nodes) => nodes.iter().all(of_value),
        }
    }
}
