//! Tests of one set of results in every format.

use std::time::Duration;

use serde_json::json;

use crate::limits::{FAILURES_SHOWN_MAX, PLACES_SHOWN_MAX};
use crate::program::Backend;
use crate::report::{CaseResult, Results, SuiteReport, merge_suites};
use crate::run::{Failure, Verdict};
use crate::shards::Mismatch;

fn result(file: &str, case: &str, backend: Backend, verdict: Verdict) -> CaseResult {
    CaseResult {
        file: file.into(),
        case: case.into(),
        title: "a title".into(),
        backend,
        verdict,
        unchecked: Vec::new(),
        source: None,
        trace: None,
        duration: Duration::from_millis(2),
    }
}

fn failed(line: u32, what: &str) -> Verdict {
    Verdict::Failed(Failure { line, what: what.into() })
}

/// Results with a case of each kind.
fn some() -> Results {
    let mut unchecked = result("a.scn", "", Backend::Model, Verdict::Passed);
    unchecked.unchecked = vec![(9, "this backend has no messages to count".into()); 2];
    let mut diverges = result("b#1.scn", "value=5", Backend::Link, failed(7, "expected <ok>, found: \"no\""));
    diverges.source = Some("p  signal D F=1 -> ok".into());
    diverges.trace = Some("t/b#1.value=5.link.gvt".into());
    let cases = vec![
        unchecked,
        result("a.scn", "", Backend::Local, Verdict::Skipped("a stream cannot be held here".into())),
        result("b#1.scn", "value=5", Backend::Model, Verdict::Passed),
        diverges,
        result("b#1.scn", "value=6", Backend::Local, Verdict::Skipped("a stream cannot be held here".into())),
        result("c.scn", "", Backend::Model, failed(0, "something is left")),
        result("c.scn", "", Backend::Link, failed(0, "something is left")),
    ];
    Results { cases, left_out: 0 }
}

#[test]
fn people_read_failures_divergences_what_was_not_checked_and_skips() {
    let expected = "\
b#1.scn:7: expected <ok>, found: \"no\"
  7 | p  signal D F=1 -> ok
    on link, case value=5
    recorded in t/b#1.value=5.link.gvt
c.scn: something is left
    on model, link
b#1.scn [value=5] diverges: passed on model, failed on link
2 expectations not checked on model: this backend has no messages to count
    a.scn:9
2 skipped on local: a stream cannot be held here
2 passed, 3 failed, 2 skipped
";
    assert_eq!(some().text(), expected);
}

#[test]
fn the_last_line_tells_of_skips_only_when_there_are_any() {
    let cases = vec![result("a.scn", "", Backend::Model, Verdict::Passed)];
    assert_eq!(Results { cases, left_out: 0 }.text(), "1 passed, 0 failed\n");
    assert_eq!(
        Results { cases: Vec::new(), left_out: 3 }.text(),
        "3 not run, after the first failure\n0 passed, 0 failed\n"
    );
}

#[test]
fn a_case_that_could_not_run_is_an_error_and_no_failure_in_every_format() {
    let error = || Verdict::Error("No space left on device".into());
    let cases = vec![
        result("a.scn", "", Backend::Model, Verdict::Passed),
        result("a.scn", "", Backend::Local, error()),
        result("b.scn", "", Backend::Local, error()),
    ];
    let results = Results { cases, left_out: 0 };
    assert_eq!(
        results.text(),
        "2 could not run on local: No space left on device\n1 passed, 0 failed, 2 could not run\n"
    );
    let junit = results.junit();
    assert!(junit.contains("failures=\"0\" errors=\"2\""), "{junit}");
    assert_eq!(elements(&junit, b"error").len(), 2, "{junit}");
    let tap = results.tap();
    assert!(
        tap.contains("not ok 2 - a.scn on local\n  ---\n  message: \"No space left on device\"\n"),
        "{tap}"
    );
    let json = results.json();
    assert_eq!((&json["failed"], &json["errors"], &json["divergences"]), (&0.into(), &2.into(), &json!([])));
    let read: Vec<CaseResult> = serde_json::from_value(json["results"].clone()).expect("its own form");
    assert_eq!(read, results.cases);
}

