//! Results of scenarios as files for other programs: JSON, JUnit XML, TAP.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use scenario::report::Results;

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
        let flags = [("--json-file", &self.json_file), ("--junit", &self.junit), ("--tap", &self.tap)];
        flags.iter().find_map(|(flag, path)| path.as_ref().map(|_| *flag))
    }
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
    let flags = [("--json-file", &args.json_file), ("--junit", &args.junit), ("--tap", &args.tap)];
    let mut taken: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in flags {
        let Some(path) = path else { continue };
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
