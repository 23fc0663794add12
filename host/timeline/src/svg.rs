//! An SVG picture for documents and logs: the same trace gives the same bytes.
//!
//! Steps are laid out in order, or by time. Lanes are those of the HTML page. A bar has a begin and an end, and an
//! arrow leads to a wait from its release. Colors follow the reader's scheme and suit color-blind readers; pending bars
//! are dashed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::format::{duration, escaped, status_name};
use crate::timeline::{
    Event, MarkKind, Moment, NONE, Outcome, PacketKind, Timeline, TrackId, TrackKind, WaitKind,
};

/// Options of the picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Most steps that are drawn: the last of the timeline.
    pub steps_max: usize,
    /// Lay out by time; otherwise each step has the same width.
    pub by_time: bool,
    /// Width in pixels.
    pub width: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { steps_max: 120, by_time: false, width: 1200 }
    }
}

const GUTTER: u32 = 210;
const ROW: u32 = 16;
const TOP: u32 = 26;
const ROWS_MAX: usize = 8;
const FENCES_MAX: usize = 6;

const STYLE: &str = "\
text{font:11px system-ui,'DejaVu Sans',sans-serif;fill:#1b1f24}\
.q{fill:#59626c}.l{stroke:#d5dae0}.b{fill:#fff}.t{fill:#fff}.m{fill:#c23b00}.w{fill:#77818b}\
.v{fill:none;stroke:#0072b2;stroke-width:1.5}.a{fill:none;stroke:#1b1f24}.h{fill:#1b1f24}.p{stroke:#c23b00;stroke-width:1.5;stroke-dasharray:4 2}\
.k0{fill:#0072b2}.k1{fill:#a66400}.k2{fill:#9c4f82}.k3{fill:#756800}.k4{fill:#1f6f9e}.k5{fill:#00805b}\
@media(prefers-color-scheme:dark){text{fill:#e4e8ec}.q{fill:#9aa4ae}.l{stroke:#343a41}.b{fill:#14171a}.t{fill:#14171a}.m{fill:#ff7a45}.w{fill:#8f99a3}\
.v{stroke:#56b4e9}.a{stroke:#e4e8ec}.h{fill:#e4e8ec}.p{stroke:#ff7a45}\
.k0{fill:#56a8e0}.k1{fill:#e69f00}.k2{fill:#cc79a7}.k3{fill:#e0d24a}.k4{fill:#7cc6f2}.k5{fill:#1fb58a}}";

/// Draws the last steps of the timeline.
pub fn export(timeline: &Timeline, options: &Options) -> String {
    let mut picture = Picture::new(timeline, options);
    for (id, depth) in tree(timeline) {
        picture.track(id, depth);
    }
    picture.ladders();
    picture.arrows();
    picture.finish()
}

/// A bar to draw.
struct Bar {
    from: f64,
    to: f64,
    class: String,
    pending: bool,
    text: String,
}

struct Picture<'a> {
    timeline: &'a Timeline,
    options: Options,
    /// Steps that are drawn.
    events: &'a [Event],
    colors: Vec<usize>,
    y: u32,
    out: String,
    /// Vertical positions of the lanes of calls, waits and queues.
    places: BTreeMap<(TrackId, &'static str), u32>,
}

/// Tracks from top to bottom with their depths: VMs, then the kernel, then adapters.
fn tree(timeline: &Timeline) -> Vec<(TrackId, u32)> {
    fn walk(timeline: &Timeline, of: TrackId, depth: u32, list: &mut Vec<(TrackId, u32)>) {
        list.push((of, depth));
        for (id, _) in (0..).zip(&timeline.tracks).filter(|(_, track)| track.parent == Some(of)) {
            walk(timeline, id, depth + 1, list);
        }
    }
    let rank = |kind: TrackKind| match kind {
        TrackKind::Vm(_) => 0,
        TrackKind::Kernel => 1,
        _ => 2,
    };
    let mut roots: Vec<_> = (0..).zip(&timeline.tracks).filter(|(_, track)| track.parent.is_none()).collect();
    roots.sort_by_key(|(id, track): &(TrackId, _)| (rank(track.kind), *id));
    let mut list = Vec::new();
    roots.into_iter().for_each(|(id, _)| walk(timeline, id, 0, &mut list));
    list
}

