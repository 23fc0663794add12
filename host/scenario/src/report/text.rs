//! Results as text for people. The last line has the counts.

use std::fmt::Write as _;

use crate::limits::{FAILURES_SHOWN_MAX, PLACES_SHOWN_MAX};
use crate::program::Backend;
use crate::report::{CaseResult, Counts, Results, backend_names};
use crate::run::{Failure, Verdict};

impl Results {
    /// ```text
    /// waits.scn:7: expected ok, found: answers INVALID_PARAMETER
    ///   7 | p  signal D F=1 -> ok
    ///     on link, case value=5
    /// waits.scn [value=5] diverges: passed on model, failed on link
    /// 2 expectations not checked on model: this backend has no messages to count
    ///     waits.scn:9
    /// 3 skipped on local: a stream cannot be held here
    /// 4 passed, 1 failed, 3 skipped
    /// ```
    pub fn text(&self) -> String {
        let mut text = self.failures();
        for divergence in self.divergences() {
            let (passed, failed) = (backend_names(&divergence.passed), backend_names(&divergence.failed));
            line(
                &mut text,
                format_args!("{} diverges: passed on {passed}, failed on {failed}", divergence.name),
            );
        }
        self.write_unchecked(&mut text);
        self.write_skips_and_errors(&mut text);
        if self.left_out > 0 {
            line(&mut text, format_args!("{} not run, after the first failure", self.left_out));
        }
        line(&mut text, format_args!("{}", self.counts()));
        text
    }

    /// Formats each failure of a case once, with the backends that had it.
    fn failures(&self) -> String {
        let mut text = String::new();
        let mut count = 0;
        for results in self.by_case() {
            let mut grouped: Vec<(&Failure, Vec<&CaseResult>)> = Vec::new();
            for result in results {
                let Verdict::Failed(failure) = &result.verdict else { continue };
                match grouped.iter_mut().find(|(known, _)| *known == failure) {
                    Some((_, results)) => results.push(result),
                    None => grouped.push((failure, vec![result])),
                }
            }
            for (failure, results) in grouped {
                count += 1;
                if count <= FAILURES_SHOWN_MAX {
                    write_failure(&mut text, failure, &results);
                }
            }
        }
        if count > FAILURES_SHOWN_MAX {
            line(&mut text, format_args!("and {} more failures", count - FAILURES_SHOWN_MAX));
        }
        text
    }

    /// Writes the lines that backends could not check, by backend and reason.
    fn write_unchecked(&self, text: &mut String) {
        let mut groups: Vec<(Backend, &str, usize, Vec<String>)> = Vec::new();
        for result in &self.cases {
            for (number, reason) in &result.unchecked {
                let location = result.location(*number);
                let group =
                    groups.iter_mut().find(|(backend, why, ..)| *backend == result.backend && why == reason);
                match group {
                    Some((_, _, count, locations)) => {
                        *count += 1;
                        if !locations.contains(&location) {
                            locations.push(location);
                        }
                    }
                    None => groups.push((result.backend, reason, 1, vec![location])),
                }
            }
        }
        groups.sort_by_key(|(backend, ..)| *backend);
        for (backend, reason, count, locations) in groups {
            let noun = if count == 1 { "expectation" } else { "expectations" };
            line(text, format_args!("{count} {noun} not checked on {}: {reason}", backend.name()));
            let more = match locations.len().saturating_sub(PLACES_SHOWN_MAX) {
                0 => String::new(),
                more => format!(" and {more} more lines"),
            };
            let shown = &locations[..locations.len().min(PLACES_SHOWN_MAX)];
            line(text, format_args!("    {}{more}", shown.join(" ")));
        }
    }

    /// Writes the cases without a result, by what kept it away, backend and reason.
    fn write_skips_and_errors(&self, text: &mut String) {
        let mut groups: Vec<(&str, Backend, &str, usize)> = Vec::new();
        for result in &self.cases {
            let (what, reason) = match &result.verdict {
                Verdict::Skipped(reason) => ("skipped", reason),
                Verdict::Error(reason) => ("could not run", reason),
                Verdict::Passed | Verdict::Failed(_) => continue,
            };
            let of = (what, result.backend, reason.as_str());
            match groups.iter_mut().find(|(what, backend, why, _)| (*what, *backend, *why) == of) {
                Some((.., count)) => *count += 1,
                None => groups.push((what, result.backend, reason, 1)),
            }
        }
        groups.sort_by_key(|(what, backend, ..)| (std::cmp::Reverse(*what), *backend));
        for (what, backend, reason, count) in groups {
            line(text, format_args!("{count} {what} on {}: {reason}", backend.name()));
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        if self.errors > 0 {
            write!(f, ", {} could not run", self.errors)?;
        }
        Ok(())
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("writing to a string cannot fail");
}

/// Writes a failure of one case, with the backends that had it.
fn write_failure(text: &mut String, failure: &Failure, results: &[&CaseResult]) {
    let result = results[0];
    line(text, format_args!("{}: {}", result.location(failure.line), failure.what));
    if let Some(source) = &result.source {
        line(text, format_args!("  {} | {source}", failure.line));
    }
    let case = if result.case.is_empty() { String::new() } else { format!(", case {}", result.case) };
    let backends: Vec<Backend> = results.iter().map(|result| result.backend).collect();
    line(text, format_args!("    on {}{case}", backend_names(&backends)));
    for trace in results.iter().filter_map(|result| result.trace.as_ref()) {
        line(text, format_args!("    recorded in {trace}"));
    }
}
