//! What stands in queues and what engines run, followed packet by packet.
//!
//! A call puts packets into queues, and the kernel says how long a queue is ([`Kernel::queue_length`]): packets take
//! effect in order (SCH-001), so those that are gone are the first. Two things are out of that order and known: a
//! signal at submission (FEN-048) passes the command that the engine has, and a wait that was satisfied from the start
//! never stood there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use d3dkmt::Handle;
use drivers::Filtered;
use dxgkrnl::ddi::{Agent, EngineId};
use dxgkrnl::{Kernel, Nanos, ProcessId};

use super::Options;
use super::names::Names;
use super::rows::Rows;
use crate::observe::Observer;
use crate::timeline::{FenceId, Moment, NONE, Outcome, Packet, PacketKind, Run, TrackId};

struct Queued {
    packet: Packet,
    /// The engine does not run it any more since.
    finished: Option<Nanos>,
    /// It said so by an interrupt.
    completed: bool,
}

struct Queue {
    track: TrackId,
    engine: EngineId,
    packets: VecDeque<Queued>,
    /// The submission that runs, and the last that did.
    running: Option<u64>,
    last: Option<(EngineId, u64)>,
}

#[derive(Clone, Copy)]
struct Running {
    id: u64,
    begin: Moment,
    hung: bool,
}

pub(super) struct Queues {
    queues: BTreeMap<Agent, Queue>,
    handles: BTreeMap<(ProcessId, Handle), Agent>,
    submissions: BTreeMap<(EngineId, u64), (Agent, u64)>,
    engines: BTreeMap<EngineId, Running>,
    touched: BTreeSet<Agent>,
    pub packets: Rows<Packet>,
    pub runs: Rows<Run>,
    /// How often and how long each engine ran.
    pub busy: BTreeMap<EngineId, (u64, Nanos)>,
}

impl Queues {
    pub fn new(options: &Options) -> Self {
        Queues {
            queues: BTreeMap::new(),
            handles: BTreeMap::new(),
            submissions: BTreeMap::new(),
            engines: BTreeMap::new(),
            touched: BTreeSet::new(),
            packets: Rows::new(options),
            runs: Rows::new(options),
            busy: BTreeMap::new(),
        }
    }

    /// A call's answer names a queue.
    pub fn created(
        &mut self,
        names: &mut Names,
        process: ProcessId,
        handle: Handle,
        of: Agent,
        engine: EngineId,
    ) {
        let track = names.queue(Some(process), handle.0, engine, of);
        self.handles.insert((process, handle), of);
        self.insert(of, track, engine);
    }

    fn insert(&mut self, of: Agent, track: TrackId, engine: EngineId) {
        let queue = Queue { track, engine, packets: VecDeque::new(), running: None, last: None };
        self.queues.insert(of, queue);
    }

    pub fn of_handle(&self, process: ProcessId, handle: Handle) -> Option<Agent> {
        self.handles.get(&(process, handle)).copied()
    }

    pub fn track(&self, of: Agent) -> Option<TrackId> {
        Some(self.queues.get(&of)?.track)
    }

    /// A call puts a packet there.
    pub fn push(&mut self, of: Agent, kind: PacketKind, begin: Moment, targets: Vec<(FenceId, u64)>) {
        let Some(queue) = self.queues.get_mut(&of) else { return };
        let packet = Packet {
            queue: queue.track,
            kind,
            begin,
            submitted: None,
            ran: None,
            end: begin,
            outcome: Outcome::Pending,
            submission: None,
            targets,
        };
        queue.packets.push_back(Queued { packet, finished: None, completed: false });
        self.touched.insert(of);
    }

    /// A wait that was just put there does not stand there: it was satisfied, and others are before it.
    pub fn satisfied(&mut self, of: Agent, moment: Moment) {
        let Some(queue) = self.queues.get_mut(&of) else { return };
        let is_new = |queued: &Queued| {
            queued.packet.kind == PacketKind::Wait && queued.packet.begin.sequence == moment.sequence
        };
        if queue.packets.len() > 1 && queue.packets.back().is_some_and(is_new) {
            let queued = queue.packets.pop_back().expect("there is one");
            self.end(queued, moment, Outcome::Done);
        }
    }

