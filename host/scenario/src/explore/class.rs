//! Classes of failures: a shrunk program must fail in the same way, not in another.

use crate::run::Failure;

/// A class of failures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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

    /// Returns the class of this name. Reports of version 0.1 have `arm` for [`Class::Backend`].
    pub fn from_name(name: &str) -> Option<Class> {
        let name = if name == "arm" { Class::Backend.name() } else { name };
        Class::ALL.into_iter().find(|class| class.name() == name)
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
        } else if what.starts_with("the race ended in") {
            Class::Outcome
        } else if what.starts_with("the ") && what.contains(" backend ") {
            Class::Backend
        } else {
            Class::Expectation
        }
    }
}

/// A failure's class and reason, which a shrunk program must keep.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FailureMode {
    pub class: Class,
    /// For an expectation: the kernel's note on the refusal, with every number replaced by `#`. Two lines can answer
    /// INVALID_PARAMETER for different reasons.
    reason: Option<String>,
}

impl FailureMode {
    pub fn of(failure: &Failure) -> FailureMode {
        FailureMode::new(Class::of(failure), &failure.what)
    }

    /// Derives it from the text of a failure, with or without its line.
    pub(super) fn new(class: Class, what: &str) -> FailureMode {
        let words = || what.split_once("found: answers ")?.1.split_once(" (")?.1.strip_suffix(')');
        let reason = (class == Class::Expectation).then(words).flatten();
        FailureMode { class, reason: reason.map(without_numbers) }
    }
}

/// Replaces numbers by `#`, because handles and values change when something is removed. A digit within a word is no
/// number.
fn without_numbers(text: &str) -> String {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut masked = String::new();
    for part in text.split_inclusive(|letter| !is_word(letter)) {
        let word = part.trim_end_matches(|letter| !is_word(letter));
        let is_number = word.starts_with(|letter: char| letter.is_ascii_digit());
        masked.push_str(if is_number { "#" } else { word });
        masked.push_str(&part[word.len()..]);
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::FailureMode;
    use crate::run::Failure;

    #[test]
    fn the_reason_is_of_the_way_and_its_numbers_are_not() {
        let mode = |why: &str| {
            let what = format!("expected ok, found: answers INVALID_PARAMETER ({why})");
            FailureMode::of(&Failure { line: 7, what })
        };
        let below = mode("signal 1 of 0x40000002 is below its value 2");
        assert_eq!(below, mode("signal 30 of 0x80000a is below its value 18446744073709551615"));
        assert_ne!(below, mode("a signal takes 1 to 32 objects, not 0"));
        assert_ne!(mode("no D3D of (1)"), mode("no D4D of (1)"));
        assert_eq!(mode("no D3D of (1)"), mode("no D3D of (0x2)"));
    }
}
