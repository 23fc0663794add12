//! Scenarios on the live backends: a real daemon in this process, real processes that call the real C ABI.
//!
//! ```text
//!  runner ──▶ LiveWorld ──orders──▶ scenario-client (a process, or a process of a guest)
//!    ▲           │                     │ libdxcore.so
//!    │           ├── Place: local.rs, vm.rs (starts, kills, freezes; the daemon)
//!    │           ▼                     ▼
//!    └────── Watch ◀──observer── Seat (the daemon's kernel, its clock handed in)
//! ```
//!
//! Time is virtual here too: the daemon's clock moves when the scenario says so. Nothing is waited for by
//! time: a step is over when every scenario client that has anything to do has passed a barrier (`proto::scenario_client`), and
//! the watch tells which those are. Only a backend that is broken runs into [`SILENCE_MAX`].

mod local;
mod nt_handle_transfer;
mod partial_replay;
mod scenario_client;
mod vm;
mod watch;
mod world;

use std::time::Duration;

use scenario::world::Trouble;
use scenario::{Ended, Verdict};

pub use local::LocalRunner;
pub use partial_replay::{PartialReplay, PartialReplayReport};
pub use vm::VmRunner;

/// A scenario client that owes a report for so long has been lost: the backend failed, whatever the scenario says.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The backend itself failed.
fn broken(error: anyhow::Error) -> Trouble {
    Trouble::Broken(crate::output::in_words(&error))
}

/// What the processes of a run complained of belongs to its failure, and is nobody's business otherwise:
/// a library says on standard error that its stream is gone, as a scenario may want it.
fn add_last_words(ended: &mut Ended, words: &str) {
    if let Verdict::Failed(failure) = &mut ended.verdict
        && !words.trim().is_empty()
    {
        failure.what += &format!("; the processes said: {}", words.trim().replace('\n', "; "));
    }
}
