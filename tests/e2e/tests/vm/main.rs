//! Real guests in QEMU: programs behave as local ones do, and killed programs and guests leave nothing.
//!
//! Booting takes seconds, so all cases share one boot of two guests, in order; the last cases kill guests.

mod cases;
mod lab;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Stdio;

use e2e::console::failures;
use e2e::embedded::{Embedded, lock_exclusive};
use e2e::guests::guests_can_run;
use e2e::pages::Page;
use e2e::programs::{c_program, gpupv};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use lab::Lab;

/// Programs whose output must be the same on both backends.
const SAME_OUTPUT: [&str; 35] = [
    "fence_tour",
    "fork_tour",
    "threads",
    "many_processes",
    "rows_adapters",
    "rows_create",
    "rows_cpu",
    "rows_sharing",
    "rows_keyed_mutex",
    "rows_allocation",
    "rows_memory",
    "memory_tour",
    "forked_heap",
    "lists_tour",
    "private_data",
    "device_memory",
    "shared_device_memory",
    "bad_args",
    "abi_check",
    "loader",
    "offers",
    "wait_for_idle",
    "sync_files",
    "dxcore",
    "sealed",
    "pending",
    "cpu_event_l0",
    "cpu_event_rocr",
    "cpu_event_channel",
    "big_escapes",
    "opened_under_paging",
    // Through /dev/dxg.
    "fence_tour-dxg",
    "fork_tour-dxg",
    "lists_tour-dxg",
    "dxg_ioctls",
];

type Case = fn(&mut Lab);

#[test]
fn two_guests() {
    if !guests_can_run() {
        return;
    }
    let local = local_outputs();
    let mut lab = Lab::boot(
        &[
            &SAME_OUTPUT[..],
            &[
                "states",
                "kill_named",
                "intruder",
                "cpu_event_kill",
                "restricted",
                "root_folder",
                "unbound_device",
            ],
        ]
        .concat(),
    );
    let mut failed = Vec::new();
    let mut check = |name: &str, lab: &mut Lab, case: &dyn Fn(&mut Lab)| {
        let began = std::time::Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| case(lab)));
        println!("case {name}: {} in {:.1?}", if ended.is_ok() { "ok" } else { "FAILED" }, began.elapsed());
        if ended.is_err() {
            failed.push(name.to_owned());
        }
    };
    check("the output is the same on both backends", &mut lab, &|lab| cases::same_output(lab, &local));
    let cases: [(&str, Case); 16] = [
        ("a guest is notified of its own adapter only", cases::adapter_removed_and_added),
        ("a program that destroys nothing leaves nothing", cases::leaves_everything),
        ("a program killed in any state leaves nothing", cases::killed_in_any_state),
        ("a program killed while it calls leaves nothing", cases::killed_while_calling),
        (
            "a stopped QEMU delays no other guest, and its programs continue with it",
            cases::stopped_while_calling,
        ),
        ("a program killed at any point of an event's life leaves nothing", cases::killed_with_an_event),
        ("a driver's event is set by the guest's kernel", cases::woken_by_the_kernel),
        ("a stopped guestd delays no other signals", cases::without_the_broker),
        (
            "events beyond the limit of event channels are set by the stream",
            cases::more_events_than_event_channels,
        ),
        ("a wait for a reached value sends no message", cases::satisfied_waits),
        ("the broker is restricted, programs of the agent are not", cases::restricted_broker),
        ("a guest's root folder is root's", cases::root_folder),
        ("a process that connects to the host without guestd is refused", cases::intruder),
        ("guestd killed: its processes end, and the guest reconnects", cases::guestd_killed),
        ("engines write nothing of a guest that has unbound its device", cases::device_unbound),
        ("QEMU killed: nothing is left of its guest, and the other one continues", cases::qemu_killed),
    ];
    for (name, case) in cases {
        check(name, &mut lab, &case);
    }
    assert!(failed.is_empty(), "failed: {failed:#?}");
    lab.end();
}

/// Output of the programs as local processes.
fn local_outputs() -> Vec<(&'static str, String)> {
    let daemon = Embedded::start();
    let outputs = SAME_OUTPUT.map(|program| {
        let output = daemon.run(program, &[]);
        assert!(output.status.success(), "{program} fails locally");
        (program, String::from_utf8(output.stdout).expect("text"))
    });
    daemon.end();
    outputs.to_vec()
}

