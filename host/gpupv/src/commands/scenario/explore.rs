//! `gpupv scenario explore`: runs interleavings, links, crashes and whole programs that are drawn by seed, and every
//! interleaving of a race.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context as _, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use d3dkmt::random::digest;
use drivers::Registry;
use dxgkrnl::PlantedBug;
use scenario::Program;
use scenario::explore::{
    CANARY, LinkBackend, Make, ModelBackend, Plan, campaign, canary, chooser, every_way, failure, log,
    program_of, run_once,
};
use scenario::program::Backend;
use scenario::report::Counts;
use scenario::world::declared_skip;

use crate::commands::scenario::explored::{Exploration, Explored, Skipped, shell_word};
use crate::commands::scenario::files::{Corpus, check_drivers};
use crate::commands::scenario::panics;
use crate::commands::scenario::ranges::{SeedRange, Shard};
use crate::commands::scenario::report_file::{Content, ReportFile, open_report};
use crate::commands::scenario::{ChosenCases, jobs};
use crate::output::{OK, Progress, VERDICT_FAILED, say};

/// Number of seeds to run if none are named.
const SEEDS: u64 = 1000;

/// The backends whose runs are determined by a seed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeededBackend {
    /// The kernel alone
    Model,
    /// The guest's client core and the kernel over a simulated link
    Link,
}

impl SeededBackend {
    fn name(self) -> &'static str {
        match self {
            SeededBackend::Model => "model",
            SeededBackend::Link => "link",
        }
    }

    fn backend(self) -> Backend {
        match self {
            SeededBackend::Model => Backend::Model,
            SeededBackend::Link => Backend::Link,
        }
    }
}

/// The folder of scenarios that fail.
#[derive(Args, Debug)]
pub struct SaveArgs {
    /// Write the shrunk scenario of each failure into this folder
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
}

impl SaveArgs {
    /// Makes the folder.
    pub fn prepare(&self) -> anyhow::Result<()> {
        let Some(folder) = &self.save else { return Ok(()) };
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
    }
}

/// Arguments of `gpupv scenario explore`.
#[derive(Args, Debug)]
pub struct ExploreArgs {
    /// Scenario files, or folders with .scn files at any depth
    #[arg(required_unless_present = "random", conflicts_with = "random", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Draw whole programs instead
    #[arg(long)]
    pub random: bool,
    /// Run the seeds from A up to, but not including, B [default: 0..1000; for a race every interleaving instead]
    #[arg(long, value_name = "A..B")]
    pub seeds: Option<SeedRange>,
    /// The backend to run on [default: link; model for every interleaving of a race]
    #[arg(long, alias = "arm", value_name = "BACKEND")]
    pub backend: Option<SeededBackend>,
    /// Only the case of this name; if there is none, the cases with this text in their name or title
    #[arg(long, value_name = "TEXT", conflicts_with = "random")]
    pub case: Option<String>,
    /// Seeds to run at the same time; the output is the same for any number [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<NonZeroUsize>,
    /// Only part K of N of the seeds, counted from 0
    #[arg(long, value_name = "K/N")]
    pub shard: Option<Shard>,
    /// Kill a process at some step of the file, drawn by each seed
    #[arg(long, conflicts_with = "random")]
    pub crashes: bool,
    /// Stop after this many failures; 0: never
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub stop_after: usize,
    /// Write the report into this file, for `gpupv scenario merge`
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub save: SaveArgs,
    /// Print a log of the run of this seed, and nothing else
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "shard", "report", "save"])]
    pub log: Option<u64>,
    /// Plant a bug in the kernel, to test the checkers
    #[arg(long, value_name = "BUG", hide = true, value_parser = bug_parser())]
    pub plant: Option<PlantedBug>,
}

fn bug_parser() -> impl clap::builder::TypedValueParser<Value = PlantedBug> {
    let names = PossibleValuesParser::new(PlantedBug::ALL.map(PlantedBug::name));
    names.map(|name| PlantedBug::from_name(&name).expect("the name is one of them"))
}

/// A case to explore, or random programs.
struct Subject {
    name: String,
    /// `None`: each seed draws a program.
    program: Option<Program>,
    /// Text of its file; empty if each seed draws a program.
    text: Rc<str>,
    /// Its arguments on the command line.
    words: String,
}

impl Subject {
    /// Whether every interleaving is run, instead of seeds.
    fn is_exhaustive(&self, args: &ExploreArgs) -> bool {
        let has_race = self.program.as_ref().is_some_and(|program| program.race.is_some());
        has_race && args.seeds.is_none() && args.log.is_none() && !args.crashes
    }

    /// Returns the command that explores it, without its seeds.
    fn command(&self, args: &ExploreArgs) -> String {
        let backend = self.backend(args).name();
        let crashes = if args.crashes { " --crashes" } else { "" };
        let plant = args.plant.map(|bug| format!(" --plant {}", bug.name())).unwrap_or_default();
        format!("gpupv scenario explore {} --backend {backend}{crashes}{plant}", self.words)
    }

