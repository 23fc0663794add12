//! Recorded runs replay identical; a damaged trace is reported with its position.

use std::path::{Path, PathBuf};
use std::process::Output;

use e2e::embedded::{Embedded, Running, lock_exclusive};
use e2e::polling::until;
use e2e::programs::{ROWS, artifacts, c_program, gpupv};
use e2e::served::Served;
use gpupv::artifacts::guest_command;
use gpupv::daemon::Options;
use serde_json::Value;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("gpupv prints text")
}

fn replay(trace: &Path) -> Output {
    gpupv(&["replay"]).arg(trace).output().expect("gpupv starts")
}

/// Records programs, one after the other, into a complete trace.
fn record(trace: &Path, programs: &[(&str, &[&str])]) {
    let daemon = Embedded::start_with(Options { record: Some(trace.into()), ..Options::default() });
    for (program, arguments) in programs {
        let output = daemon.run(program, arguments);
        assert!(output.status.success(), "{program}: {}", text(&output.stdout));
        daemon.wait_until_forgotten();
    }
    daemon.stop();
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[test]
fn a_recorded_run_replays_identical() {
    let folder = Folder::new();
    let trace = folder.file("run.gvt");
    let mut programs: Vec<(&str, &[&str])> =
        vec![("fence_tour", &[]), ("states", &["leaves"]), ("threads", &[])];
    programs.extend(ROWS.map(|program| (program, &[] as &[&str])));
    record(&trace, &programs);
    let output = replay(&trace);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).starts_with("identical: "), "{}", text(&output.stdout));
    assert!(!text(&output.stdout).contains("not ended"), "{}", text(&output.stdout));

    let output = gpupv(&["replay", "--json"]).arg(&trace).output().expect("gpupv starts");
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(verdict["verdict"], "identical");
    assert_eq!(verdict["ended"], true);
    assert!(verdict["steps"].as_u64().expect("a number") > 10_000, "waits are recorded: {verdict}");
}

#[test]
fn the_command_line_records_and_replays() {
    let folder = Folder::new();
    let trace = folder.file("run.gvt");
    let output = gpupv(&["run", "--record"]).arg(&trace).arg(c_program("fence_tour")).output();
    let output = output.expect("gpupv starts");
    assert_eq!(text(&output.stdout), include_str!("golden/fence_tour.txt"));
    assert_eq!(replay(&trace).status.code(), Some(0));
}

/// Each faulty submission of the tour: the report, and its command.
#[test]
fn a_recorded_command_list_is_explained() {
    let folder = Folder::new();
    let trace = folder.file("run.gvt");
    record(&trace, &[("lists_tour", &[])]);
    let output = gpupv(&["explain", "--wrong", "--json"]).arg(&trace).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let explained: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let submissions = explained["submissions"].as_array().expect("a list");
    let races: Vec<_> =
        submissions.iter().filter(|submission| submission["races"] != serde_json::json!([])).collect();
    let resources: Vec<_> =
        races.iter().map(|submission| submission["races"][0]["resource"].as_str().unwrap_or("")).collect();
    assert_eq!(resources, ["filled", "copied", "added", "copied again", "xored"]);
    for submission in races {
        let (race, message) = (&submission["races"][0], &submission["messages"][0]);
        let packet = race["packet"].as_u64().expect("a packet") as usize;
        // The race and the message name one command.
        assert_eq!(submission["packets"][packet]["command"], message["command"], "{submission}");
        assert!(race["missing"].as_str().expect("words").contains("a barrier between them"), "{race}");
        assert_eq!(message["rule"], "R-091", "{message}");
    }
    let output = gpupv(&["explain", "--wrong"]).arg(&trace).output().expect("gpupv starts");
    let printed = text(&output.stdout);
    assert!(printed.contains("missing between them: barrier filled COMPUTE_SHADING -> COPY"), "{printed}");
    for process in ["lists_tour", "p1", "1"] {
        let mut command = gpupv(&["explain", "--wrong", "--process", process]);
        assert_eq!(text(&command.arg(&trace).output().expect("gpupv starts").stdout), printed, "{process}");
    }
    let output = gpupv(&["explain", "--process", "nobody"]).arg(&trace).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let says = "no process \"nobody\" is in the trace: there are p1 \"lists_tour\"";
    assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
}

