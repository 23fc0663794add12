//! What a replay found.

use std::fmt;

use dxgkrnl::{Effects, Nanos};

use crate::Damage;

/// Result of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The program that wrote the trace.
    pub program: String,
    /// Steps that were replayed and agreed.
    pub steps: u64,
    /// The trace has its End record. Without it the daemon was killed, and the verdict is about what it
    /// had written by then.
    pub ended: bool,
    /// The last step of the trace, if the recorded kernel did not come back from it.
    pub unfinished: Option<u64>,
    pub verdict: Verdict,
}

impl Report {
    /// True if the verdict is that the replay agreed with the trace.
    pub fn agrees(&self) -> bool {
        matches!(self.verdict, Verdict::Identical { .. })
    }
}

/// How a replay ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every effect of every step was the same, and so was the state in the end if the trace ended.
    Identical { digest: u64 },
    /// The kernel asked for something else than it did when it was recorded.
    Diverged { sequence: u64, now: Nanos, input: String, first_difference: Difference },
    /// All effects were the same but the state in the end was not.
    StateDiffers { recorded: u64, replayed: u64 },
    /// The kernel panicked: a bug of ours, here for the taking.
    Panicked { sequence: u64, now: Nanos, input: String, message: String },
    /// The file is damaged; what comes before was the same.
    Damaged { damage: Damage },
}

impl Verdict {
    /// A word for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Identical { .. } => "identical",
            Verdict::Diverged { .. } => "diverged",
            Verdict::StateDiffers { .. } => "state-differs",
            Verdict::Panicked { .. } => "panicked",
            Verdict::Damaged { .. } => "damaged",
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
    Notes,
}

impl Lane {
    pub fn name(self) -> &'static str {
        match self {
            Lane::Moves => "moves",
            Lane::Stores => "stores",
            Lane::Answers => "answers",
            Lane::Events => "events",
            Lane::Notes => "notes",
        }
    }
}

/// The first place where two effects are not the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    pub lane: Lane,
    /// Position in the lane, from 0.
    pub position: usize,
    /// What stands there, in one line; "nothing" if the lane ended before.
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
            .or_else(|| in_lane(Lane::Notes, &recorded.notes, &replayed.notes))
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
        let steps = self.steps;
        match &self.verdict {
            Verdict::Identical { digest } => {
                write!(f, "identical: {steps} steps, state digest {digest:#018x}")?;
            }
            Verdict::Diverged { sequence, now, input, first_difference } => {
                let Difference { lane, position, recorded, replayed } = first_difference;
                let lane = lane.name();
                write!(
                    f,
                    "diverged at step #{sequence}, {now} ns, after {steps} identical steps\n  {input}\n"
                )?;
                write!(
                    f,
                    "  {lane}[{position}] recorded: {recorded}\n  {lane}[{position}] replayed: {replayed}"
                )?;
            }
            Verdict::StateDiffers { recorded, replayed } => write!(
                f,
                "the state differs after {steps} steps with identical effects\n  \
                 recorded: {recorded:#018x}\n  replayed: {replayed:#018x}"
            )?,
            Verdict::Panicked { sequence, now, input, message } => write!(
                f,
                "the kernel panicked at step #{sequence}, {now} ns, after {steps} identical steps\n  \
                 {input}\n  {message}\n  this is a bug of ours: the trace up to this step reproduces it"
            )?,
            Verdict::Damaged { damage } => write!(f, "{steps} steps are identical, then {damage}")?,
        }
        if let Some(sequence) = self.unfinished {
            write!(f, "\nstep #{sequence} has no effects: the recorded kernel did not come back from it")?;
        }
        let reached_end = matches!(self.verdict, Verdict::Identical { .. } | Verdict::StateDiffers { .. });
        if reached_end && !self.ended {
            write!(f, "\nnot ended: the trace has no end record, the daemon that wrote it was killed")?;
        }
        Ok(())
    }
}
