//! Drivers and scenarios of these tests.
#![allow(dead_code, reason = "not each test uses all of it")]

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use drivers::Registry;
use dxgkrnl::{Effects, Input, Nanos};
use sample_kmd_c::{build, provide_driver_host};
use scenario::choose::First;
use scenario::model::ModelWorld;
use scenario::run::run;
use scenario::script::parse;
use scenario::world::World as _;
use scenario::{Program, Verdict};

/// The sample driver's scenarios.
pub const SAMPLE: [&str; 8] = [
    include_str!("../submit.scn"),
    include_str!("../cpu_events.scn"),
    include_str!("../hw_queue.scn"),
    include_str!("../timeout.scn"),
    include_str!("../faults.scn"),
    include_str!("../allocations.scn"),
    include_str!("../limits.scn"),
    include_str!("../ends.scn"),
];

/// Those of the driver in `native.c`.
pub const NATIVE: [&str; 5] = [
    include_str!("../native/fences.scn"),
    include_str!("../native/doorbells.scn"),
    include_str!("../native/frames.scn"),
    include_str!("../native/mapping.scn"),
    include_str!("../native/paging.scn"),
];

/// Two adapters, the first with a driver that fails.
pub const FAILS: &str = include_str!("../fails.scn");

/// Builds a driver once, however many tests want it at a time.
pub fn driver(name: &str, output: &str, flags: &[&str]) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    provide_driver_host().expect("driver-host is built");
    build(Path::new(env!("CARGO_TARGET_TMPDIR")), name, output, flags).expect("the driver is built")
}

pub fn sample() -> PathBuf {
    driver("sample", "sample", &[])
}

pub fn native() -> PathBuf {
    driver("native", "native", &[])
}

/// The programs of both drivers.
pub fn programs() -> Vec<Program> {
    let (sample, native) = (sample(), native());
    let sample = SAMPLE.iter().map(|text| program(text, &sample)).collect::<Vec<_>>();
    sample.into_iter().chain(NATIVE.iter().map(|text| program(text, &native))).collect()
}

pub fn program(text: &str, driver: &Path) -> Program {
    let path = driver.to_str().expect("the path is text");
    parse(&text.replace("\"DRIVER\"", &format!("\"{path}\"")))
        .unwrap_or_else(|error| panic!("{error:?}"))
        .remove(0)
}

pub fn passes_in_the_model<'a>(program: &'a Program, world: ModelWorld<'a>) -> ModelWorld<'a> {
    let mut world = world;
    let ended = run(program, &mut world, &mut First);
    assert_eq!(ended.verdict, Verdict::Passed, "{}", program.title);
    world
}

/// Records steps as a daemon would.
pub fn record(program: &Program, steps: &[(Nanos, Input, Effects)], digest: u64, path: &Path) {
    trace::record_steps(path, &program.setting.kernel, "test", steps, digest).expect("it is recorded");
}

/// Runs a program and replays its recording when the driver is gone. Returns the notes of the run.
pub fn replays_without_the_driver(program: &Program, driver: &Path) -> String {
    let mut world = passes_in_the_model(program, ModelWorld::new(program, None).recording());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.gvt");
    let digest = world.snapshot().digest();
    record(program, world.steps(), digest, &path);
    let notes = world.steps().iter().flat_map(|(_, _, effects)| &effects.notes).map(|note| note.text.clone());
    let notes = notes.collect::<Vec<_>>().join("\n");
    std::fs::remove_file(driver).expect("the driver is removed");
    let report = trace::replay(&path, &Registry::default(), &mut |_, _| {}).expect("the trace is read");
    assert!(matches!(report.verdict, trace::Verdict::Identical { .. }), "{}: {report:?}", program.title);
    notes
}
