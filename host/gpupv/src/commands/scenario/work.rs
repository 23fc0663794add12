//! Distributes the cases of a run among runners. Results are in the order of the work, whatever the number of jobs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use scenario::report::CaseResult;
use scenario::world::declared_skip;
use scenario::{Backend, Failure, Program, Verdict};

use crate::commands::scenario::backends::BackendRunner;
use crate::commands::scenario::files::ScenarioFile;
use crate::commands::scenario::panics;
use crate::commands::scenario::trace_folder::TraceFolder;
use crate::output::Progress;

/// A case to run.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub file: &'a ScenarioFile,
    pub program: &'a Program,
}

/// Runs every case on one backend, recorded into traces if there is a folder for them. With `fail_fast` the cases after the first failure, in the order of the work, are
/// omitted.
pub fn run_all(
    backend: Backend,
    runners: Vec<Box<dyn BackendRunner + Send>>,
    cases: &[Work<'_>],
    traces: Option<&TraceFolder>,
    fail_fast: bool,
    progress: &Progress,
) -> Vec<CaseResult> {
    let next = AtomicUsize::new(0);
    // Index from which results are omitted.
    let end = AtomicUsize::new(cases.len());
    let run_some = |mut runner: Box<dyn BackendRunner + Send>| {
        let mut results = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= end.load(Ordering::Relaxed) {
                return results;
            }
            let result = run_one(backend, runner.as_mut(), cases[at], traces);
            if fail_fast && result.has_failed() {
                end.fetch_min(at + 1, Ordering::Relaxed);
            }
            results.push((at, result));
            progress.add();
        }
    };
    let mut results: Vec<(usize, CaseResult)> = std::thread::scope(|scope| {
        let jobs: Vec<_> = runners.into_iter().map(|runner| scope.spawn(|| run_some(runner))).collect();
        jobs.into_iter().flat_map(|job| job.join().expect("panics of backends are caught")).collect()
    });
    results.sort_by_key(|(at, _)| *at);
    results.truncate(end.load(Ordering::Relaxed));
    results.into_iter().map(|(_, result)| result).collect()
}

fn run_one(
    backend: Backend,
    runner: &mut dyn BackendRunner,
    work: Work<'_>,
    traces: Option<&TraceFolder>,
) -> CaseResult {
    let Work { file, program } = work;
    let path = traces.map(|traces| traces.path(work, backend));
    let begin = Instant::now();
    let (verdict, unchecked) = match declared_skip(program, backend) {
        Some(reason) => (Verdict::Skipped(reason.into()), Vec::new()),
        None => match panics::catch(|| runner.run(program, path.as_deref())) {
            Ok(ended) => {
                let unchecked = ended.unchecked.into_iter().map(|(line, reason)| (line, reason.into()));
                (ended.verdict, unchecked.collect())
            }
            Err(message) => {
                let what = format!("the {} backend panicked: {message}", backend.name());
                (Verdict::Failed(Failure { line: 0, what }), Vec::new())
            }
        },
    };
    let source = match &verdict {
        Verdict::Failed(failure) => file.line(failure.line),
        Verdict::Passed | Verdict::Skipped(_) | Verdict::Error(_) => None,
    };
    // Without a verdict, the file may be one of an earlier run.
    let trace = match verdict {
        Verdict::Passed | Verdict::Failed(_) => path.filter(|path| path.exists()),
        Verdict::Skipped(_) | Verdict::Error(_) => None,
    };
    CaseResult {
        file: file.name.clone(),
        case: program.case.clone(),
        title: program.title.clone(),
        backend,
        verdict,
        unchecked,
        source,
        trace: trace.map(|path| path.display().to_string()),
        duration: begin.elapsed(),
    }
}
