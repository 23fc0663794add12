//! Tests every limit of `scenario::limits` that a file can reach: the maximum is accepted, and one more is refused.

use scenario::Verdict;
use scenario::choose::First;
use scenario::limits::*;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::parse;

/// Checks that `most` is accepted, and that `more` is refused with this message.
#[track_caller]
fn check(most: &str, more: &str, message: &str) {
    if let Err(errors) = parse(most) {
        panic!("the most is refused: {}", errors[0]);
    }
    let errors = parse(more).expect_err("one more is refused");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].message.contains(message), "{}", errors[0]);
}

fn file(lines: impl IntoIterator<Item = String>) -> String {
    format!("scenario \"x\"\n{}\n", lines.into_iter().collect::<Vec<_>>().join("\n"))
}

fn repeated(count: usize, line: impl Fn(usize) -> String) -> Vec<String> {
    (0..count).map(line).collect()
}

#[test]
fn bytes_of_a_file() {
    let text = |bytes: usize| {
        let head = "scenario \"x\"\n#";
        format!("{head}{}\n", "\n#".repeat(bytes).split_at(bytes - head.len() - 1).0)
    };
    let read = |text: &str| {
        scenario::script::parse_bytes(text.as_bytes()).map_err(|errors| errors[0].message.clone())
    };
    assert!(read(&text(FILE_BYTES_MAX)).is_ok());
    let refused = read(&text(FILE_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(refused, format!("the file has {} bytes, the limit is {FILE_BYTES_MAX}", FILE_BYTES_MAX + 1));
}

#[test]
fn characters_of_a_line_and_of_a_name() {
    let line = |count: usize| file([format!("#{}", "x".repeat(count - 1))]);
    check(&line(LINE_CHARACTERS_MAX), &line(LINE_CHARACTERS_MAX + 1), "the line has 10001 characters");
    let name = |count: usize| file([format!("process {}", "x".repeat(count))]);
    check(&name(NAME_CHARACTERS_MAX), &name(NAME_CHARACTERS_MAX + 1), "the name has 65 characters");
}

#[test]
fn steps_of_a_case() {
    for line in ["+1ns", "expect waits = 0", "fault reorder"] {
        let steps = |count| file(repeated(count, |_| line.into()));
        check(&steps(STEPS_MAX), &steps(STEPS_MAX + 10), "more than 10000 steps");
    }
    let race = |rows: usize| {
        let head = "litmus \"x\"\nprocess p\nthread t in p\np F = fence null -> anything\nrace p | t\n";
        format!("{head}{}allowed F=0\n", "signal null -> ok | signal null -> ok\n".repeat(rows))
    };
    let rows = (STEPS_MAX - 3) / 2;
    check(&race(rows), &race(rows + 1), "more than 10000 steps");
}

#[test]
fn outcomes_of_a_race() {
    for word in ["allowed", "forbidden"] {
        let race = |count: usize| {
            let head =
                "litmus \"x\"\nprocess p\nthread t in p\nrace p | t\nr = event | F = fence null -> ok\n";
            format!("{head}{}", format!("{word} F=0\n").repeat(count))
        };
        check(&race(OUTCOMES_MAX), &race(OUTCOMES_MAX + 1), "more than 1000 outcomes");
    }
}

#[test]
fn matrices_their_values_and_cases() {
    let axes = |count| {
        let used = (0..count).map(|at| format!("tags $a{at}"));
        file(repeated(count, |at| format!("matrix a{at} = t{at}")).into_iter().chain(used))
    };
    check(&axes(AXES_MAX), &axes(AXES_MAX + 1), "more than 16 matrices");
    let values = |count: usize| {
        let values: Vec<String> = (0..count).map(|value| value.to_string()).collect();
        format!("matrix a = {}\ntags $a", values.join(" "))
    };
    let axis = |count| file([values(count)]);
    check(&axis(AXIS_VALUES_MAX), &axis(AXIS_VALUES_MAX + 1), "a has 1001 values");
    let cases = |count| {
        let other = "matrix b = x0 x1 x2 x3 x4 x5 x6 x7 x8 x9\ntags $b".into();
        file([values(count), other])
    };
    check(&cases(CASES_MAX / 10), &cases(CASES_MAX / 10).replace("x9", "x9 x10"), "more than 10000 cases");
}

#[test]
fn words_of_all_cases_together() {
    let axis: Vec<String> = (0..1000).map(|value| value.to_string()).collect();
    let head = format!("matrix a = {}\ntags $a", axis.join(" "));
    // Each case has two words of the title, two tags, and four of each step.
    let steps =
        |count: usize| file([head.clone()].into_iter().chain(repeated(count, |_| "expect waits = 0".into())));
    let most = (WORDS_MAX / 1000 - 4) / 4;
    check(&steps(most), &steps(most + 1), "words together, the limit");
    let given = |words: usize| {
        let line = |at: usize| format!("given g{at} = {} otherwise", "x ".repeat(4000));
        let lines = repeated(words / 4000, line);
        let used = (0..words / 4000).map(|at| format!("tags $g{at}"));
        file(lines.into_iter().chain(used).chain([head.clone()]))
    };
    assert!(parse(&given(WORDS_MAX / 500)).unwrap_err()[0].message.contains("words together, the limit"));
}

#[test]
fn tags_of_a_file() {
    let tags = |count| file(repeated(count, |at| format!("tags t{at}")));
    check(&tags(TAGS_MAX), &tags(TAGS_MAX + 1), "more than 32 tags");
}

#[test]
fn processes_threads_and_vms_of_a_case() {
    let of = |count, line: &str| file(repeated(count, |at| format!("{line}{at}")));
    check(&of(PROCESSES_MAX, "process p"), &of(PROCESSES_MAX + 1, "process p"), "more than 64 processes");
    check(&of(PROCESSES_MAX, "vm v"), &of(PROCESSES_MAX + 1, "vm v"), "more than 64 VMs");
    let threads = |count| {
        file(["process p".into()].into_iter().chain(repeated(count, |at| format!("thread t{at} in p"))))
    };
    check(&threads(PROCESSES_MAX - 1), &threads(PROCESSES_MAX), "more than 64 threads");
}

#[test]
fn errors_that_are_shown() {
    let errors = parse(&file(repeated(50, |at| format!("wrong{at}")))).unwrap_err();
    assert_eq!(errors.len(), ERRORS_SHOWN_MAX);
    let errors = parse(&file(repeated(50, |_| "\"".into()))).unwrap_err();
    assert_eq!(errors.len(), ERRORS_SHOWN_MAX);
}

#[test]
fn time_of_a_scenario() {
    let seconds = TIME_MAX_NS / 1_000_000_000;
    let at = |seconds: u64| file([format!("at {seconds}s")]);
    check(&at(seconds), &at(seconds + 1), "ten years at most");
    let delay = |seconds: u64| file(["process p".into(), format!("fault delay p {seconds}s")]);
    check(&delay(seconds), &delay(seconds + 1), "ten years at most");
}

#[test]
#[ignore = "twenty million deadlines take a minute"]
fn deadlines_of_one_step() {
    let text = file([
        "config target 0 vsync=1us".into(),
        "process p".into(),
        "p D = device -> ok".into(),
        "p A = open_adapter 0 -> ok".into(),
        "p F = object D PERIODIC_MONITORED_FENCE adapter=A target=0 -> ok".into(),
        format!("at {}us", DEADLINES_MAX - 1),
        format!("+{}us", DEADLINES_MAX + 1),
    ]);
    let program = parse(&text).expect("it is a scenario").remove(0);
    let verdict = run(&program, &mut ModelWorld::new(&program, None).unchecked(), &mut First).verdict;
    let Verdict::Failed(failure) = verdict else { panic!("it passed") };
    assert!(failure.line == 8 && failure.what.contains("more than 10000000 deadlines"), "{failure}");
}

#[test]
fn operands_of_a_call_have_room_for_more_than_the_interface_takes() {
    let signal =
        |count: usize| file(["process p".into(), format!("p signal null {} -> ok", "null=1 ".repeat(count))]);
    check(&signal(256), &signal(257), "at most 256 operands");
}
