//! Results as TAP 14 (Test Anything Protocol): a plan, then a line for each result. Failures and unchecked lines have a
//! block of YAML below; its strings are JSON strings, which YAML accepts.

use std::fmt::Write as _;

use serde_json::Value;

use crate::report::{CaseResult, Results};
use crate::run::Verdict;

impl Results {
    /// Returns the TAP text. It has no durations, so that runs with equal results give equal bytes.
    pub fn tap(&self) -> String {
        let mut tap = format!("TAP version 14\n1..{}\n", self.cases.len());
        for (number, result) in (1..).zip(&self.cases) {
            write_point(&mut tap, number, result);
        }
        tap
    }
}

fn write_point(tap: &mut String, number: usize, result: &CaseResult) {
    let not = if matches!(result.verdict, Verdict::Failed(_) | Verdict::Error(_)) { "not " } else { "" };
    let name = escape(&format!("{} on {}", result.name(), result.backend.name()));
    write!(tap, "{not}ok {number} - {name}").expect("writing to a string cannot fail");
    if let Verdict::Skipped(reason) = &result.verdict {
        write!(tap, " # SKIP {}", escape(reason)).expect("writing to a string cannot fail");
    }
    tap.push('\n');
    let block = block(result);
    if !block.is_empty() {
        writeln!(tap, "  ---\n{block}  ...").expect("writing to a string cannot fail");
    }
}

fn block(result: &CaseResult) -> String {
    let mut block = String::new();
    let string = |text: &str| Value::from(text).to_string();
    if let Verdict::Failed(failure) = &result.verdict {
        let (what, file, line) = (string(&failure.what), string(&result.file), failure.line);
        write!(block, "  message: {what}\n  at:\n    file: {file}\n    line: {line}\n")
            .expect("writing to a string cannot fail");
        if let Some(source) = &result.source {
            writeln!(block, "  source: {}", string(source)).expect("writing to a string cannot fail");
        }
    }
    if let Verdict::Error(what) = &result.verdict {
        writeln!(block, "  message: {}", string(what)).expect("writing to a string cannot fail");
    }
    if !result.unchecked.is_empty() {
        block.push_str("  unchecked:\n");
        for (line, reason) in &result.unchecked {
            let reason = string(reason);
            write!(block, "    - line: {line}\n      reason: {reason}\n")
                .expect("writing to a string cannot fail");
        }
    }
    block
}

/// Escapes a text: a `#` would begin a directive, and a line end the next point.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('#', "\\#").replace(['\n', '\r'], " ")
}
