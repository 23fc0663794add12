//! `.pftrace`, for <https://ui.perfetto.dev> and `trace_processor`.
//!
//! | timeline | Perfetto |
//! |---|---|
//! | VM, adapter | a process track with a synthetic pid; its children are below it |
//! | process | a track with an instant for each call, and a track for each row of overlapping waits |
//! | wait | a slice from its registration to its wake-up |
//! | queue | a track for each row of overlapping packets: a slice from the call until it is done |
//! | engine | a track: a slice for each run |
//! | fence | a counter below `fences` |
//! | signal that ended a wait | one flow from the instant (or packet) to the wake-up; call to run likewise |
//! | note, fault, reset | an instant |
//!
//! Each flow has its own id and two ends. A single id for each fence could freeze the UI, which walks all connected
//! slices. Slices are balanced on each track, times of a sequence never go backwards, and names are interned. A flow
//! ends at a separate instant ("woken"), because the UI draws arrows between the begins of slices.

pub mod messages;

use std::collections::BTreeMap;

use crate::format::status_name;
use crate::lanes::gives_values;
use crate::latency::Split;
use crate::parts::parts;
use crate::timeline::{MarkKind, NONE, Outcome, PacketKind, Timeline, TrackId, TrackKind, Wait, WaitKind};
use messages::{
    CLOCK_BOOTTIME, COUNTER, Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, INSTANT, Interned,
    InternedData, ORDER_EXPLICIT, ProcessDescriptor, SEQ_INCREMENTAL_STATE_CLEARED,
    SEQ_NEEDS_INCREMENTAL_STATE, SLICE_BEGIN, SLICE_END, TracePacket, TrackDescriptor, TrackEvent,
};

/// Synthetic pids of VMs and adapters, above all real pids.
const PID_BASE: i32 = 1 << 30;
const SEQUENCE_ID: u32 = 1;

/// The whole timeline as the bytes of a `.pftrace`.
pub fn export(timeline: &Timeline) -> Vec<u8> {
    let mut writer = Writer {
        timeline,
        out: Vec::new(),
        events: Vec::new(),
        names: BTreeMap::new(),
        keys: BTreeMap::new(),
        lanes: BTreeMap::new(),
        uuids: 0,
        flows: 0,
        order: 0,
        begun: BTreeMap::new(),
    };
    writer.head();
    writer.join_calls_and_runs();
    writer.tracks();
    writer.calls();
    writer.waits();
    writer.packets();
    writer.runs();
    writer.counters();
    writer.marks();
    writer.finish()
}

/// An event to be sorted by time.
struct Timed {
    at: u64,
    /// Order of events at the same time: ends before begins, else in order of creation.
    turn: (u8, u64),
    event: TrackEvent,
}

struct Writer<'a> {
    timeline: &'a Timeline,
    out: Vec<u8>,
    events: Vec<Timed>,
    names: BTreeMap<String, u64>,
    keys: BTreeMap<&'static str, u64>,
    /// Rows for overlapping waits and packets, by track: the uuid of each row and the time from which it is free.
    lanes: BTreeMap<(TrackId, &'static str), Vec<(u64, u64)>>,
    uuids: u64,
    flows: u64,
    order: u64,
    /// Flows that begin at a call: one for each run of its submissions.
    begun: BTreeMap<u64, Vec<u64>>,
}

