//! Results as JSON, for programs.

use serde_json::{Value, json};

use crate::program::Backend;
use crate::report::{CaseResult, Results};
use crate::run::Verdict;

impl Results {
    /// Returns `{"results": [..], "divergences": [..], "passed": 4, "failed": 1, "skipped": 3, "left_out": 0}`. In a
    /// result, `line`, `what` and `source`, the line's text, are set for a failure, `reason` for a skip; otherwise they
    /// are null.
    pub fn json(&self) -> Value {
        let counts = self.counts();
        let results: Vec<Value> = self.cases.iter().map(result).collect();
        let names = |backends: &[Backend]| backends.iter().map(|backend| backend.name()).collect::<Vec<_>>();
        let divergences = self.divergences().into_iter().map(|divergence| {
            let (passed, failed) = (names(&divergence.passed), names(&divergence.failed));
            json!({"file": divergence.file, "case": divergence.case, "passed": passed, "failed": failed})
        });
        json!({
            "results": results,
            "divergences": divergences.collect::<Vec<_>>(),
            "passed": counts.passed,
            "failed": counts.failed,
            "skipped": counts.skipped,
            "left_out": self.left_out,
        })
    }
}

fn result(result: &CaseResult) -> Value {
    let (line, what, reason) = match &result.verdict {
        Verdict::Passed => (None, None, None),
        Verdict::Failed(failure) => (Some(failure.line), Some(&failure.what), None),
        Verdict::Skipped(reason) => (None, None, Some(reason)),
    };
    let unchecked = result.unchecked.iter();
    let unchecked: Vec<Value> =
        unchecked.map(|(line, reason)| json!({"line": line, "reason": reason})).collect();
    json!({
        "file": result.file,
        "case": result.case,
        "title": result.title,
        "backend": result.backend.name(),
        "verdict": result.word(),
        "line": line,
        "what": what,
        "reason": reason,
        "source": result.source,
        "unchecked": unchecked,
        "duration_ms": result.duration.as_secs_f64() * 1000.0,
    })
}
