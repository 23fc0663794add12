//! `gpupv scenario run`: runs every case on every backend.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use d3dkmt::random::digest;
use daemon::Options;
use drivers::Registry;
use scenario::Backend;
use scenario::report::{CaseResult, Counts, Results, SuiteReport};
use scenario::shards::shard;
use scenario::world::declared_skip;

use crate::commands::scenario::files::{Corpus, ScenarioFile, check_drivers, find_all};
use crate::commands::scenario::jobs;
use crate::commands::scenario::ranges::Shard;
use crate::commands::scenario::report_file::{Content, ReportFile, open_report};
use crate::commands::scenario::result_files::{ResultFiles, Sinks};
use crate::commands::scenario::trace_folder::TraceFolder;
use crate::commands::scenario::work::{Work, run_all};
use crate::commands::scenario::{ChosenCases, PathArgs, backends};
use crate::output::{OK, Progress, SET_UP_FAILED, VERDICT_FAILED, say};

/// A backend by its name, or all of them.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendChoice {
    /// The kernel alone, in virtual time
    Model,
    /// The guest's client core and the kernel over a simulated link
    Link,
    /// A real daemon and local processes
    Local,
    /// A real daemon and processes in QEMU guests
    Vm,
    /// Every backend
    All,
}

impl BackendChoice {
    fn is(self, backend: Backend) -> bool {
        match self {
            BackendChoice::Model => backend == Backend::Model,
            BackendChoice::Link => backend == Backend::Link,
            BackendChoice::Local => backend == Backend::Local,
            BackendChoice::Vm => backend == Backend::Vm,
            BackendChoice::All => true,
        }
    }
}

/// Arguments of `gpupv scenario run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub paths: PathArgs,
    /// The backend to run on; may be given several times
    #[arg(long = "backend", alias = "arm", value_name = "BACKEND", value_delimiter = ',', default_values = ["model", "link"])]
    pub backends: Vec<BackendChoice>,
    /// Only the case of this name; if there is none, the cases with this text in their name or title
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Only files with this tag
    #[arg(long, value_name = "WORD")]
    pub tag: Option<String>,
    /// Cases to run at the same time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<NonZeroUsize>,
    /// Backends `local` and `vm`: send all messages through sockets, not through memory that processes and daemon share
    #[arg(long)]
    pub without_rings: bool,
    /// Record each case on each backend into a trace of its own in this folder: FOLDER/NAME.BACKEND.gvt
    #[arg(long, value_name = "FOLDER")]
    pub record: Option<PathBuf>,
    /// Skip the cases after the first failure
    #[arg(long)]
    pub fail_fast: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub files: ResultFiles,
    /// Only part K of N of the files, counted from 0
    #[arg(long, value_name = "K/N", conflicts_with = "fail_fast")]
    pub shard: Option<Shard>,
    /// Write the report into this file, for `gpupv scenario merge`
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

impl RunArgs {
    fn cases<'a>(&self, files: &'a [ScenarioFile]) -> anyhow::Result<Vec<Work<'a>>> {
        let all =
            files.iter().flat_map(|file| file.programs.iter().map(move |program| Work { file, program }));
        let chosen = ChosenCases::new(self.case.as_deref(), files.iter().flat_map(|file| &file.programs));
        let is_wanted = |Work { program, .. }: &Work<'_>| {
            chosen.has(program) && self.tag.as_ref().is_none_or(|tag| program.tags.contains(tag))
        };
        let cases: Vec<Work<'a>> = all.filter(is_wanted).collect();
        // Of a shard, none may be left.
        if cases.is_empty() && self.shard.is_none() {
            bail!("no case is left by --case and --tag: `gpupv scenario list` shows what there is");
        }
        Ok(cases)
    }
}

