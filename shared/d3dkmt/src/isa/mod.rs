//! The command packets of the simulated engines, as they stand in a command buffer (the private
//! driver data of `D3DKMTSubmitCommand`). Little-endian, 8-byte aligned:
//!
//! ```text
//! offset 0  u32  magic "GPV1" (0x31565047)
//!        4  u32  bytes in all, this header included
//!        8  packets, one after the other:
//!              u32 opcode, u32 bytes of this packet with these 8, then the operands
//!
//! opcode 1  FenceWrite   u64 gpu_address, u64 value   store a fence value (FEN-026)
//!        2  Busy         u64 duration_ns              the engine works for that long
//!        3  Hang                                      the engine never completes it
//!        4  FenceWait    u64 gpu_address, u64 value   the queue waits in hardware for a native fence; the engine
//!                                                     runs other queues meanwhile
//!        5  MarkerIn     u64 gpu_address, u64 value   WriteBufferImmediate of mode MARKER_IN: stored when all packets
//!                                                     before it in the buffer have started
//!        6  MarkerOut    u64 gpu_address, u64 value   the same, MARKER_OUT: stored when they are complete
//!        7  FenceRead    u64 gpu_address, u64 destination   the value of a fence, 8 bytes, to memory
//!       16  BeginList    u32 queue, u32 flags, u32 bytes of the name, u32 0, the name with zeros up to 8 bytes
//!       17  Work         u32 kind, u32 kernel, u32 operand, u32 uses, u64 duration_ns, the uses of 40 bytes
//!       18  Barrier      u32 groups, u32 0, the groups
//!       19  LegacyBarrier u32 barriers, u32 0, the barriers of 24 bytes
//!       20  SignalBarrier u64 gpu_address, u64 value, u32 groups, u32 0, the groups
//!       21  WaitBarrier  u32 fences, u32 groups, the fences (u64 gpu_address, u64 value), the groups
//!       22  AssertResourceAccess u32 resource, u32 subresource, u32 access, u32 0
//!       23  AssertTextureLayout  u32 resource, u32 subresource, u32 layout, u32 0
//!       24  Timestamp    u64 gpu_address              the engine's time, 8 bytes
//!
//! a group   u32 type (0 global, 1 texture, 2 buffer, 3 ranged), u32 barriers, the barriers of 16, 56, 40, 40 bytes;
//!           a group of another type has a number of barriers and no bytes of them
//! ```
//!
//! A submission is one ExecuteCommandLists. BeginList begins a command list in it; what stands before the first one is
//! a list of the queue's own type. Private data without the magic is another driver's command buffer: valid and opaque.
//!
//! A packet has two forms: [`Owned`] has vectors of its own; [`Viewed`] borrows its arrays from the command buffer
//! ([`Reader`]), so that reading a million commands allocates nothing.

mod barrier;
mod element;
pub mod opcode;
mod read;
mod resource;
mod saved;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_words;
mod words;
mod work;
mod write;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use barrier::{
    Barrier, BarrierGroup, BufferBarrier, FenceValue, Groups, LegacyBarrier, RangedBarrier, SubresourceRange,
    TextureBarrier,
};
pub use element::{Element, Elements};
pub use read::Reader;
pub use resource::{DescError, HeapType, ResourceDesc, ResourceFlags, ResourceKind, ResourceName};
pub use words::{
    BarrierAccess, BarrierLayout, BarrierSync, LegacyFlags, LegacyState, ListFlags, QueueType, RangedFlags,
    TextureFlags, UseFlags,
};
pub use work::{ALL_SUBRESOURCES, Kernel, ScopeReading, Use, WHOLE, WorkKind, other_scopes, scope};
pub use write::encode;

/// First word of a command buffer for the simulated engines.
pub const MAGIC: u32 = u32::from_le_bytes(*b"GPV1");

const HEADER_BYTES: usize = 8;

/// How a packet stores its parts of variable size.
pub trait Form: Clone + PartialEq + Eq + fmt::Debug {
    type Name: Clone + PartialEq + Eq + fmt::Debug;
    type List<T: Element>: Clone + PartialEq + Eq + fmt::Debug;
    type Groups: Clone + PartialEq + Eq + fmt::Debug;
}

/// Form of a packet with vectors of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owned;

impl Form for Owned {
    type Name = String;
    type List<T: Element> = Vec<T>;
    type Groups = Vec<BarrierGroup>;
}

/// Form of a packet that borrows from the command buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Viewed<'a>(core::marker::PhantomData<&'a [u8]>);

impl<'a> Form for Viewed<'a> {
    type Name = &'a str;
    type List<T: Element> = Elements<'a, T>;
    type Groups = Groups<'a>;
}

