//! What tests and scenarios said when they were last run.

pub mod cargo_test;
pub mod scenarios;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub use cargo_test::TestResult;
pub use scenarios::ScenarioResult;

/// How something that was looked for in the results ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Passed,
    Failed,
    /// Not run, though it could have been: ignored, or not for this backend.
    Skipped,
}

/// The backends of scenarios; each has a file of its own.
pub const BACKENDS: [&str; 4] = ["model", "link", "local", "vm"];

#[derive(Debug, Default)]
pub struct Results {
    pub tests: Vec<TestResult>,
    pub scenarios: Vec<ScenarioResult>,
    /// The files that were there.
    pub files: Vec<PathBuf>,
}

impl Results {
    /// Reads what there is: `cargo-test.txt` (or `test_output` in its stead, which has to be there) and
    /// `scenarios-BACKEND.json`.
    pub fn read(root: &Path, folder: &Path, test_output: Option<&Path>) -> anyhow::Result<Self> {
        let mut results = Self::default();
        let usual = folder.join("cargo-test.txt");
        let output = test_output.unwrap_or(&usual);
        if test_output.is_some() || output.exists() {
            results.tests = cargo_test::parse(&results.text(output)?);
        }
        for backend in BACKENDS {
            let path = folder.join(format!("scenarios-{backend}.json"));
            if path.exists() {
                let read = scenarios::parse(&results.text(&path)?, backend, root);
                results.scenarios.extend(read.with_context(|| format!("in {}", path.display()))?);
            }
        }
        Ok(results)
    }

    /// A file that was changed after some of the results were written, among `files` of the tree.
    pub fn outdated_by<'a>(&self, root: &Path, mut files: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
        let oldest = self.files.iter().filter_map(|file| changed(file)).min()?;
        files.find(|file| changed(&root.join(file)).is_some_and(|changed| changed > oldest))
    }

    fn text(&mut self, path: &Path) -> anyhow::Result<String> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.files.push(path.to_owned());
        // Programs under test may print what they like.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
