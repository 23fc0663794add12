//! Builds a [`Timeline`] from the steps of a trace.

mod beginning;
mod blocked;
mod fences;
mod names;
mod queued;
mod queues;
mod rows;
mod step;
mod waits;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use d3dkmt::ShareToken;
use drivers::{Drivers, Filtered, Registry, panic_words};
use dxgkrnl::{Config, Effects, Input, Kernel, Nanos, ProcessId};
use trace::{Reader, Record, Times, TraceError};

use crate::latency;
use crate::observe::{Log, Observer};
use crate::stats::Collector;
use crate::timeline::{Event, FenceId, Integrity, Mark, MarkKind, Moment, Sample, Timeline, TrackId, Word};
use fences::Fences;
use names::{Names, Words};
use queues::Queues;
use rows::Rows;
use waits::{KeptSignals, Signaled, Waits};

/// Which rows of a trace are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// First and last sequence number of the steps to keep. A row with a duration is kept if it overlaps the window.
    pub window: (u64, u64),
    /// Most rows of each kind; the latest are kept.
    pub rows_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { window: (0, u64::MAX), rows_max: 4_000_000 }
    }
}

/// Why no timeline could be built.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("the trace cannot be replayed: {0}; use the program that recorded it ({1})")]
    Driver(String, String),
}

/// Reads a trace as far as possible, and replays it to observe the kernel. `progress` is called with the bytes read and
/// the trace's length.
pub fn read(
    reader: Reader,
    registry: &Registry,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Timeline, TimelineError> {
    let mut reader = reader.with_times();
    let config = reader.header().config.clone();
    let program = reader.header().program.clone();
    // What a driver outside did is in the trace.
    let registry = &registry.recorded();
    if let Err(unknown) = registry.check(&config) {
        return Err(TimelineError::Driver(unknown.to_string(), program));
    }
    let mut builder = Builder::new(program, &config, registry, options);
    // One thread decodes while this one replays; each takes about half of the time.
    std::thread::scope(|scope| {
        let (sender, batches) = sync_channel(BATCHES_AHEAD);
        let decoder = scope.spawn(move || decode(&mut reader, &sender));
        'batches: for Batch { state, steps, times, position: (done, length) } in &batches {
            progress(done, length);
            if let Some((sequence, state)) = state {
                builder.begin_with(sequence, &state)?;
            }
            for step in steps {
                if builder.step(step).is_break() {
                    break 'batches;
                }
            }
            times.into_iter().for_each(|times| builder.latency.times(times));
        }
        // This lets a decoder that is ahead end.
        drop(batches);
        let Decoded { ended, lost } = decoder.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        if let Some(why) = lost.filter(|_| builder.integrity.stopped.is_none()) {
            builder.stop(why);
        }
        Ok(builder.finish(ended))
    })
}

/// Steps in a batch, and batches that are decoded ahead.
const BATCH_STEPS: usize = 256;
const BATCHES_AHEAD: usize = 16;

struct Batch {
    /// The initial state of a trace that begins at a later step, and the number of that step.
    state: Option<(u64, Vec<u8>)>,
    steps: Vec<Step>,
    /// Timestamps of steps in this batch or before it.
    times: Vec<Times>,
    /// Bytes read, and the trace's length.
    position: (u64, u64),
}

/// How decoding ended.
struct Decoded {
    ended: bool,
    /// Why the rest cannot be read, if so.
    lost: Option<String>,
}

fn decode(reader: &mut Reader, batches: &SyncSender<Batch>) -> Result<Decoded, TraceError> {
    let mut begun = reader.header().first_step <= 1;
    loop {
        let mut steps = Vec::with_capacity(BATCH_STEPS);
        let (mut times, mut state, mut over) = (Vec::new(), None, None);
        while steps.len() < BATCH_STEPS && over.is_none() {
            match next_step(reader)? {
                Next::Step(step) => {
                    begun = true;
                    steps.push(step);
                }
                Next::Times(told) => times.push(told),
                Next::Snapshot { sequence, state: saved } if !begun => state = Some((sequence, saved)),
                Next::Snapshot { .. } => {}
                Next::End => over = Some(None),
                Next::Lost(why) => over = Some(Some(why)),
            }
        }
        let is_received = batches.send(Batch { state, steps, times, position: reader.progress() }).is_ok();
        match over {
            Some(lost) => return Ok(Decoded { ended: reader.ended(), lost }),
            None if !is_received => return Ok(Decoded { ended: false, lost: None }),
            None => {}
        }
    }
}

