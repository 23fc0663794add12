//! Tracking of the packets in queues and of the engines' runs.
//!
//! A call puts packets into queues. The kernel reports a queue's length ([`Kernel::queue_length`]), the signals and
//! waits that a queue passes, and the queues that are emptied. Packets take effect in order (SCH-001), so the missing
//! packets are the first ones. There are two known exceptions: a signal at submission (FEN-048) passes the command on the
//! engine, and a wait that is satisfied at once is never queued.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use d3dkmt::Handle;
use dxgkrnl::ddi::{Agent, EngineId};
use dxgkrnl::{Kernel, Nanos, ProcessId};

use super::Options;
use super::names::Names;
use super::queued::{NewPacket, Queued, find, find_mut, first_gone};
use super::rows::Rows;
use crate::timeline::{FenceId, Moment, NONE, Outcome, Packet, PacketKind, Run, TrackId};

struct Queue {
    track: TrackId,
    engine: EngineId,
    packets: VecDeque<Queued>,
    /// How many of them are over.
    over: usize,
    /// The running submission, and the last one that ran, with their engines and first numbers.
    running: Option<(EngineId, u64)>,
    last: Option<(EngineId, u64)>,
}

impl Queue {
    /// Records that an engine begins a submission. Returns whether it is the rest of a preempted one.
    fn begins(&mut self, submission: (EngineId, u64), at: Nanos) -> bool {
        self.running = Some(submission);
        let Some(queued) = find(&mut self.packets, submission) else { return false };
        let is_rest = queued.packet.ran.is_some();
        queued.packet.ran.get_or_insert(at);
        queued.finished = None;
        self.running = queued.packet.submission;
        is_rest
    }
}

#[derive(Clone, Copy)]
struct Running {
    id: u64,
    begin: Moment,
    hung: bool,
    /// Whether it is the rest of a preempted submission.
    is_rest: bool,
}

pub(super) struct Queues {
    queues: BTreeMap<Agent, Queue>,
    handles: BTreeMap<(ProcessId, Handle), Agent>,
    submissions: BTreeMap<(EngineId, u64), (Agent, u64)>,
    engines: BTreeMap<EngineId, Running>,
    dirty: BTreeSet<Agent>,
    /// Queues that were emptied in this step.
    emptied: BTreeSet<Agent>,
    /// Signals by several queues, by the steps of their calls: how many queues have yet to reach them. Not those of which
    /// a queue has lost its packet.
    broadcasts: BTreeMap<u64, usize>,
    pub packets: Rows<Packet>,
    pub runs: Rows<Run>,
    /// Number of submissions that ran, and busy time, of each engine.
    pub busy: BTreeMap<EngineId, (u64, Nanos)>,
}

impl Queues {
    pub fn new(options: &Options) -> Self {
        Queues {
            queues: BTreeMap::new(),
            handles: BTreeMap::new(),
            submissions: BTreeMap::new(),
            engines: BTreeMap::new(),
            dirty: BTreeSet::new(),
            emptied: BTreeSet::new(),
            broadcasts: BTreeMap::new(),
            packets: Rows::new(options),
            runs: Rows::new(options),
            busy: BTreeMap::new(),
        }
    }

    /// Adds a queue that a call's answer names, or that a trace's first state has.
    pub fn created(
        &mut self,
        names: &mut Names,
        process: ProcessId,
        handle: Handle,
        agent: Agent,
        engine: EngineId,
    ) {
        let track = names.queue(Some(process), handle.0, engine, agent);
        self.handles.insert((process, handle), agent);
        self.insert(agent, track, engine);
    }

    /// Calls add no packets to this queue of a trace's first state: it has packets that are not known, from which theirs
    /// could not be told.
    pub fn has_unknown_packets(&mut self, process: ProcessId, handle: Handle) {
        self.handles.remove(&(process, handle));
    }

    fn insert(&mut self, agent: Agent, track: TrackId, engine: EngineId) {
        let queue = Queue { track, engine, packets: VecDeque::new(), over: 0, running: None, last: None };
        self.queues.insert(agent, queue);
    }

    pub fn of_handle(&self, process: ProcessId, handle: Handle) -> Option<Agent> {
        self.handles.get(&(process, handle)).copied()
    }

