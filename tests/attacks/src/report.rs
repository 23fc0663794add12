//! The result table of all attacks in Markdown, which is also readable in a terminal.

use std::fmt::Write as _;

use crate::run::{Outcome, p99_factor};
use crate::victim::Times;

/// A duration in ms, with two digits below 10 ms.
fn ms(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.0}") }
}

fn times(times: &Times) -> String {
    format!("{} / {} / {}", ms(times.p50_ns), ms(times.p99_ns), ms(times.longest_ns))
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// A row for each attack; after the table the faults of failed ones.
pub fn markdown(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let held = outcomes.iter().filter(|outcome| outcome.faults.is_empty()).count();
    let _ = writeln!(
        text,
        "{held} of {} attacks are withstood. Calls: p50 / p99 / longest in ms.\n",
        outcomes.len()
    );
    text.push_str("| attack | class | calls in peace | calls beside it | work, longest | attach, longest ");
    text.push_str(
        "| memory MiB: before, most, after | descriptors: before, most, after | log KiB | holds |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
    for outcome in outcomes {
        let Outcome { name, class, baseline, under_attack, before, after, .. } = outcome;
        let _ = writeln!(
            text,
            "| {name} | {class} | {} | {} | {} | {} | {}, {}, {} | {}, {}, {} | {} | {} |",
            times(&baseline.calls),
            times(&under_attack.calls),
            ms(under_attack.work.longest_ns),
            ms(under_attack.attach.longest_ns),
            mib(before.resident_bytes),
            mib(outcome.most_resident_bytes),
            mib(after.resident_bytes),
            before.descriptors,
            outcome.most_descriptors,
            after.descriptors,
            outcome.log_bytes >> 10,
            if outcome.faults.is_empty() { "yes" } else { "**no**" },
        );
    }
    text.push('\n');
    for outcome in outcomes.iter().filter(|outcome| !outcome.faults.is_empty()) {
        let _ = writeln!(text, "* {}: {}", outcome.name, outcome.faults.join("; "));
    }
    let refused = outcomes.iter().filter_map(|outcome| Some((outcome.name, outcome.refused.as_ref()?)));
    for (name, why) in refused {
        let _ = writeln!(text, "* {name} is refused: {why}");
    }
    let _ = writeln!(text, "\nA p99 may be {} times that of peace on this machine.", p99_factor());
    text
}
