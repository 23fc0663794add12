//! DMA operations of engines. The model never sees the bytes: it lists the operations, and the host that runs the
//! kernel executes them. A test does so in arrays, the daemon in pinned pages of processes.
//!
//! ```text
//!   engine ──Callback::Dma──▶ kernel ──Effects::moves──▶ host      before the fence stores of the step
//! ```
//! The host executes all operations of a step in order, before any fence store, answer or event of that step: a process
//! that sees the fence sees the bytes. Numbers in memory are little-endian words of 32 bits.
//!
//! Other threads wait while the kernel's thread moves bytes. So an engine pushes a long operation in pieces of
//! [`MOVED_BYTES_PER_STEP`](d3dkmt::limits::MOVED_BYTES_PER_STEP), each at the time at which its hardware would have
//! moved it. After that many bytes a step runs no other due time: it comes in the next step.
//!
//! A *staging buffer* is memory of the host that stands for cache lines of an engine: written bytes that are in no
//! memory yet, or old bytes that are read although memory has new ones. The first operation that names it creates it,
//! filled with zeros, and operations grow it as they need. `Release` frees it. `ReleaseAll` frees those of an adapter
//! that is stopped or reset.

mod coalesce;
mod executor;
mod staging_buffers;

use core::fmt;

use serde::{Deserialize, Serialize};

pub use executor::{DmaError, DmaExecutor, ProcessMemory};
pub use staging_buffers::StagedMemory;

use crate::ProcessId;

/// A staging buffer of an adapter. Its driver numbers it; numbers are reused after their release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StagingBuffer {
    pub adapter: u32,
    pub number: u64,
}

/// The first byte of a range that an operation reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MemoryRef {
    /// An address of the process's own address space, where the memory of an allocation lies.
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
    /// The place `bytes` bytes further on.
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

/// How a `Compute` combines a word of the source with the word of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ComputeOp {
    /// source + operand
    Add,
    /// source * operand
    Multiply,
    /// source ^ operand
    Xor,
    /// target + source + operand
    Accumulate,
}

/// A DMA operation. Counts are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DmaOp {
    /// The two ranges may overlap: all bytes are read before any is written.
    Copy { from: MemoryRef, to: MemoryRef, bytes: u64 },
    /// Repeats the pattern; `bytes` is a multiple of 4.
    Fill { to: MemoryRef, bytes: u64, pattern: u32 },
    /// Applies [`ComputeOp::apply`] to each word; `bytes` is a multiple of 4. All words are read before any is written.
    Compute { kernel: ComputeOp, from: MemoryRef, to: MemoryRef, bytes: u64, operand: u32 },
    /// Frees the staging buffer.
    Release { staging_buffer: StagingBuffer },
    /// Frees all staging buffers of an adapter. Only the kernel issues it.
    ReleaseAll { adapter: u32 },
}

impl ComputeOp {
    pub const ALL: [ComputeOp; 4] =
        [ComputeOp::Add, ComputeOp::Multiply, ComputeOp::Xor, ComputeOp::Accumulate];

    /// The new word of the target; `old` is the old one. Arithmetic is modulo 2^32.
    pub const fn apply(self, source: u32, old: u32, operand: u32) -> u32 {
        match self {
            ComputeOp::Add => source.wrapping_add(operand),
            ComputeOp::Multiply => source.wrapping_mul(operand),
            ComputeOp::Xor => source ^ operand,
            ComputeOp::Accumulate => old.wrapping_add(source).wrapping_add(operand),
        }
    }
}

impl DmaOp {
    /// Number of bytes that it writes, which is its cost.
    pub fn bytes(&self) -> u64 {
        match self {
            DmaOp::Copy { bytes, .. } | DmaOp::Fill { bytes, .. } | DmaOp::Compute { bytes, .. } => *bytes,
            DmaOp::Release { .. } | DmaOp::ReleaseAll { .. } => 0,
        }
    }

    /// The places that it names: the source first.
    pub fn memory_refs(&self) -> impl Iterator<Item = MemoryRef> + use<> {
        let (from, to) = match *self {
            DmaOp::Copy { from, to, .. } | DmaOp::Compute { from, to, .. } => (Some(from), Some(to)),
            DmaOp::Fill { to, .. } => (None, Some(to)),
            DmaOp::Release { .. } | DmaOp::ReleaseAll { .. } => (None, None),
        };
        from.into_iter().chain(to)
    }

