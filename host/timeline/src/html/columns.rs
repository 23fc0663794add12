//! Rows as columns of varints. `page/decode.js` reads them; change both together.
//!
//! Each column is a sequence of LEB128 numbers; signed ones are zigzag. Times are relative to the time of their step,
//! and values to the last value of the same fence, so that most numbers are 0 or 1 and compress well. A value that a
//! JavaScript number cannot hold is a 0 followed by its eight bytes.

use serde_json::{Value, json};

use crate::format::status_name;
use crate::timeline::{Moment, NONE, Outcome, Timeline, WaitKind};

/// JavaScript numbers are exact up to here.
const EXACT: u64 = 1 << 53;

pub(super) struct Columns {
    pub bytes: Vec<u8>,
    /// Name, rows, and bytes of each column.
    pub directory: Vec<Value>,
    /// Names of the statuses that occur, by code.
    pub statuses: Vec<String>,
    known: Vec<u32>,
}

/// A column that is being written.
#[derive(Default)]
struct Column {
    bytes: Vec<u8>,
    rows: usize,
    last: u64,
}

impl Column {
    fn number(&mut self, mut number: u64) {
        self.rows += 1;
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)) as u64);
    }

    /// Adds the difference to the previous number.
    fn delta(&mut self, number: u64) {
        self.signed(number.wrapping_sub(self.last) as i64);
        self.last = number;
    }

    /// Adds an optional number: 0 if missing, else the number plus 1.
    fn option(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number + 1));
    }
}

/// Fence values, each relative to the last value of its fence.
struct Values {
    column: Column,
    last: Vec<u64>,
}

impl Values {
    fn new(timeline: &Timeline) -> Self {
        Values { column: Column::default(), last: vec![0; timeline.fences.len()] }
    }

    fn push(&mut self, fence: u32, value: u64) {
        let Some(last) = self.last.get_mut(fence as usize) else {
            self.column.number(1);
            return;
        };
        if value >= EXACT / 2 {
            self.column.number(0);
            self.column.bytes.extend_from_slice(&value.to_le_bytes());
            return;
        }
        let delta = value as i64 - *last as i64;
        self.column.number(((delta << 1) ^ (delta >> 63)) as u64 + 1);
        *last = value;
    }
}

impl Columns {
    pub fn of(timeline: &Timeline) -> Self {
        let mut columns =
            Columns { bytes: Vec::new(), directory: Vec::new(), statuses: Vec::new(), known: Vec::new() };
        columns.events(timeline);
        columns.waits(timeline);
        columns.packets(timeline);
        columns.runs(timeline);
        columns.samples(timeline);
        columns.marks(timeline);
        columns
    }

    fn add(&mut self, name: &str, column: Column) {
        self.directory.push(json!([name, column.rows, column.bytes.len()]));
        self.bytes.extend_from_slice(&column.bytes);
    }

    fn status(&mut self, status: u32) -> u64 {
        let at = self.known.iter().position(|known| *known == status).unwrap_or_else(|| {
            self.known.push(status);
            self.statuses.push(status_name(status));
            self.known.len() - 1
        });
        at as u64
    }

