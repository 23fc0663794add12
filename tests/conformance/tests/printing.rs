//! What the program does when its output is not wanted, or has no room.

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn printed_to(stdout: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    command.arg("--json").stdin(Stdio::null()).stdout(stdout).output().expect("it starts")
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = printed_to(writer);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_one() {
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = printed_to(full);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot print: No space left on device"), "{said}");
}
