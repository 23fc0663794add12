//! Shrinking: programs with planted bugs shrink to a few lines that still fail in the same way.

use dxgkrnl::PlantedBug;
use scenario::Program;
use scenario::explore::{
    Class, FailureMode, ModelBackend, Plan, campaign, chooser, failure, random, run_once, shrink,
};
use scenario::script::{parse, print};

/// Returns the class of the program's failure with a bug in the kernel.
fn class(program: &Program, bug: PlantedBug) -> Option<Class> {
    let ended = run_once(&ModelBackend::default(), program, Some(bug), 0, &mut chooser(0));
    failure(&ended).map(Class::of)
}

fn shrunk(program: &Program, bug: PlantedBug) -> Option<Program> {
    let expected_class = class(program, bug)?;
    Some(shrink(program, &mut |candidate| {
        let ended = run_once(&ModelBackend::default(), candidate, Some(bug), 0, &mut chooser(0));
        (failure(&ended).map(Class::of) == Some(expected_class)).then_some(ended)
    }))
}

#[test]
fn planted_bugs_shrink_to_twelve_lines_at_most() {
    for bug in PlantedBug::ALL {
        let mut count = 0;
        for seed in 0..3000 {
            let program = random(seed);
            let Some(small) = shrunk(&program, bug) else { continue };
            let text = print(&small);
            if count == 0 {
                println!("{}, seed {seed}:\n{text}", bug.name());
            }
            assert!(text.lines().count() <= 12, "{} at seed {seed}:\n{text}", bug.name());
            assert!(!text.contains("anything"), "{} at seed {seed}:\n{text}", bug.name());
            let read = parse(&text).expect("it is a scenario").remove(0);
            assert_eq!(class(&read, bug), class(&program, bug), "{text}");
            assert!(text.lines().count() <= print(&program).lines().count());
            assert_eq!(print(&shrunk(&read, bug).expect("it fails")), text, "it is as small as it gets");
            count += 1;
            if count == 60 {
                break;
            }
        }
    }
}

#[test]
fn shrinking_is_deterministic() {
    let failing = (0..).map(random).find(|program| class(program, PlantedBug::LostWake).is_some());
    let program = failing.expect("some seed fails");
    let small = |_| print(&shrunk(&program, PlantedBug::LostWake).expect("it fails"));
    let all: Vec<String> = (0..3).map(small).collect();
    assert!(all.windows(2).all(|two| two[0] == two[1]));
}

/// Shrinks a program that fails on a correct kernel.
fn shrunk_text(text: &str) -> String {
    let program = parse(text).unwrap_or_else(|errors| panic!("{}", errors[0].render("test", text))).remove(0);
    let run = |program: &Program| run_once(&ModelBackend::default(), program, None, 1, &mut chooser(1));
    let mode_of = |program: &Program| {
        let ended = run(program);
        let mode = failure(&ended).map(|failed| FailureMode::of(failed, program));
        mode.map(|mode| (mode, ended))
    };
    let (expected, _) = mode_of(&program).expect("it fails");
    print(&shrink(&program, &mut |candidate| {
        mode_of(candidate).and_then(|(mode, ended)| (mode == expected).then_some(ended))
    }))
}

#[test]
fn a_wrong_expectation_shrinks_to_what_it_needs() {
    let text = r#"scenario "too much"
covers FEN-025
config lower_gpu_signal = applied
vm A
process p in A
process q in A
p  D = device -> ok
q  E = device -> ok
p  F = fence D shared -> ok
p  N = share F -> ok
q  G = open E N -> ok
thread t in p
t  W = wait D F>=5 -> blocks
q  signal E G=6 -> ok
expect W returned ok
expect F = 7
+1s
fault kill q
"#;
    // The value that was found is too low, as before, and comes from a signal.
    let expected = "scenario \"too much\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\n\
                    p  signal D F=1 -> ok\nexpect F = 7\n";
    assert_eq!(shrunk_text(text), expected);
}

#[test]
fn a_race_shrinks_to_the_steps_that_make_it_fail() {
    let text = r#"litmus "too much"
process p
process q
p  D = device -> ok
p  F = fence D shared -> ok
p  N = share F -> ok
q  E = device -> ok
q  G = open E N -> ok
thread t in p
race p | t | q
     signal D F=1 -> ok | x = read F | signal E G=1 -> ok
     signal D F=2 -> ok | y = read F |
forbidden F=2
"#;
    let expected = "litmus \"too much\"\nprocess p\np  D = device -> ok\np  F = fence D -> ok\nthread t in p\n\
                  race p | t\n     signal D F=2 -> anything | \nforbidden F=2\n";
    assert_eq!(shrunk_text(text), expected);
}

/// Explores a race by seed, and returns the outcome of its first failure, and that of the program it shrinks to.
fn explored_and_shrunk(text: &str) -> (String, String, String) {
    let program = parse(text).unwrap_or_else(|errors| panic!("{}", errors[0].render("test", text))).remove(0);
    let plan = Plan {
        program: Some(program),
        crashes: false,
        seeds: 0..200,
        jobs: 1,
        shard: None,
        planted: None,
        stop_after: 1,
        commit: "0123abc".into(),
        digest: 7,
    };
    let mut report = campaign(&ModelBackend::default(), &plan, &|_| {}).expect("the plan is sound");
    let found = report.failures.remove(0);
    let shrunk = parse(&found.shrunk).expect("it is a scenario").remove(0);
    let seed = found.shrunk_seed;
    let ended = run_once(&ModelBackend::default(), &shrunk, None, seed, &mut chooser(seed));
    let after = failure(&ended).expect("it fails").what.clone();
    (found.what, after, found.shrunk)
}

#[test]
fn a_race_that_hangs_shrinks_to_one_that_hangs() {
    let text = r#"litmus "rewind may leave a waiter asleep"
process p
process q
thread t in p
p  D = device         -> ok
p  F = fence D shared -> ok
p  N = share F        -> ok
q  E = device         -> ok
q  G = open E N       -> ok
race p | t | q
  signal D F=3 -> anything | W = wait D F>=3 -> ok | signal E G=1 rewind -> anything
   | r = read F |
allowed W=returned r=1, W=returned r=3
"#;
    let (found, after, shrunk) = explored_and_shrunk(text);
    assert!(found.contains("W=asleep and r never started"), "{found}");
    assert_eq!(after, "the race ended in W=asleep and x never started, which is not allowed", "{shrunk}");
}

#[test]
fn a_race_that_ends_in_other_values_shrinks_to_one_that_ends_in_them() {
    let text = r#"litmus "message passing, one outcome forgotten"
process p
process q
p  D = device         -> ok
p  F = fence D shared -> ok
p  G = fence D shared -> ok
p  N = share F        -> ok
p  M = share G        -> ok
q  E = device         -> ok
q  X = open E N       -> ok
q  Y = open E M       -> ok
race p | q
  signal D F=1 -> ok | r0 = read Y
  signal D G=1 -> ok | r1 = read X
allowed r0=0 r1=0, r0=1 r1=1
"#;
    let (found, after, shrunk) = explored_and_shrunk(text);
    assert!(found.contains("r0=0 r1=1"), "{found}");
    assert_eq!(after, "the race ended in x=0 y=1, which is not allowed", "{shrunk}");
}
