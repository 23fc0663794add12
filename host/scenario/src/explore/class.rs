//! Classes of failures: a shrunk program must fail in the same way, not in another.

use serde::{Deserialize, Serialize};

use crate::program::Program;
use crate::run::Failure;

/// How the text of an outcome begins.
const OUTCOME: &str = "the race ended in ";

/// A class of failures. Reports have its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Class {
    /// A wait sleeps although its condition holds.
    LostWake,
    /// A wait was woken for a value that was never reached.
    EarlyWake,
    /// An event was set that no wait is for.
    DoubleWake,
    /// Fence memory differs from the kernel's value.
    StaleValue,
    /// A call was answered more than once, or never.
    Answers,
    /// Something of an ended process is left.
    LeftBehind,
    /// A race had a forbidden outcome.
    Outcome,
    /// An expectation of the file failed.
    Expectation,
    /// The code panicked.
    Panic,
    /// The backend failed, or does not support what the program requests.
    Backend,
}

impl Class {
    pub const ALL: [Class; 10] = [
        Class::LostWake,
        Class::EarlyWake,
        Class::DoubleWake,
        Class::StaleValue,
        Class::Answers,
        Class::LeftBehind,
        Class::Outcome,
        Class::Expectation,
        Class::Panic,
        Class::Backend,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Class::LostWake => "lost wake",
            Class::EarlyWake => "early wake",
            Class::DoubleWake => "double wake",
            Class::StaleValue => "stale value",
            Class::Answers => "answers",
            Class::LeftBehind => "left behind",
            Class::Outcome => "outcome",
            Class::Expectation => "expectation",
            Class::Panic => "panic",
            Class::Backend => "backend",
        }
    }

    /// Derives the class from a failure's text.
    pub fn of(failure: &Failure) -> Class {
        let what = failure.what.as_str();
        let begins = |word: Class| what.starts_with(word.name());
        let named = [Class::LostWake, Class::EarlyWake, Class::DoubleWake, Class::StaleValue, Class::Panic];
        if let Some(class) = named.into_iter().find(|class| begins(*class)) {
            return class;
        }
        if what.contains("answers that no call asked for") || what.starts_with("a call of process") {
            Class::Answers
        } else if what.contains("has ended and left")
            || what.contains("there was left")
            || what.contains("nothing is left")
        {
            Class::LeftBehind
        } else if what.starts_with(OUTCOME) {
            Class::Outcome
        } else if what.starts_with("the ") && what.contains(" backend ") {
            Class::Backend
        } else {
            Class::Expectation
        }
    }
}

impl From<Class> for &'static str {
    fn from(class: Class) -> &'static str {
        class.name()
    }
}

impl TryFrom<String> for Class {
    type Error = String;

    /// Returns the class of this name. Reports of version 0.1 have `arm` for [`Class::Backend`].
    fn try_from(name: String) -> Result<Class, String> {
        let known = if name == "arm" { Class::Backend.name() } else { &name };
        let class = Class::ALL.into_iter().find(|class| class.name() == known);
        class.ok_or_else(|| format!("there is no class of failures `{name}`"))
    }
}

/// A failure's class and reason, which a shrunk program must keep.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FailureMode {
    pub class: Class,
    /// For an expectation: the masked text of what was expected, and a summary of what was found. For a panic: its masked
    /// message. For an outcome: its terms, with their values. Two lines can answer INVALID_PARAMETER for different reasons,
    /// two panics have different causes, and a race that hangs is no race that reads a wrong value.
    reason: Option<String>,
}

impl FailureMode {
    /// Derives it from a failure of this program.
    pub fn of(failure: &Failure, program: &Program) -> FailureMode {
        FailureMode::new(Class::of(failure), &failure.what, program)
    }

    /// Derives it from the text of a failure, with or without its line. Names are masked by what they name, because
    /// shrinking renames.
    pub(super) fn new(class: Class, what: &str, program: &Program) -> FailureMode {
        let reason = match class {
            Class::Expectation => {
                let text = what.split_once("expected ").map_or(what, |(_, text)| text);
                let (expected, found) = text.split_once(", found: ").unwrap_or((text, ""));
                Some(format!("{}: {}", masked(expected, program), summary(expected, found, program)))
            }
            Class::Panic => Some(without_numbers(what)),
            Class::Outcome => {
                let ended = what.split_once(OUTCOME).map_or(what, |(_, ended)| ended);
                Some(without_words(ended, |word| mask_of_name(word, program)))
            }
            Class::LostWake
            | Class::EarlyWake
            | Class::DoubleWake
            | Class::StaleValue
            | Class::Answers
            | Class::LeftBehind
            | Class::Backend => None,
        };
        FailureMode { class, reason }
    }
}

