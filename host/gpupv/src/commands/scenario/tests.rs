//! Tests of work that is shared among misbehaving runners.

use daemon::Options;
use dxgkrnl::PlantedBug;
use scenario::explore::{Make, ModelBackend};
use scenario::model::ModelWorld;
use scenario::report::{CaseResult, Results};
use scenario::script::parse;
use scenario::{Backend, Ended, Program};

use crate::commands::scenario::backends::{BackendRunner, provide};
use crate::commands::scenario::explore::{SeededBackend, check_canary};
use crate::commands::scenario::files::ScenarioFile;
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
    fn run(&mut self, program: &Program) -> Ended {
        assert!(program.case != "n=12", "no {}", program.case);
        self.inner.run(program)
    }
}

fn fragile(jobs: usize, fail_fast: bool) -> Vec<CaseResult> {
    let file = file();
    let cases: Vec<Work<'_>> = file.programs.iter().map(|program| Work { file: &file, program }).collect();
    let runners = provide(Backend::Model, jobs, std::iter::empty(), &Options::default())
        .expect("the model backend is always there");
    let runners =
        runners.into_iter().map(|inner| Box::new(Fragile { inner }) as Box<dyn BackendRunner + Send>);
    run_all(Backend::Model, runners.collect(), &cases, fail_fast, &Progress::new("testing", 0))
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
