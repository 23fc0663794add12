//! The program with its stdout closed, or with a full disk.

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn printed_to(stdout: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    command.arg("--json").stdin(Stdio::null()).stdout(stdout).output().expect("it starts")
}

#[test]
fn a_closed_stdout_is_success() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = printed_to(writer);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = printed_to(full);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot print: No space left on device"), "{stderr}");
}
