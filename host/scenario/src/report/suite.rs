//! Results of a part of a run's cases, and the whole from all parts.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::program::Backend;
use crate::report::Results;
use crate::shards::{Mismatch, check_cover};

/// Results of consecutive files of a run: of a shard, or of all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

impl SuiteReport {
    fn backend_names(&self) -> String {
        super::backend_names(&self.backends)
    }
}

/// Merges the parts of a run, in any order: the result is that of one run of all cases. Missing parts are refused.
pub fn merge_suites(mut parts: Vec<SuiteReport>) -> Result<SuiteReport, Mismatch> {
    parts.sort_by_key(|part| (part.files.start, part.files.end));
    for pair in parts.windows(2) {
        let [one, other] = pair else { continue };
        if one.commit != other.commit {
            return Err(Mismatch::Commits(one.commit.clone(), other.commit.clone()));
        }
        if (one.planned, one.digest) != (other.planned, other.digest) {
            return Err(Mismatch::Suites(one.planned, one.digest, other.planned, other.digest));
        }
        if one.backends != other.backends {
            return Err(Mismatch::Backends(one.backend_names(), other.backend_names()));
        }
    }
    let planned = 0..parts.first().ok_or(Mismatch::Nothing)?.planned;
    check_cover("file", &planned, parts.iter().map(|part| part.files.clone()))?;
    let mut parts = parts.into_iter();
    let mut whole = parts.next().ok_or(Mismatch::Nothing)?;
    for part in parts {
        whole.results.cases.extend(part.results.cases);
        whole.results.left_out += part.results.left_out;
    }
    Ok(SuiteReport { files: planned, ..whole })
}
