//! Reader of command buffers. It copies nothing and never panics.

use super::element::{Element, Elements, long, word};
use super::{
    BarrierAccess, BarrierLayout, FenceValue, Form, Groups, HEADER_BYTES, IsaError, Kernel, ListFlags, MAGIC,
    Owned, Packet, QueueType, Viewed, WorkKind, opcode,
};
use crate::limits::LIST_NAME_BYTES_MAX;

/// Iterator over the packets of a command buffer. An invalid packet is an error and ends the iteration.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// `None` without the magic: another driver's command buffer.
    pub fn new(bytes: &'a [u8]) -> Result<Option<Self>, IsaError> {
        if bytes.len() < HEADER_BYTES || word(bytes, 0) != MAGIC {
            return Ok(None);
        }
        let header = word(bytes, 4);
        if header as usize != bytes.len() {
            return Err(IsaError::Length { header, actual: bytes.len() });
        }
        Ok(Some(Reader { bytes, offset: HEADER_BYTES }))
    }

    /// Reader of a buffer that was checked before.
    pub fn checked(bytes: &'a [u8]) -> Self {
        Reader { bytes, offset: HEADER_BYTES.min(bytes.len()) }
    }

    /// Reader that continues at the offset of another reader of the same buffer.
    pub fn resumed(bytes: &'a [u8], offset: usize) -> Self {
        Reader { bytes, offset }
    }

    /// Bytes from the start of the buffer to the packet that comes next.
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn packet(&mut self) -> Result<Packet<Viewed<'a>>, IsaError> {
        let (offset, left) = (self.offset, &self.bytes[self.offset..]);
        if left.len() < HEADER_BYTES {
            return Err(IsaError::PacketLength { offset, opcode: 0, length: left.len() as u32 });
        }
        let (opcode, length) = (word(left, 0), word(left, 4));
        let least = opcode::bytes(opcode).ok_or(IsaError::UnknownOpcode { offset, opcode })?;
        let bad = IsaError::PacketLength { offset, opcode, length };
        let fits = length as usize >= least.bytes
            && (least.grows || length as usize == least.bytes)
            && length % 8 == 0;
        let packet = left.get(..length as usize).filter(|_| fits).ok_or(bad)?;
        let read = Operands { bytes: packet, offset }.read(opcode)?;
        self.offset += length as usize;
        Ok(read)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Packet<Viewed<'a>>, IsaError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset == self.bytes.len() {
            return None;
        }
        let packet = self.packet();
        if packet.is_err() {
            self.offset = self.bytes.len();
        }
        Some(packet)
    }
}

