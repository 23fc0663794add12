//! Runs the program on small trees: rules, tests that claim them, and records of results.

use std::path::Path;
use std::process::Command;

use conformance::{RESULTS_FOLDER, Results, page};
use serde_json::{Value, json};
use tempfile::TempDir;

const GROUPS: [&str; 8] = ["fen", "evt", "esc", "gpv", "sch", "tdr", "bar", "mem"];

const TESTS: &str = "
#[test]
fn one() {
    covers!(\"FEN-001\");
}
#[test]
fn two() {
    covers!(
        \"FEN-001\",
        \"FEN-002\"
    );
}
";

/// A tree in its own folder.
struct Planted {
    folder: TempDir,
}

/// Exit code and output of the program.
struct Printed {
    code: i32,
    out: String,
    err: String,
}

impl Planted {
    /// Four rules a group, and one test file with a claim at line 4 and one at line 8.
    fn new() -> Self {
        let planted = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        for group in GROUPS {
            let name = group.to_uppercase();
            planted.write(&format!("tests/conformance/rules/{group}.toml"), &rules(&name));
        }
        planted.write("tests/conformance/rules/observed.toml", &rules("W"));
        planted.with("tests/calls.rs", TESTS)
    }

    fn with(self, file: &str, text: &str) -> Self {
        self.write(file, text);
        self
    }

    /// Records the claim at a line of the test file.
    fn record(self, line: u32, rules: &str, verdict: &str) -> Self {
        let text = format!("tests/calls.rs:{line}\n{rules}\n{verdict}\nsome::test\n");
        self.with(&format!("{RESULTS_FOLDER}/covered/calls_{line}.txt"), &text)
    }

    /// Records both claims.
    fn recorded(self, second: &str) -> Self {
        self.record(4, "FEN-001", "passed").record(8, "FEN-001 FEN-002", second)
    }

    /// Adds the page generated from its records.
    fn with_page(self) -> Self {
        let tree = conformance::read_tree(self.root()).expect("the tree is read");
        let results =
            Results::read(self.root(), &self.root().join(RESULTS_FOLDER)).expect("results are read");
        self.write(page::PATH, &page::render(&tree.recorded(&results)));
        self
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.root().join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
        std::fs::write(path, text).expect("a file is written");
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, arguments: &[&str]) -> Printed {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
        let output = command.arg("--tree").arg(self.root()).args(arguments).output().expect("it runs");
        Printed {
            code: output.status.code().expect("it exits"),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// The lines about failures, without the last one that counts them.
    fn failures(&self, arguments: &[&str]) -> Vec<String> {
        let printed = self.run(arguments);
        assert_eq!(printed.code, i32::from(!printed.err.is_empty()), "{}{}", printed.out, printed.err);
        let mut lines: Vec<String> = printed.err.lines().map(str::to_owned).collect();
        lines.pop();
        lines
    }

    fn state(&self, rule: &str) -> Value {
        let printed = self.run(&["--json", "--rule", rule]);
        assert_eq!(printed.code, 0, "{}", printed.err);
        serde_json::from_str::<Value>(&printed.out).expect("JSON")["state"].clone()
    }
}

fn rules(group: &str) -> String {
    let rule = |number: usize, more: &str| {
        format!(
            "[[rule]]\nid = \"{group}-00{number}\"\nsays = \"statement {number}\"\nsource = \"a page\"\n{more}\n"
        )
    };
    let [seed, inferred] = [rule(1, "seed = true"), rule(2, "basis = \"inferred\"")];
    let out = rule(3, "out_of_model = \"there is no such memory\"");
    let differs = rule(4, "differs = \"it is refused\"");
    format!("group = \"{group}\"\ntitle = \"rules of {group}\"\n\n{seed}{inferred}{out}{differs}")
}

#[test]
fn claims_with_records_of_a_pass_are_covered() {
    let planted = Planted::new().recorded("passed").with_page();
    assert_eq!(planted.failures(&["--check"]), [""; 0]);
    assert_eq!(planted.state("FEN-001"), "passing");
    assert_eq!(planted.state("EVT-001"), "not-covered");
    assert_eq!(planted.state("EVT-003"), "out-of-model");
}

#[test]
fn a_failed_test_fails_its_rules() {
    let planted = Planted::new().recorded("failed").with_page();
    let expected = [
        "tests/calls.rs:8: FEN-001 failed: in some::test",
        "tests/calls.rs:8: FEN-002 failed: in some::test",
    ];
    assert_eq!(planted.failures(&["--check"]), expected);
    assert_eq!(planted.failures(&[]), [""; 0], "a report does not fail");
    assert_eq!(planted.state("FEN-001"), "failing");
}

#[test]
fn a_claim_without_a_record_counts_for_nothing() {
    let planted = Planted::new().record(4, "FEN-001", "passed").with_page();
    let expected = ["FEN-001", "FEN-002"]
        .map(|rule| format!("tests/calls.rs:8: {rule} did not run: there is no record of it"));
    assert_eq!(planted.failures(&["--check"]), expected);
    assert_eq!(planted.state("FEN-001"), "passing", "another test covers it");
    assert_eq!(planted.state("FEN-002"), "not-run");
    assert!(!page::covered(&page::read(planted.root())).contains("FEN-002"));
    let blessed = planted.run(&["--bless"]);
    assert_eq!(blessed.code, 2);
    assert!(blessed.err.contains("2 claims have no record of a pass"), "{}", blessed.err);
}

#[test]
fn a_record_of_other_rules_or_another_line_is_none() {
    let planted = Planted::new().record(4, "FEN-002", "passed").record(9, "FEN-001 FEN-002", "passed");
    assert_eq!(planted.state("FEN-001"), "not-run");
    assert_eq!(planted.state("FEN-002"), "not-run");
}

#[test]
fn a_scenario_passes_if_it_passed_somewhere_and_failed_nowhere() {
    let file = "tests/scenarios/a.scn";
    let result = |backend, verdict| json!({"file": file, "case": "x", "backend": backend, "verdict": verdict, "reason": "so"});
    for (model, link, expected) in [
        ("passed", "skipped", None),
        ("passed", "failed", Some("failed: x on backend link so")),
        ("skipped", "skipped", Some("did not run: skipped on every backend: so")),
    ] {
        let planted =
            Planted::new().with("tests/calls.rs", "").with(file, "covers FEN-001\nexpect value f 3\n");
        planted.write(&format!("{RESULTS_FOLDER}/scenarios-model.json"), &result("model", model).to_string());
        let document = json!({"results": [result("link", link)]});
        planted.write(&format!("{RESULTS_FOLDER}/scenarios-link.json"), &document.to_string());
        let expected: Vec<String> = expected.iter().map(|what| format!("{file}:1: FEN-001 {what}")).collect();
        assert_eq!(planted.with_page().failures(&["--check"]), expected);
    }
}

#[test]
fn a_c_program_claims_by_its_macro() {
    let planted =
        Planted::new().with("tests/calls.rs", "").with("tests/c/a.c", "{\n    COVERS(\"W-001 W-002\");\n}\n");
    planted.write(&format!("{RESULTS_FOLDER}/covered/a.txt"), "tests/c/a.c:2\nW-001 W-002\npassed\ncalls\n");
    assert_eq!(planted.state("W-002"), "passing");
}

#[test]
fn claims_that_cannot_be_right_are_defects() {
    let planted = Planted::new()
        .with("tests/calls.rs", "covers!(\"FEN-009\");\ncovers!(\"FEN-003\");\n    covers!();\n");
    let expected = [
        "tests/calls.rs:1: FEN-009 is in no list of rules",
        "tests/calls.rs:2: FEN-003 is claimed, but out of the model: there is no such memory",
        "tests/calls.rs:3: the claim names no rule",
    ];
    assert_eq!(planted.failures(&[]), expected);
}

#[test]
fn drift_and_lost_coverage_are_named() {
    let drifted = format!("{} is outdated; run `{}` to regenerate it", page::PATH, page::BLESS);
    let planted = Planted::new().recorded("passed").with_page();
    let planted = planted.with("tests/calls.rs", &TESTS.replace("FEN-002", "EVT-001"));
    let planted = planted.record(8, "FEN-001 EVT-001", "passed");
    let lost =
        format!("FEN-002 is covered according to {}, but no test that claims it has passed now", page::PATH);
    assert_eq!(planted.failures(&["--check"]), [lost, drifted]);
    assert_eq!(planted.run(&["--bless"]).code, 0);
    assert_eq!(planted.failures(&["--check"]), [""; 0]);
}

#[test]
fn a_required_rule_must_be_covered() {
    let required = "tests/conformance/rules/required.toml";
    let planted = Planted::new().recorded("passed").with_page();
    planted.write(required, "ranges = [\"FEN-001..FEN-002\", \"W-002\"]\n");
    let expected = "W-002 must be covered (rules/required.toml), but no test that claims it has passed";
    assert_eq!(planted.failures(&["--check"]), [expected]);
    planted.write(required, "ranges = [\"FEN-002..FEN-009\"]\n");
    assert_eq!(planted.run(&[]).code, 2);
}

#[test]
fn the_report_counts_each_row_once() {
    let printed = Planted::new().recorded("failed").run(&["--group", "FEN"]);
    let expected = "\
group   rows  in seed  passing  failing  not run  differs  not covered  out of model
FEN        4        1        0        2        0        1            0             1
EVT        4        1        0        0        0        1            2             1
";
    assert!(printed.out.starts_with(expected), "{}", printed.out);
    assert!(printed.out.contains(
        "\ntotal     32        8        0        2        0        8           14             8\n"
    ));
    let expected = "
FEN: rules of FEN
FEN-001  failing       statement 1 (seed)
         passed        tests/calls.rs:4
         failed        tests/calls.rs:8 (in some::test)
FEN-002  failing       statement 2
         failed        tests/calls.rs:8 (in some::test)
FEN-003  out of model  statement 3
FEN-004  differs       statement 4
";
    assert!(printed.out.ends_with(expected), "{}", printed.out);
}

#[test]
fn the_report_as_json() {
    let printed = Planted::new().record(4, "FEN-001", "passed").run(&["--json"]);
    let report: Value = serde_json::from_str(&printed.out).expect("JSON");
    let total = json!({
        "rows": 32, "in-seed": 8, "passing": 1, "failing": 0, "not-run": 1, "differs": 8, "not-covered": 14,
        "out-of-model": 8,
    });
    assert_eq!(report["total"], total);
    let claim = json!({
        "place": "tests/calls.rs:8", "outcome": "not-run", "reason": "there is no record of it",
    });
    let rule = json!({
        "id": "FEN-002", "says": "statement 2", "seed": false, "source": "a page", "basis": "inferred",
        "out_of_model": null, "differs": null, "state": "not-run", "claims": [claim],
    });
    assert_eq!(report["rules"][1], rule);
    assert_eq!(report["defects"], json!([]));
}

#[test]
fn a_rule_that_differs_is_not_covered_by_its_claims() {
    let planted = Planted::new().with("tests/calls.rs", &TESTS.replace("FEN-002", "FEN-004"));
    let planted = planted.record(4, "FEN-001", "passed").record(8, "FEN-001 FEN-004", "passed").with_page();
    let printed = planted.run(&["--rule", "FEN-004"]);
    let expected = "FEN-004  differs       statement 4\n         passed        tests/calls.rs:8\n";
    assert!(
        printed.out.starts_with(expected) && printed.out.ends_with("differs: it is refused\n"),
        "{}",
        printed.out
    );
    let row = "| FEN-004 | statement 4 |  | it is refused; shown by [tests/calls.rs](";
    assert!(page::read(planted.root()).contains(row));
}

#[test]
fn without_results_the_report_names_the_command_that_makes_them() {
    let printed = Planted::new().run(&[]);
    assert_eq!(printed.code, 0);
    assert!(printed.out.contains("just conformance"), "{}", printed.out);
}

#[test]
fn the_page_shows_every_row_and_folds_the_others() {
    let planted = Planted::new().recorded("passed").with_page();
    let page = page::read(planted.root());
    assert_eq!(page::covered(&page).into_iter().collect::<Vec<_>>(), ["FEN-001", "FEN-002"]);
    let expected = "
## FEN: rules of FEN

| rule | says | | covered by |
|---|---|---|---|
| FEN-001 | statement 1 | seed | [tests/calls.rs](../tests/calls.rs) |
| FEN-002 | statement 2 |  | [tests/calls.rs](../tests/calls.rs) |

Differs: 1

| rule | says | | differs |
|---|---|---|---|
| FEN-004 | statement 4 |  | it is refused |

<details><summary>out of model: 1</summary>

| rule | says | |  |
|---|---|---|---|
| FEN-003 | statement 3 |  | out of model: there is no such memory |

</details>

## EVT: rules of EVT

Differs: 1

| rule | says | | differs |
|---|---|---|---|
| EVT-004 | statement 4 |  | it is refused |

<details><summary>not covered: 2</summary>
";
    assert!(page.contains(expected), "{page}");
}
