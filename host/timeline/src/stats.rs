//! Statistics of a whole trace, whichever rows are kept.

use std::collections::BTreeMap;

use d3dkmt::NtStatus;
use dxgkrnl::Nanos;
use dxgkrnl::ddi::EngineId;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::format::{duration, status_name, three_digits};
use crate::timeline::{Fence, FenceId, Timeline, Track, TrackId, TrackKind, Word};

/// The distribution of a number. The maximum is exact, percentiles are to three digits and at most the maximum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    pub count: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}

/// Counts of calls of one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallFigures {
    pub count: u64,
    pub one_way: u64,
    /// Calls that were refused: answered with a failure status, or one-way with a note.
    pub refused: u64,
}

/// Counts of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessFigures {
    pub track: TrackId,
    pub calls: u64,
    pub refused: u64,
    pub waits: u64,
    pub wakes: u64,
}

/// Counts of one engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineFigures {
    pub track: TrackId,
    pub runs: u64,
    pub busy_ns: Nanos,
    /// Busy time in parts per million of the trace's duration.
    pub busy_ppm: u64,
}

/// Statistics of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    pub steps: u64,
    /// Inputs of the kernel, by kind.
    pub inputs: BTreeMap<String, u64>,
    pub calls: BTreeMap<String, CallFigures>,
    pub statuses: BTreeMap<u32, u64>,
    /// Effects of the kernel: fence stores, wake-ups, notes, DMA operations.
    pub stores: u64,
    pub wakes: u64,
    pub notes: u64,
    pub moves: u64,
    pub waits_registered: u64,
    pub waits_satisfied: u64,
    pub waits_pending: u64,
    /// Time from the registration of a CPU wait to its wake-up, in nanoseconds of model time.
    pub wait_age_ns: Summary,
    /// Time from the end of the work that caused a wake-up to the step in which the daemon's timer reported it.
    pub wake_delay_ns: Summary,
    pub processes: Vec<ProcessFigures>,
    pub engines: Vec<EngineFigures>,
    /// Fences with their numbers of signals and wake-ups; the busiest first.
    pub fences: Vec<(FenceId, u64, u64)>,
    pub faults: u64,
    pub resets: u64,
}

/// Number of busiest fences that are listed.
const FENCES_SHOWN: usize = 10;

/// Number of slowest wake-ups that are listed.
const SLOWEST_SHOWN: usize = 3;

/// Collects statistics while the trace is read.
pub(crate) struct Collector {
    pub stats: Stats,
    inputs: BTreeMap<&'static str, u64>,
    calls: BTreeMap<Word, CallFigures>,
    processes: BTreeMap<TrackId, ProcessFigures>,
    wait_age: Distribution,
    wake_delay: Distribution,
}

/// Recorded numbers and the greatest of them: the histogram rounds that up.
struct Distribution {
    numbers: Histogram<u64>,
    max: u64,
}

impl Distribution {
    fn new() -> Self {
        Distribution { numbers: Histogram::new(3).expect("three digits are few enough"), max: 0 }
    }

    fn record(&mut self, number: u64) {
        // The histogram grows as needed, up to 64 bits.
        self.numbers.record(number).expect("any number can be recorded");
        self.max = self.max.max(number);
    }

    fn summary(&self) -> Summary {
        let count = self.numbers.len();
        if count == 0 {
            return Summary::default();
        }
        let at = |percent| self.numbers.value_at_percentile(percent).min(self.max);
        Summary { count, p50: at(50.0), p90: at(90.0), p99: at(99.0), max: self.max }
    }
}

impl Collector {
    pub fn new() -> Self {
        Collector {
            stats: Stats::default(),
            inputs: BTreeMap::new(),
            calls: BTreeMap::new(),
            processes: BTreeMap::new(),
            wait_age: Distribution::new(),
            wake_delay: Distribution::new(),
        }
    }

    pub fn input(&mut self, kind: &'static str) {
        self.stats.steps += 1;
        *self.inputs.entry(kind).or_default() += 1;
    }

    pub fn call(&mut self, name: Word, process: TrackId, one_way: bool) {
        let figures = self.calls.entry(name).or_default();
        figures.count += 1;
        figures.one_way += u64::from(one_way);
        self.process(process).calls += 1;
    }

    /// Counts the answer to a call, which may be of an earlier step.
    pub fn answer(&mut self, name: Word, process: TrackId, status: NtStatus) {
        let refused = u64::from((status.0 as i32) < 0);
        *self.stats.statuses.entry(status.0).or_default() += 1;
        self.calls.entry(name).or_default().refused += refused;
        self.process(process).refused += refused;
    }

