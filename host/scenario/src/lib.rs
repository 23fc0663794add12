//! Scenarios: one file, one verdict, on every arm.
#![forbid(unsafe_code)]

pub mod limits;
pub mod program;
pub mod script;

pub use program::{Arm, Program};
