//! Text lanes for a terminal: a column for each process and engine, a row for each step.
//!
//! ```text
//!      seq         time  p1 client                   p2 server                   engine 0.0 ThreeD
//!      #23    10.000 us  .                           WaitFromCpu F0 >= 1
//!      #24    35.000 us  SignalFromCpu F0 = 1        woken F0 >= 1 (25.000 us)
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::format::{cells, cut, duration, status_name};
use crate::timeline::{
    Event, FenceId, NONE, Outcome, Packet, PacketKind, StoredBy, Timeline, TrackId, TrackKind, Wait, WaitKind,
};

/// Which steps are shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// The last steps, at most this many.
    Last(usize),
    /// A step, and this many steps before and after it.
    Near(u64, u64),
    /// All steps that concern the fence.
    Fence(FenceId),
    /// A wait from registration to wake-up, by process and event; the last one with this event.
    Wait(u32, u64),
    /// All steps that concern a process.
    Process(u32),
}

/// Most lanes with their own column.
const LANES_MAX: usize = 5;
pub(crate) const MARGIN: usize = 25;

/// Lanes of the selected steps, `width` characters wide; `None` if no step is selected.
pub fn text(timeline: &Timeline, selection: &Selection, width: usize) -> Option<String> {
    let steps = steps(timeline, selection)?;
    let rows = Rows::new(timeline, &steps);
    let lanes = rows.lanes(timeline, (width.saturating_sub(MARGIN) / 20).clamp(1, LANES_MAX));
    let column = (width.saturating_sub(MARGIN) / lanes.len().max(1)).clamp(18, 46);
    let mut out = format!("{:>9} {:>13}  ", "seq", "time");
    for lane in &lanes {
        out += &cell(lane.map_or("elsewhere", |lane| &timeline.tracks[lane as usize].name), column);
    }
    out = out.trim_end().to_owned() + "\n";
    for (sequence, row) in &rows.rows {
        out += &rows.line(timeline, *sequence, row, &lanes, column);
    }
    Some(out)
}

fn cell(text: &str, column: usize) -> String {
    let shown = match cells(text) >= column {
        true => format!("{}..", cut(text, column.saturating_sub(3))),
        false => text.to_owned(),
    };
    let room = column.saturating_sub(cells(&shown));
    format!("{shown}{:room$}", "")
}

/// Sequence numbers of the selected steps; `None` if there are none.
pub fn steps(timeline: &Timeline, selection: &Selection) -> Option<BTreeSet<u64>> {
    let all = || timeline.events.iter().map(|event| event.moment.sequence);
    let steps: BTreeSet<u64> = match *selection {
        Selection::Last(count) => all().skip(timeline.events.len().saturating_sub(count)).collect(),
        Selection::Near(sequence, count) => all().filter(|step| step.abs_diff(sequence) <= count).collect(),
        Selection::Fence(fence) => steps_of_fence(timeline, fence),
        Selection::Wait(process, event) => {
            let track = process_track(timeline, process)?;
            let of = |wait: &&Wait| wait.process == track && wait.event == event;
            steps_of_wait(timeline, timeline.waits.iter().rfind(of)?)
        }
        Selection::Process(process) => {
            let track = process_track(timeline, process)?;
            let calls = timeline.events.iter().filter(|event| event.track == track);
            let wakes =
                timeline.waits.iter().filter(|wait| wait.process == track).map(|wait| wait.end.sequence);
            calls.map(|event| event.moment.sequence).chain(wakes).collect()
        }
    };
    (!steps.is_empty()).then_some(steps)
}

fn process_track(timeline: &Timeline, number: u32) -> Option<TrackId> {
    let is_it = |kind: TrackKind| matches!(kind, TrackKind::Process { process, .. } if process.0 == number);
    timeline.tracks.iter().position(|track| is_it(track.kind)).map(|at| at as TrackId)
}

fn steps_of_fence(timeline: &Timeline, fence: FenceId) -> BTreeSet<u64> {
    let names = |targets: &[(FenceId, u64)]| targets.iter().any(|(named, _)| *named == fence);
    let mut steps = BTreeSet::new();
    let calls = timeline.events.iter().filter(|event| event.fence == fence || names(&event.others));
    steps.extend(calls.map(|event| event.moment.sequence));
    let submissions = timeline.submissions();
    for sample in timeline.samples.iter().filter(|sample| sample.fence == fence) {
        steps.insert(sample.moment.sequence);
        // The call whose work stores the value.
        if let StoredBy::Engine(submission) = sample.by {
            steps.extend(submissions.get(&submission).map(|packet| packet.begin.sequence));
        }
    }
    for wait in timeline.waits.iter().filter(|wait| names(&wait.targets)) {
        steps.extend([wait.begin.sequence, wait.end.sequence]);
    }
    for packet in timeline.packets.iter().filter(|packet| names(&packet.targets)) {
        steps.extend([packet.begin.sequence, packet.end.sequence]);
    }
    steps
}

