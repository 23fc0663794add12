//! The report of a replay.

use std::fmt;

use dxgkrnl::{Effects, Nanos};

use crate::causes::Causes;
use crate::{Lost, MissingOpenBlock, Unchecked};

/// Result of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The program that wrote the trace.
    pub program: String,
    /// Steps that were replayed with identical effects.
    pub steps: u64,
    /// Whether the trace has its End record. If not, the daemon was killed or still runs, and the verdict covers what it
    /// had written by then.
    pub ended: bool,
    /// The open block of a trace without an end, if it is not known.
    pub missing_open_block: Option<MissingOpenBlock>,
    /// The last step of the trace, if the recorded kernel did not return from it.
    pub unfinished: Option<u64>,
    /// The step after the snapshot at which the replay began, if that is not the first step.
    pub from: Option<u64>,
    /// The step before which the replay stopped, if a stop was requested.
    pub stopped: Option<u64>,
    /// Steps at the beginning that could not be replayed, because no state precedes them.
    pub unchecked: Option<Unchecked>,
    /// For each resumption after a loss: the step after the snapshot, and the number of steps that then agreed.
    pub resumed: Vec<(u64, u64)>,
    /// The last snapshot with an equal digest: the number of the step after it, and the digest.
    pub agreed: Option<(u64, u64)>,
    /// Possible causes of the step that differs.
    pub causes: Option<Causes>,
    pub verdict: Verdict,
}

impl Report {
    pub(crate) fn new(program: String) -> Report {
        Report {
            program,
            steps: 0,
            ended: false,
            missing_open_block: None,
            unfinished: None,
            from: None,
            stopped: None,
            unchecked: None,
            resumed: Vec::new(),
            agreed: None,
            causes: None,
            verdict: Verdict::Identical { digest: 0 },
        }
    }

    pub(crate) fn count(&mut self) {
        let steps = self.resumed.last_mut().map_or(&mut self.steps, |(_, steps)| steps);
        *steps += 1;
    }

    /// The step that differs or panicked.
    pub fn sequence(&self) -> Option<u64> {
        match self.verdict {
            Verdict::Diverged { sequence, .. } | Verdict::Panicked { sequence, .. } => Some(sequence),
            _ => None,
        }
    }

    fn has_no_steps(&self) -> bool {
        self.steps == 0 && self.resumed.is_empty()
    }

    /// Whether the replay agreed with the trace.
    pub fn agrees(&self) -> bool {
        matches!(self.verdict, Verdict::Identical { .. })
    }
}

/// Result of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every effect of every step was the same, and so was the state in the end if the trace ended.
    Identical { digest: u64 },
    /// The kernel's effects differ from the recorded ones.
    Diverged { sequence: u64, now: Nanos, input: String, first_difference: Difference },
    /// All effects were the same but the state was not: at the end, or at the snapshot before this step.
    StateDiffers { before: Option<u64>, recorded: u64, replayed: u64 },
    /// The snapshot before this step cannot be restored.
    NotRestored { sequence: u64, why: String },
    /// Nothing could be compared: the trace begins later than at the first step and has no snapshot to begin with.
    NoState { first_step: u64 },
    /// The kernel panicked: a bug in gpupv, which the trace reproduces.
    Panicked { sequence: u64, now: Nanos, input: String, message: String },
    /// A part of the trace is lost. If steps are lost, those before them were identical; else all were.
    Damaged { lost: Lost },
    /// Before this step is a record of an unknown kind; the steps before it were identical.
    Unknown { sequence: u64, kind: u8 },
}

impl Verdict {
    /// Its name in JSON output.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Identical { .. } => "identical",
            Verdict::Diverged { .. } => "diverged",
            Verdict::StateDiffers { .. } => "state-differs",
            Verdict::NotRestored { .. } => "not-restored",
            Verdict::NoState { .. } => "no-state",
            Verdict::Panicked { .. } => "panicked",
            Verdict::Damaged { .. } => "damaged",
            Verdict::Unknown { .. } => "unknown",
        }
    }
}

/// A list of [`Effects`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    Moves,
    Stores,
    Answers,
    Events,
    SyncFiles,
    Notes,
    DriverAnswers,
}

impl Lane {
    pub fn name(self) -> &'static str {
        match self {
            Lane::Moves => "moves",
            Lane::Stores => "stores",
            Lane::Answers => "answers",
            Lane::Events => "events",
            Lane::SyncFiles => "sync files",
            Lane::Notes => "notes",
            Lane::DriverAnswers => "driver answers",
        }
    }
}

/// The first difference between two lists of effects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    pub lane: Lane,
    /// Position in the lane, from 0.
    pub position: usize,
    /// The recorded effect at this position, in one line; "nothing" if the lane is shorter.
    pub recorded: String,
    pub replayed: String,
}

