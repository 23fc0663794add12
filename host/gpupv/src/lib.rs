//! The command line of gpupv, as a library for programs with their own drivers: see docs/KMD.md.

pub mod cli;
pub mod commands;
pub mod config;
pub mod help;

pub use daemon;
/// Registration of your own drivers, by name: [`drivers::Registry`].
pub use drivers;
pub use live::{artifacts, backends, cleanup, consoles, fleet, output, virtual_machine};
