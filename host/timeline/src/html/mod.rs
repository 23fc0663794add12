//! One HTML file that shows a timeline: no network, no framework, no build step. docs/TIMELINE.md is its manual.
//!
//! The rows are columns of small numbers (`columns.rs`), deflated and in base64. The page's scripts are in `page/`, in
//! the order of `SCRIPTS`. A content security policy forbids all loading.

mod columns;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use d3dkmt::text::printable;
use serde_json::json;
use sha2::Digest as _;

use crate::format::escaped;
use crate::lanes::{self, Selection};
use crate::parts::PART_NAMES;
use crate::timeline::{Blocked, MarkKind, PacketKind, Reason, Timeline, TrackKind};
use columns::Columns;

const PAGE: &str = include_str!("../../page/page.html");
const STYLE: &str = include_str!("../../page/style.css");
/// In order of dependency.
const SCRIPTS: [&str; 6] = [
    include_str!("../../page/decode.js"),
    include_str!("../../page/words.js"),
    include_str!("../../page/lanes.js"),
    include_str!("../../page/draw.js"),
    include_str!("../../page/panels.js"),
    include_str!("../../page/main.js"),
];

/// 0 is stored, 10 is slowest.
const DEFLATE_LEVEL: u8 = 4;

/// Steps that are also in the file as text, for readers without scripts.
const TEXT_STEPS: usize = 100;

/// The whole timeline as a page. `title` is its heading: the name of the trace.
pub fn export(timeline: &Timeline, title: &str) -> String {
    let columns = Columns::of(timeline);
    let head = printed(head(timeline, title, &columns)).to_string();
    let mut bytes = Vec::with_capacity(head.len() + columns.bytes.len() + 4);
    bytes.extend_from_slice(&(head.len() as u32).to_le_bytes());
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(&columns.bytes);
    let data = STANDARD.encode(miniz_oxide::deflate::compress_to_vec(&bytes, DEFLATE_LEVEL));
    let lanes = lanes::text(timeline, &Selection::Last(TEXT_STEPS), 120).unwrap_or_default();
    let text = format!("{}\nThe last steps\n\n{lanes}", timeline.stats_text());
    let script = format!("\n\"use strict\";\n{}\n", SCRIPTS.join("\n"));
    let hash = STANDARD.encode(sha2::Sha256::digest(&script));
    filled(PAGE, |part| match part {
        "title" => escaped(title),
        "style" => STYLE.to_owned(),
        "script-hash" => hash.clone(),
        "text" => escaped(&text),
        "data" => data.clone(),
        "script" => script.clone(),
        other => unreachable!("page.html has no {{{{{other}}}}}"),
    })
}

/// Fills each `{{part}}` of a template. What is filled in is not searched: a name may contain braces.
fn filled(template: &str, of: impl Fn(&str) -> String) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (part, rest) = piece.split_once("}}").expect("each part of page.html is closed");
        page += &of(part);
        page += rest;
    }
    page
}

/// The same data with every text safe to be drawn: none reorders its line.
fn printed(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(text.split('\n').map(printable).collect::<Vec<_>>().join("\n")),
        Value::Array(values) => values.into_iter().map(printed).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, printed(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// All data except the rows.
fn head(timeline: &Timeline, title: &str, columns: &Columns) -> serde_json::Value {
    let tracks = timeline.tracks.iter().map(|track| {
        let kind = match track.kind {
            TrackKind::Kernel => "kernel",
            TrackKind::Vm(_) => "vm",
            TrackKind::Process { .. } => "process",
            TrackKind::Queue { .. } => "queue",
            TrackKind::Adapter(_) => "adapter",
            TrackKind::Engine(_) => "engine",
        };
        json!([track.name, track.parent, kind])
    });
    let fences = timeline.fences.iter().enumerate().map(|(at, fence)| {
        json!([timeline.fence_words(at as u32), fence.signals, fence.wakes, fence.has_value()])
    });
    let mark_kinds = [MarkKind::Note, MarkKind::Fault, MarkKind::Reset].map(MarkKind::name);
    let packet_kinds = [PacketKind::Command, PacketKind::Signal, PacketKind::Wait].map(PacketKind::name);
    json!({
        "title": title, "program": timeline.program, "begin": timeline.begin.at, "end": timeline.end.at,
        "words": timeline.words, "statuses": columns.statuses, "columns": columns.directory,
        "tracks": tracks.collect::<Vec<_>>(), "fences": fences.collect::<Vec<_>>(),
        "parts": PART_NAMES, "markKinds": mark_kinds, "packetKinds": packet_kinds,
        "blocked": timeline.blocked.iter().map(blocked).collect::<Vec<_>>(),
        "reasons": timeline.reasons.iter().map(reason).collect::<Vec<_>>(),
        "whyPicture": STANDARD.encode(&timeline.why_picture),
        "hasTimes": timeline.latency.is_some(), "blockedUnknown": timeline.integrity.diverged,
        "blockedLeftOut": timeline.integrity.blocked_left_out,
        "integrity": format!("{}\n{}", timeline.integrity_words(), timeline.left_out_words()).trim(),
    })
}

fn reason(reason: &Reason) -> serde_json::Value {
    let Reason { verdict, stuck, sentence, chain, back_to, remarks } = reason;
    json!({
        "verdict": verdict, "stuck": stuck, "sentence": sentence, "chain": chain, "back_to": back_to,
        "remarks": remarks,
    })
}

fn blocked(wait: &Blocked) -> serde_json::Value {
    let Blocked { track, what, since, step, wants, fences, why } = wait;
    json!([track, what, since, step, wants, fences, why])
}
