//! `gpupv explain`: shows what an engine did with a command list: overlapping commands, the debug layer's messages, and
//! the races, each at the command that it concerns.
//!
//! A trace is replayed over a traced driver (`kmd::engine_tracer`), with hazard detection on every adapter; a raw
//! command buffer is run by itself. This module decides nothing: each reason is from the code that ran.

mod collect;
mod raw;
mod submission_text;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;
use drivers::{Registry, SIMULATED};
use serde_json::{Value, json};
use trace::{Player, PlayerStep, Reader, open_regular};

use crate::commands::trace::{FIGURES_ONLY, process_of};
use crate::output::{OK, VERDICT_FAILED, say};
use collect::{Log, Submission, WITNESSED};

/// Maximum number of submissions that are shown.
const SHOWN_MAX: usize = 20;
/// The first bytes of a command buffer.
const MAGIC: &[u8] = b"GPV1";

/// Arguments of `gpupv explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// A trace (.gvt), or a file with one command buffer
    pub file: PathBuf,
    /// Only submissions of this process of a trace, by its name or its number: p2
    #[arg(long, value_name = "PROCESS")]
    pub process: Option<String>,
    /// Only submissions of this queue, by its number in reports of races
    #[arg(long, value_name = "Q")]
    pub queue: Option<u64>,
    /// Only the submission of this number in its queue, from 1
    #[arg(long, value_name = "N")]
    pub submission: Option<u64>,
    /// Only submissions with a debug-layer message or a race
    #[arg(long)]
    pub wrong: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl ExplainArgs {
    /// Returns the number of the process that --process names.
    fn chosen_process(&self, drivers: &Registry) -> anyhow::Result<Option<u32>> {
        let Some(wanted) = &self.process else { return Ok(None) };
        let options = timeline::Options { rows_max: FIGURES_ONLY, ..timeline::Options::default() };
        let timeline = timeline::read(Reader::open(&self.file)?, drivers, &options, &mut |_, _| {})?;
        process_of(wanted, &timeline).map(Some)
    }

    /// Whether a submission is one that the options name.
    fn names(&self, process: Option<u32>, submission: &Submission) -> bool {
        let begun = &submission.begun;
        submission.has_lists()
            && process.is_none_or(|process| process == begun.process.0)
            && self.queue.is_none_or(|queue| queue == begun.queue)
            && self.submission.is_none_or(|number| number == begun.of_queue)
    }

    fn chooses(&self, process: Option<u32>, submission: &Submission) -> bool {
        let is_wrong = || !submission.begun.messages.is_empty() || !submission.races.is_empty();
        self.names(process, submission) && (!self.wrong || is_wrong())
    }

    fn is_selective(&self) -> bool {
        self.process.is_some() || self.queue.is_some() || self.submission.is_some()
    }
}

pub fn run(args: &ExplainArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let (explained, code) = explain(args, drivers)?;
    say(format_args!("{}", explained.trim_end()));
    Ok(code)
}

/// Returns the text, or the JSON, of the chosen submissions, and the exit code: 1 if the trace was not replayed to its
/// end.
fn explain(args: &ExplainArgs, drivers: &Registry) -> anyhow::Result<(String, u8)> {
    let log = Log::default();
    let shown = args.file.display();
    let mut head = [0; 4];
    let mut file = open_regular(&args.file).with_context(|| format!("{shown} cannot be opened"))?;
    let read =
        std::io::Read::read(&mut file, &mut head).with_context(|| format!("{shown} cannot be read"))?;
    let mut process = None;
    let Replayed { note, is_complete } = if head[..read] == *MAGIC {
        ensure!(args.process.is_none(), "{shown} is one command buffer, of no process: leave out --process");
        let bytes = std::fs::read(&args.file).with_context(|| format!("{shown} cannot be read"))?;
        let note = raw::run(&log, &bytes).with_context(|| format!("{shown} cannot be explained"))?;
        Replayed { note, is_complete: true }
    } else {
        process = args.chosen_process(drivers)?;
        replay(args, drivers, &log)?
    };
    let code = if is_complete { OK } else { VERDICT_FAILED };
    let all = log.submissions();
    let with_lists = all.iter().filter(|one| one.has_lists()).count();
    let none = format!("no submission matches the options; {with_lists} have command lists");
    ensure!(!args.is_selective() || all.iter().any(|one| args.names(process, one)), "{note}{none}");
    let chosen: Vec<&Submission> = all.iter().filter(|one| args.chooses(process, one)).collect();
    if args.json {
        let value: Vec<Value> = chosen.iter().map(|one| as_json(one)).collect();
        let value = json!({ "file": args.file, "note": note.trim_end(), "submissions": value });
        return Ok((value.to_string(), code));
    }
    if chosen.is_empty() {
        return Ok((format!("{note}{none}\n"), code));
    }
    let texts: Vec<String> = chosen.iter().take(SHOWN_MAX).map(|one| submission_text::explain(one)).collect();
    let more = chosen.len().saturating_sub(SHOWN_MAX);
    let rest = match more {
        0 => String::new(),
        more => format!("\nand {more} more: choose with --process, --queue, --submission or --wrong\n"),
    };
    Ok((format!("{note}{}{rest}", texts.join("\n")), code))
}

