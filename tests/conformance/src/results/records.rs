//! Records that tests leave in `target/conformance/covered`: see the crate `covers`.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::Ended;
use crate::claims::SourceLocation;

/// Result of one claim's block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub location: SourceLocation,
    pub rules: Vec<String>,
    pub ended: Ended,
    /// The thread that ran it, which libtest names after its test.
    pub test: String,
}

/// The records of a folder; empty if it does not exist.
pub fn read(folder: &Path) -> anyhow::Result<Vec<Record>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut records = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        records.push(parse(&text).with_context(|| format!("in {}", path.display()))?);
    }
    records.sort_by(|one, other| one.location.cmp(&other.location));
    Ok(records)
}

/// Reads the four lines of a record.
pub fn parse(text: &str) -> anyhow::Result<Record> {
    let [location, rules, verdict, test] = text.lines().collect::<Vec<_>>()[..] else {
        bail!("a record has four lines: FILE:LINE, rules, passed or failed, test");
    };
    let (file, line) = location.rsplit_once(':').with_context(|| format!("{location:?} is no FILE:LINE"))?;
    Ok(Record {
        location: SourceLocation {
            file: file.to_owned(),
            line: line.parse().context("the line is no number")?,
        },
        rules: rules.split_whitespace().map(Into::into).collect(),
        ended: match verdict {
            "passed" => Ended::Passed,
            "failed" => Ended::Failed,
            other => bail!("verdict {other:?} is not passed or failed"),
        },
        test: test.to_owned(),
    })
}
