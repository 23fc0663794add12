//! What the end-to-end tests share: real programs, real daemons, and eyes for what remains after them.
//!
//! The tests wait for states, never for times: see [`polling`].
#![forbid(unsafe_code)]

pub mod embedded;
pub mod guests;
pub mod journal;
pub mod machine;
pub mod polling;
pub mod programs;
pub mod random;
pub mod served;
pub mod wire;
