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
//!
//! ```
//! use scenario::choose::First;
//! use scenario::model::ModelWorld;
//! use scenario::run::run;
//! use scenario::Verdict;
//!
//! let text = r#"
//! scenario "a wait ends by a signal"
//! process p
//! thread t in p
//! p  D = device      -> ok
//! p  F = fence D     -> ok
//! t  W = wait D F>=5 -> blocks
//! p  signal D F=5    -> ok
//! expect W returned ok
//! "#;
//! let programs = scenario::script::parse(text).expect("it has no errors");
//! for program in &programs {
//!     let ended = run(program, &mut ModelWorld::new(program, None), &mut First);
//!     assert_eq!(ended.verdict, Verdict::Passed);
//! }
//! let errors = scenario::script::parse("scenario \"x\"\nprocess p\np devise -> ok\n").unwrap_err();
//! assert_eq!((errors[0].span.line, errors[0].span.column), (3, 3));
//! ```
//!
//! # Stability
//!
//! The API of this crate is 0.x: a minor version may change it, and the changelog says so. Stable is the language that
//! docs/SCENARIOS.md describes: a file that a release accepts, later releases accept with the same meaning.
#![forbid(unsafe_code)]

pub mod checker;
pub mod choose;
pub mod explore;
mod fence_slots;
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

pub use host::{KernelRun, utc_100ns};

pub use program::{Backend, Program};
pub use run::{Ended, Failure, Verdict};
