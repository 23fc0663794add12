//! Exhaustive exploration: runs every interleaving of a litmus file, and checks every outcome that it allows.

use std::fmt;

use dxgkrnl::PlantedBug;

use super::{Make, failure, log::logged, run_once};
use crate::choose::{Exhaustive, ReplayedChoices};
use crate::limits::INTERLEAVINGS_MAX;
use crate::program::Program;
use crate::run::Failure;
use crate::script;

/// Result of an exhaustive exploration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExhaustiveReport {
    pub interleavings: u64,
    /// Each allowed outcome as the file writes it, with the number of interleavings that end in it.
    pub histogram: Vec<(String, u64)>,
    /// Lines that the backend cannot check, each with the reason.
    pub unchecked: Vec<(u32, &'static str)>,
}

/// Difference between a race and its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unlike {
    /// An interleaving fails, or ends in what is not allowed.
    Fails {
        interleaving: u64,
        choices: Vec<usize>,
        failure: Failure,
        log: String,
    },
    /// The file allows an outcome that no interleaving reaches.
    NeverReached {
        line: u32,
        outcome: String,
        interleavings: u64,
    },
    TooMany {
        most: u64,
    },
}

impl Unlike {
    /// Converts it to the failure of one run.
    pub fn into_failure(self) -> Failure {
        match self {
            Unlike::Fails { failure, .. } => failure,
            Unlike::NeverReached { line, outcome, interleavings } => {
                let what = format!(
                    "the outcome {outcome} is allowed, but not reached in any of {interleavings} interleavings"
                );
                Failure { line, what }
            }
            Unlike::TooMany { most } => {
                let what = format!(
                    "the race has more than {most} interleavings, the limit: make it shorter, or explore by seeds"
                );
                Failure { line: 0, what }
            }
        }
    }
}

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unlike::Fails { interleaving, failure, .. } => {
                write!(f, "interleaving {interleaving}: {failure}")
            }
            Unlike::NeverReached { .. } | Unlike::TooMany { .. } => self.clone().into_failure().fmt(f),
        }
    }
}

/// Runs every interleaving of the program's race, and of the backend's own moves.
pub fn every_way<M: Make>(
    make: &M,
    program: &Program,
    planted: Option<PlantedBug>,
) -> Result<ExhaustiveReport, Unlike> {
    every_way_up_to(make, program, planted, INTERLEAVINGS_MAX)
}

/// As [`every_way`], with another limit.
pub fn every_way_up_to<M: Make>(
    make: &M,
    program: &Program,
    planted: Option<PlantedBug>,
    most: u64,
) -> Result<ExhaustiveReport, Unlike> {
    let allowed = program.race.as_ref().map_or(&[][..], |race| &race.allowed);
    let mut counts = vec![0; allowed.len()];
    let mut choose = Exhaustive::default();
    let mut interleavings = 0;
    let unchecked = loop {
        if interleavings == most {
            return Err(Unlike::TooMany { most });
        }
        interleavings += 1;
        let ended = run_once(make, program, planted, 0, &mut choose);
        if let Some(failure) = failure(&ended) {
            let choices = choose.choices();
            let (_, log) = logged(make, program, planted, 0, &mut ReplayedChoices::new(choices.clone()));
            let failure = failure.clone();
            return Err(Unlike::Fails { interleaving: interleavings, choices, failure, log });
        }
        for outcome in ended.outcomes {
            counts[outcome] += 1;
        }
        if !choose.next_combination() {
            // Unchecked lines are before the race, where every interleaving is the same.
            break ended.unchecked;
        }
    };
    let text = |at: usize| script::write_outcome(program, &allowed[at]);
    if let Some(at) = counts.iter().position(|count| *count == 0) {
        return Err(Unlike::NeverReached { line: allowed[at].line, outcome: text(at), interleavings });
    }
    let histogram = counts.iter().enumerate().map(|(at, count)| (text(at), *count)).collect();
    Ok(ExhaustiveReport { interleavings, histogram, unchecked })
}
