//! `gpupv scenario merge`: merges the reports of shards.

use std::path::PathBuf;

use clap::Args;

use crate::commands::scenario::explore::{OutputArgs, Totals, conclude};
use crate::commands::scenario::explored::{merge_all, read};
use crate::output::say;

/// Arguments of `gpupv scenario merge`.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// The files that `explore --shard K/N --report FILE` wrote, of every shard, in any order
    #[arg(required = true, value_name = "REPORT")]
    pub reports: Vec<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn run(args: &MergeArgs) -> anyhow::Result<u8> {
    let mut parts = Vec::new();
    for path in &args.reports {
        parts.extend(read(path)?);
    }
    let totals = merge_all(&parts)?;
    args.output.prepare()?;
    for total in &totals {
        say(format_args!("{}", total.text().trim_end()));
    }
    conclude(&Totals::of_seeds(totals), &args.output)
}