/// Runs the cases on each backend in turn.
fn run_on(
    chosen: &[Backend],
    cases: &[Work<'_>],
    args: &RunArgs,
    options: &Options,
    traces: Option<&TraceFolder>,
) -> anyhow::Result<Results> {
    let jobs = args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let mut provided = Vec::new();
    for backend in chosen {
        let is_needed = cases.iter().any(|work| declared_skip(work.program, *backend).is_none());
        // No real runner is set up for a backend that every case skips; an unused one suffices.
        let of = if is_needed { *backend } else { Backend::Model };
        let programs = cases.iter().map(|work| work.program);
        provided.push((*backend, backends::provide(of, jobs.min(cases.len()), programs, options)?));
    }
    let progress = Progress::new("running scenarios", (chosen.len() * cases.len()) as u64);
    let mut by_backend = Vec::new();
    for (backend, runners) in provided {
        let results = run_all(backend, runners, cases, traces, args.fail_fast, &progress);
        let is_over = args.fail_fast && results.iter().any(CaseResult::has_failed);
        by_backend.push(results);
        if is_over {
            break;
        }
    }
    progress.finish();
    Ok(in_order(by_backend, chosen.len() * cases.len()))
}

/// Sorts results by file, case and backend.
fn in_order(by_backend: Vec<Vec<CaseResult>>, runs: usize) -> Results {
    let mut cases: Vec<_> =
        by_backend.into_iter().flat_map(|results| results.into_iter().enumerate()).collect();
    // The sort is stable, so the backends of a case keep their order.
    cases.sort_by_key(|(at, _)| *at);
    let left_out = runs - cases.len();
    Results { cases: cases.into_iter().map(|(_, result)| result).collect(), left_out }
}

/// Digest of what is run: names and texts of all files, and what chooses their cases. The texts of this shard's files
/// are those that were read, which are run even if the files change meanwhile.
fn digest_of(
    all: &[PathBuf],
    part: &Range<u64>,
    files: &[ScenarioFile],
    args: &RunArgs,
) -> anyhow::Result<u64> {
    let mut digests = Vec::new();
    for (at, path) in (0..).zip(all) {
        let text = if part.contains(&at) {
            digest(files[(at - part.start) as usize].text.as_bytes())
        } else {
            digest(&std::fs::read(path).with_context(|| path.display().to_string())?)
        };
        digests.extend([digest(path.as_os_str().as_encoded_bytes()), text]);
    }
    let RunArgs { case, tag, without_rings, .. } = args;
    let chosen = [digest(format!("{case:?} {tag:?} {without_rings}").as_bytes())];
    let bytes = digests.into_iter().chain(chosen).flat_map(u64::to_le_bytes);
    Ok(digest(&bytes.collect::<Vec<u8>>()))
}

/// The files to run: all were read, and have no errors.
struct Suite {
    /// Files of all shards.
    planned: u64,
    /// Numbers of the files of this shard.
    part: Range<u64>,
    files: Vec<ScenarioFile>,
    backends: Vec<Backend>,
    /// Of all shards, for a report.
    digest: Option<u64>,
    traces: Option<TraceFolder>,
}

impl Suite {
    fn read(args: &RunArgs, drivers: &Registry) -> anyhow::Result<Suite> {
        let all = find_all(&args.paths.paths)?;
        let planned = all.len() as u64;
        // A shard reads its own files only: reading takes a good part of the time that running takes.
        let part = args.shard.map_or(0..planned, |Shard { part, parts }| shard(&(0..planned), part, parts));
        let files = Corpus::read_sound(&all[part.start as usize..part.end as usize])?;
        let cases = args.cases(&files)?;
        let is_chosen = |backend: &Backend| args.backends.iter().any(|choice| choice.is(*backend));
        let backends: Vec<Backend> = Backend::ALL.into_iter().filter(is_chosen).collect();
        let is_run =
            |work: &&Work<'_>| backends.iter().any(|backend| declared_skip(work.program, *backend).is_none());
        let run = cases.iter().filter(is_run).map(|work| (work.file.name.as_str(), work.program));
        check_drivers(run, drivers)?;
        let digest = args.report.as_ref().map(|_| digest_of(&all, &part, &files, args)).transpose()?;
        let traces = args.record.as_ref().map(|folder| TraceFolder::new(folder, &all));
        Ok(Suite { planned, part, files, backends, digest, traces })
    }
}

/// The exit code of a run. A case that could not run comes first: a cluster starts such a shard again.
pub fn exit_code(counts: Counts) -> u8 {
    match counts {
        Counts { errors: 1.., .. } => SET_UP_FAILED,
        Counts { failed: 1.., .. } => VERDICT_FAILED,
        Counts { .. } => OK,
    }
}

pub fn run(args: &RunArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let suite = Suite::read(args, drivers);
    // A suite that cannot run leaves no results of an earlier run either.
    let (sinks, sink) = (Sinks::open(&args.files), open_report(args.report.as_deref()));
    let (Suite { planned, part, files, backends, digest, traces }, sinks, sink) = (suite?, sinks?, sink?);
    let cases = args.cases(&files)?;
    if let Some(traces) = &traces {
        traces.provide(&cases, &backends)?;
    }
    let options =
        Options { drivers: drivers.clone(), without_rings: args.without_rings, ..Options::default() };
    let results = run_on(&backends, &cases, args, &options, traces.as_ref())?;
    sinks.write(&results)?;
    if args.json {
        say(format_args!("{}", results.json()));
    } else {
        say(format_args!("{}", results.text().trim_end()));
    }
    let code = exit_code(results.counts());
    // Also with errors: another machine may run the shard again, but its failures are known. A later report replaces it.
    if let Some(digest) = digest {
        let commit = env!("GPUPV_COMMIT").into();
        let suite = SuiteReport { commit, digest, backends, planned, files: part, results };
        sink.write(&ReportFile { shard: args.shard, content: Content::Suite(suite) }.text())?;
    }
    Ok(code)
}
