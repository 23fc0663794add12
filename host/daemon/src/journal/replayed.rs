//! Replay of a journal to its end: from its last snapshot through all steps after it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use drivers::{Drivers, Registry, panic_words};
use dxgkrnl::{Config, DmaOp, Effects, Input, Kernel, Nanos, StagingBuffer};
use trace::{Lost, Reader, Record, TraceError};

use super::{Moves, PerformedWords, SessionCursors, staging};

/// The state from which a daemon resumes.
pub struct Replayed {
    pub kernel: Kernel,
    pub session_cursors: SessionCursors,
    /// Time of the last step.
    pub now: Nanos,
    pub next_step: u64,
    /// DMA operations that the last step requested. Those of earlier daemons are in `session_cursors`.
    pub(super) moves: Vec<DmaOp>,
    /// Staging buffers that `moves` access and that existed before them.
    pub(super) existing: BTreeSet<StagingBuffer>,
    /// The segment with whose state the replay began.
    pub(super) first_segment: u32,
}

impl Replayed {
    /// Collects in `session_cursors` the DMA operations that are not done, by the words of `performed`, and that can be
    /// performed without the earlier daemon's staging buffers.
    pub(super) fn leave_out_done(&mut self, words: PerformedWords) {
        let earlier = &mut self.session_cursors.moves;
        // The daemon that left them has left out those that need a staging buffer of its own.
        let done = Moves::OfSegment(self.first_segment).done(words);
        let mut lost = staging::leave_performable(earlier, done, BTreeSet::new());
        let done = Moves::OfStep(self.next_step - 1).done(words);
        let existing = std::mem::take(&mut self.existing);
        lost.append(&mut staging::leave_performable(&mut self.moves, done, existing));
        earlier.append(&mut self.moves);
        self.session_cursors.keep_lost(lost);
    }
}

/// Why a journal cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum NotReplayed {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{0}")]
    Lost(Lost),
    /// It was being written when the daemon was killed, and has no steps: the segment before it was still retained.
    #[error("its snapshot is not whole: {0}")]
    NoSnapshot(Lost),
    #[error("it was recorded with another configuration: start with that, by the same --config")]
    OtherConfig,
    #[error("its snapshot is no state: {0}")]
    Snapshot(String),
    #[error("step #{0} is in it without a state before it")]
    NoState(u64),
    #[error("before step #{sequence} there is a record of kind {kind}, which this program does not know")]
    Unknown { sequence: u64, kind: u8 },
    #[error("step #{0} comes behind step #{1}: those between are missing")]
    Missing(u64, u64),
    #[error("step #{0} has other effects than were recorded: was it recorded by another build of gpupv?")]
    Differs(u64),
    #[error("step #{0} makes the kernel panic, a bug of gpupv, as it did when it was recorded: {1}")]
    Panics(u64, String),
}

impl NotReplayed {
    /// Whether the file is a segment that had not begun when its daemon was killed, or when the power failed. A file
    /// that cannot be read, or that another program wrote, is none.
    pub fn is_not_begun(&self) -> bool {
        let damaged =
            |error: &TraceError| matches!(error, TraceError::NotATrace { .. } | TraceError::Damaged { .. });
        match self {
            NotReplayed::Trace(error) => damaged(error),
            NotReplayed::NoSnapshot(_) => true,
            NotReplayed::Lost(_)
            | NotReplayed::OtherConfig
            | NotReplayed::Snapshot(_)
            | NotReplayed::NoState(_)
            | NotReplayed::Unknown { .. }
            | NotReplayed::Missing(..)
            | NotReplayed::Differs(_)
            | NotReplayed::Panics(..) => false,
        }
    }
}

/// A replay in progress.
struct Replay {
    kernel: Kernel,
    session_cursors: SessionCursors,
    now: Nanos,
    next_step: u64,
    effects: Effects,
    /// As [`Replayed::existing`].
    existing: BTreeSet<StagingBuffer>,
}

/// The kind of a segment's first records.
pub enum Beginning {
    State,
    Steps,
    Nothing,
}

/// Reads how a segment begins.
pub fn beginning(path: &Path, config: &Config) -> Result<Beginning, NotReplayed> {
    let reader = Reader::open(path)?;
    let is_other = reader.header().config != *config;
    let (mut lost_before, mut unknown) = (None, false);
    for record in reader {
        match record? {
            Record::Snapshot { .. } | Record::Step { .. } if is_other => {
                return Err(NotReplayed::OtherConfig);
            }
            Record::Snapshot { .. } => return Ok(Beginning::State),
            Record::Step { .. } => return Ok(Beginning::Steps),
            Record::Lost(lost) => lost_before = Some(lost),
            Record::Unknown { .. } => unknown = true,
            Record::Times(_) | Record::End { .. } => {}
        }
    }
    match lost_before {
        Some(lost) => Err(NotReplayed::NoSnapshot(lost)),
        // The replay refuses it.
        None if unknown => Ok(Beginning::Steps),
        // Of whatever configuration.
        None => Ok(Beginning::Nothing),
    }
}