/// Annotations of an event.
type Args = Vec<(&'static str, Arg)>;

enum Arg {
    Number(u64),
    Text(String),
}

impl Writer<'_> {
    fn packet(&mut self, packet: TracePacket) {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE_ID), ..packet };
        prost::encoding::message::encode(1, &packet, &mut self.out);
    }

    /// Writes the clock: nanoseconds since the daemon's start count as boot time.
    fn head(&mut self) {
        let clock = |id| Clock { clock_id: Some(id), timestamp: Some(self.timeline.begin.at) };
        let clocks = vec![clock(CLOCK_BOOTTIME)];
        let snapshot = ClockSnapshot { clocks, primary_trace_clock: Some(CLOCK_BOOTTIME) };
        self.packet(TracePacket {
            clock_snapshot: Some(snapshot),
            timestamp: Some(self.timeline.begin.at),
            sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
            ..TracePacket::default()
        });
    }

    fn uuid(&mut self) -> u64 {
        self.uuids += 1;
        // The uuids of tracks follow from their indexes.
        self.timeline.tracks.len() as u64 + self.uuids
    }

    fn describe(&mut self, descriptor: TrackDescriptor) {
        self.packet(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() });
    }

    fn tracks(&mut self) {
        for (at, track) in self.timeline.tracks.iter().enumerate() {
            let is_group = matches!(track.kind, TrackKind::Vm(_) | TrackKind::Adapter(_));
            let process = is_group.then(|| ProcessDescriptor {
                pid: Some(PID_BASE + at as i32),
                process_name: Some(track.name.clone()),
            });
            self.describe(TrackDescriptor {
                uuid: Some(of_track(at as TrackId)),
                name: Some(track.name.clone()),
                process,
                parent_uuid: track.parent.map(of_track),
                child_ordering: Some(ORDER_EXPLICIT),
                sibling_order_rank: Some(at as i32),
                ..TrackDescriptor::default()
            });
        }
    }

    /// A row of a track that is free from `begin` on, so that slices of one row never overlap.
    fn lane(&mut self, track: TrackId, what: &'static str, begin: u64, end: u64) -> u64 {
        let lanes = self.lanes.entry((track, what)).or_default();
        // An empty slice still occupies its instant.
        let end = end.max(begin + 1);
        if let Some((uuid, free)) = lanes.iter_mut().find(|(_, free)| *free <= begin) {
            *free = end;
            return *uuid;
        }
        let rank = lanes.len() as i32;
        let uuid = self.uuid();
        self.lanes.get_mut(&(track, what)).expect("it was made above").push((uuid, end));
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(what.to_owned()),
            parent_uuid: Some(of_track(track)),
            sibling_order_rank: Some(rank),
            ..TrackDescriptor::default()
        });
        uuid
    }

    fn name(&mut self, name: &str) -> u64 {
        if let Some(iid) = self.names.get(name) {
            return *iid;
        }
        let iid = self.names.len() as u64 + 1;
        self.names.insert(name.to_owned(), iid);
        let interned = Interned { iid: Some(iid), name: Some(name.to_owned()) };
        self.interned(InternedData { event_names: vec![interned], ..InternedData::default() });
        iid
    }

    fn key(&mut self, name: &'static str) -> u64 {
        if let Some(iid) = self.keys.get(name) {
            return *iid;
        }
        let iid = self.keys.len() as u64 + 1;
        self.keys.insert(name, iid);
        let interned = Interned { iid: Some(iid), name: Some(name.to_owned()) };
        self.interned(InternedData { debug_annotation_names: vec![interned], ..InternedData::default() });
        iid
    }

    fn interned(&mut self, data: InternedData) {
        let flags = Some(SEQ_NEEDS_INCREMENTAL_STATE);
        self.packet(TracePacket {
            interned_data: Some(data),
            sequence_flags: flags,
            ..TracePacket::default()
        });
    }

    fn event(&mut self, at: u64, kind: i32, uuid: u64, name: &str, args: Args) -> &mut TrackEvent {
        let name_iid = (!name.is_empty()).then(|| self.name(name));
        let debug_annotations = args
            .into_iter()
            .map(|(key, value)| {
                let name_iid = Some(self.key(key));
                match value {
                    Arg::Number(number) => {
                        DebugAnnotation { name_iid, uint_value: Some(number), ..DebugAnnotation::default() }
                    }
                    Arg::Text(text) => {
                        DebugAnnotation { name_iid, string_value: Some(text), ..DebugAnnotation::default() }
                    }
                }
            })
            .collect();
        let track_uuid = Some(uuid);
        let event =
            TrackEvent { debug_annotations, kind: Some(kind), name_iid, track_uuid, ..TrackEvent::default() };
        self.order += 1;
        let rank = if kind == SLICE_END { 0 } else { 1 };
        self.events.push(Timed { at, turn: (rank, self.order), event });
        &mut self.events.last_mut().expect("it was just pushed").event
    }

    /// Adds a slice. One without length becomes an instant, so that every begin is before its end.
    fn slice(&mut self, begin: u64, end: u64, uuid: u64, name: &str, args: Args) -> &mut TrackEvent {
        if end > begin {
            self.event(end, SLICE_END, uuid, "", Vec::new());
            self.event(begin, SLICE_BEGIN, uuid, name, args)
        } else {
            self.event(begin, INSTANT, uuid, name, args)
        }
    }

    fn flow(&mut self) -> u64 {
        self.flows += 1;
        self.flows
    }

    /// Connects each call with its runs by flows, if both have rows.
    fn join_calls_and_runs(&mut self) {
        let timeline = self.timeline;
        for run in timeline.runs.iter().filter(|run| run.queue != NONE) {
            let call = timeline.events.binary_search_by_key(&run.call, |event| event.moment.sequence);
            if call.is_ok() {
                let flow = self.flow();
                self.begun.entry(run.call).or_default().push(flow);
            }
        }
    }

    fn calls(&mut self) {
        let timeline = self.timeline;
        for event in &timeline.events {
            let mut args: Args = vec![("seq", Arg::Number(event.moment.sequence))];
            if event.request != 0 {
                args.push(("request", Arg::Number(event.request)));
            }
            if let Some(status) = event.status {
                args.push(("status", Arg::Text(status_name(status))));
            }
            if event.fence != NONE {
                args.push(("fence", Arg::Text(Timeline::fence_name(event.fence))));
                if event.value != 0 || gives_values(timeline.word(event.name)) {
                    args.push(("value", Arg::Number(event.value)));
                }
            }
            let uuid = of_track(event.track);
            let flows = self.begun.get(&event.moment.sequence).cloned().unwrap_or_default();
            let call = self.event(event.moment.at, INSTANT, uuid, timeline.word(event.name), args);
            call.flow_ids = flows;
        }
    }

    fn waits(&mut self) {
        let timeline = self.timeline;
        let submissions = timeline.submissions();
        for wait in &timeline.waits {
            let (begin, end) = (wait.begin.at, wait.end.at);
            let uuid = self.lane(wait.process, "waits", begin, end);
            let mut args = wait_args(wait);
            for part in parts(wait, &submissions) {
                args.push((part.name, Arg::Number(part.nanos)));
            }
            self.slice(begin, end, uuid, &wait_name(self.timeline, wait), args);
            let Some(cause) = wait.cause else { continue };
            let flow = self.flow();
            let fence = Timeline::fence_name(cause.fence);
            let name =
                if cause.fence == NONE { "released".into() } else { format!("{fence} = {}", cause.value) };
            let signal = self.event(cause.moment.at, INSTANT, of_track(cause.track), &name, Vec::new());
            signal.flow_ids.push(flow);
            let woken = self.event(end, INSTANT, of_track(wait.process), "woken", woken_args(timeline, wait));
            woken.terminating_flow_ids.push(flow);
        }
    }

    fn packets(&mut self) {
        for packet in &self.timeline.packets {
            let (begin, end) = (packet.begin.at, packet.end.at);
            let uuid = self.lane(packet.queue, "packets", begin, end);
            let name = match packet.kind {
                PacketKind::Command => "command".to_owned(),
                PacketKind::Signal => format!("signal {}", self.timeline.targets(&packet.targets, "=")),
                PacketKind::Wait => format!("wait {}", self.timeline.targets(&packet.targets, ">=")),
            };
            let mut args: Args = vec![
                ("seq", Arg::Number(packet.begin.sequence)),
                ("outcome", Arg::Text(packet.outcome.name().into())),
            ];
            if let Some((_, id)) = packet.submission {
                args.push(("submission_fence_id", Arg::Number(id)));
            }
            self.slice(begin, end, uuid, &name, args);
        }
    }

    fn runs(&mut self) {
        let mut used: BTreeMap<u64, usize> = BTreeMap::new();
        for run in &self.timeline.runs {
            let queue =
                if run.queue == NONE { "ring" } else { &self.timeline.tracks[run.queue as usize].name };
            let name = if run.hung { "hang".to_owned() } else { queue.to_owned() };
            let uuid = self.lane(run.engine, "runs", run.begin, run.end);
            let args = vec![
                ("seq", Arg::Number(run.call)),
                ("queue", Arg::Text(queue.to_owned())),
                ("submission_fence_id", Arg::Number(run.submission_fence_id)),
            ];
            let index = used.entry(run.call).or_default();
            let flow = self.begun.get(&run.call).and_then(|flows| flows.get(*index)).copied();
            *index += usize::from(run.queue != NONE);
            let flow = flow.filter(|_| run.queue != NONE);
            let slice = self.slice(run.begin, run.end, uuid, &name, args);
            slice.terminating_flow_ids.extend(flow);
        }
    }

    fn counters(&mut self) {
        let timeline = self.timeline;
        let mut uuids: BTreeMap<u32, u64> = BTreeMap::new();
        let parent = self.uuid();
        self.describe(TrackDescriptor {
            uuid: Some(parent),
            name: Some("fences".into()),
            sibling_order_rank: Some(i32::MAX),
            ..TrackDescriptor::default()
        });
        for sample in &timeline.samples {
            let uuid = match uuids.get(&sample.fence) {
                Some(uuid) => *uuid,
                None => {
                    let uuid = self.uuid();
                    uuids.insert(sample.fence, uuid);
                    self.describe(TrackDescriptor {
                        uuid: Some(uuid),
                        name: Some(timeline.fence_words(sample.fence)),
                        parent_uuid: Some(parent),
                        counter: Some(CounterDescriptor { unit_name: Some("value".into()) }),
                        sibling_order_rank: Some(sample.fence as i32),
                        ..TrackDescriptor::default()
                    });
                    uuid
                }
            };
            let event = self.event(sample.moment.at, COUNTER, uuid, "", Vec::new());
            // Perfetto's counters are signed.
            event.counter_value = Some(i64::try_from(sample.value).unwrap_or(i64::MAX));
        }
    }

    fn marks(&mut self) {
        let timeline = self.timeline;
        for mark in &timeline.marks {
            let text = timeline.word(mark.text);
            let name = match mark.kind {
                MarkKind::Note => "note".to_owned(),
                MarkKind::Fault | MarkKind::Reset => format!("{}: {text}", mark.kind.name()),
            };
            let args = vec![("seq", Arg::Number(mark.moment.sequence)), ("text", Arg::Text(text.to_owned()))];
            self.event(mark.moment.at, INSTANT, of_track(mark.track), &name, args);
        }
    }

    /// Writes the events in order of time.
    fn finish(mut self) -> Vec<u8> {
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(|timed| (timed.at, timed.turn));
        for Timed { at, event, .. } in events {
            self.packet(TracePacket {
                timestamp: Some(at),
                timestamp_clock_id: Some(CLOCK_BOOTTIME),
                track_event: Some(event),
                sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
                ..TracePacket::default()
            });
        }
        self.out
    }
}

