//! What a scenario file claims: a line `covers ID ID`. `#` begins a comment.

use super::comment;

#[derive(Debug, Default)]
pub struct Scenario<'a> {
    pub claims: Vec<comment::Line<'a>>,
    /// Whether a line says what must come of it: a status, an expectation, an outcome of a litmus.
    pub asserts: bool,
}

pub fn read(text: &str) -> Scenario<'_> {
    let mut scenario = Scenario::default();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        let first = text.split_whitespace().next().unwrap_or_default();
        if first == "covers" {
            let ids = comment::ids(text.strip_prefix(first).unwrap_or_default());
            scenario.claims.push(comment::Line { line, ids });
        }
        scenario.asserts |= text.contains("->")
            || ["expect", "allow", "forbid"].iter().any(|beginning| first.starts_with(beginning));
    }
    scenario
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_covers_and_a_status_asserts() {
        let scenario = read("# covers W-001\ncovers FEN-001 FEN-002 # both\nopen a -> SUCCESS\n");
        let wanted = [comment::Line { line: 2, ids: vec!["FEN-001", "FEN-002"] }];
        assert_eq!((scenario.claims.as_slice(), scenario.asserts), (&wanted[..], true));
    }

    #[test]
    fn what_is_in_a_comment_asserts_nothing() {
        assert!(!read("covers FEN-001\n# open a -> SUCCESS\nopen a\n").asserts);
        assert!(read("  expect value f 3\n").asserts);
    }
}
