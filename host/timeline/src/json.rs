//! The whole timeline as JSON.

use serde_json::{Value, json};

use crate::format::status_name;
use crate::timeline::{
    Blocked, BlockedItem, Cause, Event, Fence, FenceId, Mark, Moment, NONE, Outcome, Packet, Reason, Run,
    Sample, Timeline, Track, TrackId, TrackKind, Wait, WaitKind,
};

/// The timeline as one JSON object. Times are in nanoseconds; tracks and fences are indexes into `tracks` and `fences`.
pub fn to_json(timeline: &Timeline) -> String {
    let head = json!({
        "program": timeline.program, "begin_ns": timeline.begin.at, "end_ns": timeline.end.at,
        "ended": timeline.integrity.ended, "stopped": timeline.integrity.stopped,
        "left_out": timeline.integrity.left_out,
    });
    let mut out = head.to_string();
    // Append the long lists row by row, because a JSON value of all rows would take many times their size.
    out.pop();
    who(timeline, &mut out);
    events(timeline, &mut out);
    waits(timeline, &mut out);
    work(timeline, &mut out);
    list(&mut out, "blocked", timeline.blocked.iter().map(blocked));
    list(&mut out, "reasons", timeline.reasons.iter().map(Reason::json));
    out + "}\n"
}

fn list(out: &mut String, name: &str, rows: impl Iterator<Item = Value>) {
    *out += &format!(",\n\"{name}\":[");
    for (at, row) in rows.enumerate() {
        *out += if at == 0 { "\n" } else { ",\n" };
        *out += &row.to_string();
    }
    out.push(']');
}

fn who(timeline: &Timeline, out: &mut String) {
    let track =
        |track: &Track| json!({ "name": track.name, "parent": track.parent, "kind": kind_name(track.kind) });
    list(out, "tracks", timeline.tracks.iter().map(track));
    let fence = |fence: &Fence| {
        let opens: Vec<_> = fence.opens.iter().map(|(process, handle)| json!([process.0, handle])).collect();
        json!({ "kind": fence.kind, "name": fence.shared_as, "opens": opens, "value": fence.value })
    };
    list(out, "fences", timeline.fences.iter().map(fence));
}

fn events(timeline: &Timeline, out: &mut String) {
    let event = |event: &Event| {
        json!({
            "at_ns": event.moment.at, "sequence": event.moment.sequence, "track": event.track,
            "name": timeline.word(event.name), "status": event.status.map(status_name),
            "request": event.request, "fence": some(event.fence), "value": event.value, "wakes": event.wakes,
        })
    };
    list(out, "events", timeline.events.iter().map(event));
    let sample = |sample: &Sample| json!({ "fence": sample.fence, "at": moment(sample.moment), "value": sample.value });
    list(out, "values", timeline.samples.iter().map(sample));
    let mark = |mark: &Mark| {
        let text = timeline.word(mark.text);
        json!({ "at": moment(mark.moment), "track": mark.track, "kind": mark.kind.name(), "text": text })
    };
    list(out, "marks", timeline.marks.iter().map(mark));
}

fn waits(timeline: &Timeline, out: &mut String) {
    let submissions = timeline.submissions();
    let wait = |wait: &Wait| {
        let kind = match wait.kind {
            WaitKind::Fences { any: false } => json!("all"),
            WaitKind::Fences { any: true } => json!("any"),
            WaitKind::KeyedMutex { mutex, key } => json!({ "keyed_mutex": mutex, "key": key }),
        };
        let parts = crate::parts(wait, &submissions);
        let parts: Vec<_> = parts.iter().map(|part| json!([part.name, part.nanos])).collect();
        json!({
            "process": wait.process, "event": wait.event, "kind": kind, "targets": wait.targets,
            "begin": moment(wait.begin), "end": moment(wait.end), "outcome": outcome(wait.outcome),
            "cause": wait.cause.as_ref().map(cause), "parts_ns": parts,
        })
    };
    list(out, "waits", timeline.waits.iter().map(wait));
}

fn work(timeline: &Timeline, out: &mut String) {
    let packet = |packet: &Packet| {
        json!({
            "queue": packet.queue, "kind": packet.kind.name(), "begin": moment(packet.begin),
            "submitted_ns": packet.submitted, "ran_ns": packet.ran, "end": moment(packet.end),
            "outcome": outcome(packet.outcome), "targets": packet.targets,
            "submission_fence_id": packet.submission.map(|(_, id)| id),
        })
    };
    list(out, "packets", timeline.packets.iter().map(packet));
    let run = |run: &Run| {
        json!({
            "engine": run.engine, "queue": some(run.queue), "submission_fence_id": run.submission_fence_id,
            "begin_ns": run.begin, "end_ns": run.end, "sequence": run.sequence, "call": run.call,
            "hung": run.hung, "pending": run.pending,
        })
    };
    list(out, "runs", timeline.runs.iter().map(run));
}

fn some(id: u32) -> Option<u32> {
    (id != NONE).then_some(id)
}

fn moment(moment: Moment) -> Value {
    json!({ "at_ns": moment.at, "sequence": moment.sequence })
}

fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Status(status) => status_name(status),
        other => other.name().to_owned(),
    }
}

fn cause(cause: &Cause) -> Value {
    let Cause { moment: at, track, fence, value, submission } = *cause;
    let (track, fence): (TrackId, Option<FenceId>) = (track, some(fence));
    json!({
        "at": moment(at), "track": track, "fence": fence, "value": value,
        "submission_fence_id": submission.map(|(_, id)| id),
    })
}

fn blocked(wait: &Blocked) -> Value {
    let item = |item: &BlockedItem| {
        let BlockedItem { fence, value, current, satisfied } = *item;
        json!({ "fence": some(fence), "value": value, "current": current, "satisfied": satisfied })
    };
    json!({
        "track": wait.track, "event": wait.event, "since": moment(wait.since), "any": wait.any,
        "items": wait.items.iter().map(item).collect::<Vec<_>>(), "keyed_mutex": wait.keyed_mutex, "why": wait.why,
    })
}

impl Reason {
    pub(crate) fn json(&self) -> Value {
        let Reason { verdict, stuck, sentence, chain, back_to, remarks } = self;
        json!({
            "verdict": verdict, "stuck": stuck, "sentence": sentence, "chain": chain, "back_to": back_to,
            "remarks": remarks,
        })
    }
}

fn kind_name(kind: TrackKind) -> &'static str {
    match kind {
        TrackKind::Kernel => "kernel",
        TrackKind::Vm(_) => "vm",
        TrackKind::Process { .. } => "process",
        TrackKind::Queue { .. } => "queue",
        TrackKind::Adapter(_) => "adapter",
        TrackKind::Engine(_) => "engine",
    }
}
