//! Cost of recording a step in bytes and allocations. `gpupv bench` measures the time.

#[path = "../../../guest/umd/tests/counting/mod.rs"]
mod counting;
mod hot;

use counting::ALLOCATIONS;
use dxgkrnl::{Config, Effects, Input};
use hot::{KINDS, time};
use trace::Recorder;

/// About forty blocks of the longest steps.
const STEPS: u64 = 200_000;

#[test]
fn step_takes_16_bytes_at_most_and_allocates_nothing_unless_its_block_is_full() {
    let folder = tempfile::tempdir().unwrap();
    for (name, make_step) in KINDS {
        let path = folder.path().join("cost.gvt");
        let mut recorder = Recorder::create(&path, &Config::default(), "cost").unwrap();
        let (mut input, mut effects) = (Input::Deadline, Effects::default());
        let mut written = std::fs::metadata(&path).unwrap().len();
        let mut blocks = 0;
        for step in 1..=STEPS {
            make_step(step, &mut input, &mut effects);
            let before = ALLOCATIONS.get();
            recorder.begin(time(step), &input).unwrap();
            recorder.end(&effects).unwrap();
            let allocations = ALLOCATIONS.get() - before;
            // The first step adds its process to the block's index entry.
            if allocations > 0 && step > 1 {
                let length = std::fs::metadata(&path).unwrap().len();
                assert!(
                    length > written,
                    "{name}: step {step} allocates {allocations} times, in an open block"
                );
                (written, blocks) = (length, blocks + 1);
            }
        }
        recorder.finish(0).unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len() as f64 / STEPS as f64;
        assert!(bytes <= 16.0, "{name}: {bytes} bytes a step");
        assert!(blocks <= STEPS * 16 / 65536 + 1, "{name}: {blocks} blocks");
    }
}