/// One packet's bytes, at least as many as its opcode needs.
struct Operands<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Operands<'a> {
    fn read(&self, opcode: u32) -> Result<Packet<Viewed<'a>>, IsaError> {
        let (gpu_address, value) = (|| long(self.bytes, 8), || long(self.bytes, 16));
        Ok(match opcode {
            opcode::FENCE_WRITE => Packet::FenceWrite { gpu_address: gpu_address(), value: value() },
            opcode::BUSY => Packet::Busy { duration_ns: long(self.bytes, 8) },
            opcode::HANG => Packet::Hang,
            opcode::FENCE_WAIT => Packet::FenceWait { gpu_address: gpu_address(), value: value() },
            opcode::MARKER_IN => Packet::MarkerIn { gpu_address: gpu_address(), value: value() },
            opcode::MARKER_OUT => Packet::MarkerOut { gpu_address: gpu_address(), value: value() },
            opcode::FENCE_READ => Packet::FenceRead { gpu_address: gpu_address(), destination: value() },
            opcode::BEGIN_LIST => self.begin_list()?,
            opcode::WORK => self.work()?,
            opcode::BARRIER => {
                self.zero(12)?;
                Packet::Barrier { groups: self.groups(8, 16)? }
            }
            opcode::LEGACY_BARRIER => {
                self.zero(12)?;
                let (barriers, end) = self.list(8, 16, "resource barriers")?;
                self.ends_at(end)?;
                Packet::LegacyBarrier { barriers }
            }
            opcode::SIGNAL_BARRIER => {
                self.zero(28)?;
                let fence = FenceValue::read(&self.bytes[8..24]);
                Packet::SignalBarrier { fence, groups: self.groups(24, 32)? }
            }
            opcode::WAIT_BARRIER => {
                let (fences, end) = self.list(8, 16, "fences of a wait")?;
                Packet::WaitBarrier { fences, groups: self.groups(12, end)? }
            }
            opcode::ASSERT_RESOURCE_ACCESS => {
                self.zero(20)?;
                Packet::AssertResourceAccess {
                    resource: word(self.bytes, 8),
                    subresource: word(self.bytes, 12),
                    access: BarrierAccess::from_bits_retain(word(self.bytes, 16)),
                }
            }
            opcode::ASSERT_TEXTURE_LAYOUT => {
                self.zero(20)?;
                Packet::AssertTextureLayout {
                    resource: word(self.bytes, 8),
                    subresource: word(self.bytes, 12),
                    layout: BarrierLayout(word(self.bytes, 16)),
                }
            }
            opcode::TIMESTAMP => Packet::Timestamp { gpu_address: gpu_address() },
            opcode => return Err(IsaError::UnknownOpcode { offset: self.offset, opcode }),
        })
    }

    fn bad_word(&self, at: usize, what: &'static str) -> IsaError {
        IsaError::Word { offset: self.offset + at, what, value: word(self.bytes, at) }
    }

    fn zero(&self, at: usize) -> Result<(), IsaError> {
        if word(self.bytes, at) == 0 { Ok(()) } else { Err(self.bad_word(at, "reserved word")) }
    }

    /// Checks that the packet ends with its operands.
    fn ends_at(&self, end: usize) -> Result<(), IsaError> {
        let (offset, opcode, length) = (self.offset, word(self.bytes, 0), self.bytes.len() as u32);
        if end == self.bytes.len() { Ok(()) } else { Err(IsaError::PacketLength { offset, opcode, length }) }
    }

    /// As many elements as the word at `count_at` says, from `at` on, and the offset of their end.
    fn list<T: Element>(
        &self,
        count_at: usize,
        at: usize,
        what: &'static str,
    ) -> Result<(Elements<'a, T>, usize), IsaError> {
        let count = word(self.bytes, count_at);
        let end = (count as usize).saturating_mul(T::BYTES).saturating_add(at);
        let cut = IsaError::Count { offset: self.offset + count_at, what, count };
        let bytes = self.bytes.get(at..end).ok_or(cut)?;
        Ok((Elements::new(bytes, self.offset + at)?, end))
    }

    /// As many groups as the word at `count_at` says, from `at` to the end.
    fn groups(&self, count_at: usize, at: usize) -> Result<Groups<'a>, IsaError> {
        Groups::new(&self.bytes[at..], word(self.bytes, count_at), self.offset + at)
    }

    fn begin_list(&self) -> Result<Packet<Viewed<'a>>, IsaError> {
        let queue =
            QueueType::from_word(word(self.bytes, 8)).ok_or_else(|| self.bad_word(8, "type of a list"))?;
        let flags = ListFlags::from_bits(word(self.bytes, 12));
        let flags = flags.ok_or_else(|| self.bad_word(12, "flags of a list"))?;
        self.zero(20)?;
        let length = word(self.bytes, 16) as usize;
        let cut = IsaError::Count { offset: self.offset + 16, what: "bytes of a name", count: length as u32 };
        if length > LIST_NAME_BYTES_MAX {
            return Err(cut);
        }
        self.ends_at(24 + length.next_multiple_of(8))?;
        let (name, padding) = self.bytes[24..].split_at(length);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(cut);
        }
        let name = core::str::from_utf8(name).map_err(|_| IsaError::Name { offset: self.offset + 24 })?;
        Ok(Packet::BeginList { queue, flags, name })
    }

    fn work(&self) -> Result<Packet<Viewed<'a>>, IsaError> {
        let kind =
            WorkKind::from_word(word(self.bytes, 8)).ok_or_else(|| self.bad_word(8, "kind of work"))?;
        let kernel = Kernel::from_word(word(self.bytes, 12)).ok_or_else(|| self.bad_word(12, "kernel"))?;
        let (uses, end) = self.list(20, 32, "uses of a command")?;
        self.ends_at(end)?;
        let (operand, duration_ns) = (word(self.bytes, 16), long(self.bytes, 24));
        Ok(Packet::Work { kind, kernel, operand, duration_ns, uses })
    }
}

impl Packet<Viewed<'_>> {
    /// Whether the queue waits in hardware at this packet.
    pub fn waits_in_hardware(&self) -> bool {
        match self {
            Packet::FenceWait { .. } => true,
            Packet::WaitBarrier { fences, .. } => !fences.is_empty(),
            _ => false,
        }
    }

    /// A copy that does not borrow the command buffer.
    pub fn to_owned(&self) -> Packet {
        match self.clone() {
            Packet::FenceWrite { gpu_address, value } => Packet::FenceWrite { gpu_address, value },
            Packet::Busy { duration_ns } => Packet::Busy { duration_ns },
            Packet::Hang => Packet::Hang,
            Packet::FenceWait { gpu_address, value } => Packet::FenceWait { gpu_address, value },
            Packet::MarkerIn { gpu_address, value } => Packet::MarkerIn { gpu_address, value },
            Packet::MarkerOut { gpu_address, value } => Packet::MarkerOut { gpu_address, value },
            Packet::FenceRead { gpu_address, destination } => Packet::FenceRead { gpu_address, destination },
            Packet::BeginList { queue, flags, name } => Packet::BeginList { queue, flags, name: name.into() },
            Packet::Work { kind, kernel, operand, duration_ns, uses } => {
                Packet::Work { kind, kernel, operand, duration_ns, uses: uses.iter().collect() }
            }
            Packet::Barrier { groups } => Packet::Barrier { groups: owned(groups) },
            Packet::LegacyBarrier { barriers } => {
                Packet::LegacyBarrier { barriers: barriers.iter().collect() }
            }
            Packet::SignalBarrier { fence, groups } => Packet::SignalBarrier { fence, groups: owned(groups) },
            Packet::WaitBarrier { fences, groups } => {
                Packet::WaitBarrier { fences: fences.iter().collect(), groups: owned(groups) }
            }
            Packet::AssertResourceAccess { resource, subresource, access } => {
                Packet::AssertResourceAccess { resource, subresource, access }
            }
            Packet::AssertTextureLayout { resource, subresource, layout } => {
                Packet::AssertTextureLayout { resource, subresource, layout }
            }
            Packet::Timestamp { gpu_address } => Packet::Timestamp { gpu_address },
        }
    }
}

fn owned(groups: Groups<'_>) -> <Owned as Form>::Groups {
    groups.iter().map(|group| group.to_owned()).collect()
}
