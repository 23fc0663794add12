//! Allocations of a replay: none for a step, a few for a block.

mod common;
#[path = "../../../guest/umd/tests/counting/mod.rs"]
mod counting;

use common::traffic::{Rounds, Traffic};
use counting::ALLOCATIONS;
use dxgkrnl::Config;
use trace::{Player, PlayerStep, Verdict};

/// Records two traces that differ by `steps` steps of one kind. Returns how many more allocations the longer one needs.
fn allocations_of(steps: u64, rounds: Rounds) -> u64 {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = common::recorder(file.path(), &Config::default());
    let mut traffic = Traffic::new(&mut recorder, 8);
    rounds(&mut traffic, &mut recorder, 0..steps);
    traffic.finish(recorder);
    let bytes = std::fs::read(file.path()).unwrap();
    let mut player = Player::new(common::reader(&bytes).unwrap(), &common::drivers()).unwrap();
    // One-time allocations happen in the first steps.
    player.go_to(100).unwrap();
    let before = ALLOCATIONS.get();
    loop {
        match player.play().unwrap() {
            PlayerStep::Stopped(verdict) => panic!("{verdict:?}"),
            PlayerStep::Over => break,
            PlayerStep::Step { .. }
            | PlayerStep::Snapshot { .. }
            | PlayerStep::Lost(_)
            | PlayerStep::End { .. } => {}
        }
    }
    ALLOCATIONS.get() - before
}

#[test]
fn a_replayed_step_allocates_nothing() {
    for (steps, rounds) in [(60_000, Traffic::signals as Rounds), (30_000, Traffic::waits)] {
        let allocations = allocations_of(steps, rounds);
        println!("{allocations} allocations in 60,000 steps");
        // Each block, of 9,000 steps or so, is read into newly allocated memory.
        assert!(allocations < 600, "{allocations} allocations in 60,000 steps");
    }
}

#[test]
fn traffic_replays_identically() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = common::recorder(file.path(), &Config::default());
    let mut traffic = Traffic::new(&mut recorder, 3);
    traffic.waits(&mut recorder, 0..500);
    let digest = traffic.kernel.snapshot().digest();
    traffic.finish(recorder);
    let report = common::replay(&std::fs::read(file.path()).unwrap()).unwrap();
    assert_eq!(report.verdict, Verdict::Identical { digest }, "{report}");
}
