//! Records of times: a reader that does not request them reads the same trace as without.

use crate::common;
use crate::hot;

use std::path::Path;

use common::{RECORDING, reader, recorder, steps};
use dxgkrnl::{Config, Effects, Input};
use hot::{KINDS, time};
use trace::{Durable, Reader, Record, Recorder, Recording, Times, Woken, verify};

/// Two blocks of repeated waits, signals and wakes; with times many more blocks.
const STEPS: u64 = 12_000;
const PAIR: usize = 2;

fn times_of(step: u64) -> Times {
    let at = 1_000_000_000 + step * 1700;
    let woken = Woken { event: step, host_ns: at - 9, read_ns: at - 5, ran_ns: at - 3 };
    Times {
        step,
        process: 1 + (step % 2) as u32,
        clock: (step % 3) as u32,
        called_ns: at,
        sent_ns: at + 1,
        awake_ns: at + 2,
        read_ns: at + 3,
        recorded_ns: at + 4,
        handled_ns: at + 5,
        stored_ns: u64::MAX - step,
        received: (!step.is_multiple_of(5)).then_some((at - 7, u64::MAX)),
        woken: vec![woken; (step % 4) as usize],
    }
}

fn record_steps(recorder: &mut Recorder, range: std::ops::RangeInclusive<u64>, with_times: bool) {
    let (mut input, mut effects) = (Input::Deadline, Effects::default());
    for step in range {
        KINDS[PAIR].1(step, &mut input, &mut effects);
        recorder.begin(time(step), &input).unwrap();
        recorder.end(&effects).unwrap();
        if with_times {
            recorder.times(&times_of(step)).unwrap();
        }
    }
}

fn read(path: &Path) -> (Vec<Record>, Vec<Times>) {
    let (mut records, mut times) = (Vec::new(), Vec::new());
    for record in Reader::open(path).unwrap().with_times() {
        match record.unwrap() {
            Record::Times(one) => times.push(one),
            other => records.push(other),
        }
    }
    (records, times)
}

#[test]
fn times_are_read_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let traces = [("with.gvt", true), ("without.gvt", false)].map(|(name, with_times)| {
        let path = folder.path().join(name);
        let mut recorder = recorder(&path, &Config::default());
        record_steps(&mut recorder, 1..=STEPS, with_times);
        recorder.finish(7).unwrap();
        path
    });
    let [with, without] = traces.each_ref().map(|path| std::fs::read(path).unwrap());
    assert_eq!(steps(&with), steps(&without));
    let found = verify(reader(&with).unwrap()).unwrap();
    assert!(found.is_whole() && found.skipped == 0, "{found}");
    let (records, times) = read(&traces[0]);
    assert_eq!(records, read(&traces[1]).0, "the same but for times");
    assert_eq!(times, (1..=STEPS).map(times_of).collect::<Vec<_>>());
    assert_eq!(read(&traces[1]).1, []);
}

#[test]
fn times_that_come_when_no_block_is_open_are_in_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let recording = Recording { durable: Durable::Block, ..RECORDING };
    let mut recorder = Recorder::create_as(&path, &Config::default(), "test", recording).unwrap();
    for step in 1..=10 {
        record_steps(&mut recorder, step..=step, false);
        recorder.flush().unwrap();
        recorder.times(&times_of(step)).unwrap();
    }
    // The last times have no step after them.
    let times_of_last = Times { step: 0, ..times_of(11) };
    recorder.times(&times_of_last).unwrap();
    assert_eq!(recorder.finish(7).unwrap(), 10);
    let (records, times) = read(&path);
    assert_eq!(records.len(), 11);
    let expected: Vec<_> = (1..=10).map(times_of).chain([times_of_last]).collect();
    assert_eq!(times, expected);
    let found = verify(Reader::open(&path).unwrap()).unwrap();
    assert!(found.is_whole() && found.steps == 10, "{found}");
}

#[test]
fn times_of_the_open_block_outlive_the_recorder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let mut recorder = recorder(&path, &Config::default());
    record_steps(&mut recorder, 1..=20, true);
    // As after SIGKILL: nothing is closed.
    std::mem::forget(recorder);
    let (records, times) = read(&path);
    assert_eq!(records.len(), 20);
    assert_eq!(times, (1..=20).map(times_of).collect::<Vec<_>>());
}

/// A process that reports times without calls fills one block, and at most one more until the next step.
#[test]
fn times_without_steps_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let mut recorder = recorder(&path, &Config::default());
    record_steps(&mut recorder, 1..=1, true);
    for step in 2..100_000 {
        recorder.times(&times_of(step)).unwrap();
    }
    record_steps(&mut recorder, 2..=2, true);
    recorder.finish(7).unwrap();
    let (records, times) = read(&path);
    assert_eq!(records.len(), 3);
    assert!((200..5000).contains(&times.len()), "{}", times.len());
    assert_eq!(times.last(), Some(&times_of(2)), "the next step's are there");
    assert!(std::fs::metadata(&path).unwrap().len() < 3 * 65536, "three blocks");
}
