//! A race detector: happens-before over commands, barriers, fences, queues, processes and VMs.
//!
//! A barrier orders the work inside a submission; a fence orders submissions, processes and VMs. Two accesses to the
//! same bytes, one of which writes, race unless such relations order them. The first write must also be made visible to
//! the second's access type. The [`Checker`] receives events in the order in which they happen and reports pairs that
//! race, with both accesses and the smallest relation that would order them. It is a plain value: no clock, no hash
//! iteration, bounded memory.
//!
//! ```text
//!   agents     a queue of an engine, or a process on its CPUs; each counts its commands or accesses: 1, 2, 3 ..
//!   clock      of an agent: for every agent, how many of its accesses are ordered before the next access. Joined by
//!              submit (process -> queue), signal -> wait (by fence and value), begin (a queue -> itself)
//!   frontier   inside a submission, where commands overlap: for each synchronization scope t and each scope s, the
//!              command of s up to which later work in t has to wait. Raised by barriers, by all of SyncBefore
//!              for all of SyncAfter
//!   visible    for each write, the access types that see it. Raised by barriers that name its memory, and its type or
//!              one that sees it already; a global barrier does it for every write. The end of a submission makes
//!              everything visible (BAR-012)
//!   discard    the write of a barrier, in a scope of its own: behind what its SyncAfter has to wait for, before what its
//!              SyncAfter blocks. A SyncAfter without scopes counts as one scope more, which has no commands
//!   cells      the last write of each range of bytes, and the reads since
//! ```
//! An access without scopes, such as an engine's store of a timestamp, is behind all before it in its queue, and before all
//! behind it.
//!
//! False alarms are worse than missed races. An access that is dropped at one of the [`limits`] counts as ordered, and
//! the drops are counted ([`Checker::forgotten`]).
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
mod signals;
#[cfg(test)]
mod tests;

pub use checker::{Access, Checker, Range};
pub use report::{Accessed, Conflict, Missing, Report};

/// A source of ordered events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Agent {
    /// A queue of an engine, by a number that the caller chooses.
    Queue(u64),
    /// A process, on its CPUs.
    Process(u32),
}

/// A command: the number of its submission on the queue, and its packet. Both are 0 for a CPU access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct CommandId {
    pub submission: u64,
    pub packet: u32,
}
