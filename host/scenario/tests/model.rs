//! Scenarios on the model backend: true expectations pass, and a false one fails at its line.

use std::collections::BTreeSet;

use scenario::choose::{First, Random};
use scenario::link::LinkWorld;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::{parse, print};
use scenario::{Program, Verdict};

fn programs(text: &str) -> Vec<Program> {
    parse(text).unwrap_or_else(|errors| {
        panic!("{}", errors.iter().map(|error| error.render("test.scn", text)).collect::<Vec<_>>().join("\n"))
    })
}

fn verdicts(text: &str) -> Vec<Verdict> {
    let run = |program: &Program| run(program, &mut ModelWorld::new(program, None), &mut First).verdict;
    programs(text).iter().map(run).collect()
}

#[track_caller]
fn passes(text: &str) {
    for program in programs(text) {
        let verdict = run(&program, &mut ModelWorld::new(&program, None), &mut First).verdict;
        assert_eq!(verdict, Verdict::Passed, "case {}", program.case);
        for seed in 0..50 {
            let verdict =
                run(&program, &mut LinkWorld::new(&program, None, seed), &mut Random::new(seed)).verdict;
            assert_eq!(verdict, Verdict::Passed, "link, seed {seed}, case {}", program.case);
        }
        let printed = print(&program);
        let again = parse(&printed).unwrap_or_else(|errors| panic!("{printed}\n{errors:?}")).remove(0);
        assert_eq!(print(&again), printed);
    }
}

#[track_caller]
fn fails_in(line: u32, found: &str, text: &str) {
    let Verdict::Failed(failure) = verdicts(text).remove(0) else { panic!("it passed") };
    assert_eq!(failure.line, line, "{failure}");
    assert!(failure.what.contains(found), "{failure}");
}

const TWO_PROCESSES: &str = r#"
scenario "a wait of one process, a signal of another"
covers FEN-025 FEN-030
vm A
process p in A
process q in A
thread t in p
p  D = device -> ok
q  E = device -> ok
p  F = fence D shared -> ok
p  N = share F -> ok
q  G = open E N -> ok
p  e = event
p  wait D F>=5 event=e -> ok
t  W = wait D F>=5 -> blocks
q  signal E G=4 -> ok
expect W blocked
expect e clear
q  signal E G=5 -> ok
expect W returned ok
expect e set 1
expect F = 5
expect wakes p = 2
"#;

#[test]
fn two_processes_and_a_fence() {
    passes(TWO_PROCESSES);
}

#[test]
fn engines_take_exactly_their_time() {
    passes(
        r#"
scenario "a busy engine"
process p
p  D = device -> ok
p  F = fence D -> ok
p  C = context D 3D -> ok
p  submit C busy(2ms) write(F, 7) -> ok
+1999us
expect F = 0
expect engine 3D running
+1us
expect F = 7
expect engine 3D idle
"#,
    );
}

#[test]
fn a_matrix_gives_cases_with_computed_expectations() {
    let text = r#"
scenario "a wait in each state"
matrix value = 4 5 6
matrix any = none any
given comes = blocks when value is 6
given comes = ok otherwise
process p
p  D = device -> ok
p  F = fence D initial=5 -> ok
p  W = wait D F>=$value $any -> $comes
"#;
    passes(text);
    let cases: Vec<String> = programs(text).into_iter().map(|program| program.case).collect();
    assert_eq!(cases.len(), 6);
    assert_eq!(cases[1], "value=4,any=any");
}

#[test]
fn a_wrong_expectation_fails_where_it_stands() {
    fails_in(
        4,
        "expected INVALID_PARAMETER, found: answers ok",
        "scenario \"x\"\nprocess p\np D = device -> ok\np F = fence D -> INVALID_PARAMETER\n",
    );
    fails_in(
        5,
        "expected F = 1, found: 0",
        "scenario \"x\"\nprocess p\np D = device -> ok\np F = fence D -> ok\nexpect F = 1\n",
    );
}

