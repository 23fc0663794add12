//! `gpupv scenario`: refusals, output and result files.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use e2e::polling::until;
use e2e::programs::{closed, full, gpupv, scenario, stderr, stdout};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("the path has a parent folder")).expect("writable");
        fs::write(path, text).expect("writable");
    }
    folder
}

const SOUND: &str = "\
scenario \"a value comes to all\"
covers FEN-030 FEN-027
tags quick fences
matrix value = 5 6 7
process p
p  D = device           -> ok
p  F = fence D          -> ok
p  signal D F=$value    -> ok
expect F = $value
";

const FAILING: &str = "\
scenario \"a value goes astray\"
tags broken
process p
p  D = device           -> ok
p  F = fence D          -> ok
p  signal D F=4         -> ok
expect F = 5
";

/// A scenario that counts messages, which the model backend does not have.
const DIVERGING: &str = "\
scenario \"nobody sends ninety messages\"
skip local \"a <reason> & more\"
process p
p  D = device           -> ok
expect messages p = 90
";

fn mixed() -> TempDir {
    folder_with(&[
        ("all/a.scn", SOUND),
        ("all/deep/b.scn", FAILING),
        ("all/c.scn", DIVERGING),
        ("all/no.txt", "?"),
    ])
}

/// Checks that `check` and `run` refuse this file with line, column and reason.
#[track_caller]
fn refused(folder: &Path, file: &str, expected: &[&str]) {
    for command in ["check", "run", "list"] {
        let output = scenario(folder, &[command, file]);
        assert_eq!(output.status.code(), Some(2), "{command} {file}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{command} {file}");
        for expected in expected {
            assert!(
                stderr(&output).contains(expected),
                "{command} {file}: no {expected:?} in {}",
                stderr(&output)
            );
        }
    }
}

#[test]
fn a_bad_file_is_refused_with_line_column_and_reason() {
    let process = "scenario \"bad\"\nprocess p\n";
    for (lines, place, reasons) in [
        (
            "p  D = device -> ok\np  signal D G=1 -> ok\n",
            "bad.scn:4:13: ",
            &["named G here", "4 | p  signal D G=1", "^"][..],
        ),
        ("process q in B\n", "bad.scn:3:14: ", &["VM", "B"]),
        ("vm first\nprocess q in frist\n", "bad.scn:4:14: ", &["did you mean `first`?"]),
        ("p  D = device -> ok\np  D = device -> ok\n", "bad.scn:4:4: ", &["D", "line 3"]),
        ("+ 5ms\nat 1ms\n", "bad.scn:4:4: ", &["time does not go back: it is 5ms here"]),
        ("p  singal D F=1 -> ok\n", "bad.scn:3:4: ", &["did you mean `signal`?"]),
    ] {
        let folder = folder_with(&[("bad.scn", &format!("{process}{lines}"))]);
        refused(folder.path(), "bad.scn", &[&[place], reasons].concat());
    }
    let folder = folder_with(&[("bad.scn", "scenario \"bad\"\ncovers FEN-999\n")]);
    refused(folder.path(), "bad.scn", &["bad.scn:2:8: ", "FEN-999", "FEN-147"]);
}

#[test]
fn a_file_that_is_no_scenario_is_refused() {
    let folder = folder_with(&[("empty/no.txt", ""), ("empty/deep/no.scn.old", "")]);
    fs::write(folder.path().join("big.scn"), vec![b'#'; 10 << 20]).expect("writable");
    fs::write(folder.path().join("binary.scn"), b"scenario \"x\"\n\x7fELF\0\0").expect("writable");
    fs::write(folder.path().join("latin.scn"), b"scenario \"\xe4\"\n").expect("writable");
    refused(folder.path(), "big.scn", &["big.scn:1:1: ", "10485760 bytes", "1048576"]);
    refused(folder.path(), "binary.scn", &["binary.scn:2:5: ", "is not text"]);
    refused(folder.path(), "latin.scn", &["latin.scn:1:11: ", "byte 10 is not text"]);
    refused(folder.path(), "missing.scn", &["missing.scn: No such file"]);
    refused(folder.path(), "empty", &["there is no .scn file in empty", "gpupv scenario new"]);
    refused(folder.path(), "/dev/zero", &["/dev/zero is neither a file nor a folder"]);
}

