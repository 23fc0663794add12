//! Claims beside results, the report, and the page.

use conformance::{RESULTS_FOLDER, page};
use serde_json::{Value, json};

use crate::tree::Planted;

const TESTS: &str = "
#[test]
fn one() {
    // covers: FEN-001
    assert!(true);
}
#[test]
fn two() {
    // covers: FEN-001 FEN-002
    assert!(true);
}
";

fn planted() -> Planted {
    Planted::new().tests(TESTS)
}

fn state(planted: &Planted, rule: &str) -> Value {
    let said = planted.run(&["--json", "--rule", rule]);
    assert_eq!(said.code, 0, "{}", said.err);
    serde_json::from_str::<Value>(&said.out).expect("JSON")["state"].clone()
}

#[test]
fn all_well() {
    let planted = planted().results(&["one ... ok", "two ... ok"]).blessed();
    assert_eq!(planted.wrong(&["--check"]), [""; 0]);
    assert_eq!(state(&planted, "FEN-001"), "passing");
    assert_eq!(state(&planted, "EVT-001"), "not-covered");
    assert_eq!(state(&planted, "EVT-003"), "out-of-model");
}

#[test]
fn a_failed_test_fails_its_rules() {
    let planted = planted().results(&["one ... ok", "two ... FAILED"]).blessed();
    let wanted = [
        "tests/e2e/tests/calls.rs:9: FEN-001: calls two failed",
        "tests/e2e/tests/calls.rs:9: FEN-002: calls two failed",
    ];
    assert_eq!(planted.wrong(&["--check"]), wanted);
    assert_eq!(planted.wrong(&[]), [""; 0], "a report is no verdict");
    assert_eq!(state(&planted, "FEN-001"), "failing");
}

#[test]
fn an_ignored_and_a_missing_test_did_not_run() {
    let ignored = planted().results(&["one ... ok", "two ... ignored, no VM"]).blessed();
    let missing = planted().results(&["one ... ok", "two ... words and no end"]).blessed();
    for (planted, why) in [(ignored, "ignored no VM"), (missing, "it is not in the results")] {
        let wanted = ["FEN-001", "FEN-002"]
            .map(|rule| format!("tests/e2e/tests/calls.rs:9: {rule}: calls two did not run: {why}"));
        assert_eq!(planted.wrong(&["--check"]), wanted);
        assert_eq!(state(&planted, "FEN-001"), "passing", "another test covers it");
        assert_eq!(state(&planted, "FEN-002"), "not-run");
    }
}

#[test]
fn tests_of_one_name_in_two_packages_must_both_have_run() {
    let planted = planted()
        .with("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"tests/e2e\", \"other\"]\n")
        .with("other/tests/calls.rs", "#[test]\nfn one() {}\n")
        .results(&["one ... ok", "two ... ok"]);
    planted.package("other", "other");
    let wanted = "tests/e2e/tests/calls.rs:4: FEN-001: calls one did not run: 2 packages have a test of this name, \
                  the results only 1";
    assert_eq!(planted.blessed().wrong(&["--check"]), [wanted]);
}

#[test]
fn the_output_of_another_run_can_be_given() {
    let planted = planted().results(&[]).blessed();
    let other =
        "     Running tests/calls.rs (/a b/calls-0123456789abcdef)\ntest one ... ok\ntest two ... ok\n";
    planted.write("other.txt", other);
    let other = planted.root().join("other.txt").display().to_string();
    assert_eq!(planted.wrong(&["--check", "--test-output", &other]), [""; 0]);
    assert_eq!(planted.run(&["--test-output", "/nowhere"]).code, 2);
}

#[test]
fn a_scenario_passes_if_it_passed_somewhere_and_failed_nowhere() {
    let file = "tests/scenarios/a.scn";
    let result = |backend, verdict| json!({"file": file, "case": "x", "backend": backend, "verdict": verdict, "reason": "so"});
    for (model, link, wanted) in [
        ("passed", "skipped", None),
        ("passed", "failed", Some("failed: x on backend link so")),
        ("skipped", "skipped", Some("did not run: skipped on every backend: so")),
    ] {
        let planted = Planted::new().with(file, "covers FEN-001\nexpect value f 3\n").blessed();
        planted.write(&format!("{RESULTS_FOLDER}/scenarios-model.json"), &result("model", model).to_string());
        let document = json!({"results": [result("link", link)]});
        planted.write(&format!("{RESULTS_FOLDER}/scenarios-link.json"), &document.to_string());
        let wanted: Vec<String> =
            wanted.iter().map(|what| format!("{file}:1: FEN-001: {file} {what}")).collect();
        assert_eq!(planted.wrong(&["--check"]), wanted);
    }
}

#[test]
fn drift_and_lost_coverage_are_named() {
    let drifted = format!("{} has drifted; `{}` writes it anew", page::PATH, page::BLESS);
    let planted = planted().results(&["one ... ok", "two ... ok"]).blessed();
    let planted = planted.tests(&TESTS.replace("FEN-002", "EVT-001"));
    let lost = format!("FEN-002 is covered according to {}, and nothing claims it now", page::PATH);
    assert_eq!(planted.wrong(&["--check"]), [lost, drifted]);
    assert_eq!(planted.run(&["--bless"]).code, 0);
    assert_eq!(planted.wrong(&["--check"]), [""; 0]);
}