impl<'a> Picture<'a> {
    fn new(timeline: &'a Timeline, options: &Options) -> Self {
        let first = timeline.events.len().saturating_sub(options.steps_max.max(1));
        let mut colors = vec![0; timeline.tracks.len()];
        let mut processes = 0;
        for (id, track) in timeline.tracks.iter().enumerate() {
            if matches!(track.kind, TrackKind::Process { .. }) {
                colors[id] = processes % 6;
                processes += 1;
            } else if let Some(parent) = track.parent {
                colors[id] = colors[parent as usize];
            }
        }
        let (options, events) = (*options, &timeline.events[first..]);
        Picture { timeline, options, events, colors, y: TOP, out: String::new(), places: BTreeMap::new() }
    }

    /// Horizontal position of a moment in pixels; outside of the picture if it is not drawn.
    fn x(&self, moment: Moment) -> f64 {
        let (Some(first), Some(last)) = (self.events.first(), self.events.last()) else { return 0.0 };
        let room = f64::from(self.options.width - GUTTER - 12);
        let part = if self.options.by_time {
            let length = last.moment.at.saturating_sub(first.moment.at).max(1);
            (moment.at as f64 - first.moment.at as f64) / length as f64
        } else {
            let steps = self.events.len() as f64;
            let place = self.events.partition_point(|event| event.moment.sequence < moment.sequence);
            let before = moment.sequence < first.moment.sequence;
            if before { -1.0 } else { place as f64 / steps }
        };
        f64::from(GUTTER) + part * room
    }

    /// Width of one step in pixels.
    fn step(&self) -> f64 {
        if self.options.by_time {
            return 1.0;
        }
        f64::from(self.options.width - GUTTER - 12) / self.events.len().max(1) as f64
    }

    fn label(&mut self, text: &str, depth: u32, height: u32, class: &str) {
        let x = 8 + depth * 12;
        let y = self.y;
        let room = (GUTTER - x) / 6;
        let shown = shorten(text, room as usize);
        let _ = writeln!(
            self.out,
            "<line class=\"l\" x1=\"0\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\"/><text class=\"{class}\" x=\"{x}\" y=\"{2}\"><title>{3}</title>{4}</text>",
            y + height,
            self.options.width,
            y + 12,
            escaped(text),
            escaped(&shown)
        );
    }

    fn track(&mut self, id: TrackId, depth: u32) {
        let timeline = self.timeline;
        let track = &timeline.tracks[id as usize];
        let calls: Vec<&Event> = self.events.iter().filter(|event| event.track == id).collect();
        let marks = timeline.marks.iter().any(|mark| mark.track == id && self.is_drawn(mark.moment));
        match track.kind {
            TrackKind::Vm(_) | TrackKind::Adapter(_) if self.is_busy(id) => {
                self.label(&track.name, depth, ROW + 2, "");
                self.marks(id);
                self.y += ROW + 2;
            }
            TrackKind::Process { .. } | TrackKind::Kernel if !calls.is_empty() || marks => {
                self.calls(id, depth, &calls);
            }
            _ => {}
        }
        match track.kind {
            TrackKind::Process { .. } => {
                let bars = self.waits(id);
                self.bars(id, "waits", "waits", depth + 1, bars);
            }
            TrackKind::Queue { .. } => {
                let bars = self.packets(id);
                self.bars(id, "packets", &track.name, depth, bars);
            }
            TrackKind::Engine(_) => {
                let bars = self.runs(id);
                self.bars(id, "runs", &track.name, depth, bars);
            }
            _ => {}
        }
    }

