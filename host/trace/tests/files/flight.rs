//! Flight recorders: the last steps, complete from a snapshot on.

use crate::common;

use std::path::Path;

use common::session;
use dxgkrnl::{Config, Effects, Input, Kernel};
use kmd::SimulatedMiniport;
use session::Step;
use trace::{
    Player, PlayerStep, Reader, Record, Recorder, Recording, ReplayRange, Report, Verdict, replay_part,
    verify,
};

const RING_BYTES: usize = 1 << 19;

fn flight() -> Recorder {
    Recorder::in_memory(&Config::default(), "test 1.0", RING_BYTES).unwrap()
}

/// Records steps, with a state of this size whenever one is due. Returns the number of states.
fn record_steps(recorder: &mut Recorder, steps: &[Step], state_bytes: usize) -> usize {
    let mut snapshots = 0;
    for (at, step) in steps.iter().enumerate() {
        if state_bytes > 0 && recorder.snapshot_is_due() {
            recorder.snapshot(&vec![at as u8; state_bytes], at as u64).unwrap();
            snapshots += 1;
        }
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    snapshots
}

#[test]
fn a_dump_begins_with_a_snapshot_and_has_every_step_after_it() {
    let (steps, _) = session::run(41, Config::default(), 40_000);
    let mut recorder = flight();
    assert!(record_steps(&mut recorder, &steps, 1000) > 8);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.gvt");
    let count = recorder.dump(Some(77)).write(&path).unwrap();
    assert!((1000..40_000).contains(&count), "{count} steps");
    let bytes = std::fs::metadata(&path).unwrap().len() as usize;
    assert!((RING_BYTES / 2..RING_BYTES + (80 << 10)).contains(&bytes), "{bytes} bytes");
    let reader = Reader::open(&path).unwrap();
    let first = 40_001 - count;
    assert_eq!(reader.header().first_step, first);
    let records: Vec<Record> = reader.map(Result::unwrap).collect();
    let Record::Snapshot { sequence, digest, state, .. } = &records[0] else { panic!("{}", records[0]) };
    assert_eq!((*sequence, *digest + 1, state.len()), (first, first, 1000));
    let mut next = first;
    for record in &records {
        if let Record::Step { sequence, now, input, effects } = record {
            assert_eq!(*sequence, next);
            let step = &steps[next as usize - 1];
            assert_eq!((now, input, effects.as_ref()), (&step.now, &step.input, Some(&step.effects)));
            next += 1;
        }
    }
    assert_eq!(records.last(), Some(&Record::End { sequence: 40_001, steps: count, digest: 77 }));
    let found = verify(Reader::open(&path).unwrap()).unwrap();
    assert!(found.is_whole() && found.ended, "{found}");
    // Recording continues, and a later dump overwrites the older one.
    record_steps(&mut recorder, &steps[..10], 1000);
    recorder.dump(None).write(&path).unwrap();
    let found = verify(Reader::open(&path).unwrap()).unwrap();
    assert!(found.is_whole() && !found.ended && found.range.unwrap().1 == 40_010, "{found}");
}

#[test]
fn ring_that_was_never_full_replays_from_the_first_step() {
    let (steps, digest) = session::run(42, Config::default(), 500);
    let mut recorder = flight();
    record_steps(&mut recorder, &steps, 1000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.gvt");
    assert_eq!(recorder.dump(Some(digest)).write(&path).unwrap(), 500);
    let report = trace::replay(&path, &common::drivers(), &mut |_, _| {}).unwrap();
    assert_eq!((report.verdict, report.steps, report.ended), (Verdict::Identical { digest }, 500, true));
}

#[test]
fn the_call_that_crashed_is_in_a_dump() {
    let (steps, _) = session::run(43, Config::default(), 100);
    let mut recorder = flight();
    record_steps(&mut recorder, &steps[..99], 0);
    recorder.begin(steps[99].now, &steps[99].input).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.gvt");
    recorder.dump(None).write(&path).unwrap();
    let found = verify(Reader::open(&path).unwrap()).unwrap();
    assert_eq!((found.steps, found.unfinished), (100, Some(100)));
}

/// Records steps, with the real kernel's state whenever one is due, from step `from` on.
fn tell_with_states(recorder: &mut Recorder, steps: &[Step], from: usize) -> u64 {
    let mut kernel = Kernel::new(Config::default(), SimulatedMiniport::default());
    for (at, step) in steps.iter().enumerate() {
        if at >= from && recorder.snapshot_is_due() {
            // Saved with `Drivers`, as a replay expects.
            recorder.snapshot(&state_of(&steps[..at]), kernel.snapshot().digest()).unwrap();
        }
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
        kernel.handle(step.now, step.input.clone(), &mut Effects::default());
    }
    kernel.snapshot().digest()
}

fn state_of(steps: &[Step]) -> Vec<u8> {
    kernel_after(steps).save().unwrap()
}

fn kernel_after(steps: &[Step]) -> Kernel {
    let drivers = drivers::Drivers::new(&common::drivers(), &Config::default());
    let mut kernel = Kernel::new(Config::default(), drivers);
    let mut effects = Effects::default();
    for step in steps {
        effects.clear();
        kernel.handle(step.now, step.input.clone(), &mut effects);
    }
    kernel
}

fn replay(path: &Path) -> Report {
    trace::replay(path, &common::drivers(), &mut |_, _| {}).unwrap()
}

#[test]
fn a_dump_replays_from_its_first_snapshot_on() {
    let (steps, _) = session::run(45, Config::default(), 40_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.gvt");
    let mut recorder = flight();
    let digest = tell_with_states(&mut recorder, &steps, 0);
    let count = recorder.dump(Some(digest)).write(&path).unwrap();
    let report = replay(&path);
    assert_eq!(report.verdict, Verdict::Identical { digest }, "{report}");
    assert_eq!((report.steps, report.unchecked, report.ended), (count, None, true));
    // A stop before the first step is not in the trace; the first step itself has the earliest possible state.
    let first_step = 40_001 - count;
    for (step, stopped) in [(5, None), (first_step - 1, None), (first_step, Some(first_step))] {
        let mut player = Player::new(Reader::open(&path).unwrap(), &common::drivers()).unwrap();
        let until = ReplayRange { from: None, until: Some(format!("seq={step}").parse().unwrap()) };
        let report = replay_part(&mut player, &until, &mut |_, _| {}).ok();
        assert_eq!(report.and_then(|report| report.stopped), stopped, "{step}");
    }
    // A stop at a time keeps the snapshot before the first step.
    let stop = format!("time={}", steps[39_800].now).parse().unwrap();
    let first = steps.iter().position(|step| step.now >= steps[39_800].now).unwrap() as u64 + 1;
    let mut player = Player::new(Reader::open(&path).unwrap(), &common::drivers()).unwrap();
    let until = ReplayRange { from: None, until: Some(stop) };
    let report = replay_part(&mut player, &until, &mut |_, _| {}).unwrap();
    assert_eq!((report.stopped, report.agrees()), (Some(first), true), "{report}");
    assert_eq!(report.steps, first + count - 40_001, "{report}");
}

#[test]
fn a_time_to_stop_at_keeps_the_state_beside_a_continued_trace() {
    let (steps, digest) = session::run(47, Config::default(), 600);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("segment.gvt");
    continued(&path, &steps, 300, digest);
    let stop = format!("time={}", steps[500].now).parse().unwrap();
    let first = steps.iter().position(|step| step.now >= steps[500].now).unwrap() as u64 + 1;
    let mut player = Player::new(Reader::open(&path).unwrap(), &common::drivers()).unwrap();
    let until = ReplayRange { from: None, until: Some(stop) };
    let report = replay_part(&mut player, &until, &mut |_, _| {}).unwrap();
    assert_eq!((report.stopped, report.steps, report.agrees()), (Some(first), first - 301, true), "{report}");
}

#[test]
fn a_packed_copy_has_the_state_beside_a_continued_trace() {
    let (steps, digest) = session::run(48, Config::default(), 600);
    let folder = tempfile::tempdir().unwrap();
    let (path, packed) = (folder.path().join("segment.gvt"), folder.path().join("packed.gvt"));
    continued(&path, &steps, 300, digest);
    let sizes = trace::pack(&path, &packed).unwrap();
    assert!(sizes.after < sizes.before, "{sizes:?}");
    for path in [&path, &packed] {
        let report = replay(path);
        assert_eq!((report.verdict.clone(), report.steps), (Verdict::Identical { digest }, 300), "{report}");
    }
    assert!(verify(Reader::open(&packed).unwrap()).unwrap().is_whole());
}

/// Records the steps from this position on, with the state before them in a file beside.
fn continued(path: &Path, steps: &[Step], from: usize, digest: u64) {
    let recording = Recording { first_step: Some(from as u64 + 1), ..common::RECORDING };
    let create = |path: &Path| Recorder::create_as(path, &Config::default(), "test 1.0", recording).unwrap();
    let mut recorder = create(path);
    record_steps(&mut recorder, &steps[from..], 0);
    recorder.finish(digest).unwrap();
    let mut beside = create(&trace::state_path(path));
    let kernel = kernel_after(&steps[..from]);
    beside.snapshot(&kernel.save().unwrap(), kernel.snapshot().digest()).unwrap();
    beside.finish(0).unwrap();
}

#[test]
fn steps_without_a_state_before_them_are_not_called_identical() {
    let (steps, digest) = session::run(44, Config::default(), 40_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.gvt");
    let mut recorder = flight();
    record_steps(&mut recorder, &steps, 0);
    let count = recorder.dump(Some(digest)).write(&path).unwrap();
    let report = replay(&path);
    let first_step = 40_001 - count;
    assert_eq!(report.verdict, Verdict::NoState { first_step }, "{report}");
    assert_eq!((report.agrees(), report.verdict.name(), report.steps), (false, "no-state", 0));
    let unchecked = report.unchecked.expect("they were passed over");
    assert_eq!((unchecked.first, unchecked.last), (first_step, 40_000));
    let text = report.to_string();
    assert!(text.starts_with("nothing could be compared: the trace begins at step #"), "{text}");
    assert!(text.contains("gpupv trace show") && text.contains("--record"), "{text}");
    // The same for any stop.
    let player = || Player::new(Reader::open(&path).unwrap(), &common::drivers()).unwrap();
    let until = ReplayRange { from: None, until: Some(format!("seq={}", first_step + 9).parse().unwrap()) };
    let report = replay_part(&mut player(), &until, &mut |_, _| {}).unwrap();
    assert_eq!((report.verdict, report.stopped), (Verdict::NoState { first_step }, None));
    assert!(matches!(player().go_to(first_step + 9).unwrap(), Some(PlayerStep::End { .. })));

    // With a later snapshot, the steps after it are compared, and the others are reported as not compared.
    let mut recorder = flight();
    let digest = tell_with_states(&mut recorder, &steps, 39_500);
    let count = recorder.dump(Some(digest)).write(&path).unwrap();
    let report = replay(&path);
    assert_eq!(report.verdict, Verdict::Identical { digest }, "{report}");
    let unchecked = report.unchecked.expect("there are steps before the snapshot");
    assert_eq!((unchecked.first, unchecked.last), (40_001 - count, 39_500));
    assert_eq!(report.steps, 500);
    assert!(report.to_string().contains("to #39500 were not compared: no snapshot precedes them"));
}

#[test]
fn states_larger_than_all_the_room_do_not_push_each_other_out() {
    const STATE_BYTES: usize = RING_BYTES + RING_BYTES / 2;
    let (steps, _) = session::run(46, Config::default(), 30_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.gvt");
    let mut recorder = flight();
    let mut recorded = 0;
    for part in steps.chunks(1000) {
        record_steps(&mut recorder, part, STATE_BYTES);
        recorded += part.len() as u64;
        let count = recorder.dump(None).write(&path).unwrap();
        let mut records = Reader::open(&path).unwrap().map(Result::unwrap);
        let first = records.next().unwrap();
        assert!(matches!(first, Record::Snapshot { .. }) || count == recorded, "after {recorded}: {first}");
        assert!(count == recorded || count > 1500, "only {count} steps after {recorded}");
        let bytes = std::fs::metadata(&path).unwrap().len() as usize;
        assert!(bytes < RING_BYTES + 3 * (STATE_BYTES + (80 << 10)), "{bytes} bytes after {recorded}");
    }
}

#[test]
fn without_snapshots_the_last_steps_can_still_be_read() {
    let (steps, _) = session::run(44, Config::default(), 40_000);
    let mut recorder = flight();
    record_steps(&mut recorder, &steps, 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.gvt");
    recorder.dump(None).write(&path).unwrap();
    let found = verify(Reader::open(&path).unwrap()).unwrap();
    let (first, last) = found.range.unwrap();
    assert!(found.is_whole() && first > 1 && last == 40_000, "{found}");
    assert!(found.bytes < (RING_BYTES + (80 << 10)) as u64, "{found}");
}

#[test]
fn a_dump_replaces_an_older_trace_as_a_whole_and_none_that_is_being_recorded() {
    let (steps, digest) = session::run(49, Config::default(), 200);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gvt");
    let mut flight = flight();
    record_steps(&mut flight, &steps[..50], 0);
    let mut recorder = common::recorder(&path, &Config::default());
    record_steps(&mut recorder, &steps, 0);
    recorder.flush().unwrap();
    let error = flight.dump(None).write(&path).unwrap_err().to_string();
    assert!(error.contains("is being recorded by another program"), "{error}");
    recorder.finish(digest).unwrap();
    assert!(replay(&path).agrees());
    // A reader that has the old trace open still has all of it.
    let old = Reader::open(&path).unwrap();
    assert_eq!(flight.dump(None).write(&path).unwrap(), 50);
    assert_eq!(verify(old).unwrap().steps, 200);
    let found = verify(Reader::open(&path).unwrap()).unwrap();
    assert!(found.to_string().starts_with("whole: 50 steps"), "{found}");
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["t.gvt"]);
}

#[test]
fn empty_recorder_dumps_no_steps_and_overwrites_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.gvt");
    let mut recorder = flight();
    assert_eq!(recorder.dump(None).write(&path).unwrap(), 0);
    assert_eq!(verify(Reader::open(&path).unwrap()).unwrap().steps, 0);
    recorder.begin(1, &Input::Deadline).unwrap();
    recorder.end(&Effects::default()).unwrap();
    assert_eq!(recorder.dump(Some(3)).write(&path).unwrap(), 1);
    std::fs::write(&path, "somebody's notes").unwrap();
    let error = recorder.dump(None).write(&path).unwrap_err().to_string();
    assert!(error.contains("not overwritten"), "{error}");
}