#[test]
fn a_recorded_run_in_two_guests_replays_identical() {
    // The search for the guest's kernel also opens a file.
    let _alone = lock_exclusive();
    if !guests_can_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("two.gvt");
    let program = c_program("fence_tour");
    let mut command = gpupv(&["vm", "run", "--vms", "2", "--times", "--record"]);
    command.arg(&trace).arg("--with").arg(format!("{}:/tour", program.display())).args(["--", "/tour"]);
    let output = command.stdin(Stdio::null()).output().expect("gpupv starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    for name in ["[vm1] ", "[vm2] "] {
        let printed: String =
            out.lines().filter_map(|line| line.strip_prefix(name)).map(|line| format!("{line}\n")).collect();
        assert_eq!(printed, include_str!("../golden/fence_tour.txt"), "{name}: {err}");
    }
    let replay = gpupv(&["replay"]).arg(&trace).output().expect("gpupv starts");
    let printed = String::from_utf8_lossy(&replay.stdout);
    assert_eq!(replay.status.code(), Some(0), "{printed}");
    assert!(printed.starts_with("identical: ") && !printed.contains("not ended"), "{printed}");
    wakes_of_guests_have_parts(&trace);
}

#[test]
fn a_killed_vm_run_leaves_console_logs_only_until_the_next_start() {
    let _alone = lock_exclusive();
    if !guests_can_run() {
        return;
    }
    let mut killed = gpupv(&["vm", "run", "--", "/x"]).stderr(Stdio::piped()).spawn().expect("gpupv starts");
    let mut lines = BufReader::new(killed.stderr.take().expect("it is piped")).lines();
    let booting = lines.any(|line| line.is_ok_and(|line| line.contains("booting a guest")));
    assert!(booting, "the guest boots");
    let cache = vm_images::Cache::from_environment().expect("a cache");
    let folder = cache.root().join("consoles").join(killed.id().to_string());
    killed.kill().and_then(|()| killed.wait()).expect("it is killed");
    assert!(folder.is_dir(), "{}", folder.display());
    assert!(gpupv(&["run", "--", "true"]).status().expect("gpupv starts").success());
    assert!(!folder.exists(), "{}", folder.display());
}

#[test]
fn a_terminated_vm_run_ends_its_recording_and_leaves_no_folder() {
    let _alone = lock_exclusive();
    if !guests_can_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (trace, temporary) = (folder.path().join("t.gvt"), folder.path().join("tmp"));
    std::fs::create_dir(&temporary).expect("writable");
    let mut command = gpupv(&["vm", "run", "--record"]);
    command.arg(&trace).arg("--with").arg(format!("{}:/states", c_program("states").display()));
    command.args(["--", "/states", "armed"]).env("TMPDIR", &temporary);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gpupv starts");
    let mut lines = BufReader::new(running.stdout.take().expect("it is piped")).lines();
    assert!(lines.next().is_some_and(|line| line.is_ok()), "the program runs");
    kill_process(Pid::from_child(&running), Signal::TERM).expect("the process can be signaled");
    let status = running.wait().expect("it can be waited for");
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{status}");
    assert_eq!(std::fs::read_dir(&temporary).expect("readable").count(), 0);
    let verified = gpupv(&["trace", "verify", "--json"]).arg(&trace).output().expect("gpupv starts");
    let found: Value = serde_json::from_slice(&verified.stdout).expect("JSON");
    assert_eq!((&found["whole"], &found["ended"]), (&json!(true), &json!(true)), "{found:#}");
}

