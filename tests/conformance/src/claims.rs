//! Claims of tests and scenarios, found in the text of the tree.
//!
//! | claim | where |
//! |---|---|
//! | `covers!("FEN-001", "W-105");` | a Rust test, or a helper that asserts |
//! | `COVERS("FEN-001 W-105");` | `tests/c/*.c` |
//! | `covers FEN-001 W-105` | `tests/scenarios/**/*.scn` |
//!
//! A claim counts once it has run: see [`crate::results`].

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::rules::RuleList;

/// A line of a file; the path is relative to the root of the tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLocation {
    pub file: String,
    pub line: usize,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Serialize for SourceLocation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A claim that is invalid whatever the result of its test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Defect {
    #[serde(rename = "place")]
    pub location: SourceLocation,
    pub what: String,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.what)
    }
}

/// A rule that a test or scenario claims to cover.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    pub rule: String,
    pub location: SourceLocation,
}

impl Claim {
    pub fn is_of_scenario(&self) -> bool {
        self.location.file.ends_with(".scn")
    }
}

#[derive(Debug, Default)]
pub struct Claims {
    pub claims: BTreeSet<Claim>,
    pub defects: BTreeSet<Defect>,
}

impl Claims {
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut claims = Self::default();
        for path in files(root)? {
            let file = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            if let Some(form) = Form::of(&file) {
                let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
                claims.add(&file, form, &text);
            }
        }
        Ok(claims)
    }

    /// Adds the claims of one file.
    pub fn add(&mut self, file: &str, form: Form, text: &str) {
        for (line, rules) in form.find(text) {
            let location = SourceLocation { file: file.to_owned(), line };
            if rules.is_empty() {
                let what = "the claim names no rule".to_owned();
                self.defects.insert(Defect { location: location.clone(), what });
            }
            self.claims.extend(rules.into_iter().map(|rule| Claim { rule, location: location.clone() }));
        }
    }

    /// Adds a defect for each claim of a rule that is unknown or outside of the model.
    pub fn check_rules(&mut self, rules: &RuleList) {
        for Claim { rule, location } in &self.claims {
            let what = match rules.rule(rule) {
                None => format!("{rule} is in no list of rules"),
                Some(known) => match &known.out_of_model {
                    Some(reason) => format!("{rule} is claimed, but out of the model: {reason}"),
                    None => continue,
                },
            };
            self.defects.insert(Defect { location: location.clone(), what });
        }
    }

    pub fn of<'a>(&'a self, rule: &'a str) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(move |claim| claim.rule == rule)
    }
}

/// How claims are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Rust,
    C,
    Scenario,
}

impl Form {
    fn of(file: &str) -> Option<Self> {
        match file.rsplit_once('.')?.1 {
            // The macro itself, and tests of claims.
            "rs" if file.starts_with("tests/covers/") || file.starts_with("tests/conformance/") => None,
            "rs" => Some(Self::Rust),
            "c" if file.starts_with("tests/c/") => Some(Self::C),
            "scn" if file.starts_with("tests/scenarios/") => Some(Self::Scenario),
            _ => None,
        }
    }

    /// Each claim's line and rules.
    fn find(self, text: &str) -> Vec<(usize, Vec<String>)> {
        match self {
            Self::Rust => calls(text, "covers!("),
            Self::C => calls(text, "COVERS("),
            Self::Scenario => text
                .lines()
                .zip(1..)
                .filter_map(|(text, line)| {
                    let rules = text.split('#').next()?.trim().strip_prefix("covers ")?;
                    Some((
                        line,
                        rules.split([' ', ',']).filter(|id| !id.is_empty()).map(Into::into).collect(),
                    ))
                })
                .collect(),
        }
    }
}

/// Statements that begin with `head`: the words within quotes, up to the closing bracket.
fn calls(text: &str, head: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut offset = 0;
    for (line, number) in text.split_inclusive('\n').zip(1..) {
        if line.trim_start().starts_with(head) {
            let inside =
                text[offset + line.find(head).unwrap_or(0) + head.len()..].split(')').next().unwrap_or("");
            let quoted = inside.split('"').skip(1).step_by(2);
            found.push((number, quoted.flat_map(str::split_whitespace).map(Into::into).collect()));
        }
        offset += line.len();
    }
    found
}

/// Every file of the tree, without build output and `.git`.
fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            let built = path.join("CACHEDIR.TAG").is_file() || name == "target" || name == ".git";
            if path.is_dir() && !path.is_symlink() && !built {
                folders.push(path);
            } else if path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