    fn end(&mut self, queued: Queued, moment: Moment, outcome: Outcome) {
        let Queued { mut packet, finished, .. } = queued;
        let at = finished.unwrap_or(moment.at).max(packet.begin.at);
        packet.end = Moment { at, sequence: moment.sequence };
        packet.outcome = outcome;
        let (begin, end) = (packet.begin.sequence, moment.sequence);
        self.packets.push(packet, begin, end);
    }

    /// The engine is given a command.
    pub fn submitted(
        &mut self,
        names: &mut Names,
        moment: Moment,
        (of, engine, id): (Agent, EngineId, u64),
        resubmits: Option<u64>,
    ) {
        if !self.queues.contains_key(&of) {
            let track = names.queue(None, 0, engine, of);
            self.insert(of, track, engine);
        }
        let queue = self.queues.get_mut(&of).expect("it is there now");
        let is_it = |queued: &&mut Queued| {
            let packet = &queued.packet;
            let given = packet.submission.map(|(_, id)| id);
            packet.kind == PacketKind::Command && given == resubmits && queued.finished.is_none()
        };
        let call = match queue.packets.iter_mut().find(is_it) {
            Some(queued) => {
                queued.packet.submission = Some((engine, id));
                queued.packet.submitted.get_or_insert(moment.at.max(queued.packet.begin.at));
                queued.packet.begin.sequence
            }
            // The kernel's own: a paging buffer.
            None => {
                self.push(of, PacketKind::Command, moment, Vec::new());
                let queue = self.queues.get_mut(&of).expect("it is there");
                let queued = queue.packets.back_mut().expect("it was pushed");
                queued.packet.submission = Some((engine, id));
                queued.packet.submitted = Some(moment.at);
                moment.sequence
            }
        };
        if let Some(old) = resubmits {
            self.submissions.remove(&(engine, old));
        }
        self.submissions.insert((engine, id), (of, call));
        self.touched.insert(of);
    }

    /// An engine turns to another submission, or to none.
    pub fn running(&mut self, names: &Names, moment: Moment, engine: EngineId, now: Option<u64>, hung: bool) {
        if let Some(running) = self.engines.get_mut(&engine)
            && Some(running.id) == now
        {
            running.hung = hung;
            return;
        }
        if let Some(before) = self.engines.remove(&engine) {
            self.ran(names, moment, engine, before, false);
        }
        let Some(id) = now else { return };
        self.engines.insert(engine, Running { id, begin: moment, hung });
        let Some((of, _)) = self.submissions.get(&(engine, id)) else { return };
        let Some(queue) = self.queues.get_mut(of) else { return };
        queue.running = Some(id);
        if let Some(queued) = find(&mut queue.packets, (engine, id)) {
            queued.packet.ran.get_or_insert(moment.at);
            queued.finished = None;
        }
    }

    /// What an engine ran is a row.
    fn ran(&mut self, names: &Names, moment: Moment, engine: EngineId, running: Running, pending: bool) {
        let Running { id, begin, hung } = running;
        let of = self.submissions.get(&(engine, id)).copied();
        let queue = of.and_then(|(of, _)| self.queues.get_mut(&of));
        let track = queue.as_ref().map_or(NONE, |queue| queue.track);
        if let Some(queue) = queue.filter(|_| !pending) {
            queue.running = None;
            queue.last = Some((engine, id));
            if let Some(queued) = find(&mut queue.packets, (engine, id)) {
                queued.finished = Some(moment.at);
            }
            self.touched.extend(of.map(|(of, _)| of));
        }
        let call = of.map_or(begin.sequence, |(_, call)| call);
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
        self.push_run(engine, run);
    }

    fn push_run(&mut self, engine: EngineId, run: Run) {
        let (runs, busy) = self.busy.entry(engine).or_default();
        *runs += 1;
        *busy += run.end - run.begin;
        self.runs.push(run, run.sequence, run.last);
    }

