//! Campaigns: run many seeds on several threads. The report is the same for any number of threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dxgkrnl::PlantedBug;

use super::report::{Found, Report, join};
use super::{Class, FailureMode, Make, chooser, crashes, failure, random, run_once, shrink};
use crate::program::Program;
use crate::run::{Ended, Verdict};
use crate::script::{self, print};
use crate::shards::shard;

/// The seed that is run first, with each of the planted bugs. If it passes, the checkers are blind. This one fails on
/// every backend of this crate.
pub const CANARY: u64 = 931;

/// Number of seeds that a thread takes at a time.
const CHUNK: u64 = 32;
/// Number of seeds that a shrunk program is tried with, on backends whose runs depend on the seed.
const SHRINK_SEEDS: u64 = 4;

/// What to explore.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program to run; with `None` each seed draws one.
    pub program: Option<Program>,
    /// Each seed also draws a crash of the program.
    pub crashes: bool,
    pub seeds: Range<u64>,
    /// Number of threads.
    pub jobs: usize,
    /// Run only part `k` of `n`, from 0: see [`crate::shards::shard`].
    pub shard: Option<(u64, u64)>,
    /// A bug to plant in the kernel, to test the checkers.
    pub planted: Option<PlantedBug>,
    /// Stop after this many failures; 0 never stops early.
    pub stop_after: usize,
    /// The commit, for the report.
    pub commit: String,
    /// Digest of the text of what is explored, for the report.
    pub digest: u64,
}

/// Progress of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
    pub failures: u64,
    pub elapsed: Duration,
}

