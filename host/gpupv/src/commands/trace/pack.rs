//! `gpupv trace pack`: writes the same trace in fewer bytes.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use trace::Packed;

use crate::output::{OK, say};

/// Arguments of `gpupv trace pack`.
#[derive(Args, Debug)]
pub struct PackArgs {
    /// The trace file (.gvt); its open block (.gvt.open) is included
    pub trace: PathBuf,
    /// The file to write (.gvt), which must not exist
    pub output: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &PackArgs) -> anyhow::Result<u8> {
    let Packed { before, after } = trace::pack(&args.trace, &args.output)?;
    let PackArgs { trace, output, .. } = args;
    if args.json {
        say(format_args!(
            "{:#}",
            json!({ "trace": trace, "output": output, "before": before, "after": after })
        ));
    } else {
        let percent = after * 100 / before.max(1);
        say(format_args!("{}: {after} bytes, {percent}% of {before}", output.display()));
    }
    Ok(OK)
}
