//! The kernel as others look at it: snapshots, views for checkers, what a restored kernel tells its host, and why a wait
//! does not end. Nothing here changes anything.

mod allocations;
mod resumed;
pub mod snapshot;
pub mod views;
pub mod why;

pub use resumed::AttachedProcess;
