//! Words the path from a wait to its end.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use d3dkmt::Handle;

use super::graph::{DependencyPath, Node};
use super::index::{WAITS_OF_A_PROCESS_MAX, WaitIndex};
use super::report::{Missing, Source, Step, StepKind};
use crate::ProcessId;
use crate::ddi::{EngineId, WorkState};
use crate::sync::legacy::Kind;
use crate::sync::waits::WaitOwner;
use crate::vidsch::Packet;

/// Steps of a chain that the report lists; the middle of a longer one is left out.
const STEPS_MAX: usize = 24;

/// Sources of one kind that the report lists.
pub(super) const SOURCES_MAX: usize = 8;

impl WaitIndex<'_> {
    /// The steps of a path, and the index of the step that the last one needs again.
    pub fn chain(&self, path: &DependencyPath) -> (Vec<Step>, Option<usize>) {
        let nodes = &path.nodes;
        let mut steps = Vec::new();
        let mut back_to = None;
        for (at, node) in nodes.iter().enumerate() {
            let (before, after) = (at.checked_sub(1).map(|at| nodes[at]), nodes.get(at + 1).copied());
            // Of the packets of one queue the chain has the first, and the one that blocks it.
            let same = |other: Option<Node>| match (node, other) {
                (Node::Packet { queue, .. }, Some(Node::Packet { queue: other, .. })) => *queue == other,
                _ => false,
            };
            if path.cycle_from == Some(at) {
                back_to = Some(steps.len());
            }
            if !(same(before) && same(after)) {
                steps.extend(self.step(*node, same(before)));
            }
        }
        if steps.len() > STEPS_MAX {
            let left_out = steps.len() - STEPS_MAX;
            let text = format!(".. {left_out} steps more ..");
            let step = Step { kind: StepKind::Value, text, process: None };
            steps.splice(STEPS_MAX / 2..STEPS_MAX / 2 + left_out, [step]);
            back_to = back_to.filter(|at| *at < STEPS_MAX / 2);
        }
        (steps, back_to)
    }

    fn step(&self, node: Node, holds_up: bool) -> Option<Step> {
        let kernel = self.kernel;
        let (kind, process, text) = match node {
            Node::Wait(_) | Node::Acquire(_) | Node::Value { .. } | Node::Turn { .. } => {
                return self.need(node);
            }
            Node::Packet { queue, at, .. } => {
                let packets = &kernel.vidsch.queues()[queue].packets;
                let (of, description) = (packets.len(), self.packet(&packets[at as usize]));
                let text = match holds_up {
                    true => format!("behind packet {} of {of} there: {description}", at + 1),
                    false => {
                        format!("{description} is packet {} of {of} in {}", at + 1, kernel.queue_name(queue))
                    }
                };
                (StepKind::Queue, Some(kernel.vidsch.queues()[queue].process), text)
            }
            Node::Ready { queue, .. } => {
                let text =
                    format!("a command buffer of {} is ready for its engine", kernel.queue_name(queue));
                (StepKind::Queue, Some(kernel.vidsch.queues()[queue].process), text)
            }
            Node::Broadcast(broadcast) => {
                let state = &kernel.vidsch.broadcasts()[broadcast];
                let (process, remaining) = (state.signal.process, state.remaining);
                let text =
                    format!("a broadcast signal of p{} that {remaining} queues have to reach", process.0);
                (StepKind::Queue, Some(process), text)
            }
            Node::Ring(id) => return Some(self.ring(id)),
            Node::Job { engine, at, .. } => return self.job(engine, at),
            Node::Unheard { engine, submission, queue } => {
                let (engine, name) = (kernel.engine_name(engine), kernel.queue_name(queue));
                let text = format!(
                    "{engine} is done with submission {submission} of {name}, but the kernel got no interrupt"
                );
                (StepKind::Engine, Some(kernel.vidsch.queues()[queue].process), text)
            }
            Node::Call { process, request } => {
                let (work, _) = self.calls.get(&(process, request))?;
                (StepKind::Wait, Some(process), format!("{} waits in {work}", kernel.party(process)))
            }
            // They stand for signals and work that the path names next.
            Node::AnySignal { .. } | Node::AnyOpaque(_) | Node::Marks(_) => return None,
            Node::TimeOut(id) => {
                let acquire = &kernel.keyed.acquires()[&id];
                let due = kernel.keyed.ends(id).unwrap_or(u64::MAX);
                let text = format!("the acquire times out in {}", Elapsed(due.saturating_sub(self.now)));
                (StepKind::Wait, Some(acquire.process), text)
            }
            Node::LaterSteps(_) => (StepKind::Value, None, "the kernel's next steps end it".into()),
            Node::Unseen(_) => {
                let text = "the value is in memory: an engine wrote it, and no interrupt has reported it";
                (StepKind::Engine, None, text.into())
            }
            Node::Engine(engine) => {
                (StepKind::Engine, None, format!("{} has yet to take it", kernel.engine_name(engine)))
            }
            Node::Process(process) => {
                let text = format!("{} has to act: {}", kernel.party(process), self.state_of(process));
                (StepKind::Process, Some(process), text)
            }
            Node::Frozen(process) => {
                let party = kernel.party(process);
                let text = match kernel.paused_vm_of(process) {
                    Some(vm) => format!("{party} is in VM {}, which is paused", vm.0),
                    None => format!("{party} is frozen by its guest's kernel"),
                };
                (StepKind::Process, Some(process), text)
            }
        };
        Some(Step { kind, text, process: process.map(|process| process.0) })
    }

    /// The step of a wait, or of a value that it needs.
    fn need(&self, node: Node) -> Option<Step> {
        let kernel = self.kernel;
        let (kind, process, text) = match node {
            Node::Wait(slot) => match kernel.sync.waits().at(slot).owner() {
                WaitOwner::Cpu { process, event } => {
                    (StepKind::Wait, process, format!("{} waits, event {}", kernel.party(process), event.0))
                }
                WaitOwner::Gpu { queue } => {
                    let process = kernel.vidsch.queues()[queue].process;
                    (StepKind::Wait, process, format!("{} waits", kernel.queue_name(queue)))
                }
                WaitOwner::SyncFile { .. } => unreachable!("no wait of a process"),
            },
            Node::Acquire(id) => {
                let acquire = &kernel.keyed.acquires()[&id];
                let (party, mutex) = (kernel.party(acquire.process), self.missing_of(node)?.object);
                let text = format!("{party} acquires {mutex} with key {}", acquire.key);
                (StepKind::Wait, acquire.process, text)
            }
            Node::Value { by, .. } => {
                let Missing { object, current, needed } = self.missing_of(node)?;
                (StepKind::Value, by, format!("{object} is {current}, needs {needed}"))
            }
            Node::Turn { object, queue } => {
                let process = kernel.vidsch.queues()[queue].process;
                let described = kernel.describe_object(object, process);
                let before = self.takers_before(object, queue).next();
                let text = match kernel.sync.legacy().objects.get(&object).map(|state| &state.kind) {
                    Some(Kind::Mutex { owner: Some(_) }) if let Some((before, _)) = before => {
                        format!("{described} goes to {} first", kernel.queue_name(before))
                    }
                    Some(Kind::Mutex { owner: Some(owner) }) if owner.by != Handle::NULL => {
                        format!("{described} is owned by {} of p{}", owner.by, owner.process.0)
                    }
                    Some(Kind::Mutex { .. }) => {
                        format!("{described} is owned by a context or device that ended without releasing it")
                    }
                    _ => format!("{described} has count {}", kernel.sync.objects().value(object)),
                };
                (StepKind::Value, process, text)
            }
            _ => return None,
        };
        Some(Step { kind, text, process: Some(process.0) })
    }

    fn ring(&self, id: u32) -> Step {
        let hw_queue = &self.kernel.vidsch.hw_queues()[id];
        let (name, last) = (self.kernel.queue_name(hw_queue.queue), hw_queue.last_queued);
        let status = hw_queue.doorbell.as_ref().map(|doorbell| doorbell.status);
        let text = if status.is_some_and(|status| status.is_connected()) && self.is_awaited_in_vain(id) {
            format!("{name} has nothing left in its ring, and its last-queued value is {last}")
        } else {
            let status = match status {
                Some(status) => format!("its doorbell's status is {}", status as u64),
                None => "it has no doorbell".into(),
            };
            format!("{name} has work up to {last} in its ring, {status}: no engine was notified")
        };
        Step { kind: StepKind::Queue, text, process: Some(hw_queue.process.0) }
    }

    fn packet(&self, packet: &Packet) -> String {
        match packet {
            Packet::Wait(_) | Packet::WaitAtHead(_) => "a wait".into(),
            Packet::Acquire(_) => "a wait for mutexes or semaphores".into(),
            Packet::Signal(signal) => match signal.targets.as_slice() {
                [(_, value)] => format!("a signal to {value}"),
                _ => format!("a signal of {} objects", signal.targets.len()),
            },
            Packet::Broadcast(_) => "a broadcast signal".into(),
            Packet::Mark(_) => "the end or offer of memory behind it".into(),
            Packet::Command(bytes) => format!("a command buffer of {} bytes", bytes.len()),
            Packet::HwCommand { progress_fence_id, .. } => {
                format!("a command buffer up to progress {progress_fence_id}")
            }
            Packet::PageTables(_) => "an update of an address space".into(),
        }
    }

    fn job(&self, engine: EngineId, at: u32) -> Option<Step> {
        let kernel = self.kernel;
        let work = &self.work.get(&engine)?.as_ref()?[at as usize];
        let mut queues = kernel.vidsch.queues().iter().filter(|(_, queue)| match work.hw_queue {
            Some(hw_queue) => queue.hw_queue == Some(hw_queue.0),
            None => queue.hw_queue.is_none() && queue.context == work.context.0,
        });
        let of =
            queues.next().map_or_else(|| format!("p{}", work.process.0), |(id, _)| kernel.queue_name(id));
        let (engine, now) = (kernel.engine_name(engine), self.now);
        let description = match work.submission_fence_id {
            0 => format!("a buffer from the ring of {of}"),
            id => format!("submission {id} of {of}"),
        };
        let text = match work.state {
            WorkState::Running { until } => {
                format!(
                    "{engine} runs {description}; its packet ends in {}",
                    Elapsed(until.saturating_sub(now))
                )
            }
            WorkState::Hung => format!("{engine} hangs in {description}"),
            WorkState::Waiting { .. } => format!("{engine} has {description}, which waits in hardware"),
            WorkState::Suspended => format!("{engine} has {description}, whose context is suspended"),
            WorkState::Queued => format!("{engine} has {description} queued"),
            WorkState::Preempted => format!("{description} was preempted"),
        };
        Some(Step { kind: StepKind::Engine, text, process: Some(work.process.0) })
    }

    /// What prevents a process from acting, as far as known.
    fn state_of(&self, process: ProcessId) -> String {
        let call = |process, request| self.calls.get(&(process, request));
        match self.waits_of(process) {
            _ if self.kernel.paused_vm_of(process).is_some() => "its VM is paused".into(),
            _ if self.kernel.is_frozen(process) => "frozen".into(),
            [] => "its CPU waits for nothing".into(),
            [Node::Call { process, request }] if let Some((work, _)) = call(*process, *request) => {
                format!("its CPU waits in {work}")
            }
            [_] => "its CPU has a wait itself".into(),
            waits => {
                let more = if waits.len() < WAITS_OF_A_PROCESS_MAX { "" } else { " or more" };
                format!("its CPU has {}{more} waits itself", waits.len())
            }
        }
    }

    /// The missing value of a node, if it has one.
    pub fn missing_of(&self, node: Node) -> Option<Missing> {
        let kernel = self.kernel;
        match node {
            Node::Value { object, value: needed, by, .. } => Some(Missing {
                object: kernel.describe_object(object, by),
                current: kernel.sync.objects().value(object),
                needed,
            }),
            Node::Turn { object, queue } => {
                let is_mutex = kernel.sync.legacy().owner(object).is_some();
                let (current, needed) = (kernel.sync.objects().value(object), u64::from(!is_mutex));
                Some(Missing {
                    object: kernel.describe_object(object, kernel.vidsch.queues()[queue].process),
                    current,
                    needed,
                })
            }
            Node::Acquire(id) => {
                let acquire = &kernel.keyed.acquires()[&id];
                let mutex = kernel.keyed.opens()[acquire.open].mutex;
                let object = kernel.describe_keyed_mutex(mutex, acquire.process);
                Some(Missing { object, current: kernel.keyed.mutexes()[mutex].key, needed: acquire.key })
            }
            _ => None,
        }
    }

    /// The processes that could signal an object, with the handle that gives the right and their state.
    pub fn could(&self, object: u32) -> Vec<Source> {
        let mut sources: Vec<Source> = Vec::new();
        let signalers = self.signalers(object);
        for open in self.opens(object).filter(|open| signalers.contains(&open.process)) {
            if sources.len() >= SOURCES_MAX || sources.iter().any(|one| one.process == open.process.0) {
                continue;
            }
            let party = self.kernel.party(open.process);
            let text = format!("{party} by {}: {}", open.handle, self.state_of(open.process));
            sources.push(Source { process: open.process.0, text });
        }
        sources
    }

    /// Pending signals that are too low for a value, the highest first.
    pub fn too_low(&self, object: u32, needed: u64) -> Vec<Source> {
        let mut short: Vec<_> = self.under_way(object).iter().filter(|one| one.value < needed).collect();
        short.sort_by_key(|one| core::cmp::Reverse(one.value));
        let source = |one: &&super::index::PendingSignal| {
            let step = self.step(one.node, false);
            let text = format!("{}: up to {}", step.map_or_else(String::new, |step| step.text), one.value);
            Source { process: one.process.0, text }
        };
        short.iter().take(SOURCES_MAX).map(source).collect()
    }
}

/// A time span for people.
pub(super) struct Elapsed(pub u64);

impl core::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        if self.0 > 1 << 62 {
            return f.write_str("no time that is known");
        }
        match UNITS.iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{}.{} {name}", self.0 / unit, self.0 % unit * 10 / unit),
            None => write!(f, "{} ns", self.0),
        }
    }
}
