//! The command packets of our simulated engines, as they stand in a command buffer (the private
//! driver data of `D3DKMTSubmitCommand`). Little-endian, 8-byte aligned:
//!
//! ```text
//! offset 0  u32  magic "GPV1" (0x31565047)
//!        4  u32  bytes in all, this header included
//!        8  packets, one after the other:
//!              u32 opcode, u32 bytes of this packet with these 8, then the operands
//!
//! opcode 1  FenceWrite  u64 gpu_address, u64 value   store a fence value (FEN-026)
//!        2  Busy        u64 duration_ns              the engine works for that long
//!        3  Hang                                     the engine never comes back
//!        4  FenceWait   u64 gpu_address, u64 value   the queue waits in hardware for a native fence; the engine
//!                                                    runs other queues meanwhile
//!        5  MarkerIn    u64 gpu_address, u64 value   WriteBufferImmediate of mode MARKER_IN: stored when all packets
//!                                                    before it in the buffer have started
//!        6  MarkerOut   u64 gpu_address, u64 value   the same, MARKER_OUT: stored when they are complete
//! ```
//!
//! Private data without the magic is somebody else's command buffer: valid and opaque.

use alloc::vec::Vec;
use core::fmt;

/// First word of a command buffer of ours.
pub const MAGIC: u32 = u32::from_le_bytes(*b"GPV1");

/// One packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet {
    FenceWrite {
        gpu_address: u64,
        value: u64,
    },
    Busy {
        duration_ns: u64,
    },
    Hang,
    /// Goes on when the native fence at the address has the value (FEN-115).
    FenceWait {
        gpu_address: u64,
        value: u64,
    },
    /// `WriteBufferImmediate`, `D3D12_WRITEBUFFERIMMEDIATE_MODE_MARKER_IN`: all that is before it has started (SCH-045).
    /// There is no memory yet but that of fences. D3D12's immediates have 32 bits.
    MarkerIn {
        gpu_address: u64,
        value: u64,
    },
    /// `.._MARKER_OUT`: all that is before it is complete. What is behind it is not held up.
    MarkerOut {
        gpu_address: u64,
        value: u64,
    },
}

/// A decoded command buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandBuffer {
    Packets(Vec<Packet>),
    /// No magic: a command buffer of a KMD we do not know, of that many bytes.
    Opaque(usize),
}

/// Why a command buffer that carries our magic cannot be run.
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
        }
    }
}

const HEADER_BYTES: usize = 8;

impl Packet {
    const fn opcode(self) -> u32 {
        match self {
            Packet::FenceWrite { .. } => 1,
            Packet::Busy { .. } => 2,
            Packet::Hang => 3,
            Packet::FenceWait { .. } => 4,
            Packet::MarkerIn { .. } => 5,
            Packet::MarkerOut { .. } => 6,
        }
    }

    fn operands(self) -> ([u64; 2], usize) {
        match self {
            Packet::FenceWrite { gpu_address, value }
            | Packet::FenceWait { gpu_address, value }
            | Packet::MarkerIn { gpu_address, value }
            | Packet::MarkerOut { gpu_address, value } => ([gpu_address, value], 2),
            Packet::Busy { duration_ns } => ([duration_ns, 0], 1),
            Packet::Hang => ([0, 0], 0),
        }
    }
}

/// The bytes of a command buffer with these packets.
pub fn encode(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + packets.len() * 24);
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for packet in packets {
        let (operands, count) = packet.operands();
        bytes.extend_from_slice(&packet.opcode().to_le_bytes());
        bytes.extend_from_slice(&((HEADER_BYTES + count * 8) as u32).to_le_bytes());
        for operand in &operands[..count] {
            bytes.extend_from_slice(&operand.to_le_bytes());
        }
    }
    let length = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

/// Reads a command buffer. Never panics, whatever the bytes.
pub fn decode(bytes: &[u8]) -> Result<CommandBuffer, IsaError> {
    if bytes.len() < HEADER_BYTES || word(bytes, 0) != MAGIC {
        return Ok(CommandBuffer::Opaque(bytes.len()));
    }
    let header = word(bytes, 4);
    if header as usize != bytes.len() {
        return Err(IsaError::Length { header, actual: bytes.len() });
    }
    let mut packets = Vec::new();
    let mut offset = HEADER_BYTES;
    while offset < bytes.len() {
        let left = bytes.len() - offset;
        if left < HEADER_BYTES {
            return Err(IsaError::PacketLength { offset, opcode: 0, length: left as u32 });
        }
        let (opcode, length) = (word(bytes, offset), word(bytes, offset + 4));
        let expected = match opcode {
            1 | 4..=6 => 24,
            2 => 16,
            3 => 8,
            _ => return Err(IsaError::UnknownOpcode { offset, opcode }),
        };
        if length != expected || left < expected as usize {
            return Err(IsaError::PacketLength { offset, opcode, length });
        }
        let operand = |number: usize| long(bytes, offset + HEADER_BYTES + number * 8);
        packets.push(match opcode {
            1 => Packet::FenceWrite { gpu_address: operand(0), value: operand(1) },
            2 => Packet::Busy { duration_ns: operand(0) },
            3 => Packet::Hang,
            4 => Packet::FenceWait { gpu_address: operand(0), value: operand(1) },
            5 => Packet::MarkerIn { gpu_address: operand(0), value: operand(1) },
            _ => Packet::MarkerOut { gpu_address: operand(0), value: operand(1) },
        });
        offset += length as usize;
    }
    Ok(CommandBuffer::Packets(packets))
}