    /// Counts a one-way call that was refused, which has no answer.
    pub fn refused(&mut self, name: Word, process: TrackId) {
        self.calls.entry(name).or_default().refused += 1;
        self.process(process).refused += 1;
    }

    fn process(&mut self, track: TrackId) -> &mut ProcessFigures {
        let new = ProcessFigures { track, calls: 0, refused: 0, waits: 0, wakes: 0 };
        self.processes.entry(track).or_insert(new)
    }

    pub fn waits(&mut self, process: TrackId, registered: bool) {
        self.process(process).waits += 1;
        match registered {
            true => self.stats.waits_registered += 1,
            false => self.stats.waits_satisfied += 1,
        }
    }

    pub fn woken(&mut self, process: TrackId, age: Nanos, late: Option<Nanos>) {
        self.process(process).wakes += 1;
        self.wait_age.record(age);
        if let Some(late) = late {
            self.wake_delay.record(late);
        }
    }

    pub fn finish(
        mut self,
        words: &[String],
        tracks: &[Track],
        fences: &[Fence],
        busy: &BTreeMap<EngineId, (u64, Nanos)>,
        length: Nanos,
    ) -> Stats {
        let named = |(kind, count): (&str, u64)| (kind.to_owned(), count);
        self.stats.inputs = self.inputs.into_iter().map(named).collect();
        let named = |(name, figures): (Word, CallFigures)| (words[name as usize].clone(), figures);
        self.stats.calls = self.calls.into_iter().map(named).collect();
        self.stats.wait_age_ns = self.wait_age.summary();
        self.stats.wake_delay_ns = self.wake_delay.summary();
        self.stats.processes = self.processes.into_values().collect();
        let ids = (0..).zip(tracks);
        let engine = |(track, one): (TrackId, &Track)| match one.kind {
            TrackKind::Engine(engine) => Some((track, engine)),
            _ => None,
        };
        self.stats.engines = ids
            .filter_map(engine)
            .map(|(track, engine)| {
                let (runs, busy_ns) = busy.get(&engine).copied().unwrap_or_default();
                let busy_ppm = (u128::from(busy_ns) * 1_000_000 / u128::from(length.max(1))) as u64;
                EngineFigures { track, runs, busy_ns, busy_ppm }
            })
            .collect();
        let mut busiest: Vec<_> = (0..)
            .zip(fences)
            .map(|(id, fence): (FenceId, &Fence)| (id, fence.signals, fence.wakes))
            .collect();
        busiest.sort_by_key(|(id, signals, wakes)| (std::cmp::Reverse(signals + wakes), *id));
        busiest.truncate(FENCES_SHOWN);
        self.stats.fences = busiest;
        self.stats
    }
}

impl Summary {
    fn words(&self) -> String {
        if self.count == 0 {
            return "none".into();
        }
        let [p50, p90, p99] = [self.p50, self.p90, self.p99].map(three_digits);
        let max = duration(self.max);
        format!("{}: p50 {p50}, p90 {p90}, p99 {p99}, max {max}", self.count)
    }

    fn json(&self) -> Value {
        let Summary { count, p50, p90, p99, max } = *self;
        json!({ "count": count, "p50_ns": p50, "p90_ns": p90, "p99_ns": p99, "max_ns": max })
    }
}

impl Timeline {
    /// The statistics as text.
    pub fn stats_text(&self) -> String {
        let stats = &self.stats;
        let length = self.end.at.saturating_sub(self.begin.at);
        let mut out = format!("{} steps in {} by {}\n", stats.steps, duration(length), self.program);
        out += "\ninputs of the kernel\n";
        for (kind, count) in &stats.inputs {
            out += &format!("  {count:>9}  {kind}\n");
        }
        out += &format!(
            "effects: {} fence stores, {} wake-ups, {} DMA operations, {} notes\n",
            stats.stores, stats.wakes, stats.moves, stats.notes
        );
        out += "\n    calls    one-way   refused  name\n";
        for (name, CallFigures { count, one_way, refused }) in &stats.calls {
            out += &format!("{count:>9}  {one_way:>9} {refused:>9}  {name}\n");
        }
        out += "\nanswered\n";
        for (status, count) in &stats.statuses {
            out += &format!("  {count:>9}  {}\n", status_name(*status));
        }
        out += &format!(
            "\nCPU waits: {} registered, {} satisfied at once, {} pending at the end\n  until woken  {}\n  daemon told late  {}\n",
            stats.waits_registered,
            stats.waits_satisfied,
            stats.waits_pending,
            stats.wait_age_ns.words(),
            stats.wake_delay_ns.words()
        );
        out += "\n    calls   refused     waits     wakes  process\n";
        for ProcessFigures { track, calls, refused, waits, wakes } in &stats.processes {
            let path = self.path(*track);
            out += &format!("{calls:>9} {refused:>9} {waits:>9} {wakes:>9}  {path}\n");
        }
        out += "\n     busy  submissions run  engine\n";
        for EngineFigures { track, runs, busy_ppm, .. } in &stats.engines {
            let (whole, part) = (busy_ppm / 10_000, busy_ppm % 10_000 / 100);
            out += &format!("{whole:>6}.{part:02}%  {runs:>15}  {}\n", self.path(*track));
        }
        out += "\n  signals     wakes  busiest fences\n";
        for (fence, signals, wakes) in &stats.fences {
            out += &format!("{signals:>9} {wakes:>9}  {}\n", self.fence_words(*fence));
        }
        if self.latency.is_some() {
            out += &format!("\n{}", self.latency_text(SLOWEST_SHOWN));
        }
        out + &self.integrity_words()
    }

