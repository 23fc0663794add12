//! The report of a campaign: as a value, as JSON, and merged from shards.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value, json};

use super::{Class, Plan};
use crate::shards::{Gaps, Uncovered, check_cover};

/// Number of each result: `passed`, an outcome of a race, a class of failures.
pub type Histogram = BTreeMap<String, u64>;

/// A seed that fails.
#[derive(Clone, PartialEq, Eq, Debug)]
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
#[derive(Clone, PartialEq, Eq, Debug)]
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

/// Reason why reports cannot be merged, or a value is no report.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Mismatch {
    #[error("no report to merge")]
    Nothing,
    #[error("reports of different code: {0} and {1}")]
    Commits(String, String),
    #[error(
        "its text differs between reports: digests {0:#x} and {1:#x}. Run all shards again with the same file"
    )]
    Texts(u64, u64),
    #[error("reports that stop after different numbers of failures: {0} and {1}")]
    StopAfter(usize, usize),
    #[error("seeds {0} are missing: add the report of their shard")]
    Gaps(Gaps),
    #[error("reports of different plans: seeds {}..{} and {}..{}", .0.start, .0.end, .1.start, .1.end)]
    Plans(Range<u64>, Range<u64>),
    #[error("seed {0} is in two reports")]
    Overlap(u64),
    #[error("the file is no report of a campaign: {0}")]
    NoReport(String),
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

    pub fn to_json(&self) -> Value {
        let found = |found: &Found| {
            json!({
                "seed": found.seed,
                "class": found.class.name(),
                "what": found.what,
                "shrunk": found.shrunk,
                "shrunk_seed": found.shrunk_seed,
                "so_far": found.so_far,
            })
        };
        json!({
            "commit": self.commit,
            "digest": self.digest,
            "seeds": { "start": self.seeds.start, "end": self.seeds.end },
            "planned": { "start": self.planned.start, "end": self.planned.end },
            "seeds_run": self.seeds_run,
            "stop_after": self.stop_after,
            "failures": self.failures.iter().map(found).collect::<Vec<Value>>(),
            "histogram": self.histogram,
        })
    }

    pub fn from_json(value: &Value) -> Result<Report, Mismatch> {
        let report = Fields::of(value, "a report")?;
        let seeds = report.seeds("seeds")?;
        let failures = report.0.get("failures").and_then(Value::as_array);
        let failures = failures.ok_or_else(|| missing("failures"))?;
        Ok(Report {
            commit: report.text("commit")?,
            digest: report.number("digest")?,
            seeds,
            planned: report.seeds("planned")?,
            seeds_run: report.number("seeds_run")?,
            stop_after: report.number("stop_after")? as usize,
            failures: failures.iter().map(found).collect::<Result<_, _>>()?,
            histogram: report.histogram("histogram")?,
        })
    }
}

fn missing(what: &str) -> Mismatch {
    Mismatch::NoReport(format!("`{what}` is missing or of the wrong type"))
}

fn found(value: &Value) -> Result<Found, Mismatch> {
    let fields = Fields::of(value, "a failure")?;
    Ok(Found {
        seed: fields.number("seed")?,
        class: Class::from_name(&fields.text("class")?).ok_or_else(|| missing("class"))?,
        what: fields.text("what")?,
        shrunk: fields.text("shrunk")?,
        shrunk_seed: fields.number("shrunk_seed")?,
        so_far: fields.histogram("so_far")?,
    })
}

/// The fields of a JSON object.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn of(value: &'a Value, what: &str) -> Result<Fields<'a>, Mismatch> {
        value.as_object().map(Fields).ok_or_else(|| missing(what))
    }

    fn fields(&self, key: &str) -> Result<Fields<'a>, Mismatch> {
        Fields::of(self.0.get(key).unwrap_or(&Value::Null), key)
    }

    fn seeds(&self, key: &str) -> Result<Range<u64>, Mismatch> {
        let seeds = self.fields(key)?;
        Ok(seeds.number("start")?..seeds.number("end")?)
    }

    fn number(&self, key: &str) -> Result<u64, Mismatch> {
        self.0.get(key).and_then(Value::as_u64).ok_or_else(|| missing(key))
    }

    fn text(&self, key: &str) -> Result<String, Mismatch> {
        self.0.get(key).and_then(Value::as_str).map(Into::into).ok_or_else(|| missing(key))
    }

    fn histogram(&self, key: &str) -> Result<Histogram, Mismatch> {
        let count = |(name, count): (&String, &Value)| {
            count.as_u64().map(|count| (name.clone(), count)).ok_or_else(|| missing(key))
        };
        self.fields(key)?.0.iter().map(count).collect()
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
    check_cover(seeds, parts.iter().map(|part| part.seeds.clone())).map_err(|uncovered| match uncovered {
        Uncovered::Gaps(gaps) => Mismatch::Gaps(gaps),
        Uncovered::Overlap(seed) => Mismatch::Overlap(seed),
    })
}

fn add(to: &mut Histogram, from: &Histogram) {
    for (name, count) in from {
        *to.entry(name.clone()).or_default() += count;
    }
}