#[test]
fn every_error_is_shown_and_nothing_runs() {
    let folder = folder_with(&[
        ("all/a.scn", SOUND),
        ("all/b.scn", "nonsense\n"),
        ("all/c.scn", "scenario \"x\"\nfoo\n"),
    ]);
    refused(folder.path(), "all", &["all/b.scn:1:1: ", "all/c.scn:2:1: ", "2 errors in 2 files"]);
}

#[test]
fn a_wrong_flag_is_a_usage_error_with_a_suggestion() {
    let folder = mixed();
    for (arguments, expected) in [
        (&["chek", "all"][..], "'check'"),
        (&["run", "all", "--jsn"], "'--json'"),
        (&["run", "all", "--backend", "modle"], "'model'"),
        (&["run", "all", "--jobs", "0"], "--jobs"),
        (&["run"], "<PATH>"),
        (&["run", "all", "--case", "nowhere"], "no case is left"),
        (&["run", "all", "--junit", "/no/such/folder/x.xml"], "cannot write /no/such/folder/x.xml"),
    ] {
        let output = scenario(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_failure_shows_its_line_and_a_divergence_its_backends() {
    let folder = mixed();
    let output = scenario(folder.path(), &["run", "all"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    for wanted in [
        "all/deep/b.scn:7: expected F = 5, found: 4\n",
        "  7 | expect F = 5\n    on model, link\n",
        "\nall/c.scn diverges: passed on model, failed on link\n",
        "\n1 expectation not checked on model: this backend has no messages to count\n    all/c.scn:5\n",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert_eq!(text.lines().last(), Some("7 passed, 3 failed"));
}

#[test]
fn cases_are_chosen_by_name_and_tag() {
    let folder = mixed();
    for (arguments, last) in [
        (&["run", "all", "--tag", "quick"][..], "6 passed, 0 failed"),
        (&["run", "all", "--tag", "quick", "--backend", "model"], "3 passed, 0 failed"),
        (&["run", "all", "--case", "value=6", "--backend", "model,link"], "2 passed, 0 failed"),
        (&["run", "all", "--case", "ninety", "--backend", "model"], "1 passed, 0 failed"),
        (
            &["run", "all", "all/a.scn", "all/a.scn", "--tag", "fences", "--backend", "link"],
            "3 passed, 0 failed",
        ),
        // Skipped on every backend: nothing is set up for it.
        (&["run", "all/c.scn", "--backend", "local"], "0 passed, 0 failed, 1 skipped"),
    ] {
        let output = scenario(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output).lines().last(), Some(last), "{arguments:?}");
    }
}

#[test]
fn fail_fast_stops_at_the_first_failure() {
    let folder = mixed();
    let output = scenario(folder.path(), &["run", "all", "--fail-fast"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.ends_with("\n5 not run, after the first failure\n4 passed, 1 failed\n"), "{text}");
}

#[test]
fn results_are_json_for_programs() {
    let folder = mixed();
    let output = scenario(folder.path(), &["run", "all", "--json", "--json-file", "results.json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_str(stdout(&output)).expect("JSON");
    assert_eq!((&json["passed"], &json["failed"], &json["skipped"]), (&7.into(), &3.into(), &0.into()));
    let results = json["results"].as_array().expect("a list");
    assert_eq!(results.len(), 10);
    let keys = [
        "backend",
        "case",
        "duration_ms",
        "file",
        "line",
        "reason",
        "source",
        "title",
        "unchecked",
        "verdict",
        "what",
    ];
    for result in results {
        let found: Vec<&str> = result.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(found, keys);
    }
    let failed: Vec<&Value> = results.iter().filter(|result| result["verdict"] == "failed").collect();
    let (diverging, failing) = (failed[0], failed[2]);
    assert_eq!((&diverging["file"], &diverging["backend"]), (&"all/c.scn".into(), &"link".into()));
    assert_eq!((&failing["file"], &failing["line"]), (&"all/deep/b.scn".into(), &7.into()));
    let unchecked = results.iter().find(|result| result["file"] == "all/c.scn").expect("it is there");
    assert_eq!(unchecked["unchecked"][0]["line"], 5);
    // The file has the same content.
    let written = fs::read_to_string(folder.path().join("results.json")).expect("the file was written");
    assert_eq!(written, stdout(&output));
}

#[test]
fn junit_reads_back_and_tap_keeps_its_plan() {
    let folder = mixed();
    let output = scenario(folder.path(), &["run", "all", "--junit", "results.xml", "--tap", "results.tap"]);
    assert_eq!(output.status.code(), Some(1));
    let junit = fs::read_to_string(folder.path().join("results.xml")).expect("the file was written");
    assert!(junit.contains(r#"<testsuites name="gpupv scenario" tests="10" failures="3""#), "{junit}");
    assert_eq!(junit.matches("<testcase ").count(), 10);
    let tap = fs::read_to_string(folder.path().join("results.tap")).expect("the file was written");
    let mut lines = tap.lines();
    assert_eq!((lines.next(), lines.next()), (Some("TAP version 14"), Some("1..10")));
    let points: Vec<&str> =
        lines.filter(|line| line.starts_with("ok ") || line.starts_with("not ok ")).collect();
    assert_eq!(points.len(), 10);
    for (number, point) in (1..).zip(&points) {
        assert!(point.contains(&format!("ok {number} - all/")), "{point}");
    }
    assert_eq!(points.iter().filter(|point| point.starts_with("not ")).count(), 3);
}

/// Replaces durations by 0.
fn without_durations(mut json: Value) -> Value {
    for result in json["results"].as_array_mut().expect("a list") {
        result["duration_ms"] = 0.into();
    }
    json
}

#[test]
fn any_number_of_jobs_gives_the_same_bytes() {
    let folder = mixed();
    let run = |jobs: &str| {
        let tap = format!("{jobs}.tap");
        let arguments = ["run", "all", "--jobs", jobs, "--tap", &tap, "--json-file", "results.json"];
        let output = scenario(folder.path(), &arguments);
        let json = fs::read(folder.path().join("results.json")).expect("the file was written");
        let json = without_durations(serde_json::from_slice(&json).expect("JSON")).to_string();
        (output.stdout, json, fs::read(folder.path().join(tap)).expect("the file was written"))
    };
    let one = run("1");
    for jobs in ["2", "4"] {
        assert!(run(jobs) == one, "{jobs} jobs give another output than one job");
    }
}

#[test]
fn scenario_new_writes_a_file_that_passes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = scenario(folder.path(), &["new", "first.scn", "--title", "my first one"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = fs::read_to_string(folder.path().join("first.scn")).expect("the file was written");
    assert!(text.starts_with("scenario \"my first one\"\n"), "{text}");
    let output = scenario(folder.path(), &["check", "first.scn"]);
    assert_eq!(stdout(&output), "1 file, 1 case, no errors\n");
    let output = scenario(folder.path(), &["run", "first.scn"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "2 passed, 0 failed\n"));
    // The command overwrites nothing and leaves no partial file.
    let output = scenario(folder.path(), &["new", "first.scn"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("first.scn exists"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(folder.path().join("first.scn")).expect("it is still there"), text);
    let output = scenario(folder.path(), &["new", "no/such/folder.scn"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot write no/such/folder.scn"), "{}", stderr(&output));
}

#[test]
fn a_closed_stdout_is_no_failure() {
    let folder = mixed();
    let mut command = gpupv(&["scenario", "list", "all"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(closed());
    let output = command.output().expect("gpupv starts");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

/// Waits for the end of a run; fails if it hangs.
#[track_caller]
fn ends(mut command: Command) -> ExitStatus {
    let mut child = command.stdin(Stdio::null()).spawn().expect("gpupv starts");
    if !has_ended(&pidfd(Pid::from_child(&child)), 60) {
        child.kill().expect("the child process can be killed");
        child.wait().expect("it was killed");
        panic!("the command hangs");
    }
    child.wait().expect("it can be waited for")
}

fn pidfd(pid: Pid) -> OwnedFd {
    pidfd_open(pid, PidfdFlags::empty()).expect("the process is there")
}

/// Waits this many seconds for the end of a process.
fn has_ended(process: &OwnedFd, seconds: i64) -> bool {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)).expect("it can be polled") > 0
}

#[test]
fn a_run_does_not_hang_with_its_log_closed_or_full() {
    let folder = folder_with(&[("a.scn", SOUND)]);
    for stderr in [full(), closed()] {
        let mut command = gpupv(&["scenario", "run", "a.scn", "--backend", "local", "-vv"]);
        command.current_dir(folder.path()).stdout(Stdio::null()).stderr(stderr);
        assert_eq!(ends(command).code(), Some(0));
    }
}

#[test]
fn an_error_that_cannot_be_printed_keeps_its_exit_code() {
    let folder = folder_with(&[("bad.scn", "nonsense\n")]);
    for arguments in [["run", "missing.scn"], ["run", "bad.scn"], ["check", "bad.scn"]] {
        for stderr in [full(), closed()] {
            let mut command = gpupv(&["scenario"]);
            command.args(arguments).current_dir(folder.path()).stderr(stderr);
            assert_eq!(ends(command).code(), Some(2), "{arguments:?}");
        }
    }
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let folder = mixed();
    for arguments in [&["run", "all/a.scn"][..], &["run", "all", "--json"], &["list", "all"]] {
        let mut command = gpupv(&["scenario"]);
        command.args(arguments).current_dir(folder.path()).stdin(Stdio::null()).stdout(full());
        let output = command.output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let printed = stderr(&output);
        assert_eq!(printed.matches("gpupv: cannot print: No space left on device").count(), 1, "{printed}");
    }
}

#[test]
fn two_result_formats_in_one_file_are_refused() {
    let folder = folder_with(&[("a.scn", SOUND), ("out", "kept")]);
    for (one, path, other, same) in [
        ("--json-file", "out", "--junit", "out"),
        ("--json-file", "out", "--tap", "./out"),
        ("--junit", ".//out", "--tap", "out"),
    ] {
        let output = scenario(folder.path(), &["run", "a.scn", one, path, other, same]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
        let expected = format!("gpupv: {one} and {other} both write {same}: give each a file of its own\n");
        assert_eq!(stderr(&output), expected);
        assert_eq!(fs::read_to_string(folder.path().join("out")).expect("it is still there"), "kept");
    }
}

/// A cluster starts the shard of status 2 again, on another node. Its report has what the other cases gave.
#[test]
fn a_machine_that_cannot_run_a_case_is_an_error_and_no_failed_verdict() {
    let folder = folder_with(&[("a.scn", SOUND)]);
    let files = ["--junit", "r.xml", "--report", "r.json", "--shard", "0/1"];
    let mut command = gpupv(&["scenario", "run", "a.scn", "--backend", "model,local"]);
    command.args(files).current_dir(folder.path()).stdin(Stdio::null()).env("TMPDIR", "/no/such/folder");
    let output = command.output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(
        stdout(&output)
            .contains("3 could not run on local: cannot make a folder for sockets in /no/such/folder: "),
        "{}",
        stdout(&output)
    );
    assert!(stdout(&output).ends_with("3 passed, 0 failed, 3 could not run\n"), "{}", stdout(&output));
    let junit = fs::read_to_string(folder.path().join("r.xml")).expect("the file was written");
    assert!(junit.contains(r#"tests="6" failures="0" errors="3""#), "{junit}");
    let merged = scenario(folder.path(), &["merge", "r.json", "--junit", "merged.xml"]);
    assert_eq!(merged.status.code(), Some(2), "{}", stdout(&merged));
    assert!(stdout(&merged).ends_with("3 passed, 0 failed, 3 could not run\n"), "{}", stdout(&merged));
    let expected = "gpupv: 1 of 1 shards have cases that could not run: 0. Run each again with --shard K/1, and replace its \
                    report\n";
    assert_eq!(stderr(&merged), expected);
    let junit = fs::read_to_string(folder.path().join("merged.xml")).expect("the file was written");
    assert!(junit.contains(r#"tests="6" failures="0" errors="3""#), "{junit}");
}

/// CI systems, Slurm and Kubernetes end a job by SIGTERM, a person by SIGINT, a lost connection by SIGHUP.
#[test]
fn a_run_that_a_signal_ends_leaves_no_folder_and_no_results() {
    let many = (0..500).map(|value| format!(" {}", value + 1)).collect::<String>();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let folder = folder_with(&[("a.scn", &SOUND.replace(" 5 6 7", &many)), ("tmp/kept", "")]);
        let files = ["--junit", "r.xml", "--tap", "r.tap", "--json-file", "r.json", "--report", "report"];
        let mut command = gpupv(&["scenario", "run", "a.scn", "--backend", "local", "--jobs", "2"]);
        command.args(files).current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("TMPDIR", folder.path().join("tmp"));
        let mut runner = command.spawn().expect("gpupv starts");
        let names = |of: &str| -> Vec<_> {
            let entries = fs::read_dir(folder.path().join(of)).expect("readable").flatten();
            entries.map(|entry| entry.file_name()).collect()
        };
        until("a case runs", || names("tmp").len() > 1);
        kill_process(Pid::from_child(&runner), signal).expect("the process can be signaled");
        // By the signal itself: a shell ends its loop at Ctrl-C only then.
        let status = runner.wait().expect("the child process can be waited for");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
        assert_eq!(names("tmp"), ["kept"], "{signal:?}");
        let mut left = names(".");
        left.sort();
        assert_eq!(left, ["a.scn", "tmp"], "{signal:?}");
    }
}

/// A scenario client of this runner with a second thread, so that it has begun to work.
fn working_scenario_client(runner: u32) -> Option<Pid> {
    let tasks = fs::read_dir(format!("/proc/{runner}/task")).ok()?;
    let children = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let works = |pid: &i32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        comm == "scenario-client\n" && threads > 1
    };
    let pids: Vec<i32> =
        children.flat_map(|text| text.split(' ').flat_map(str::parse).collect::<Vec<_>>()).collect();
    pids.into_iter().find(works).and_then(Pid::from_raw)
}

#[test]
fn a_stopped_scenario_client_does_not_outlive_a_killed_runner() {
    let many = (0..500).map(|value| format!(" {}", value + 1)).collect::<String>();
    let folder = folder_with(&[("a.scn", &SOUND.replace(" 5 6 7", &many))]);
    let mut command = gpupv(&["scenario", "run", "a.scn", "--backend", "local", "--jobs", "1"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut runner = command.spawn().expect("gpupv starts");
    let scenario_client = loop {
        if let Some(scenario_client) = working_scenario_client(runner.id())
            && kill_process(scenario_client, Signal::STOP).is_ok()
        {
            break scenario_client;
        }
        assert!(runner.try_wait().expect("it can be waited for").is_none(), "no scenario client was seen");
    };
    let end = pidfd(scenario_client);
    runner.kill().expect("the child process can be killed");
    runner.wait().expect("it was killed");
    if !has_ended(&end, 10) {
        kill_process(scenario_client, Signal::KILL).expect("the process can be signaled");
        panic!("the stopped scenario client outlived its runner");
    }
}

#[test]
fn scenario_list_shows_titles_tags_covers_and_skips() {
    let folder = mixed();
    let output = scenario(folder.path(), &["list", "all"]);
    let expected = "\
all/a.scn (3 cases): a value comes to all
    tags fences quick
    covers FEN-027 FEN-030
all/c.scn: nobody sends ninety messages
    not on local: a <reason> & more
all/deep/b.scn: a value goes astray
    tags broken
3 files, 5 cases
";
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), expected));
    let output = scenario(folder.path(), &["list", "all", "--json"]);
    let json: Value = serde_json::from_str(stdout(&output)).expect("JSON");
    assert_eq!(json["files"][0]["cases"], serde_json::json!(["value=5", "value=6", "value=7"]));
    assert_eq!(json["files"][1]["skips"][0]["backend"], "local");
}

#[test]
fn results_replace_those_of_an_earlier_run_and_no_other_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, out) = ("scenario \"x\"\nprocess p\n", folder.path().join("out"));
    fs::write(folder.path().join("x.scn"), text).expect("writable");
    for option in ["--json-file", "--junit", "--tap", "--report"] {
        let run = || scenario(folder.path(), &["run", "x.scn", "--backend", "model", option, "out"]);
        for _ in 0..2 {
            let output = run();
            assert_eq!(output.status.code(), Some(0), "{option}: {}", stderr(&output));
        }
        fs::write(&out, "notes").expect("writable");
        let output = run();
        assert_eq!(output.status.code(), Some(2), "{option}: {}", stdout(&output));
        let says = format!("of an earlier run: name another file with {option}, or remove it");
        assert!(stderr(&output).contains(&says), "{option}: {}", stderr(&output));
        assert_eq!(fs::read(&out).expect("still there"), b"notes", "{option}");
        fs::remove_file(&out).expect("it is there");
    }
    let report = ["run", "x.scn", "--backend", "model", "--report", "out"];
    assert_eq!(scenario(folder.path(), &report).status.code(), Some(0));
    let before = fs::read(&out).expect("the report");
    let output = scenario(folder.path(), &["merge", "out", "--report", "out"]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("out is the file that is read"), "{}", stderr(&output));
    assert_eq!(fs::read(&out).expect("still there"), before);
}

#[test]
fn a_driver_that_is_not_there_is_named_before_any_case_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (adapter, kmd, says) in [
        (0, "typo", "there is no driver named \"typo\"; there are simulated"),
        (1, "typo", "there is no driver named \"typo\"; there are simulated"),
        (0, "\"./nosuch.so\"", "the driver ./nosuch.so is not loaded"),
        (1, "\"./nosuch.so\"", "the driver ./nosuch.so is not loaded"),
    ] {
        let text =
            format!("scenario \"x\"\nconfig adapters = 2\nconfig adapter {adapter} kmd={kmd}\nprocess p\n");
        fs::write(folder.path().join("x.scn"), text).expect("writable");
        for words in [&["check", "x.scn"][..], &["run", "x.scn"], &["explore", "x.scn", "--seeds", "0..2"]] {
            let output = scenario(folder.path(), words);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stdout(&output));
            let says = format!("x.scn: adapter {adapter}: {says}");
            assert!(stderr(&output).contains(&says), "{words:?}: {}", stderr(&output));
        }
    }
}

/// Such a step makes no call, so its status is nobody's answer.
#[test]
fn a_step_that_no_function_of_c_can_make_fails_on_local_whatever_it_expects() {
    let text = "scenario \"doorbells\"\nprocess p\np  D = device -> ok\n\
                p  C = context D 3D HW_QUEUE_SUPPORTED -> ok\n\
                p  Q = hw_queue C USER_MODE_SUBMISSION NATIVE_PROGRESS_FENCE -> ok\n\
                p  B = doorbell Q -> NOT_SUPPORTED\n";
    let folder = folder_with(&[("a.scn", text)]);
    let mut command = gpupv(&["scenario", "run", "a.scn", "--backend", "local"]);
    let output = command.current_dir(folder.path()).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let says = "a.scn:6: the local backend cannot make this call through the C ABI: add `skip local \"..\"`";
    assert!(stdout(&output).contains(says), "{}", stdout(&output));
}
