//! Results of a part of a run's cases, and the whole from all parts.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use crate::program::Backend;
use crate::report::{CaseResult, Results};
use crate::run::{Failure, Verdict};
use crate::shards::{Gaps, Uncovered, check_cover};

/// Results of consecutive files of a run: of a shard, or of all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuiteReport {
    pub commit: String,
    /// Digest of what all parts together run.
    pub digest: u64,
    pub backends: Vec<Backend>,
    /// Number of files of all parts together.
    pub planned: u64,
    /// Numbers of this part's files.
    pub files: Range<u64>,
    pub results: Results,
}

/// Reason why parts cannot be merged, or a value is no report.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuiteMismatch {
    #[error("no report to merge")]
    Nothing,
    #[error("reports of different code: {0} and {1}")]
    Commits(String, String),
    #[error("reports of different scenarios: {0} files with digest {1:#x}, and {2} with {3:#x}")]
    Suites(u64, u64, u64, u64),
    #[error("reports of different backends: {0} and {1}")]
    Backends(String, String),
    #[error("files {0} are missing: add the report of their shard")]
    Gaps(Gaps),
    #[error("file {0} is in two reports")]
    Overlap(u64),
    #[error("the file is no report of a run: `{0}` is missing or of the wrong type")]
    NoReport(&'static str),
}

impl SuiteReport {
    pub fn to_json(&self) -> Value {
        json!({
            "commit": self.commit,
            "digest": self.digest,
            "backends": self.backends.iter().map(|backend| backend.name()).collect::<Vec<_>>(),
            "planned": self.planned,
            "files": { "start": self.files.start, "end": self.files.end },
            "results": self.results.json(),
        })
    }

    pub fn from_json(value: &Value) -> Result<SuiteReport, SuiteMismatch> {
        let backends = array(value, "backends")?.iter().map(|name| backend(Some(name)));
        let results = &value["results"];
        let cases = array(results, "results")?.iter().map(case_result).collect::<Result<_, _>>()?;
        Ok(SuiteReport {
            commit: text(value, "commit")?,
            digest: number(value, "digest")?,
            backends: backends.collect::<Result<_, _>>()?,
            planned: number(value, "planned")?,
            files: number(&value["files"], "start")?..number(&value["files"], "end")?,
            results: Results { cases, left_out: number(results, "left_out")? as usize },
        })
    }

    fn backend_names(&self) -> String {
        super::backend_names(&self.backends)
    }
}

/// Merges the parts of a run, in any order: the result is that of one run of all cases. Missing parts are refused.
pub fn merge_suites(mut parts: Vec<SuiteReport>) -> Result<SuiteReport, SuiteMismatch> {
    parts.sort_by_key(|part| (part.files.start, part.files.end));
    for pair in parts.windows(2) {
        let [one, other] = pair else { continue };
        if one.commit != other.commit {
            return Err(SuiteMismatch::Commits(one.commit.clone(), other.commit.clone()));
        }
        if (one.planned, one.digest) != (other.planned, other.digest) {
            return Err(SuiteMismatch::Suites(one.planned, one.digest, other.planned, other.digest));
        }
        if one.backends != other.backends {
            return Err(SuiteMismatch::Backends(one.backend_names(), other.backend_names()));
        }
    }
    let planned = 0..parts.first().ok_or(SuiteMismatch::Nothing)?.planned;
    check_cover(&planned, parts.iter().map(|part| part.files.clone())).map_err(
        |uncovered| match uncovered {
            Uncovered::Gaps(gaps) => SuiteMismatch::Gaps(gaps),
            Uncovered::Overlap(file) => SuiteMismatch::Overlap(file),
        },
    )?;
    let mut parts = parts.into_iter();
    let mut whole = parts.next().ok_or(SuiteMismatch::Nothing)?;
    for part in parts {
        whole.results.cases.extend(part.results.cases);
        whole.results.left_out += part.results.left_out;
    }
    Ok(SuiteReport { files: planned, ..whole })
}

fn case_result(value: &Value) -> Result<CaseResult, SuiteMismatch> {
    let optional = |key| value[key].as_str().map(str::to_owned);
    let verdict = match value["verdict"].as_str() {
        Some("passed") => Verdict::Passed,
        Some("failed") => Verdict::Failed(Failure { line: line(value)?, what: text(value, "what")? }),
        Some("skipped") => Verdict::Skipped(text(value, "reason")?),
        Some(_) | None => return Err(SuiteMismatch::NoReport("verdict")),
    };
    let unchecked =
        array(value, "unchecked")?.iter().map(|one| Ok((line(one)?, text(one, "reason")?.into())));
    let duration = value["duration_ms"].as_f64().map(|milliseconds| milliseconds / 1000.0);
    let duration = duration.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(CaseResult {
        file: text(value, "file")?,
        case: text(value, "case")?,
        title: text(value, "title")?,
        backend: backend(value.get("backend"))?,
        verdict,
        unchecked: unchecked.collect::<Result<_, _>>()?,
        source: optional("source"),
        duration: duration.ok_or(SuiteMismatch::NoReport("duration_ms"))?,
    })
}

fn backend(name: Option<&Value>) -> Result<Backend, SuiteMismatch> {
    let backend = name.and_then(Value::as_str).and_then(Backend::from_name);
    backend.ok_or(SuiteMismatch::NoReport("backend"))
}

fn array<'a>(value: &'a Value, key: &'static str) -> Result<&'a Vec<Value>, SuiteMismatch> {
    value[key].as_array().ok_or(SuiteMismatch::NoReport(key))
}

fn number(value: &Value, key: &'static str) -> Result<u64, SuiteMismatch> {
    value[key].as_u64().ok_or(SuiteMismatch::NoReport(key))
}

fn line(value: &Value) -> Result<u32, SuiteMismatch> {
    u32::try_from(number(value, "line")?).map_err(|_| SuiteMismatch::NoReport("line"))
}

fn text(value: &Value, key: &'static str) -> Result<String, SuiteMismatch> {
    value[key].as_str().map(str::to_owned).ok_or(SuiteMismatch::NoReport(key))
}