/// One step of a trace.
pub(crate) struct Step {
    pub sequence: u64,
    pub now: Nanos,
    pub input: Input,
    /// `None` if the kernel did not return.
    pub effects: Option<Effects>,
}

pub(crate) enum Next {
    Step(Step),
    /// The state before the step of this number.
    Snapshot {
        sequence: u64,
        state: Vec<u8>,
    },
    Times(Times),
    End,
    /// The rest cannot be read.
    Lost(String),
}

/// The next record of a trace, as this crate uses it.
pub(crate) fn next_step(reader: &mut Reader) -> Result<Next, TraceError> {
    loop {
        return Ok(match reader.next().transpose()? {
            None | Some(Record::End { .. }) => Next::End,
            Some(Record::Step { sequence, now, input, effects }) => {
                Next::Step(Step { sequence, now, input, effects })
            }
            Some(Record::Times(times)) => Next::Times(times),
            Some(Record::Snapshot { sequence, state, .. }) => Next::Snapshot { sequence, state },
            Some(Record::Lost(lost)) if lost.loses_steps() => Next::Lost(lost.to_string()),
            Some(Record::Lost(_)) => continue,
            Some(unknown @ Record::Unknown { .. }) => Next::Lost(unknown.to_string()),
        });
    }
}

#[derive(Clone, Copy)]
struct Unanswered {
    name: Word,
    track: TrackId,
    moment: Moment,
}

/// The state that is tracked from step to step.
pub(crate) struct Builder {
    kernel: Kernel,
    log: Arc<Log>,
    registry: Registry,
    config: Config,
    replayed: Effects,
    program: String,
    words: Words,
    names: Names,
    fences: Fences,
    queues: Queues,
    waits: Waits,
    /// Calls that a later step answers.
    unanswered: BTreeMap<(ProcessId, u64), Unanswered>,
    stats: Collector,
    latency: latency::Collector,
    events: Rows<Event>,
    samples: Rows<Sample>,
    /// The last value of each fence before the window, and the first step of that.
    samples_before: BTreeMap<FenceId, Sample>,
    window_begin: u64,
    marks: Rows<Mark>,
    /// The fences and values of sync files.
    sync_files: BTreeMap<ShareToken, (FenceId, u64)>,
    /// Signals in the current step.
    signals: Vec<Signaled>,
    /// The last reset, fault or stop in the current step.
    disrupted: Option<Moment>,
    /// Signals of earlier steps.
    kept_signals: KeptSignals,
    /// The first step.
    begin: Option<Moment>,
    end: Moment,
    integrity: Integrity,
}

/// The configuration with race detection on, so that the kernel reports happens-before relations; see `observe.rs`.
fn with_edges(mut config: Config) -> Config {
    config.adapters.iter_mut().for_each(|adapter| adapter.hazards = true);
    config
}

impl Builder {
    fn new(program: String, config: &Config, registry: &Registry, options: &Options) -> Self {
        let log = Arc::new(Log::default());
        let observer = Filtered(Observer::new(Drivers::new(registry, config), config.clone(), log.clone()));
        Builder {
            kernel: Kernel::new(with_edges(config.clone()), observer),
            log,
            registry: registry.clone(),
            config: config.clone(),
            replayed: Effects::default(),
            program,
            words: Words::default(),
            names: Names::new(config),
            fences: Fences::default(),
            queues: Queues::new(options),
            waits: Waits::new(options),
            unanswered: BTreeMap::new(),
            stats: Collector::new(),
            latency: latency::Collector::default(),
            events: Rows::new(options),
            samples: Rows::new(options),
            samples_before: BTreeMap::new(),
            window_begin: options.window.0,
            marks: Rows::new(options),
            sync_files: BTreeMap::new(),
            signals: Vec::new(),
            disrupted: None,
            kept_signals: KeptSignals::default(),
            begin: None,
            end: Moment::default(),
            integrity: Integrity::default(),
        }
    }

