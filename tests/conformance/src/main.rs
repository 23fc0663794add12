//! `cargo run -p conformance`: reports the rules of the reference, their claims, and the results.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use conformance::report::{self, Rows};
use conformance::verdict::judge;
use conformance::{RESULTS_FOLDER, Results, Tree, failures, page, read_tree};

/// Joins the rules of the reference with the tests and scenarios that claim them, and with their last results.
///
/// Exit codes: 0 success, 1 there are defects (with --check: any failure of --check), 2 the report could not be made.
#[derive(Parser)]
struct Options {
    /// The whole report as JSON
    #[arg(long)]
    json: bool,
    /// Show the rules of one group, such as FEN
    #[arg(long, conflicts_with_all = ["all", "rule"])]
    group: Option<String>,
    /// Show every rule
    #[arg(long)]
    all: bool,
    /// Show one rule, its claims and their results
    #[arg(long, conflicts_with = "all")]
    rule: Option<String>,
    /// Fail on defects, on claims that failed or did not run, on drift of docs/CONFORMANCE.md and on lost coverage
    #[arg(long)]
    check: bool,
    /// Regenerate docs/CONFORMANCE.md
    #[arg(long, conflicts_with = "check")]
    bless: bool,
    /// The tree to read
    #[arg(long, value_name = "FOLDER", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), hide_default_value = true)]
    tree: PathBuf,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the program; returns whether there are no failures.
fn run(options: &Options) -> anyhow::Result<bool> {
    let root =
        options.tree.canonicalize().with_context(|| format!("no tree at {}", options.tree.display()))?;
    let tree = read_tree(&root)?;
    let results = Results::read(&root, &root.join(RESULTS_FOLDER))?;
    if options.bless {
        let path = root.join(page::PATH);
        let missing = tree.claims.claims.len() - tree.recorded(&results).claims.claims.len();
        ensure!(missing == 0, "{missing} claims have no record of a pass; `just conformance` runs the tests");
        std::fs::write(&path, page::render(&tree))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    say(&shown(options, &tree, &results)?)?;
    let problems = if options.check {
        failures(&tree, &results, &page::read(&root))
    } else {
        tree.claims.defects.iter().map(ToString::to_string).collect()
    };
    for line in &problems {
        eprintln!("{line}");
    }
    if !problems.is_empty() {
        let what = if options.check { "failures" } else { "defects" };
        eprintln!("conformance: {what}: {}", problems.len());
    }
    Ok(problems.is_empty())
}

/// Prints text. A reader that closes the pipe early, such as `head`, is no failure.
fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn shown(options: &Options, tree: &Tree, results: &Results) -> anyhow::Result<String> {
    if let Some(id) = &options.rule {
        let Some(rule) = tree.rules.rule(id) else { bail!("{id} is in no list of rules") };
        let judged = judge(tree, results, rule);
        return Ok(if options.json {
            lines(&report::rule_json(&judged))
        } else {
            report::rule_text(&judged)
        });
    }
    if options.json {
        return Ok(lines(&report::json(tree, results)));
    }
    let rows = match &options.group {
        Some(name) => {
            let names: Vec<&str> = tree.rules.groups.iter().map(|group| group.name.as_str()).collect();
            let group = tree.rules.group(name);
            Rows::Group(group.with_context(|| format!("{name} is no group; there are {}", names.join(" ")))?)
        }
        None if options.all => Rows::All,
        None => Rows::None,
    };
    let mut text = report::text(tree, results, rows);
    if results.files.is_empty() {
        text.push('\n');
        text.push_str(report::HOW);
    }
    Ok(text)
}

fn lines(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}
