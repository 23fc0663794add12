//! `gpupv scenario list`: lists the available scenarios.

use std::collections::BTreeSet;

use clap::Args;
use scenario::{Backend, Program};
use serde_json::{Value, json};

use crate::commands::scenario::PathArgs;
use crate::commands::scenario::files::{Corpus, ScenarioFile};
use crate::output::{OK, say};

/// Arguments of `gpupv scenario list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    pub paths: PathArgs,
    /// Print JSON, with the name of every case
    #[arg(long)]
    pub json: bool,
}

/// Metadata of a file, over all its cases.
struct Summary<'a> {
    file: &'a ScenarioFile,
    tags: BTreeSet<&'a str>,
    covers: BTreeSet<&'a str>,
    /// Backends that some or all cases skip, each with the reason.
    skips: BTreeSet<(Backend, &'a str)>,
}

fn summary(file: &ScenarioFile) -> Summary<'_> {
    fn all<'a, T: Ord>(file: &'a ScenarioFile, of: impl Fn(&'a Program) -> Vec<T>) -> BTreeSet<T> {
        file.programs.iter().flat_map(of).collect()
    }
    Summary {
        file,
        tags: all(file, |program| program.tags.iter().map(String::as_str).collect()),
        covers: all(file, |program| program.covers.iter().map(String::as_str).collect()),
        skips: all(file, |program| {
            program.not_on.iter().map(|(backend, reason)| (*backend, reason.as_str())).collect()
        }),
    }
}

fn title(file: &ScenarioFile) -> &str {
    file.programs.first().map(|program| program.title.as_str()).unwrap_or_default()
}

fn print(summary: &Summary<'_>) {
    let file = summary.file;
    let cases = match file.programs.len() {
        1 => String::new(),
        count => format!(" ({count} cases)"),
    };
    say(format_args!("{}{cases}: {}", file.name, title(file)));
    for (what, words) in [("tags", &summary.tags), ("covers", &summary.covers)] {
        if !words.is_empty() {
            say(format_args!("    {what} {}", words.iter().copied().collect::<Vec<_>>().join(" ")));
        }
    }
    for (backend, reason) in &summary.skips {
        say(format_args!("    not on {}: {reason}", backend.name()));
    }
}

fn to_json(summary: &Summary<'_>) -> Value {
    let cases: Vec<&str> = summary.file.programs.iter().map(|program| program.case.as_str()).collect();
    let skips =
        summary.skips.iter().map(|(backend, reason)| json!({"backend": backend.name(), "reason": reason}));
    json!({
        "file": summary.file.name,
        "title": title(summary.file),
        "cases": cases,
        "tags": summary.tags,
        "covers": summary.covers,
        "skips": skips.collect::<Vec<_>>(),
    })
}

pub fn run(args: &ListArgs) -> anyhow::Result<u8> {
    let files = Corpus::read_sound(&args.paths.paths)?;
    let summaries: Vec<Summary<'_>> = files.iter().map(summary).collect();
    if args.json {
        say(format_args!("{}", json!({"files": summaries.iter().map(to_json).collect::<Vec<_>>()})));
        return Ok(OK);
    }
    summaries.iter().for_each(print);
    let cases: u64 = files.iter().map(|file| file.programs.len() as u64).sum();
    say(format_args!("{}, {}", trace::counted(files.len() as u64, "file"), trace::counted(cases, "case")));
    Ok(OK)
}
