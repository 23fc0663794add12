//! Prints the results: a table for people, JSON for programs.

use live::output::say;
use serde_json::{Map, Value, json};

use crate::Plan;
use crate::figures::{Goal, Outcome, Unit};
use crate::statistics::Estimate;

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::BytesPerSecond => "bytes/s",
            Unit::Bytes => "bytes",
            Unit::PerSecond => "1/s",
        }
    }

    /// Formats a value with a readable unit.
    fn show(self, value: f64) -> String {
        let digits = |value: f64| if value < 10.0 { 2 } else { 1 };
        let scaled = |value: f64, unit: &str| format!("{value:.*} {unit}", digits(value));
        match self {
            Unit::Nanoseconds if value >= 1e6 => scaled(value / 1e6, "ms"),
            Unit::Nanoseconds if value >= 1e3 => scaled(value / 1e3, "us"),
            Unit::Nanoseconds => scaled(value, "ns"),
            Unit::BytesPerSecond if value >= 1e6 => scaled(value / 1e6, "MB/s"),
            Unit::BytesPerSecond => scaled(value / 1e3, "kB/s"),
            Unit::Bytes if value >= 10_240.0 => scaled(value / 1024.0, "KiB"),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::PerSecond if value >= 1e4 => format!("{:.1} k/s", value / 1e3),
            Unit::PerSecond => format!("{value:.2} /s"),
        }
    }
}

fn goal_words(goal: Goal, unit: Unit) -> String {
    match goal {
        Goal::RatioAtMost(most) => format!("<= {most:.2}x"),
        Goal::RatioAtLeast(least) => format!(">= {least:.2}x"),
        Goal::AtMost(most) => format!("<= {}", unit.show(most)),
        Goal::None => "-".into(),
    }
}

fn met_words(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    }
}

fn estimate_to_json(estimate: Estimate) -> Value {
    json!({ "median": estimate.median, "low": estimate.low, "high": estimate.high })
}

fn outcome_to_json(outcome: &Outcome) -> Value {
    let facts: Map<String, Value> =
        outcome.facts.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let mut ours = estimate_to_json(outcome.ours);
    ours["p99"] = json!(outcome.ours_p99);
    let peer = outcome.peer.map(|peer| {
        let mut peer = estimate_to_json(peer);
        peer["what"] = json!(outcome.definition.peer.1);
        peer["p99"] = json!(outcome.peer_p99);
        peer
    });
    json!({
        "place": outcome.target.name(),
        "figure": outcome.definition.id,
        "title": outcome.definition.title.trim_start(),
        "unit": outcome.definition.unit.name(),
        "rounds": outcome.rounds,
        "ours": ours,
        "peer": peer,
        "ratio": outcome.ratio.map(estimate_to_json),
        "goal": goal_words(outcome.goal, outcome.definition.unit),
        "met": outcome.met,
        "counted": facts,
    })
}

/// Returns the results as JSON. Intervals are 95% bootstrap intervals of the median over the rounds.
pub fn to_json(machine: &Value, plan: &Plan, outcomes: &[Outcome]) -> Value {
    json!({
        "machine": machine,
        "rounds": plan.rounds,
        "quick": plan.quick,
        "rings": !plan.without_rings,
        "figures": outcomes.iter().map(outcome_to_json).collect::<Vec<_>>(),
    })
}

fn row(outcome: &Outcome) -> [String; 7] {
    let unit = outcome.definition.unit;
    let ratio = outcome.ratio.map_or_else(String::new, |ratio| {
        format!("{:.2}x [{:.2}, {:.2}]", ratio.median, ratio.low, ratio.high)
    });
    [
        outcome.target.name().into(),
        outcome.definition.title.into(),
        unit.show(outcome.ours.median),
        outcome.peer.map_or_else(String::new, |peer| unit.show(peer.median)),
        ratio,
        goal_words(outcome.goal, unit),
        met_words(outcome.met).into(),
    ]
}

/// Prints the results as a table.
pub fn print_table(machine: &Value, plan: &Plan, outcomes: &[Outcome]) {
    let text = |name: &str| machine[name].as_str().unwrap_or("none").to_owned();
    say(format_args!("{}, {} cores, Linux {}", text("processor"), machine["cores"], text("kernel")));
    say(format_args!(
        "{}; gpupv {}, {} build; load {} before, {} after; {} rounds\n",
        text("qemu"),
        text("version"),
        text("profile"),
        machine["load_average"]["before"],
        machine["load_average"]["after"],
        plan.rounds,
    ));
    let heading = ["", "figure", "ours", "peer", "ratio [95%]", "goal", ""].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(heading).chain(outcomes.iter().map(row)).collect();
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| match at {
            2 | 3 => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        });
        say(format_args!("{}", cells.collect::<Vec<_>>().join("  ").trim_end()));
    }
    say(format_args!("\npeers, measured in the same rounds:"));
    let mut printed = Vec::new();
    for outcome in outcomes {
        let peer = outcome.definition.peer.1;
        if !peer.is_empty() && !printed.contains(&(outcome.definition.title, peer)) {
            say(format_args!("  {}: {peer}", outcome.definition.title.trim_start()));
            printed.push((outcome.definition.title, peer));
        }
    }
    say(format_args!(
        "times are p50s unless they are called p99, median over the rounds; a goal is met only if its whole interval is inside it"
    ));
    if crate::machine::profile() == "debug" {
        say(format_args!("this is a debug build: its figures are meaningless; build with --profile dist"));
    }
}
