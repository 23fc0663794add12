//! Interactive `gpupv replay`, `gpupv trace shrink` and `gpupv trace reorder`: the real binary, on golden and other traces.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use dxgkrnl::{Config, Effects, Input, VmId};
use e2e::programs::{gpupv, scenario, stderr, stdout, tree};
use scenario::choose::First;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::parse;
use serde_json::Value;
use trace::{Reader, Record, Recorder};

fn golden(name: &str) -> PathBuf {
    tree().join("tests/traces").join(name).with_extension("gvt")
}

fn command(words: &[&str], trace: &Path, arguments: &[&str]) -> Output {
    gpupv(words).arg(trace).args(arguments).stdin(Stdio::null()).output().expect("gpupv starts")
}

fn code(output: &Output, expected: i32) {
    assert_eq!(output.status.code(), Some(expected), "{}{}", stdout(output), stderr(output));
}

fn json(output: &Output) -> Value {
    serde_json::from_str(stdout(output)).unwrap_or_else(|error| panic!("{error}: {}", stdout(output)))
}

#[test]
fn a_replay_stops_at_a_position_and_prints_the_state() {
    let trace = golden("three_vms");
    let output = command(&["replay"], &trace, &["--until", "seq=12", "--state"]);
    code(&output, 0);
    let printed = stdout(&output);
    assert!(
        printed.starts_with("identical: 11 steps") && printed.contains("stopped before step #12"),
        "{printed}"
    );
    assert!(printed.contains("process"), "the state: {printed}");
    let output = command(&["replay"], &trace, &["--until", "seq=12", "--state", "--json"]);
    code(&output, 0);
    let verdict = json(&output);
    assert_eq!((&verdict["stopped_before"], &verdict["steps"]), (&12.into(), &11.into()));
    let help = gpupv(&["replay", "--help"]).output().expect("gpupv starts");
    assert!(stdout(&help).contains("the state before step 120"), "{}", stdout(&help));
    assert!(verdict["state"].is_object(), "{verdict}");
    for (wrong, why) in [("banana", "it has no ="), ("time=5h", "time= needs"), ("wait=7", "wait= needs")] {
        let output = command(&["replay"], &trace, &["--until", wrong]);
        code(&output, 2);
        assert!(stderr(&output).contains(why) && stderr(&output).contains("seq=120"), "{}", stderr(&output));
    }
    // A place that the trace does not reach is an error of the caller; a time after its end is the whole trace.
    for (place, expected) in [("seq=5000", 2), ("wait=p1:99", 2), ("note=nosuch", 2), ("time=900s", 0)] {
        let output = command(&["replay"], &trace, &["--until", place]);
        code(&output, expected);
        let missed = stdout(&output).contains("the place of --until is not in the trace: its last step is #");
        assert_eq!(missed, expected == 2, "{place}: {}", stdout(&output));
        let is_late =
            stdout(&output).contains("the trace ends before the time of --until: its last step is #");
        assert_eq!(is_late, expected == 0, "{place}: {}", stdout(&output));
    }
    // Places that are swapped, or a beginning that is not there.
    for (places, why) in [
        (&["--from", "seq=12", "--until", "seq=11"][..], "would end before step #12"),
        (&["--from", "seq=5000"], "(--from) is not in the trace"),
    ] {
        let output = command(&["replay"], &trace, places);
        code(&output, 2);
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    code(&command(&["replay"], &trace, &["--step", "--json"]), 2);
    code(&command(&["replay"], &trace, &["--untill", "seq=1"]), 2);
}

#[test]
fn why_names_the_last_step_that_its_answer_is_about() {
    let trace = golden("three_vms");
    let last = Reader::open(&trace).expect("a trace").filter_map(Result::ok);
    let last = last.filter(|record| matches!(record, Record::Step { .. })).last().expect("a step").sequence();
    for (place, says) in [
        (&[][..], format!("at the end of the trace, after step #{last}")),
        (&["--at", "900s"], format!("at the end of the trace, after step #{last}")),
        (&["--at", "3"], "after step #3 of the trace".into()),
        (&["--at", "0"], "before the first step of the trace".into()),
    ] {
        let output = command(&["why"], &trace, place);
        let position =
            stderr(&output).lines().find(|line| line.contains("of the trace") || line.contains("end of"));
        assert_eq!(position, Some(&*says), "{place:?}: {}", stderr(&output));
    }
}

#[test]
fn an_interactive_replay_steps_forwards_and_backwards() {
    let mut child = gpupv(&["replay", "--step"])
        .arg(golden("hang"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gpupv starts");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"n 2\ng seq=9\nb 3\ns\nfly\ng seq=9999\nh\nq\nn\n").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    code(&output, 0);
    let printed = stdout(&output);
    let positions: Vec<&str> =
        printed.lines().filter_map(|line| line.strip_prefix("before step #")).collect();
    assert_eq!(&positions[..3], ["1", "9", "6"], "{printed}");
    for expected in
        ["#1 ", "#2 ", "\"fly\" is no command; h lists them", "the end of the trace: the state is the same"]
    {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert!(printed.contains("print the whole state of the kernel"), "{printed}");
}

#[test]
fn a_dump_without_a_saved_state_is_not_compared_and_not_queried() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("dump.gvt");
    let mut recorder = Recorder::in_memory(&Config::default(), "a test", 1).expect("memory");
    for step in 1..=2000 {
        recorder.begin(step, &Input::VmAttached { vm: VmId(1), name: "x".repeat(1000) }).expect("memory");
        recorder.end(&Effects::default()).expect("memory");
    }
    recorder.dump(None).write(&trace).expect("room");
    let output = command(&["replay"], &trace, &[]);
    code(&output, 1);
    assert!(stdout(&output).starts_with("nothing could be compared: "), "{}", stdout(&output));
    assert_eq!(json(&command(&["replay"], &trace, &["--json"]))["verdict"], "no-state");
    for words in [&["why"][..], &["trace", "shrink"], &["trace", "reorder"]] {
        let output = command(words, &trace, &[]);
        code(&output, 2);
        assert!(stderr(&output).contains("begins at step #"), "{}", stderr(&output));
    }
}

/// The step after the end of a VM.
fn behind_the_crash(trace: &Path) -> u64 {
    let is_crash = |record: &Record| matches!(record, Record::Step { input: Input::VmDetached { .. }, .. });
    let mut records = Reader::open(trace).expect("a trace").map(|record| record.expect("it is whole"));
    records.find(is_crash).expect("a VM crashes").sequence() + 1
}

#[test]
fn a_recording_is_shrunk_to_a_scenario_that_reproduces_the_failure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (trace, out) = (golden("crash"), folder.path().join("out.scn"));
    let behind = behind_the_crash(&trace);
    let until = format!("seq={behind}");
    let arguments = ["--until", &until, "--output", out.to_str().expect("UTF-8")];
    let output = command(&["trace", "shrink"], &trace, &arguments);
    code(&output, 0);
    assert!(stdout(&output).contains("dead-end: gpupv scenario run "), "{}", stdout(&output));
    let text = std::fs::read_to_string(&out).expect("the scenario");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("expect why p dead-end ")), "{text}");
    assert!(text.lines().count() < 20, "{text}");
    let ran = scenario(folder.path(), &["run", "out.scn"]);
    code(&ran, 0);
    // Without a file the scenario is printed; as JSON, with its cost.
    let output = command(&["trace", "shrink"], &trace, &["--until", &until]);
    assert_eq!(stdout(&output).trim_end(), text.trim_end());
    let shrunk = json(&command(&["trace", "shrink"], &trace, &["--until", &until, "--json"]));
    assert_eq!(shrunk["scenario"], text, "{shrunk}");
    assert!(shrunk["kept"][0].as_str().is_some_and(|kept| kept.ends_with(": dead-end")), "{shrunk}");
    assert!(shrunk["steps_left"].as_u64() < shrunk["steps"].as_u64(), "{shrunk}");

    // At the end all processes had ended, and nothing was stuck.
    let output = command(&["trace", "shrink"], &trace, &[]);
    code(&output, 2);
    assert!(stderr(&output).contains("nothing is stuck at its end"), "{}", stderr(&output));
    // The place behind step N is --at N for `why` and seq=N+1 for --until. The waiting process ends in step 22.
    assert!(stderr(&output).contains("--at 21` shows one, use --until seq=22"), "{}", stderr(&output));
    code(&command(&["why"], &trace, &["--at", "21"]), 1);
    code(&command(&["why"], &trace, &["--at", &(behind - 1).to_string()]), 1);
    let output = command(&["trace", "shrink"], &trace, &["--until", &until, "--keep", "cycle"]);
    code(&output, 2);
    assert!(stderr(&output).contains("does not show cycle"), "{}", stderr(&output));
    let output = command(&["trace", "shrink"], &trace, &["--keep", "stuck"]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("\"stuck\" is no failure to keep: write a verdict (progressing"),
        "{}",
        stderr(&output)
    );
    let nowhere = folder.path().join("no/out.scn");
    let arguments = ["--until", &until, "-o", nowhere.to_str().expect("UTF-8")];
    let output = command(&["trace", "shrink"], &trace, &arguments);
    code(&output, 2);
    assert!(stderr(&output).contains("a folder that exists with --output"), "{}", stderr(&output));
}

