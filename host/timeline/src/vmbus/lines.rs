//! A trace as messages of the VM bus: a line for each message, and for what has none there.
//!
//! ```text
//!      seq         time  who   channel       message (DXGK_VMBCOMMAND_)     mode           here
//!      #24    35.000 us  p1    VGPU_TO_HOST  SIGNALSYNCOBJECT (26)          async-capable  SignalFromCpu F0 = 1
//!                        p2    -             (no message: in the guest)     -              slot 3 = 1
//!                        p2    HOST_TO_VM    SIGNALGUESTEVENT (0)           no reply       event 1: SUCCESS
//! ```

use std::collections::BTreeMap;

use d3dkmt::WakeTarget;
use dxgkrnl::{Effects, Input, Nanos, ProcessId};
use trace::Record;

use super::{Counterpart, SYNC_FILE_READY, of_event, of_input, of_store};
use crate::format::{duration, status_name};
use crate::lanes;
use crate::timeline::Timeline;

/// The first line, at most `width` characters.
pub fn heading(width: usize) -> String {
    let columns =
        Columns { who: "who", channel: "channel", message: "message (DXGK_VMBCOMMAND_)", mode: "mode" };
    columns.line(&format!("{:>9} {:>13}  ", "seq", "time"), "here", width)
}

/// The lines of a step, each at most `width` characters; none for a record that is no step.
pub fn lines(timeline: &Timeline, record: &Record, width: usize) -> Vec<String> {
    let Record::Step { sequence, now, input, effects } = record else { return Vec::new() };
    let mut step = Step { sequence: *sequence, now: *now, width, lines: Vec::new() };
    step.say(&of_input(input), &who(input), &input_words(timeline, *sequence, input));
    match effects {
        Some(effects) => step.effects(effects),
        None => step.lines.push("(the kernel did not return)".chars().take(width).collect()),
    }
    step.lines
}

struct Columns<'a> {
    who: &'a str,
    channel: &'a str,
    message: &'a str,
    mode: &'a str,
}

impl Columns<'_> {
    fn line(&self, before: &str, here: &str, width: usize) -> String {
        let Columns { who, channel, message, mode } = self;
        let line = format!("{before}{who:<5} {channel:<13} {message:<30} {mode:<14} {here}");
        if line.chars().count() <= width {
            return line;
        }
        line.chars().take(width.saturating_sub(2)).chain("..".chars().take(width)).collect()
    }
}

struct Step {
    sequence: u64,
    now: Nanos,
    width: usize,
    lines: Vec<String>,
}

impl Step {
    fn say(&mut self, row: &Counterpart, who: &str, here: &str) {
        let before = match self.lines.is_empty() {
            true => format!("{:>9} {:>13}  ", format!("#{}", self.sequence), duration(self.now)),
            false => " ".repeat(lanes::MARGIN),
        };
        let message = row.there.message();
        let columns = Columns {
            who,
            channel: message.map_or("-", |message| message.channel.name()),
            message: &row.there.name(),
            mode: message.map_or("-", |message| message.mode.name()),
        };
        self.lines.push(columns.line(&before, here, self.width));
    }

    /// Memory first, then wake-ups, as they are applied. Bytes that are moved and notes are of the host alone; the
    /// status of an answer stands behind its call.
    fn effects(&mut self, effects: &Effects) {
        let Effects { moves: _, stores, answers: _, events, sync_files, notes: _, driver_answers: _ } =
            effects;
        for store in stores {
            self.say(
                &of_store(store.slot),
                &process(store.process),
                &format!("slot {} = {}", store.slot, store.value),
            );
        }
        // A step may set one event for many waits: they are one line for each kind and status.
        let mut more: BTreeMap<(ProcessId, bool, u32), usize> = BTreeMap::new();
        for event in events {
            let is_driver = matches!(event.target, WakeTarget::GuestEvent(_));
            let said = more.entry((event.process, is_driver, event.status.0)).or_default();
            *said += 1;
            if *said <= EVENTS_MAX {
                let words = format!("{}: {}", event.target, status_name(event.status.0));
                self.say(&of_event(event.target), &process(event.process), &words);
            }
        }
        for ((owner, is_driver, _), said) in more.into_iter().filter(|(_, said)| *said > EVENTS_MAX) {
            let what = if is_driver { "events of the driver" } else { "events" };
            let words = format!("           {} more {what} of {}", said - EVENTS_MAX, process(owner));
            self.lines
                .push(format!("{}{words}", " ".repeat(lanes::MARGIN)).chars().take(self.width).collect());
        }
        for ready in sync_files {
            self.say(
                &SYNC_FILE_READY,
                &format!("vm {}", ready.vm.0),
                &format!("sync file {:?}", ready.token),
            );
        }
    }
}

/// Most wake-ups of one process and status that a step shows each on a line of its own.
const EVENTS_MAX: usize = 16;

fn process(process: ProcessId) -> String {
    format!("p{}", process.0)
}

fn who(input: &Input) -> String {
    match input {
        Input::VmAttached { vm, .. }
        | Input::VmDetached { vm }
        | Input::VmPaused { vm, .. }
        | Input::VmAdapter { vm, .. }
        | Input::MemoryChanged { vm }
        | Input::GuestFeatures { vm, .. }
        | Input::NtHandleClosed { vm, .. } => format!("vm {}", vm.0),
        Input::ProcessAttached { process: of, .. }
        | Input::FenceMemoryAdded { process: of, .. }
        | Input::FenceMemoryMapped { process: of, .. }
        | Input::Call { process: of, .. }
        | Input::ProcessGone { process: of }
        | Input::ProcessFrozen { process: of, .. }
        | Input::DoorbellRung { process: of, .. } => process(*of),
        Input::Deadline | Input::Fault(_) | Input::SystemTime { .. } => "host".into(),
    }
}

/// The words of `trace show` for the input, and whether the guest here waits for an answer.
fn input_words(timeline: &Timeline, sequence: u64, input: &Input) -> String {
    let at = timeline.events.binary_search_by_key(&sequence, |event| event.moment.sequence);
    let words = match at {
        Ok(at) => lanes::call(timeline, &timeline.events[at]),
        Err(_) => input.to_string(),
    };
    match input {
        Input::Call { request: 0, .. } => format!("one-way {words}"),
        Input::Fault(fault) => format!("{words}: {fault}"),
        _ => words,
    }
}
