//! Tests of work that is shared among misbehaving runners.

use std::path::Path;

use daemon::Options;
use dxgkrnl::PlantedBug;
use scenario::explore::{Class, Found, Histogram, Make, ModelBackend, Report};
use scenario::model::ModelWorld;
use scenario::report::{CaseResult, Results, SuiteReport};
use scenario::run::{Failure, Verdict};
use scenario::script::parse;
use scenario::{Backend, Ended, Program};

use crate::commands::scenario::ChosenCases;
use crate::commands::scenario::backends::{BackendRunner, provide};
use crate::commands::scenario::explore::{SeededBackend, check_canary};
use crate::commands::scenario::explored::{Exploration, Explored, Skipped};
use crate::commands::scenario::files::ScenarioFile;
use crate::commands::scenario::ranges::Shard;
use crate::commands::scenario::report_file::{Content, ReportFile};
use crate::commands::scenario::work::{Work, run_all};
use crate::output::Progress;

const CASES: usize = 40;

/// Cases `n=0` to `n=39`; every tenth from 7 on fails.
fn file() -> ScenarioFile {
    let values: Vec<String> = (0..CASES).map(|value| value.to_string()).collect();
    let text = format!(
        "scenario \"numbers\"\nmatrix n = {}\ngiven more = 1 when n is 7 17 27 37\ngiven more = 0 otherwise\n\
         process p\np  D = device -> ok\np  F = fence D initial=$more -> ok\nexpect F = 0\n",
        values.join(" ")
    );
    let programs = parse(&text).expect("it is sound");
    ScenarioFile { name: "numbers.scn".into(), text, programs }
}

/// A runner that panics in one case and runs the others.
struct Fragile {
    inner: Box<dyn BackendRunner + Send>,
}

impl BackendRunner for Fragile {
    fn run(&mut self, program: &Program, record: Option<&Path>) -> Ended {
        assert!(program.case != "n=12", "no {}", program.case);
        self.inner.run(program, record)
    }
}

fn fragile(jobs: usize, fail_fast: bool) -> Vec<CaseResult> {
    let file = file();
    let cases: Vec<Work<'_>> = file.programs.iter().map(|program| Work { file: &file, program }).collect();
    let runners = provide(Backend::Model, jobs, std::iter::empty(), &Options::default())
        .expect("the model backend is always there");
    let runners =
        runners.into_iter().map(|inner| Box::new(Fragile { inner }) as Box<dyn BackendRunner + Send>);
    run_all(Backend::Model, runners.collect(), &cases, None, fail_fast, &Progress::new("testing", 0))
}

fn without_durations(mut results: Vec<CaseResult>) -> Vec<CaseResult> {
    results.iter_mut().for_each(|result| result.duration = std::time::Duration::ZERO);
    results
}

#[test]
fn a_panic_fails_its_case_and_no_other() {
    let results = Results { cases: fragile(2, false), left_out: 0 };
    let counts = results.counts();
    assert_eq!((counts.passed, counts.failed), (CASES - 5, 5));
    let text = results.text();
    assert!(text.contains("numbers.scn: the model backend panicked: no n=12 (host/gpupv/"), "{text}");
    assert!(text.contains("numbers.scn:8: ") && text.contains("  8 | expect F = 0\n"), "{text}");
}

/// A backend that ignores planted bugs: its checkers detect nothing.
struct Blind;

impl Make for Blind {
    type World<'a> = ModelWorld<'a>;

    fn make<'a>(&'a self, program: &'a Program, _planted: Option<PlantedBug>, _: u64) -> ModelWorld<'a> {
        ModelWorld::new(program, None)
    }
}

/// An error ends with status 2: a cluster starts the shard again. Status 1 would mean that it has done its work.
#[test]
fn blind_checkers_are_an_error_and_no_failed_verdict() {
    check_canary(&ModelBackend::default(), SeededBackend::Model).expect("they see");
    let error = format!("{:#}", check_canary(&Blind, SeededBackend::Link).expect_err("nothing is seen"));
    assert!(
        error.contains("nothing was explored on link") && error.contains("planted bug lost-wake"),
        "{error}"
    );
}

#[test]
fn results_are_the_same_for_any_number_of_jobs() {
    for fail_fast in [false, true] {
        let one = without_durations(fragile(1, fail_fast));
        assert_eq!(one.len(), if fail_fast { 8 } else { CASES });
        for jobs in [2, 7] {
            assert_eq!(without_durations(fragile(jobs, fail_fast)), one, "{jobs} jobs");
        }
    }
}

/// The text of reports, which other versions wrote and read.
const EXPLORED: &str = include_str!("fixtures/explored.json");
const SUITE: &str = include_str!("fixtures/suite.json");