    /// Digest of its text, and of what else its seeds mean.
    fn digest(&self, args: &ExploreArgs) -> u64 {
        let planted = args.plant.map(PlantedBug::name);
        digest(format!("{} {planted:?} {}", args.crashes, self.text).as_bytes())
    }

    fn backend(&self, args: &ExploreArgs) -> SeededBackend {
        let usual = if self.is_exhaustive(args) { SeededBackend::Model } else { SeededBackend::Link };
        args.backend.unwrap_or(usual)
    }

    /// Returns the reason why its file skips the backend, if it does.
    fn skip(&self, args: &ExploreArgs) -> Option<&str> {
        declared_skip(self.program.as_ref()?, self.backend(args).backend())
    }

    fn plan(&self, args: &ExploreArgs) -> Plan {
        let jobs = args.jobs.or_else(|| std::thread::available_parallelism().ok());
        Plan {
            program: self.program.clone(),
            crashes: args.crashes,
            seeds: args.seeds.as_ref().map_or(0..SEEDS, |range| range.0.clone()),
            jobs: jobs.map_or(1, NonZeroUsize::get),
            shard: args.shard.map(|shard| (shard.part, shard.parts)),
            planted: args.plant,
            stop_after: args.stop_after,
            commit: env!("GPUPV_COMMIT").into(),
            digest: self.digest(args),
        }
    }
}

/// Returns the subjects that the arguments name.
fn subjects(args: &ExploreArgs) -> anyhow::Result<Vec<Subject>> {
    if args.random {
        let (name, words) = ("random".into(), "--random".into());
        return Ok(vec![Subject { name, program: None, text: "".into(), words }]);
    }
    let files = Corpus::read_sound(&args.paths)?;
    let chosen = ChosenCases::new(args.case.as_deref(), files.iter().flat_map(|file| &file.programs));
    let mut subjects = Vec::new();
    for file in &files {
        let text: Rc<str> = file.text.as_str().into();
        for program in file.programs.iter().filter(|program| chosen.has(program)) {
            let (name, words) = match program.case.as_str() {
                "" => (file.name.clone(), shell_word(&file.name)),
                case => {
                    let words = format!("{} --case {}", shell_word(&file.name), shell_word(case));
                    (format!("{} [{case}]", file.name), words)
                }
            };
            subjects.push(Subject { name, program: Some(program.clone()), text: text.clone(), words });
        }
    }
    if subjects.is_empty() {
        bail!("no case is left by --case: `gpupv scenario list` shows what there is");
    }
    Ok(subjects)
}

/// Totals of all subjects so far.
#[derive(Default)]
pub struct Totals {
    /// The subjects explored by seed, and the cases that their files skip.
    all: Exploration,
    /// Races whose every interleaving was run and allowed.
    races_passed: usize,
    races_failed: usize,
}

impl Totals {
    /// Returns totals with only these explored seeds.
    pub fn of_seeds(all: Exploration) -> Totals {
        Totals { all, ..Totals::default() }
    }

    fn explore<M: Make>(&mut self, make: &M, subject: &Subject, args: &ExploreArgs) -> anyhow::Result<()> {
        if let Some(reason) = subject.skip(args) {
            self.all.skipped.push(Skipped {
                subject: subject.name.clone(),
                command: subject.command(args),
                digest: subject.digest(args),
                backend: subject.backend(args).backend(),
                reason: reason.into(),
            });
            return Ok(());
        }
        match &subject.program {
            Some(program) if subject.is_exhaustive(args) => {
                self.every_way(make, subject, program, args);
                Ok(())
            }
            Some(_) | None => self.by_seed(make, subject, args),
        }
    }

    fn counts(&self) -> Counts {
        let seeds_run: usize = self.all.explored.iter().map(|one| one.report.seeds_run as usize).sum();
        let seeds_failed: usize = self.all.explored.iter().map(|one| one.report.failures.len()).sum();
        Counts {
            passed: seeds_run - seeds_failed + self.races_passed,
            failed: seeds_failed + self.races_failed,
            skipped: self.all.skipped.len(),
            // Its backends need nothing of the machine.
            errors: 0,
        }
    }

    fn by_seed<M: Make>(&mut self, make: &M, subject: &Subject, args: &ExploreArgs) -> anyhow::Result<()> {
        let plan = subject.plan(args);
        let progress = Progress::new("exploring seeds", 0);
        let result = campaign(make, &plan, &|now| progress.set(now.done, now.total, now.failures));
        progress.finish();
        let explored =
            Explored { subject: subject.name.clone(), command: subject.command(args), report: result? };
        say(format_args!("{}", explored.text().trim_end()));
        self.all.explored.push(explored);
        Ok(())
    }