fn steps_of_wait(timeline: &Timeline, wait: &Wait) -> BTreeSet<u64> {
    let mut steps = BTreeSet::from([wait.begin.sequence, wait.end.sequence]);
    if let Some(cause) = wait.cause {
        steps.insert(cause.moment.sequence);
        let is_it = |packet: &&Packet| cause.submission.is_some() && packet.submission == cause.submission;
        if let Some(packet) = timeline.packets.iter().find(is_it) {
            steps.extend([packet.begin.sequence, packet.end.sequence]);
        }
    }
    for (fence, _) in &wait.targets {
        let values = timeline.samples.iter().filter(|sample| sample.fence == *fence);
        let during = values.filter(|sample| sample.moment >= wait.begin && sample.moment <= wait.end);
        steps.extend(during.map(|sample| sample.moment.sequence));
    }
    steps
}

#[derive(Default)]
struct Row {
    at: u64,
    cells: Vec<(TrackId, String)>,
    remarks: Vec<String>,
}

struct Rows {
    rows: BTreeMap<u64, Row>,
}

impl Rows {
    fn new(timeline: &Timeline, steps: &BTreeSet<u64>) -> Self {
        let mut rows = Rows { rows: steps.iter().map(|step| (*step, Row::default())).collect() };
        for event in &timeline.events {
            rows.add_text(event.moment.sequence, event.track, || call(timeline, event));
            if let Some(row) = rows.rows.get_mut(&event.moment.sequence) {
                row.at = event.moment.at;
            }
        }
        for wait in timeline.waits.iter().filter(|wait| wait.outcome != Outcome::Pending) {
            rows.add_text(wait.end.sequence, wait.process, || ended(timeline, wait));
        }
        for packet in timeline.packets.iter().filter(|packet| packet.outcome != Outcome::Pending) {
            let process = timeline.tracks[packet.queue as usize].parent.unwrap_or(packet.queue);
            match packet.kind {
                PacketKind::Command => {}
                PacketKind::Signal => {
                    rows.add_text(packet.end.sequence, process, || signal(timeline, packet))
                }
                PacketKind::Wait if packet.end.sequence == packet.begin.sequence => {}
                PacketKind::Wait => rows.add_text(packet.end.sequence, process, || {
                    let (outcome, targets) = (packet.outcome.name(), timeline.targets(&packet.targets, ">="));
                    format!("queue wait {outcome} {targets}")
                }),
            }
        }
        for run in &timeline.runs {
            let id = run.submission_fence_id;
            rows.add_text(run.sequence, run.engine, || format!("runs {id}"));
            if !run.pending {
                let hung = if run.hung { " hung" } else { "" };
                let length = duration(run.end - run.begin);
                rows.add_text(run.last, run.engine, || format!("{id}{hung} ends ({length})"));
            }
        }
        for mark in &timeline.marks {
            if let Some(row) = rows.rows.get_mut(&mark.moment.sequence) {
                row.remarks.push(format!("{}: {}", mark.kind.name(), timeline.word(mark.text)));
            }
        }
        rows.values(timeline);
        rows
    }

    /// Adds the values that no call and no queue's signal shows.
    fn values(&mut self, timeline: &Timeline) {
        for sample in &timeline.samples {
            let stored = || Timeline::stored(sample);
            match sample.by {
                StoredBy::Signal => {}
                StoredBy::Engine((engine, _)) => {
                    let track = timeline.engine_track(engine);
                    track.into_iter().for_each(|track| self.add_text(sample.moment.sequence, track, stored));
                }
                StoredBy::Reset => {
                    let row = self.rows.get_mut(&sample.moment.sequence);
                    row.into_iter().for_each(|row| row.remarks.push(format!("reset: {}", stored())));
                }
            }
        }
    }

    fn add_text(&mut self, sequence: u64, track: TrackId, text: impl FnOnce() -> String) {
        if let Some(row) = self.rows.get_mut(&sequence) {
            row.cells.push((track, text()));
        }
    }