#[test]
fn a_wait_that_ended_with_its_vm_is_found_by_the_hint_of_shrink() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("crash.gvt");
    let in_vm = HANG.replace("process p", "vm A\nprocess p in A");
    record(&format!("{in_vm}fault crash A\n"), &trace);
    let output = command(&["trace", "shrink"], &trace, &[]);
    code(&output, 2);
    let until = format!("seq={}", behind_the_crash(&trace) - 1);
    assert!(stderr(&output).contains(&format!("use --until {until}, ")), "{}", stderr(&output));
    code(&command(&["trace", "shrink"], &trace, &["--until", &until]), 0);
}

#[test]
fn a_place_that_the_trace_does_not_reach_is_said() {
    let trace = golden("crash");
    let last = Reader::open(&trace).expect("a trace").filter_map(Result::ok);
    let last = last.filter(|record| matches!(record, Record::Step { .. })).last().expect("a step").sequence();
    let late = format!(
        "all steps are used, because the trace ends before the time of --until: its last step is #{last}"
    );
    let missed = format!("the place of --until is not in the trace: its last step is #{last}");
    let (next, behind) = (format!("seq={}", last + 1), format!("seq={}", last + 2));
    for words in [&["trace", "reorder", "--orders", "2"][..], &["trace", "shrink", "--keep", "cycle"]] {
        // This trace shows no cycle, so that shrink fails in any case.
        let of_whole = command(words, &trace, &[]).status.code().expect("it ends");
        for (place, expected, says) in [
            ("time=900s", of_whole, Some(&late)),
            ("seq=2", of_whole, None),
            (&next, of_whole, None),
            (&behind, 2, Some(&missed)),
        ] {
            let output = command(words, &trace, &["--until", place]);
            code(&output, expected);
            let is_said = stderr(&output).contains(" of --until");
            assert_eq!(is_said, says.is_some(), "{words:?} {place}: {}", stderr(&output));
            assert!(says.is_none_or(|says| stderr(&output).contains(says)), "{}", stderr(&output));
        }
        let output = command(words, &trace, &["--until", "note=nosuch"]);
        code(&output, 2);
        assert!(stderr(&output).contains("does not reach that place"), "{}", stderr(&output));
    }
}

