//! Attacks on a daemon's time, memory, descriptors and files. Beside each attack a victim, another client, makes ordinary
//! calls, checks every answer and measures every call. docs/ATTACKS.md has the attacks and explains the result table.
//!
//! ```text
//!   table.rs ── a row each ──▶ run.rs ── starts ──▶ ground.rs   the daemon's process
//!                                │                  victim.rs   the victim's process
//!                                │ an attack in a thread
//!                                ▼
//!                              kinds/ ── by ──▶ attacker.rs   a process: calls, many at a time
//!                                               relay.rs      a guest without a VM and its root
//! ```
#![forbid(unsafe_code)]

pub mod attacker;
pub mod calls;
pub mod core_waits;
pub mod ground;
pub mod kinds;
pub mod limits;
pub mod relay;
pub mod report;
pub mod run;
pub mod steps;
pub mod table;
pub mod victim;

/// The message of a panic.
pub fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

/// Raises the limit of open files to the hard limit, because attacks need many descriptors.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // With a lower limit an attack stops earlier and reports that.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
