//! Which accesses race: happens-before over commands, barriers, fences, queues, processes and VMs.
//!
//! A barrier orders the work inside a submission, a fence orders submissions, processes and VMs. Memory is right when
//! every two accesses to the same bytes, one of which writes, are ordered by such edges, and when what the first wrote
//! is made visible to the second's type of access. The [`Checker`] is told what happens in the order in which it happens
//! and says which pairs are not: with both accesses, and the smallest edge that would order them. It is a value: no
//! clock, no hash iteration, bounded memory.
//!
//! ```text
//!   agents     a queue of an engine, or a process on its CPUs; each counts what it does: 1, 2, 3 ..
//!   clock      of an agent: how much of every agent's doing comes before what it does next. Joined by
//!              submit (process -> queue), signal -> wait (by fence and value), begin (a queue -> itself)
//!   frontier   inside a submission, where commands overlap: for each scope of synchronization t and each scope s, up
//!              to which command of s everything to come in t has to wait. Raised by barriers, by all of SyncBefore
//!              for all of SyncAfter
//!   visible    for each write, the types of access that see it. Raised by barriers that name its memory and its type;
//!              a global barrier does it for every write. The end of a submission makes everything visible (BAR-012)
//!   cells      the last write of each range of bytes, and the reads since
//! ```
//! False alarms are worse than silence here: what is not remembered any more - the limits are in [`limits`] - counts as
//! ordered, and is counted ([`Checker::forgotten`]).
#![no_std]
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

extern crate alloc;

mod checker;
mod clock;
pub mod limits;
mod queue;
mod report;
mod shadow;
#[cfg(test)]
mod tests;

pub use checker::{Access, Checker, Range};
pub use report::{Accessed, Conflict, Missing, Report};

/// Who does things one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Agent {
    /// A queue of an engine, by whatever number its feeder has for it.
    Queue(u64),
    /// A process, on its CPUs.
    Process(u32),
}

/// A command: which submission of its queue, and which packet there. Both are 0 for what a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct CommandId {
    pub submission: u64,
    pub packet: u32,
}
