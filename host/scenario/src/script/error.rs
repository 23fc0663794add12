//! Errors of a file, with their places.

use std::fmt;

use d3dkmt::text::is_printable;

use crate::limits::NAME_CHARACTERS_MAX;

/// A place in a file: line and column from 1, in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub line: u32,
    pub column: u32,
    pub width: u32,
}

/// One error of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    pub span: Span,
    pub message: String,
    /// How to fix it.
    pub help: Option<String>,
}

/// Maximum characters of a message, or of a line, that are shown.
const SHOWN_MAX: usize = 600;
const LINE_SHOWN_MAX: usize = 120;
/// Maximum number of names that a suggestion compares and lists.
const COMPARED_MAX: usize = 2000;
const LISTED_MAX: usize = 24;

impl ScriptError {
    pub fn new(span: Span, message: impl Into<String>) -> ScriptError {
        ScriptError { span, message: tidy(&message.into()), help: None }
    }

    pub fn help(mut self, help: impl Into<String>) -> ScriptError {
        self.help = Some(tidy(&help.into()));
        self
    }

    /// Formats the error with its line, and marks the characters:
    ///
    /// ```text
    /// waits.scn:7:4: there is no verb `singal`
    ///   7 | p  singal D F=1 -> ok
    ///     |    ^^^^^^ did you mean `signal`?
    /// ```
    ///
    /// A long line is cut to the part around the place. Control characters of the file are replaced.
    pub fn render(&self, file: &str, text: &str) -> String {
        let Span { line, column, width } = self.span;
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let at = column.saturating_sub(1) as usize;
        let written =
            line.checked_sub(1).and_then(|line| text.lines().nth(line as usize)).unwrap_or_default();
        let (shown, indent) = part_around(written, at);
        let room = (shown.chars().count() + 1).saturating_sub(indent).max(1);
        let carets = "^".repeat((width as usize).clamp(1, room));
        let number = line.to_string();
        let gap = " ".repeat(number.len());
        let indent = " ".repeat(indent);
        let help = self.help.as_ref().map(|help| format!(" {help}")).unwrap_or_default();
        let file = tidy(file);
        format!(
            "{file}:{line}:{column}: {}\n  {number} | {shown}\n  {gap} | {indent}{carets}{help}",
            self.message
        )
    }
}

/// Returns the part of a line around a place, and the place's position in it.
fn part_around(line: &str, at: usize) -> (String, usize) {
    let length = line.chars().count();
    if length <= LINE_SHOWN_MAX {
        return (tidy(line), at);
    }
    let begin = at.saturating_sub(LINE_SHOWN_MAX / 2).min(length - LINE_SHOWN_MAX);
    let part: String = line.chars().skip(begin).take(LINE_SHOWN_MAX).collect();
    let before = if begin == 0 { "" } else { ".. " };
    let after = if begin + LINE_SHOWN_MAX == length { "" } else { " .." };
    (format!("{before}{}{after}", tidy(&part)), at - begin + before.len())
}

/// Makes a text safe for a terminal: a tab becomes a space, an unprintable character a question mark; a long text is
/// cut.
fn tidy(text: &str) -> String {
    let shown = |letter| match letter {
        '\t' => ' ',
        letter if is_printable(letter) => letter,
        _ => '\u{FFFD}',
    };
    let mut letters = text.chars().map(shown);
    let mut tidied: String = letters.by_ref().take(SHOWN_MAX).collect();
    if letters.next().is_some() {
        tidied += " ..";
    }
    tidied
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.span.line, self.span.column, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ScriptError {}

/// Returns a word of the file for a message, shortened if it is long.
pub(crate) fn shortened(word: &str) -> String {
    match word.char_indices().nth(NAME_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}..", &word[..end]),
        None => word.into(),
    }
}

/// Returns the known word nearest to the written one, if one is near.
pub(crate) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = written.chars().count();
    if length > NAME_CHARACTERS_MAX {
        return None;
    }
    let written = written.to_lowercase();
    // A short name matches only itself in another case: one fence is not a misspelling of another.
    let near_enough = |word: &str| match word.chars().count() {
        0..=2 => 0,
        3 => 1,
        length => 1 + length / 3,
    };
    known
        .into_iter()
        .take(COMPARED_MAX)
        .filter(|word| word.chars().count().abs_diff(length) <= near_enough(word))
        .map(|word| (strsim::damerau_levenshtein(&written, &word.to_lowercase()), word))
        .filter(|(distance, word)| *distance <= near_enough(word))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Returns "did you mean", or a list of all known words.
pub fn suggestion<'a>(written: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(word) = nearest(written, known.clone()) {
        return format!("did you mean `{word}`?");
    }
    let all: Vec<&str> = known.into_iter().collect();
    let listed = all[..all.len().min(LISTED_MAX)].join(", ");
    match all.len().saturating_sub(LISTED_MAX) {
        _ if all.is_empty() => "there is none yet".into(),
        0 => format!("there are: {listed}"),
        more => format!("there are: {listed} and {more} more"),
    }
}
