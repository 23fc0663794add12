//! Playing a trace to any point, forwards and backwards, from snapshots and across losses.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common;

use common::session;
use common::{Step, drivers, reader};
use d3dkmt::random::Random;
use dxgkrnl::{Config, Kernel};
use kmd::SimulatedMiniport;
use trace::{Player, PlayerStep, ReplayRange, Report, Stop, Verdict, replay_part};

/// A trace of a session with a snapshot before the steps at these positions.
struct Recorded {
    bytes: Vec<u8>,
    steps: Vec<Step>,
    /// Digest before each step, and after the last.
    digests: Vec<u64>,
}

fn recorded(seed: u64, count: usize, snapshots: &[usize]) -> Recorded {
    let (steps, digest) = session::run(seed, Config::default(), count);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = common::recorder(file.path(), &Config::default());
    let drivers = drivers::Drivers::new(&drivers(), &Config::default());
    let mut kernel = Kernel::new(Config::default(), drivers);
    let mut digests = vec![kernel.snapshot().digest()];
    for (at, step) in steps.iter().enumerate() {
        if snapshots.contains(&at) {
            recorder.snapshot(&kernel.save().unwrap(), digests[at]).unwrap();
        }
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
        let mut effects = dxgkrnl::Effects::default();
        kernel.handle(step.now, step.input.clone(), &mut effects);
        digests.push(kernel.snapshot().digest());
    }
    recorder.finish(digest).unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    Recorded { bytes, steps, digests }
}

fn player(bytes: &[u8]) -> Player {
    Player::new(reader(bytes).unwrap(), &drivers()).unwrap()
}

fn replay(bytes: &[u8], part: &ReplayRange) -> Report {
    replay_part(&mut player(bytes), part, &mut |_, _| {}).unwrap()
}

fn place(text: &str) -> Option<Stop> {
    Some(text.parse().unwrap())
}

#[test]
fn any_step_can_be_gone_to_and_the_state_there_is_what_it_was() {
    let recorded = recorded(51, 6000, &[700, 2500]);
    let mut random = Random::new(5);
    for mut player in [player(&recorded.bytes), player(&recorded.bytes).that_goes_back()] {
        for _ in 0..40 {
            let step = random.below(6000);
            assert_eq!(player.go_to(step + 1).unwrap(), None);
            assert_eq!(player.next(), step + 1);
            assert_eq!(player.digest(), recorded.digests[step as usize], "before step {step}");
        }
        assert_eq!(player.go_to(6001).unwrap(), None);
        assert_eq!(player.digest(), recorded.digests[6000]);
        // There is no such step; the trace ends before it.
        assert!(matches!(player.go_to(7000).unwrap(), Some(PlayerStep::End { .. })));
    }
}

#[test]
fn a_replay_begins_at_a_snapshot_and_ends_at_a_place() {
    let recorded = recorded(52, 1500, &[400, 900]);
    let report = replay(&recorded.bytes, &ReplayRange { from: place("seq=1000"), until: place("seq=1200") });
    assert_eq!(report.verdict, Verdict::Identical { digest: recorded.digests[1199] }, "{report}");
    assert_eq!((report.from, report.stopped, report.steps), (Some(901), Some(1200), 299));
    let report = replay(&recorded.bytes, &ReplayRange { from: place("seq=300"), until: None });
    assert_eq!((report.from, report.steps, report.ended), (None, 1500, true), "{report}");
    // A time stop is the first step at or after it.
    let at = recorded.steps[1000].now;
    let first = recorded.steps.iter().position(|step| step.now >= at).unwrap() as u64 + 1;
    let report = replay(&recorded.bytes, &ReplayRange { from: None, until: place(&format!("time={at}")) });
    assert_eq!(report.stopped, Some(first));
    let never = replay(&recorded.bytes, &ReplayRange { from: None, until: place("time=999999s") });
    assert_eq!((never.stopped, never.steps), (None, 1500));
}

