//! Joins claims with results: the state of each rule.

use serde::Serialize;

use crate::Tree;
use crate::claims::Claim;
use crate::results::{Ended, Record, Results};
use crate::rules::Rule;

/// Result of one claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "reason")]
pub enum Outcome {
    Passed,
    Failed(String),
    NotRun(String),
}

/// State of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// At least one claim passed, and none failed.
    Passing,
    /// At least one claim failed.
    Failing,
    /// There are claims, but none has a result.
    NotRun,
    /// gpupv differs from the rule, for a reason in the rule list; no claim failed.
    Differs,
    NotCovered,
    OutOfModel,
}

impl State {
    pub const ALL: [Self; 6] =
        [Self::Passing, Self::Failing, Self::NotRun, Self::Differs, Self::NotCovered, Self::OutOfModel];

    pub fn name(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Failing => "failing",
            Self::NotRun => "not run",
            Self::Differs => "differs",
            Self::NotCovered => "not covered",
            Self::OutOfModel => "out of model",
        }
    }
}

#[derive(Debug)]
pub struct Judged<'a> {
    pub rule: &'a Rule,
    pub state: State,
    pub claims: Vec<(&'a Claim, Outcome)>,
}

pub fn judge<'a>(tree: &'a Tree, results: &Results, rule: &'a Rule) -> Judged<'a> {
    let claims: Vec<_> = tree.claims.of(&rule.id).map(|claim| (claim, outcome(results, claim))).collect();
    let has = |is_match: fn(&Outcome) -> bool| claims.iter().any(|(_, outcome)| is_match(outcome));
    let state = if has(|outcome| matches!(outcome, Outcome::Failed(_))) {
        State::Failing
    } else if rule.differs.is_some() {
        State::Differs
    } else if has(|outcome| *outcome == Outcome::Passed) {
        State::Passing
    } else if !claims.is_empty() {
        State::NotRun
    } else if rule.out_of_model.is_some() {
        State::OutOfModel
    } else {
        State::NotCovered
    };
    Judged { rule, state, claims }
}

/// Result of a claim's test or scenario.
pub fn outcome(results: &Results, claim: &Claim) -> Outcome {
    if claim.is_of_scenario() {
        return scenario_outcome(results, &claim.location.file);
    }
    match results.record(claim) {
        Some(Record { ended: Ended::Failed, test, .. }) => Outcome::Failed(format!("in {test}")),
        Some(_) => Outcome::Passed,
        None => Outcome::NotRun("there is no record of it".into()),
    }
}

/// A scenario passed if a case passed on some backend and none failed.
fn scenario_outcome(results: &Results, file: &str) -> Outcome {
    let found: Vec<_> = results.scenarios.iter().filter(|result| result.file == file).collect();
    if let Some(failed) = found.iter().find(|result| result.ended == Ended::Failed) {
        let words = [failed.case.as_str(), "on backend", &failed.backend, &failed.reason];
        Outcome::Failed(words.join(" ").trim().to_owned())
    } else if found.iter().any(|result| result.ended == Ended::Passed) {
        Outcome::Passed
    } else if let Some(skipped) = found.first() {
        Outcome::NotRun(format!("skipped on every backend: {}", skipped.reason))
    } else {
        Outcome::NotRun("it is not in the results".into())
    }
}