    /// Processes whose memory it touches.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> + use<> {
        self.addresses().map(|(process, _)| process)
    }

    /// First addresses of the memory that it touches, and the process of each.
    pub fn addresses(&self) -> impl Iterator<Item = (ProcessId, u64)> + use<> {
        self.memory_refs().filter_map(|memory| match memory {
            MemoryRef::Memory { process, address } => Some((process, address)),
            MemoryRef::StagingBuffer { .. } => None,
        })
    }

    /// The staging buffers whose bytes it reads or writes.
    pub fn accessed_buffers(&self) -> impl Iterator<Item = StagingBuffer> + use<> {
        self.memory_refs().filter_map(|memory| match memory {
            MemoryRef::Memory { .. } => None,
            MemoryRef::StagingBuffer { staging_buffer, .. } => Some(staging_buffer),
        })
    }

    /// The staging buffers that it names: those, or the one that it frees.
    pub fn staging_buffers(&self) -> impl Iterator<Item = StagingBuffer> + use<> {
        let ended = match self {
            DmaOp::Release { staging_buffer } => Some(*staging_buffer),
            DmaOp::ReleaseAll { .. } | DmaOp::Copy { .. } | DmaOp::Fill { .. } | DmaOp::Compute { .. } => {
                None
            }
        };
        self.accessed_buffers().chain(ended)
    }

    /// Extends it by the next operation, if that goes on where it ends, and reads nothing that it has written: a long
    /// operation that its engine pushed in pieces becomes one again. False if not.
    pub fn extend_by(&mut self, next: &DmaOp) -> bool {
        let (was, whole) = (self.bytes(), self.bytes().checked_add(next.bytes()));
        let Some(whole) = whole.filter(|_| self.after(was).resized(next.bytes()) == *next) else {
            return false;
        };
        let is_one = self.goes_forward(whole);
        if is_one {
            *self = self.resized(whole);
        }
        is_one
    }

    /// Whether it may be done in pieces, from its first byte on, if it has so many bytes.
    fn goes_forward(&self, bytes: u64) -> bool {
        match *self {
            DmaOp::Copy { from, to, .. } | DmaOp::Compute { from, to, .. } => {
                distance_behind(from, to).is_none_or(|by| by >= bytes)
            }
            DmaOp::Fill { .. } => true,
            DmaOp::Release { .. } | DmaOp::ReleaseAll { .. } => false,
        }
    }

    /// Its first `bytes` bytes, and the rest. Whole, if the first would overwrite what the rest reads: such an operation was
    /// not extended.
    pub fn split(self, bytes: u64) -> (DmaOp, Option<DmaOp>) {
        let left = self.bytes().checked_sub(bytes).filter(|left| *left > 0);
        match left.filter(|_| self.goes_forward(self.bytes())) {
            Some(left) => (self.resized(bytes), Some(self.after(bytes).resized(left))),
            None => (self, None),
        }
    }

    /// The same on ranges that begin so many bytes further on.
    fn after(self, by: u64) -> DmaOp {
        match self {
            DmaOp::Copy { from, to, bytes } => DmaOp::Copy { from: from.ahead(by), to: to.ahead(by), bytes },
            DmaOp::Fill { to, bytes, pattern } => DmaOp::Fill { to: to.ahead(by), bytes, pattern },
            DmaOp::Compute { kernel, from, to, bytes, operand } => {
                DmaOp::Compute { kernel, from: from.ahead(by), to: to.ahead(by), bytes, operand }
            }
            ends @ (DmaOp::Release { .. } | DmaOp::ReleaseAll { .. }) => ends,
        }
    }

    /// The same on ranges of so many bytes.
    fn resized(self, bytes: u64) -> DmaOp {
        match self {
            DmaOp::Copy { from, to, .. } => DmaOp::Copy { from, to, bytes },
            DmaOp::Fill { to, pattern, .. } => DmaOp::Fill { to, bytes, pattern },
            DmaOp::Compute { kernel, from, to, operand, .. } => {
                DmaOp::Compute { kernel, from, to, bytes, operand }
            }
            ends @ (DmaOp::Release { .. } | DmaOp::ReleaseAll { .. }) => ends,
        }
    }

    /// The adapters whose staging buffers it names.
    pub fn adapters(&self) -> impl Iterator<Item = u32> + use<> {
        let all = match self {
            DmaOp::ReleaseAll { adapter } => Some(*adapter),
            DmaOp::Release { .. } | DmaOp::Copy { .. } | DmaOp::Fill { .. } | DmaOp::Compute { .. } => None,
        };
        self.staging_buffers().map(|staging_buffer| staging_buffer.adapter).chain(all)
    }
}

/// How far behind the source the target begins. `None` if it begins before it, or elsewhere: then no byte of the source is
/// overwritten before it is read, if the first bytes come first.
fn distance_behind(from: MemoryRef, to: MemoryRef) -> Option<u64> {
    match (from, to) {
        (MemoryRef::Memory { process: a, address: from }, MemoryRef::Memory { process: b, address: to }) => {
            to.checked_sub(from).filter(|by| a == b && *by > 0)
        }
        (
            MemoryRef::StagingBuffer { staging_buffer: a, offset: from },
            MemoryRef::StagingBuffer { staging_buffer: b, offset: to },
        ) => to.checked_sub(from).filter(|by| a == b && *by > 0),
        (MemoryRef::Memory { .. }, MemoryRef::StagingBuffer { .. })
        | (MemoryRef::StagingBuffer { .. }, MemoryRef::Memory { .. }) => None,
    }
}

impl fmt::Display for StagingBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "staging buffer {}.{}", self.adapter, self.number)
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
            DmaOp::Release { staging_buffer } => write!(f, "move releases {staging_buffer}"),
            DmaOp::ReleaseAll { adapter } => {
                write!(f, "move releases every staging buffer of adapter {adapter}")
            }
        }
    }
}
