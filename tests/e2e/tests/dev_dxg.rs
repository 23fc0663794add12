//! `/dev/dxg` in local client processes: the programs of `tests/c` as clients of its ioctls, and what only such clients
//! see. `tests/vm` runs some of them in guests.

use std::process::{Output, Stdio};

use covers::covers;
use e2e::embedded::{Embedded, lock_exclusive};
use e2e::polling::until;
use e2e::programs::{c_program, gpupv, stdout};
use gpupv::artifacts::DXG_DEFECTS_ENV;
use gpupv::daemon::Options;

/// Programs whose output is the same through `/dev/dxg`.
const SAME_OUTPUT: [&str; 7] =
    ["fence_tour", "fork_tour", "lists_tour", "pending", "rows_cpu", "cpu_event_rocr", "opened_under_paging"];
/// Programs that pass NULL, which is EFAULT, but was EINVAL with older drivers.
const SAME_OUTPUT_WITH_EINVAL: [&str; 3] = ["rows_memory", "cpu_event_l0", "big_escapes"];

fn run(daemon: &Embedded, program: &str) -> String {
    let output = daemon.run(program, &[]);
    assert!(output.status.success(), "{program}: {}\n{}", output.status, stdout(&output));
    stdout(&output).to_owned()
}

#[test]
fn programs_print_the_same_through_ioctls() {
    covers!("GPV-051");
    let daemon = Embedded::start();
    for program in SAME_OUTPUT {
        let through_ioctls = run(&daemon, &format!("{program}-dxg"));
        assert_eq!(through_ioctls, run(&daemon, program), "{program}");
    }
    for program in SAME_OUTPUT_WITH_EINVAL {
        let mut command = daemon.command(&format!("{program}-dxg"), &[]);
        command.env(DXG_DEFECTS_ENV, "einval-for-efault");
        let output = command.stdin(Stdio::null()).output().expect("a compiled program starts");
        assert_eq!(stdout(&output), run(&daemon, program), "{program}");
    }
    daemon.end();
    let mut options = Options::default();
    options.kernel.adapters[0].iommu = true;
    let daemon = Embedded::start_with(options);
    assert_eq!(run(&daemon, "iommu-dxg"), run(&daemon, "iommu"));
    daemon.end();
}

#[test]
fn descriptors_statuses_and_signals_are_those_of_the_device() {
    let daemon = Embedded::start();
    assert!(run(&daemon, "dxg_ioctls").ends_with("dxg_ioctls: all as expected\n"));
    daemon.end();
}

#[test]
fn the_host_waits_on_after_an_interrupted_wait() {
    let daemon = Embedded::start();
    let mut child = daemon.spawn("dxg_ioctls", &["interrupted"]);
    child.says("interrupted");
    assert_eq!(daemon.inspection().waits.len(), 1);
    child.write_input(b"x");
    child.says("signaled");
    assert_eq!(daemon.inspection().waits.len(), 0);
    child.write_input(b"x");
    child.end();
    daemon.end();
}

#[test]
fn a_program_that_destroys_nothing_leaves_nothing() {
    let daemon = Embedded::start();
    let output = daemon.run("states-dxg", &["leaves"]);
    assert!(output.status.success(), "{}", stdout(&output));
    daemon.wait_until_empty();
    let mut child = daemon.spawn("states-dxg", &["blocked"]);
    child.says("ready");
    until("the program waits", || !daemon.inspection().waits.is_empty());
    child.kill();
    daemon.end();
}

#[test]
fn a_program_opens_the_device_many_times() {
    let daemon = Embedded::start();
    let mut command = daemon.command("dxg_ioctls", &["reopens"]);
    let output = command.env("GPUPV_QUIET", "1").stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{}", stdout(&output));
    daemon.end();
}

#[test]
fn the_last_close_of_the_device_ends_the_process_at_the_host() {
    covers!("GPV-050");
    let daemon = Embedded::start();
    let mut child = daemon.spawn("dxg_ioctls", &["closes"]);
    child.says("a copy is open");
    assert_eq!(daemon.inspection().processes.len(), 1);
    child.write_input(b"x");
    child.says("closed");
    daemon.wait_until_forgotten();
    child.write_input(b"x");
    child.says("opened again");
    assert_eq!(daemon.inspection().processes.len(), 1);
    child.write_input(b"x");
    assert_eq!(child.end(), "the last close ends the process object\n");
    daemon.end();
}

