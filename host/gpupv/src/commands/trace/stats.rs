//! `gpupv trace stats`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use drivers::Registry;

use super::{FIGURES_ONLY, timeline_of};
use crate::output::say;

/// Arguments of `gpupv trace stats`.
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// The trace file (.gvt)
    pub trace: PathBuf,
    /// Only where the time of wake-ups goes, by part, and the N slowest; needs a trace recorded with --times
    #[arg(long, value_name = "SLOWEST", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    wakes: Option<usize>,
    /// Print the figures as JSON, times in nanoseconds
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &StatsArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let options = timeline::Options { rows_max: FIGURES_ONLY, ..timeline::Options::default() };
    let (timeline, code) = timeline_of(&args.trace, drivers, &options)?;
    if args.wakes.is_some() && timeline.latency.is_none() {
        bail!("{} was recorded without times: record with --times", args.trace.display());
    }
    match (args.wakes, args.json) {
        (Some(slowest), true) => say(format_args!("{:#}", timeline.latency_json(slowest))),
        (Some(slowest), false) => say(format_args!("{}", timeline.latency_text(slowest).trim_end())),
        (None, true) => say(format_args!("{:#}", timeline.stats_json())),
        (None, false) => say(format_args!("{}", timeline.stats_text().trim_end())),
    }
    Ok(code)
}
