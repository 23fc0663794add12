//! Where a replay is to stop.

use std::fmt;
use std::str::FromStr;

use d3dkmt::{EventId, Handle};
use drivers::Drivers;
use dxgkrnl::{Effects, Kernel, Nanos, ProcessId, duration};

/// A point of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// `seq=N`: before this step.
    Sequence(u64),
    /// `time=1.5ms`: before the first step at this time or after it.
    Time(Nanos),
    /// `fence=p2:0x40000080>=5`: behind the step with which the fence that this process has under this handle is at or
    /// above the value.
    Fence { process: ProcessId, handle: Handle, value: u64 },
    /// `wait=p2:7`: behind the step with which the wait of this event ends.
    Wait { process: ProcessId, event: EventId },
    /// `note=TEXT`: behind a step with a note that has this in it.
    Note(String),
}

impl Stop {
    /// Whether it is to stop before this step. A time has to be resolved first.
    pub(crate) fn is_before(&self, sequence: u64) -> bool {
        matches!(self, Stop::Sequence(at) if sequence >= *at)
    }

    /// Whether it is to stop behind the step with these effects.
    pub(crate) fn is_behind(&self, kernel: &Kernel<Drivers>, effects: &Effects) -> bool {
        match self {
            Stop::Sequence(_) | Stop::Time(_) => false,
            Stop::Fence { process, handle, value } => {
                kernel.object(*process, *handle).is_some_and(|object| object.value >= *value)
            }
            Stop::Wait { process, event } => effects
                .events
                .iter()
                .any(|wake| (wake.process, wake.target.event()) == (*process, Some(*event))),
            Stop::Note(text) => effects.notes.iter().any(|note| note.text.contains(text)),
        }
    }
}

/// The forms, for whoever wrote none of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoStop {
    text: String,
    why: &'static str,
}

impl fmt::Display for NoStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no place in a trace: {}; write seq=120, time=1.5ms, fence=p2:0x40000080>=5, wait=p2:7 or note=TEXT",
            self.text, self.why
        )
    }
}

impl std::error::Error for NoStop {}

/// `p2` in `p2:..`, and what follows.
fn process(text: &str) -> Option<(ProcessId, &str)> {
    let (number, rest) = text.strip_prefix('p')?.split_once(':')?;
    Some((ProcessId(number.parse().ok()?), rest))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl FromStr for Stop {
    type Err = NoStop;

    fn from_str(text: &str) -> Result<Stop, NoStop> {
        parse(text).map_err(|why| NoStop { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<Stop, &'static str> {
    let (kind, rest) = text.split_once('=').ok_or("it has no =")?;
    match kind {
        "seq" => number(rest).map(Stop::Sequence).ok_or("behind seq= comes the number of a step"),
        // A plain number is one of nanoseconds.
        "time" => number(rest)
            .or_else(|| duration::parse(rest))
            .map(Stop::Time)
            .ok_or("behind time= comes a time since the start"),
        "fence" => {
            let form = "behind fence= come a process, a handle of its, and a value";
            let (process, rest) = process(rest).ok_or(form)?;
            let (handle, value) = rest.split_once(">=").ok_or(form)?;
            let handle =
                number(handle).and_then(|handle| u32::try_from(handle).ok()).map(Handle).ok_or(form)?;
            Ok(Stop::Fence { process, handle, value: number(value).ok_or(form)? })
        }
        "wait" => {
            let form = "behind wait= come a process and the event of a wait";
            let (process, event) = process(rest).ok_or(form)?;
            Ok(Stop::Wait { process, event: EventId(number(event).ok_or(form)?) })
        }
        "note" if !rest.is_empty() => Ok(Stop::Note(rest.to_owned())),
        "note" => Err("behind note= comes a piece of the note"),
        _ => Err("there is no such kind of place"),
    }
}
