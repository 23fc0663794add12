//! `gpupv trace`: what can be done with a recorded trace besides replaying it. One module for each word.

mod diff;
mod dump;
mod export;
mod pack;
pub(crate) mod recorded;
mod reorder;
mod show;
mod shrink;
mod stats;
mod verify;

use std::path::Path;

use clap::{Args, Subcommand};
use drivers::Registry;
use timeline::Timeline;
use trace::Reader;

use crate::output::{OK, Steps, VERDICT_FAILED, complain};

/// Arguments of `gpupv trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Lanes of text: who did what, in their order, around a step, a wait, a fence or a process
    Show(show::ShowArgs),
    /// Figures: calls, statuses, waits and their ages, processes, engines, the busiest fences
    Stats(stats::StatsArgs),
    /// A picture: an HTML page, a Perfetto trace, SVG; or text, or JSON
    Export(export::ExportArgs),
    /// What differs between two traces, by cause and not by time
    Diff(diff::DiffArgs),
    /// The smallest scenario that shows what is wrong at its end: a wait that is stuck, a law that is broken
    Shrink(shrink::ShrinkArgs),
    /// Other orders in which its steps could have come: which hang, break a law, or end with other values
    Reorder(reorder::ReorderArgs),
    /// Read a trace to its end and say what of it is lost
    Verify(verify::VerifyArgs),
    /// Write a copy in fewer bytes, which is read like the trace itself
    Pack(pack::PackArgs),
    /// Write what a daemon's flight recorder has into a trace
    Dump(dump::DumpArgs),
}

pub fn run(args: &TraceArgs, drivers: &Registry) -> anyhow::Result<u8> {
    match &args.command {
        Command::Show(args) => show::run(args, drivers),
        Command::Stats(args) => stats::run(args, drivers),
        Command::Export(args) => export::run(args, drivers),
        Command::Diff(args) => diff::run(args),
        Command::Shrink(args) => shrink::run(args, drivers),
        Command::Reorder(args) => reorder::run(args, drivers),
        Command::Verify(args) => verify::run(args),
        Command::Pack(args) => pack::run(args),
        Command::Dump(args) => dump::run(args),
    }
}

/// What can be drawn of a trace, and the exit code for it: a trace that cannot be read to its end is a finding.
fn timeline_of(
    path: &Path,
    drivers: &Registry,
    options: &timeline::Options,
) -> anyhow::Result<(Timeline, u8)> {
    let steps = Steps::new();
    let reader = Reader::open(path)?;
    let timeline = timeline::read(reader, drivers, options, &mut |done, all| {
        steps.step(format!("reading {}: {}%", path.display(), done * 100 / all.max(1)));
    })?;
    steps.finish();
    let words = timeline.integrity_words();
    for line in words.lines().filter(|line| !line.is_empty()) {
        complain(format_args!("{}: {line}", path.display()));
    }
    let code = if timeline.integrity.stopped.is_some() { VERDICT_FAILED } else { OK };
    Ok((timeline, code))
}