#[test]
fn long_lists_are_cut_and_say_so() {
    let case = |number: usize| result("a.scn", &format!("n={number}"), Backend::Model, failed(1, "wrong"));
    let mut results = Results { cases: (0..FAILURES_SHOWN_MAX + 2).map(case).collect(), left_out: 0 };
    assert!(results.text().contains("\nand 2 more failures\n"), "{}", results.text());
    let mut passed = result("a.scn", "", Backend::Model, Verdict::Passed);
    passed.unchecked = (1..=PLACES_SHOWN_MAX as u32 + 3).map(|line| (line, "why".into())).collect();
    results.cases = vec![passed];
    assert!(results.text().contains("a.scn:8 and 3 more lines\n"), "{}", results.text());
}

#[test]
fn programs_read_json() {
    let json = some().json();
    assert_eq!((&json["passed"], &json["failed"], &json["skipped"]), (&2.into(), &3.into(), &2.into()));
    let results = json["results"].as_array().expect("a list");
    assert_eq!(results.len(), 7);
    assert_eq!(
        results[3].to_string(),
        "{\"backend\":\"link\",\"case\":\"value=5\",\"duration_ms\":2.0,\"file\":\"b#1.scn\",\"line\":7,\
         \"reason\":null,\"source\":\"p  signal D F=1 -> ok\",\"title\":\"a title\",\"trace\":\"t/b#1.value=5.link.gvt\",\"unchecked\":[],\
         \"verdict\":\"failed\",\"what\":\"expected <ok>, found: \\\"no\\\"\"}"
    );
    assert_eq!(results[0]["unchecked"][1]["line"], 9);
    assert_eq!(json["divergences"][0]["failed"][0], "link");
}

#[test]
fn junit_reads_back_with_the_same_counts() {
    let junit = some().junit();
    assert_eq!(sums(&junit, b"testsuites"), [["gpupv scenario", "7", "3", "2"]]);
    let suites = [["model", "3", "1", "0"], ["link", "2", "2", "0"], ["local", "2", "0", "2"]];
    assert_eq!(sums(&junit, b"testsuite"), suites);
    assert_eq!(elements(&junit, b"testcase").len(), 7);
    let failures = elements(&junit, b"failure");
    assert_eq!(failures.len(), 3);
    let has_text = |failure: &Vec<(String, String)>| failure[0].1.contains("expected <ok>, found: \"no\"");
    assert!(failures.iter().any(has_text), "escaped and back: {failures:?}");
    assert_eq!(elements(&junit, b"skipped").len(), 2);
    assert!(junit.contains("a.scn:9 not checked: this backend has no messages to count"), "{junit}");
}

/// Returns the attributes of every element of this name.
fn elements(xml: &str, tag: &[u8]) -> Vec<Vec<(String, String)>> {
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut found = Vec::new();
    loop {
        match reader.read_event().expect("it is well-formed XML") {
            Event::Eof => return found,
            Event::Start(element) | Event::Empty(element) if element.name().as_ref() == tag => {
                let read = element.attributes().map(|attribute| {
                    let attribute = attribute.expect("it is well-formed XML");
                    let name = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
                    (
                        name,
                        attribute
                            .normalized_value(quick_xml::XmlVersion::Implicit1_0)
                            .expect("it is escaped well")
                            .into_owned(),
                    )
                });
                found.push(read.collect());
            }
            _ => {}
        }
    }
}

/// Returns name, tests, failures and skipped of every element of this name.
fn sums(xml: &str, tag: &[u8]) -> Vec<[String; 4]> {
    let sum = |attributes: &Vec<(String, String)>| {
        ["name", "tests", "failures", "skipped"].map(|attribute| {
            let found = attributes.iter().find(|(name, _)| name == attribute);
            found.expect("a sum has it").1.clone()
        })
    };
    elements(xml, tag).iter().map(sum).collect()
}