    fn every_way<M: Make>(&mut self, make: &M, subject: &Subject, program: &Program, args: &ExploreArgs) {
        match every_way(make, program, args.plant) {
            Ok(every) => {
                say(format_args!(
                    "{}: each of {} interleavings ends as allowed",
                    subject.name, every.interleavings
                ));
                for (outcome, count) in &every.histogram {
                    say(format_args!("  {count} {outcome}"));
                }
                self.races_passed += 1;
            }
            Err(unlike) => {
                say(format_args!("{}: {unlike}\n  reproduce with: {}", subject.name, subject.command(args)));
                if let scenario::explore::Unlike::Fails { log, .. } = unlike {
                    log.lines().for_each(|line| say(format_args!("    {line}")));
                }
                self.races_failed += 1;
            }
        }
    }
}

/// Prints the log of the run of one seed.
fn print_log<M: Make>(make: &M, subject: &Subject, args: &ExploreArgs, seed: u64) -> u8 {
    let program = program_of(&subject.plan(args), seed);
    say(format_args!("{}", log(make, &program, args.plant, seed).trim_end()));
    let ended = run_once(make, &program, args.plant, seed, &mut chooser(seed));
    if failure(&ended).is_none() { OK } else { VERDICT_FAILED }
}

/// Saves the scenarios of failures, prints the skipped cases and the summary, and returns the exit code.
pub fn conclude(totals: &Totals, save: &SaveArgs) -> anyhow::Result<u8> {
    if let Some(folder) = &save.save {
        for one in &totals.all.explored {
            one.save(folder)?.iter().for_each(|name| say(format_args!("saved {name}")));
        }
    }
    let mut skipped: BTreeMap<(Backend, &str), usize> = BTreeMap::new();
    for one in &totals.all.skipped {
        *skipped.entry((one.backend, &one.reason)).or_default() += 1;
    }
    for ((backend, reason), count) in skipped {
        say(format_args!("{count} skipped on {}: {reason}", backend.name()));
    }
    let counts = totals.counts();
    say(format_args!("{counts}"));
    Ok(if counts.failed == 0 { OK } else { VERDICT_FAILED })
}

/// Tests the checkers: the canary's seed fails on the backend with each planted bug. Without that there is no verdict.
pub fn check_canary<M: Make>(make: &M, backend: SeededBackend) -> anyhow::Result<()> {
    let name = backend.name();
    canary(make).with_context(|| {
        format!("nothing was explored on {name}: this build's checkers are blind, which is a bug of gpupv")
    })?;
    say(format_args!("canary: seed {CANARY} fails on {name} with each planted bug, as it must"));
    Ok(())
}

pub fn run(args: &ExploreArgs, drivers: &Registry) -> anyhow::Result<u8> {
    let (model, link) = (ModelBackend { drivers: drivers.clone() }, LinkBackend { drivers: drivers.clone() });
    panics::print_each_once();
    // First, because a run that cannot start must leave no report of an earlier one.
    let sink = open_report(args.report.as_deref())?;
    let subjects = subjects(args)?;
    let is_run = |subject: &&Subject| subject.skip(args).is_none();
    let cases = subjects.iter().filter(is_run);
    let cases = cases.filter_map(|subject| Some((subject.name.as_str(), subject.program.as_ref()?)));
    check_drivers(cases, drivers)?;
    if let Some(seed) = args.log {
        let [subject] = subjects.as_slice() else {
            bail!("--log needs exactly one case: choose it with --case")
        };
        if let Some(reason) = subject.skip(args) {
            say(format_args!("1 skipped on {}: {reason}", subject.backend(args).name()));
            return Ok(OK);
        }
        return Ok(match subject.backend(args) {
            SeededBackend::Model => print_log(&model, subject, args, seed),
            SeededBackend::Link => print_log(&link, subject, args, seed),
        });
    }
    if subjects.iter().any(|subject| subject.is_exhaustive(args)) {
        if args.shard.is_some() {
            bail!("--shard divides seeds: name them with --seeds");
        }
        if args.report.is_some() {
            bail!(
                "--report has the results of seeds, and every interleaving has none: name seeds with --seeds"
            );
        }
    }
    args.save.prepare()?;
    for backend in [SeededBackend::Model, SeededBackend::Link] {
        if subjects.iter().any(|subject| subject.backend(args) == backend) {
            match backend {
                SeededBackend::Model => check_canary(&ModelBackend::default(), backend)?,
                SeededBackend::Link => check_canary(&LinkBackend::default(), backend)?,
            }
        }
    }
    let mut totals = Totals::default();
    for subject in &subjects {
        match subject.backend(args) {
            SeededBackend::Model => totals.explore(&model, subject, args)?,
            SeededBackend::Link => totals.explore(&link, subject, args)?,
        }
    }
    let code = conclude(&totals, &args.save)?;
    sink.write(&ReportFile { shard: args.shard, content: Content::Explored(totals.all) }.text())?;
    Ok(code)
}
