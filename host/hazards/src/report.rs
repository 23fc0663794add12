//! Reports of accesses that race.

use core::fmt;

use d3dkmt::isa::{BarrierAccess, BarrierSync};
use serde::{Deserialize, Serialize};

use crate::checker::Range;
use crate::{Agent, CommandId};

/// One of the two accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Accessed {
    pub agent: Agent,
    pub command: CommandId,
    /// Its synchronization scopes, umbrella scopes expanded; none for a CPU.
    pub scopes: BarrierSync,
    /// COMMON for a CPU.
    pub access: BarrierAccess,
    pub writes: bool,
}

/// Kind of conflict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Conflict {
    /// Nothing orders the two accesses.
    Unordered,
    /// The second is ordered after the first but does not see its write.
    NotVisible,
}

/// The smallest happens-before relation that would fix the race.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Missing {
    /// Between two commands of one submission.
    Barrier {
        sync_before: BarrierSync,
        sync_after: BarrierSync,
        /// The earlier access type; a write type only if its data must be flushed.
        access_before: BarrierAccess,
        access_after: BarrierAccess,
    },
    /// Between two agents: the first signals a fence after its access, and the second waits for it before its own.
    Fence { signals: Agent, waits: Agent },
}

/// Two accesses of the same bytes that race.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The first range on which they conflict.
    pub range: Range,
    pub earlier: Accessed,
    pub later: Accessed,
    pub conflict: Conflict,
    pub missing: Missing,
    /// Number of ranges on which the same two commands conflict.
    pub times: u32,
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Agent::Queue(queue) => write!(f, "queue {queue}"),
            Agent::Process(process) => write!(f, "p{process}'s CPU"),
        }
    }
}

impl fmt::Display for Accessed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.writes { "write" } else { "read" };
        let CommandId { submission, packet } = self.command;
        match self.agent {
            Agent::Process(_) => write!(f, "{what} by {}", self.agent),
            Agent::Queue(_) => write!(
                f,
                "{what} by {}, submission {submission}, packet {packet} ({} in {})",
                self.agent,
                Access(self.access),
                Sync(self.scopes)
            ),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { range, earlier, later, conflict, missing, times } = self;
        write!(f, "{} bytes at {:#x} of p{}: ", range.end - range.start, range.start, range.space)?;
        match conflict {
            Conflict::Unordered => write!(f, "nothing orders the {earlier} and the {later}")?,
            Conflict::NotVisible => write!(f, "the {later} does not see the {earlier}")?,
        }
        if *times > 1 {
            write!(f, ", on {times} ranges")?;
        }
        write!(f, "; missing: {missing}")
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Barrier { sync_before, sync_after, access_before, access_after } => write!(
                f,
                "a barrier between them with SyncBefore {}, SyncAfter {}, AccessBefore {}, AccessAfter {}",
                Sync(*sync_before),
                Sync(*sync_after),
                Access(*access_before),
                Access(*access_after)
            ),
            Missing::Fence { signals, waits } => {
                write!(
                    f,
                    "a fence that {signals} signals behind its access and {waits} waits for before its own"
                )
            }
        }
    }
}

struct Sync(BarrierSync);
struct Access(BarrierAccess);

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("NONE") } else { bitflags::parser::to_writer(&self.0, f) }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("COMMON") } else { bitflags::parser::to_writer(&self.0, f) }
    }
}
