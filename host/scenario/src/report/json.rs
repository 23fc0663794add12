//! Results as JSON, for programs.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::program::Backend;
use crate::report::{CaseResult, Divergence, Results};
use crate::run::{Failure, Verdict};

impl Results {
    /// Returns `{"results": [..], "divergences": [..], "passed": 4, "failed": 1, "skipped": 3, "errors": 0, "left_out": 0}`.
    /// In a result, `line`, `what` and `source`, the line's text, are set for a failure, `what` for an error, `reason` for
    /// a skip; otherwise they are null. A result that was recorded has a `trace`.
    pub fn json(&self) -> Value {
        let counts = self.counts();
        let divergences = self.divergences().into_iter().map(|Divergence { file, case, passed, failed, .. }| {
            json!({"file": file, "case": case, "passed": passed, "failed": failed})
        });
        json!({
            "results": self.cases,
            "divergences": divergences.collect::<Vec<_>>(),
            "passed": counts.passed,
            "failed": counts.failed,
            "skipped": counts.skipped,
            "errors": counts.errors,
            "left_out": self.left_out,
        })
    }
}

impl Serialize for Results {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

/// A result as JSON has it.
#[derive(Serialize, Deserialize)]
pub(super) struct CaseRecord {
    file: String,
    case: String,
    title: String,
    backend: Backend,
    verdict: String,
    line: Option<u32>,
    what: Option<String>,
    reason: Option<String>,
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    unchecked: Vec<Unchecked>,
    duration_ms: f64,
}

#[derive(Serialize, Deserialize)]
struct Unchecked {
    line: u32,
    reason: Cow<'static, str>,
}

impl From<CaseResult> for CaseRecord {
    fn from(result: CaseResult) -> CaseRecord {
        let verdict = result.word().into();
        let (line, what, reason) = match result.verdict {
            Verdict::Passed => (None, None, None),
            Verdict::Failed(Failure { line, what }) => (Some(line), Some(what), None),
            Verdict::Skipped(reason) => (None, None, Some(reason)),
            Verdict::Error(what) => (None, Some(what), None),
        };
        let unchecked = result.unchecked.into_iter().map(|(line, reason)| Unchecked { line, reason });
        CaseRecord {
            file: result.file,
            case: result.case,
            title: result.title,
            backend: result.backend,
            verdict,
            line,
            what,
            reason,
            source: result.source,
            trace: result.trace,
            unchecked: unchecked.collect(),
            duration_ms: result.duration.as_secs_f64() * 1000.0,
        }
    }
}

impl TryFrom<CaseRecord> for CaseResult {
    type Error = String;

    fn try_from(record: CaseRecord) -> Result<CaseResult, String> {
        let verdict = match (record.verdict.as_str(), record.line, record.what, record.reason) {
            ("passed", ..) => Verdict::Passed,
            ("failed", Some(line), Some(what), _) => Verdict::Failed(Failure { line, what }),
            ("skipped", _, _, Some(reason)) => Verdict::Skipped(reason),
            ("error", _, Some(what), _) => Verdict::Error(what),
            (word, ..) => return Err(format!("no verdict: `{word}` with these fields")),
        };
        let duration = Duration::try_from_secs_f64(record.duration_ms / 1000.0);
        Ok(CaseResult {
            file: record.file,
            case: record.case,
            title: record.title,
            backend: record.backend,
            verdict,
            unchecked: record.unchecked.into_iter().map(|one| (one.line, one.reason)).collect(),
            source: record.source,
            trace: record.trace,
            duration: duration.map_err(|error| format!("duration_ms: {error}"))?,
        })
    }
}