    /// The busiest tracks, in order; `None` stands for all others, if any.
    fn lanes(&self, timeline: &Timeline, max: usize) -> Vec<Option<TrackId>> {
        let mut counts: BTreeMap<TrackId, usize> = BTreeMap::new();
        let cells = self.rows.values().flat_map(|row| &row.cells);
        cells.for_each(|(track, _)| *counts.entry(*track).or_default() += 1);
        let has_column = |track: TrackId| {
            matches!(timeline.tracks[track as usize].kind, TrackKind::Process { .. } | TrackKind::Engine(_))
        };
        let mut busiest: Vec<TrackId> = counts.keys().copied().filter(|track| has_column(*track)).collect();
        busiest.sort_by_key(|track| (std::cmp::Reverse(counts[track]), *track));
        let fits = counts.len() <= max && busiest.len() == counts.len();
        busiest.truncate(if fits { max } else { max - 1 });
        // Processes first, because a reader follows a request from a process to an engine.
        let is_engine = |track: TrackId| matches!(timeline.tracks[track as usize].kind, TrackKind::Engine(_));
        busiest.sort_by_key(|track| (is_engine(*track), *track));
        let mut lanes: Vec<_> = busiest.into_iter().map(Some).collect();
        if !fits {
            lanes.push(None);
        }
        lanes
    }

    fn line(
        &self,
        timeline: &Timeline,
        sequence: u64,
        row: &Row,
        lanes: &[Option<TrackId>],
        column: usize,
    ) -> String {
        // Several texts of one step and track are stacked.
        let mut columns: Vec<Vec<String>> = vec![Vec::new(); lanes.len()];
        for (track, text) in &row.cells {
            let own = lanes.iter().position(|lane| *lane == Some(*track));
            match own {
                Some(at) => columns[at].push(text.clone()),
                None => {
                    let name = &timeline.tracks[*track as usize].name;
                    let short = name.split(' ').take(2).collect::<Vec<_>>().join(" ");
                    let at = lanes.iter().position(Option::is_none).unwrap_or(0);
                    columns[at].push(format!("{short}: {text}"));
                }
            }
        }
        let height = columns.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut out = String::new();
        for line in 0..height {
            let mut text = match line {
                0 => format!("{:>9} {:>13}  ", format!("#{sequence}"), duration(row.at)),
                _ => " ".repeat(MARGIN),
            };
            for texts in &columns {
                text += &cell(texts.get(line).map_or("", String::as_str), column);
            }
            out += text.trim_end();
            out.push('\n');
        }
        for remark in &row.remarks {
            out += &format!("{:>MARGIN$}! {remark}\n", "");
        }
        out
    }
}

/// `SignalFromCpu F0 = 1 INVALID_PARAMETER`.
pub(crate) fn call(timeline: &Timeline, event: &Event) -> String {
    let name = timeline.word(event.name);
    let mut text = name.to_owned();
    if event.fence != NONE {
        let mut targets = vec![(event.fence, event.value)];
        targets.extend_from_slice(&event.others);
        text += " ";
        text += &called_targets(timeline, name, &targets, event.any);
    }
    match event.status {
        None | Some(0) => text,
        Some(status) => text + " " + &status_name(status),
    }
}

/// What a call of this name names: `F3 >= 9`, or only the first object if the call gives none a value.
pub(crate) fn called_targets(
    timeline: &Timeline,
    name: &str,
    targets: &[(FenceId, u64)],
    any: bool,
) -> String {
    match targets {
        [] => String::new(),
        [(fence, _), ..] if !gives_values(name) => Timeline::fence_name(*fence),
        _ if name.contains("Wait") => timeline.waited_targets(targets, any),
        _ => timeline.targets(targets, "="),
    }
}

/// Whether a call of this name waits for values or signals them. Most others name objects without a value.
pub(crate) fn gives_values(name: &str) -> bool {
    name.contains("Wait") || name.contains("Signal")
}

/// What became of a signal in a queue.
fn signal(timeline: &Timeline, packet: &Packet) -> String {
    let targets = timeline.targets(&packet.targets, "=");
    match packet.outcome {
        Outcome::Done => format!("queue signals {targets}"),
        Outcome::Passed => format!("queue reached broadcast {targets}"),
        Outcome::Dropped
        | Outcome::Cancelled
        | Outcome::Pending
        | Outcome::FenceDestroyed
        | Outcome::Status(_) => {
            format!("queue signal {} {targets}", packet.outcome.name())
        }
    }
}

fn ended(timeline: &Timeline, wait: &Wait) -> String {
    let age = duration(wait.end.at.saturating_sub(wait.begin.at));
    let what = match wait.kind {
        WaitKind::Fences { any } => timeline.waited_targets(&wait.targets, any),
        WaitKind::KeyedMutex { mutex, key } => format!("keyed mutex {mutex:#x} key {key}"),
    };
    match wait.outcome {
        Outcome::Done | Outcome::Pending => format!("woken {what} ({age})"),
        Outcome::Status(status) => format!("woken {} {what} ({age})", status_name(status)),
        Outcome::FenceDestroyed => format!("fence destroyed {what} ({age})"),
        Outcome::Cancelled => format!("wait cancelled {what}"),
        // A wait of a CPU is in no broadcast.
        Outcome::Dropped | Outcome::Passed => format!("wait dropped {what}"),
    }
}