    fn is_drawn(&self, moment: Moment) -> bool {
        let first = self.events.first().map_or(0, |event| event.moment.sequence);
        moment.sequence >= first
    }

    /// Whether a track or one below it has something to draw.
    fn is_busy(&self, id: TrackId) -> bool {
        let below = |mut track: TrackId| loop {
            if track == id {
                return true;
            }
            match self.timeline.tracks.get(track as usize).and_then(|track| track.parent) {
                Some(parent) => track = parent,
                None => return false,
            }
        };
        self.events.iter().any(|event| below(event.track))
            || self.timeline.runs.iter().any(|run| run.last >= self.first() && below(run.engine))
    }

    fn first(&self) -> u64 {
        self.events.first().map_or(0, |event| event.moment.sequence)
    }

    /// Draws calls as ticks, with names where there is room.
    fn calls(&mut self, id: TrackId, depth: u32, calls: &[&Event]) {
        let name = self.timeline.tracks[id as usize].name.clone();
        self.label(&name, depth, ROW + 2, "");
        self.places.insert((id, "calls"), self.y + ROW / 2);
        let class = match self.timeline.tracks[id as usize].kind {
            TrackKind::Kernel => "q".to_owned(),
            _ => format!("k{}", self.colors[id as usize]),
        };
        for (at, event) in calls.iter().enumerate() {
            let x = self.x(event.moment);
            let next = calls.get(at + 1).map_or(f64::from(self.options.width), |next| self.x(next.moment));
            let text = self.call(event);
            let refused = event.status.is_some_and(|status| (status as i32) < 0);
            let class = if refused { "m" } else { &class };
            let _ = write!(
                self.out,
                "<g><title>#{} {} {}</title><rect class=\"{class}\" x=\"{x:.1}\" y=\"{}\" width=\"2.5\" height=\"10\"/>",
                event.moment.sequence,
                duration(event.moment.at),
                escaped(&text),
                self.y + 4
            );
            let room = ((next - x - 6.0) / 6.2) as usize;
            if room >= 6 {
                let shown = escaped(&shorten(&text, room));
                let _ = write!(self.out, "<text x=\"{:.1}\" y=\"{}\">{shown}</text>", x + 4.5, self.y + 12);
            }
            self.out += "</g>\n";
        }
        self.marks(id);
        self.y += ROW + 2;
    }

    fn call(&self, event: &Event) -> String {
        let mut text = self.timeline.word(event.name).to_owned();
        if event.fence != NONE {
            text += &format!(" F{} {}", event.fence, event.value);
        }
        match event.status {
            None | Some(0) => text,
            Some(status) => text + " " + &status_name(status),
        }
    }

    fn marks(&mut self, id: TrackId) {
        let timeline = self.timeline;
        let first = self.first();
        for mark in timeline.marks.iter().filter(|mark| mark.track == id && mark.moment.sequence >= first) {
            let x = self.x(mark.moment);
            let class = if mark.kind == MarkKind::Note { "q" } else { "m" };
            let text = escaped(timeline.word(mark.text));
            let y = self.y + 1;
            let _ = writeln!(
                self.out,
                "<path class=\"{class}\" d=\"M{:.1} {y}h8l-4 6z\"><title>#{} {}: {text}</title></path>",
                x - 3.0,
                mark.moment.sequence,
                mark.kind.name()
            );
        }
    }

    fn bar(&self, from: Moment, to: Moment, class: &str, pending: bool, text: String) -> Option<Bar> {
        if to.sequence < self.first() {
            return None;
        }
        let edge = f64::from(GUTTER);
        let from = self.x(from).max(edge);
        let to = self.x(to).max(from + self.step().min(3.0));
        Some(Bar { from, to, class: class.to_owned(), pending, text })
    }

