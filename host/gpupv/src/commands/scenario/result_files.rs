//! Results of scenarios as files for other programs: JSON, JUnit XML, TAP.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use scenario::report::Results;
use serde_json::Value;

use crate::commands::output_file::refuse_other_kind;
use crate::commands::scenario::sink::Sink;

/// The files to write.
#[derive(Args, Debug)]
pub struct ResultFiles {
    /// Write the results as JSON into this file
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
    /// Write the results as JUnit XML into this file
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the results as TAP 14 into this file
    #[arg(long, value_name = "FILE")]
    pub tap: Option<PathBuf>,
}

impl ResultFiles {
    /// Returns the flag of a file that is to be written.
    pub fn any(&self) -> Option<&'static str> {
        self.named().first().map(|(flag, _)| *flag)
    }

    /// The files that are to be written, with their flags.
    pub fn named(&self) -> Vec<(&'static str, &Path)> {
        let flags = [("--json-file", &self.json_file), ("--junit", &self.junit), ("--tap", &self.tap)];
        flags.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?))).collect()
    }
}

/// Refuses to replace files that are no results of an earlier run. Checked before any of them is removed.
fn refuse_others(args: &ResultFiles) -> anyhow::Result<()> {
    for (flag, path) in args.named() {
        refuse_other_kind(path, flag, "result of an earlier run", |bytes| match flag {
            "--tap" => bytes.starts_with(b"TAP version 14"),
            "--junit" => {
                bytes.starts_with(b"<?xml") && String::from_utf8_lossy(bytes).contains("\"gpupv scenario\"")
            }
            _ => serde_json::from_slice::<Value>(bytes).is_ok_and(|value| value.get("left_out").is_some()),
        })?;
    }
    Ok(())
}

/// The result files, opened before any case runs.
pub struct Sinks {
    json: Sink,
    junit: Sink,
    tap: Sink,
}

impl Sinks {
    pub fn open(args: &ResultFiles) -> anyhow::Result<Sinks> {
        refuse_equal(args)?;
        refuse_others(args)?;
        Ok(Sinks {
            json: Sink::open(args.json_file.as_deref())?,
            junit: Sink::open(args.junit.as_deref())?,
            tap: Sink::open(args.tap.as_deref())?,
        })
    }

    pub fn write(self, results: &Results) -> anyhow::Result<()> {
        self.json.write(&format!("{}\n", results.json()))?;
        self.junit.write(&results.junit())?;
        self.tap.write(&results.tap())
    }
}

/// Refuses two kinds of results in one file, which would overwrite each other. Checked before any of them is removed.
fn refuse_equal(args: &ResultFiles) -> anyhow::Result<()> {
    let mut taken: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in args.named() {
        let absolute = std::path::absolute(path).with_context(|| cannot_write(path))?;
        if let Some((other, _)) = taken.iter().find(|(_, taken)| *taken == absolute) {
            bail!("{other} and {flag} both write {}: give each a file of its own", path.display());
        }
        taken.push((flag, absolute));
    }
    Ok(())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
