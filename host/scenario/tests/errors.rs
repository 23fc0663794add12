//! Errors of scenario files: each is reported at its place, with the expected words and the nearest known word. The
//! tests compare whole messages, for every kind of error.

#[path = "errors/extra.rs"]
mod extra;
#[path = "errors/letters.rs"]
mod letters;
#[path = "errors/lists.rs"]
mod lists;
#[path = "errors/matrices.rs"]
mod matrices;
#[path = "errors/missing.rs"]
mod missing;
#[path = "errors/names.rs"]
mod names;
#[path = "errors/races.rs"]
mod races;
#[path = "errors/states.rs"]
mod states;
#[path = "errors/words.rs"]
mod words;

use scenario::limits::FILE_BYTES_MAX;
use scenario::script::{parse, parse_bytes};

/// A whole file, or a file after its first lines.
pub enum Case {
    /// The lines after [`BEFORE`].
    After(&'static str),
    /// The lines after [`LITMUS`].
    InLitmus(&'static str),
    Complete(&'static str),
}

/// Four lines: a process, its device, a fence.
const BEFORE: &str = "scenario \"x\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\n";

/// Five lines: two processes, and a fence of the first.
const LITMUS: &str = "litmus \"x\"\nprocess p\nprocess q\np  D = device -> ok\np  F = fence D -> ok\n";

#[track_caller]
fn check(cases: &[(Case, &str)]) {
    for (case, expected) in cases {
        let text = match case {
            Case::After(lines) => format!("{BEFORE}{lines}"),
            Case::InLitmus(lines) => format!("{LITMUS}{lines}"),
            Case::Complete(text) => (*text).into(),
        };
        let found = without_counts(&refused(text.as_bytes()));
        assert_eq!(found, *expected, "\n--- found:\n{found}\n--- expected:\n{expected}\n--- in:\n{text}");
    }
}

/// Replaces the count of omitted words, because each new call changes it.
fn without_counts(text: &str) -> String {
    let cut = |line: &str| match line.strip_suffix(" more").and_then(|rest| rest.rsplit_once(" and ")) {
        Some((listed, count)) if count.parse::<u32>().is_ok() => format!("{listed} and N more"),
        _ => line.to_owned(),
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

fn refused(bytes: &[u8]) -> String {
    let Err(errors) = parse_bytes(bytes) else { return "nothing is wrong with it".into() };
    let text = String::from_utf8_lossy(bytes);
    errors.iter().map(|error| error.render("x.scn", &text)).collect::<Vec<_>>().join("\n")
}

#[test]
fn unknown_words_name_the_nearest() {
    check(words::UNKNOWN_WORDS_NAME_THE_NEAREST);
}

#[test]
fn lists_are_refused_where_they_are_wrong() {
    check(lists::LISTS_ARE_REFUSED_WHERE_THEY_ARE_WRONG);
}

#[test]
fn names_are_given_once_and_mean_one_thing() {
    check(names::NAMES_ARE_GIVEN_ONCE_AND_MEAN_ONE_THING);
}

#[test]
fn missing_operands_are_reported() {
    check(missing::WHAT_IS_MISSING_IS_SAID);
}

#[test]
fn extra_operands_and_numbers_that_do_not_fit_are_reported() {
    check(extra::WHAT_IS_TOO_MUCH_IS_SAID);
}

#[test]
fn time_goes_on() {
    check(states::TIME_GOES_ON);
}

#[test]
fn actors_do_only_what_they_can() {
    check(states::ACTORS_DO_ONLY_WHAT_THEY_CAN);
}

#[test]
fn matrices_are_used_and_complete() {
    check(matrices::MATRICES_ARE_USED_AND_COMPLETE);
}

#[test]
fn races_have_columns_and_outcomes() {
    check(races::RACES_HAVE_COLUMNS_AND_OUTCOMES);
}

#[test]
fn letters_that_are_no_words() {
    check(letters::LETTERS_THAT_ARE_NO_WORDS);
}

#[test]
fn one_mistake_is_one_error() {
    check(letters::ONE_MISTAKE_IS_ONE_ERROR);
}

#[test]
fn files_that_are_no_text_are_refused() {
    let line = "x.scn:1:1: the file has 10000000 bytes, the limit is 1048576\n  1 | ";
    assert!(refused(&vec![b'x'; 10_000_000]).starts_with(line));
    assert_eq!(
        refused(b"scenario \"x\"\nab\xFFc\n"),
        "x.scn:2:3: byte 15 is not text: a scenario is UTF-8 text\n  2 | ab\u{FFFD}c\n    |   ^ is it the right file?"
    );
    assert_eq!(
        refused(b"\x7FELF\0\0"),
        "x.scn:1:5: byte 4 is not text: a scenario is UTF-8 text\n  1 | \u{FFFD}ELF\u{FFFD}\u{FFFD}\n    |     ^ is it the right file?"
    );
    assert!(refused(b"\xFF\xFEs\0c\0").ends_with("^ this is UTF-16: save it as UTF-8"));
}

#[test]
fn of_a_long_line_the_part_around_the_place_is_shown() {
    let line = format!("scenario \"{}\"", "x".repeat(FILE_BYTES_MAX - 20));
    let expected = format!(
        "x.scn:1:10001: the line has 1048567 characters, the limit is 10000\n  1 | .. {} ..\n    | {}^",
        "x".repeat(120),
        " ".repeat(63)
    );
    assert_eq!(refused(line.as_bytes()), expected);
}

#[test]
fn a_byte_order_mark_and_both_line_endings_are_accepted() {
    let text = "\u{FEFF}scenario \"x\"\r\nprocess p\r\n\tp\tD = device\t->\tok # tabs\r\n";
    assert_eq!(parse(text).map(|programs| programs[0].steps.len()), Ok(2));
    assert_eq!(
        refused("\u{FEFF}scenaro \"x\"\r\n".as_bytes()),
        "x.scn:1:1: the first statement must be `scenario \"TITLE\"` or `litmus \"TITLE\"`\n  \
         1 | scenaro \"x\"\n    | ^^^^^^^"
    );
}

#[test]
fn a_text_of_a_file_name_does_not_reach_the_terminal_raw() {
    let errors = parse("").unwrap_err();
    assert!(errors[0].render("\x1b[2J.scn", "").starts_with("\u{FFFD}[2J.scn:1:1: "));
}