/// A check with swapped places would otherwise pass for ever.
#[test]
fn places_that_are_not_there_or_in_the_wrong_order_are_refused() {
    let recorded = recorded(52, 1500, &[400, 900]);
    let result = |from: &str, until: &str| {
        let place = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        let part = ReplayRange { from: place(from), until: place(until) };
        replay_part(&mut player(&recorded.bytes), &part, &mut |_, _| {}).map_err(|error| error.to_string())
    };
    let (early, late) = (recorded.steps[100].now, recorded.steps[1200].now);
    assert!(early < late, "{early} {late}");
    for (from, until) in [
        ("seq=1000".to_owned(), "seq=999".to_owned()),
        ("seq=1000".to_owned(), "seq=950".to_owned()),
        ("seq=1000".to_owned(), "seq=20".to_owned()),
        (format!("time={late}"), format!("time={early}")),
    ] {
        let refused = result(&from, &until).unwrap_err();
        assert!(refused.contains("would end before step #"), "{from} {until}: {refused}");
    }
    for from in ["seq=1502", "seq=9999999", "wait=p1:99999999", "note=no such note", "time=999999s"] {
        let refused = result(from, "").unwrap_err();
        assert!(refused.contains("is not in the trace"), "{from}: {refused}");
    }
    for (from, until) in [("seq=1000", "seq=1000"), ("seq=1501", ""), ("seq=1501", "seq=1501")] {
        assert!(result(from, until).unwrap().agrees(), "{from} {until}");
    }
    // The value of a fence that it has already.
    let mut player = player(&recorded.bytes);
    player.go_to(1000).unwrap();
    let mut known = None;
    player.kernel().fences(&mut |fence| {
        if fence.value > 0 && fence.value < u64::MAX {
            known = Some((fence.process, fence.handle, fence.value));
        }
    });
    let (process, handle, value) = known.unwrap();
    let refused = result("seq=1000", &format!("fence=p{}:{handle}>={value}", process.0)).unwrap_err();
    assert!(refused.contains("would end before step #1000"), "{refused}");
    // A wake-up between the snapshot and the beginning is not the one that was asked for.
    let woken = |step: &Step| step.effects.notes.first().map(|note| note.text.clone());
    let note = recorded.steps[900..999].iter().find_map(woken).unwrap();
    let from = "seq=1000";
    match result(from, &format!("note={note}")) {
        Ok(report) => assert!(report.stopped.is_none_or(|stopped| stopped > 1000), "{report}"),
        Err(refused) => panic!("{refused}"),
    }
}

#[test]
fn a_time_to_stop_at_keeps_the_snapshot_to_begin_with() {
    let recorded = recorded(52, 1500, &[400, 900]);
    let at = recorded.steps[1200].now;
    let first = recorded.steps.iter().position(|step| step.now >= at).unwrap() as u64 + 1;
    let part = ReplayRange { from: place("seq=1000"), until: place(&format!("time={at}")) };
    let report = replay(&recorded.bytes, &part);
    assert_eq!(
        (report.from, report.stopped, report.steps),
        (Some(901), Some(first), first - 901),
        "{report}"
    );
    assert_eq!(report.verdict, Verdict::Identical { digest: recorded.digests[first as usize - 1] });
    // Without a step in between, the report claims no comparison.
    let report = replay(&recorded.bytes, &ReplayRange { from: None, until: place("time=0") });
    let text = report.to_string();
    assert!(
        report.steps == 0 && text.starts_with("nothing was compared: no step is before the stop"),
        "{text}"
    );
}

#[test]
fn it_stops_behind_the_step_with_which_something_comes_true() {
    let recorded = recorded(53, 3000, &[]);
    let woken = recorded.steps.iter().position(|step| !step.effects.events.is_empty()).unwrap();
    let wake = recorded.steps[woken].effects.events[0];
    let until = place(&format!("wait=p{}:{}", wake.process.0, wake.target.event().unwrap().0));
    let first = recorded.steps.iter().position(|step| {
        step.effects.events.iter().any(|event| (event.process, event.target) == (wake.process, wake.target))
    });
    let report = replay(&recorded.bytes, &ReplayRange { from: None, until });
    assert_eq!(report.stopped, Some(first.unwrap() as u64 + 2), "{report}");
    let note = recorded.steps.iter().position(|step| !step.effects.notes.is_empty()).unwrap();
    let text = &recorded.steps[note].effects.notes[0].text;
    let report = replay(&recorded.bytes, &ReplayRange { from: None, until: place(&format!("note={text}")) });
    assert_eq!(report.stopped, Some(note as u64 + 2), "{report}");
    // The value of a fence, by process and handle.
    let mut player = player(&recorded.bytes);
    player.go_to(2000).unwrap();
    let mut highest = None;
    player.kernel().fences(&mut |fence| {
        if highest.is_none_or(|(_, _, value)| fence.value > value) {
            highest = Some((fence.process, fence.handle, fence.value));
        }
    });
    let (process, handle, value) = highest.unwrap();
    let until = place(&format!("fence=p{}:{handle}>={value}", process.0));
    let report = replay(&recorded.bytes, &ReplayRange { from: None, until });
    let stopped = report.stopped.expect("it has the value at step 2000");
    player.go_to(stopped).unwrap();
    assert!(player.kernel().object(process, handle).unwrap().value >= value);
    player.go_to(stopped - 1).unwrap();
    assert!(player.kernel().object(process, handle).is_none_or(|before| before.value < value));
}

