//! `gpupv scenario merge`: merges the reports of shards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use scenario::report::{SuiteReport, merge_suites};

use crate::commands::output_file::refuse_input;
use crate::commands::scenario::explore::{SaveArgs, Totals, conclude};
use crate::commands::scenario::explored::Exploration;
use crate::commands::scenario::ranges::Shard;
use crate::commands::scenario::report_file::{Content, ReportFile, open_report};
use crate::commands::scenario::result_files::{ResultFiles, Sinks};
use crate::commands::scenario::run_files::exit_code;
use crate::output::{complain, say};

/// Ranges of missing shards that are listed.
const LISTED_MAX: usize = 20;

/// Arguments of `gpupv scenario merge`.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// The files that `--shard K/N --report FILE` wrote, of every shard, in any order; of a folder its .json files
    #[arg(required = true, value_name = "REPORT")]
    pub reports: Vec<PathBuf>,
    /// Write the merged report into this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub save: SaveArgs,
    #[command(flatten)]
    pub files: ResultFiles,
}

/// The reports that were read, all of one command.
enum Parts {
    Explored(Exploration),
    /// With what the user is told of shards that have cases that could not run.
    Suites(Vec<SuiteReport>, Option<String>),
}

/// Returns the files that the arguments name.
fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(reports_of(path).with_context(|| format!("cannot read {}", path.display()))?);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// Returns the reports of a folder, by name.
fn reports_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut reports = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.extension().is_some_and(|of| of == "json") && !is_hidden {
            reports.push(path);
        }
    }
    if reports.is_empty() {
        bail!("it has no .json file: no shard has ended");
    }
    reports.sort();
    Ok(reports)
}

fn read_all(paths: &[PathBuf]) -> anyhow::Result<Parts> {
    let (mut explored, mut suites) = (None::<Exploration>, Vec::new());
    let (mut shards, mut have_run) = (Vec::new(), Vec::new());
    for path in paths {
        let ReportFile { shard, content } = ReportFile::read(path)?;
        shards.extend(shard);
        match content {
            Content::Explored(all) => explored.get_or_insert_default().extend(all),
            Content::Suite(suite) => {
                have_run.extend(shard.filter(|_| suite.results.counts().errors == 0));
                suites.push(suite);
            }
        }
        if explored.is_some() && !suites.is_empty() {
            bail!("{}: reports of `run` and of `explore` cannot be merged", path.display());
        }
    }
    if let Some(missing) = others(&shards, &shards, "are missing") {
        bail!("{missing}, and add its report");
    }
    let incomplete = others(&shards, &have_run, "have cases that could not run");
    let incomplete = incomplete.map(|words| format!("{words}, and replace its report"));
    Ok(explored.map_or(Parts::Suites(suites, incomplete), Parts::Explored))
}

/// Names all shards but these, and how to run them. Reports of different numbers of shards are left to the check of their
/// ranges.
fn others(shards: &[Shard], but: &[Shard], what: &str) -> Option<String> {
    let Shard { parts, .. } = *shards.first()?;
    if shards.iter().any(|shard| shard.parts != parts) {
        return None;
    }
    let found: BTreeSet<u64> = but.iter().map(|shard| shard.part).collect();
    let others = Shard::missing(&found, parts);
    if others.is_empty() {
        return None;
    }
    let count: u64 = others.iter().map(|(first, last)| last - first + 1).sum();
    let listed = &others[..others.len().min(LISTED_MAX)];
    let more = if listed.len() < others.len() { ",.." } else { "" };
    let list = Shard::list(listed);
    Some(format!("{count} of {parts} shards {what}: {list}{more}. Run each again with --shard K/{parts}"))
}

fn merge_explored(parts: Exploration, args: &MergeArgs) -> anyhow::Result<u8> {
    if let Some(flag) = args.files.any() {
        bail!("{flag} takes results of `gpupv scenario run`; these are reports of `explore`: use --report");
    }
    let merged = parts.merge()?;
    let sink = open_report(args.report.as_deref())?;
    args.save.prepare()?;
    for one in &merged.explored {
        say(format_args!("{}", one.text().trim_end()));
    }
    let code = conclude(&Totals::of_seeds(merged.clone()), &args.save)?;
    sink.write(&ReportFile { shard: None, content: Content::Explored(merged) }.text())?;
    Ok(code)
}

fn merge_runs(parts: Vec<SuiteReport>, incomplete: Option<String>, args: &MergeArgs) -> anyhow::Result<u8> {
    if args.save.save.is_some() {
        bail!("--save takes failures of `gpupv scenario explore`; these are reports of `run`");
    }
    let whole = merge_suites(parts)?;
    if whole.results.cases.is_empty() {
        bail!("no shard has a case: `--case` and `--tag` left none");
    }
    let sink = open_report(args.report.as_deref())?;
    Sinks::open(&args.files)?.write(&whole.results)?;
    say(format_args!("{}", whole.results.text().trim_end()));
    if let Some(words) = incomplete {
        complain(format_args!("{words}"));
    }
    let code = exit_code(whole.results.counts());
    sink.write(&ReportFile { shard: None, content: Content::Suite(whole) }.text())?;
    Ok(code)
}

pub fn run(args: &MergeArgs) -> anyhow::Result<u8> {
    let files = files(&args.reports)?;
    let read: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let report = args.report.as_deref().map(|path| ("--report", path));
    for (option, path) in args.files.named().into_iter().chain(report) {
        refuse_input(path, option, &read)?;
    }
    match read_all(&files)? {
        Parts::Explored(parts) => merge_explored(parts, args),
        Parts::Suites(parts, incomplete) => merge_runs(parts, incomplete, args),
    }
}
