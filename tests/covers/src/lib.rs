//! Records which rules of the reference a test covered in its run.
//!
//! ```
//! # use covers::covers;
//! # fn a_value_never_goes_down() {
//! covers!("FEN-001", "W-105"); // the first statement of a test, of a helper that asserts, or of a block in either
//! # }
//! ```
//! At the end of the block, a file in `target/conformance/covered` records whether it passed; a panic is a failure.
//! `cargo run -p conformance` reads these records. A claim without a record has not run and does not count.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Environment variable that names the file in which a C program lists what it covers (`tests/c/check.h`).
pub const PROGRAM_FILE: &str = "GPUPV_COVERS";

/// Claims that the rest of the block covers these rules.
#[macro_export]
macro_rules! covers {
    ($($rule:literal),+ $(,)?) => {
        let _claim = $crate::Claim::new(&[$($rule),+], file!(), line!());
    };
}

/// A claim whose block is running. Dropping it records the block's result.
#[derive(Debug)]
pub struct Claim {
    rules: &'static [&'static str],
    file: &'static str,
    line: u32,
}

impl Claim {
    pub fn new(rules: &'static [&'static str], file: &'static str, line: u32) -> Claim {
        Claim { rules, file, line }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("main");
        record(self.file, self.line, &self.rules.join(" "), test, !std::thread::panicking());
    }
}

/// Records the claims that a C program listed in `file`, with its result `passed` and its test `test`.
///
/// A line is `FILE:LINE RULE RULE`, with the path relative to the root of the repository.
pub fn record_program(file: &Path, test: &str, passed: bool) {
    for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
        let listed =
            line.split_once(' ').and_then(|(location, rules)| Some((location.rsplit_once(':')?, rules)));
        let Some(((source, number), rules)) = listed else { panic!("{line:?} is no claim of a C program") };
        record(source, number.parse().expect("a line number"), rules, test, passed);
    }
}

/// Folder of the records: a file for each claim, `FILE:LINE`, `RULE RULE`, `passed` or `failed`, the test; a line each.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/conformance/covered")
}

/// Writes a record. A claim that failed once in this process stays failed.
fn record(file: &str, line: u32, rules: &str, test: &str, passed: bool) {
    static ENDED: Mutex<BTreeMap<(String, u32), bool>> = Mutex::new(BTreeMap::new());
    let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    let claim = (file.to_owned(), line);
    let before = ended.get(&claim).copied();
    let passed = passed && before != Some(false);
    if before == Some(passed) {
        return;
    }
    ended.insert(claim, passed);
    let verdict = if passed { "passed" } else { "failed" };
    let text = format!("{file}:{line}\n{rules}\n{verdict}\n{test}\n");
    let path = folder().join(format!("{}_{line}.txt", file.replace('/', "_")));
    // `conformance --check` reports a record that could not be written.
    let _ = std::fs::create_dir_all(folder()).and_then(|()| std::fs::write(path, text));
}
