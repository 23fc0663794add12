//! docs/CONFORMANCE.md, of rules and claims alone.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::Tree;
use crate::rules::{Group, Rule};

pub const PATH: &str = "docs/CONFORMANCE.md";

/// Mends drift.
pub const BLESS: &str = "cargo run -p conformance -- --bless";

/// Marks a rule that is in the documents the project began with.
const SEED: &str = "seed";

pub fn render(tree: &Tree) -> String {
    let mut page = String::from(
        "# Conformance\n\n\
         Which rules of the reference are covered, and by which tests and scenarios. This page is made of\n\
         [the rules](../tests/conformance/rules) and of what tests say they cover, by\n\
         `cargo run -p conformance -- --bless`. Whether those tests passed, `just conformance` says.\n\
         A rule that is not covered may hold all the same; do not rely on it yet. *In seed*: the documents that the\n\
         project began with state the rule; the others come from the wider reference. *Out of model*: the rule can have\n\
         no meaning in a simulator, and the reason stands beside it.\n\n\
         | group | what | rows | in seed | covered | not covered | out of model |\n\
         |---|---|---:|---:|---:|---:|---:|\n",
    );
    let counted: Vec<&Group> = tree.rules.groups.iter().filter(|group| !group.is_observed).collect();
    for group in &counted {
        let _ = summary(
            &mut page,
            &format!("[{0}](#{1})", group.name, anchor(group)),
            &group.title,
            tree,
            &[group],
        );
    }
    let _ = summary(&mut page, "**total**", "", tree, &counted);
    for group in tree.rules.groups.iter().filter(|group| group.is_observed) {
        let name = format!("[{0}](#{1})", group.name, anchor(group));
        let _ = summary(&mut page, &name, &format!("{} (beside the total)", group.title), tree, &[group]);
    }
    for group in &tree.rules.groups {
        let _ = section(&mut page, tree, group);
    }
    page
}

/// The rules that a page says are covered.
pub fn covered(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.contains("](../"));
    rows.filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .filter(|(id, _)| !id.contains('['))
        .map(|(id, _)| id.to_owned())
        .collect()
}

pub fn read(root: &Path) -> String {
    std::fs::read_to_string(root.join(PATH)).unwrap_or_default()
}

fn anchor(group: &Group) -> String {
    let letters = heading(group).to_lowercase();
    let kept = letters.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-'].contains(letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn heading(group: &Group) -> String {
    format!("{}: {}", group.name, group.title)
}

fn is_covered(tree: &Tree, rule: &Rule) -> bool {
    tree.claims.of(&rule.id).next().is_some()
}

fn summary(page: &mut String, name: &str, title: &str, tree: &Tree, groups: &[&Group]) -> std::fmt::Result {
    let rules = || groups.iter().flat_map(|group| &group.rules);
    let (rows, seed) = (rules().count(), rules().filter(|rule| rule.seed).count());
    let covered = rules().filter(|rule| is_covered(tree, rule)).count();
    let out = rules().filter(|rule| !is_covered(tree, rule) && rule.out_of_model.is_some()).count();
    let not = rows - covered - out;
    writeln!(page, "| {name} | {title} | {rows} | {seed} | {covered} | {not} | {out} |")
}

fn section(page: &mut String, tree: &Tree, group: &Group) -> std::fmt::Result {
    writeln!(page, "\n## {}", heading(group))?;
    let (covered, rest): (Vec<&Rule>, Vec<&Rule>) =
        group.rules.iter().partition(|rule| is_covered(tree, rule));
    let (out, not): (Vec<&Rule>, Vec<&Rule>) = rest.into_iter().partition(|rule| rule.out_of_model.is_some());
    if !covered.is_empty() {
        table(page, &covered, "covered by", |rule| files(tree, rule))?;
    }
    if !not.is_empty() {
        writeln!(page, "\n<details><summary>not covered: {}</summary>", not.len())?;
        table(page, &not, "", |_| "not covered".into())?;
        writeln!(page, "\n</details>")?;
    }
    if !out.is_empty() {
        writeln!(page, "\n<details><summary>out of model: {}</summary>", out.len())?;
        let reason = |rule: &Rule| {
            format!("out of model: {}", plain(rule.out_of_model.as_deref().unwrap_or_default()))
        };
        table(page, &out, "", reason)?;
        writeln!(page, "\n</details>")?;
    }
    Ok(())
}

fn table(page: &mut String, rules: &[&Rule], last: &str, cell: impl Fn(&Rule) -> String) -> std::fmt::Result {
    writeln!(page, "\n| rule | says | | {last} |\n|---|---|---|---|")?;
    for rule in rules {
        let seed = if rule.seed { SEED } else { "" };
        writeln!(page, "| {} | {} | {seed} | {} |", rule.id, plain(&rule.says), cell(rule))?;
    }
    Ok(())
}

/// Files without their lines, which every change would move.
fn files(tree: &Tree, rule: &Rule) -> String {
    let files: BTreeSet<&str> = tree.claims.of(&rule.id).map(|claim| claim.place.file.as_str()).collect();
    let links: Vec<String> = files.iter().map(|file| format!("[{file}](../{file})")).collect();
    links.join(", ")
}

/// Text that no table and no markup takes for its own.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' => plain.extend(['\\', letter]),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '\n' => plain.push(' '),
            other => plain.push(other),
        }
    }
    plain
}
