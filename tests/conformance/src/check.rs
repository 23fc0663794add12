//! The checks that fail CI.

use crate::Tree;
use crate::page;
use crate::results::Results;
use crate::verdict::{Outcome, judge};

/// All failures, a line each: defects, claims whose test failed or did not run, an outdated page, lost coverage.
/// `committed` is the current text of docs/CONFORMANCE.md.
pub fn failures(tree: &Tree, results: &Results, committed: &str) -> Vec<String> {
    let mut failures: Vec<String> = tree.claims.defects.iter().map(ToString::to_string).collect();
    for judged in tree.rules.rules().map(|rule| judge(tree, results, rule)) {
        for (claim, outcome) in &judged.claims {
            let (what, why) = match outcome {
                Outcome::Passed => continue,
                Outcome::Failed(why) => ("failed", why),
                Outcome::NotRun(why) => ("did not run", why),
            };
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            failures.push(format!("{}: {} {what}{why}", claim.location, claim.rule));
        }
    }
    let recorded = tree.recorded(results);
    failures.extend(uncovered(&recorded));
    failures.extend(drift(&recorded, committed));
    failures
}

/// Required rules without a claim in `tree`.
pub fn uncovered(tree: &Tree) -> impl Iterator<Item = String> {
    let lost = tree.rules.required.iter().filter(|rule| tree.claims.of(rule).next().is_none());
    lost.map(|rule| {
        format!("{rule} must be covered (rules/required.toml), but no test that claims it has passed")
    })
}

/// Differences between the current page and the generated one, with the rules that lost their coverage.
pub fn drift(tree: &Tree, committed: &str) -> Vec<String> {
    let expected = page::render(tree);
    if committed == expected {
        return Vec::new();
    }
    let now = page::covered(&expected);
    let lost = page::covered(committed).into_iter().filter(|rule| !now.contains(rule));
    let mut failures: Vec<String> = lost
        .map(|rule| {
            format!(
                "{rule} is covered according to {}, but no test that claims it has passed now",
                page::PATH
            )
        })
        .collect();
    failures.push(format!("{} is outdated; run `{}` to regenerate it", page::PATH, page::BLESS));
    failures
}
