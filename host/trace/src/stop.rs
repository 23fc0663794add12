//! Points at which a replay stops.

use std::fmt;
use std::str::FromStr;

use d3dkmt::{EventId, Handle};
use dxgkrnl::{Effects, Kernel, Nanos, ProcessId, duration};

/// A point of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// `seq=N`: before this step.
    Sequence(u64),
    /// `time=1.5ms`: before the first step at this time or after it.
    Time(Nanos),
    /// `fence=p2:0x40000080>=5`: after the step that brings this process's fence to the value or above.
    Fence { process: ProcessId, handle: Handle, value: u64 },
    /// `wait=p2:7`: after the step that ends the wait with this event.
    Wait { process: ProcessId, event: EventId },
    /// `note=TEXT`: after a step with a note that contains the text.
    Note(String),
}

impl Stop {
    /// Whether to stop before this step. A time must be resolved first.
    pub(crate) fn is_before(&self, sequence: u64) -> bool {
        matches!(self, Stop::Sequence(at) if sequence >= *at)
    }

    /// Whether to stop after the step with these effects.
    pub(crate) fn is_behind(&self, kernel: &Kernel, effects: &Effects) -> bool {
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

/// Error for a text that is no valid stop; it shows the valid forms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoStop {
    text: String,
    why: &'static str,
}

impl fmt::Display for NoStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a point of a trace: {}; write seq=120, time=1.5ms, 'fence=p2:0x40000080>=5' (in quotes, because \
             a shell takes the > as a redirection), wait=p2:7 or note=TEXT",
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
        "seq" => number(rest).map(Stop::Sequence).ok_or("seq= needs the number of a step"),
        // A number without a unit is in nanoseconds.
        "time" => number(rest)
            .or_else(|| duration::parse(rest))
            .map(Stop::Time)
            .ok_or("time= needs a time since the start"),
        "fence" => {
            let form = "fence= needs a process, one of its handles, and a value";
            let (process, rest) = process(rest).ok_or(form)?;
            let (handle, value) = rest.split_once(">=").ok_or(form)?;
            let handle =
                number(handle).and_then(|handle| u32::try_from(handle).ok()).map(Handle).ok_or(form)?;
            Ok(Stop::Fence { process, handle, value: number(value).ok_or(form)? })
        }
        "wait" => {
            let form = "wait= needs a process and the event of a wait";
            let (process, event) = process(rest).ok_or(form)?;
            Ok(Stop::Wait { process, event: EventId(number(event).ok_or(form)?) })
        }
        "note" if !rest.is_empty() => Ok(Stop::Note(rest.to_owned())),
        "note" => Err("note= needs a part of the note's text"),
        _ => Err("unknown kind of point"),
    }
}