fn open(path: &Path, config: &Config) -> Result<Reader, NotReplayed> {
    let reader = Reader::open(path)?;
    if reader.header().config == *config { Ok(reader) } else { Err(NotReplayed::OtherConfig) }
}

/// Replays consecutive segments to the end of the last. `None`: they have no state and no steps. An error names the
/// segment's file.
pub fn replay(
    paths: &[PathBuf],
    config: &Config,
    drivers: &Registry,
) -> Result<Option<Replayed>, (NotReplayed, PathBuf)> {
    let mut replay: Option<Replay> = None;
    for path in paths {
        replay_one(path, config, drivers, &mut replay).map_err(|error| (error, path.clone()))?;
    }
    Ok(replay.map(|Replay { kernel, session_cursors, now, next_step, effects, existing }| {
        // Time continues from the kernel's own, which can be later than that of a snapshot's block.
        let now = now.max(kernel.now());
        let moves = effects.moves;
        Replayed { kernel, session_cursors, now, next_step, moves, existing, first_segment: 0 }
    }))
}

fn replay_one(
    path: &Path,
    config: &Config,
    drivers: &Registry,
    replay: &mut Option<Replay>,
) -> Result<(), NotReplayed> {
    for record in open(path, config)? {
        match (record?, &mut *replay) {
            (Record::Snapshot { sequence, now, digest, state, host }, None) => {
                let kernel = restored(config, drivers, &state, digest).map_err(NotReplayed::Snapshot)?;
                let session_cursors = SessionCursors::from_bytes(&host).map_err(NotReplayed::Snapshot)?;
                let (effects, existing, next_step) = (Effects::default(), BTreeSet::new(), sequence);
                *replay = Some(Replay { kernel, session_cursors, now, next_step, effects, existing });
            }
            (Record::Snapshot { .. } | Record::Times(_) | Record::End { .. }, _) => {}
            (Record::Step { sequence, now, input, effects }, Some(replay)) => {
                replay.step(sequence, now, input, effects.as_ref())?;
            }
            (Record::Step { sequence, .. }, None) => return Err(NotReplayed::NoState(sequence)),
            (Record::Lost(lost), Some(_)) if lost.loses_steps() => return Err(NotReplayed::Lost(lost)),
            (Record::Lost(_), _) => {}
            (Record::Unknown { sequence, kind }, _) => return Err(NotReplayed::Unknown { sequence, kind }),
        }
    }
    Ok(())
}

fn restored(config: &Config, drivers: &Registry, state: &[u8], digest: u64) -> Result<Kernel, String> {
    let (kernel, of_kernel) = trace::restored(config.clone(), Drivers::new(drivers, config), state)?;
    if of_kernel == digest {
        Ok(kernel)
    } else {
        Err(format!("its digest is {digest:#x}, not {of_kernel:#x}"))
    }
}

impl Replay {
    fn step(
        &mut self,
        sequence: u64,
        now: Nanos,
        input: Input,
        recorded: Option<&Effects>,
    ) -> Result<(), NotReplayed> {
        if sequence != self.next_step {
            return Err(NotReplayed::Missing(sequence, self.next_step - 1));
        }
        self.session_cursors.record_input(&input);
        self.effects.clear();
        if let Some(recorded) = recorded {
            self.kernel.supply_driver_answers(&recorded.driver_answers);
        }
        let handled = catch_unwind(AssertUnwindSafe(|| self.kernel.handle(now, input, &mut self.effects)));
        if let Err(panic) = handled {
            return Err(NotReplayed::Panics(sequence, panic_words(&*panic).to_owned()));
        }
        if recorded.is_some_and(|recorded| *recorded != self.effects) {
            return Err(NotReplayed::Differs(sequence));
        }
        self.existing = self.session_cursors.existing_of(&self.effects.moves);
        self.session_cursors.record_effects(&self.effects);
        // The daemon has cut these off already.
        self.session_cursors.take_over_limit();
        self.session_cursors.take_changed();
        (self.now, self.next_step) = (now, sequence + 1);
        Ok(())
    }
}
