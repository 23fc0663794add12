//! What `cargo test 2>&1` prints, of libtest and of libtest-mimic.
//!
//! ```text
//!      Running unittests src/lib.rs (target/debug/deps/d3dkmt-0123456789abcdef)
//!      Running tests/abi.rs (target/debug/deps/abi-0123456789abcdef)
//! test kernel::tests::a_wait_ends ... ok
//! test a_refused_call - should panic ... FAILED
//! test needs_a_vm ... ignored, no VM here
//! test [vm] two_guests ... ok                             kinds are of libtest-mimic
//!    Doc-tests d3dkmt                                     what follows belongs to no binary of ours
//! ```
//! With `--nocapture` a test's own words may stand between its name and its end: `test a ... words`, and later
//! a line `ok`. Without such a line it has not ended. Colours are taken out.

use super::Ended;
use crate::claims::TestName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestResult {
    pub name: TestName,
    pub ended: Ended,
    /// What follows the verdict, such as the reason of an ignored test.
    pub detail: String,
}

pub fn parse(text: &str) -> Vec<TestResult> {
    let mut results = Vec::new();
    let mut binary: Option<(String, String)> = None;
    // A test whose end has not been seen yet.
    let mut open: Option<String> = None;
    for line in text.lines() {
        let line = without_colours(line);
        if let Some(found) = running(&line) {
            (binary, open) = (Some(found), None);
        } else if line.trim_start().starts_with("Doc-tests ") {
            (binary, open) = (None, None);
        } else if let Some((name, end)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            open = Some(bare_name(name));
            add(&mut results, binary.as_ref(), &mut open, end);
        } else {
            add(&mut results, binary.as_ref(), &mut open, &line);
        }
    }
    results
}

fn add(
    results: &mut Vec<TestResult>,
    binary: Option<&(String, String)>,
    open: &mut Option<String>,
    end: &str,
) {
    let (Some((binary, root)), Some(ended)) = (binary, verdict(end)) else { return };
    let Some(test) = open.take() else { return };
    let name = TestName { binary: binary.clone(), root: root.clone(), test };
    let detail = end.split_once([',', ' ']).map_or("", |(_, detail)| detail.trim()).to_owned();
    results.push(TestResult { name, ended, detail });
}

/// `ok`, with the time that `--report-time` adds.
fn verdict(end: &str) -> Option<Ended> {
    let (word, rest) = end.split_at(end.find([' ', ',']).unwrap_or(end.len()));
    match word {
        "ok" if rest.is_empty() || rest.starts_with(" <") => Some(Ended::Passed),
        "FAILED" if rest.is_empty() || rest.starts_with(" <") => Some(Ended::Failed),
        "ignored" => Some(Ended::Skipped),
        _ => None,
    }
}

/// Binary and root of a line that says what runs now.
fn running(line: &str) -> Option<(String, String)> {
    let (root, executable) = line.trim().strip_prefix("Running ")?.strip_suffix(')')?.split_once(" (")?;
    let file = executable.rsplit('/').next()?;
    let (name, hash) = file.rsplit_once('-')?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let root = root.strip_prefix("unittests ").unwrap_or(root);
    is_hash.then(|| (name.to_owned(), root.to_owned()))
}

fn bare_name(name: &str) -> String {
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    let kind = name.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    kind.map_or(name, |(_, name)| name).to_owned()
}

fn without_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut bare = parts.next().unwrap_or_default().to_owned();
    bare.extend(parts.filter_map(|part| part.split_once('m').map(|(_, text)| text)));
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let results = parse(text);
        results
            .iter()
            .map(|result| {
                format!("{} {} {:?} {}", result.name.root, result.name, result.ended, result.detail)
            })
            .collect()
    }

    #[test]
    fn binaries_and_verdicts_of_libtest() {
        let text = "
   Compiling a v0.1.0
     Running unittests src/lib.rs (target/debug/deps/fence_page-0123456789abcdef)

running 3 tests
test tests::one ... ok
test tests::two - should panic ... ok
test three ... FAILED
     Running tests/vm/main.rs (/tmp/other target/debug/deps/vm-fedcba9876543210)
test four has been running for over 60 seconds
test four ... ignored, no VM
test five ... ok <1.2s>
test result: ok. 5 passed; 0 failed
   Doc-tests fence_page
test src/lib.rs - (line 3) ... ok
";
        let wanted = [
            "src/lib.rs fence_page tests::one Passed ",
            "src/lib.rs fence_page tests::two Passed ",
            "src/lib.rs fence_page three Failed ",
            "tests/vm/main.rs vm four Skipped no VM",
            "tests/vm/main.rs vm five Passed <1.2s>",
        ];
        assert_eq!(shown(text), wanted);
    }

    #[test]
    fn kinds_of_libtest_mimic_and_colours() {
        let text =
            "\u{1b}[1m\u{1b}[32m     Running\u{1b}[0m tests/vm.rs (target/debug/deps/vm-0123456789abcdef)
test [vm] a guest boots ... \u{1b}[32mok\u{1b}[0m";
        assert_eq!(shown(text), ["tests/vm.rs vm a guest boots Passed "]);
    }

    #[test]
    fn words_between_a_test_and_its_end() {
        let text = "     Running tests/a.rs (target/debug/deps/a-0123456789abcdef)
test one ... it says this
and that
ok
test two ... it dies
error: test failed
test three ... ok";
        assert_eq!(shown(text), ["tests/a.rs a one Passed ", "tests/a.rs a three Passed "]);
    }

    #[test]
    fn what_belongs_to_no_binary_is_no_result() {
        assert_eq!(shown("test a ... ok\n     Running `target/debug/gpupv demo`\ntest b ... ok\n"), [""; 0]);
    }
}
