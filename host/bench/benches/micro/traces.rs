//! Recording, reading and replaying, for traces of a million steps.

#[path = "../../../trace/tests/hot/mod.rs"]
mod hot;
#[path = "../../../trace/tests/common/traffic.rs"]
mod traffic;

use std::hint::black_box;
use std::path::{Path, PathBuf};

use divan::Bencher;
use divan::counter::ItemsCount;
use drivers::Registry;
use dxgkrnl::{Config, Effects, Input};
use hot::{KINDS, StepHook, time};
use tempfile::TempDir;
use trace::{Next, Player, Reader, Recorder, Step};
use traffic::{Rounds, Traffic};

const STEPS: u64 = 1_000_000;
const NAMES: [&str; 4] = [KINDS[0].0, KINDS[1].0, KINDS[2].0, KINDS[3].0];
const SESSIONS: [&str; 3] = ["signals of one fence", "signals of 500 fences", "waits and their signals"];

fn kind(name: &str) -> StepHook {
    KINDS.iter().find(|(known, _)| *known == name).expect("a kind of NAMES").1
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bench.gvt");
    (folder, path)
}

fn record(path: &Path, make: StepHook) {
    let mut recorder = Recorder::create(path, &Config::default(), "bench").expect("a trace");
    let (mut input, mut effects) = (Input::Deadline, Effects::default());
    for step in 1..=STEPS {
        make(step, &mut input, &mut effects);
        recorder.begin(time(step), black_box(&input)).expect("a step");
        recorder.end(black_box(&effects)).expect("its effects");
    }
    recorder.finish(0).expect("the end");
}

/// A recording of the kernel; returns the number of its steps.
fn record_session(path: &Path, name: &str) -> u64 {
    let (fences, count, make): (u32, u64, Rounds) = match name {
        "signals of one fence" => (1, STEPS, Traffic::signals),
        "signals of 500 fences" => (500, STEPS, Traffic::signals),
        _ => (8, STEPS / 2, Traffic::waits),
    };
    let mut recorder = Recorder::create(path, &Config::default(), "bench").expect("a trace");
    let mut traffic = Traffic::new(&mut recorder, fences);
    make(&mut traffic, &mut recorder, 0..count);
    traffic.finish(recorder)
}

/// Making the steps, which is a part of `recorded`.
#[divan::bench(args = NAMES, sample_count = 9)]
fn made(bencher: Bencher, name: &str) {
    let make = kind(name);
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| {
        let (mut input, mut effects) = (Input::Deadline, Effects::default());
        for step in 1..=STEPS {
            make(step, &mut input, &mut effects);
            black_box((&input, &effects));
        }
    });
}

#[divan::bench(args = NAMES, sample_count = 9)]
fn recorded(bencher: Bencher, name: &str) {
    let (_folder, path) = folder();
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| record(&path, kind(name)));
}

#[divan::bench(args = NAMES, sample_count = 9)]
fn read(bencher: Bencher, name: &str) {
    let (_folder, path) = folder();
    record(&path, kind(name));
    bencher.counter(ItemsCount::new(STEPS)).bench_local(|| {
        let (mut reader, mut step) = (Reader::open(&path).expect("a trace"), Step::default());
        while !matches!(reader.next_into(&mut step).expect("a record"), Next::End) {
            black_box(&step);
        }
        assert!(reader.ended());
    });
}

#[divan::bench]
fn step_found(bencher: Bencher) {
    let (_folder, path) = folder();
    record_session(&path, SESSIONS[1]);
    let (mut reader, mut part) = (Reader::open(&path).expect("a trace"), 0);
    bencher.bench_local(|| {
        part = (part + 37) % 100;
        reader.seek(1 + part * (STEPS / 100)).expect("a step");
        reader.next().expect("a step").expect("it is complete");
    });
}

/// Opens a trace and restores the state at a step, as `gpupv replay --step` and `gpupv why --at` do.
#[divan::bench(args = SESSIONS)]
fn state_restored(bencher: Bencher, name: &str) {
    let (_folder, path) = folder();
    let (steps, mut part) = (record_session(&path, name), 0);
    bencher.bench_local(|| {
        part = (part + 7) % 23;
        let wanted = (part + 1) * steps / 23;
        let reader = Reader::open(&path).expect("a trace");
        let mut player = Player::new(reader, &Registry::default()).expect("a kernel");
        let difference = player.go_to(wanted).expect("a step");
        assert!(difference.is_none() && player.next() == wanted);
    });
}

#[divan::bench(args = SESSIONS, sample_count = 9)]
fn replayed(bencher: Bencher, name: &str) {
    let (_folder, path) = folder();
    let steps = record_session(&path, name);
    bencher.counter(ItemsCount::new(steps)).bench_local(|| {
        let report = trace::replay(&path, &Registry::default(), &mut |_, _| {}).expect("a trace");
        assert!(report.agrees() && report.steps == steps, "{report}");
    });
}