    /// An interrupt says so; it says it of the earlier ones too (SCH-005).
    pub fn completed(&mut self, names: &Names, moment: Moment, engine: EngineId, id: u64) {
        let done: Vec<_> =
            self.submissions.range((engine, 0)..=(engine, id)).map(|(key, of)| (*key, *of)).collect();
        for (key, (of, call)) in done {
            if matches!(of, Agent::HwQueue(_)) {
                continue;
            }
            self.submissions.remove(&key);
            self.touched.insert(of);
            let Some(queue) = self.queues.get_mut(&of) else { continue };
            queue.last = Some(key);
            let (track, mut never_ran) = (queue.track, false);
            if let Some(queued) = find(&mut queue.packets, key) {
                queued.finished.get_or_insert(moment.at);
                queued.completed = true;
                never_ran = queued.packet.ran.is_none();
                queued.packet.ran.get_or_insert(moment.at);
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
                self.push_run(engine, run);
            }
        }
    }

    /// A queue does something: its first packets may be gone.
    pub fn touch(&mut self, of: Agent) {
        self.touched.insert(of);
    }

    /// Any queue may have lost what it had.
    pub fn touch_all(&mut self) {
        let busy = self.queues.iter().filter(|(_, queue)| !queue.packets.is_empty());
        self.touched.extend(busy.map(|(of, _)| *of));
    }

    /// A queue ends, with what stands in it.
    pub fn gone(&mut self, of: Agent, moment: Moment) {
        let Some(mut queue) = self.queues.remove(&of) else { return };
        for queued in queue.packets.drain(..) {
            if let Some(key) = queued.packet.submission {
                self.submissions.remove(&key);
            }
            let outcome = if queued.finished.is_some() { Outcome::Done } else { Outcome::Dropped };
            self.end(queued, moment, outcome);
        }
    }

    /// Who signals by this queue now: its track, and what it runs or ran last.
    pub fn signaler(&self, of: Agent) -> Option<(TrackId, Option<(EngineId, u64)>)> {
        let queue = self.queues.get(&of)?;
        let running = queue.running.map(|id| (queue.engine, id));
        Some((queue.track, running.or(queue.last)))
    }

    /// The step is over: packets that do not stand in their queues any more are rows.
    pub fn update(&mut self, kernel: &Kernel<Filtered<Observer>>, moment: Moment, upset: bool) {
        while let Some(of) = self.touched.pop_first() {
            let length = kernel.queue_length(of).unwrap_or(0);
            while let Some(queue) = self.queues.get_mut(&of).filter(|queue| queue.packets.len() > length) {
                let queued = queue.packets.remove(first_gone(&queue.packets)).expect("there are more");
                let outcome = if upset && !queued.completed { Outcome::Dropped } else { Outcome::Done };
                if let Some(key) = queued.packet.submission {
                    self.submissions.remove(&key);
                }
                self.end(queued, moment, outcome);
            }
        }
    }

    /// Queues whose head waits: the track, since when, and for what.
    pub fn waiting(&self) -> impl Iterator<Item = &Packet> {
        let heads = self.queues.values().filter_map(|queue| queue.packets.front());
        heads.map(|queued| &queued.packet).filter(|packet| packet.kind == PacketKind::Wait)
    }

    /// The trace is over.
    pub fn finish(&mut self, names: &Names, moment: Moment) {
        for (engine, running) in std::mem::take(&mut self.engines) {
            self.ran(names, moment, engine, running, true);
        }
        for mut queue in std::mem::take(&mut self.queues).into_values() {
            for queued in queue.packets.drain(..) {
                self.end(Queued { finished: None, ..queued }, moment, Outcome::Pending);
            }
        }
    }
}

fn find(packets: &mut VecDeque<Queued>, submission: (EngineId, u64)) -> Option<&mut Queued> {
    packets.iter_mut().find(|queued| queued.packet.submission == Some(submission))
}

/// Which packet of a queue went first.
fn first_gone(packets: &VecDeque<Queued>) -> usize {
    let is_given = |queued: &Queued| queued.packet.submission.is_some() && queued.finished.is_none();
    let early = packets.iter().position(|queued| !is_given(queued));
    match early {
        Some(at) if packets[at].packet.kind == PacketKind::Signal => at,
        _ => 0,
    }
}