#[test]
fn behind_what_is_lost_it_goes_on_from_the_next_snapshot() {
    let recorded = recorded(54, 1200, &[300, 800]);
    let blocks: Vec<_> = reader(&recorded.bytes).unwrap().blocks().collect();
    let data = blocks.iter().find(|block| block.first_step > 300 && block.steps > 0).unwrap();
    let mut damaged = recorded.bytes.clone();
    damaged[(data.offset + data.bytes / 2) as usize] ^= 0x20;
    let report = replay(&damaged, &ReplayRange::default());
    let Verdict::Damaged { lost } = &report.verdict else { panic!("{report}") };
    assert!(lost.from > 300 && lost.to.unwrap() <= 801, "{lost}");
    assert_eq!(report.steps, lost.from - 1);
    assert_eq!(report.resumed, [(801, 400)]);
    assert!(report.ended && !report.agrees());
    assert!(
        report.to_string().contains("resumed from the snapshot before step #801: 400 steps are identical")
    );
    // The player can go to steps after the loss, but not to lost steps.
    let mut player = player(&damaged);
    assert_eq!(player.go_to(1000).unwrap(), None);
    assert_eq!(player.digest(), recorded.digests[999]);
    assert!(matches!(player.go_to(lost.from + 1).unwrap(), Some(PlayerStep::Lost(_))));
}

#[test]
fn difference_is_reported_with_its_causes() {
    let recorded = recorded(55, 2000, &[500]);
    // The recording has a different stored value.
    let at = recorded.steps.iter().rposition(|step| !step.effects.stores.is_empty()).unwrap();
    let (steps, _) = session::run(55, Config::default(), 2000);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = common::recorder(file.path(), &Config::default());
    let mut kernel = Kernel::new(Config::default(), drivers::Drivers::new(&drivers(), &Config::default()));
    for (position, mut step) in steps.into_iter().enumerate() {
        if position == 500 {
            recorder.snapshot(&kernel.save().unwrap(), kernel.snapshot().digest()).unwrap();
        }
        let mut effects = dxgkrnl::Effects::default();
        kernel.handle(step.now, step.input.clone(), &mut effects);
        if position == at {
            step.effects.stores[0].value ^= 1;
        }
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
    }
    drop(recorder);
    let bytes = std::fs::read(file.path()).unwrap();
    let report = replay(&bytes, &ReplayRange::default());
    let Verdict::Diverged { sequence, input, .. } = &report.verdict else { panic!("{report}") };
    assert_eq!((*sequence, input), (at as u64 + 1, &recorded.steps[at].input.to_string()));
    assert_eq!(report.agreed, (at >= 500).then_some((501, recorded.digests[500])));
    let causes = report.causes.as_ref().unwrap();
    assert!(!causes.last.is_empty() && causes.last.len() as u64 <= causes.count, "{causes}");
    assert!(causes.last.iter().all(|cause| cause.sequence < *sequence));
    assert!(causes.last.is_sorted_by_key(|cause| cause.sequence));
    // The causes include earlier stores to that slot.
    let slot = recorded.steps[at].effects.stores[0].slot;
    let process = recorded.steps[at].effects.stores[0].process;
    let before = recorded.steps[..at].iter().rposition(|step| {
        step.effects.stores.iter().any(|store| (store.process, store.slot) == (process, slot))
    });
    if let Some(before) = before {
        let first = causes.last.first().unwrap().sequence;
        let named = causes.last.iter().any(|cause| cause.sequence == before as u64 + 1);
        assert!(named || before as u64 + 1 < first, "step {before} is not named:{causes}");
    }
}

/// A trace whose snapshot before step 101 has an invalid state, and whose digest is right except for these bits.
fn with_a_broken_state(wrong_bits: u64) -> Vec<u8> {
    let (steps, digest) = session::run(56, Config::default(), 200);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = common::recorder(file.path(), &Config::default());
    let mut kernel = Kernel::new(Config::default(), SimulatedMiniport::default());
    for (at, step) in steps.iter().enumerate() {
        if at == 100 {
            recorder.snapshot(b"no state", kernel.snapshot().digest() ^ wrong_bits).unwrap();
        }
        recorder.begin(step.now, &step.input).unwrap();
        recorder.end(&step.effects).unwrap();
        kernel.handle(step.now, step.input.clone(), &mut dxgkrnl::Effects::default());
    }
    recorder.finish(digest).unwrap();
    std::fs::read(file.path()).unwrap()
}