    /// Drivers that are observed into this log.
    fn observer(&self, log: Arc<Log>) -> Filtered<Observer> {
        let drivers = Drivers::new(&self.registry, &self.config);
        Filtered(Observer::new(drivers, self.config.clone(), log))
    }

    /// A kernel with this state, whose drivers are observed into this log.
    fn restored(&self, state: &[u8], log: Arc<Log>) -> Result<Kernel, String> {
        Kernel::restore(with_edges(self.config.clone()), self.observer(log), state)
            .map_err(|error| error.to_string())
    }

    /// Records that the timeline ends after the last processed step.
    fn stop(&mut self, why: String) {
        self.integrity.stopped = Some((self.end.sequence, why));
    }

    /// Replays a step. Fails if the effects differ, because the observations would not belong to this trace.
    fn replay(&mut self, now: Nanos, input: Input, recorded: Option<&Effects>) -> Result<(), String> {
        self.replayed.clear();
        self.log.reset_time();
        if let Some(recorded) = recorded {
            self.kernel.supply_driver_answers(&recorded.driver_answers);
        }
        let handled = catch_unwind(AssertUnwindSafe(|| self.kernel.handle(now, input, &mut self.replayed)));
        if let Err(panic) = handled {
            return Err(format!("the kernel panicked in the next step: {}", panic_words(&*panic)));
        }
        match recorded {
            Some(recorded) if *recorded != self.replayed => {
                Err("this program's kernel has different effects in the next step; see gpupv replay".into())
            }
            _ => Ok(()),
        }
    }

    fn mark(&mut self, moment: Moment, track: TrackId, kind: MarkKind, text: &str) {
        match kind {
            MarkKind::Note => {}
            MarkKind::Fault => self.stats.stats.faults += 1,
            MarkKind::Reset => self.stats.stats.resets += 1,
        }
        let text = self.words.of(text);
        self.marks.push(Mark { moment, track, kind, text }, moment.sequence, moment.sequence);
    }

    fn finish(mut self, ended: bool) -> Timeline {
        let end = self.end;
        self.integrity.ended = ended;
        let (blocked, reasons, why_picture) = self.blocked();
        self.stats.stats.waits_pending = self.waits.pending.len() as u64;
        self.waits.finish(end);
        self.queues.finish(&self.names, end);
        let Builder { integrity: mut whole, queues, waits, events, mut samples, marks, .. } = self;
        samples.extend(self.samples_before.into_values());
        let left = [&queues.packets.left_out, &queues.runs.left_out, &waits.rows.left_out];
        whole.left_out = left.into_iter().sum::<u64>() + events.left_out + samples.left_out + marks.left_out;
        let begin = self.begin.unwrap_or_default();
        let length = end.at.saturating_sub(begin.at);
        Timeline {
            program: self.program,
            begin,
            end,
            stats: self.stats.finish(
                &self.words.texts,
                &self.names.tracks,
                &self.fences.fences,
                &queues.busy,
                length,
            ),
            words: self.words.texts,
            tracks: self.names.tracks,
            fences: self.fences.fences,
            events: events.sorted(|event| (event.moment.at, event.moment.sequence)),
            waits: waits.rows.sorted(|wait| (wait.begin.at, wait.begin.sequence)),
            packets: queues.packets.sorted(|packet| (packet.begin.at, packet.begin.sequence)),
            runs: queues.runs.sorted(|run| (run.begin, run.sequence)),
            samples: samples.sorted(|sample| (sample.moment.at, sample.moment.sequence)),
            marks: marks.sorted(|mark| (mark.moment.at, mark.moment.sequence)),
            blocked,
            reasons,
            why_picture,
            latency: self.latency.finish(),
            integrity: whole,
        }
    }
}
