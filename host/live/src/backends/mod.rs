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

use std::time::Duration;

use scenario::world::BackendError;
use scenario::{Ended, Verdict};

pub use local::LocalRunner;
pub use partial_replay::{PartialReplay, PartialReplayReport};
pub use vm::VmRunner;

/// Time after which a scenario client without a report is lost: the backend failed, whatever the scenario says.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Returns the trouble of a failed backend.
fn broken(error: anyhow::Error) -> BackendError {
    BackendError::Broken(crate::output::in_words(&error))
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