    fn waits(&self, id: TrackId) -> Vec<Bar> {
        let waits = self.timeline.waits.iter().filter(|wait| wait.process == id);
        let bar = |wait: &crate::Wait| {
            let what = match wait.kind {
                WaitKind::Fences { .. } => Timeline::targets(&wait.targets, ">="),
                WaitKind::KeyedMutex { mutex, key } => format!("keyed mutex {mutex:#x} key {key}"),
            };
            self.bar(wait.begin, wait.end, "w", wait.outcome == Outcome::Pending, what)
        };
        waits.filter_map(bar).collect()
    }

    fn packets(&self, id: TrackId) -> Vec<Bar> {
        let class = format!("k{}", self.colors[id as usize]);
        let packets = self.timeline.packets.iter().filter(|packet| packet.queue == id);
        let bar = |packet: &crate::Packet| {
            let (class, what) = match packet.kind {
                PacketKind::Command => {
                    let id = packet.submission.map(|(_, id)| format!(" {id}")).unwrap_or_default();
                    (class.as_str(), format!("command{id}"))
                }
                PacketKind::Signal => ("q", format!("signal {}", Timeline::targets(&packet.targets, "="))),
                PacketKind::Wait => ("w", format!("wait {}", Timeline::targets(&packet.targets, ">="))),
            };
            self.bar(packet.begin, packet.end, class, packet.outcome == Outcome::Pending, what)
        };
        packets.filter_map(bar).collect()
    }

    fn runs(&self, id: TrackId) -> Vec<Bar> {
        let runs = self.timeline.runs.iter().filter(|run| run.engine == id);
        let bar = |run: &crate::Run| {
            let from = Moment { at: run.begin, sequence: run.sequence };
            let to = Moment { at: run.end, sequence: run.last };
            let class = match run.queue {
                _ if run.hung => "m".to_owned(),
                NONE => "q".to_owned(),
                queue => format!("k{}", self.colors[queue as usize]),
            };
            let hung = if run.hung { "hang, " } else { "" };
            let text = format!("{hung}submission {}", run.submission_fence_id);
            self.bar(from, to, &class, run.pending, text)
        };
        runs.filter_map(bar).collect()
    }

    /// Draws bars in rows without overlap.
    fn bars(&mut self, id: TrackId, lane: &'static str, label: &str, depth: u32, bars: Vec<Bar>) {
        if bars.is_empty() {
            return;
        }
        let mut free: Vec<f64> = Vec::new();
        let mut rows = Vec::new();
        for bar in &bars {
            let row =
                free.iter().position(|free| *free <= bar.from + 0.05).unwrap_or(free.len()).min(ROWS_MAX - 1);
            free.resize(free.len().max(row + 1), 0.0);
            free[row] = bar.to;
            rows.push(row as u32);
        }
        let height = free.len() as u32 * ROW + 2;
        self.label(label, depth, height, "q");
        self.places.insert((id, lane), self.y + ROW / 2);
        for (bar, row) in bars.iter().zip(rows) {
            let Bar { from, to, class, pending, text } = bar;
            let (y, width) = (self.y + 2 + row * ROW, to - from);
            let pending = if *pending { " p" } else { "" };
            let _ = write!(
                self.out,
                "<g><title>{0}</title><rect class=\"{class}{pending}\" x=\"{from:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"13\"/>",
                escaped(text)
            );
            let room = ((width - 4.0) / 6.2).max(0.0) as usize;
            if room >= 3 {
                let shown = escaped(&shorten(text, room));
                let _ = write!(
                    self.out,
                    "<text class=\"t\" x=\"{:.1}\" y=\"{}\">{shown}</text>",
                    from + 3.0,
                    y + 10
                );
            }
            self.out += "</g>\n";
        }
        self.y += height;
    }

    /// Draws the values of the busiest fences that change here.
    fn ladders(&mut self) {
        let timeline = self.timeline;
        let changes = |fence: u32| {
            timeline.samples.iter().filter(|one| one.fence == fence && self.is_drawn(one.moment)).count()
        };
        let mut fences: Vec<u32> =
            (0..timeline.fences.len() as u32).filter(|fence| changes(*fence) > 1).collect();
        fences.sort_by_key(|fence| (std::cmp::Reverse(changes(*fence)), *fence));
        fences.truncate(FENCES_MAX);
        fences.sort_unstable();
        for fence in fences {
            self.ladder(fence);
        }
    }

