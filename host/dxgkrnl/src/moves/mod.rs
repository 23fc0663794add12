//! What an engine does to bytes. The model never sees them: it says what is to be moved, and whoever runs the kernel
//! moves it - a test in arrays, the daemon in the pinned pages of processes.
//!
//! ```text
//!   engine ──Callback::MoveData──▶ kernel ──Effects::moves──▶ whoever runs it      before the fence stores of the step
//! ```
//! Moves are done one after the other, in the order of the lane, and completely before any fence store, answer or event
//! of the same step: who sees the fence sees the bytes. Numbers in memory are little-endian words of 32 bits.
//!
//! The thread that runs the kernel holds others up while it moves bytes. So an engine that has many to move calls back a piece of
//! [`MOVED_BYTES_PER_STEP`](d3dkmt::limits::MOVED_BYTES_PER_STEP) at a time, at the time at which its hardware would have
//! moved it, and a step in which engines have called back so many goes on with no other: what is due comes in the next step.
//!
//! A *shadow* is memory of the host that stands for cache lines of an engine: bytes that were written and are in no
//! memory yet, or old ones that are read though memory has new ones. It begins with the first move that names it, as
//! zeros, is as long as the moves that name it need it to be, and ends with `Release`; those of an adapter that is
//! stopped or reset end with `ReleaseAll`.

mod perform;
mod shadows;
mod shorten;

use core::fmt;

use serde::{Deserialize, Serialize};

pub use perform::{NotMoved, Performer, ProcessBytes};

use crate::ProcessId;

/// A shadow: see [`DataMove`]. Its driver numbers it; numbers are used again after their release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Shadow {
    pub adapter: u32,
    pub number: u64,
}

/// Where the bytes of a move begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Place {
    /// An address of the process's own address space: where what an allocation is of lies.
    Memory {
        process: ProcessId,
        address: u64,
    },
    Shadow {
        shadow: Shadow,
        offset: u64,
    },
}

impl Place {
    /// So many bytes behind it.
    pub fn ahead(self, bytes: u64) -> Place {
        match self {
            Place::Memory { process, address } => {
                Place::Memory { process, address: address.wrapping_add(bytes) }
            }
            Place::Shadow { shadow, offset } => Place::Shadow { shadow, offset: offset.wrapping_add(bytes) },
        }
    }
}

/// What a `Compute` makes of a word of the source and the word that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveKernel {
    /// source + operand
    Add,
    /// source * operand
    Multiply,
    /// source ^ operand
    Xor,
    /// what is there + source + operand
    Accumulate,
}

/// One thing to do with bytes. Counts are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataMove {
    /// All is read before anything is written: the two may overlap.
    Copy { from: Place, to: Place, bytes: u64 },
    /// The pattern again and again; `bytes` is a multiple of 4.
    Fill { to: Place, bytes: u64, pattern: u32 },
    /// [`MoveKernel::apply`] to each word; `bytes` is a multiple of 4. All is read before anything is written.
    Compute { kernel: MoveKernel, from: Place, to: Place, bytes: u64, operand: u32 },
    /// The shadow ends.
    Release { shadow: Shadow },
    /// All shadows of an adapter end. Only the kernel says so.
    ReleaseAll { adapter: u32 },
}

impl MoveKernel {
    pub const ALL: [MoveKernel; 4] =
        [MoveKernel::Add, MoveKernel::Multiply, MoveKernel::Xor, MoveKernel::Accumulate];

    /// The word that is written. `there` is the word of the target so far. All is modulo 2^32.
    pub const fn apply(self, source: u32, there: u32, operand: u32) -> u32 {
        match self {
            MoveKernel::Add => source.wrapping_add(operand),
            MoveKernel::Multiply => source.wrapping_mul(operand),
            MoveKernel::Xor => source ^ operand,
            MoveKernel::Accumulate => there.wrapping_add(source).wrapping_add(operand),
        }
    }
}

impl DataMove {
    /// How many bytes it writes, which is what it costs.
    pub fn bytes(&self) -> u64 {
        match self {
            DataMove::Copy { bytes, .. } | DataMove::Fill { bytes, .. } | DataMove::Compute { bytes, .. } => {
                *bytes
            }
            DataMove::Release { .. } | DataMove::ReleaseAll { .. } => 0,
        }
    }

    /// The places that it names: the source first.
    pub fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let (from, to) = match *self {
            DataMove::Copy { from, to, .. } | DataMove::Compute { from, to, .. } => (Some(from), Some(to)),
            DataMove::Fill { to, .. } => (None, Some(to)),
            DataMove::Release { .. } | DataMove::ReleaseAll { .. } => (None, None),
        };
        from.into_iter().chain(to)
    }

    /// Processes whose memory it touches.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> + use<> {
        self.places().filter_map(|place| match place {
            Place::Memory { process, .. } => Some(process),
            Place::Shadow { .. } => None,
        })
    }

    /// The adapters whose shadows it names.
    pub fn adapters(&self) -> impl Iterator<Item = u32> + use<> {
        let ended = match self {
            DataMove::Release { shadow } => Some(shadow.adapter),
            DataMove::ReleaseAll { adapter } => Some(*adapter),
            DataMove::Copy { .. } | DataMove::Fill { .. } | DataMove::Compute { .. } => None,
        };
        let named = self.places().filter_map(|place| match place {
            Place::Memory { .. } => None,
            Place::Shadow { shadow, .. } => Some(shadow.adapter),
        });
        named.chain(ended)
    }
}

impl fmt::Display for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shadow {}.{}", self.adapter, self.number)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Memory { process, address } => write!(f, "p{} {address:#x}", process.0),
            Place::Shadow { shadow, offset } => write!(f, "{shadow} +{offset:#x}"),
        }
    }
}

impl fmt::Display for MoveKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoveKernel::Add => "add",
            MoveKernel::Multiply => "multiply",
            MoveKernel::Xor => "xor",
            MoveKernel::Accumulate => "accumulate",
        })
    }
}

impl fmt::Display for DataMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataMove::Copy { from, to, bytes } => write!(f, "move {bytes} bytes {from} -> {to}"),
            DataMove::Fill { to, bytes, pattern } => write!(f, "move {bytes} bytes of {pattern:#x} -> {to}"),
            DataMove::Compute { kernel, from, to, bytes, operand } => {
                write!(f, "move {bytes} bytes {from} -> {to}, each word {kernel} {operand:#x}")
            }
            DataMove::Release { shadow } => write!(f, "move ends {shadow}"),
            DataMove::ReleaseAll { adapter } => write!(f, "move ends every shadow of adapter {adapter}"),
        }
    }
}