/// The console is in the cache here, where logs are kept only of guests that failed.
#[test]
fn a_guest_whose_kernel_panics_leaves_its_console() {
    let _alone = lock_exclusive();
    if !guests_can_run() {
        return;
    }
    let mut command = gpupv(&["vm", "run", "--with"]);
    command.arg(format!("{}:/panic", c_program("kernel_panic").display())).args(["--", "/panic"]);
    let output = command.stdin(Stdio::null()).output().expect("gpupv starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("vm1 ended while /panic ran: the guest kernel panicked: "), "{err}");
    let text = take_console(&err);
    assert!(text.contains("Kernel panic"), "{text}");
    let last = text.lines().rfind(|line| !line.trim().is_empty()).expect("a line").trim();
    assert!(err.lines().any(|line| line.trim() == last), "{err}");
}

/// The file that is copied is a pipe, from which gpupv reads once the test writes.
#[test]
fn a_guest_that_ends_while_files_are_copied_into_it_leaves_its_console() {
    let _alone = lock_exclusive();
    if !guests_can_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("writable");
    let mut command = gpupv(&["vm", "run", "--with"]);
    command.arg(format!("{}:/copied", pipe.display())).args(["--", "/copied"]);
    let mut running = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("gpupv starts");
    let writer = File::options().write(true).open(&pipe).expect("gpupv reads it");
    let qemu = child_named(running.id(), "qemu-system").expect("the guest runs");
    kill_process(qemu, Signal::KILL).expect("our QEMU");
    drop(writer);
    let mut err = String::new();
    running.stderr.take().expect("it is piped").read_to_string(&mut err).expect("text");
    assert_eq!(running.wait().expect("it can be waited for").code(), Some(2), "{err}");
    assert!(err.contains("vm1 ended: QEMU was killed by signal 9"), "{err}");
    take_console(&err);
}

/// The text of the console that an error names, which is removed.
fn take_console(err: &str) -> String {
    let console = err.lines().find_map(|line| line.trim().strip_prefix("console: ")).expect("it is named");
    let text = std::fs::read_to_string(console).unwrap_or_else(|error| panic!("it is kept: {error}: {err}"));
    std::fs::remove_dir_all(Path::new(console).parent().expect("a folder")).expect("writable");
    text
}

/// The child of a process whose program's name begins so.
fn child_named(parent: u32, name: &str) -> Option<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).ok()?.flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let of_name = |child: &str| {
        let of_child = std::fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        of_child.starts_with(name).then(|| Pid::from_raw(child.parse().ok()?))?
    };
    children.collect::<Vec<_>>().iter().flat_map(|children| children.split_whitespace()).find_map(of_name)
}

/// The other pages run in `tests/docs.rs`.
#[test]
fn pages_with_guests_print_what_they_show() {
    let _alone = lock_exclusive();
    if !guests_can_run() {
        return;
    }
    let pages = Page::originals().into_iter().filter(Page::boots_guests);
    let failures: Vec<String> = pages.flat_map(|page| failures(&page)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Checks the wakes of `fence_tour`: an engine, or another process of its VM, causes them. In the latter case one clock
/// measures the whole wake.
fn wakes_of_guests_have_parts(trace: &Path) {
    let output =
        gpupv(&["trace", "stats", "--wakes=100", "--json"]).arg(trace).output().expect("gpupv starts");
    let latency: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(latency["unsteady"], json!([]), "{latency:#}");
    let wakes = latency["slowest"].as_array().expect("a list");
    // The number of waits that had to sleep depends on the guests' timing.
    for guest in ["vm1", "vm2"] {
        let is_its = |wake: &Value| wake["process"].as_str().is_some_and(|path| path.contains(guest));
        assert!(wakes.iter().any(is_its), "{guest}: {latency:#}");
    }
    assert!(wakes.iter().any(|wake| wake["call"] == "SignalFromCpu"), "{latency:#}");
    for wake in wakes {
        let length = |of: &Value| Some((of["ns"].as_i64()?, of["error_ns"].as_i64()?));
        let part = |name: &str| length(&wake["parts"][name]);
        let parts: Vec<_> = wake["parts"].as_object().expect("parts").values().filter_map(length).collect();
        let (total, error) = length(&wake["whole"]).expect("it is known");
        assert_eq!(total, parts.iter().map(|part| part.0).sum::<i64>(), "{wake:#}");
        assert!(
            parts.iter().all(|(nanos, error)| nanos + error >= 0),
            "a part begins before its cause: {wake:#}"
        );
        let back = part("link back").expect("it is known");
        assert!(back.1 > 0, "the wake is between two clocks: {wake:#}");
        match part("link") {
            // A wait for an already reached value is its own cause.
            Some(link) => assert!(link.1 > 0 && error == 0 && wake["call"] != "deadline", "{wake:#}"),
            None => assert!(error == back.1 && wake["call"] == "deadline", "{wake:#}"),
        }
    }
}