#[test]
fn a_frozen_process_hears_of_a_cut_when_it_is_thawed() {
    for fault in ["cut p", "restart daemon"] {
        passes(&format!(
            r#"
scenario "frozen and cut"
process p
thread t in p
p  D = device -> ok
p  F = fence D -> ok
t  W = wait D F>=1 -> blocks
fault freeze p
fault {fault}
expect W blocked
expect nothing left of p
fault thaw p
expect W returned DEVICE_REMOVED
"#
        ));
    }
}

#[test]
fn every_status_of_a_line_is_checked_with_or_without_a_name() {
    let head =
        "litmus \"x\"\nprocess p\nthread t in p\np D = device -> ok\np F = fence D -> ok\nrace p | t\n";
    let race = "signal D F=1 -> INVALID_PARAMETER | signal D F=1 -> ok\nallowed F=1\n";
    fails_in(7, "expected INVALID_PARAMETER, found: answers ok", &format!("{head}{race}"));
    fails_in(
        3,
        "expected NO_MEMORY, found: answers ok",
        "scenario \"x\"\nprocess p\np device -> NO_MEMORY\n",
    );
}

#[test]
fn why_counts_the_time_since_the_last_call() {
    let text = "scenario \"x\"\nprocess p\nthread t in p\np D = device -> ok\np F = fence D -> ok\n\
                t W = wait D F>=1 -> blocks\n+600s\nexpect why p progressing\n";
    fails_in(8, "event 1, for 600.0 s", text);
}

#[test]
fn a_thread_that_may_sleep_takes_no_step_while_it_does() {
    let text = "scenario \"x\"\nprocess p\np D = device -> ok\np F = fence D -> ok\np wait D F>=1 -> anything\n\
                p signal D F=1 -> ok\n";
    fails_in(6, "expected that p takes a step, found: it is in a call", text);
}

#[test]
fn a_call_that_nobody_made_is_not_blocked() {
    let text = "scenario \"x\"\nprocess p\np D = device -> ok\np F = fence D -> ok\np W = wait D F>=1 -> anything\n\
                p X = wait D F>=0 -> anything\nexpect W blocked\nexpect X blocked\n";
    fails_in(8, "expected that X is blocked, found: no thread is in this call", text);
}

#[test]
fn a_call_of_a_race_that_nobody_made_is_not_asleep() {
    let text = "litmus \"x\"\nprocess p\nthread t in p\np D = device -> ok\np F = fence D -> ok\nrace p | t\n\
                device_state D -> ok | W = wait D F>=1 -> ok\n | X = wait D F>=0 -> ok\n | r = read F\n\
                allowed X=asleep, r=0\n";
    fails_in(6, "the race ended in X never started, which is not allowed", text);
}

#[test]
fn an_outcome_that_is_not_allowed_is_a_failure_at_the_line_of_the_race_in_any_order() {
    let text = "litmus \"x\"\nprocess p\nthread t in p\np D = device -> ok\np F = fence D -> ok\nrace p | t\n\
                r = read F |\n | s = read F\nallowed r=1 s=1\n";
    let program = &programs(text)[0];
    for seed in 0..20 {
        let mut world = ModelWorld::new(program, None);
        let verdict = run(program, &mut world, &mut Random::new(seed)).verdict;
        let Verdict::Failed(failure) = verdict else { panic!("seed {seed} passed") };
        assert_eq!(failure.to_string(), "line 6: the race ended in r=0 s=0, which is not allowed");
    }
}

#[test]
fn the_reason_of_an_earlier_refusal_is_not_that_of_a_success() {
    let text = "scenario \"x\"\nprocess p\np D = device -> ok\np destroy D -> INVALID_PARAMETER\n\
                p F = fence D -> NO_MEMORY\n";
    let Verdict::Failed(failure) = verdicts(text).remove(0) else { panic!("it passed") };
    assert_eq!(failure.what, "expected NO_MEMORY, found: answers ok");
}

