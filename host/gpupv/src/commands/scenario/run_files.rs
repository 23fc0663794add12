//! `gpupv scenario run`: runs every case on every backend.

use std::fs::File;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use drivers::Registry;
use scenario::Backend;
use scenario::report::{CaseResult, Results};
use scenario::world::declared_skip;

use crate::commands::scenario::files::{Corpus, ScenarioFile};
use crate::commands::scenario::work::{Work, run_all};
use crate::commands::scenario::{PathArgs, backends};
use crate::output::{OK, Progress, VERDICT_FAILED, say};

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
    /// Only cases with this text in their name or title
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Only files with this tag
    #[arg(long, value_name = "WORD")]
    pub tag: Option<String>,
    /// Cases to run at the same time [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Skip the cases after the first failure
    #[arg(long)]
    pub fail_fast: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Write the results as JSON into this file
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
    /// Write the results as JUnit XML into this file
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the results as TAP 14 into this file
    #[arg(long, value_name = "FILE")]
    pub tap: Option<PathBuf>,
}

impl RunArgs {
    fn cases<'a>(&self, files: &'a [ScenarioFile]) -> anyhow::Result<Vec<Work<'a>>> {
        let all =
            files.iter().flat_map(|file| file.programs.iter().map(move |program| Work { file, program }));
        let is_wanted = |work: &Work<'_>| {
            let Work { program, .. } = work;
            let case = self.case.as_ref();
            case.is_none_or(|text| program.case.contains(text) || program.title.contains(text))
                && self.tag.as_ref().is_none_or(|tag| program.tags.contains(tag))
        };
        let cases: Vec<Work<'a>> = all.filter(is_wanted).collect();
        if cases.is_empty() {
            bail!("no case is left by --case and --tag: `gpupv scenario list` shows what there is");
        }
        Ok(cases)
    }
}

/// The result files, opened before any case runs.
struct Sinks {
    json: Option<(PathBuf, File)>,
    junit: Option<(PathBuf, File)>,
    tap: Option<(PathBuf, File)>,
}

impl Sinks {
    fn open(args: &RunArgs) -> anyhow::Result<Sinks> {
        refuse_equal(args)?;
        let open = |path: &Option<PathBuf>| -> anyhow::Result<Option<(PathBuf, File)>> {
            let Some(path) = path else { return Ok(None) };
            let file = File::create(path).with_context(|| cannot_write(path))?;
            Ok(Some((path.clone(), file)))
        };
        Ok(Sinks { json: open(&args.json_file)?, junit: open(&args.junit)?, tap: open(&args.tap)? })
    }

    fn write(self, results: &Results) -> anyhow::Result<()> {
        let write = |(path, mut file): (PathBuf, File), text: String| {
            file.write_all(text.as_bytes()).with_context(|| cannot_write(&path))
        };
        if let Some(sink) = self.json {
            write(sink, format!("{}\n", results.json()))?;
        }
        if let Some(sink) = self.junit {
            write(sink, results.junit())?;
        }
        if let Some(sink) = self.tap {
            write(sink, results.tap())?;
        }
        Ok(())
    }
}

/// Refuses two kinds of results in one file, which would overwrite each other. Checked before any file is truncated.
fn refuse_equal(args: &RunArgs) -> anyhow::Result<()> {
    let flags = [("--json-file", &args.json_file), ("--junit", &args.junit), ("--tap", &args.tap)];
    let mut taken: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in flags {
        let Some(path) = path else { continue };
        let absolute = std::path::absolute(path).with_context(|| cannot_write(path))?;
        if let Some((other, _)) = taken.iter().find(|(_, taken)| *taken == absolute) {
            bail!("{other} and {flag} both write {}: give each a file of its own", path.display());
        }
        taken.push((flag, absolute));
    }
    Ok(())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Runs the cases on each backend in turn.
fn run_on(
    chosen: &[Backend],
    cases: &[Work<'_>],
    args: &RunArgs,
    drivers: &Registry,
) -> anyhow::Result<Results> {
    let jobs = args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let mut provided = Vec::new();
    for backend in chosen {
        let is_needed = cases.iter().any(|work| declared_skip(work.program, *backend).is_none());
        // No real runner is set up for a backend that every case skips; an unused one suffices.
        let of = if is_needed { *backend } else { Backend::Model };
        let programs = cases.iter().map(|work| work.program);
        provided.push((*backend, backends::provide(of, jobs.min(cases.len()), programs, drivers)?));
    }
    let progress = Progress::new("running scenarios", (chosen.len() * cases.len()) as u64);
    let mut by_backend = Vec::new();
    for (backend, runners) in provided {
        let results = run_all(backend, runners, cases, args.fail_fast, &progress);
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

pub fn run(args: &RunArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let files = Corpus::read_sound(&args.paths.paths)?;
    let cases = args.cases(&files)?;
    let is_chosen = |backend: &Backend| args.backends.iter().any(|choice| choice.is(*backend));
    let chosen: Vec<Backend> = Backend::ALL.into_iter().filter(is_chosen).collect();
    let sinks = Sinks::open(args)?;
    let results = run_on(&chosen, &cases, args, drivers)?;
    sinks.write(&results)?;
    if args.json {
        say(format_args!("{}", results.json()));
    } else {
        say(format_args!("{}", results.text().trim_end()));
    }
    Ok(if results.counts().failed == 0 { OK } else { VERDICT_FAILED })
}
