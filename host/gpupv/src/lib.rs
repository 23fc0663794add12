//! The command line of gpupv, for whoever brings drivers of their own: see docs/KMD.md.

pub mod cli;
pub mod commands;
pub mod config;

pub use daemon;
/// Drivers of one's own, by name: [`drivers::Registry`].
pub use drivers;
pub use live::{artifacts, backends, fleet, output, virtual_machine};
