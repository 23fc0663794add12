//! What tests and scenarios say they cover.
//!
//! | claim | where | whose |
//! |---|---|---|
//! | `// covers: FEN-001` | in or directly above a `#[test]` | that test |
//! | the same | in or above a helper, a case or a constant | every test of the target that uses it |
//! | the same | in or above what a libtest-mimic program runs | the test that is named before it in its statement |
//! | `/* covers: FEN-001 */` | `tests/c/*.c` | the tests of `e2e` that run the program, by its name in quotes |
//! | `covers FEN-001` | `tests/scenarios/**/*.scn` | that scenario |
//!
//! Uses are found by name within a target. A claim of nobody, an unknown id and a test that asserts nothing are
//! defects.

mod c;
mod comment;
mod graph;
mod scenario;
mod source;
mod targets;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::place::{Defect, SourceLocation};
use crate::rules::RuleList;
use graph::Graph;
use source::Source;
use targets::{Target, shown};
use tokens::Kind;

/// The package whose tests run the C programs.
const PROGRAM_TESTS: &str = "e2e";

/// A test as `cargo test` names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TestName {
    pub binary: String,
    /// The binary's root file, as seen from its package.
    pub root: String,
    pub test: String,
}

impl fmt::Display for TestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.binary, self.test)
    }
}

/// Whose claim it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    Test(TestName),
    /// A file.
    Scenario(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test(test) => test.fmt(f),
            Self::Scenario(file) => file.fmt(f),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    pub rule: String,
    pub place: SourceLocation,
    pub owner: Owner,
}

#[derive(Debug, Default)]
pub struct Claims {
    /// In order, each once.
    pub claims: BTreeSet<Claim>,
    pub defects: BTreeSet<Defect>,
    /// How many packages have a test of this name: what cargo prints does not tell them apart.
    pub namesakes: BTreeMap<TestName, usize>,
}

/// Who a comment speaks for.
struct Owners {
    owners: BTreeSet<Owner>,
    asserts: bool,
}

impl Claims {
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let (mut rust, mut programs, mut claims) = (Vec::new(), Vec::new(), Self::default());
        for path in files(root)? {
            let file = shown(root, &path);
            let read = || std::fs::read_to_string(&path).with_context(|| format!("cannot read {file}"));
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("rs") => rust.push(Source::rust(file.clone(), &read()?)),
                Some("c") if file.starts_with("tests/c/") => programs.push(c::source(file.clone(), &read()?)),
                Some("scn") if file.starts_with("tests/scenarios/") => claims.add_scenario(&file, &read()?),
                _ => {}
            }
        }
        let targets = targets::targets(root, &rust)?;
        let graphs: Vec<Graph> = targets.iter().map(|target| Graph::new(target, &rust)).collect();
        for (target, graph) in targets.iter().zip(&graphs) {
            for test in graph.tests() {
                *claims.namesakes.entry(name(target, graph.test_path(test))).or_default() += 1;
            }
        }
        for (at, source) in rust.iter().enumerate() {
            claims.add_source(source, |comment| rust_owners(&rust, at, comment, &targets, &graphs));
        }
        for program in &programs {
            claims.add_source(program, |comment| {
                let owners = program_owners(&program.file, &targets, &graphs);
                let asserts = match program.item_of(comment) {
                    Some(item) => program.asserts(item, c::is_assertion),
                    None => (0..program.items.len()).any(|item| program.asserts(item, c::is_assertion)),
                };
                Owners { owners, asserts }
            });
        }
        Ok(claims)
    }

    fn add_scenario(&mut self, file: &str, text: &str) {
        let scenario = scenario::read(text);
        for line in &scenario.claims {
            let owners = BTreeSet::from([Owner::Scenario(file.to_owned())]);
            self.add(file, line, &Owners { owners, asserts: scenario.asserts });
        }
    }

    fn add_source(&mut self, source: &Source, owners: impl Fn(usize) -> Owners) {
        let mut continued: Option<(usize, Owners)> = None;
        for (at, token) in source.tokens.iter().enumerate().filter(|(_, token)| token.kind == Kind::Comment) {
            let lines = comment::claims(&token.text, token.line);
            if let (Some((line, owners)), true, Some(ids)) =
                (&mut continued, lines.is_empty(), comment::only_ids(&token.text))
                && token.line == *line + 1
            {
                *line += 1;
                self.add(&source.file, &comment::Line { line: *line, ids }, owners);
                continue;
            }
            continued = None;
            for line in lines {
                let owners = owners(at);
                self.add(&source.file, &line, &owners);
                continued = Some((token.last_line(), owners));
            }
        }
    }

    fn add(&mut self, file: &str, line: &comment::Line<'_>, found: &Owners) {
        let place = SourceLocation { file: file.to_owned(), line: line.line };
        let mut defect = |what: &str| {
            self.defects.insert(Defect { place: place.clone(), what: what.to_owned() });
        };
        if line.ids.is_empty() {
            defect("the claim names no rule");
        }
        if found.owners.is_empty() {
            defect("the claim belongs to no test");
        } else if !found.asserts {
            defect("what claims this asserts nothing");
        }
        for (id, owner) in line.ids.iter().flat_map(|id| found.owners.iter().map(move |owner| (id, owner))) {
            let (rule, owner) = ((*id).to_owned(), owner.clone());
            self.claims.insert(Claim { rule, place: place.clone(), owner });
        }
    }

    /// Makes defects of claims that the rule list knows better.
    pub fn judge_ids(&mut self, rules: &RuleList) {
        for Claim { rule, place, .. } in &self.claims {
            let what = match rules.rule(rule) {
                None => format!("{rule} is in no list of rules"),
                Some(known) => match &known.out_of_model {
                    Some(reason) => format!("{rule} is claimed, and out of the model: {reason}"),
                    None => continue,
                },
            };
            self.defects.insert(Defect { place: place.clone(), what });
        }
    }

    pub fn of<'a>(&'a self, rule: &'a str) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(move |claim| claim.rule == rule)
    }
}