/// Summarizes what was found instead of what was expected. A list, and all lines after the first, can have more than the
/// failure: of them only whether there is anything counts.
fn summary(expected: &str, found: &str, program: &Program) -> String {
    if let Some(number) = number(found) {
        let wanted = expected.rsplit_once("= ").map_or(expected, |(_, wanted)| wanted);
        let order = number_before_words(wanted).map(|wanted| number.cmp(&wanted));
        return format!("{} {order:?}", if number == 0 { "0" } else { "#" });
    }
    match found {
        "[]" => "an empty list".into(),
        list if list.starts_with('[') => "a list".into(),
        _ => masked(found.lines().next().unwrap_or_default(), program),
    }
}

/// The number of a text such as `3 wakes`.
fn number_before_words(text: &str) -> Option<u64> {
    number(text.split(' ').next()?)
}

/// The number that `write_number` has written.
fn number(text: &str) -> Option<u64> {
    if text == "max" {
        return Some(u64::MAX);
    }
    match text.strip_prefix("2^") {
        Some(power) => 1u64.checked_shl(power.parse().ok()?),
        None => text.parse().ok(),
    }
}

/// Replaces numbers, and the program's names.
fn masked(text: &str, program: &Program) -> String {
    without_words(text, |word| mask_of_number(word).or_else(|| mask_of_name(word, program)))
}

/// Replaces numbers by `#`, because handles and values change when something is removed.
fn without_numbers(text: &str) -> String {
    without_words(text, mask_of_number)
}

/// A digit within a word is no number.
fn mask_of_number(word: &str) -> Option<String> {
    word.starts_with(|letter: char| letter.is_ascii_digit()).then(|| "#".into())
}

fn mask_of_name(word: &str, program: &Program) -> Option<String> {
    let is_named = |name: &str| name == word;
    if let Some(named) = program.bindings.iter().find(|named| is_named(&named.name)) {
        return Some(format!("<{:?}>", named.kind));
    }
    let is_thread = program.threads.iter().any(|thread| is_named(&thread.name));
    let is_process = program.processes.iter().any(|process| is_named(&process.name));
    (is_thread || is_process).then(|| "<thread>".into())
}

/// Replaces words by what `replaced` returns for them.
fn without_words(text: &str, replaced: impl Fn(&str) -> Option<String>) -> String {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut masked = String::new();
    for part in text.split_inclusive(|letter| !is_word(letter)) {
        let word = part.trim_end_matches(|letter| !is_word(letter));
        masked.push_str(replaced(word).as_deref().unwrap_or(word));
        masked.push_str(&part[word.len()..]);
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::FailureMode;
    use crate::run::Failure;
    use crate::script::parse;

    const TEXT: &str =
        "scenario \"s\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\np  G = fence D -> ok\n";

    fn mode(what: &str) -> FailureMode {
        let program = parse(TEXT).unwrap().remove(0);
        FailureMode::of(&Failure { line: 7, what: what.into() }, &program)
    }

    #[test]
    fn the_reason_is_of_the_way_and_its_numbers_are_not() {
        let mode = |why: &str| mode(&format!("expected ok, found: answers INVALID_PARAMETER ({why})"));
        let below = mode("signal 1 of 0x40000002 is below its value 2");
        assert_eq!(below, mode("signal 30 of 0x80000a is below its value 18446744073709551615"));
        assert_ne!(below, mode("a signal takes 1 to 32 objects, not 0"));
        assert_ne!(mode("no D3D of (1)"), mode("no D4D of (1)"));
        assert_eq!(mode("no D3D of (1)"), mode("no D3D of (0x2)"));
    }

    #[test]
    fn two_expectations_without_a_note_are_different_failures() {
        let rewound = mode("expected F = 7, found: 6");
        // Names and numbers may change, but not whether the value is too low, and whether there was a signal.
        assert_eq!(rewound, mode("expected G = 2, found: 1"));
        for other in [
            "expected F = 7, found: 0",
            "expected F = 7, found: 8",
            "expected F = 7, found: it has no value in memory",
            "expected D = 7, found: 6",
            "expected 7 wakes, found: 6",
            "expected that F is blocked, found: it has returned ok",
            "expected ok, found: answers INVALID_PARAMETER",
        ] {
            assert_ne!(rewound, mode(other), "{other}");
        }
        assert_ne!(mode("expected 7 wakes, found: 6"), mode("expected 7 wakes, found: max"));
        // A report can lose lines that have nothing to do with the failure.
        let noted = mode("expected no report, found: [\"one\", \"another\"]");
        assert_eq!(noted, mode("expected no report, found: [\"one\"]"));
        assert_ne!(noted, mode("expected a report with \"x\", found: []"));
    }

    #[test]
    fn panics_with_different_messages_are_different_failures() {
        let panic = mode("panic: index 5 is out of bounds, of 3");
        assert_eq!(panic, mode("panic: index 0 is out of bounds, of 0"));
        assert_ne!(panic, mode("panic: the queue is empty"));
    }
}
