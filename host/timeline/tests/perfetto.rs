//! `.pftrace`: properties of every file, and tests of the checker of these properties.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use timeline::perfetto::messages::{
    COUNTER, INSTANT, SEQ_INCREMENTAL_STATE_CLEARED, SLICE_BEGIN, SLICE_END, Trace, TracePacket, TrackEvent,
};

/// Checks a trace. Returns a text for each violation.
fn judge(trace: &Trace) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut judge = Judge::default();
    for packet in &trace.packet {
        judge.packet(packet, &mut wrong);
    }
    for (track, open) in &judge.open {
        if *open != 0 {
            wrong.push(format!("track {track} ends with {open} open slices"));
        }
    }
    for (flow, (begins, ends)) in &judge.flows {
        if (*begins, *ends) != (1, 1) {
            wrong.push(format!("flow {flow} has {begins} begins and {ends} ends"));
        }
    }
    wrong
}

#[derive(Default)]
struct Judge {
    tracks: BTreeMap<u64, bool>,
    open: BTreeMap<u64, i64>,
    flows: BTreeMap<u64, (u32, u32)>,
    names: BTreeSet<u64>,
    keys: BTreeSet<u64>,
    last: u64,
    cleared: bool,
    clock: bool,
}

impl Judge {
    fn packet(&mut self, packet: &TracePacket, wrong: &mut Vec<String>) {
        if packet.trusted_packet_sequence_id.is_none() {
            wrong.push("a packet without a sequence".into());
        }
        self.cleared |= packet.sequence_flags.unwrap_or(0) & SEQ_INCREMENTAL_STATE_CLEARED != 0;
        self.clock |= packet.clock_snapshot.is_some();
        if let Some(track) = &packet.track_descriptor {
            let uuid = track.uuid.unwrap_or(0);
            if uuid == 0 || self.tracks.insert(uuid, track.counter.is_some()).is_some() {
                wrong.push(format!("track {uuid} is described twice, or has no uuid"));
            }
            if track.parent_uuid.is_some_and(|parent| !self.tracks.contains_key(&parent)) {
                wrong.push(format!("the parent of track {uuid} is not there"));
            }
        }
        if let Some(data) = &packet.interned_data {
            self.names.extend(data.event_names.iter().filter_map(|name| name.iid));
            self.keys.extend(data.debug_annotation_names.iter().filter_map(|name| name.iid));
        }
        if let Some(event) = &packet.track_event {
            let at = packet.timestamp.unwrap_or(0);
            if at < self.last {
                wrong.push(format!("time goes back from {} to {at}", self.last));
            }
            self.last = at;
            self.event(event, wrong);
        }
    }

    fn event(&mut self, event: &TrackEvent, wrong: &mut Vec<String>) {
        let uuid = event.track_uuid.unwrap_or(0);
        if !self.cleared || !self.clock {
            wrong.push("an event before the clock and the beginning of its sequence".into());
        }
        let Some(is_counter) = self.tracks.get(&uuid) else {
            wrong.push(format!("an event of track {uuid}, which is not there"));
            return;
        };
        let kind = event.kind.unwrap_or(0);
        if *is_counter != (kind == COUNTER) || (kind == COUNTER) != event.counter_value.is_some() {
            wrong.push(format!("an event of kind {kind} on track {uuid}"));
        }
        let open = self.open.entry(uuid).or_default();
        match kind {
            SLICE_BEGIN => *open += 1,
            SLICE_END => *open -= 1,
            INSTANT | COUNTER => {}
            _ => wrong.push(format!("an event of kind {kind}")),
        }
        if !(0..=1).contains(open) {
            wrong.push(format!("track {uuid} has {open} open slices"));
        }
        if matches!(kind, SLICE_BEGIN | INSTANT)
            && !event.name_iid.is_some_and(|name| self.names.contains(&name))
        {
            wrong.push(format!("an event without a name on track {uuid}"));
        }
        for annotation in &event.debug_annotations {
            if !annotation.name_iid.is_some_and(|name| self.keys.contains(&name)) {
                wrong.push("an annotation without a name".into());
            }
        }
        event.flow_ids.iter().for_each(|flow| self.flows.entry(*flow).or_default().0 += 1);
        event.terminating_flow_ids.iter().for_each(|flow| self.flows.entry(*flow).or_default().1 += 1);
    }
}

fn small() -> Trace {
    Trace::decode(&timeline::perfetto::export(&common::small_timeline())[..]).unwrap()
}

#[test]
fn small_trace_is_sound_and_has_all_of_it() {
    let trace = small();
    assert_eq!(judge(&trace), Vec::<String>::new());
    let timeline = common::small_timeline();
    let count = |kind: i32| {
        trace
            .packet
            .iter()
            .filter_map(|packet| packet.track_event.as_ref())
            .filter(|one| one.kind == Some(kind))
            .count()
    };
    assert_eq!(count(COUNTER), timeline.samples.len());
    assert!(count(SLICE_BEGIN) > timeline.runs.len());
    let flows: usize = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_event.as_ref())
        .map(|event| event.terminating_flow_ids.len())
        .sum();
    let woken = timeline.waits.iter().filter(|wait| wait.cause.is_some()).count();
    let submitted = timeline.runs.iter().filter(|run| run.queue != timeline::NONE).count();
    assert_eq!(flows, woken + submitted);
}

