//! The file that `--report` writes and `gpupv scenario merge` reads.
//!
//! A shard may end at any moment: its node fails, the cluster's engine preempts it. So the file is a [`Sink`].

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use scenario::report::SuiteReport;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::commands::output_file::refuse_other_kind;
use crate::commands::scenario::explored::Exploration;
use crate::commands::scenario::ranges::Shard;
use crate::commands::scenario::sink::Sink;

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

/// Opens the file of a report before anything runs.
pub fn open_report(path: Option<&Path>) -> anyhow::Result<Sink> {
    if let Some(path) = path {
        refuse_other_kind(path, "--report", "report of an earlier run", |bytes| {
            let value = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
            value.get("reports").or(value.get("suite")).is_some()
        })?;
    }
    Sink::open(path)
}
