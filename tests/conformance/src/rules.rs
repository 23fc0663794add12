//! The rows of the reference, from `tests/conformance/rules/*.toml`.
//!
//! ```toml
//! group = "FEN"
//! title = "fences and other synchronization objects"
//!
//! [[rule]]
//! id = "FEN-001"
//! says = "A monitored fence is created with an initial value"
//! seed = true                       # in the documents the project began with; false when left out
//! source = "context-monitoring"
//! basis = "inferred"                # or "observed"; left out: a document says so
//! out_of_model = "there is no IoMmu in the model"     # left out: it is in the model
//! differs = "both answers are 0"     # what gpupv does instead, and why; left out: it follows the rule
//! ```
//! A file holds one group. Unknown keys are errors.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

const FOLDER: &str = "tests/conformance/rules";

/// The files, in the order in which groups are shown.
const FILES: [&str; 9] = ["fen", "evt", "esc", "gpv", "sch", "tdr", "bar", "mem", OBSERVED_FILE];

/// Answers observed on Windows: not part of the total.
const OBSERVED_FILE: &str = "observed";

/// Rules that may never lose their last claim, ranges such as `W-001..W-008`.
const REQUIRED_FILE: &str = "required";

/// Basis of a rule that no document states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The project's choice, where documents are silent.
    Inferred,
    /// Observed behaviour of a public implementation.
    Observed,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    pub says: String,
    #[serde(default)]
    pub seed: bool,
    pub source: String,
    pub basis: Option<Basis>,
    /// Why the rule cannot apply to the model.
    pub out_of_model: Option<String>,
    /// What gpupv does instead of the rule, and why. Tests that claim the rule show it.
    pub differs: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    #[serde(rename = "group")]
    pub name: String,
    pub title: String,
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
    /// Whether its rows count in the total.
    #[serde(skip)]
    pub is_observed: bool,
}

#[derive(Clone, Debug, Default)]
pub struct RuleList {
    pub groups: Vec<Group>,
    /// See `REQUIRED_FILE`; every id is in `groups`.
    pub required: Vec<String>,
    by_id: BTreeMap<String, (usize, usize)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Required {
    ranges: Vec<String>,
}

impl RuleList {
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut list = Self::default();
        for file in FILES {
            let path = root.join(FOLDER).join(file).with_extension("toml");
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read the rules {}", path.display()))?;
            list.add(&text, file == OBSERVED_FILE).with_context(|| format!("in {}", path.display()))?;
        }
        let path = root.join(FOLDER).join(REQUIRED_FILE).with_extension("toml");
        if path.exists() {
            let text = std::fs::read_to_string(&path)?;
            list.require(&text).with_context(|| format!("in {}", path.display()))?;
        }
        Ok(list)
    }

    /// Adds the group of one file.
    pub fn add(&mut self, text: &str, is_observed: bool) -> anyhow::Result<()> {
        let group = Group { is_observed, ..toml::from_str(text)? };
        for (at, rule) in group.rules.iter().enumerate() {
            let number = rule.id.strip_prefix(&group.name).and_then(|rest| rest.strip_prefix('-'));
            let is_number = |text: &str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            ensure!(
                number.is_some_and(is_number),
                "rule {:?} is no id of group {}, such as {}-001",
                rule.id,
                group.name,
                group.name
            );
            let mut texts =
                [&rule.says, &rule.source].into_iter().chain(&rule.out_of_model).chain(&rule.differs);
            ensure!(texts.all(|text| !text.trim().is_empty()), "{} has an empty text", rule.id);
            ensure!(
                rule.out_of_model.is_none() || rule.differs.is_none(),
                "{} cannot both differ and be out of the model",
                rule.id
            );
            let before = self.by_id.insert(rule.id.clone(), (self.groups.len(), at));
            ensure!(before.is_none(), "{} is there twice", rule.id);
        }
        self.groups.push(group);
        Ok(())
    }

    fn require(&mut self, text: &str) -> anyhow::Result<()> {
        let Required { ranges } = toml::from_str(text)?;
        for range in ranges {
            let (first, last) = range.split_once("..").unwrap_or((&range, &range));
            let ids: Vec<String> =
                self.by_id.range(first.to_owned()..=last.to_owned()).map(|(id, _)| id.clone()).collect();
            ensure!(
                first <= last && self.rule(first).is_some() && self.rule(last).is_some(),
                "{range:?} does not go from one rule to a later one"
            );
            self.required.extend(ids);
        }
        Ok(())
    }

    pub fn rule(&self, id: &str) -> Option<&Rule> {
        self.by_id.get(id).map(|&(group, at)| &self.groups[group].rules[at])
    }

    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.groups.iter().flat_map(|group| &group.rules)
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }
}
