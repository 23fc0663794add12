//! Formats a submission as text: a line for each command in the words of scenarios, with its lane of time before it and
//! its findings below it.
//!
//! ```text
//!   0 |####    | dispatch fill=5 UNORDERED_ACCESS=filled
//!   1 |    ^   | barrier filled COMPUTE_SHADING -> COPY  UNORDERED_ACCESS -> COPY_SOURCE
//! ```

use std::fmt::Write as _;

use d3dkmt::isa::{Barrier, Packet};
use dxgkrnl::Nanos;
use kmd::engine_tracer::{Agent, CommandId, Ending, Missing, Severity};
use scenario::script::{write_barrier, write_packet};

use super::collect::{Race, Shown, Submission};

/// Columns of a lane.
const LANE: u128 = 24;
/// Columns at which a line of words is broken.
const WIDTH: usize = 110;

/// Formats the whole submission.
pub fn explain(submission: &Submission) -> String {
    let mut text = head(submission);
    for (packet, shown) in submission.packets.iter().enumerate() {
        if packet == 0 && !matches!(shown.packet, Packet::BeginList { .. }) {
            text += "\nlist 0\n";
        }
        if let Packet::BeginList { queue, name, .. } = &shown.packet {
            let _ = writeln!(text, "\nlist {} {name:?} ({queue:?})", shown.list);
            continue;
        }
        let lane = lane(submission, shown);
        let words = write_packet(&shown.packet, &|number| submission.resource(number), &|fence| {
            format!("{fence:#x}")
        });
        let _ = writeln!(text, "{:>4} |{lane}| {words}", shown.command);
        findings(&mut text, submission, packet as u32, shown);
    }
    let elsewhere = submission.begun.messages.iter().filter(|message| {
        !submission.packets.iter().any(|shown| {
            !matches!(shown.packet, Packet::BeginList { .. })
                && (shown.list, shown.command) == (message.place.list, message.place.command)
        })
    });
    for message in elsewhere {
        paragraph(&mut text, "  ", &message.to_string());
    }
    text
}

fn head(submission: &Submission) -> String {
    let begun = &submission.begun;
    let mut text = format!(
        "submission {} of queue {}, process {}, {} engine {} of adapter {}: began at {}",
        begun.of_queue,
        begun.queue,
        begun.process.0,
        begun.engine_type.name(),
        begun.engine.node,
        begun.engine.adapter,
        time(begun.at)
    );
    let _ = match submission.ending {
        Some((at, ending)) => {
            let took = time(at.saturating_sub(begun.at));
            match ending {
                Ending::Complete => writeln!(text, ", complete after {took}"),
                Ending::PageFault(address) => writeln!(text, ", page fault at {address:#x} after {took}"),
                Ending::Illegal => writeln!(text, ", after {took} a command that cannot be"),
                Ending::Reset => writeln!(text, ", ended by a reset after {took}"),
                Ending::Dropped => writeln!(text, ", dropped with its context or queue after {took}"),
                Ending::Stopped => writeln!(text, ", ended after {took}: its adapter was stopped or reset"),
            }
        }
        None => writeln!(text, ", not over at the end of what was looked at"),
    };
    let span = time(submission.end() - begun.at);
    let count = |severity| begun.messages.iter().filter(|one| one.severity == severity).count();
    let errors = count(Severity::Error) + count(Severity::Removed);
    let (hazards, warnings, races) =
        (count(Severity::Hazard), count(Severity::Warning), submission.races.len());
    let _ = writeln!(
        text,
        "debug layer: {errors} errors, {hazards} hazards, {warnings} warnings; races: {races}; a lane is {span}"
    );
    text
}

