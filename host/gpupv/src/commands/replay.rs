//! `gpupv replay`: feeds a recorded trace to a new kernel and compares.

use std::path::PathBuf;

use clap::Args;
use drivers::Registry;
use serde_json::json;
use trace::{Report, TraceError};

use crate::output::{OK, Steps, VERDICT_FAILED, say};

/// Arguments of `gpupv replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// The trace file (.gvt)
    pub trace: PathBuf,
    /// Print the verdict as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &ReplayArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let steps = Steps::new();
    let result = trace::replay(&args.trace, drivers, &mut |done, all| {
        steps.step(format!("replaying {}: {}%", args.trace.display(), done * 100 / all.max(1)));
    });
    steps.finish();
    let report = match result {
        Ok(report) => report,
        // Even the header is gone: still a finding about the trace, not a mistake of the caller.
        Err(error @ TraceError::Damaged { .. }) => {
            print(args, "damaged", None, &error.to_string());
            return Ok(VERDICT_FAILED);
        }
        Err(error) => return Err(error.into()),
    };
    print(args, report.verdict.name(), Some(&report), &report.to_string());
    Ok(if report.agrees() { OK } else { VERDICT_FAILED })
}

fn print(args: &ReplayArgs, verdict: &str, report: Option<&Report>, text: &str) {
    if args.json {
        let steps = report.map(|report| report.steps);
        let ended = report.map(|report| report.ended);
        let value = json!({
            "trace": args.trace, "verdict": verdict, "steps": steps, "ended": ended, "report": text,
        });
        say(format_args!("{value}"));
    } else {
        say(format_args!("{text}"));
    }
}