/// The uuid of a track; 0 is Perfetto's default track.
fn of_track(track: TrackId) -> u64 {
    u64::from(track) + 1
}

fn wait_name(timeline: &Timeline, wait: &Wait) -> String {
    match wait.kind {
        WaitKind::Fences { any } => {
            let any = if any { " (any)" } else { "" };
            format!("wait {}{any}", timeline.targets(&wait.targets, ">="))
        }
        WaitKind::KeyedMutex { mutex, key } => format!("keyed mutex {mutex:#x} key {key}"),
    }
}

/// The latency parts of a wake-up, if recorded.
fn woken_args(timeline: &Timeline, wait: &Wait) -> Args {
    let latency = timeline.latency.as_ref();
    let split = latency.and_then(|latency| latency.of(wait.end.sequence, wait.process, wait.event));
    split.into_iter().flat_map(Split::parts_words).map(|(name, words)| (name, Arg::Text(words))).collect()
}

fn wait_args(wait: &Wait) -> Args {
    let outcome = match wait.outcome {
        Outcome::Status(status) => status_name(status),
        other => other.name().to_owned(),
    };
    vec![
        ("seq", Arg::Number(wait.begin.sequence)),
        ("woken by seq", Arg::Number(wait.end.sequence)),
        ("event", Arg::Number(wait.event)),
        ("outcome", Arg::Text(outcome)),
    ]
}