    fn ladder(&mut self, fence: u32) {
        const HEIGHT: u32 = 34;
        /// Values of a reset are not drawn to scale, because they would flatten all others.
        const DRAWN_MAX: u64 = 1 << 52;
        let timeline = self.timeline;
        let all: Vec<_> = timeline.samples.iter().filter(|sample| sample.fence == fence).collect();
        let from = all.partition_point(|sample| !self.is_drawn(sample.moment)).saturating_sub(1);
        let shown = &all[from..];
        let drawn = shown.iter().map(|sample| sample.value).filter(|value| *value < DRAWN_MAX);
        let (low, high) = (drawn.clone().min().unwrap_or(0), drawn.max().unwrap_or(0));
        self.label(&timeline.fence_words(fence), 0, HEIGHT, "q");
        let floor = f64::from(self.y + HEIGHT - 5);
        let level = |value: u64| match value {
            DRAWN_MAX.. => floor - 26.0,
            value => floor - (value - low) as f64 / (high - low).max(1) as f64 * 22.0,
        };
        let mut path = String::new();
        let mut words = String::new();
        let mut free = 0.0;
        for (at, sample) in shown.iter().enumerate() {
            let x = self.x(sample.moment).max(f64::from(GUTTER));
            let y = level(sample.value);
            let _ = if at == 0 { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
            let text = sample.value.to_string();
            let long = 6.6 * text.len() as f64;
            // At the right edge, the text is left of its step.
            let x = if x + long > f64::from(self.options.width) { x - long - 6.0 } else { x };
            if x >= free {
                let _ = write!(
                    words,
                    "<text x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                    x + 3.0,
                    y.max(floor - 20.0) + 9.0
                );
                free = x + 10.0 + long;
            }
        }
        let _ = writeln!(self.out, "<path class=\"v\" d=\"{path}H{}\"/>{words}", self.options.width - 8);
        self.y += HEIGHT;
    }

    /// Draws arrows from the release of a wait to its wake-up.
    fn arrows(&mut self) {
        for wait in &self.timeline.waits {
            let Some(cause) = wait.cause.filter(|cause| self.is_drawn(cause.moment)) else { continue };
            let from = ["calls", "packets"].iter().find_map(|lane| self.places.get(&(cause.track, *lane)));
            let (Some(from), Some(to)) = (from, self.places.get(&(wait.process, "waits"))) else { continue };
            let (x0, x1) = (self.x(cause.moment), self.x(wait.end));
            let middle = x0.max(x1) + 14.0;
            let _ = writeln!(
                self.out,
                "<path class=\"a\" d=\"M{x0:.1} {from}C{middle:.1} {from} {middle:.1} {to} {x1:.1} {to}\"/><circle class=\"h\" cx=\"{x1:.1}\" cy=\"{to}\" r=\"2.5\"/>"
            );
        }
    }

    fn finish(self) -> String {
        let Picture { timeline, options, events, y, out, .. } = self;
        let (width, height) = (options.width, y + 8);
        let range = match (events.first(), events.last()) {
            (Some(first), Some(last)) => {
                let (from, to) = (first.moment, last.moment);
                let how = if options.by_time { "by time" } else { "in order" };
                let length = duration(to.at.saturating_sub(from.at));
                format!("steps #{} to #{} {how}, {length}", from.sequence, to.sequence)
            }
            _ => "no steps".to_owned(),
        };
        let title = escaped(&format!("{}: {range}", timeline.program));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">\n\
             <style>{STYLE}</style>\n<rect class=\"b\" width=\"{width}\" height=\"{height}\"/>\n<text class=\"q\" x=\"8\" y=\"16\">{title}</text>\n{out}</svg>\n"
        )
    }
}

fn shorten(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(2)).chain("..".chars()).collect()
}