/// Returns the lane of a packet: `####` while it runs, `^` where it takes no time, `####>` if it never completes.
fn lane(submission: &Submission, shown: &Shown) -> String {
    let begin = submission.begun.at;
    let span = u128::from((submission.end() - begin).max(1));
    let column = |at: Nanos| {
        let at = u128::from(at.saturating_sub(begin));
        (at * LANE / span).min(LANE - 1) as usize
    };
    let mut lane = vec![' '; LANE as usize];
    match (shown.start, shown.end) {
        // Too short to draw; usually a barrier.
        (Some(start), Some(end)) if u128::from(end.saturating_sub(start)) * LANE * 10 < span => {
            lane[column(end)] = '^';
        }
        (Some(start), Some(end)) if end != Nanos::MAX => {
            // The last column that the packet reaches into.
            let last =
                (u128::from(end.saturating_sub(begin)) * LANE).div_ceil(span).clamp(1, LANE) as usize - 1;
            let first = column(start);
            lane[first..=last.max(first)].fill('#');
        }
        (Some(start), _) => {
            lane[column(start)..].fill('#');
            lane[LANE as usize - 1] = '>';
        }
        (None, Some(end)) => lane[column(end)] = '^',
        (None, None) => {}
    }
    lane.into_iter().collect()
}

fn findings(text: &mut String, submission: &Submission, packet: u32, shown: &Shown) {
    for message in submission.messages(shown) {
        paragraph(text, "     | ", &message.to_string());
    }
    for race in submission.races.iter().filter(|race| race.packet == packet) {
        race_lines(text, submission, race);
    }
}

fn race_lines(text: &mut String, submission: &Submission, race: &Race) {
    let report = &race.report;
    let mut whole = report.to_string();
    if report.earlier.agent == report.later.agent
        && report.earlier.command.submission == report.later.command.submission
    {
        // Both accesses are in this submission, so their place is given by list and command instead.
        for accessed in [&report.earlier, &report.later] {
            let CommandId { submission, packet } = accessed.command;
            let place = format!(" by {}, submission {submission}, packet {packet}", accessed.agent);
            whole = whole.replacen(&place, "", 1);
        }
    }
    let (what, _) = whole.split_once("; missing: ").unwrap_or((&whole, ""));
    let name = submission.raced_on(race);
    let on = if name.is_empty() { String::new() } else { format!(" on {name}") };
    let other = other_access(submission, race);
    paragraph(text, "     | ", &format!("race{on} with {other}: {what}"));
    match report.missing {
        Missing::Barrier { sync_before, sync_after, access_before, access_after } => {
            let barrier = Barrier { sync_before, sync_after, access_before, access_after };
            let _ = writeln!(text, "     |   missing between them: {}", write_barrier(&barrier, &name));
        }
        Missing::Fence { signals, waits } => {
            let _ = writeln!(
                text,
                "     |   missing between them: a fence that {signals} signals behind its access and {waits} waits for before its own"
            );
        }
    }
}

/// Names the other access of a race, as a person can find it.
pub fn other_access(submission: &Submission, race: &Race) -> String {
    let (earlier, later) = (&race.report.earlier, &race.report.later);
    let is_own = |accessed: &kmd::engine_tracer::Accessed| {
        let owner = (accessed.agent, accessed.command.submission);
        owner == (Agent::Queue(submission.begun.queue), submission.begun.of_queue)
    };
    let other = if is_own(later) && later.command.packet == race.packet { earlier } else { later };
    if is_own(other) {
        let position = submission.packets.get(other.command.packet as usize);
        return position.map_or_else(
            || format!("packet {}", other.command.packet),
            |position| format!("command {} of list {}", position.command, position.list),
        );
    }
    match other.agent {
        Agent::Queue(queue) => format!("submission {} of queue {queue}", other.command.submission),
        Agent::Process(process) => format!("the CPU of process {process}"),
    }
}

/// Appends words, broken into lines of at most [`WIDTH`] columns.
fn paragraph(text: &mut String, margin: &str, words: &str) {
    let mut line = String::new();
    let mut indent = "! ";
    for word in words.split(' ') {
        if !line.is_empty() && line.len() + word.len() + 1 > WIDTH {
            let _ = writeln!(text, "{margin}{indent}{line}");
            line.clear();
            indent = "  ";
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    let _ = writeln!(text, "{margin}{indent}{line}");
}

/// Formats a time in the most readable unit.
pub fn time(nanos: Nanos) -> String {
    let (unit, length) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => ("us", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let (whole, rest) = (nanos / length, nanos % length);
    if rest == 0 {
        return format!("{whole} {unit}");
    }
    let digits = length.ilog10() as usize;
    format!("{whole}.{} {unit}", format!("{rest:0digits$}").trim_end_matches('0'))
}
