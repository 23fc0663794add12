//! `gpupv trace verify`: reports which parts of a trace are intact, and exactly which are lost.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use trace::{Findings, Lost, Reader, TraceError};

use crate::output::{OK, VERDICT_FAILED, say};

/// Arguments of `gpupv trace verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The trace file (.gvt); its open block (.gvt.open) is read with it
    pub trace: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &VerifyArgs) -> anyhow::Result<u8> {
    let found = match Reader::open(&args.trace).and_then(trace::verify) {
        Ok(found) => found,
        // Even the header is lost: still a finding about the trace, not an error of the caller.
        Err(TraceError::Damaged { path, lost }) => {
            let of = lost_of(&lost);
            let report = TraceError::Damaged { path, lost }.to_string();
            if args.json {
                let value = json!({ "trace": args.trace, "whole": false, "lost": [of], "report": report });
                say(format_args!("{value:#}"));
            } else {
                say(format_args!("{report}"));
            }
            return Ok(VERDICT_FAILED);
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        say(format_args!("{:#}", json_of(args, &found)));
    } else {
        say(format_args!("{found}"));
    }
    Ok(if found.is_whole() { OK } else { VERDICT_FAILED })
}

fn json_of(args: &VerifyArgs, found: &Findings) -> Value {
    let blocks: serde_json::Map<String, Value> =
        found.blocks.iter().map(|(kind, count)| (kind.name().to_owned(), (*count).into())).collect();
    json!({
        "trace": args.trace,
        "whole": found.is_whole(),
        "ended": found.ended,
        "program": found.program,
        "steps": found.steps,
        "first_step": found.range.map(|range| range.0),
        "last_step": found.range.map(|range| range.1),
        "snapshots": found.snapshots,
        "bytes": found.bytes,
        "blocks": blocks,
        "lost_steps": found.lost_steps(),
        "lost": found.lost.iter().map(lost_of).collect::<Vec<_>>(),
        "out_of_place": found.out_of_place,
        "unknown": found.unknown,
        "skipped": found.skipped,
        "unfinished": found.unfinished,
        "report": found.to_string(),
    })
}

fn lost_of(lost: &Lost) -> Value {
    let Lost { from, to, bytes, offset, why } = lost;
    json!({ "from": from, "to": to, "steps": lost.steps(), "bytes": bytes, "offset": offset, "why": why })
}