fn explored() -> ReportFile {
    let counts = |counts: &[(&str, u64)]| -> Histogram {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    let first = Found {
        seed: 7,
        class: Class::LostWake,
        what: "lost wake: a wait of process 1 is asleep".into(),
        shrunk: "scenario \"x\"\nprocess p\n".into(),
        shrunk_seed: 8,
        so_far: counts(&[("passed", 7), ("lost wake", 1)]),
    };
    let second = Found {
        seed: 9,
        class: Class::Backend,
        what: "the backend failed".into(),
        shrunk: String::new(),
        shrunk_seed: 9,
        so_far: counts(&[("passed", 8), ("lost wake", 1), ("backend", 1)]),
    };
    let report = Report {
        commit: "0123456789ab".into(),
        digest: u64::MAX,
        seeds: 0..50,
        planned: 0..100,
        seeds_run: 50,
        stop_after: 3,
        failures: vec![first, second],
        histogram: counts(&[("passed", 48), ("lost wake", 1), ("backend", 1)]),
    };
    let command = "gpupv scenario explore --random --backend link".into();
    let skipped = Skipped {
        subject: "a.scn [n=1]".into(),
        command: "gpupv scenario explore a.scn".into(),
        digest: 9,
        backend: Backend::Vm,
        reason: "it has no clock".into(),
    };
    let explored = vec![Explored { subject: "random".into(), command, report }];
    let content = Content::Explored(Exploration { explored, skipped: vec![skipped] });
    ReportFile { shard: Some(Shard { part: 0, parts: 2 }), content }
}

fn suite() -> ReportFile {
    let result = |file: &str, case: &str, backend, verdict, micros| CaseResult {
        file: file.into(),
        case: case.into(),
        title: file[..1].to_uppercase(),
        backend,
        verdict,
        unchecked: Vec::new(),
        source: None,
        trace: None,
        duration: std::time::Duration::from_micros(micros),
    };
    let failure = Failure { line: 7, what: "F is 1, not 2".into() };
    let mut cases = vec![
        result("a.scn", "n=1", Backend::Model, Verdict::Passed, 1500),
        result("a.scn", "n=1", Backend::Link, Verdict::Failed(failure), 250),
        result("b.scn", "", Backend::Vm, Verdict::Skipped("it has no VM".into()), 0),
    ];
    cases[0].unchecked = vec![(4, "no frames".into())];
    cases[1].source = Some("expect F = 2".into());
    let suite = SuiteReport {
        commit: "0123456789ab".into(),
        digest: 7,
        backends: Backend::ALL.into(),
        planned: 3,
        files: 1..3,
        results: Results { cases, left_out: 2 },
    };
    ReportFile { shard: None, content: Content::Suite(suite) }
}

#[test]
fn reports_have_the_text_that_other_versions_write_and_read() {
    for (report, text) in [(explored(), EXPLORED), (suite(), SUITE)] {
        assert_eq!(report.text(), text);
        assert_eq!(ReportFile::from_text(text.as_bytes()).expect("its own form"), report);
    }
}

#[test]
fn reports_of_older_and_newer_versions_are_read() {
    let older = EXPLORED.replace(r#""class": "backend""#, r#""class": "arm""#);
    assert_eq!(ReportFile::from_text(older.as_bytes()).expect("version 0.1"), explored());
    for (text, report) in [(EXPLORED, explored()), (SUITE, suite())] {
        let newer = text.replace(r#""commit":"#, r#""new": [1], "commit":"#);
        assert_eq!(ReportFile::from_text(newer.as_bytes()).expect("one field more"), report);
    }
}

#[test]
fn other_files_are_no_reports() {
    for (text, expected) in [
        ("{}", "\"reports\" or \"suite\" is missing"),
        ("[]", "\"reports\" or \"suite\" is missing"),
        (r#"{"reports": [], "shard": {"part": 2, "parts": 2}}"#, "\"shard\" is none"),
        (r#"{"reports": [], "skipped": []}"#, "no case was explored by seed or skipped"),
    ] {
        let error = format!("{:#}", ReportFile::from_text(text.as_bytes()).unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
    }
    for (wrong, right) in
        [(r#""class": "perhaps""#, r#""class": "backend""#), (r#""seed": -1"#, r#""seed": 7"#)]
    {
        assert!(ReportFile::from_text(EXPLORED.replace(right, wrong).as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn a_case_is_chosen_by_its_name_and_others_by_a_part_of_it() {
    let text = "scenario \"v=1 and v=10\"\nmatrix v = 1 10 2\nprocess p\np  D = device -> ok\n\
                p  F = fence D initial=$v -> ok\n";
    let programs = parse(text).expect("it is sound");
    let chosen = |text: Option<&str>| -> Vec<&str> {
        let chosen = ChosenCases::new(text, &programs);
        programs.iter().filter(|program| chosen.has(program)).map(|program| program.case.as_str()).collect()
    };
    assert_eq!(chosen(Some("v=1")), ["v=1"]);
    assert_eq!(chosen(Some("=2")), ["v=2"]);
    assert_eq!(chosen(Some("and")), ["v=1", "v=10", "v=2"]);
    assert_eq!(chosen(None).len(), 3);
    assert!(chosen(Some("v=3")).is_empty());
}

#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    run: crate::commands::scenario::run_files::RunArgs,
}

#[test]
fn a_run_that_cannot_start_leaves_no_results_of_an_earlier_one() {
    use clap::Parser as _;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let words = ["run", "--backend", "model", "--report"].map(std::ffi::OsString::from);
    let words = words.into_iter().chain([path("r.json").into(), "--junit".into(), path("r.xml").into()]);
    let args = CommandLine::parse_from(words.chain([path("s.scn").into()])).run;
    let run = || crate::commands::scenario::run_files::run(&args, &drivers::Registry::default());
    let sound = "scenario \"s\"\nprocess p\np  D = device -> ok\n";
    std::fs::write(path("s.scn"), sound).expect("the file is written");
    assert_eq!(run().expect("it passes"), crate::output::OK);
    assert!(ReportFile::read(&path("r.json")).is_ok());
    std::fs::write(path("s.scn"), format!("{sound}p  D = bad -> ok\n")).expect("the file is written");
    assert!(run().is_err());
    assert!(!path("r.json").exists());
    assert!(!path("r.xml").exists());
}
