//! Which rules of the reference hold, which tests and scenarios say so, and whether those passed.
//!
//! ```text
//!  rules/*.toml ────────────▶ rules ──┐
//!  *.rs, tests/c/*.c, *.scn ─▶ claims ─┼─▶ verdict ─▶ report (text, JSON), check
//!  target/conformance/* ────▶ results ─┘
//!                 rules + claims ─▶ page ─▶ docs/CONFORMANCE.md
//! ```
//!
//! The page is made of rules and claims alone, so that it is the same on every machine. What the last run of the
//! tests said is in the report, and `--check` fails on it.

#![forbid(unsafe_code)]

pub mod check;
pub mod claims;
pub mod page;
pub mod place;
pub mod report;
pub mod results;
pub mod rules;
pub mod verdict;

use std::path::Path;

pub use check::failures;
pub use claims::Claims;
pub use results::Results;
pub use rules::RuleList;

/// Where results lie when nothing else is said, below the tree.
pub const RESULTS_FOLDER: &str = "target/conformance";

/// What a tree says about its rules, whatever its tests did.
#[derive(Debug)]
pub struct Tree {
    pub rules: RuleList,
    pub claims: Claims,
}

/// Reads rules and claims of the tree at `root`.
pub fn read_tree(root: &Path) -> anyhow::Result<Tree> {
    let rules = RuleList::read(root)?;
    let mut claims = Claims::read(root)?;
    claims.judge_ids(&rules);
    Ok(Tree { rules, claims })
}