#[test]
fn a_flipped_byte_is_named_by_block_and_offset() {
    const POSITIONS: usize = 64;
    let folder = Folder::new();
    let (trace, damaged) = (folder.file("run.gvt"), folder.file("damaged.gvt"));
    record(&trace, &[("fence_tour", &[]), ("states", &["leaves"])]);
    let bytes = std::fs::read(&trace).expect("the trace is there");
    assert!(bytes.len() > POSITIONS * 8);
    for position in 0..POSITIONS {
        // The first and the last byte as well.
        let at = position * (bytes.len() - 1) / (POSITIONS - 1);
        let mut copy = bytes.clone();
        copy[at] ^= 1 << (position % 8);
        std::fs::write(&damaged, copy).expect("the folder is writable");
        let output = replay(&damaged);
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "byte {at}: {printed}{}", text(&output.stderr));
        let block = printed.split("block ").nth(1).and_then(|rest| rest.split(' ').next());
        assert!(block.is_some_and(|number| number.parse::<u32>().is_ok()), "byte {at}: {printed}");
        let offset = printed.split(" at byte ").nth(1).and_then(|rest| rest.split(' ').next());
        let offset: usize = offset.and_then(|number| number.parse().ok()).expect("a byte offset");
        assert!(offset <= at, "byte {at} is before the reported damage: {printed}");
    }
}

#[test]
fn a_truncated_trace_reports_block_and_offset() {
    let folder = Folder::new();
    let (trace, cut) = (folder.file("run.gvt"), folder.file("cut.gvt"));
    record(&trace, &[("fence_tour", &[])]);
    let bytes = std::fs::read(&trace).expect("the trace is there");
    for length in [1, 20, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&cut, &bytes[..length]).expect("the folder is writable");
        let output = replay(&cut);
        let printed = text(&output.stdout);
        // A cut between two blocks is what a killed daemon leaves: no damage, but no end.
        if output.status.code() == Some(0) {
            assert!(printed.contains("not ended"), "{length}: {printed}");
        } else {
            assert_eq!(output.status.code(), Some(1), "{length}: {printed}{}", text(&output.stderr));
            assert!(printed.contains("block ") && printed.contains(" at byte "), "{length}: {printed}");
        }
    }
}

#[test]
fn a_file_that_is_no_trace_is_a_usage_error() {
    let folder = Folder::new();
    let text_file = folder.file("notes.gvt");
    std::fs::write(&text_file, "These are my notes, and they are longer than a header.").expect("writable");
    let empty = folder.file("empty.gvt");
    std::fs::write(&empty, "").expect("writable");
    for (path, expected) in [
        (text_file.clone(), "is not a trace"),
        (empty, "is not a trace"),
        (folder.file("gone.gvt"), "gone.gvt"),
    ] {
        let output = replay(&path);
        assert_eq!(output.status.code(), Some(2), "{}", path.display());
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
    // Recording does not overwrite it.
    let output = gpupv(&["run", "--record"]).arg(&text_file).arg(c_program("fence_tour")).output();
    let output = output.expect("gpupv starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("exists: name another file"), "{}", text(&output.stderr));
    assert!(std::fs::read(&text_file).expect("there").starts_with(b"These are my notes"));
}

#[test]
fn the_trace_of_a_killed_daemon_replays_to_its_end_as_not_ended() {
    let _alone = lock_exclusive();
    let folder = Folder::new();
    let trace = folder.file("killed.gvt");
    let mut served = Served::start(&["--record", trace.to_str().expect("UTF-8")]);
    let command = [c_program("states").into(), "calls".into()];
    let mut callers = Running::start(guest_command(&command, &served.broker(), artifacts()));
    callers.says("ready");
    until("the clients make calls", || {
        served.inspect().counters.is_some_and(|counters| counters.frames_received > 2000)
    });
    served.child.kill().expect("the child process can be killed");
    served.child.wait().expect("the child process can be waited for");
    drop(callers);
    let output = gpupv(&["replay", "--json"]).arg(&trace).output().expect("gpupv starts");
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let printed = verdict["report"].as_str().expect("words");
    assert_eq!(verdict["ended"], false, "{printed}");
    assert!(verdict["steps"].as_u64().expect("a number") > 1000, "{printed}");
    // Nothing of it is lost: see recording.rs.
    assert_eq!(verdict["verdict"], "identical", "{printed}");
    assert!(printed.contains("not ended") && output.status.code() == Some(0), "{printed}");
}
