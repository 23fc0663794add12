//! Joins the rules of the reference with the tests and scenarios that claim them, and with their results.
//!
//! ```text
//!  rules/*.toml ────────────▶ rules ──┐
//!  *.rs, tests/c/*.c, *.scn ─▶ claims ─┼─▶ verdict ─▶ report (text, JSON), check
//!  target/conformance/* ────▶ results ─┘        └───▶ page ─▶ docs/CONFORMANCE.md
//! ```
//!
//! A claim counts if the last run of the tests recorded a pass. The page lists those claims; `--check` fails on all
//! others.

#![forbid(unsafe_code)]

pub mod check;
pub mod claims;
pub mod page;
pub mod report;
pub mod results;
pub mod rules;
pub mod verdict;

use std::path::Path;

pub use check::failures;
pub use claims::{Claim, Claims};
pub use results::Results;
pub use rules::RuleList;
use verdict::Outcome;

/// Folder of the results, relative to the tree.
pub const RESULTS_FOLDER: &str = "target/conformance";

/// The rules and claims of a tree, without results.
#[derive(Debug)]
pub struct Tree {
    pub rules: RuleList,
    pub claims: Claims,
}

impl Tree {
    /// The tree with only the claims whose test or scenario passed.
    pub fn recorded(&self, results: &Results) -> Tree {
        let has_passed = |claim: &&Claim| verdict::outcome(results, claim) == Outcome::Passed;
        let claims = self.claims.claims.iter().filter(has_passed).cloned().collect();
        Tree { rules: self.rules.clone(), claims: Claims { claims, defects: self.claims.defects.clone() } }
    }
}

/// Reads rules and claims of the tree at `root`.
pub fn read_tree(root: &Path) -> anyhow::Result<Tree> {
    let rules = RuleList::read(root)?;
    let mut claims = Claims::read(root)?;
    claims.check_rules(&rules);
    Ok(Tree { rules, claims })
}
