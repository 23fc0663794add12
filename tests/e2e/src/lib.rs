//! Helpers of the end-to-end tests: real programs, real daemons, and checks for leaks.
//!
//! The tests wait for states, never for durations: see [`polling`].
#![forbid(unsafe_code)]

pub mod console;
pub mod embedded;
pub mod files;
pub mod guests;
pub mod journal;
pub mod machine;
pub mod packages;
pub mod pages;
pub mod polling;
pub mod programs;
pub mod ring_client;
pub mod served;
pub mod translations;
pub mod wire;
