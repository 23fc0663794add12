//! Collects the waiters, and what the report says of each.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::Handle;

use super::format::SOURCES_MAX;
use super::graph::Node;
use super::index::WaitIndex;
use super::names::HANDLES_LISTED_MAX;
use super::report::{Gone, Missing, Owner, Question, Source, Waiter, WaiterKind};
use crate::ddi::WorkState;
use crate::history::Remembered;
use crate::sync::keyed_mutex::State;
use crate::sync::waits::WaitOwner;
use crate::vidsch::{Packet, Queue};
use crate::{Nanos, ProcessId};

/// Missing objects of one wait that the report lists.
const MISSING_LISTED_MAX: usize = 8;

/// A waiter: the root of a path through the graph.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Root {
    /// `u64::MAX`: not recorded.
    pub since: Nanos,
    pub process: ProcessId,
    /// `None`: the wait has ended, but its process is frozen and was not woken.
    pub node: Option<Node>,
    event: Option<u64>,
    /// The queue of the work that waits, and its submission.
    work: Option<(u32, u64)>,
}

impl Root {
    fn new(node: Node, process: ProcessId, since: Nanos) -> Self {
        Root { since, process, node: Some(node), event: None, work: None }
    }
}

impl WaitIndex<'_> {
    /// The waiters that the question selects, the longest wait first.
    pub fn roots(&self, question: &Question) -> Vec<Root> {
        let kernel = self.kernel;
        let mut roots = Vec::new();
        for (id, wait) in kernel.waits_in_order() {
            let node = Node::Wait(id.slot);
            match wait.owner() {
                WaitOwner::Cpu { process, event } => {
                    roots.push(Root { event: Some(event.0), ..Root::new(node, process, wait.since) });
                }
                WaitOwner::Gpu { queue } if self.is_head(queue, |packet| waits_for(packet, id)) => {
                    roots.push(Root::new(node, kernel.vidsch.queues()[queue].process, wait.since));
                }
                // It is part of the path of a packet behind it.
                WaitOwner::Gpu { .. } => {}
                WaitOwner::SyncFile { .. } => {}
            }
        }
        for (id, acquire) in kernel.keyed.acquires() {
            let root = Root::new(Node::Acquire(*id), acquire.process, acquire.since);
            roots.push(Root { event: Some(acquire.event.0), ..root });
        }
        for (process, request) in self.calls.keys() {
            let node = Node::Call { process: *process, request: *request };
            roots.push(Root::new(node, *process, u64::MAX));
        }
        self.takers(&mut roots);
        self.work_that_waits(&mut roots);
        for (process, _) in kernel.guests.frozen().iter().filter(|(_, deferred)| deferred.len() > 0) {
            let (since, event, work) = (u64::MAX, None, None);
            roots.push(Root { since, process: *process, node: None, event, work });
        }
        roots.retain(|root| {
            let age = self.now.saturating_sub(root.since);
            !kernel.is_ending(root.process)
                && question.process.is_none_or(|process| root.process.0 == process)
                && question.event.is_none_or(|event| root.event == Some(event))
                && (age >= question.older_than || root.since == u64::MAX)
        });
        roots.sort();
        roots
    }

    fn is_head(&self, queue: u32, is_it: impl Fn(&Packet) -> bool) -> bool {
        let state: &Queue = &self.kernel.vidsch.queues()[queue];
        state.is_idle() && state.packets.front().is_some_and(is_it)
    }

    /// Adds queues whose heads wait in the line of a mutex or semaphore.
    fn takers(&self, roots: &mut Vec<Root>) {
        for (queue, state) in self.kernel.vidsch.queues().iter() {
            if let Some(Packet::Acquire(acquire)) = state.packets.front()
                && acquire.position.is_some()
            {
                let node = Node::Packet { queue, at: 0, upto: super::graph::WHOLE };
                let root = Root::new(node, state.process, acquire.since);
                roots.push(Root { work: Some((queue, 0)), ..root });
            }
        }
    }

    /// Adds work of engines that does not continue by itself.
    fn work_that_waits(&self, roots: &mut Vec<Root>) {
        let kernel = self.kernel;
        let mut of_hw_queue = BTreeMap::new();
        let mut of_context = BTreeMap::new();
        for (id, queue) in kernel.vidsch.queues().iter() {
            match queue.hw_queue {
                Some(hw_queue) => drop(of_hw_queue.insert(hw_queue, id)),
                None => drop(of_context.insert(queue.context, id)),
            }
        }
        for (engine, work) in &self.work {
            let Some(work) = work else { continue };
            let state = kernel.vidsch.in_flight().engines.get(engine);
            let since = state.map_or(u64::MAX, |state| state.since);
            // While no progress is expected, when the last one was is not recorded.
            let hw_since = state.and_then(|state| state.hw_since).unwrap_or(u64::MAX);
            for (at, job) in (0..).zip(work) {
                let waits =
                    matches!(job.state, WorkState::Hung | WorkState::Waiting { .. } | WorkState::Suspended);
                let queue = match job.hw_queue {
                    Some(hw_queue) => of_hw_queue.get(&hw_queue.0),
                    None => of_context.get(&job.context.0),
                };
                if let Some(queue) = queue.filter(|_| waits) {
                    let node = Node::Job { engine: *engine, at, upto: super::graph::WHOLE };
                    let since = if job.hw_queue.is_some() { hw_since } else { since };
                    let root = Root::new(node, job.process, since);
                    roots.push(Root { work: Some((*queue, job.submission_fence_id)), ..root });
                }
            }
            let Some(state) = state else { continue };
            let software = state.submitted.iter().map(|job| (job.id, job.queue, since));
            let hardware =
                state.hw_work.submissions().map(|(submission, queue)| (submission, queue, hw_since));
            for (submission, queue, since) in software.chain(hardware) {
                let node = self.submission(queue, submission);
                if matches!(node, Node::Unheard { .. } | Node::Value { .. }) {
                    let root = Root::new(node, kernel.vidsch.queues()[queue].process, since);
                    roots.push(Root { work: Some((queue, submission)), ..root });
                }
            }
        }
        for (id, hw_queue) in kernel.vidsch.hw_queues().iter().filter(|(_, queue)| queue.user_mode()) {
            let reached = kernel.sync.objects().value(hw_queue.progress) >= hw_queue.last_queued;
            if !reached && self.ring_of(hw_queue.progress, hw_queue.last_queued) == Some(Node::Ring(id)) {
                let root = Root::new(Node::Ring(id), hw_queue.process, u64::MAX);
                roots.push(Root { work: Some((hw_queue.queue, 0)), ..root });
            }
        }
    }

    /// The report of one waiter.
    pub fn waiter(&self, root: &Root) -> Waiter {
        let kernel = self.kernel;
        let mut waiter = Waiter {
            party: kernel.party(root.process),
            kind: WaiterKind::Held { events: 0 },
            queue: None,
            any: false,
            reached: 0,
            of: 0,
            since: (root.since != u64::MAX).then_some(root.since),
            ends: None,
            missing: Vec::new(),
        };
        let Some(node) = root.node else {
            let events =
                kernel.guests.frozen().get(&root.process).map_or(0, |deferred| deferred.len() as u32);
            waiter.kind = WaiterKind::Held { events };
            return waiter;
        };
        match node {
            Node::Wait(slot) => self.describe_wait(slot, &mut waiter),
            Node::Acquire(id) => {
                let acquire = &kernel.keyed.acquires()[&id];
                waiter.kind = WaiterKind::KeyedMutex { event: acquire.event.0 };
                waiter.of = 1;
                waiter.missing.extend(self.missing_of(node));
                waiter.ends = kernel.keyed.ends(id);
            }
            Node::Call { process, request } => {
                let call = self.calls.get(&(process, request));
                let call = call.map_or_else(Default::default, |(work, _)| format!("{work}"));
                waiter.kind = WaiterKind::Call { request, call };
            }
            Node::Packet { queue, .. } => {
                waiter.kind = WaiterKind::Taker { queue: kernel.queue_name(queue) };
                waiter.queue = kernel.queue_handle(queue);
                let turns = self.dependencies(node);
                let turns = turns.nodes().iter().filter(|node| matches!(node, Node::Turn { .. }));
                waiter.missing = turns.filter_map(|turn| self.missing_of(*turn)).collect();
                waiter.of = match kernel.vidsch.queues()[queue].packets.front() {
                    Some(Packet::Acquire(acquire)) => acquire.objects.len(),
                    _ => waiter.missing.len(),
                };
                waiter.reached = waiter.of.saturating_sub(waiter.missing.len());
            }
            _ => {
                let (queue, submission_fence_id) = root.work.unwrap_or_default();
                waiter.queue = kernel.queue_handle(queue);
                let queue = kernel.queue_name(queue);
                waiter.kind = WaiterKind::Work { queue, submission_fence_id };
            }
        }
        waiter
    }

    fn describe_wait(&self, slot: u32, waiter: &mut Waiter) {
        let kernel = self.kernel;
        let wait = kernel.sync.waits().at(slot);
        waiter.kind = match wait.owner() {
            WaitOwner::Cpu { event, .. } => WaiterKind::Cpu { event: event.0 },
            WaitOwner::Gpu { queue } => {
                waiter.queue = kernel.queue_handle(queue);
                WaiterKind::Queue { queue: kernel.queue_name(queue) }
            }
            WaitOwner::SyncFile { .. } => unreachable!("no wait of a process"),
        };
        waiter.any = wait.any;
        let seen_by = ProcessId(waiter.party.process);
        for item in kernel.sync.waits().items(wait).iter() {
            waiter.of += 1;
            if item.satisfied {
                waiter.reached += 1;
                continue;
            }
            if waiter.missing.len() < MISSING_LISTED_MAX {
                let mut object = kernel.describe_object(item.object, seen_by);
                // Of several handles of the process, the one through which the wait was made comes first.
                let open = item.open.and_then(|open| kernel.sync.opens().get(open));
                let handle = open.map_or(item.handle, |open| open.handle);
                if handle != Handle::NULL && open.is_some() {
                    object.handles.retain(|one| *one != (seen_by, handle));
                    object.handles.insert(0, (seen_by, handle));
                    object.handles.truncate(HANDLES_LISTED_MAX);
                }
                let current = kernel.sync.objects().value(item.object);
                waiter.missing.push(Missing { object, current, needed: item.value });
            }
        }
    }

    /// Parties that could have signaled an object and are gone.
    pub fn past_signalers(&self, object: u32) -> Vec<Gone> {
        gone(self.kernel.history.of(object))
    }

    /// Parties that could have released a keyed mutex and are gone.
    pub fn past_owners(&self, mutex: u32) -> Vec<Gone> {
        gone(self.kernel.history.of_keyed_mutex(mutex))
    }

    /// Processes that could release a mutex or signal a semaphore.
    pub fn could_release(&self, object: u32) -> Vec<Source> {
        let Some(owner) = self.kernel.sync.legacy().owner(object) else { return self.could(object) };
        if owner.by == Handle::NULL || !self.kernel.processes.by_id().contains_key(&owner.process) {
            return Vec::new();
        }
        let text = format!("{}: its {} owns it", self.kernel.party(owner.process), owner.by);
        alloc::vec![Source { process: owner.process.0, text }]
    }

    /// Processes that could release a keyed mutex with the key.
    pub fn could_give(&self, acquire: u64) -> Vec<Source> {
        let keyed = &self.kernel.keyed;
        let acquire = &keyed.acquires()[&acquire];
        let mutex = keyed.opens()[acquire.open].mutex;
        let owner = match keyed.mutexes()[mutex].state {
            State::Owned(open) => Some(open),
            State::Free | State::Abandoned => None,
        };
        let opens = keyed.opens().iter().filter(|(_, open)| open.mutex == mutex);
        let opens = opens.filter(|(id, open)| match owner {
            Some(owner) => *id == owner,
            None => open.process != acquire.process,
        });
        let source = |(_, open): (u32, &crate::sync::keyed_mutex::MutexOpen)| {
            let party = self.kernel.party(open.process);
            let text = match owner {
                Some(_) => format!("{party} owns it by {}", open.handle),
                None => format!(
                    "{party} by {}, once it has it with key {}",
                    open.handle,
                    keyed.mutexes()[mutex].key
                ),
            };
            Source { process: open.process.0, text }
        };
        opens.take(SOURCES_MAX).map(source).collect()
    }
}

/// Lists the latest records.
fn gone<'a>(records: impl Iterator<Item = &'a Remembered>) -> Vec<Gone> {
    let signalers = records.map(|one| {
        let party = Owner {
            process: one.process.0,
            pid: one.pid,
            name: one.name.clone(),
            vm: one.vm.0,
            vm_name: one.vm_name.clone(),
        };
        Gone { at: one.at, party, text: one.text.clone() }
    });
    let mut signalers: Vec<Gone> = signalers.collect();
    let first = signalers.len().saturating_sub(SOURCES_MAX);
    signalers.split_off(first)
}

fn waits_for(packet: &Packet, id: crate::sync::waits::WaitId) -> bool {
    match packet {
        Packet::Wait(wait) => *wait == id,
        Packet::Acquire(acquire) => acquire.wait == Some(id),
        _ => false,
    }
}
