//! Results of tests and scenarios, from `target/conformance`.

pub mod records;
pub mod scenarios;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::claims::{Claim, Claims};
pub use records::Record;
pub use scenarios::ScenarioResult;

/// Names of the backends that scenarios run on.
pub const BACKENDS: [&str; 4] = ["model", "link", "local", "vm"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Passed,
    Failed,
    /// A scenario whose file skips the backend.
    Skipped,
}

/// Results of the last runs.
#[derive(Debug, Default)]
pub struct Results {
    pub records: Vec<Record>,
    pub scenarios: Vec<ScenarioResult>,
    /// The files and folders that were read.
    pub files: Vec<PathBuf>,
}

impl Results {
    /// Reads the existing results in `folder`: `covered/` and `scenarios-BACKEND.json`.
    pub fn read(root: &Path, folder: &Path) -> anyhow::Result<Self> {
        let covered = folder.join("covered");
        let mut results = Self { records: records::read(&covered)?, ..Self::default() };
        results.files.extend(Some(covered).filter(|covered| covered.exists()));
        for backend in BACKENDS {
            let path = folder.join(format!("scenarios-{backend}.json"));
            if path.exists() {
                let text = std::fs::read_to_string(&path)?;
                let read = scenarios::parse(&text, backend, root);
                results.scenarios.extend(read.with_context(|| format!("in {}", path.display()))?);
                results.files.push(path);
            }
        }
        Ok(results)
    }

    /// The record of a claim. `None` if its block has not run since it moved to this line.
    pub fn record(&self, claim: &Claim) -> Option<&Record> {
        let at = self.records.binary_search_by(|record| record.location.cmp(&claim.location)).ok()?;
        Some(&self.records[at]).filter(|record| record.rules.contains(&claim.rule))
    }

    /// Records of claims that are no longer in the tree.
    pub fn outdated<'a>(&'a self, claims: &'a Claims) -> impl Iterator<Item = &'a Record> {
        self.records
            .iter()
            .filter(|record| !claims.claims.iter().any(|claim| claim.location == record.location))
    }
}