#[test]
fn sessions_by_seed_are_sound() {
    for seed in 0..20 {
        let file = tempfile::NamedTempFile::new().unwrap();
        common::random(file.path(), seed, 400);
        let bytes = timeline::perfetto::export(&common::timeline_of(file.path()));
        assert_eq!(judge(&Trace::decode(&bytes[..]).unwrap()), Vec::<String>::new(), "seed {seed}");
    }
}

/// The fields of a message: number, wire type, and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u32, WireType, &[u8])> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes).unwrap();
        let length = match wire_type {
            WireType::LengthDelimited => decode_varint(&mut bytes).unwrap() as usize,
            WireType::SixtyFourBit => 8,
            _ => bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1,
        };
        let (value, rest) = bytes.split_at(length);
        fields.push((tag, wire_type, value));
        bytes = rest;
    }
    fields
}

/// `track_event.proto` is proto2 and declares `repeated fixed64 flow_ids = 47` and `terminating_flow_ids = 48` without
/// `[packed = true]`. Perfetto's decoder does not read a packed field there, whereas prost reads both forms.
#[test]
fn flow_ids_are_not_packed() {
    let bytes = timeline::perfetto::export(&common::small_timeline());
    let packets = fields(&bytes).into_iter().flat_map(|(_, _, packet)| fields(packet));
    let events = packets.filter(|(tag, ..)| *tag == 11).flat_map(|(_, _, event)| fields(event));
    let flows: Vec<_> = events.filter(|(tag, ..)| [47, 48].contains(tag)).collect();
    assert!(flows.iter().any(|(tag, ..)| *tag == 47) && flows.iter().any(|(tag, ..)| *tag == 48));
    for (tag, wire_type, _) in flows {
        assert_eq!(wire_type, WireType::SixtyFourBit, "field {tag}");
    }
}

fn first(trace: &mut Trace, is_it: impl Fn(&TracePacket) -> bool) -> &mut TracePacket {
    trace.packet.iter_mut().find(|packet| is_it(packet)).unwrap()
}

fn event(trace: &mut Trace, is_it: impl Fn(&TrackEvent) -> bool) -> &mut TrackEvent {
    let packet = first(trace, |packet| packet.track_event.as_ref().is_some_and(&is_it));
    packet.track_event.as_mut().unwrap()
}

/// Each case breaks a valid trace in one way.
#[test]
fn judge_finds_what_is_broken() {
    type Breaks = (&'static str, fn(&mut Trace));
    let all: [Breaks; 10] = [
        ("open slices", |trace| {
            let end = |packet: &TracePacket| {
                packet.track_event.as_ref().is_some_and(|one| one.kind == Some(SLICE_END))
            };
            let at = trace.packet.iter().position(end).unwrap();
            trace.packet.remove(at);
        }),
        ("flow", |trace| event(trace, |one| !one.flow_ids.is_empty()).flow_ids.clear()),
        ("flow", |trace| {
            event(trace, |one| !one.terminating_flow_ids.is_empty()).terminating_flow_ids.push(1 << 40);
        }),
        ("flow", |trace| {
            let again = event(trace, |one| !one.flow_ids.is_empty());
            let flow = again.flow_ids[0];
            again.flow_ids.push(flow);
        }),
        ("parent", |trace| {
            let with = |packet: &TracePacket| {
                packet.track_descriptor.as_ref().is_some_and(|track| track.parent_uuid.is_some())
            };
            first(trace, with).track_descriptor.as_mut().unwrap().parent_uuid = Some(1 << 40);
        }),
        ("time goes back", |trace| {
            let late = |packet: &TracePacket| packet.track_event.is_some() && packet.timestamp > Some(50_000);
            first(trace, late).timestamp = Some(0);
        }),
        ("described twice", |trace| {
            let again = first(trace, |packet| packet.track_descriptor.is_some()).clone();
            trace.packet.push(again);
        }),
        ("not there", |trace| event(trace, |_| true).track_uuid = Some(1 << 40)),
        ("without a name", |trace| event(trace, |one| one.kind == Some(INSTANT)).name_iid = Some(1 << 40)),
        ("before the clock", |trace| drop(trace.packet.remove(0))),
    ];
    for (finds, breaks) in all {
        let mut trace = small();
        breaks(&mut trace);
        let found = judge(&trace);
        assert!(found.iter().any(|one| one.contains(finds)), "{finds}: {found:?}");
    }
}

/// Compares with the golden file. `GPUPV_BLESS=1 cargo test -p timeline --test perfetto` rewrites it.
#[test]
fn small_trace_has_its_golden_bytes() {
    let bytes = timeline::perfetto::export(&common::small_timeline());
    common::golden("small.pftrace", &bytes);
}