#[test]
#[ignore = "a figure, not a verdict"]
fn speed() {
    let program = programs(TWO_PROCESSES).remove(0);
    let begin = std::time::Instant::now();
    for _ in 0..10_000 {
        let ended = run(&program, &mut ModelWorld::new(&program, None), &mut First);
        assert_eq!(ended.verdict, Verdict::Passed);
    }
    println!("model: {:?} a run", begin.elapsed() / 10_000);
    let begin = std::time::Instant::now();
    for seed in 1..10_001 {
        let ended = run(&program, &mut LinkWorld::new(&program, None, seed), &mut Random::new(seed));
        assert_eq!(ended.verdict, Verdict::Passed);
    }
    println!("link: {:?} a run", begin.elapsed() / 10_000);
}

const RESOURCE_ON_ADAPTER: &str = "process p
p  D = device on 0             -> ok
p  P = paging_queue D          -> ok
p  A = allocate D bytes=0x2000 -> ok
p  V = map P A pages=2 WRITE   -> PENDING
p  make_resident P A           -> PENDING
+1s
p  wait D P.fence>=2           -> ok
p  R = resource D buffer at=V bytes=0x1000 -> ok
expect no race
";

#[test]
fn a_process_has_as_many_allocations_as_names() {
    let mut text = "scenario \"many\"\nprocess p\np  D = device -> ok\n".to_owned();
    for number in 0..600 {
        text +=
            &format!("p  A{number} = allocate D bytes=0x10000 -> ok\np  store A{number} words = {number}\n");
    }
    for number in [0, 1, 510, 511, 599] {
        text += &format!("expect A{number} words = {number}\n");
    }
    assert_eq!(verdicts(&text), [Verdict::Passed]);
}

#[test]
fn no_race_is_expected_only_of_adapters_that_look_for_them() {
    let with = |adapter: &str| {
        format!(
            "scenario \"x\"\nconfig adapters = 2\nconfig adapter {adapter} hazards\n{RESOURCE_ON_ADAPTER}"
        )
    };
    passes(&with("0"));
    fails_in(13, "adapter 0 does not look for races", &with("1"));
    fails_in(12, "adapter 0 does not look for races", &with("1").replace("config adapter 1 hazards\n", ""));
}

#[test]
fn a_device_that_is_refused_has_its_answer() {
    passes(
        "scenario \"x\"\nprocess p\nfault cut p\np  D = device -> DEVICE_REMOVED\n\
         expect D returned DEVICE_REMOVED\n",
    );
}

#[test]
fn a_device_of_a_held_process_is_there_after_the_release() {
    passes(
        "scenario \"x\"\nprocess p\nfault hold p\np  D = device -> anything\nfault release p\n\
         expect D returned ok\nexpect D state ACTIVE\np  C = context D 3D -> ok\n",
    );
}

#[test]
fn settings_of_the_host_are_those_of_its_own_processes() {
    let text = |vm: &str, answer: &str| {
        format!(
            "scenario \"x\"\nconfig vm {vm} not raised_priorities\nvm A\nvm B\nprocess p\nprocess q in A\n\
             p  priority_class HIGH -> {answer}\nq  priority_class HIGH -> ok\n"
        )
    };
    passes(&text("host", "ACCESS_DENIED"));
    passes(&text("B", "ok"));
}

#[test]
fn every_share_without_a_name_makes_an_nt_handle_of_its_own() {
    const SHARES: &str = r#"
scenario "two NT handles without names"
process p
p  D = device -> ok
p  F = fence D shared -> ok
p  share F -> ok
"#;
    passes(&format!("{SHARES}p  share F -> ok\n"));
    fails_in(7, "answers ok", &format!("{SHARES}p  share F -> INVALID_PARAMETER\n"));
}

#[test]
fn a_mutex_has_no_value_that_a_race_could_be_about() {
    let race = |step: &str, outcome: &str| {
        format!(
            r#"
litmus "a value of a mutex"
process p
thread t in p
p  D = device -> ok
p  M = object D MUTEX -> ok
p  F = fence D -> ok
race p | t
  signal D F=1 -> ok | {step}
{outcome}
"#
        )
    };
    fails_in(9, "expected that M is a fence", &race("r = read M", "forbidden r=1"));
    fails_in(10, "expected that M is a fence", &race("r = read F", "forbidden M=1"));
}

#[test]
fn messages_that_could_not_be_read_are_not_no_message() {
    fails_in(
        6,
        "`debug_messages` answered INVALID_PARAMETER",
        r#"
scenario "a device without the debug layer"
process p
p  D = device -> ok
p  M = debug_messages D -> anything
expect M no message
"#,
    );
}

