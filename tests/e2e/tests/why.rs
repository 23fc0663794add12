//! `gpupv why` of a running daemon with real clients, and of traces.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Output, Stdio};

use d3dkmt::{WaitOutcome, calls};
use e2e::embedded::Running;
use e2e::polling::until;
use e2e::programs::{artifacts, c_program, gpupv, stderr, stdout};
use e2e::served::Served;
use e2e::wire::Client;
use gpupv::artifacts::guest_command;
use serde_json::Value;

fn why(served: &Served, arguments: &[&str]) -> Output {
    let mut command = gpupv(&["why", "--directory"]);
    command.arg(served.directory()).args(arguments).stdin(Stdio::null());
    command.output().expect("gpupv starts")
}

fn of_trace(trace: &Path, arguments: &[&str]) -> Output {
    gpupv(&["why"]).arg(trace).args(arguments).stdin(Stdio::null()).output().expect("gpupv starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_str(stdout(output)).unwrap_or_else(|error| panic!("{error}: {}", stdout(output)))
}

/// A daemon without timeout detection.
fn without_timeouts(folder: &Path, arguments: &[&str]) -> Served {
    let config = folder.join("tdr.toml");
    std::fs::write(&config, "[tdr]\nlevel = 0\n").expect("a file");
    let mut all = vec!["--config", config.to_str().expect("UTF-8")];
    all.extend(arguments);
    Served::start(&all)
}

#[test]
fn why_names_a_c_program_behind_a_hang_live_and_from_a_killed_daemons_trace() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("hang.gvt");
    let mut served = without_timeouts(folder.path(), &["--record", trace.to_str().expect("UTF-8")]);
    let command = [c_program("hang").into()];
    let mut program = Running::start(guest_command(&command, &served.broker(), artifacts()));
    program.says("submitted a command that hangs; now waiting for 7");
    until("the wait is registered", || served.inspect().waits.len() == 1);
    let output = why(&served, &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let live = json(&output);
    let cause = &live["causes"][0];
    assert_eq!((&cause["verdict"], &live["causes"].as_array().expect("a list").len()), (&"hang".into(), &1));
    assert_eq!((&cause["root"]["current"], &cause["root"]["needed"]), (&6.into(), &7.into()));
    assert_eq!((&cause["released_by"]["value"], &cause["released_by"]["tried"]), (&7.into(), &true.into()));
    let text = why(&served, &["--process", "hang"]);
    assert!(stdout(&text).contains("HANG: engine 0.0 runs a packet that does not end"), "{}", stdout(&text));
    assert!(stdout(&text).contains("\"hang\" (host) waits on its CPU"), "{}", stdout(&text));
    let svg = folder.path().join("why.svg");
    assert_eq!(why(&served, &["--svg", svg.to_str().expect("UTF-8")]).status.code(), Some(1));
    assert!(std::fs::read_to_string(&svg).expect("the picture").contains("hangs in submission 1"));

    served.child.kill().expect("the child process can be killed");
    served.child.wait().expect("the child process can be waited for");
    drop(program);
    let output = of_trace(&trace, &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("what follows is not known"), "{}", stderr(&output));
    assert!(stderr(&output).contains("at the end of the trace, after step #"), "{}", stderr(&output));
    let recorded = json(&output);
    assert_eq!(recorded["causes"][0]["root"], live["causes"][0]["root"], "the same fence and value");
    assert_eq!(recorded["causes"][0]["chain"], live["causes"][0]["chain"]);
    let output = of_trace(&trace, &["--process", "p1", "--wait", "99"]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains("hang.gvt: p1 has no wait 99: there is "), "{}", stderr(&output));
    // Nothing waits before the first submission. Without its open block, the copied trace shows the blocks in the file.
    let early = of_trace(&trace, &["--at", "1"]);
    assert_eq!((early.status.code(), stdout(&early).trim_end()), (Some(0), "nothing waits"));
    assert!(stderr(&early).contains("after step #1 of the trace"), "{}", stderr(&early));
    let alone = folder.path().join("alone.gvt");
    std::fs::copy(&trace, &alone).expect("a file");
    let output = of_trace(&alone, &[]);
    assert!(output.status.code().is_some_and(|code| code < 2), "{}", stderr(&output));
    assert!(stderr(&output).contains("what follows is not known: "), "{}", stderr(&output));
}

#[test]
fn a_dead_signaler_is_named_and_progress_is_no_failure() {
    let served = Served::start(&[]);
    let mut waiter = Client::new(&served.broker());
    let device = waiter.open_device();
    let without_waits = why(&served, &[]);
    assert_eq!((without_waits.status.code(), stdout(&without_waits).trim_end()), (Some(0), "nothing waits"));
    waiter.grow(1);
    let fence = waiter.create_shared_fence(device);
    let (token, _descriptor) = waiter.make_nt_handle().expect("an NT handle");
    assert!(waiter.call(&calls::share(fence, token, None)).0.is_success());
    let mut helper = Client::new(&served.broker());
    let helper_device = helper.open_device();
    helper.grow(1);
    assert!(helper.call(&calls::open(helper_device, token)).0.is_success());
    assert_eq!(waiter.wait(device, fence, 3, 9), Some(WaitOutcome::Registered));
    let output = why(&served, &["--json", "--wait", "9"]);
    assert_eq!(output.status.code(), Some(0), "the other process may still signal: {}", stdout(&output));
    assert_eq!(json(&output)["causes"][0]["about"]["process"], helper.process);
    let helpers = helper.process;
    drop(helper);
    until("the other process has ended", || served.inspect().processes.len() == 1);
    let output = why(&served, &["--json", "--wait", "9"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let cause = json(&output)["causes"][0].clone();
    assert_eq!(
        (&cause["verdict"], &cause["gone"][0]["process"]["process"]),
        (&"dead-end".into(), &helpers.into())
    );
    assert_eq!((&cause["root"]["needed"], &cause["released_by"]["value"]), (&3.into(), &3.into()));
    let process = waiter.process;
    for (more, says) in [
        (&["--wait", "10"][..], format!("no process has a wait 10: there is 9 of p{process}")),
        (
            &["--wait", "10", "--process", &format!("p{process}")],
            format!("p{process} has no wait 10: there is 9"),
        ),
    ] {
        let output = why(&served, more);
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert!(stderr(&output).contains(&says), "{}", stderr(&output));
    }
}

#[test]
fn each_old_wait_is_printed_once() {
    let served = Served::start(&[]);
    let mut client = Client::new(&served.broker());
    let device = client.open_device();
    let fence = client.create_fence(device, 0);
    assert_eq!(client.wait(device, fence.object, 1, 5), Some(WaitOutcome::Registered));
    let mut watching = gpupv(&["why", "--watch", "50ms", "--directory"]);
    watching.arg(served.directory()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watching = watching.spawn().expect("gpupv starts");
    let mut lines = BufReader::new(watching.stdout.take().expect("a pipe")).lines();
    let mut next = |expected: &str| {
        let line =
            lines.by_ref().map(|line| line.expect("text")).find(|line| line.contains(" waits on its CPU"));
        let line = line.expect("the watch continues");
        assert!(line.contains(expected), "{line}");
    };
    next("event 5,");
    // The first wait is not printed again: the next one is the other wait, with another cause.
    let other = client.create_fence(device, 0);
    assert_eq!(client.wait(device, other.object, 2, 6), Some(WaitOutcome::Registered));
    next("event 6,");
    watching.kill().expect("the child process can be killed");
    watching.wait().expect("the child process can be waited for");
}

#[test]
fn an_impossible_query_is_refused_with_advice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    std::fs::write(path("words.txt"), "these are words\n").expect("a file");
    let served = Served::start(&[]);
    let directory = served.directory().to_str().expect("UTF-8");
    for (arguments, expected) in [
        (vec!["why", "--directory", &path("nowhere")], "start one with `gpupv serve`"),
        (vec!["why", &path("missing.gvt")], "missing.gvt"),
        (vec!["why", &path("words.txt")], "is not a trace"),
        (vec!["why", "--at", "3"], "<TRACE>"),
        (vec!["why", &path("words.txt"), "--at", "soon"], "neither the number of a step"),
        (vec!["why", "--watch", "5 parsecs"], "a number and a unit"),
        (vec!["why", "--directory", directory, "--process", "nobody"], "attached: there are none"),
        (vec!["why", "--directory", directory, "--svg", "/no/such/folder/x.svg"], "in a folder that exists"),
    ] {
        let output = gpupv(&arguments).stdin(Stdio::null()).output().expect("gpupv starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}
