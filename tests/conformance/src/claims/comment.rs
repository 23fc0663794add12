//! The form of a claim: a comment line that begins with `covers:` and names rule ids.
//!
//! ```text
//! // covers: FEN-001, W-105 W-106 (words in brackets are for people)
//! ```
//! A line of ids alone below it goes on with the list.

/// A line of a comment that claims rules.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub line: usize,
    /// As written; whether they are rules is for the rule list to say.
    pub ids: Vec<&'a str>,
}

const MARKER: &str = "covers:";

/// The claims in a comment that begins at `first_line`.
pub fn claims(comment: &str, first_line: usize) -> Vec<Line<'_>> {
    let lines = comment.lines().zip(first_line..);
    lines.filter_map(|(text, line)| Some(Line { line, ids: ids(bare(text).strip_prefix(MARKER)?) })).collect()
}

/// The ids of a line of a comment that has ids only.
pub fn only_ids(comment: &str) -> Option<Vec<&str>> {
    let ids = ids(bare(comment));
    (!ids.is_empty() && ids.iter().all(|id| looks_like_an_id(id))).then_some(ids)
}

fn bare(line: &str) -> &str {
    let line = line.trim().trim_start_matches(['/', '*', '!']).trim();
    line.strip_suffix("*/").unwrap_or(line).trim()
}

/// Words outside of brackets.
pub fn ids(text: &str) -> Vec<&str> {
    let outside = text.split('(').enumerate().filter_map(|(at, part)| match at {
        0 => Some(part),
        _ => part.split_once(')').map(|(_, after)| after),
    });
    outside.flat_map(|part| part.split([' ', ',', '.', ';', '\t'])).filter(|id| !id.is_empty()).collect()
}

fn looks_like_an_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(group, number)| {
        group.bytes().all(|byte| byte.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_begins_its_line() {
        let one = |line, ids: &[&'static str]| vec![Line { line, ids: ids.to_vec() }];
        assert_eq!(claims("// covers: FEN-001, W-105.", 7), one(7, &["FEN-001", "W-105"]));
        assert_eq!(claims("/* Rows.\n * covers: FEN-001 */", 7), one(8, &["FEN-001"]));
        assert_eq!(claims("/// covers: nonsense", 1), one(1, &["nonsense"]));
        assert_eq!(claims("// A comment `covers: FEN-001` claims.", 7), []);
    }

    #[test]
    fn words_in_brackets_are_for_people() {
        assert_eq!(ids("FEN-001 (not FEN-002) FEN-003 (of the model"), ["FEN-001", "FEN-003"]);
    }

    #[test]
    fn a_line_goes_on_if_it_has_ids_only() {
        assert_eq!(only_ids("// FEN-001 W-105"), Some(vec!["FEN-001", "W-105"]));
        assert_eq!(only_ids("// FEN-001 is hard to see"), None);
        assert_eq!(only_ids("//"), None);
    }
}