    /// The code of an outcome: 0 done, 1 cancelled, 2 dropped, 3 pending, 4 passed, 5 fence destroyed; from 6 on a status
    /// code.
    fn outcome(&mut self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Done => 0,
            Outcome::Cancelled => 1,
            Outcome::Dropped => 2,
            Outcome::Pending => 3,
            Outcome::Passed => 4,
            Outcome::FenceDestroyed => 5,
            Outcome::Status(status) => 6 + self.status(status),
        }
    }

    fn events(&mut self, timeline: &Timeline) {
        let [mut at, mut seq, mut track, mut name] = [(); 4].map(|()| Column::default());
        let [mut status, mut request, mut fence, mut wakes] = [(); 4].map(|()| Column::default());
        let [mut others, mut other] = [(); 2].map(|()| Column::default());
        let [mut values, mut other_values] = [(); 2].map(|()| Values::new(timeline));
        let mut requests = vec![0u64; timeline.tracks.len()];
        for event in &timeline.events {
            at.delta(event.moment.at);
            seq.delta(event.moment.sequence);
            track.number(event.track.into());
            name.number(event.name.into());
            let code = event.status.map(|code| self.status(code));
            status.option(code);
            let last = &mut requests[event.track as usize];
            request.signed(event.request.wrapping_sub(*last) as i64);
            *last = event.request;
            fence.option(some(event.fence));
            if event.fence != NONE {
                values.push(event.fence, event.value);
            }
            others.number(2 * event.others.len() as u64 + u64::from(event.any));
            for (fence, value) in &event.others {
                other.number((*fence).into());
                other_values.push(*fence, *value);
            }
            wakes.number(event.wakes.into());
        }
        for (name, column) in [
            ("event.at", at),
            ("event.seq", seq),
            ("event.track", track),
            ("event.name", name),
            ("event.status", status),
            ("event.request", request),
            ("event.fence", fence),
            ("event.value", values.column),
            ("event.others", others),
            ("event.other", other),
            ("event.otherValue", other_values.column),
            ("event.wakes", wakes),
        ] {
            self.add(name, column);
        }
    }

    fn waits(&mut self, timeline: &Timeline) {
        let mut steps = Steps::new(timeline);
        let [mut track, mut event, mut kind, mut seq, mut at] = [(); 5].map(|()| Column::default());
        let [mut length, mut end, mut outcome, mut targets, mut fence] = [(); 5].map(|()| Column::default());
        let [mut causes, mut before, mut lead, mut by, mut submission] = [(); 5].map(|()| Column::default());
        let mut values = Values::new(timeline);
        let packets: std::collections::BTreeMap<_, u64> =
            (0..).zip(&timeline.packets).filter_map(|(at, packet)| Some((packet.submission?, at))).collect();
        for wait in &timeline.waits {
            track.number(wait.process.into());
            event.delta(wait.event);
            let (code, mutex) = match wait.kind {
                WaitKind::Fences { any } => (u64::from(any), None),
                WaitKind::KeyedMutex { mutex, key } => (2, Some((mutex, key))),
            };
            kind.number(code);
            seq.delta(wait.begin.sequence);
            at.signed(steps.late(wait.begin));
            length.signed(wait.end.sequence.wrapping_sub(wait.begin.sequence) as i64);
            end.signed(steps.late(wait.end));
            outcome.number(self.outcome(wait.outcome));
            targets.number(wait.targets.len() as u64);
            for (target, value) in &wait.targets {
                fence.number((*target).into());
                values.push(*target, *value);
            }
            if let Some((mutex, key)) = mutex {
                fence.number(mutex.into());
                fence.number(key);
            }
            let Some(cause) = wait.cause else {
                causes.number(0);
                continue;
            };
            causes.number(1);
            before.signed(wait.end.sequence.wrapping_sub(cause.moment.sequence) as i64);
            lead.number(wait.end.at.saturating_sub(cause.moment.at));
            by.number(cause.track.into());
            submission.option(cause.submission.and_then(|submission| packets.get(&submission).copied()));
        }
        for (name, column) in [
            ("wait.track", track),
            ("wait.event", event),
            ("wait.kind", kind),
            ("wait.seq", seq),
            ("wait.at", at),
            ("wait.length", length),
            ("wait.end", end),
            ("wait.outcome", outcome),
            ("wait.targets", targets),
            ("wait.fence", fence),
            ("wait.value", values.column),
            ("wait.cause", causes),
            ("wait.before", before),
            ("wait.lead", lead),
            ("wait.by", by),
            ("wait.packet", submission),
        ] {
            self.add(name, column);
        }
    }

    fn packets(&mut self, timeline: &Timeline) {
        let mut steps = Steps::new(timeline);
        let [mut queue, mut kind, mut seq, mut at, mut given] = [(); 5].map(|()| Column::default());
        let [mut ran, mut length, mut end, mut outcome] = [(); 4].map(|()| Column::default());
        let [mut engine, mut id, mut targets, mut fence] = [(); 4].map(|()| Column::default());
        let mut values = Values::new(timeline);
        for packet in &timeline.packets {
            let begin = packet.begin.at;
            queue.number(packet.queue.into());
            kind.number(packet.kind as u64);
            seq.delta(packet.begin.sequence);
            at.signed(steps.late(packet.begin));
            given.option(packet.submitted.map(|at| at.saturating_sub(begin)));
            ran.option(packet.ran.map(|at| at.saturating_sub(packet.submitted.unwrap_or(begin))));
            length.signed(packet.end.sequence.wrapping_sub(packet.begin.sequence) as i64);
            end.signed(steps.late(packet.end));
            outcome.number(self.outcome(packet.outcome));
            let track = packet.submission.and_then(|(engine, _)| timeline.engine_track(engine));
            engine.option(track.map(u64::from));
            id.delta(packet.submission.map_or(0, |(_, id)| id));
            targets.number(packet.targets.len() as u64);
            for (target, value) in &packet.targets {
                fence.number((*target).into());
                values.push(*target, *value);
            }
        }
        for (name, column) in [
            ("packet.queue", queue),
            ("packet.kind", kind),
            ("packet.seq", seq),
            ("packet.at", at),
            ("packet.given", given),
            ("packet.ran", ran),
            ("packet.length", length),
            ("packet.end", end),
            ("packet.outcome", outcome),
            ("packet.engine", engine),
            ("packet.id", id),
            ("packet.targets", targets),
            ("packet.fence", fence),
            ("packet.value", values.column),
        ] {
            self.add(name, column);
        }
    }

    fn runs(&mut self, timeline: &Timeline) {
        let [mut engine, mut queue, mut id, mut begin] = [(); 4].map(|()| Column::default());
        let [mut length, mut seq, mut last, mut call, mut flags] = [(); 5].map(|()| Column::default());
        for run in &timeline.runs {
            engine.number(run.engine.into());
            queue.option(some(run.queue));
            id.delta(run.submission_fence_id);
            begin.delta(run.begin);
            length.number(run.end - run.begin);
            seq.delta(run.sequence);
            last.signed(run.last.wrapping_sub(run.sequence) as i64);
            call.signed(run.sequence.wrapping_sub(run.call) as i64);
            flags.number(u64::from(run.hung) | u64::from(run.pending) << 1);
        }
        for (name, column) in [
            ("run.engine", engine),
            ("run.queue", queue),
            ("run.id", id),
            ("run.begin", begin),
            ("run.length", length),
            ("run.seq", seq),
            ("run.last", last),
            ("run.call", call),
            ("run.flags", flags),
        ] {
            self.add(name, column);
        }
    }

    fn samples(&mut self, timeline: &Timeline) {
        let mut steps = Steps::new(timeline);
        let [mut fence, mut seq, mut at] = [(); 3].map(|()| Column::default());
        let mut values = Values::new(timeline);
        for sample in &timeline.samples {
            fence.number(sample.fence.into());
            seq.delta(sample.moment.sequence);
            at.signed(steps.late(sample.moment));
            values.push(sample.fence, sample.value);
        }
        let value = values.column;
        for (name, column) in
            [("sample.fence", fence), ("sample.seq", seq), ("sample.at", at), ("sample.value", value)]
        {
            self.add(name, column);
        }
    }

    fn marks(&mut self, timeline: &Timeline) {
        let mut steps = Steps::new(timeline);
        let [mut seq, mut at, mut track, mut kind, mut text] = [(); 5].map(|()| Column::default());
        for mark in &timeline.marks {
            seq.delta(mark.moment.sequence);
            at.signed(steps.late(mark.moment));
            track.number(mark.track.into());
            kind.number(mark.kind as u64);
            text.number(mark.text.into());
        }
        for (name, column) in [
            ("mark.seq", seq),
            ("mark.at", at),
            ("mark.track", track),
            ("mark.kind", kind),
            ("mark.text", text),
        ] {
            self.add(name, column);
        }
    }
}

fn some(id: u32) -> Option<u64> {
    (id != NONE).then_some(id.into())
}

/// Looks up the times of steps by sequence number.
struct Steps<'a> {
    timeline: &'a Timeline,
    last: usize,
}

impl<'a> Steps<'a> {
    fn new(timeline: &'a Timeline) -> Self {
        Steps { timeline, last: 0 }
    }

    /// The time of a moment relative to its step. If that step is not kept, relative to the next kept step, or else to
    /// the last.
    fn late(&mut self, moment: Moment) -> i64 {
        let events = &self.timeline.events;
        let at = |index: usize| events[index].moment.sequence;
        if self.last >= events.len() || at(self.last) != moment.sequence {
            self.last = events.partition_point(|event| event.moment.sequence < moment.sequence);
            self.last = self.last.min(events.len().saturating_sub(1));
        }
        let step = events.get(self.last).map_or(0, |event| event.moment.at);
        moment.at.wrapping_sub(step) as i64
    }
}
