//! Generates docs/CONFORMANCE.md from rules and claims.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::Tree;
use crate::rules::{Group, Rule};

pub const PATH: &str = "docs/CONFORMANCE.md";

/// Command that regenerates the page.
pub const BLESS: &str = "cargo run -p conformance -- --bless";

/// Marks a rule of the documents with which the project began.
const SEED: &str = "seed";

pub fn render(tree: &Tree) -> String {
    let mut page = String::from(
        "# Conformance\n\n\
         Which rules of the reference are covered, and by which tests and scenarios. This page is made of\n\
         [the rules](../tests/conformance/rules/README.md) and of the records that tests leave when they have passed, by\n\
         `cargo run -p conformance -- --bless`; CI compares. *In seed*: the documents that the project began with state\n\
         the rule; the others come from the wider reference. *Not covered*: no test has shown that the rule holds.\n\
         *Differs*: gpupv does something else than the rule says; the row says what and why. *Out of model*: the rule\n\
         can have no meaning in a simulator; the row says why.\n\n\
         | group | what | rows | in seed | covered | differs | not covered | out of model |\n\
         |---|---|---:|---:|---:|---:|---:|---:|\n",
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

/// The rules that a page lists as covered.
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

/// The section of a rule on the page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageSection {
    Covered,
    Differs,
    NotCovered,
    OutOfModel,
}

fn part(tree: &Tree, rule: &Rule) -> PageSection {
    if rule.differs.is_some() {
        PageSection::Differs
    } else if tree.claims.of(&rule.id).next().is_some() {
        PageSection::Covered
    } else if rule.out_of_model.is_some() {
        PageSection::OutOfModel
    } else {
        PageSection::NotCovered
    }
}

fn summary(page: &mut String, name: &str, title: &str, tree: &Tree, groups: &[&Group]) -> std::fmt::Result {
    let rules = || groups.iter().flat_map(|group| &group.rules);
    let (rows, seed) = (rules().count(), rules().filter(|rule| rule.seed).count());
    let [covered, differs, not, out] =
        [PageSection::Covered, PageSection::Differs, PageSection::NotCovered, PageSection::OutOfModel]
            .map(|wanted| rules().filter(|rule| part(tree, rule) == wanted).count());
    writeln!(page, "| {name} | {title} | {rows} | {seed} | {covered} | {differs} | {not} | {out} |")
}

fn section(page: &mut String, tree: &Tree, group: &Group) -> std::fmt::Result {
    writeln!(page, "\n## {}", heading(group))?;
    let [covered, differing, not, out] =
        [PageSection::Covered, PageSection::Differs, PageSection::NotCovered, PageSection::OutOfModel].map(
            |wanted| group.rules.iter().filter(|rule| part(tree, rule) == wanted).collect::<Vec<&Rule>>(),
        );
    if !covered.is_empty() {
        table(page, &covered, "covered by", |rule| files(tree, rule))?;
    }
    if !differing.is_empty() {
        writeln!(page, "\nDiffers: {}", differing.len())?;
        let reason = |rule: &Rule| {
            let shown_by = Some(files(tree, rule)).filter(|files| !files.is_empty());
            let shown_by = shown_by.map(|files| format!("; shown by {files}")).unwrap_or_default();
            format!("{}{shown_by}", plain(rule.differs.as_deref().unwrap_or_default()))
        };
        table(page, &differing, "differs", reason)?;
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

/// Links to files, without line numbers, because every change would move those.
fn files(tree: &Tree, rule: &Rule) -> String {
    let files: BTreeSet<&str> = tree.claims.of(&rule.id).map(|claim| claim.location.file.as_str()).collect();
    let links: Vec<String> = files.iter().map(|file| format!("[{file}](../{file})")).collect();
    links.join(", ")
}

/// Escapes text for a Markdown table.
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
