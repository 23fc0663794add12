//! The report of a campaign: as a value, for JSON, and merged from shards.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Class, Plan};
use crate::shards::{Mismatch, check_cover};

/// Number of each result: `passed`, an outcome of a race, a class of failures.
pub type Histogram = BTreeMap<String, u64>;

/// A seed that fails.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    pub seed: u64,
    pub class: Class,
    pub what: String,
    /// A scenario file that fails in the same way.
    pub shrunk: String,
    /// The seed with which the shrunk scenario fails; the same, where the run does not depend on the seed.
    pub shrunk_seed: u64,
    /// The report's histogram up to this seed.
    pub so_far: Histogram,
}

/// The report of a campaign or a shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    pub commit: String,
    /// Of the text of what was explored: see [`Plan::digest`].
    pub digest: u64,
    /// The seeds of this shard.
    pub seeds: Range<u64>,
    /// The seeds of all shards together.
    pub planned: Range<u64>,
    pub seeds_run: u64,
    pub stop_after: usize,
    /// Failures, ordered by seed.
    pub failures: Vec<Found>,
    pub histogram: Histogram,
}

impl Report {
    pub(super) fn new(plan: &Plan, seeds: Range<u64>) -> Report {
        Report {
            commit: plan.commit.clone(),
            digest: plan.digest,
            seeds,
            planned: plan.seeds.clone(),
            seeds_run: 0,
            stop_after: plan.stop_after,
            failures: Vec::new(),
            histogram: Histogram::new(),
        }
    }
}

/// Merges the reports of shards, in any order: the result is exactly the report of one run over all seeds. Missing
/// shards are refused, also the first and the last.
pub fn merge(reports: &[Report]) -> Result<Report, Mismatch> {
    let planned = reports.first().ok_or(Mismatch::Nothing)?.planned.clone();
    join_into(planned, reports)
}

/// Joins the reports of adjacent ranges.
pub(super) fn join(reports: &[Report]) -> Result<Report, Mismatch> {
    let start = reports.iter().map(|report| report.seeds.start).min().ok_or(Mismatch::Nothing)?;
    let end = reports.iter().map(|report| report.seeds.end).max().ok_or(Mismatch::Nothing)?;
    join_into(start..end, reports)
}

fn join_into(seeds: Range<u64>, reports: &[Report]) -> Result<Report, Mismatch> {
    let mut parts: Vec<&Report> = reports.iter().collect();
    // With more shards than seeds, some have none.
    parts.sort_by_key(|report| (report.seeds.start, report.seeds.end));
    check(&seeds, &parts)?;
    let first = *parts.first().ok_or(Mismatch::Nothing)?;
    let mut whole = Report {
        seeds,
        seeds_run: 0,
        failures: Vec::new(),
        histogram: Histogram::new(),
        commit: first.commit.clone(),
        digest: first.digest,
        planned: first.planned.clone(),
        stop_after: first.stop_after,
    };
    for part in parts {
        for found in &part.failures {
            let mut found = found.clone();
            add(&mut found.so_far, &whole.histogram);
            whole.failures.push(found);
            if whole.stop_after > 0 && whole.failures.len() == whole.stop_after {
                let stop = &whole.failures[whole.failures.len() - 1];
                whole.seeds_run = stop.seed - whole.seeds.start + 1;
                whole.histogram = stop.so_far.clone();
                return Ok(whole);
            }
        }
        whole.seeds_run += part.seeds_run;
        add(&mut whole.histogram, &part.histogram);
    }
    Ok(whole)
}

/// Checks that sorted parts belong together and cover the seeds.
fn check(seeds: &Range<u64>, parts: &[&Report]) -> Result<(), Mismatch> {
    for pair in parts.windows(2) {
        let [before, after] = pair else { continue };
        if before.commit != after.commit {
            return Err(Mismatch::Commits(before.commit.clone(), after.commit.clone()));
        }
        if before.digest != after.digest {
            return Err(Mismatch::Texts(before.digest, after.digest));
        }
        if before.stop_after != after.stop_after {
            return Err(Mismatch::StopAfter(before.stop_after, after.stop_after));
        }
        if before.planned != after.planned {
            return Err(Mismatch::Plans(before.planned.clone(), after.planned.clone()));
        }
    }
    check_cover("seed", seeds, parts.iter().map(|part| part.seeds.clone()))
}

fn add(to: &mut Histogram, from: &Histogram) {
    for (name, count) in from {
        *to.entry(name.clone()).or_default() += count;
    }
}