#[test]
fn an_output_replaces_no_file_without_force_and_never_the_trace() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (trace, other) = (folder.path().join("t.gvt"), folder.path().join("notes.txt"));
    std::fs::copy(golden("crash"), &trace).expect("a copy");
    std::fs::write(&other, "notes").expect("a file");
    let before = std::fs::read(&trace).expect("the trace");
    let until = format!("seq={}", behind_the_crash(&trace));
    let (to_trace, to_other) = (trace.to_str().expect("UTF-8"), other.to_str().expect("UTF-8"));
    for (words, arguments) in [
        (&["trace", "export"][..], &["--output"][..]),
        (&["trace", "shrink"], &["--until", &until, "-o"]),
        (&["trace", "reorder"], &["--orders", "2", "-o"]),
        (&["why"], &["--at", &until, "--svg"]),
    ] {
        for (more, says) in [
            (&[to_trace][..], "is the file that is read: name another one with --"),
            (&[to_trace, "--force"], "is the file that is read: name another one with --"),
            (&[to_other], "notes.txt exists: name another file with --"),
        ] {
            let output = command(words, &trace, &[arguments, more].concat());
            code(&output, 2);
            assert!(stderr(&output).contains(says), "{words:?} {more:?}: {}", stderr(&output));
        }
        assert_eq!(std::fs::read(&trace).expect("the trace"), before, "{words:?}");
        assert_eq!(std::fs::read(&other).expect("the notes"), b"notes", "{words:?}");
    }
    let output = command(&["trace", "shrink"], &trace, &["--until", &until, "-o", to_other, "--force"]);
    code(&output, 0);
    assert!(std::fs::read_to_string(&other).expect("a scenario").starts_with("scenario "));
}

