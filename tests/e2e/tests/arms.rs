//! One file, one verdict: the whole corpus on every arm.

use std::path::{Path, PathBuf};

use gpupv::output::Steps;
use gpupv::stage::LocalArm;
use scenario::choose::First;
use scenario::link::LinkWorld;
use scenario::run::run;
use scenario::{Ended, Program, Verdict};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "scn") {
            found.push(path);
        }
    }
}

fn corpus() -> Vec<(PathBuf, Program)> {
    let mut found = Vec::new();
    files(&e2e::programs::tree().join("tests/scenarios"), &mut found);
    found.sort();
    let read = |path: PathBuf| {
        let programs =
            scenario::script::parse_bytes(&std::fs::read(&path).expect("a file")).expect("a scenario");
        programs.into_iter().map(move |program| (path.clone(), program))
    };
    found.into_iter().flat_map(read).collect()
}

fn all_pass(mut run: impl FnMut(&Program) -> Ended) {
    let mut failures = Vec::new();
    let mut count = 0;
    let begin = std::time::Instant::now();
    for (path, program) in corpus() {
        count += 1;
        if let Verdict::Failed(failure) = run(&program).verdict {
            failures.push(format!("{} {}: {failure}", path.display(), program.case));
        }
    }
    println!("{count} cases in {:?}", begin.elapsed());
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn link() {
    all_pass(|program| run(program, &mut LinkWorld::new(program, None, 0), &mut First));
}

#[test]
fn local() {
    let arm = LocalArm::new(&Steps::new()).unwrap();
    all_pass(|program| arm.run(program).unwrap());
}

#[test]
fn guests() {
    let programs: Vec<Program> = corpus().into_iter().map(|(_, program)| program).collect();
    let mut arm = gpupv::stage::VmArm::boot(&programs, &Steps::new()).unwrap();
    all_pass(|program| arm.run(program).unwrap());
}