    pub fn track(&self, agent: Agent) -> Option<TrackId> {
        Some(self.queues.get(&agent)?.track)
    }

    /// Adds a packet that a call puts into a queue.
    pub fn push(&mut self, agent: Agent, new: NewPacket) {
        let Some(queue) = self.queues.get_mut(&agent) else { return };
        queue.packets.push_back(Queued::new(queue.track, new));
        self.dirty.insert(agent);
    }

    /// Announces a signal whose packets a call puts into this number of queues.
    pub fn broadcast(&mut self, call: u64, queues: usize) {
        self.broadcasts.insert(call, queues);
    }

    /// Records a signal that a queue passed. False if it has no effect: the signal comes later, with the last queue of its
    /// broadcast, or never, because a queue of that has lost its packet. `is_lower`: only a signal that may lower the value
    /// has an effect.
    pub fn signaled(&mut self, agent: Agent, fence: FenceId, value: u64, is_lower: bool) -> bool {
        self.dirty.insert(agent);
        let Queues { queues, broadcasts, .. } = self;
        let Some(queue) = queues.get_mut(&agent) else { return true };
        let takes = |queued: &mut Queued| queued.takes_report(PacketKind::Signal, fence, value);
        let Some(queued) = find_mut(&mut queue.packets, takes) else { return true };
        let was_over = queued.is_over();
        let of_broadcast = |call| reached(broadcasts, call);
        let comes = *queued.comes.get_or_insert_with(|| queued.broadcast.map_or(Outcome::Done, of_broadcast));
        let has_effect = comes == Outcome::Done && (!is_lower || queued.may_rewind);
        // Each of its fences is judged by itself.
        let is_without_effect =
            comes == Outcome::Done && !has_effect && queued.reported != Some(Outcome::Done);
        queued.reported = Some(if is_without_effect { Outcome::Dropped } else { comes });
        queue.over += usize::from(!was_over && queued.is_over());
        has_effect
    }

    /// Records a wait that a queue passed, with the time of the signal that released it. `fence` is `None` if its object
    /// is gone.
    pub fn waited(&mut self, agent: Agent, fence: Option<FenceId>, value: u64, moment: Moment) {
        self.dirty.insert(agent);
        let Some(queue) = self.queues.get_mut(&agent) else { return };
        let takes = |queued: &mut Queued| match fence.filter(|_| !queued.packet.targets.is_empty()) {
            Some(fence) => queued.takes_report(PacketKind::Wait, fence, value),
            None => queued.takes_report_of_gone(),
        };
        // It was satisfied when it was queued, although other packets are before it.
        let newest =
            queue.packets.back_mut().filter(|queued| queued.packet.begin.sequence == moment.sequence);
        let taken = match newest.map(|queued| (takes(queued), queued)) {
            Some((true, queued)) => Some(queued),
            Some((false, _)) | None => find_mut(&mut queue.packets, takes),
        };
        if let Some(queued) = taken {
            queued.reported = Some(Outcome::Done);
            queued.finished = Some(moment.at);
            queue.over += usize::from(queued.is_over());
        }
    }

    fn end(&mut self, queued: Queued, moment: Moment, outcome: Outcome) {
        let Queued { mut packet, finished, broadcast, .. } = queued;
        let at = finished.unwrap_or(moment.at).max(packet.begin.at);
        packet.end = Moment { at, sequence: moment.sequence };
        packet.outcome = outcome;
        if outcome == Outcome::Dropped
            && let Some(call) = broadcast
        {
            self.broadcasts.remove(&call);
        }
        let (begin, end) = (packet.begin.sequence, moment.sequence);
        self.packets.push(packet, begin, end);
    }

