//! Scenarios: one file, one verdict, on every backend.
//!
//! ```text
//!  .scn text ──parse──▶ Program (one for each case) ──run──▶ World: model | link | local | vm ──▶ verdict
//!                          ▲                                   │
//!        random, shrink ───┘                    checker after every step of the kernel
//! ```
//!
//! `script` is the language, `program` what it says, `run` the runner, `world` what a backend is, `checker`
//! the laws that hold whatever the scenario. The model and link backends are here; the live ones need a daemon
//! and are in `gpupv`.
#![forbid(unsafe_code)]

pub mod checker;
pub mod choose;
pub mod explore;
pub mod from_trace;
mod host;
pub mod limits;
pub mod link;
mod memory;
pub mod model;
pub mod nt_handle_owners;
pub mod program;
pub mod report;
pub mod run;
pub mod script;
pub mod world;

pub use host::utc_100ns;

pub use program::{Backend, Program};
pub use run::{Ended, Failure, Verdict};
