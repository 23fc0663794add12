//! What kind of failure it is: a shrunk program must fail in the same way, not in some other.

use crate::run::Failure;

/// A class of failures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Somebody is asleep who should not be.
    LostWake,
    /// Somebody was woken for a value that never was there.
    EarlyWake,
    /// An event came that nobody waits for.
    DoubleWake,
    /// Memory and the kernel do not have the same value.
    StaleValue,
    /// A call was answered more than once, or never.
    Answers,
    /// Something of those who ended is still there.
    LeftBehind,
    /// A race ended as it must not.
    Outcome,
    /// A line of the file expects something else.
    Expectation,
    /// The code panicked.
    Panic,
    /// The arm failed, or cannot do what the program asks for.
    Arm,
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
        Class::Arm,
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
            Class::Arm => "arm",
        }
    }

    pub fn from_name(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }

    /// By what a failure says.
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
        } else if what.starts_with("the ") && what.contains(" arm ") {
            Class::Arm
        } else {
            Class::Expectation
        }
    }
}
