//! Live replay of recordings, and of single VMs' parts, at a running daemon.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use e2e::embedded::{Embedded, Running};
use e2e::polling::eventually;
use e2e::programs::{gpupv, stderr, stdout, tree};
use gpupv::daemon::Options;
use serde_json::Value;
use trace::Reader;

/// A recording of three VMs that take turns by fences shared by name.
fn three_vms() -> PathBuf {
    tree().join("tests/traces/three_vms.gvt")
}

fn at(trace: &Path, broker: &Path, more: &[&str]) -> Command {
    let mut command = gpupv(&["replay"]);
    command.arg(trace).arg("--at").arg(broker).args(more).stdin(Stdio::null());
    command
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

/// A daemon configured like a trace's, with local VMs.
fn like(trace: &Path, vms: &[&str]) -> Embedded {
    let kernel = Reader::open(trace).expect("a trace").header().config.clone();
    let local_vms = vms.iter().map(|vm| (*vm).to_owned()).collect();
    Embedded::start_with(Options { kernel, local_vms, ..Options::default() })
}

fn broker_of(daemon: &Embedded, vm: &str) -> PathBuf {
    daemon.daemon().local_vm(vm).expect("the local VM exists").1
}

#[test]
fn recorded_programs_give_the_same_results_at_another_daemon() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("run.gvt");
    let daemon = Embedded::start_with(Options { record: Some(trace.clone()), ..Options::default() });
    for (program, arguments) in
        [("fence_tour", &[] as &[&str]), ("rows_sharing", &[]), ("rows_cpu", &[]), ("threads", &[])]
    {
        let output = daemon.run(program, arguments);
        assert!(output.status.success(), "{program}: {}", stdout(&output));
        daemon.wait_until_forgotten();
    }
    daemon.stop();
    let daemon = Embedded::start();
    let played = at(&trace, &daemon.broker(), &["--json"]).output().expect("gpupv starts");
    let reply = json(&played);
    assert_eq!(reply["verdict"], "as recorded", "{reply:#}");
    assert_eq!((played.status.code(), &reply["processes"]), (Some(0), &Value::from(4)), "{reply:#}");
    assert!(reply["calls"].as_u64().unwrap() > 1_000 && reply["wakes"].as_u64().unwrap() > 100, "{reply:#}");
    let left_out = reply["left_out"].as_object().expect("reasons");
    assert!(left_out.keys().all(|why| why == "the library cancels waits by itself"), "{reply:#}");
    daemon.wait_until_forgotten();
    daemon.stop();
}

#[test]
fn a_damaged_recording_is_replayed_up_to_the_damage_and_reported_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cut = folder.path().join("cut.gvt");
    let bytes = std::fs::read(three_vms()).expect("a trace");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).expect("a file");
    let daemon = Embedded::start();
    let played = at(&cut, &daemon.broker(), &[]).output().expect("gpupv starts");
    assert_eq!(played.status.code(), Some(1), "{}", stdout(&played));
    assert_eq!(stderr(&played).matches("only the steps before the damage").count(), 1, "{}", stderr(&played));
    assert!(stdout(&played).starts_with("as recorded, up to the damage"), "{}", stdout(&played));
    daemon.stop();
}

/// Each VM's part is replayed by its own process; they interact only through the daemon.
#[test]
fn partial_replays_of_three_vms_share_one_live_daemon() {
    let trace = three_vms();
    let daemon = like(&trace, &["A", "B", "M"]);
    let part = |vm: &str| at(&trace, &broker_of(&daemon, vm), &["--vm", vm]);
    let first = Running::start({
        let mut command = part("A");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    });
    eventually("A shares its fences and waits", || {
        let state = daemon.kernel_host().views().snapshot();
        if state.shares == 2 && state.waits.len() == 1 { Ok(()) } else { Err(format!("{state:?}")) }
    });
    let second = std::thread::spawn({
        let mut command = part("B");
        move || command.output().expect("gpupv starts")
    });
    let third = part("M").output().expect("gpupv starts");
    let second = second.join().expect("it comes to an end");
    for (vm, output) in [("B", &second), ("M", &third)] {
        assert_eq!(output.status.code(), Some(0), "{vm}: {}{}", stdout(output), stderr(output));
        assert!(stdout(output).starts_with("as recorded: "), "{vm}: {}", stdout(output));
    }
    let (status, printed) = first.outcome(b"");
    assert!(status.success() && printed.starts_with("as recorded: "), "A: {printed}");
    daemon.wait_until_forgotten();
    daemon.stop();
}

#[test]
fn different_results_are_reported() {
    let trace = three_vms();
    let daemon = like(&trace, &["A", "B", "M"]);
    // Nothing has been shared yet.
    let output = at(&trace, &broker_of(&daemon, "M"), &["--vm", "M"]).output().expect("gpupv starts");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let printed = stdout(&output);
    assert!(printed.starts_with("2 differences: "), "{printed}");
    let different = "p3 OpenNtHandleFromName: was STATUS_SUCCESS, is STATUS_OBJECT_NAME_NOT_FOUND\n";
    assert!(printed.contains(different), "{printed}");
    assert!(printed.contains(": it opens an NT handle of a process that is not replayed\n"), "{printed}");
    assert!(printed.contains(": it names a handle that the replay did not create\n"), "{printed}");
    daemon.wait_until_forgotten();
    daemon.stop();
}

#[test]
fn an_impossible_live_replay_is_refused() {
    let trace = three_vms();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing_broker = folder.path().join("nobody");
    let refused = |command: &mut Command| {
        let output = command.output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        stderr(&output).to_owned()
    };
    let printed = refused(&mut at(&trace, &missing_broker, &["--vm", "C"]));
    assert!(printed.contains("no VM \"C\" is in the recording: there are A, B, M, host"), "{printed}");
    let printed = refused(&mut at(&trace, &missing_broker, &[]));
    assert!(printed.contains("no broker at") && printed.contains("nobody"), "{printed}");
    let printed = refused(&mut at(&trace, &missing_broker, &["--until", "seq=3"]));
    assert!(printed.contains("--until"), "{printed}");
}