/// Facts about a replay, besides its submissions.
struct Replayed {
    /// What a reader must know of it; empty if nothing.
    note: String,
    /// The replay came to the end of the file, with every step that the file says it has.
    is_complete: bool,
}

impl Replayed {
    fn up_to(note: String) -> Replayed {
        Replayed { note, is_complete: false }
    }
}

/// Replays the trace over traced drivers.
fn replay(args: &ExplainArgs, drivers: &Registry, log: &Log) -> anyhow::Result<Replayed> {
    let reader = Reader::open(&args.file)?;
    let mut config = reader.header().config.clone();
    for adapter in config.adapters.iter_mut().filter(|adapter| adapter.kmd == SIMULATED) {
        adapter.kmd = WITNESSED.into();
        adapter.hazards = true;
    }
    let mut player = Player::observing(reader, &log.registry(drivers), config)?;
    let mut all = Replayed { note: String::new(), is_complete: true };
    loop {
        let step = player.play()?;
        if let PlayerStep::Step { now, .. } = step {
            log.step_ended(now);
        }
        match step {
            PlayerStep::Over if !player.has_begun() => {
                let why = "the trace begins later than at the first step and has no snapshot: there is nothing to begin \
                           with\n";
                return Ok(Replayed::up_to(why.into()));
            }
            PlayerStep::Over => return Ok(all),
            PlayerStep::Lost(lost) if lost.loses_steps() => {
                let why = format!("the trace is damaged; the steps after the damage are not shown: {lost}\n");
                return Ok(Replayed::up_to(all.note + &why));
            }
            PlayerStep::Stopped(verdict) => {
                let why = trace::explain(&mut player, verdict)?;
                return Ok(Replayed::up_to(format!("{}{why}\n", all.note)));
            }
            PlayerStep::Lost(lost) => {
                all.note += &format!("the trace is damaged: {lost}\n");
                all.is_complete = false;
            }
            PlayerStep::Snapshot { sequence, restored: true, .. } => all.note += &begins_at(sequence),
            PlayerStep::Step { .. } | PlayerStep::Snapshot { .. } | PlayerStep::End { .. } => {}
        }
    }
}

/// The note of a trace that begins with a snapshot before this step.
fn begins_at(sequence: u64) -> String {
    format!(
        "the trace begins at step {sequence}: submissions that began before it are not shown, races with them are not \
         seen, a texture's layout is not checked before a barrier has set it, and submissions of a queue may be counted \
         from there\n"
    )
}

fn as_json(submission: &Submission) -> Value {
    let begun = &submission.begun;
    let packets = submission.packets.iter().map(|shown| {
        let words = scenario::script::write_packet(
            &shown.packet,
            &|number| submission.resource(number),
            &|fence| format!("{fence:#x}"),
        );
        json!({
            "list": shown.list, "command": shown.command, "text": words, "start_ns": shown.start, "end_ns": shown.end,
        })
    });
    let messages = begun.messages.iter().map(|message| {
        json!({
            "rule": format!("R-{:03}", message.rule as u8), "id": message.id,
            "severity": format!("{:?}", message.severity).to_lowercase(), "list": message.place.list,
            "command": message.place.command, "barrier": message.place.barrier, "text": message.text.as_str(),
        })
    });
    let races = submission.races.iter().map(|race| {
        let name = Some(&race.name).filter(|name| !name.is_empty());
        json!({
            "packet": race.packet, "resource": name, "with": submission_text::other_access(submission, race),
            "text": race.report.to_string(), "missing": race.report.missing.to_string(),
        })
    });
    let ending = submission.ending.map(|(at, ending)| json!({ "at_ns": at, "how": format!("{ending:?}") }));
    json!({
        "submission": begun.of_queue, "queue": begun.queue, "process": begun.process.0,
        "adapter": begun.engine.adapter, "node": begun.engine.node, "engine": begun.engine_type.name(),
        "began_ns": begun.at, "over": ending, "packets": packets.collect::<Vec<_>>(),
        "messages": messages.collect::<Vec<_>>(), "races": races.collect::<Vec<_>>(),
    })
}