/// What `dxg_defects` prints for a defect.
fn outcome(daemon: &Embedded, defect: &str, switched_on: Option<&str>) -> String {
    let name = defect.split('=').next().expect("a name");
    let mut command = daemon.command("dxg_defects", &[name]);
    command.env_remove(DXG_DEFECTS_ENV);
    if let Some(words) = switched_on {
        command.env(DXG_DEFECTS_ENV, words);
    }
    let output = command.stdin(Stdio::null()).output().expect("a compiled program starts");
    assert!(output.status.success(), "{defect}: {}", stdout(&output));
    stdout(&output).to_owned()
}

#[test]
fn each_defect_of_the_field_can_be_switched_on() {
    covers!("GPV-052");
    let daemon = Embedded::start();
    let refused = "an escape about no object: 0xc000000d\n";
    let cases = [
        ("escape-status", refused, "an escape about no object: 0000000000\n"),
        (
            "create-status",
            "a fence with a reserved flag: 0xc000000d\nhandle 0x1eadbe00\n\
             a monitored fence with a reserved flag: 0xc000000d\nhandle 0x1eadbe00\n\
             a fence of no device: 0xc000000d\nhandle 0x1eadbe00\n",
            "a fence with a reserved flag: 0000000000\nhandle 0\n\
             a monitored fence with a reserved flag: 0xc0000017\nhandle 0\n\
             a fence of no device: 0xc000000d\nhandle 0x1eadbe00\n",
        ),
        (
            "event-id",
            "a CPU notification: 0000000000\nits event is the descriptor: 1\n",
            "a CPU notification: 0000000000\nits event is the descriptor: 0\n",
        ),
        ("einval-for-efault", "a struct at NULL: 0xc0000001\n", "a struct at NULL: 0xc000000d\n"),
        ("wait-seconds=1", "a wait of 1.5 seconds: 0000000000\n", "a wait of 1.5 seconds: 0xc0000001\n"),
        (
            "async-waits=2",
            &"an asynchronous wait: 0000000000\n".repeat(3),
            "an asynchronous wait: 0000000000\nan asynchronous wait: 0000000000\nan asynchronous wait: 0xc000000d\n",
        ),
        (
            "full-ring=2",
            &"a signal of the context: 0000000000\n".repeat(4),
            &"a signal of the context: 0000000000\na signal of the context: 0x00000102\n".repeat(2),
        ),
        ("open-refused", "open: a descriptor\n", "open: Bad file descriptor\n"),
    ];
    for (defect, without, with) in cases {
        assert_eq!(outcome(&daemon, defect, None), without, "without {defect}");
        assert_eq!(outcome(&daemon, defect, Some(defect)), with, "with {defect}");
    }
    let several = outcome(&daemon, "escape-status", Some("event-id, escape-stauts"));
    assert_eq!(several, refused, "a misspelt defect is none");
    daemon.end();
}

#[test]
fn without_a_host_the_device_cannot_be_opened() {
    let daemon = Embedded::start();
    let nowhere = daemon.file("no-broker.sock");
    let mut command = Embedded::command_at(&nowhere, "dxg_defects", &["open-refused"]);
    let output = command.env("GPUPV_QUIET", "1").stdin(Stdio::null()).output().expect("it starts");
    assert_eq!(stdout(&output), "open: Bad file descriptor\n");
    daemon.end();
}

fn gpupv_run(arguments: &[&str], program: &str) -> Output {
    let mut command = gpupv(&["run"]);
    command.args(arguments).arg("--").arg(c_program(program)).stdin(Stdio::null());
    command.output().expect("gpupv starts")
}

#[test]
fn the_switch_of_gpupv_run_gives_a_program_the_device() {
    // Other tests count the files that this process has open.
    let _alone = lock_exclusive();
    let output = gpupv_run(&["--preload-dev-dxg"], "fence_tour-dxg");
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert_eq!(stdout(&output), include_str!("golden/fence_tour.txt"));
    assert_ne!(gpupv_run(&[], "fence_tour-dxg").status.code(), Some(0));
}
