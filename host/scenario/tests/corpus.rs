//! Runs the corpus under tests/scenarios on the model backend: every file, every case, every interleaving of a race.
//! Each allowed outcome must be reached.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use dxgkrnl::PlantedBug;
use scenario::choose::{Exhaustive, First};
use scenario::explore::{LinkBackend, chooser, crashes, failure, run_once};
use scenario::limits::INTERLEAVINGS_MAX;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::{parse_bytes, print};
use scenario::{Backend, Program, Verdict, from_trace};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios")
}

/// Returns the files of the corpus, by name.
fn files() -> Vec<PathBuf> {
    let mut folders = vec![corpus()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "scn") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Returns the programs of a file, or its errors.
fn programs(path: &Path) -> Result<Vec<Program>, String> {
    let bytes = fs::read(path).unwrap();
    parse_bytes(&bytes).map_err(|errors| {
        let text = String::from_utf8_lossy(&bytes);
        let name = path.display().to_string();
        errors.iter().map(|error| error.render(&name, &text)).collect::<Vec<_>>().join("\n")
    })
}

/// Whether a file may be skipped on the model backend: only if it says so.
fn says_skip_model(program: &Program) -> bool {
    program.not_on.iter().any(|(backend, _)| *backend == Backend::Model)
}

/// Runs a case; the error says what failed.
fn judge<'a>(program: &'a Program, world: fn(&'a Program) -> ModelWorld<'a>) -> Result<(), String> {
    let Some(race) = &program.race else {
        return match run(program, &mut world(program), &mut First).verdict {
            Verdict::Passed => Ok(()),
            Verdict::Skipped(_) if says_skip_model(program) => Ok(()),
            other => Err(format!("{other:?}")),
        };
    };
    let (mut every_way, mut reached, mut ways) = (Exhaustive::default(), BTreeSet::new(), 0);
    loop {
        let ended = run(program, &mut world(program), &mut every_way);
        match ended.verdict {
            Verdict::Passed => reached.extend(ended.outcomes),
            Verdict::Skipped(_) if says_skip_model(program) => return Ok(()),
            other => return Err(format!("way {ways}: {other:?}")),
        }
        ways += 1;
        assert!(ways < INTERLEAVINGS_MAX, "{}: too many ways", program.title);
        if !every_way.next_combination() {
            break;
        }
    }
    match (0..race.allowed.len()).find(|at| !reached.contains(at)) {
        None => Ok(()),
        Some(at) => Err(format!("allowed outcome {} is not reached in {ways} ways", at + 1)),
    }
}

/// Runs every case of the corpus on worlds of this kind.
fn corpus_passes(world: for<'a> fn(&'a Program) -> ModelWorld<'a>) {
    let (mut failures, mut cases) = (Vec::new(), 0);
    for path in files() {
        let name = path.strip_prefix(corpus()).unwrap().display().to_string();
        match programs(&path) {
            Err(errors) => failures.push(errors),
            Ok(programs) => {
                for program in &programs {
                    cases += 1;
                    // A panic is a bug: the message names the file that shows it.
                    let judged = catch_unwind(AssertUnwindSafe(|| judge(program, world)));
                    if let Err(why) = judged.unwrap_or_else(|_| Err("it panics, see above".into())) {
                        failures.push(format!("{name} [{}]: {why}", program.case));
                    }
                }
            }
        }
    }
    println!("{} files, {cases} cases", files().len());
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_case_of_the_corpus_passes_on_the_model_backend() {
    corpus_passes(|program| ModelWorld::new(program, None));
}

/// No result of the corpus depends on state that a saved kernel lacks.
#[test]
fn every_case_of_the_corpus_passes_over_a_kernel_that_is_restored_before_each_step() {
    corpus_passes(|program| ModelWorld::new(program, None).restoring());
}

/// The corpus is no search by seed, but each planted bug must fail at least one file.
#[test]
fn every_planted_bug_is_found_by_a_file() {
    for bug in PlantedBug::ALL {
        let files = files();
        let found = files.iter().filter(|path| {
            let cases = programs(path).unwrap_or_default();
            cases.iter().any(|case| {
                let verdict = run(case, &mut ModelWorld::new(case, Some(bug)), &mut First).verdict;
                matches!(verdict, Verdict::Failed(_))
            })
        });
        let found = found.count();
        println!("{}: found by {found} files", bug.name());
        assert!(found > 0, "{} passes", bug.name());
    }
}

#[test]
fn a_printed_case_parses_as_the_same_case() {
    for path in files() {
        for program in programs(&path).unwrap_or_default() {
            let printed = print(&program);
            let again = parse_bytes(printed.as_bytes());
            let again = again.unwrap_or_else(|errors| panic!("{}: {printed}\n{errors:?}", path.display()));
            assert_eq!(print(&again[0]), printed, "{}", path.display());
        }
    }
}

#[test]
fn titles_say_one_thing_each() {
    let mut titles = BTreeSet::new();
    for path in files() {
        let Ok(programs) = programs(&path) else { continue };
        let title = &programs[0].title;
        assert!(titles.insert(title.clone()), "{}: the title is taken: {title}", path.display());
        assert!(programs.iter().all(|program| &program.title == title));
    }
}

#[test]
fn every_file_holds_over_any_link_and_survives_a_crash_at_any_step() {
    let mut failures = Vec::new();
    for path in files() {
        for program in programs(&path).expect("they parse: another test says how not") {
            for seed in 1..5 {
                let over_link = (!program.not_on.iter().any(|(backend, _)| *backend == Backend::Link))
                    .then(|| program.clone());
                for program in over_link.into_iter().chain(crashes(&program, seed)) {
                    let ended = run_once(&LinkBackend::default(), &program, None, seed, &mut chooser(seed));
                    if let Some(failure) = failure(&ended) {
                        failures.push(format!(
                            "{}, seed {seed}: {failure}\n{}",
                            path.display(),
                            print(&program)
                        ));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures, the first: {}", failures.len(), failures[0]);
}

/// A recording of a case, converted to a scenario: every call has its recorded result, and every sleeping call sleeps.
#[test]
fn a_recording_of_every_case_is_a_scenario_that_passes() {
    let (mut failures, mut cases, mut whole) = (Vec::new(), 0, 0);
    for path in files() {
        let name = path.strip_prefix(corpus()).unwrap().display().to_string();
        for program in programs(&path).unwrap_or_default() {
            let mut world = ModelWorld::new(&program, None).recording();
            if run(&program, &mut world, &mut First).verdict != Verdict::Passed {
                continue;
            }
            let steps = world.steps().iter().map(|(now, input, effects)| (*now, input, effects));
            let from_trace::Converted { program: converted, omitted, .. } =
                from_trace::program(&program.title, &program.setting.kernel, steps);
            // Command lists have no line, and a folder of the corpus is about nothing else.
            if omitted.iter().any(|step| step.why.contains("a command buffer with more than")) {
                continue;
            }
            cases += 1;
            if !omitted.is_empty() || restarts(&program) {
                continue;
            }
            whole += 1;
            let text = print(&converted);
            let verdict = match parse_bytes(text.as_bytes()) {
                Ok(read) => run(&read[0], &mut ModelWorld::new(&read[0], None), &mut First).verdict,
                Err(errors) => {
                    failures.push(format!("{name} [{}]: {}", program.case, errors[0].render(&name, &text)));
                    continue;
                }
            };
            if verdict != Verdict::Passed {
                failures.push(format!("{name} [{}]: {verdict:?}\n{text}", program.case));
            }
        }
    }
    println!("{whole} of {cases} cases without command lists can be said whole");
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert!(whole * 10 >= cases * 9, "only {whole} of {cases} can be said whole");
}

/// Whether the program restarts the daemon, which replaces the kernel.
fn restarts(program: &Program) -> bool {
    let restart = |step: &scenario::program::Step| {
        matches!(step.action, scenario::program::Action::Fault(scenario::program::Fault::RestartDaemon))
    };
    program.steps.iter().any(restart)
}