#[test]
fn tap_has_a_plan_and_a_point_for_each_result() {
    let expected = r#"TAP version 14
1..7
ok 1 - a.scn on model
  ---
  unchecked:
    - line: 9
      reason: "this backend has no messages to count"
    - line: 9
      reason: "this backend has no messages to count"
  ...
ok 2 - a.scn on local # SKIP a stream cannot be held here
ok 3 - b\#1.scn [value=5] on model
not ok 4 - b\#1.scn [value=5] on link
  ---
  message: "expected <ok>, found: \"no\""
  at:
    file: "b#1.scn"
    line: 7
  source: "p  signal D F=1 -> ok"
  ...
ok 5 - b\#1.scn [value=6] on local # SKIP a stream cannot be held here
not ok 6 - c.scn on model
  ---
  message: "something is left"
  at:
    file: "c.scn"
    line: 0
  ...
not ok 7 - c.scn on link
  ---
  message: "something is left"
  at:
    file: "c.scn"
    line: 0
  ...
"#;
    assert_eq!(some().tap(), expected);
}

/// The results of `some`, each case as if it were a file, in a part of its own.
fn parts() -> (SuiteReport, Vec<SuiteReport>) {
    let results = some();
    let chunks: Vec<Vec<CaseResult>> = results.by_case().map(<[CaseResult]>::to_vec).collect();
    let backends = vec![Backend::Model, Backend::Link, Backend::Local];
    let planned = chunks.len() as u64;
    let part = |files, results| SuiteReport {
        commit: "0123abc".into(),
        digest: 7,
        backends: backends.clone(),
        planned,
        files,
        results,
    };
    let whole = part(0..planned, results);
    let parts = (0..).zip(chunks).map(|(at, cases)| part(at..at + 1, Results { cases, left_out: 0 }));
    (whole, parts.collect())
}

#[test]
fn parts_of_a_run_are_merged_through_json_in_any_order() {
    let (whole, mut parts) = parts();
    parts.reverse();
    let read: Vec<SuiteReport> = serde_json::from_value(serde_json::json!(parts)).expect("their own form");
    assert_eq!(merge_suites(read).expect("they fit"), whole);
    assert_eq!(merge_suites(vec![whole.clone()]).expect("it is whole"), whole);
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let (_, parts) = parts();
    assert!(parts.len() >= 4, "a gap needs parts around it");
    let without = |left_out: &[usize]| {
        let kept = (0..parts.len()).filter(|at| !left_out.contains(at)).map(|at| parts[at].clone());
        merge_suites(kept.collect()).unwrap_err().to_string()
    };
    assert_eq!(without(&[0, 2]), "files 0, 2 are missing: add the report of their shard");
    assert_eq!(without(&[parts.len() - 1]), "files 3 are missing: add the report of their shard");
    let with = |part: SuiteReport| {
        let all = [parts.clone(), vec![part]].concat();
        merge_suites(all).unwrap_err().to_string()
    };
    let last = parts[parts.len() - 1].clone();
    assert_eq!(with(last.clone()), "file 3 is in two reports");
    assert!(with(SuiteReport { commit: "fedcba9".into(), ..last.clone() }).contains("different code"));
    assert!(with(SuiteReport { digest: 8, ..last.clone() }).contains("different scenarios"));
    assert!(with(SuiteReport { backends: vec![], ..last.clone() }).contains("different backends"));
    assert_eq!(merge_suites(vec![]), Err(Mismatch::Nothing));
    for (pointer, value) in [
        ("/commit", serde_json::json!(1)),
        ("/files/end", serde_json::json!(-1)),
        ("/backends/0", serde_json::json!("no such backend")),
        ("/results/results/0/verdict", serde_json::json!("perhaps")),
        ("/results/results/0/duration_ms", serde_json::json!(-1.0)),
        ("/results/results/0/line", serde_json::json!(u64::MAX)),
    ] {
        let mut json = serde_json::json!(last);
        *json.pointer_mut(pointer).expect("it is there") = value;
        assert!(serde_json::from_value::<SuiteReport>(json).is_err(), "{pointer}");
    }
}
