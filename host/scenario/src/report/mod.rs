//! The results of a run of scenarios, for people and for programs.
//!
//! [`Results`] has a result for each case on each backend. It is written as text ([`Results::text`]), JSON
//! ([`Results::json`]), JUnit XML ([`Results::junit`]) and TAP 14 ([`Results::tap`]). Every format lists the lines that
//! a backend could not check, with the reason. A [`SuiteReport`] has the results of a part of the files, for merging.

mod json;
mod junit;
mod suite;
mod tap;
#[cfg(test)]
mod tests;
mod text;

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use json::CaseRecord;
pub use suite::{SuiteReport, merge_suites};

use crate::program::Backend;
use crate::run::Verdict;

/// The result of one case on one backend.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "CaseRecord", try_from = "CaseRecord")]
pub struct CaseResult {
    /// The file's path as given.
    pub file: String,
    /// Empty if the file has no matrix.
    pub case: String,
    pub title: String,
    pub backend: Backend,
    pub verdict: Verdict,
    /// Lines that the backend cannot check, each with the reason.
    pub unchecked: Vec<(u32, Cow<'static, str>)>,
    /// Text of the failing line.
    pub source: Option<String>,
    /// Path of the trace that was recorded.
    pub trace: Option<String>,
    pub duration: Duration,
}

impl CaseResult {
    /// Returns `waits.scn [value=5]`.
    pub fn name(&self) -> String {
        if self.case.is_empty() { self.file.clone() } else { format!("{} [{}]", self.file, self.case) }
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }

    /// Returns `passed`, `failed`, `skipped` or `error`.
    pub fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "failed",
            Verdict::Skipped(_) => "skipped",
            Verdict::Error(_) => "error",
        }
    }

    /// Returns `waits.scn:7`, or only the file if no line is to blame.
    fn location(&self, line: u32) -> String {
        if line == 0 { self.file.clone() } else { format!("{}:{line}", self.file) }
    }
}

/// Number of results of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// Cases that could not run on this machine.
    pub errors: usize,
}

/// A case that passed on some backends and failed on others; the backends must agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// The case, as [`CaseResult::name`] gives it.
    pub name: String,
    pub file: String,
    pub case: String,
    pub passed: Vec<Backend>,
    pub failed: Vec<Backend>,
}

/// The results of a run. As JSON they have what [`Results::json`] returns.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct Results {
    /// Ordered by file, case and backend.
    #[serde(rename = "results")]
    pub cases: Vec<CaseResult>,
    /// Number of runs skipped after the first failure.
    pub left_out: usize,
}

impl Results {
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for result in &self.cases {
            match result.verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::Skipped(_) => counts.skipped += 1,
                Verdict::Error(_) => counts.errors += 1,
            }
        }
        counts
    }

    /// Returns the results grouped by case.
    fn by_case(&self) -> impl Iterator<Item = &[CaseResult]> {
        self.cases.chunk_by(|one, next| one.file == next.file && one.case == next.case)
    }

    pub fn divergences(&self) -> Vec<Divergence> {
        let backends_that = |results: &[CaseResult], is_in: fn(&Verdict) -> bool| -> Vec<Backend> {
            results.iter().filter(|result| is_in(&result.verdict)).map(|result| result.backend).collect()
        };
        let mut divergences = Vec::new();
        for results in self.by_case() {
            let passed = backends_that(results, |verdict| matches!(verdict, Verdict::Passed));
            let failed = backends_that(results, |verdict| matches!(verdict, Verdict::Failed(_)));
            if !passed.is_empty() && !failed.is_empty() {
                let first = &results[0];
                let (name, file, case) = (first.name(), first.file.clone(), first.case.clone());
                divergences.push(Divergence { name, file, case, passed, failed });
            }
        }
        divergences
    }
}

/// Returns names like `model, link`.
fn backend_names(backends: &[Backend]) -> String {
    backends.iter().map(|backend| backend.name()).collect::<Vec<_>>().join(", ")
}
