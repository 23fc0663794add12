//! `gpupv trace`: the tools for recorded traces besides `gpupv replay`. One module for each subcommand.

mod diff;
mod dump;
mod export;
mod open;
mod pack;
pub(crate) mod recorded;
mod reorder;
mod show;
mod shrink;
mod stats;
mod verify;

use std::borrow::Cow;
use std::path::Path;

use anyhow::bail;
use clap::{Args, Subcommand};
use drivers::Registry;
use timeline::{Timeline, TrackKind};
use trace::Reader;

use crate::daemon::naming::recorded_process_named;
use crate::output::{OK, Steps, VERDICT_FAILED, complain};

/// Arguments of `gpupv trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show steps as lanes of text, in order, around a step, a wait, a fence or a process
    Show(show::ShowArgs),
    /// Print figures: calls, statuses, waits and their ages, processes, engines, the busiest fences
    Stats(stats::StatsArgs),
    /// Write a picture: an HTML page, or a Perfetto trace
    Export(export::ExportArgs),
    /// Show the HTML page in a browser: serve it to this user on 127.0.0.1 until Ctrl-C
    Open(open::OpenArgs),
    /// Show the differences between two traces, compared by cause and not by time
    Diff(diff::DiffArgs),
    /// Find the smallest scenario that shows the failure at the end of a trace: a stuck wait, a broken law
    Shrink(shrink::ShrinkArgs),
    /// Run other legal orders of a trace's steps, and report those that hang, break a law or end with other values
    Reorder(reorder::ReorderArgs),
    /// Read a trace to its end and report lost parts
    Verify(verify::VerifyArgs),
    /// Write a smaller copy, which is read like the trace itself
    Pack(pack::PackArgs),
    /// Write the contents of a daemon's flight recorder into a trace
    Dump(dump::DumpArgs),
}

pub fn run(args: &TraceArgs, drivers: &Registry) -> anyhow::Result<u8> {
    match &args.command {
        Command::Show(args) => show::run(args, drivers),
        Command::Stats(args) => stats::run(args, drivers),
        Command::Export(args) => export::run(args, drivers),
        Command::Open(args) => open::run(args, drivers),
        Command::Diff(args) => diff::run(args),
        Command::Shrink(args) => shrink::run(args, drivers),
        Command::Reorder(args) => reorder::run(args, drivers),
        Command::Verify(args) => verify::run(args),
        Command::Pack(args) => pack::run(args),
        Command::Dump(args) => dump::run(args),
    }
}

/// The steps that a picture shows.
#[derive(Args, Debug)]
struct Window {
    /// First step to draw
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: u64,
    /// Last step to draw
    #[arg(long, value_name = "SEQ")]
    to: Option<u64>,
}

impl Window {
    fn options(&self) -> anyhow::Result<timeline::Options> {
        let window = (self.from, self.to.unwrap_or(u64::MAX));
        if window.0 > window.1 {
            bail!("--from {} is after --to {}: no step is between them", window.0, window.1);
        }
        Ok(timeline::Options { window, ..timeline::Options::default() })
    }
}

/// The heading of a picture: the name of the trace's file.
fn title_of(trace: &Path) -> Cow<'_, str> {
    trace.file_name().unwrap_or(trace.as_os_str()).to_string_lossy()
}

/// Finds the process of a trace by its name or its number.
pub(crate) fn process_of(wanted: &str, timeline: &Timeline) -> anyhow::Result<u32> {
    let processes = timeline.tracks.iter().filter_map(|track| match track.kind {
        // Its name has its number in front.
        TrackKind::Process { process, .. } => {
            Some((process.0, track.name.split_once(' ').map_or("", |(_, name)| name)))
        }
        TrackKind::Kernel
        | TrackKind::Vm(_)
        | TrackKind::Queue { .. }
        | TrackKind::Adapter(_)
        | TrackKind::Engine(_) => None,
    });
    recorded_process_named(wanted, processes).map_err(anyhow::Error::msg)
}

/// [`timeline::Options::rows_max`] where only figures are printed.
pub(crate) const FIGURES_ONLY: usize = 1;

/// Returns the timeline of a trace, and the exit code: a trace that cannot be read to its end is a finding.
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
    // Figures cover all rows.
    let left_out = if options.rows_max == FIGURES_ONLY { String::new() } else { timeline.left_out_words() };
    for line in words.lines().chain([left_out.as_str()]).filter(|line| !line.is_empty()) {
        complain(format_args!("{}: {line}", path.display()));
    }
    let (begin, end) = (timeline.begin.sequence, timeline.end.sequence);
    let code = if timeline.integrity.stopped.is_some() { VERDICT_FAILED } else { OK };
    // The steps may be behind the damage.
    let may_be_lost = code == VERDICT_FAILED && options.window.0 > end;
    if timeline.events.is_empty() && end > 0 && !may_be_lost {
        bail!("no step of {} is from --from to --to: it has the steps #{begin} to #{end}", path.display());
    }
    Ok((timeline, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_without_steps_is_refused_with_the_steps_that_there_are() {
        let trace = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traces/hang.gvt"));
        let read = |from, to| {
            let options = Window { from, to }.options().unwrap();
            timeline_of(trace, &Registry::default(), &options).map(|(timeline, _)| timeline.events.len())
        };
        assert_eq!(read(3, Some(5)).unwrap(), 3);
        let error = read(1_000_000, None).unwrap_err().to_string();
        assert!(error.contains("hang.gvt is from --from to --to: it has the steps #1 to #"), "{error}");
    }

    #[test]
    fn a_window_beyond_the_damage_of_a_trace_is_that_damage() {
        let trace = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traces/hang.gvt"));
        let bytes = std::fs::read(trace).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |from| {
            let options = Window { from, to: None }.options().unwrap();
            let read = timeline_of(file.path(), &Registry::default(), &options);
            read.map(|(timeline, code)| (timeline.end.sequence, code))
        };
        let damaged = (1..bytes.len()).rev().find_map(|length| {
            std::fs::write(file.path(), &bytes[..length]).unwrap();
            read(0).ok().filter(|(last, code)| *last > 0 && *code == VERDICT_FAILED)
        });
        let (last, _) = damaged.expect("it can be cut within its steps");
        assert_eq!(read(last + 1).unwrap(), (last, VERDICT_FAILED));
    }
}
