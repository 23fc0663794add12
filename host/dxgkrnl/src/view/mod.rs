//! Read access to the kernel: snapshots, views for checkers, the state that a host needs after a restore, and why a
//! wait does not end. Nothing here changes state.

mod allocations;
pub mod details;
mod resumed;
pub mod snapshot;
pub mod views;
pub mod why;

pub use allocations::SharedMemory;
pub use resumed::AttachedProcess;
