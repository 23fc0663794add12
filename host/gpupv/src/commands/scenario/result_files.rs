//! Results of scenarios as files for other programs: JSON, JUnit XML, TAP.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use scenario::report::Results;
use serde_json::Value;

use crate::commands::output_file::refuse_other_kind;

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

/// Refuses to replace files that are no results of an earlier run. Checked before any file is truncated.
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
    json: Option<(PathBuf, File)>,
    junit: Option<(PathBuf, File)>,
    tap: Option<(PathBuf, File)>,
}

impl Sinks {
    pub fn open(args: &ResultFiles) -> anyhow::Result<Sinks> {
        refuse_equal(args)?;
        refuse_others(args)?;
        let open = |path: &Option<PathBuf>| -> anyhow::Result<Option<(PathBuf, File)>> {
            let Some(path) = path else { return Ok(None) };
            let file = File::create(path).with_context(|| cannot_write(path))?;
            Ok(Some((path.clone(), file)))
        };
        Ok(Sinks { json: open(&args.json_file)?, junit: open(&args.junit)?, tap: open(&args.tap)? })
    }

    pub fn write(self, results: &Results) -> anyhow::Result<()> {
        let write = |(path, mut file): (PathBuf, File), text: String| {
            file.write_all(text.as_bytes()).with_context(|| cannot_write(&path))
        };
        if let Some(sink) = self.json {
            write(sink, format!("{}\n", results.json()))?;
        }
        if let Some(sink) = self.junit {
            write(sink, results.junit())?;
        }
        if let Some(sink) = self.tap {
            write(sink, results.tap())?;
        }
        Ok(())
    }
}

/// Refuses two kinds of results in one file, which would overwrite each other. Checked before any file is truncated.
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