fn name(target: &Target, test: String) -> TestName {
    TestName { binary: target.binary.clone(), root: target.root.clone(), test }
}

/// The tests that a comment of a Rust file speaks for.
fn rust_owners(
    sources: &[Source],
    source: usize,
    comment: usize,
    targets: &[Target],
    graphs: &[Graph<'_>],
) -> Owners {
    let mut found = Owners { owners: BTreeSet::new(), asserts: true };
    let Some(item) = sources[source].item_of(comment) else { return found };
    let asserts = sources[source].asserts(item, is_assertion);
    for (target, graph) in targets.iter().zip(graphs) {
        let places = (0..).zip(&target.modules).filter(|(_, module)| module.source == source);
        for (module, _) in places {
            let node = (module, item);
            if graph.item(node).is_test {
                found.owners.insert(Owner::Test(name(target, graph.test_path(node))));
                found.asserts &= asserts;
            } else if graph.makes_its_tests() {
                let trials = graph.trials(|reached| reached.contains(&node), |_| false).into_iter();
                found.owners.extend(trials.map(|trial| Owner::Test(name(target, trial))));
                found.asserts &= asserts;
            } else {
                for test in graph.tests().filter(|&test| graph.reached(test).contains(&node)) {
                    found.owners.insert(Owner::Test(name(target, graph.test_path(test))));
                    let by_test = sources[target.modules[test.0].source].asserts(test.1, is_assertion);
                    found.asserts &= asserts || by_test;
                }
            }
        }
    }
    found
}

/// The tests that run a C program: `"states"` on the host, `"/states"` in a guest.
fn program_owners(file: &str, targets: &[Target], graphs: &[Graph<'_>]) -> BTreeSet<Owner> {
    let program = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
    let names_it = |text: &str| text.strip_prefix('/').unwrap_or(text) == program;
    let mut owners = BTreeSet::new();
    for (target, graph) in targets.iter().zip(graphs).filter(|(target, _)| target.package == PROGRAM_TESTS) {
        let tests = graph.tests().filter(|&test| graph.has_text(&graph.reached(test), names_it));
        owners.extend(tests.map(|test| Owner::Test(name(target, graph.test_path(test)))));
        if graph.makes_its_tests() {
            let trials = graph.trials(|reached| graph.has_text(reached, names_it), names_it);
            owners.extend(trials.into_iter().map(|trial| Owner::Test(name(target, trial))));
        }
    }
    owners
}

/// What fails a Rust test, called or as a macro: `assert_eq!`, `.expect(`, `until(`. Helpers of other crates are
/// known by the way they are named.
fn is_assertion(word: &str, next: &str) -> bool {
    let beginnings = [
        "assert",
        "prop_assert",
        "debug_assert",
        "expect",
        "unwrap_err",
        "panic",
        "check",
        "until",
        "eventually",
    ];
    let named = beginnings.iter().any(|beginning| {
        word.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    });
    named && (next == "(" || next == "!")
}

/// Every file that is ours: not what was built, not git's own.
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
