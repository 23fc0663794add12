//! Determinism: the same seed gives the same run, byte for byte: twice in one process, and in every build on every
//! machine, as the golden file shows.

use std::fmt::Write as _;
use std::path::Path;

use d3dkmt::random::digest;
use dxgkrnl::PlantedBug;
use scenario::explore::{ModelBackend, log, random};

const SEEDS: u64 = 200;
const BLOCK: u64 = 20;

fn all_logs() -> Vec<String> {
    // Some runs fail: their logs are included.
    let planted = |seed: u64| seed.is_multiple_of(10).then(|| PlantedBug::ALL[(seed / 10 % 4) as usize]);
    (1..=SEEDS).map(|seed| log(&ModelBackend::default(), &random(seed), planted(seed), seed)).collect()
}

#[test]
fn the_same_seed_gives_the_same_log() {
    let first = all_logs();
    // A new thread has other hash seeds, and memory in use gives other addresses.
    let ballast: Vec<Vec<u8>> = (0..1000).map(|at| vec![0; at * 7 % 4096]).collect();
    let others = [std::thread::spawn(all_logs), std::thread::spawn(all_logs)];
    for other in others {
        let second = other.join().expect("it does not panic");
        for (seed, (first, second)) in (1..).zip(first.iter().zip(&second)) {
            assert_eq!(first, second, "seed {seed}");
        }
    }
    drop(ballast);
}

#[test]
fn logs_are_the_same_in_every_build() {
    let mut found = String::new();
    for (block, logs) in all_logs().chunks(BLOCK as usize).enumerate() {
        let first = 1 + block as u64 * BLOCK;
        let _ = writeln!(found, "{first}..{} {:016x}", first + BLOCK, digest(logs.concat().as_bytes()));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explore_log.golden");
    if std::env::var_os("GPUPV_BLESS").is_some() {
        std::fs::write(&path, &found).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("there is a golden file");
    assert_eq!(golden, found, "if runs have changed on purpose: GPUPV_BLESS=1");
}

#[test]
fn a_log_tells_what_happened() {
    let log = log(&ModelBackend::default(), &random(3), None, 3);
    for part in ["> process p0\n", "] p1 #", "< p0  ", "] answer p1 #", "] store p1 slot "] {
        assert!(log.contains(part), "{part:?} is not in\n{log}");
    }
    assert!(log.ends_with("passed\n"), "{log}");
}