/// Words of the language are names of programs like any other.
#[test]
fn a_program_with_a_word_of_the_language_as_its_name_is_shrunk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("t.gvt");
    record_as(HANG, "hang", &trace);
    let output = command(&["trace", "shrink"], &trace, &[]);
    code(&output, 0);
    assert!(stdout(&output).contains("expect why "), "{}", stdout(&output));
}

#[test]
fn a_damaged_trace_is_reported_once_and_by_the_exit_code() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (whole, cut) = (folder.path().join("race.gvt"), folder.path().join("cut.gvt"));
    record(RACE.trim_end().rsplit_once('\n').expect("two lines").0, &whole);
    let bytes = std::fs::read(&whole).expect("the trace");
    std::fs::write(&cut, &bytes[..bytes.len() - 5]).expect("a file");
    // A kill leaves the steps in the open block, which is not copied.
    let output = command(&["trace", "reorder"], &cut, &["--orders", "2"]);
    code(&output, 1);
    let lines = stderr(&output).lines().filter(|line| line.contains("steps before the damage are used"));
    assert_eq!(lines.count(), 1, "{}", stderr(&output));
    assert!(!stdout(&output).contains("each has the recorded outcome\n"), "{}", stdout(&output));
    let output = command(&["replay"], &cut, &[]);
    code(&output, 1);
    let replayed = stdout(&output);
    let has_none = replayed.starts_with("identical: 0 steps");
    assert_eq!(replayed.contains("the steps before it can be used"), !has_none, "{replayed}");
    let whole = folder.path().join("hang.gvt");
    let mut recorder = record_as(HANG, "p", &whole);
    let stuck = std::fs::metadata(&whole).expect("the trace").len() as usize;
    recorder.begin(1_000_000_000, &Input::Deadline).expect("room");
    recorder.end(&Effects::default()).expect("room");
    recorder.finish(0).expect("room");
    let bytes = std::fs::read(&whole).expect("the trace");
    // The block of the last step is lost.
    std::fs::write(&cut, &bytes[..stuck + 20]).expect("a file");
    for (trace, expected) in [(&whole, 0), (&cut, 1)] {
        let output = command(&["trace", "shrink"], trace, &[]);
        code(&output, expected);
        assert!(stdout(&output).contains("expect why "), "{}", stdout(&output));
    }
}

/// A scenario that ends with a stuck wait.
const HANG: &str = "scenario \"x\"\nprocess p\nthread t in p\np  D = device -> ok\np  F = fence D -> ok\n\
                    p  C = context D 3D -> ok\np  submit C hang -> ok\np  gpu_signal C F=4 -> ok\n\
                    t  W = wait D F>=4 -> blocks\n";

/// A scenario that passed, because the fence was rewound before it was signaled.
const RACE: &str = include_str!("../../../host/scenario/tests/race_that_passed.scn");

/// A recording of a scenario, up to the end of the first process.
fn record(text: &str, trace: &Path) {
    record_as(text, "", trace);
}

/// The same, where each process has another name.
fn record_as(text: &str, name: &str, trace: &Path) -> Recorder {
    let program = parse(text).expect("it is a scenario").remove(0);
    let mut world = ModelWorld::new(&program, None).recording();
    run(&program, &mut world, &mut First);
    let mut recorder = Recorder::create(trace, &program.setting.kernel, "a test").expect("a file");
    let is_end = |input: &Input| matches!(input, Input::ProcessGone { .. } | Input::NtHandleClosed { .. });
    for (now, input, effects) in world.steps().iter().take_while(|(_, input, _)| !is_end(input)) {
        let mut input = input.clone();
        if let Input::ProcessAttached { name: old, .. } = &mut input
            && !name.is_empty()
        {
            *old = name.to_owned();
        }
        recorder.begin(*now, &input).expect("room");
        recorder.end(effects).expect("room");
    }
    recorder.flush().expect("room");
    recorder
}