#[test]
fn snapshot_with_an_invalid_state_is_reported() {
    // The kernel has the state already, so only the digest matters.
    let report = replay(&with_a_broken_state(1), &ReplayRange::default());
    let Verdict::StateDiffers { before: Some(101), .. } = report.verdict else { panic!("{report}") };
    let broken = with_a_broken_state(0);
    assert!(replay(&broken, &ReplayRange::default()).agrees());
    let report = replay(&broken, &ReplayRange { from: place("seq=150"), until: None });
    let Verdict::NotRestored { sequence: 101, why } = &report.verdict else { panic!("{report}") };
    assert!(why.contains("semantic version"), "{why}");
}

/// A trace that begins with this state before its second step.
fn beginning_with(state: &[u8]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let recording = trace::Recording { first_step: Some(2), ..common::RECORDING };
    let mut recorder =
        trace::Recorder::create_as(file.path(), &Config::default(), "test 1.0", recording).unwrap();
    recorder.snapshot(state, 0).unwrap();
    recorder.finish(0).unwrap();
    std::fs::read(file.path()).unwrap()
}

#[test]
fn a_state_whose_tables_contradict_each_other_is_reported() {
    let (steps, _) = session::run(57, Config::default(), 200);
    let miniport = || drivers::Drivers::new(&drivers(), &Config::default());
    let mut kernel = Kernel::new(Config::default(), miniport());
    for step in &steps {
        kernel.handle(step.now, step.input.clone(), &mut dxgkrnl::Effects::default());
    }
    let state = kernel.save().unwrap();
    // The first of such states that is restored, and cannot be read.
    let contradicts = |state: &[u8]| {
        let kernel = Kernel::restore(Config::default(), miniport(), state).ok()?;
        catch_unwind(AssertUnwindSafe(|| kernel.snapshot())).err()
    };
    let broken = (8..state.len()).find_map(|at| {
        let mut broken = state.clone();
        broken[at] = 99;
        contradicts(&broken).map(|_| broken)
    });
    let broken = broken.expect("a number of a queue is no number of a queue");
    let report = replay(&beginning_with(&broken), &ReplayRange::default());
    let Verdict::NotRestored { sequence: 2, why } = &report.verdict else { panic!("{report}") };
    assert!(why.contains("panicked"), "{why}");
}

#[test]
fn on_the_way_forwards_a_state_is_taken_over_and_what_is_none_passed_by() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = common::recorder(file.path(), &Config::default());
    let mut traffic = common::traffic::Traffic::new(&mut recorder, 1);
    traffic.signals(&mut recorder, 0..250_000);
    let digest = traffic.kernel.snapshot().digest();
    let steps = traffic.finish(recorder);
    let bytes = std::fs::read(file.path()).unwrap();
    let mut jumping = player(&bytes);
    assert_eq!(jumping.go_to(3).unwrap(), None);
    assert_eq!(jumping.go_to(steps + 1).unwrap(), None);
    assert_eq!((jumping.digest(), jumping.next()), (digest, steps + 1));
    assert!(jumping.played() < steps - 100_000, "{} of {steps} steps were played", jumping.played());

    let mut passing = player(&with_a_broken_state(0));
    assert_eq!(passing.go_to(150).unwrap(), None);
    assert_eq!((passing.next(), passing.played()), (150, 149));
}

#[test]
fn stops_are_parsed_and_invalid_ones_reported() {
    for (text, why) in [
        ("120", "it has no ="),
        ("seq=x", "seq= needs the number of a step"),
        ("time=5h", "time= needs a time"),
        ("fence=2:0x40>=1", "fence= needs"),
        ("wait=p1", "wait= needs"),
        ("note=", "note= needs"),
        ("value=3", "unknown kind of point"),
    ] {
        let error = text.parse::<Stop>().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("fence=p2:0x40000080>=5"), "{error}");
    }
    for (text, nanos) in [("1.5ms", 1_500_000), ("2s", 2_000_000_000), ("7", 7), ("0.25us", 250)] {
        assert_eq!(format!("time={text}").parse::<Stop>().unwrap(), Stop::Time(nanos));
    }
}