#[test]
fn a_required_rule_must_be_claimed() {
    let required = "tests/conformance/rules/required.toml";
    let planted = planted().results(&["one ... ok", "two ... ok"]).blessed();
    planted.write(required, "ranges = [\"FEN-001..FEN-002\", \"W-002\"]\n");
    let wanted = "W-002 has to be covered (rules/required.toml), and nothing claims it";
    assert_eq!(planted.wrong(&["--check"]), [wanted]);
    planted.write(required, "ranges = [\"FEN-002..FEN-009\"]\n");
    assert_eq!(planted.run(&[]).code, 2);
}

#[test]
fn the_report_counts_each_row_once() {
    let said = planted().results(&["one ... ok", "two ... FAILED"]).run(&["--group", "FEN"]);
    let wanted = "\
group   rows  in seed  passing  failing  not run  differs  not covered  out of model
FEN        4        1        0        2        0        1            0             1
EVT        4        1        0        0        0        1            2             1
";
    assert!(said.out.starts_with(wanted), "{}", said.out);
    assert!(said.out.contains(
        "\ntotal     28        7        0        2        0        7           12             7\n"
    ));
    let wanted = "
FEN: rules of FEN
FEN-001  failing       statement 1 (seed)
         passed        calls one at tests/e2e/tests/calls.rs:4
         failed        calls two at tests/e2e/tests/calls.rs:9
FEN-002  failing       statement 2
         failed        calls two at tests/e2e/tests/calls.rs:9
FEN-003  out of model  statement 3
FEN-004  differs       statement 4
";
    assert!(said.out.ends_with(wanted), "{}", said.out);
}

#[test]
fn the_whole_as_json() {
    let said = planted().results(&["one ... ok", "two ... ignored"]).run(&["--json"]);
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    let total = json!({
        "rows": 28, "in-seed": 7, "passing": 1, "failing": 0, "not-run": 1, "differs": 7, "not-covered": 12,
        "out-of-model": 7,
    });
    assert_eq!(report["total"], total);
    let claim = json!({
        "by": {"test": {"binary": "calls", "root": "tests/calls.rs", "test": "two"}},
        "place": "tests/e2e/tests/calls.rs:9", "outcome": "not-run", "reason": "ignored",
    });
    let rule = json!({
        "id": "FEN-002", "says": "statement 2", "seed": false, "source": "a page", "basis": "inferred",
        "out_of_model": null, "differs": null, "state": "not-run", "claims": [claim],
    });
    assert_eq!(report["rules"][1], rule);
    assert_eq!(report["defects"], json!([]));
}

#[test]
fn a_row_that_differs_is_not_covered_by_the_tests_that_claim_it() {
    let planted = planted().tests(&TESTS.replace("FEN-002", "FEN-004"));
    let planted = planted.results(&["one ... ok", "two ... ok"]).blessed();
    let said = planted.run(&["--rule", "FEN-004"]);
    let wanted = "FEN-004  differs       statement 4\n         passed        calls two at tests/e2e/tests/calls.rs:9\n";
    assert!(said.out.starts_with(wanted) && said.out.ends_with("differs: it is refused\n"), "{}", said.out);
    let row = "| FEN-004 | statement 4 |  | it is refused; shown by [tests/e2e/tests/calls.rs](";
    assert!(page::read(planted.root()).contains(row));
    let failing = planted.results(&["one ... ok", "two ... FAILED"]).run(&["--rule", "FEN-004"]);
    assert!(failing.out.starts_with("FEN-004  failing"), "{}", failing.out);
}

#[test]
fn without_results_it_says_how_to_get_them() {
    let said = planted().run(&[]);
    assert_eq!(said.code, 0);
    assert!(said.out.contains("just conformance"), "{}", said.out);
}

#[test]
fn results_older_than_a_test_are_told_of() {
    let planted = planted().results(&["one ... ok", "two ... ok"]);
    assert!(!planted.run(&[]).out.contains("older"));
    let file = std::fs::File::open(planted.root().join("tests/e2e/tests/calls.rs")).expect("it is there");
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(60))
        .expect("a time is set");
    assert!(planted.run(&[]).out.contains("The results are older than tests/e2e/tests/calls.rs"));
}

#[test]
fn the_page_shows_every_row_and_folds_what_is_not_covered() {
    let planted = planted().blessed();
    let page = page::read(planted.root());
    assert_eq!(page::covered(&page).into_iter().collect::<Vec<_>>(), ["FEN-001", "FEN-002"]);
    let wanted = "
## FEN: rules of FEN

| rule | says | | covered by |
|---|---|---|---|
| FEN-001 | statement 1 | seed | [tests/e2e/tests/calls.rs](../tests/e2e/tests/calls.rs) |
| FEN-002 | statement 2 |  | [tests/e2e/tests/calls.rs](../tests/e2e/tests/calls.rs) |

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
    assert!(page.contains(wanted), "{page}");
}
