//! The gpupv daemon as a library, and what its command line is made of.
//!
//! Start reading at [`daemon::seat`]: whoever has bytes from a guest takes the seat, calls the kernel,
//! and performs the effects before leaving.

pub mod artifacts;
pub mod cli;
pub mod commands;
pub mod daemon;
mod naming;
pub mod output;
pub mod stage;
pub mod virtual_machine;
mod why;

/// Drivers of one's own, by name: [`drivers::Registry`].
pub use drivers;
