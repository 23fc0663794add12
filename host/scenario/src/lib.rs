//! Scenarios: test files of a scripted language, each with one verdict on every backend.
//!
//! ```text
//!  .scn text ──parse──▶ Program (one for each case) ──run──▶ World: model | link | local | vm ──▶ verdict
//!                          ▲                                   │
//!        random, shrink ───┘                    checker after every step of the kernel
//! ```
//!
//! `script` is the language, `program` its parsed form, `run` the runner, `world` the interface of a backend, `checker`
//! the invariants of every scenario. The model and link backends are here; the live ones need a daemon and are in
//! `live`.
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
pub mod shards;
pub mod world;

pub use host::utc_100ns;

pub use program::{Backend, Program};
pub use run::{Ended, Failure, Verdict};