    /// Records the submission of a command to an engine.
    pub fn submitted(
        &mut self,
        names: &mut Names,
        moment: Moment,
        (agent, engine, id): (Agent, EngineId, u64),
        resubmits: Option<u64>,
    ) {
        if !self.queues.contains_key(&agent) {
            let track = names.queue(None, 0, engine, agent);
            self.insert(agent, track, engine);
        }
        let queue = self.queues.get_mut(&agent).expect("it is there now");
        let is_it = |queued: &&mut Queued| {
            let packet = &queued.packet;
            let submission_id = queued.current.map(|(_, id)| id);
            // A preempted submission ran, but has not finished.
            let is_left = resubmits.is_some() || queued.finished.is_none();
            packet.kind == PacketKind::Command && submission_id == resubmits && is_left
        };
        let call = match queue.packets.iter_mut().find(is_it) {
            Some(queued) => {
                queued.submit((engine, id), moment.at);
                queued.packet.begin.sequence
            }
            // A paging buffer of the kernel.
            None => {
                self.push(agent, NewPacket::command(moment));
                let queue = self.queues.get_mut(&agent).expect("it is there");
                let queued = queue.packets.back_mut().expect("it was pushed");
                queued.submit((engine, id), moment.at);
                moment.sequence
            }
        };
        if let Some(old) = resubmits {
            self.submissions.remove(&(engine, old));
        }
        self.submissions.insert((engine, id), (agent, call));
        self.dirty.insert(agent);
    }

    /// Records that an engine runs another submission, or none.
    pub fn running(&mut self, names: &Names, moment: Moment, engine: EngineId, now: Option<u64>, hung: bool) {
        if let Some(running) = self.engines.get_mut(&engine)
            && Some(running.id) == now
        {
            running.hung = hung;
            return;
        }
        if let Some(before) = self.engines.remove(&engine) {
            self.add_run(names, moment, engine, before, false);
        }
        let Some(id) = now else { return };
        let agent = self.submissions.get(&(engine, id)).map(|(agent, _)| *agent);
        let queue = agent.and_then(|agent| self.queues.get_mut(&agent));
        let is_rest = queue.is_some_and(|queue| queue.begins((engine, id), moment.at));
        self.engines.insert(engine, Running { id, begin: moment, hung, is_rest });
    }

    /// Adds a row for a run of an engine.
    fn add_run(&mut self, names: &Names, moment: Moment, engine: EngineId, running: Running, pending: bool) {
        let Running { id, begin, hung, is_rest } = running;
        let agent = self.submissions.get(&(engine, id)).copied();
        let queue = agent.and_then(|(agent, _)| self.queues.get_mut(&agent));
        let track = queue.as_ref().map_or(NONE, |queue| queue.track);
        if let Some(queue) = queue.filter(|_| !pending) {
            queue.running = None;
            queue.last = Some((engine, id));
            if let Some(queued) = find(&mut queue.packets, (engine, id)) {
                queued.finished = Some(moment.at);
                queue.last = queued.packet.submission;
            }
            self.dirty.extend(agent.map(|(agent, _)| agent));
        }
        let call = agent.map_or(begin.sequence, |(_, call)| call);
        let run = Run {
            engine: names.engine(engine),
            queue: track,
            submission_fence_id: id,
            begin: begin.at,
            end: moment.at.max(begin.at),
            sequence: begin.sequence,
            last: moment.sequence,
            call,
            hung,
            pending,
        };
        self.push_run(engine, run, is_rest);
    }

    fn push_run(&mut self, engine: EngineId, run: Run, is_rest: bool) {
        let (runs, busy) = self.busy.entry(engine).or_default();
        *runs += u64::from(!is_rest);
        *busy += run.end - run.begin;
        self.runs.push(run, run.sequence, run.last);
    }

    /// Records a completion interrupt, which completes the earlier submissions too (SCH-005).
    pub fn completed(&mut self, names: &Names, moment: Moment, engine: EngineId, id: u64) {
        let done: Vec<_> =
            self.submissions.range((engine, 0)..=(engine, id)).map(|(key, agent)| (*key, *agent)).collect();
        for (key, (agent, call)) in done {
            if matches!(agent, Agent::HwQueue(_)) {
                continue;
            }
            self.submissions.remove(&key);
            self.dirty.insert(agent);
            let Some(queue) = self.queues.get_mut(&agent) else { continue };
            queue.last = Some(key);
            let (track, mut never_ran) = (queue.track, false);
            if let Some(queued) = find(&mut queue.packets, key) {
                queued.finished.get_or_insert(moment.at);
                let was_over = std::mem::replace(&mut queued.completed, true);
                queue.over += usize::from(!was_over);
                never_ran = queued.packet.ran.is_none();
                queued.packet.ran.get_or_insert(moment.at);
                queue.last = queued.packet.submission;
            }
            if never_ran {
                let run = Run {
                    engine: names.engine(engine),
                    queue: track,
                    submission_fence_id: key.1,
                    begin: moment.at,
                    end: moment.at,
                    sequence: moment.sequence,
                    last: moment.sequence,
                    call,
                    hung: false,
                    pending: false,
                };
                self.push_run(engine, run, false);
            }
        }
    }