#[test]
fn a_destroyed_fence_has_no_value_not_even_of_the_next_fence() {
    const BEFORE: &str =
        "scenario \"destroyed\"\nprocess p\np  D = device -> ok\np  F = fence D initial=4 -> ok\n";
    for (ends, reads) in [
        ("p  destroy F -> ok\n", "expect F = 4\n"),
        ("p  destroy F -> ok\np  G = fence D initial=9 -> ok\n", "expect F = 9\n"),
        ("p  destroy_device D -> ok\n", "expect F = 4\n"),
        ("p  destroy F -> ok\n", "p  r = read F\n"),
    ] {
        let text = format!("{BEFORE}{ends}{reads}");
        let line = text.lines().count() as u32;
        fails_in(line, "it has no value in memory", &text);
        let program = programs(&text).remove(0);
        let Verdict::Failed(failure) =
            run(&program, &mut LinkWorld::new(&program, None, 0), &mut First).verdict
        else {
            panic!("it passed on link:\n{text}");
        };
        assert!(
            failure.line == line && failure.what.contains("it has no value in memory"),
            "link: {failure}"
        );
    }
    passes(&format!(
        "{BEFORE}p  destroy null -> INVALID_PARAMETER\np  destroy_device F -> INVALID_PARAMETER\nexpect F = 4\n"
    ));
}

#[test]
fn the_reason_of_a_refusal_is_that_call_s_own() {
    let refused = "p  signal D F=5 -> ok\np  signal D F=4 -> INVALID_PARAMETER\n";
    let of_other = "process q\nq  E = device -> ok\nq  G = fence E -> ok\nq  signal E G=5 -> ok\n\
                    q  signal E G=4 -> INVALID_PARAMETER\n";
    const BEFORE: &str =
        "scenario \"reasons\"\nprocess p\nthread t in p\np  D = device -> ok\np  F = fence D -> ok\n";
    let what = |lines: &str| {
        let text = format!("{BEFORE}{lines}");
        let Verdict::Failed(failure) = verdicts(&text).remove(0) else { panic!("it passed:\n{text}") };
        failure.what
    };
    let removed = "expected ok, found: answers DEVICE_REMOVED";
    // A lost stream has no reason, whatever was refused before.
    assert_eq!(what(&format!("{refused}fault cut p\np  signal D F=6 -> ok\n")), removed);
    assert_eq!(what(&format!("{of_other}fault cut p\np  signal D F=6 -> ok\n")), removed);
    // In a race, a call has the reason of its own refusal too.
    let text = "litmus \"reasons\"\nprocess p\nthread t in p\np  D = device -> ok\nrace p | t\n\
                  W = wait null null>=1 -> ok |\n  destroy null -> INVALID_PARAMETER |\nallowed W=returned\n";
    let Verdict::Failed(failure) = verdicts(text).remove(0) else { panic!("it passed") };
    assert!(failure.line == 6 && failure.what.contains("is no device handle"), "{failure}");
}

#[test]
fn a_reason_that_may_be_another_call_s_is_not_given() {
    let text = "litmus \"reasons\"\nprocess p\nthread t in p\np  D = device -> ok\nrace p | t\n\
                W = wait null null>=1 -> ok | destroy null -> INVALID_PARAMETER\nallowed W=returned\n";
    let program = &programs(text)[0];
    let mut whats = BTreeSet::new();
    for seed in 0..50 {
        let mut world = LinkWorld::new(program, None, seed);
        let Verdict::Failed(failure) = run(program, &mut world, &mut Random::new(seed)).verdict else {
            panic!("seed {seed} passed")
        };
        whats.insert(failure.what);
    }
    let plain = "expected ok, found: answers INVALID_PARAMETER";
    let (others, own): (Vec<&String>, Vec<&String>) =
        whats.iter().filter(|what| *what != plain).partition(|what| !what.contains("is no device handle"));
    assert!(others.is_empty() && own.len() == 1 && whats.contains(plain), "{whats:?}");
}