/// All orders would lose the adapter, and so end alike.
#[test]
fn a_recording_whose_driver_is_missing_is_neither_reordered_nor_shrunk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("lost.gvt");
    record(
        "scenario \"x\"\nconfig adapter 0 kmd=\"/nowhere/driver.so\"\nprocess p\np  D = device -> anything\n",
        &trace,
    );
    for tool in ["reorder", "shrink"] {
        let output = command(&["trace", tool], &trace, &[]);
        code(&output, 2);
        assert!(stderr(&output).contains("/nowhere/driver.so"), "{}", stderr(&output));
    }
}

#[test]
fn another_order_of_a_recording_that_hangs_is_found_and_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (trace, out) = (folder.path().join("race.gvt"), folder.path().join("out.scn"));
    record(RACE, &trace);
    code(&command(&["replay"], &trace, &[]), 0);
    let output =
        command(&["trace", "reorder"], &trace, &["--orders", "40", "-o", out.to_str().expect("UTF-8")]);
    code(&output, 1);
    let printed = stdout(&output);
    assert!(
        printed.contains(") waits at the end for ") && printed.contains("\n  comes after #"),
        "{printed}"
    );
    code(&scenario(folder.path(), &["run", "out.scn"]), 0);
    let text = std::fs::read_to_string(&out).expect("the scenario");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("expect why p ")), "{text}");
    let explored = || command(&["trace", "reorder"], &trace, &["--orders", "40", "--seed", "3", "--json"]);
    assert_eq!(stdout(&explored()), stdout(&explored()), "the same seed finds the same");
    let found = json(&explored());
    assert_eq!((&found["found"][0]["kind"], &found["found"][0]["failure"]), (&"waits".into(), &true.into()));
    assert!(found["orders"].as_u64().is_some_and(|orders| (1..=40).contains(&orders)), "{found}");

    // Other final values are reported and are no failure.
    let values = folder.path().join("values.gvt");
    record(RACE.trim_end().rsplit_once('\n').expect("two lines").0, &values);
    let output = command(&["trace", "reorder"], &values, &[]);
    code(&output, 0);
    assert!(stdout(&output).contains("the final values differ: "), "{}", stdout(&output));
    code(&command(&["trace", "reorder"], &trace, &["--orders", "0"]), 2);
    code(&command(&["trace", "reorder"], &folder.path().join("gone.gvt"), &[]), 2);
}

#[test]
fn every_command_reads_a_packed_trace_and_pack_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small.gvt");
    let trace = golden("three_vms");
    let to = small.to_str().unwrap();
    let output = command(&["trace", "pack"], &trace, &[to]);
    code(&output, 0);
    let length = std::fs::metadata(&small).unwrap().len();
    assert!(stdout(&output).contains(&format!("small.gvt: {length} bytes, ")), "{}", stdout(&output));
    assert!(length < std::fs::metadata(&trace).unwrap().len());
    for words in [&["replay"][..], &["trace", "stats"], &["trace", "show"], &["trace", "verify", "--json"]] {
        let (of_trace, of_small) = (command(words, &trace, &[]), command(words, &small, &[]));
        code(&of_small, 0);
        if words[0] == "replay" {
            assert_eq!(stdout(&of_small), stdout(&of_trace));
        }
    }
    code(&command(&["trace", "diff"], &trace, &[to]), 0);
    let output = command(&["trace", "pack"], &trace, &[to]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("small.gvt") && stderr(&output).contains("exists"),
        "{}",
        stderr(&output)
    );
    let mut bytes = std::fs::read(&trace).unwrap();
    bytes.truncate(bytes.len() - 5);
    let cut = folder.path().join("cut.gvt");
    std::fs::write(&cut, bytes).unwrap();
    let other = folder.path().join("other.gvt");
    let output = command(&["trace", "pack"], &cut, &[other.to_str().unwrap(), "--json"]);
    code(&output, 2);
    assert!(stderr(&output).contains("cannot be packed") && !other.exists(), "{}", stderr(&output));
}
