//! The file that `--report` writes and `gpupv scenario merge` reads.
//!
//! A shard may end at any moment: its node fails, the cluster's engine preempts it. So the file appears under its name
//! when it is complete, and a report of an earlier run is removed before the first case runs.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use scenario::report::SuiteReport;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::commands::output_file::{refuse_other_kind, without_name};
use crate::commands::scenario::explored::Exploration;
use crate::commands::scenario::ranges::Shard;

/// What a report is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// `gpupv scenario explore`.
    Explored(Exploration),
    /// `gpupv scenario run`.
    Suite(SuiteReport),
}

/// A report, with its shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportFile {
    /// `None`: all seeds or cases.
    pub shard: Option<Shard>,
    pub content: Content,
}

impl ReportFile {
    fn to_json(&self) -> Value {
        let mut value = match &self.content {
            Content::Explored(all) => json!(all),
            Content::Suite(suite) => json!({ "suite": suite }),
        };
        if let Some(shard) = self.shard {
            value["shard"] = json!(shard);
        }
        value
    }

    fn from_json(value: &Value) -> anyhow::Result<ReportFile> {
        let shard = Option::<Shard>::deserialize(&value["shard"]).context("\"shard\" is none")?;
        ensure!(shard.is_none_or(|shard| shard.part < shard.parts), "\"shard\" is none");
        let content = match (value.get("reports"), value.get("suite")) {
            (Some(_), _) => Content::Explored(Exploration::deserialize(value)?),
            (None, Some(suite)) => Content::Suite(SuiteReport::deserialize(suite)?),
            (None, None) => bail!("\"reports\" or \"suite\" is missing"),
        };
        if let Content::Explored(Exploration { explored, skipped }) = &content {
            ensure!(
                !explored.is_empty() || !skipped.is_empty(),
                "no case was explored by seed or skipped; name --seeds, because races by interleaving are in no report"
            );
        }
        Ok(ReportFile { shard, content })
    }

    pub fn read(path: &Path) -> anyhow::Result<ReportFile> {
        let name = path.display();
        let bytes = fs::read(path).with_context(|| name.to_string())?;
        ReportFile::from_text(&bytes).with_context(|| format!("{name} is no report"))
    }

    /// The text that `--report` writes.
    pub fn text(&self) -> String {
        format!("{:#}\n", self.to_json())
    }

    pub fn from_text(text: &[u8]) -> anyhow::Result<ReportFile> {
        ReportFile::from_json(&serde_json::from_slice(text)?)
    }
}

/// Where a report goes, opened before anything runs.
pub enum Sink {
    Nowhere,
    /// A device or a pipe.
    Stream(PathBuf, File),
    /// A file that gets its name when it is complete.
    Named(PathBuf, NamedTempFile),
}

impl Sink {
    pub fn open(path: Option<&Path>) -> anyhow::Result<Sink> {
        let Some(path) = path else { return Ok(Sink::Nowhere) };
        refuse_other_kind(path, "--report", "report of an earlier run", |bytes| {
            let value = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
            value.get("reports").or(value.get("suite")).is_some()
        })?;
        Sink::named(path).with_context(|| cannot_write(path))
    }

    fn named(path: &Path) -> anyhow::Result<Sink> {
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => {
                let file = File::options().write(true).open(path)?;
                return Ok(Sink::Stream(path.into(), file));
            }
            Ok(_) | Err(_) => {}
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let name = path.file_name().context("it names no file")?;
        // Others may read the report, as they may read a file that the shell makes.
        let file = tempfile::Builder::new()
            .prefix(&format!(".{}-", name.to_string_lossy()))
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .map_err(without_name)?;
        match fs::remove_file(path) {
            // There is none, or another attempt of this shard has removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
        Ok(Sink::Named(path.into(), file))
    }

    pub fn write(self, report: &ReportFile) -> anyhow::Result<()> {
        match self {
            Sink::Nowhere => Ok(()),
            Sink::Stream(path, mut file) => {
                file.write_all(report.text().as_bytes()).with_context(|| cannot_write(&path))
            }
            Sink::Named(path, mut file) => {
                file.write_all(report.text().as_bytes()).with_context(|| cannot_write(&path))?;
                // A node that fails after the renaming must not leave an empty file under the name.
                file.as_file().sync_all().with_context(|| cannot_write(&path))?;
                file.persist(&path).with_context(|| cannot_write(&path)).map(drop)
            }
        }
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
