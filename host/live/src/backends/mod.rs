//! Runs scenarios on the live backends: a real daemon in this process, and real processes that call the real C ABI.
//!
//! ```text
//!  runner ──▶ LiveWorld ──orders──▶ scenario-client (a process, or a process of a guest)
//!    ▲           │                     │ libdxcore.so
//!    │           ├── LiveBackend: local.rs, vm.rs (starts, kills, freezes; the daemon)
//!    │           ▼                     ▼
//!    └────── Watch ◀──observer── KernelHost (the daemon's kernel, with a virtual clock)
//! ```
//!
//! Time is virtual here too: the daemon's clock advances only when the scenario says so. Nothing waits for a time: a
//! step is over when every busy scenario client has passed a barrier (`proto::scenario_client`). The watch knows which
//! clients are busy. Only a broken backend reaches `SILENCE_MAX`.

mod local;
mod nt_handle_transfer;
mod partial_replay;
mod scenario_client;
mod vm;
mod watch;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use scenario::world::BackendError;
use scenario::{Ended, Failure, Verdict};

pub use local::LocalRunner;
pub use partial_replay::{PartialReplay, PartialReplayReport};
pub use vm::VmRunner;

/// Time after which a scenario client without a report is lost: the backend failed, whatever the scenario says.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Returns the trouble of a failed backend.
fn broken(error: anyhow::Error) -> BackendError {
    BackendError::Broken(crate::output::in_words(&error))
}

/// Fails the case that left something behind, whatever it was before: the next one cannot tell whose it is. A failure stays.
fn fail_for_left(ended: &mut Ended, what: &str) {
    if !matches!(ended.verdict, Verdict::Failed(_)) {
        ended.verdict = Verdict::Failed(Failure { line: 0, what: what.into() });
    }
}

const STILL_ATTACHED: &str = "all processes have exited, but the daemon still has one";

/// Returns the file of a daemon's trace in a run whose first one records into `first`: `x.gvt`, `x.2.gvt` after a restart.
pub fn trace_of_daemon(first: &Path, number: u32) -> PathBuf {
    if number == 1 { first.to_owned() } else { first.with_extension(format!("{number}.gvt")) }
}

/// Adds the result of what came after the case. The machine's error hides no failure.
pub fn with_end(mut ended: Ended, end: anyhow::Result<()>) -> anyhow::Result<Ended> {
    if let (Verdict::Failed(failure), Err(error)) = (&mut ended.verdict, &end) {
        failure.what += &format!("; then: {}", crate::output::in_words(error));
        return Ok(ended);
    }
    end.map(|()| ended)
}

/// Appends the standard error of a run's processes to its failure. Without a failure it is dropped: a library may
/// report a lost stream that the scenario intended.
fn add_last_words(ended: &mut Ended, words: &str) {
    if let Verdict::Failed(failure) = &mut ended.verdict
        && !words.trim().is_empty()
    {
        failure.what += &format!("; output of the processes: {}", words.trim().replace('\n', "; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(what: &str) -> Ended {
        Ended::of(Verdict::Failed(Failure { line: 3, what: what.into() }))
    }

    #[test]
    fn an_error_after_a_case_hides_no_failure() {
        let full = || Err(anyhow::anyhow!("the disk is full"));
        assert_eq!(with_end(failed("F = 1"), full()).unwrap(), failed("F = 1; then: the disk is full"));
        assert!(with_end(Ended::of(Verdict::Passed), full()).is_err());
        assert_eq!(with_end(failed("F = 1"), Ok(())).unwrap(), failed("F = 1"));
    }

    #[test]
    fn a_case_that_leaves_a_process_attached_has_failed() {
        let mut ended = failed("F = 1");
        fail_for_left(&mut ended, STILL_ATTACHED);
        assert_eq!(ended, failed("F = 1"));
        for before in [Verdict::Passed, Verdict::Error("no thread".into())] {
            let mut ended = Ended::of(before);
            fail_for_left(&mut ended, STILL_ATTACHED);
            assert!(matches!(ended.verdict, Verdict::Failed(Failure { what, .. }) if what == STILL_ATTACHED));
        }
    }
}
