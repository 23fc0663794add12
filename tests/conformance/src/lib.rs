//! Which rules of the reference hold, which tests and scenarios say so, and whether those passed.
//!
//! ```text
//!  rules/*.toml ────────────▶ rules ──┐
//!  *.rs, tests/c/*.c, *.scn ─▶ claims ─┼─▶ verdict ─▶ report (text, JSON), check
//!  target/conformance/* ────▶ results ─┘        └───▶ page ─▶ docs/CONFORMANCE.md
//! ```
//!
//! A claim counts if the last run of the tests recorded that it passed. The page has those claims, and `--check` fails
//! on every other.

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

/// Where results lie when nothing else is said, below the tree.
pub const RESULTS_FOLDER: &str = "target/conformance";

/// What a tree says about its rules, whatever its tests did.
#[derive(Debug)]
pub struct Tree {
    pub rules: RuleList,
    pub claims: Claims,
}

impl Tree {
    /// The tree with those claims alone whose test or scenario passed.
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