    /// Marks a queue whose first packets may be done.
    pub fn touch(&mut self, agent: Agent) {
        self.dirty.insert(agent);
    }

    /// Marks a queue that was emptied.
    pub fn emptied(&mut self, agent: Agent) {
        self.dirty.insert(agent);
        self.emptied.insert(agent);
    }

    /// Marks the queues of an adapter that stopped.
    pub fn emptied_on(&mut self, adapter: u32) {
        let on_adapter = self.queues.iter().filter(|(_, queue)| queue.engine.adapter == adapter);
        let agents: Vec<Agent> = on_adapter.map(|(agent, _)| *agent).collect();
        agents.into_iter().for_each(|agent| self.emptied(agent));
    }

    /// Removes a destroyed queue with its packets.
    pub fn gone(&mut self, agent: Agent, moment: Moment) {
        let Some(mut queue) = self.queues.remove(&agent) else { return };
        for queued in queue.packets.drain(..) {
            if let Some(key) = queued.current {
                self.submissions.remove(&key);
            }
            let outcome = match queued.packet.kind {
                PacketKind::Command if queued.finished.is_some() => Outcome::Done,
                PacketKind::Command | PacketKind::Signal | PacketKind::Wait => queued.outcome(true),
            };
            self.end(queued, moment, outcome);
        }
    }

    /// The source of a signal by this queue: its track, and the submission that runs or ran last.
    pub fn signaler(&self, agent: Agent) -> Option<(TrackId, Option<(EngineId, u64)>)> {
        let queue = self.queues.get(&agent)?;
        Some((queue.track, queue.running.or(queue.last)))
    }

    /// At the end of a step, adds rows for packets that left their queues.
    pub fn update(&mut self, kernel: &Kernel, moment: Moment) {
        while let Some(agent) = self.dirty.pop_first() {
            let length = kernel.queue_length(agent).unwrap_or(0);
            let is_emptied = self.emptied.remove(&agent);
            while let Some(queue) = self.queues.get_mut(&agent).filter(|queue| queue.packets.len() > length) {
                let gone = first_gone(&queue.packets, queue.over, is_emptied);
                let queued = queue.packets.remove(gone).expect("there are more");
                queue.over -= usize::from(queued.is_over());
                let outcome = queued.outcome(is_emptied);
                if let Some(key) = queued.current {
                    self.submissions.remove(&key);
                }
                self.end(queued, moment, outcome);
            }
        }
    }

    /// The calls of submissions that are pending, by queue and number, and of the heads of queues.
    pub fn begun(&self) -> BTreeMap<(TrackId, Option<u64>), Moment> {
        let mut begun = BTreeMap::new();
        for queue in self.queues.values() {
            let of = |queued: &Queued| (queue.track, queued.current.map(|(_, id)| id));
            begun.extend(queue.packets.iter().map(|queued| (of(queued), queued.packet.begin)));
            begun.extend(queue.packets.front().map(|queued| ((queue.track, None), queued.packet.begin)));
        }
        begun
    }

    /// Adds rows for what is pending at the end of the trace.
    pub fn finish(&mut self, names: &Names, moment: Moment) {
        for (engine, running) in std::mem::take(&mut self.engines) {
            self.add_run(names, moment, engine, running, true);
        }
        for mut queue in std::mem::take(&mut self.queues).into_values() {
            for mut queued in queue.packets.drain(..) {
                queued.finished = None;
                self.end(queued, moment, Outcome::Pending);
            }
        }
    }
}

/// Counts a queue that reached a broadcast signal, which comes with the last of all, or never if one has lost its packet.
fn reached(broadcasts: &mut BTreeMap<u64, usize>, call: u64) -> Outcome {
    let Some(to_come) = broadcasts.get_mut(&call) else { return Outcome::Dropped };
    *to_come -= 1;
    if *to_come > 0 {
        return Outcome::Passed;
    }
    broadcasts.remove(&call);
    Outcome::Done
}
