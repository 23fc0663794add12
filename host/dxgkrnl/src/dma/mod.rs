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
//! A *staging buffer* is memory of the host that stands for cache lines of an engine: bytes that were written and are in no
//! memory yet, or old ones that are read though memory has new ones. It begins with the first move that names it, as
//! zeros, is as long as the moves that name it need it to be, and ends with `Release`; those of an adapter that is
//! stopped or reset end with `ReleaseAll`.

mod coalesce;
mod executor;
mod staging_buffers;

use core::fmt;

use serde::{Deserialize, Serialize};

pub use executor::{DmaError, DmaExecutor, ProcessMemory};

use crate::ProcessId;

/// A staging buffer: see [`DataMove`]. Its driver numbers it; numbers are used again after their release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StagingBuffer {
    pub adapter: u32,
    pub number: u64,
}

/// Where the bytes of a move begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MemoryRef {
    /// An address of the process's own address space: where what an allocation is of lies.
    Memory {
        process: ProcessId,
        address: u64,
    },
    StagingBuffer {
        staging_buffer: StagingBuffer,
        offset: u64,
    },
}

impl MemoryRef {
    /// So many bytes behind it.
    pub fn ahead(self, bytes: u64) -> MemoryRef {
        match self {
            MemoryRef::Memory { process, address } => {
                MemoryRef::Memory { process, address: address.wrapping_add(bytes) }
            }
            MemoryRef::StagingBuffer { staging_buffer, offset } => {
                MemoryRef::StagingBuffer { staging_buffer, offset: offset.wrapping_add(bytes) }
            }
        }
    }
}

/// What a `Compute` makes of a word of the source and the word that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ComputeOp {
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
pub enum DmaOp {
    /// All is read before anything is written: the two may overlap.
    Copy { from: MemoryRef, to: MemoryRef, bytes: u64 },
    /// The pattern again and again; `bytes` is a multiple of 4.
    Fill { to: MemoryRef, bytes: u64, pattern: u32 },
    /// [`MoveKernel::apply`] to each word; `bytes` is a multiple of 4. All is read before anything is written.
    Compute { kernel: ComputeOp, from: MemoryRef, to: MemoryRef, bytes: u64, operand: u32 },
    /// The staging buffer ends.
    Release { staging_buffer: StagingBuffer },
    /// All staging buffers of an adapter end. Only the kernel says so.
    ReleaseAll { adapter: u32 },
}

impl ComputeOp {
    pub const ALL: [ComputeOp; 4] =
        [ComputeOp::Add, ComputeOp::Multiply, ComputeOp::Xor, ComputeOp::Accumulate];

    /// The word that is written. `there` is the word of the target so far. All is modulo 2^32.
    pub const fn apply(self, source: u32, there: u32, operand: u32) -> u32 {
        match self {
            ComputeOp::Add => source.wrapping_add(operand),
            ComputeOp::Multiply => source.wrapping_mul(operand),
            ComputeOp::Xor => source ^ operand,
            ComputeOp::Accumulate => there.wrapping_add(source).wrapping_add(operand),
        }
    }
}

impl DmaOp {
    /// How many bytes it writes, which is what it costs.
    pub fn bytes(&self) -> u64 {
        match self {
            DmaOp::Copy { bytes, .. } | DmaOp::Fill { bytes, .. } | DmaOp::Compute { bytes, .. } => *bytes,
            DmaOp::Release { .. } | DmaOp::ReleaseAll { .. } => 0,
        }
    }

    /// The places that it names: the source first.
    pub fn places(&self) -> impl Iterator<Item = MemoryRef> + use<> {
        let (from, to) = match *self {
            DmaOp::Copy { from, to, .. } | DmaOp::Compute { from, to, .. } => (Some(from), Some(to)),
            DmaOp::Fill { to, .. } => (None, Some(to)),
            DmaOp::Release { .. } | DmaOp::ReleaseAll { .. } => (None, None),
        };
        from.into_iter().chain(to)
    }

    /// Processes whose memory it touches.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> + use<> {
        self.places().filter_map(|place| match place {
            MemoryRef::Memory { process, .. } => Some(process),
            MemoryRef::StagingBuffer { .. } => None,
        })
    }

    /// The adapters whose staging buffers it names.
    pub fn adapters(&self) -> impl Iterator<Item = u32> + use<> {
        let ended = match self {
            DmaOp::Release { staging_buffer } => Some(staging_buffer.adapter),
            DmaOp::ReleaseAll { adapter } => Some(*adapter),
            DmaOp::Copy { .. } | DmaOp::Fill { .. } | DmaOp::Compute { .. } => None,
        };
        let named = self.places().filter_map(|place| match place {
            MemoryRef::Memory { .. } => None,
            MemoryRef::StagingBuffer { staging_buffer, .. } => Some(staging_buffer.adapter),
        });
        named.chain(ended)
    }
}

impl fmt::Display for StagingBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "staging_buffer {}.{}", self.adapter, self.number)
    }
}

impl fmt::Display for MemoryRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryRef::Memory { process, address } => write!(f, "p{} {address:#x}", process.0),
            MemoryRef::StagingBuffer { staging_buffer, offset } => write!(f, "{staging_buffer} +{offset:#x}"),
        }
    }
}

impl fmt::Display for ComputeOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ComputeOp::Add => "add",
            ComputeOp::Multiply => "multiply",
            ComputeOp::Xor => "xor",
            ComputeOp::Accumulate => "accumulate",
        })
    }
}

impl fmt::Display for DmaOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DmaOp::Copy { from, to, bytes } => write!(f, "move {bytes} bytes {from} -> {to}"),
            DmaOp::Fill { to, bytes, pattern } => write!(f, "move {bytes} bytes of {pattern:#x} -> {to}"),
            DmaOp::Compute { kernel, from, to, bytes, operand } => {
                write!(f, "move {bytes} bytes {from} -> {to}, each word {kernel} {operand:#x}")
            }
            DmaOp::Release { staging_buffer } => write!(f, "move ends {staging_buffer}"),
            DmaOp::ReleaseAll { adapter } => write!(f, "move ends every staging_buffer of adapter {adapter}"),
        }
    }
}
