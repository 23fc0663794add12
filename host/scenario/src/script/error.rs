//! What is wrong with a file, and where.

use std::fmt;

/// A place in a file: line and column from 1, in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub line: u32,
    pub column: u32,
    pub width: u32,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    pub place: Place,
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl ScriptError {
    pub fn new(place: Place, message: impl Into<String>) -> ScriptError {
        ScriptError { place, message: message.into(), help: None }
    }

    pub fn help(mut self, help: impl Into<String>) -> ScriptError {
        self.help = Some(help.into());
        self
    }

    /// The error with its line, the character pointed at:
    ///
    /// ```text
    /// waits.scn:7:4: there is no verb `singal`
    ///   7 | p  singal D F=1 -> ok
    ///     |    ^^^^^^ did you mean `signal`?
    /// ```
    pub fn render(&self, file: &str, text: &str) -> String {
        let Place { line, column, width } = self.place;
        let shown: String = match line.checked_sub(1).and_then(|at| text.lines().nth(at as usize)) {
            Some(shown) => {
                shown.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
            }
            None => String::new(),
        };
        let number = line.to_string();
        let gap = " ".repeat(number.len());
        let indent = " ".repeat(column.saturating_sub(1) as usize);
        let carets = "^".repeat(width.clamp(1, 200) as usize);
        let help = self.help.as_ref().map(|help| format!(" {help}")).unwrap_or_default();
        format!(
            "{file}:{line}:{column}: {}\n  {number} | {shown}\n  {gap} | {indent}{carets}{help}",
            self.message
        )
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.line, self.place.column, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ScriptError {}

/// The known word that is nearest to what was written, if one is near.
pub(crate) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written_low = written.to_lowercase();
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&written_low, &word.to_lowercase()), word))
        .filter(|(distance, word)| *distance <= 1 + word.chars().count() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// "did you mean", or else all there are.
pub(crate) fn suggestion<'a>(written: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(written, known.clone()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => {
            let all: Vec<&str> = known.into_iter().collect();
            if all.is_empty() { "there is none yet".into() } else { format!("there are: {}", all.join(", ")) }
        }
    }
}