/// One packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet<F: Form = Owned> {
    FenceWrite {
        gpu_address: u64,
        value: u64,
    },
    Busy {
        duration_ns: u64,
    },
    Hang,
    /// The queue waits until the native fence at the address has the value (FEN-115).
    FenceWait {
        gpu_address: u64,
        value: u64,
    },
    /// `WriteBufferImmediate`, `D3D12_WRITEBUFFERIMMEDIATE_MODE_MARKER_IN`: all that is before it has started
    /// (SCH-045). Markers store 64 bits to a fence; D3D12's immediates store 32 bits to any buffer.
    MarkerIn {
        gpu_address: u64,
        value: u64,
    },
    /// `.._MARKER_OUT`: all that is before it is complete. It does not delay later packets.
    MarkerOut {
        gpu_address: u64,
        value: u64,
    },
    /// The value of the fence at `gpu_address`, as the engine finds it there, is written to the 8 bytes at
    /// `destination` (FEN-007). A `destination` that is no multiple of 8 faults.
    FenceRead {
        gpu_address: u64,
        destination: u64,
    },
    /// Begins a command list, which ends at the next `BeginList` or with the buffer. Lists of one submission are one
    /// scope for barriers; messages name the list.
    BeginList {
        queue: QueueType,
        flags: ListFlags,
        /// For messages; may be empty. At most [`LIST_NAME_BYTES_MAX`](crate::limits::LIST_NAME_BYTES_MAX) bytes.
        name: F::Name,
    },
    /// A draw, dispatch, copy and so on.
    Work {
        kind: WorkKind,
        kernel: Kernel,
        operand: u32,
        duration_ns: u64,
        uses: F::List<Use>,
    },
    /// `ID3D12GraphicsCommandList7::Barrier`.
    Barrier {
        groups: F::Groups,
    },
    /// `ID3D12GraphicsCommandList::ResourceBarrier`.
    LegacyBarrier {
        barriers: F::List<LegacyBarrier>,
    },
    /// `SignalBarrier` (fence barriers, preview): runs the barriers, then signals.
    SignalBarrier {
        fence: FenceValue,
        groups: F::Groups,
    },
    /// `WaitBarrier`: waits for every fence, then runs the barriers.
    WaitBarrier {
        fences: F::List<FenceValue>,
        groups: F::Groups,
    },
    /// `ID3D12DebugCommandList::AssertResourceAccess`: checked, never executed.
    AssertResourceAccess {
        resource: u32,
        /// Flat, or [`ALL_SUBRESOURCES`].
        subresource: u32,
        access: BarrierAccess,
    },
    /// `ID3D12DebugCommandList::AssertTextureLayout`.
    AssertTextureLayout {
        resource: u32,
        subresource: u32,
        layout: BarrierLayout,
    },
    /// `EndQuery` of a timestamp: stores the time when all that is before it is complete.
    Timestamp {
        gpu_address: u64,
    },
}

/// A decoded command buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandBuffer {
    Packets(Vec<Packet>),
    /// No magic: another driver's command buffer, of that many bytes.
    Opaque(usize),
}

/// Why a command buffer with the magic cannot be executed. Offsets are from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsaError {
    /// The header's length is not the length of the data.
    Length {
        header: u32,
        actual: usize,
    },
    /// A packet is cut off, or its length does not fit its opcode.
    PacketLength {
        offset: usize,
        opcode: u32,
        length: u32,
    },
    UnknownOpcode {
        offset: usize,
        opcode: u32,
    },
    /// A word has a value without meaning.
    Word {
        offset: usize,
        what: &'static str,
        value: u32,
    },
    /// A count is above what the packet has room for, or above its limit.
    Count {
        offset: usize,
        what: &'static str,
        count: u32,
    },
    /// A name is not UTF-8.
    Name {
        offset: usize,
    },
}

impl fmt::Display for IsaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsaError::Length { header, actual } => {
                write!(f, "command buffer says {header} bytes but {actual} were submitted")
            }
            IsaError::PacketLength { offset, opcode, length } => {
                write!(f, "packet at byte {offset} (opcode {opcode}) has the impossible length {length}")
            }
            IsaError::UnknownOpcode { offset, opcode } => {
                write!(f, "packet at byte {offset} has the unknown opcode {opcode}")
            }
            IsaError::Word { offset, what, value } => {
                write!(f, "byte {offset} of the command buffer: the {what} cannot be {value:#x}")
            }
            IsaError::Count { offset, what, count } => {
                write!(f, "byte {offset} of the command buffer: there is no room for {count} {what}")
            }
            IsaError::Name { offset } => {
                write!(f, "byte {offset} of the command buffer: the name is not UTF-8")
            }
        }
    }
}

/// Decodes a whole command buffer. Never panics, whatever the bytes.
pub fn decode(bytes: &[u8]) -> Result<CommandBuffer, IsaError> {
    let Some(reader) = Reader::new(bytes)? else { return Ok(CommandBuffer::Opaque(bytes.len())) };
    let packets = reader.map(|packet| packet.map(|packet| packet.to_owned()));
    packets.collect::<Result<_, _>>().map(CommandBuffer::Packets)
}

/// Checks that a command buffer can be executed, without copying any of it.
pub fn check(bytes: &[u8]) -> Result<(), IsaError> {
    let Some(mut reader) = Reader::new(bytes)? else { return Ok(()) };
    reader.try_for_each(|packet| packet.map(drop))
}