impl Progress {
    /// Seeds per second.
    pub fn rate(&self) -> f64 {
        self.done as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub fn remaining(&self) -> Duration {
        Duration::from_secs_f64((self.total - self.done) as f64 / self.rate().max(1e-9))
    }
}

/// Reason why there is no report.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    #[error("the canary seed {seed} passes with the planted bug {bug}: the checkers do not detect it")]
    CanaryLives { seed: u64, bug: &'static str },
    #[error("there is no shard {0} of {1}: shards are numbered from 0")]
    NoSuchShard(u64, u64),
    #[error("no seeds: the range {0}..{1} is empty")]
    NoSeeds(u64, u64),
}

/// Runs the canary: the checkers must detect each planted bug.
pub fn canary<M: Make>(make: &M) -> Result<(), Refused> {
    let program = random(CANARY);
    for bug in PlantedBug::ALL {
        let ended = run_once(make, &program, Some(bug), CANARY, &mut chooser(CANARY));
        if failure(&ended).is_none() {
            return Err(Refused::CanaryLives { seed: CANARY, bug: bug.name() });
        }
    }
    Ok(())
}

/// Runs the plan, for callers that have run the [`canary`] on this backend: once, for any number of plans. `progress` is
/// called now and then, by any of the threads.
pub fn campaign<M: Make>(
    make: &M,
    plan: &Plan,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, Refused> {
    let Range { start, end } = plan.seeds;
    if start >= end {
        return Err(Refused::NoSeeds(start, end));
    }
    let seeds = match plan.shard {
        Some((k, n)) if k >= n => return Err(Refused::NoSuchShard(k, n)),
        Some((k, n)) => shard(&plan.seeds, k, n),
        None => plan.seeds.clone(),
    };
    let chunks = run_all(make, plan, &seeds, progress);
    let mut report = join(&chunks).unwrap_or_else(|_| Report::new(plan, seeds.clone()));
    report.seeds = seeds;
    shrink_all(make, plan, &mut report.failures);
    Ok(report)
}

/// Runs all seeds in order and returns a report for each chunk, up to the last that counts and possibly some more.
fn run_all<M: Make>(
    make: &M,
    plan: &Plan,
    seeds: &Range<u64>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Vec<Report> {
    let begin = Instant::now();
    let (next, done, failures) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let chunks: Mutex<BTreeMap<u64, Report>> = Mutex::new(BTreeMap::new());
    let total = seeds.end - seeds.start;
    let work = || {
        loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            // Chunks are taken in order, and each taken chunk is finished: the result has no gap.
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            let from = seeds.start + chunk.saturating_mul(CHUNK).min(total);
            if from >= seeds.end {
                return;
            }
            let to = from.saturating_add(CHUNK).min(seeds.end);
            let chunk_report = run_chunk(make, plan, from..to);
            let failed = chunk_report.failures.len() as u64;
            chunks.lock().expect("no thread panics holding it").insert(chunk, chunk_report);
            let done = done.fetch_add(to - from, Ordering::Relaxed) + to - from;
            let failures = failures.fetch_add(failed, Ordering::Relaxed) + failed;
            progress(Progress { done, total, failures, elapsed: begin.elapsed() });
            if plan.stop_after > 0 && failures >= plan.stop_after as u64 {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..plan.jobs.max(1) {
            scope.spawn(work);
        }
        work();
    });
    chunks.into_inner().expect("no thread panicked").into_values().collect()
}

/// Returns the program of a seed.
pub fn program_of(plan: &Plan, seed: u64) -> Program {
    match &plan.program {
        None => random(seed),
        Some(program) if plan.crashes => crashes(program, seed).unwrap_or_else(|| program.clone()),
        Some(program) => program.clone(),
    }
}

fn run_chunk<M: Make>(make: &M, plan: &Plan, seeds: Range<u64>) -> Report {
    let mut report = Report::new(plan, seeds.clone());
    for seed in seeds {
        let program = program_of(plan, seed);
        let ended = run_once(make, &program, plan.planted, seed, &mut chooser(seed));
        report.seeds_run += 1;
        *report.histogram.entry(in_a_word(&program, &ended)).or_default() += 1;
        if let Some(failure) = failure(&ended) {
            report.failures.push(Found {
                seed,
                class: Class::of(failure),
                what: failure.to_string(),
                shrunk: String::new(),
                shrunk_seed: seed,
                so_far: report.histogram.clone(),
            });
        }
    }
    report
}

/// Returns the result of a run as a word for the histogram.
fn in_a_word(program: &Program, ended: &Ended) -> String {
    match &ended.verdict {
        Verdict::Failed(failure) => Class::of(failure).name().into(),
        Verdict::Skipped(_) => "skipped".into(),
        Verdict::Error(_) => "error".into(),
        Verdict::Passed => outcome(program, ended).unwrap_or_else(|| "passed".into()),
    }
}

fn outcome(program: &Program, ended: &Ended) -> Option<String> {
    let outcome = program.race.as_ref()?.allowed.get(*ended.outcomes.first()?)?;
    Some(script::write_outcome(program, outcome))
}

/// Adds to each failure the smallest program that fails like it.
fn shrink_all<M: Make>(make: &M, plan: &Plan, failures: &mut [Found]) {
    let next: Mutex<std::slice::IterMut<'_, Found>> = Mutex::new(failures.iter_mut());
    let work = || {
        loop {
            let found = next.lock().expect("no thread panics holding it").next();
            let Some(found) = found else { return };
            let program = program_of(plan, found.seed);
            let mode = FailureMode::new(found.class, &found.what, &program);
            let mut failing_seed = found.seed;
            // A smaller program makes other choices: where the seed matters, a few seeds are tried.
            let mut still_fails = |candidate: &Program| {
                for seed in (0..SHRINK_SEEDS).map(|more| found.seed.wrapping_add(more)) {
                    let mut choose = Counting { inner: chooser(seed), had_choice: false };
                    let ended = run_once(make, candidate, plan.planted, seed, &mut choose);
                    let failed = failure(&ended).map(|failed| FailureMode::of(failed, candidate));
                    if failed.as_ref() == Some(&mode) {
                        failing_seed = seed;
                        return Some(ended);
                    }
                    if !choose.had_choice {
                        return None;
                    }
                }
                None
            };
            found.shrunk = print(&shrink(&program, &mut still_fails));
            found.shrunk_seed = failing_seed;
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..plan.jobs.max(1) {
            scope.spawn(work);
        }
        work();
    });
}

/// A chooser that records whether there was ever a choice.
struct Counting {
    inner: crate::choose::Random,
    had_choice: bool,
}

impl crate::choose::Choose for Counting {
    fn choose(&mut self, alternatives: usize) -> usize {
        self.had_choice |= alternatives > 1;
        self.inner.choose(alternatives)
    }
}
