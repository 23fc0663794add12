//! Verification of a trace: what is intact, and what is lost.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use crate::file::open_regular;
use crate::scan::{arrange, scan};
use crate::{Kind, Lost, MissingOpenBlock, Next, Reader, Record, Step, TraceError, counted};

/// Result of verifying a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Findings {
    /// The program that wrote it.
    pub program: String,
    /// Number of readable steps.
    pub steps: u64,
    /// Numbers of the first and the last of them.
    pub range: Option<(u64, u64)>,
    pub snapshots: u64,
    /// Blocks with a valid header, by kind.
    pub blocks: BTreeMap<Kind, u64>,
    /// Bytes of the file.
    pub bytes: u64,
    pub lost: Vec<Lost>,
    /// Number of blocks that are out of order in the file; they are read in order.
    pub out_of_place: u32,
    /// Number of records of unknown kinds that a replay would need.
    pub unknown: u64,
    pub skipped: u64,
    /// Whether it has its end. If not, it is still recorded, or its recorder was killed.
    pub ended: bool,
    /// The open block of a trace without an end, if it is not known.
    pub missing_open_block: Option<MissingOpenBlock>,
    /// The last step of the trace, if the recorded kernel did not return from it.
    pub unfinished: Option<u64>,
}

impl Findings {
    /// Whether nothing is lost, damaged or unknown. A trace without an end can be whole.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.out_of_place == 0 && self.unknown == 0
    }

    /// Number of lost steps; `None` if unknown.
    pub fn lost_steps(&self) -> Option<u64> {
        self.lost.iter().map(Lost::steps).sum()
    }
}

/// Whether a trace was ended in order, by its blocks alone: also of one whose steps this program cannot replay. A file that
/// cannot be read was not.
pub fn has_end(path: &Path) -> bool {
    let ended = || -> io::Result<bool> {
        let mut file = open_regular(path)?;
        let length = file.metadata()?.len();
        let positions = scan(&mut file, length)?.positions;
        Ok(arrange(&positions, length, 1).ended)
    };
    ended().unwrap_or(false)
}

/// Reads a trace to its end.
pub fn verify(mut reader: Reader) -> Result<Findings, TraceError> {
    let mut found = Findings {
        program: reader.header().program.clone(),
        bytes: reader.progress().1,
        out_of_place: reader.out_of_place(),
        missing_open_block: reader.missing_open_block().cloned(),
        ..Findings::default()
    };
    for block in reader.blocks() {
        *found.blocks.entry(block.kind).or_default() += 1;
    }
    let mut step = Step::default();
    loop {
        match reader.next_into(&mut step)? {
            Next::Step => {
                let Step { sequence, finished, .. } = step;
                found.steps += 1;
                found.range = Some((found.range.map_or(sequence, |range| range.0), sequence));
                found.unfinished = (!finished).then_some(sequence);
            }
            Next::Other(record) => match record {
                Record::Snapshot { .. } => found.snapshots += 1,
                Record::Lost(lost) => found.lost.push(lost),
                Record::Unknown { .. } => found.unknown += 1,
                Record::Step { .. } | Record::Times(_) | Record::End { .. } => {}
            },
            Next::End => break,
        }
    }
    found.ended = reader.ended();
    found.skipped = reader.skipped();
    Ok(found)
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Findings { program, steps, bytes, snapshots, .. } = self;
        let state = match (self.is_whole(), &self.missing_open_block) {
            (true, None) => "whole",
            (true, Some(_)) => "perhaps incomplete",
            (false, _) => "damaged",
        };
        write!(f, "{state}: {}", counted(*steps, "step"))?;
        if let Some((first, last)) = self.range {
            write!(f, ", #{first} to #{last}")?;
        }
        write!(f, ", {snapshots} snapshots, {bytes} bytes, recorded by {program}")?;
        for lost in &self.lost {
            write!(f, "\n  {lost}")?;
        }
        if self.out_of_place > 0 {
            write!(
                f,
                "\n  {} blocks are out of order in the file; they are read in order",
                self.out_of_place
            )?;
        }
        if self.unknown > 0 {
            write!(f, "\n  {} records are unknown to this program; a replay would need them", self.unknown)?;
        }
        if self.skipped > 0 {
            write!(
                f,
                "\n  {} records are unknown to this program; a replay does not need them",
                self.skipped
            )?;
        }
        if let Some(sequence) = self.unfinished {
            write!(f, "\n  step #{sequence} has no effects: the recorded kernel did not return from it")?;
        }
        if !self.ended {
            write!(f, "\n  not ended: it is still recorded, or its recorder was killed")?;
            if let Some(missing) = &self.missing_open_block {
                write!(f, "; {missing}")?;
            }
        }
        Ok(())
    }
}
