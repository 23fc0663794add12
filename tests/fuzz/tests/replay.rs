//! Every input of the corpora, and every found case, on its target. A panic names the file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fuzz::{TARGETS, Target};

/// Bytes of all corpora.
const CORPORA_BYTES_MAX: u64 = 512 * 1024;

/// The files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn replay(target: &Target) {
    let began = Instant::now();
    let mut inputs = files(&folder("corpus").join(target.name));
    assert!(!inputs.is_empty(), "{} has no corpus", target.name);
    let found = folder("found").join(target.name);
    if found.exists() {
        inputs.extend(files(&found));
    }
    for input in &inputs {
        let bytes = std::fs::read(input).expect("it is readable");
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))).is_err() {
            panic!("{}: the input {} fails; its message is above", target.name, input.display());
        }
    }
    println!("{}: {} inputs in {:?}", target.name, inputs.len(), began.elapsed());
}

/// A reader refuses traces of other versions, so a corpus that became old would test nothing but that.
#[test]
fn the_corpus_of_traces_is_of_this_version() {
    let inputs = files(&folder("corpus").join("trace"));
    let traces = inputs.iter().filter(|input| fuzz::is_trace(&std::fs::read(input).expect("it is readable")));
    let (traces, inputs) = (traces.count(), inputs.len());
    assert!(traces >= 10, "{traces} of {inputs} inputs are traces that have a step");
}

macro_rules! replays {
    ($($target:ident)+) => {
        $(#[test]
        fn $target() {
            replay(TARGETS.iter().find(|target| target.name == stringify!($target)).expect("a target"));
        })+

        #[test]
        fn each_target_is_replayed_and_the_corpora_are_small() {
            let replayed = [$(stringify!($target)),+];
            let mut bytes = 0;
            for Target { name, run } in TARGETS {
                assert!(replayed.contains(name), "{name} has no test here");
                // No input at all.
                run(&[]);
                for input in files(&folder("corpus").join(name)) {
                    bytes += input.metadata().expect("its size").len();
                }
            }
            assert!(bytes <= CORPORA_BYTES_MAX, "the corpora have {bytes} bytes: minimize them");
        }
    };
}

replays! { frame_ring vsock vhost_user broker c_abi guestd session commands trace scenario config model }