impl Difference {
    /// The first difference in the order in which lanes are drained.
    pub(crate) fn first(recorded: &Effects, replayed: &Effects) -> Option<Difference> {
        in_lane(Lane::Moves, &recorded.moves, &replayed.moves)
            .or_else(|| in_lane(Lane::Stores, &recorded.stores, &replayed.stores))
            .or_else(|| in_lane(Lane::Answers, &recorded.answers, &replayed.answers))
            .or_else(|| in_lane(Lane::Events, &recorded.events, &replayed.events))
            .or_else(|| in_lane(Lane::SyncFiles, &recorded.sync_files, &replayed.sync_files))
            .or_else(|| in_lane(Lane::Notes, &recorded.notes, &replayed.notes))
            .or_else(|| in_lane(Lane::DriverAnswers, &recorded.driver_answers, &replayed.driver_answers))
    }
}

fn in_lane<T: PartialEq + fmt::Display>(lane: Lane, recorded: &[T], replayed: &[T]) -> Option<Difference> {
    let most = recorded.len().max(replayed.len());
    let position = (0..most).find(|at| recorded.get(*at) != replayed.get(*at))?;
    let line = |items: &[T]| items.get(position).map_or_else(|| "nothing".into(), T::to_string);
    Some(Difference { lane, position, recorded: line(recorded), replayed: line(replayed) })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(from) = self.from {
            writeln!(f, "from the snapshot before step #{from}:")?;
        }
        self.write_verdict(f)?;
        if let Some(causes) = &self.causes {
            write!(f, "{causes}")?;
        }
        if let Some((sequence, digest)) = self.agreed {
            write!(f, "\n  the state was the same before step #{sequence}: digest {digest:#018x}")?;
        }
        if let Some(sequence) = self.unfinished {
            write!(f, "\nstep #{sequence} has no effects: the recorded kernel did not return from it")?;
        }
        if let Some(Unchecked { first, last }) = self.unchecked {
            write!(f, "\nsteps #{first} to #{last} were not compared: no snapshot precedes them")?;
        }
        for (sequence, steps) in &self.resumed {
            write!(f, "\nresumed from the snapshot before step #{sequence}: {steps} steps are identical")?;
        }
        if let Some(sequence) = self.stopped {
            return write!(f, "\nstopped before step #{sequence}");
        }
        let reached_end =
            matches!(self.verdict, Verdict::Identical { .. } | Verdict::StateDiffers { before: None, .. });
        if reached_end && !self.ended {
            write!(f, "\nnot ended: the trace has no end record: its daemon was killed, or still runs")?;
            if let Some(missing) = &self.missing_open_block {
                write!(f, "; {missing}")?;
            }
        }
        Ok(())
    }
}

impl Report {
    fn write_verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = counted(self.steps, "step");
        match &self.verdict {
            Verdict::Identical { digest } if self.stopped.is_some() && self.has_no_steps() => {
                write!(f, "nothing was compared: no step is before the stop; state digest {digest:#018x}")
            }
            Verdict::Identical { digest } => {
                write!(f, "identical: {steps}, state digest {digest:#018x}")
            }
            Verdict::Diverged { sequence, now, input, first_difference } => {
                let Difference { lane, position, recorded, replayed } = first_difference;
                let lane = lane.name();
                write!(
                    f,
                    "diverged at step #{sequence}, {now} ns, after {steps} that are identical\n  {input}\n  \
                     {lane}[{position}] recorded: {recorded}\n  {lane}[{position}] replayed: {replayed}"
                )
            }
            Verdict::StateDiffers { before, recorded, replayed } => {
                let position = before.map_or(String::new(), |step| format!(", before step #{step}"));
                write!(
                    f,
                    "the state differs after {steps} with identical effects{position}\n  \
                     recorded: {recorded:#018x}\n  replayed: {replayed:#018x}"
                )
            }
            Verdict::NotRestored { sequence, why } => write!(
                f,
                "identical: {steps}; but the snapshot before step #{sequence} cannot be restored: {why}"
            ),
            Verdict::NoState { first_step } => write!(
                f,
                "nothing could be compared: the trace begins at step #{first_step} and has no snapshot, so there is no \
                 state to replay it from; `gpupv trace show --full` lists its steps. Record into a file (--record), which begins at \
                 the first step, or with drivers that can be saved (Miniport::save): then a flight recorder keeps \
                 snapshots"
            ),
            Verdict::Panicked { sequence, now, input, message } => write!(
                f,
                "the kernel panicked at step #{sequence}, {now} ns, after {steps} that are identical\n  \
                 {input}\n  {message}\n  this is a bug in gpupv: the trace up to this step reproduces it"
            ),
            Verdict::Damaged { lost } => write!(
                f,
                "identical: {steps}, then the trace is damaged: {lost}{}. Copy the file again from where it was \
                 recorded, or record again",
                if self.steps > 0 { "; the steps before it can be used" } else { "" }
            ),
            Verdict::Unknown { sequence, kind } => write!(
                f,
                "identical: {steps}, then before step #{sequence} is a record of kind {kind}, which this \
                 program does not know; replay it with the program that wrote it ({})",
                self.program
            ),
        }
    }
}

/// A count like `1 step` or `2 steps`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
