//! What CI fails on.

use crate::Tree;
use crate::page;
use crate::results::Results;
use crate::verdict::{Outcome, judge};

/// Everything that is wrong, a line each: defects, claims whose test failed or did not run, a page that drifted,
/// coverage that was lost. `committed` is docs/CONFORMANCE.md as it is.
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
            failures.push(format!("{}: {} {what}{why}", claim.place, claim.rule));
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
        format!("{rule} has to be covered (rules/required.toml), and no test that claims it has passed")
    })
}

/// What differs between the page as it is and as it should be; lost coverage is named.
pub fn drift(tree: &Tree, committed: &str) -> Vec<String> {
    let wanted = page::render(tree);
    if committed == wanted {
        return Vec::new();
    }
    let now = page::covered(&wanted);
    let lost = page::covered(committed).into_iter().filter(|rule| !now.contains(rule));
    let mut failures: Vec<String> = lost
        .map(|rule| {
            format!(
                "{rule} is covered according to {}, and no test that claims it has passed now",
                page::PATH
            )
        })
        .collect();
    failures.push(format!("{} has drifted; `{}` writes it anew", page::PATH, page::BLESS));
    failures
}
