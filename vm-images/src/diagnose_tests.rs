use super::*;

fn cause(console: &[&str], messages: &[&str], exit: Option<i32>) -> Cause {
    let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
    cause_of(&Evidence {
        console: lines(console),
        messages: lines(messages),
        exit: exit.map(ExitStatus::from_raw),
    })
}

fn exit_code(code: i32) -> Option<i32> {
    Some(code << 8)
}

#[test]
fn qemus_message_is_the_cause_of_a_refusal() {
    let line = "qemu-system-x86_64: -device nope: 'nope' is not a valid device model name".to_owned();
    assert_eq!(cause(&[], &[&line], exit_code(1)), Cause::QemuRefused { line });
    let line = "qemu-system-x86_64: -chardev socket: Failed to connect to '/x': No such file or directory"
        .to_owned();
    assert_eq!(cause(&[], &[&line], exit_code(1)), Cause::DaemonUnreachable { line });
    let line = "qemu-system-x86_64: cannot set up guest memory 'memory': Cannot allocate memory".to_owned();
    assert_eq!(cause(&[], &[&line], exit_code(1)), Cause::HostMemory { line });
}

#[test]
fn signals_are_kills_or_crashes() {
    assert_eq!(cause(&["Linux version"], &[], Some(9)), Cause::QemuKilled { signal: 9 });
    let line = "Assertion `ret == n' failed.".to_owned();
    assert_eq!(cause(&[], &[&line], Some(6)), Cause::QemuCrashed { signal: 6, line });
    let message = "qemu-system-x86_64: terminating on signal 15 from pid 7 (sh)";
    assert_eq!(cause(&["Linux version"], &[message], exit_code(0)), Cause::QemuKilled { signal: 15 });
}

#[test]
fn panics_are_distinguished() {
    let panic = "[    1.2] Kernel panic - not syncing: No working init found.  Try passing init= option";
    let line = "Failed to execute /init (error -2)".to_owned();
    assert_eq!(
        cause(&["[    1.1] Failed to execute /init (error -2)", panic], &[], exit_code(0)),
        Cause::InitMissing { line }
    );
    let line = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100".to_owned();
    assert_eq!(cause(&[&line], &[], exit_code(0)), Cause::InitDied { line });
    let line = "Kernel panic - not syncing: System is deadlocked on memory".to_owned();
    assert_eq!(cause(&[&line], &[], exit_code(0)), Cause::GuestMemory { line });
    let line = "Kernel panic - not syncing: Fatal exception".to_owned();
    assert_eq!(cause(&[&line], &[], None), Cause::KernelPanic { line });
}

#[test]
fn a_program_that_was_killed_for_memory_is_not_why_the_kernel_panics_later() {
    let killed = "[    9.1] Out of memory: Killed process 80 (program)";
    let line = "Kernel panic - not syncing: sysrq triggered crash".to_owned();
    assert_eq!(cause(&[killed, &line], &[], exit_code(0)), Cause::KernelPanic { line });
    let init = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009";
    let line = "Out of memory: Killed process 80 (program)".to_owned();
    assert_eq!(cause(&[killed, init], &[], exit_code(0)), Cause::GuestMemory { line });
}

#[test]
fn silence_and_slowness_are_distinguished() {
    assert_eq!(cause(&[], &[], None), Cause::NoOutput);
    assert_eq!(cause(&["Linux version"], &[], None), Cause::NotReady);
    assert_eq!(cause(&[], &[], exit_code(0)), Cause::ResetAtOnce);
    assert_eq!(cause(&["reboot: Power down"], &[], exit_code(0)), Cause::PoweredOff);
}

#[test]
fn a_failure_says_what_where_and_what_next() {
    let evidence = Evidence { console: vec!["Linux version".to_owned()], messages: Vec::new(), exit: None };
    let failure =
        GuestFailure::new("one", Accelerator::Tcg, Path::new("/log"), Path::new("/log.qemu"), &evidence);
    let expected = "guest one did not come up: it was not ready in the time given\n  console: /log\n  \
        QEMU's messages: /log.qemu\n  next: wait longer on a busy machine, or read how far the console got\n  \
        last console lines:\n    Linux version";
    assert_eq!(failure.to_string(), expected);
}

#[test]
fn a_guest_cannot_send_escapes_to_the_readers_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    std::fs::write(&log, b"\x1b]0;owned\x07one\r\n\r\n\xfftwo\r\n").unwrap();
    assert_eq!(read_end(&log), ["]0;ownedone", "\u{fffd}two"]);
}