    /// The statistics as JSON.
    pub fn stats_json(&self) -> Value {
        let stats = &self.stats;
        let calls: BTreeMap<_, _> = stats
            .calls
            .iter()
            .map(|(name, CallFigures { count, one_way, refused })| {
                (name, json!({ "count": count, "one_way": one_way, "refused": refused }))
            })
            .collect();
        let statuses: BTreeMap<_, _> =
            stats.statuses.iter().map(|(status, count)| (status_name(*status), count)).collect();
        let processes = stats.processes.iter().map(|ProcessFigures { track, calls, refused, waits, wakes }| {
            json!({ "process": self.path(*track), "calls": calls, "refused": refused, "waits": waits, "wakes": wakes })
        });
        let engines = stats.engines.iter().map(|EngineFigures { track, runs, busy_ns, busy_ppm }| {
            json!({ "engine": self.path(*track), "runs": runs, "busy_ns": busy_ns, "busy_ppm": busy_ppm })
        });
        let fences = stats.fences.iter().map(|(fence, signals, wakes)| {
            json!({ "fence": self.fence_words(*fence), "signals": signals, "wakes": wakes })
        });
        json!({
            "program": self.program, "steps": stats.steps, "begin_ns": self.begin.at, "end_ns": self.end.at,
            "begins_at": self.integrity.begins_at, "ended": self.integrity.ended, "stopped": self.integrity.stopped,
            "inputs": stats.inputs, "calls": calls, "statuses": statuses,
            "stores": stats.stores, "wakes": stats.wakes, "moves": stats.moves, "notes": stats.notes,
            "waits": {
                "registered": stats.waits_registered, "satisfied": stats.waits_satisfied,
                "pending": stats.waits_pending, "age": stats.wait_age_ns.json(),
                "told_late": stats.wake_delay_ns.json(),
            },
            "processes": processes.collect::<Vec<_>>(), "engines": engines.collect::<Vec<_>>(),
            "latency": self.latency_json(SLOWEST_SHOWN),
            "fences": fences.collect::<Vec<_>>(), "faults": stats.faults, "resets": stats.resets,
        })
    }

    /// `F3 monitored fence "name" (p2 0x40000080, p3 0x40000040)`.
    pub fn fence_words(&self, fence: FenceId) -> String {
        let Some(Fence { kind, shared_as, opens, .. }) = self.fences.get(fence as usize) else {
            return "?".into();
        };
        let name = shared_as.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let opens: Vec<_> =
            opens.iter().map(|(process, handle)| format!("p{} {handle:#x}", process.0)).collect();
        format!("F{fence} {kind}{name} ({})", opens.join(", "))
    }

    /// Lines that describe missing parts of the timeline; empty if it is complete.
    pub fn integrity_words(&self) -> String {
        let mut out = String::new();
        if let Some(sequence) = self.integrity.begins_at {
            out += &format!(
                "\nit begins with the state before step #{sequence}: waits that were pending count from there, names of \
                 shared objects and causes of earlier values are not known, nor are packets of queues that were not empty\n"
            );
        }
        if let Some((sequence, why)) = &self.integrity.stopped {
            out += &format!("\nonly up to step #{sequence}: {why}\n");
        }
        if !self.integrity.ended && self.integrity.stopped.is_none() {
            out += "\nthe trace has no end record: its daemon was killed, or still runs\n";
        }
        out
    }

    /// A line about rows that are not shown; empty if all are.
    pub fn left_out_words(&self) -> String {
        match self.integrity.left_out {
            0 => String::new(),
            count => format!("{count} older rows are not shown"),
        }
    }
}
