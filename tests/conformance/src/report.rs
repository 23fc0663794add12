//! Reports as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::Tree;
use crate::results::Results;
use crate::rules::Group;
use crate::verdict::{Judged, Outcome, State, judge};

/// Text that says how to make results.
pub const HOW: &str = "\
No results yet. `just conformance` makes them, or by hand:
  cargo test --no-fail-fast
  cargo run -p conformance
";

/// Which rules to show one by one.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    None,
    Group(&'a Group),
    All,
}

#[derive(Default)]
struct Counts {
    rows: usize,
    in_seed: usize,
    states: [usize; State::ALL.len()],
}

impl Counts {
    fn of<'a>(tree: &Tree, results: &Results, groups: impl Iterator<Item = &'a Group>) -> Self {
        let mut counts = Self::default();
        for rule in groups.flat_map(|group| &group.rules) {
            counts.rows += 1;
            counts.in_seed += usize::from(rule.seed);
            let state = tree_state(tree, results, rule);
            for (count, known) in counts.states.iter_mut().zip(State::ALL) {
                *count += usize::from(known == state);
            }
        }
        counts
    }

    fn line(&self, name: &str) -> String {
        let mut line = format!("{name:<6}{:>6}{:>9}", self.rows, self.in_seed);
        for (count, state) in self.states.iter().zip(State::ALL) {
            let _ = write!(line, "{count:>width$}", width = state.name().len() + 2);
        }
        line
    }

    fn json(&self) -> Value {
        let mut object = json!({"rows": self.rows, "in-seed": self.in_seed});
        for (count, state) in self.states.iter().zip(State::ALL) {
            object[state.name().replace(' ', "-")] = json!(count);
        }
        object
    }
}

fn tree_state(tree: &Tree, results: &Results, rule: &crate::rules::Rule) -> State {
    judge(tree, results, rule).state
}

pub fn text(tree: &Tree, results: &Results, rows: Rows<'_>) -> String {
    let mut text = format!("{:<6}{:>6}{:>9}", "group", "rows", "in seed");
    for state in State::ALL {
        let _ = write!(text, "  {}", state.name());
    }
    text.push('\n');
    let (observed, counted): (Vec<&Group>, Vec<&Group>) =
        tree.rules.groups.iter().partition(|group| group.is_observed);
    for group in &counted {
        let _ = writeln!(text, "{}", Counts::of(tree, results, [*group].into_iter()).line(&group.name));
    }
    let _ = writeln!(text, "{}", Counts::of(tree, results, counted.iter().copied()).line("total"));
    for group in observed {
        let counts = Counts::of(tree, results, [group].into_iter());
        let _ = writeln!(text, "{}  ({}; beside the total)", counts.line(&group.name), group.title);
    }
    let groups = tree.rules.groups.iter().filter(|group| match rows {
        Rows::None => false,
        Rows::Group(wanted) => wanted.name == group.name,
        Rows::All => true,
    });
    for group in groups {
        let _ = writeln!(text, "\n{}: {}", group.name, group.title);
        for rule in &group.rules {
            text.push_str(&row(&judge(tree, results, rule)));
        }
    }
    text
}

fn row(judged: &Judged<'_>) -> String {
    let rule = judged.rule;
    let seed = if rule.seed { " (seed)" } else { "" };
    let mut row = format!("{}  {:<12}  {}{seed}\n", rule.id, judged.state.name(), rule.says);
    for (claim, outcome) in &judged.claims {
        let (result, why) = words(outcome);
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let _ = writeln!(row, "         {result:<12}  {}{why}", claim.location);
    }
    row
}

fn words(outcome: &Outcome) -> (&'static str, &str) {
    match outcome {
        Outcome::Passed => ("passed", ""),
        Outcome::Failed(why) => ("failed", why),
        Outcome::NotRun(why) => ("not run", why),
    }
}

/// One rule with its claims and results.
pub fn rule_text(judged: &Judged<'_>) -> String {
    let rule = judged.rule;
    let mut text = row(judged);
    let basis = rule.basis.map(|basis| format!(", {basis:?}").to_lowercase()).unwrap_or_default();
    let _ = writeln!(text, "source: {}{basis}", rule.source);
    if let Some(reason) = &rule.out_of_model {
        let _ = writeln!(text, "out of model: {reason}");
    }
    if let Some(reason) = &rule.differs {
        let _ = writeln!(text, "differs: {reason}");
    }
    text
}

pub fn json(tree: &Tree, results: &Results) -> Value {
    let group = |group: &Group| {
        let mut object = Counts::of(tree, results, [group].into_iter()).json();
        object["group"] = json!(group.name);
        object["title"] = json!(group.title);
        object["beside-the-total"] = json!(group.is_observed);
        object
    };
    let counted = tree.rules.groups.iter().filter(|group| !group.is_observed);
    json!({
        "results": results.files,
        "groups": tree.rules.groups.iter().map(group).collect::<Vec<_>>(),
        "total": Counts::of(tree, results, counted).json(),
        "rules": tree.rules.rules().map(|rule| rule_json(&judge(tree, results, rule))).collect::<Vec<_>>(),
        "defects": tree.claims.defects,
    })
}

pub fn rule_json(judged: &Judged<'_>) -> Value {
    let mut object = json!(judged.rule);
    object["state"] = json!(judged.state);
    let claims = judged.claims.iter().map(|(claim, outcome)| {
        let mut object = json!(outcome);
        object["place"] = json!(claim.location);
        object
    });
    object["claims"] = claims.collect();
    object
}
