//! `gpupv trace diff`.

use std::path::PathBuf;

use clap::Args;
use trace::Reader;

use crate::output::{OK, VERDICT_FAILED, say};

/// Arguments of `gpupv trace diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// One trace (.gvt)
    pub a: PathBuf,
    /// The trace that is compared with it
    pub b: PathBuf,
    /// Print the differences as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &DiffArgs) -> anyhow::Result<u8> {
    let found = timeline::diff::diff(&|| Reader::open(&args.a), &|| Reader::open(&args.b))?;
    match args.json {
        true => say(format_args!("{:#}", found.json())),
        false => say(format_args!("{}", found.to_string().trim_end())),
    }
    Ok(if found.is_same() { OK } else { VERDICT_FAILED })
}
