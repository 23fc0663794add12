//! Helpers for tests of daemons that are killed and resume from a journal.

use std::path::{Path, PathBuf};

use trace::Verdict;

use crate::embedded::{Embedded, Running};

/// Environment variable with another number of kills: `just soak`.
const KILLS_ENV: &str = "GPUPV_KILLS";
/// Number of processes of a ring.
pub const PROCESSES: usize = 3;

/// Number of kills of a daemon.
pub fn kills(default: u64) -> u64 {
    std::env::var(KILLS_ENV).map_or(default, |kills| kills.parse().expect("a number"))
}

/// The segments of a journal, the oldest first.
pub fn segments(journal: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(journal).expect("a folder").flatten().map(|entry| entry.path());
    let mut segments: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "gvt")).collect();
    segments.sort();
    segments
}

/// Checks that the journal of an ended daemon replays to its recorded state.
#[track_caller]
pub fn replays(journal: &Path, context: &str) {
    // An empty segment was about to begin when its daemon was killed.
    let has_some = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let last = segments(journal).into_iter().rfind(has_some).expect("a segment");
    // A daemon may be killed before it has written the state of its last segment.
    gpupv::daemon::journal::complete(&last, &drivers::Registry::default()).expect("its state is there");
    let report =
        trace::replay(&last, &drivers::Registry::default(), &mut |_, _| {}).expect("the file is a trace");
    assert!(matches!(report.verdict, Verdict::Identical { .. }), "{context}: {report}");
}

/// Starts a ring: each process waits for the next one.
pub fn ring(broker: &Path) -> Vec<Running> {
    let start = |number: usize| Running::start(Embedded::command_at(broker, "ring", &[&number.to_string()]));
    let mut processes: Vec<_> = (0..PROCESSES).map(start).collect();
    processes.iter_mut().for_each(|process| process.says("shared"));
    processes.iter_mut().for_each(|process| process.write_input(b"go\n"));
    processes
}
