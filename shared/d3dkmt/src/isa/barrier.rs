//! Barriers as they stand in a command list: groups of one type, in the API's order (BAR-011), and the older
//! `ResourceBarrier`. They are not validated here.

use serde::{Deserialize, Serialize};

use super::element::{Element, Elements, long, push, word};
use super::{
    BarrierAccess, BarrierLayout, BarrierSync, Form, IsaError, LegacyFlags, LegacyState, Owned, RangedFlags,
    TextureFlags, Viewed,
};
use alloc::vec::Vec;
use core::fmt;

/// The members of all barriers; a global one has no others (`D3D12_GLOBAL_BARRIER`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Barrier {
    pub sync_before: BarrierSync,
    pub sync_after: BarrierSync,
    pub access_before: BarrierAccess,
    pub access_after: BarrierAccess,
}

/// `D3D12_TEXTURE_BARRIER`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TextureBarrier {
    pub barrier: Barrier,
    pub layout_before: BarrierLayout,
    pub layout_after: BarrierLayout,
    /// 0 is NULL.
    pub resource: u32,
    pub flags: TextureFlags,
    pub subresources: SubresourceRange,
}

/// `D3D12_BARRIER_SUBRESOURCE_RANGE`: if `mips` is 0, then `first_mip` is the flat index of one subresource, or
/// [`ALL_SUBRESOURCES`](super::ALL_SUBRESOURCES), and the other members are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SubresourceRange {
    pub first_mip: u32,
    pub mips: u32,
    pub first_slice: u32,
    pub slices: u32,
    pub first_plane: u32,
    pub planes: u32,
}

impl SubresourceRange {
    pub const ALL: Self = Self::one(u32::MAX);

    /// One subresource by its flat index.
    pub const fn one(index: u32) -> Self {
        SubresourceRange { first_mip: index, mips: 0, first_slice: 0, slices: 0, first_plane: 0, planes: 0 }
    }
}

/// `D3D12_BUFFER_BARRIER`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BufferBarrier {
    pub barrier: Barrier,
    /// 0 is NULL.
    pub resource: u32,
    /// 0: the whole buffer and nothing else.
    pub offset: u64,
    /// `u64::MAX`, or all bytes of the buffer.
    pub bytes: u64,
}

/// `D3D12DDI_RANGED_BARRIER` (BAR-013).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RangedBarrier {
    pub barrier: Barrier,
    /// 0: the whole cache; else what may hold this resource.
    pub resource: u32,
    pub flags: RangedFlags,
    pub offset: u64,
    pub bytes: u64,
}

impl RangedBarrier {
    /// The barrier that takes effect. ACQUIRE alone has `none` for its AccessBefore, because it writes nothing back, and
    /// RELEASE alone for its AccessAfter, because it invalidates nothing. Both flags are as none.
    pub fn effective(&self, none: BarrierAccess) -> Barrier {
        match (self.flags.contains(RangedFlags::ACQUIRE), self.flags.contains(RangedFlags::RELEASE)) {
            (true, false) => Barrier { access_before: none, ..self.barrier },
            (false, true) => Barrier { access_after: none, ..self.barrier },
            (true, true) | (false, false) => self.barrier,
        }
    }
}

/// `D3D12_BARRIER_GROUP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BarrierGroup<F: Form = Owned> {
    Global(F::List<Barrier>),
    Texture(F::List<TextureBarrier>),
    Buffer(F::List<BufferBarrier>),
    /// Exists in the DDI only.
    Ranged(F::List<RangedBarrier>),
    /// Another type. The size of its barriers is unknown, so the buffer contains none of them.
    Unknown {
        kind: u32,
        barriers: u32,
    },
}

const GLOBAL: u32 = 0;
const TEXTURE: u32 = 1;
const BUFFER: u32 = 2;
const RANGED: u32 = 3;

impl BarrierGroup {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        fn list<T: Element>(out: &mut Vec<u8>, kind: u32, barriers: &[T]) {
            push(out, &[kind, barriers.len() as u32]);
            barriers.iter().for_each(|barrier| barrier.write(out));
        }
        match self {
            BarrierGroup::Global(barriers) => list(out, GLOBAL, barriers),
            BarrierGroup::Texture(barriers) => list(out, TEXTURE, barriers),
            BarrierGroup::Buffer(barriers) => list(out, BUFFER, barriers),
            BarrierGroup::Ranged(barriers) => list(out, RANGED, barriers),
            BarrierGroup::Unknown { kind, barriers } => push(out, &[*kind, *barriers]),
        }
    }
}

impl BarrierGroup<Viewed<'_>> {
    pub fn to_owned(&self) -> BarrierGroup {
        match self {
            BarrierGroup::Global(barriers) => BarrierGroup::Global(barriers.iter().collect()),
            BarrierGroup::Texture(barriers) => BarrierGroup::Texture(barriers.iter().collect()),
            BarrierGroup::Buffer(barriers) => BarrierGroup::Buffer(barriers.iter().collect()),
            BarrierGroup::Ranged(barriers) => BarrierGroup::Ranged(barriers.iter().collect()),
            BarrierGroup::Unknown { kind, barriers } => {
                BarrierGroup::Unknown { kind: *kind, barriers: *barriers }
            }
        }
    }
}

/// The groups of a packet, borrowed from the command buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Groups<'a> {
    bytes: &'a [u8],
}

impl<'a> Groups<'a> {
    /// `count` groups that fill `bytes`, which are at `offset` of the command buffer.
    pub(super) fn new(bytes: &'a [u8], count: u32, offset: usize) -> Result<Self, IsaError> {
        let mut at = 0;
        for _ in 0..count {
            let (_, length) = read_group(&bytes[at..], offset + at)?;
            at += length;
        }
        if at != bytes.len() {
            return Err(IsaError::Count { offset: offset + at, what: "groups of barriers", count });
        }
        Ok(Groups { bytes })
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = BarrierGroup<Viewed<'a>>> + use<'a> {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let (group, length) = read_group(rest, 0).ok()?;
            rest = &rest[length..];
            Some(group)
        })
    }
}

impl fmt::Debug for Groups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The first group in these bytes, and its size.
fn read_group(bytes: &[u8], offset: usize) -> Result<(BarrierGroup<Viewed<'_>>, usize), IsaError> {
    fn list<T: Element>(
        body: &[u8],
        count: u32,
        offset: usize,
    ) -> Result<(Elements<'_, T>, usize), IsaError> {
        let length = (count as usize).saturating_mul(T::BYTES);
        let cut = IsaError::Count { offset: offset + 4, what: "barriers of a group", count };
        Ok((Elements::new(body.get(..length).ok_or(cut)?, offset + 8)?, 8 + length))
    }
    if bytes.len() < 8 {
        return Err(IsaError::Count {
            offset,
            what: "bytes of a group of barriers",
            count: bytes.len() as u32,
        });
    }
    let (kind, count, body) = (word(bytes, 0), word(bytes, 4), &bytes[8..]);
    Ok(match kind {
        GLOBAL => list(body, count, offset).map(|(list, length)| (BarrierGroup::Global(list), length))?,
        TEXTURE => list(body, count, offset).map(|(list, length)| (BarrierGroup::Texture(list), length))?,
        BUFFER => list(body, count, offset).map(|(list, length)| (BarrierGroup::Buffer(list), length))?,
        RANGED => list(body, count, offset).map(|(list, length)| (BarrierGroup::Ranged(list), length))?,
        kind => (BarrierGroup::Unknown { kind, barriers: count }, 8),
    })
}

/// A fence and the value to wait for: fence barriers name fences by their GPU address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FenceValue {
    pub gpu_address: u64,
    pub value: u64,
}

/// `D3D12_RESOURCE_BARRIER`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum LegacyBarrier {
    Transition {
        flags: LegacyFlags,
        resource: u32,
        /// Flat, or [`ALL_SUBRESOURCES`](super::ALL_SUBRESOURCES).
        subresource: u32,
        before: LegacyState,
        after: LegacyState,
    },
    /// Resource numbers; 0 is any.
    Aliasing { flags: LegacyFlags, before: u32, after: u32 },
    /// 0 is every resource.
    UnorderedAccess { flags: LegacyFlags, resource: u32 },
}

impl Element for Barrier {
    const BYTES: usize = 16;

    fn read(bytes: &[u8]) -> Self {
        Barrier {
            sync_before: BarrierSync::from_bits_retain(word(bytes, 0)),
            sync_after: BarrierSync::from_bits_retain(word(bytes, 4)),
            access_before: BarrierAccess::from_bits_retain(word(bytes, 8)),
            access_after: BarrierAccess::from_bits_retain(word(bytes, 12)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Barrier { sync_before, sync_after, access_before, access_after } = self;
        push(out, &[sync_before.bits(), sync_after.bits(), access_before.bits(), access_after.bits()]);
    }
}

impl Element for TextureBarrier {
    const BYTES: usize = 56;

    fn read(bytes: &[u8]) -> Self {
        TextureBarrier {
            barrier: Barrier::read(bytes),
            layout_before: BarrierLayout(word(bytes, 16)),
            layout_after: BarrierLayout(word(bytes, 20)),
            resource: word(bytes, 24),
            flags: TextureFlags::from_bits_retain(word(bytes, 28)),
            subresources: SubresourceRange {
                first_mip: word(bytes, 32),
                mips: word(bytes, 36),
                first_slice: word(bytes, 40),
                slices: word(bytes, 44),
                first_plane: word(bytes, 48),
                planes: word(bytes, 52),
            },
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let TextureBarrier { barrier, layout_before, layout_after, resource, flags, subresources } = self;
        let SubresourceRange { first_mip, mips, first_slice, slices, first_plane, planes } = *subresources;
        barrier.write(out);
        push(out, &[layout_before.0, layout_after.0, *resource, flags.bits()]);
        push(out, &[first_mip, mips, first_slice, slices, first_plane, planes]);
    }
}

impl Element for BufferBarrier {
    const BYTES: usize = 40;

    fn read(bytes: &[u8]) -> Self {
        BufferBarrier {
            barrier: Barrier::read(bytes),
            resource: word(bytes, 16),
            offset: long(bytes, 24),
            bytes: long(bytes, 32),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.barrier.write(out);
        push(out, &[self.resource, 0]);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
    }

    fn check(bytes: &[u8], offset: usize) -> Result<(), IsaError> {
        match word(bytes, 20) {
            0 => Ok(()),
            value => Err(IsaError::Word { offset: offset + 20, what: "reserved word", value }),
        }
    }
}

impl Element for RangedBarrier {
    const BYTES: usize = 40;

    fn read(bytes: &[u8]) -> Self {
        RangedBarrier {
            barrier: Barrier::read(bytes),
            resource: word(bytes, 16),
            flags: RangedFlags::from_bits_retain(word(bytes, 20)),
            offset: long(bytes, 24),
            bytes: long(bytes, 32),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.barrier.write(out);
        push(out, &[self.resource, self.flags.bits()]);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
    }
}

impl Element for FenceValue {
    const BYTES: usize = 16;

    fn read(bytes: &[u8]) -> Self {
        FenceValue { gpu_address: long(bytes, 0), value: long(bytes, 8) }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.gpu_address.to_le_bytes());
        out.extend_from_slice(&self.value.to_le_bytes());
    }
}

/// `D3D12_RESOURCE_BARRIER_TYPE`.
const TRANSITION: u32 = 0;
const ALIASING: u32 = 1;
const UNORDERED: u32 = 2;

impl Element for LegacyBarrier {
    const BYTES: usize = 24;

    fn read(bytes: &[u8]) -> Self {
        let flags = LegacyFlags::from_bits_retain(word(bytes, 4));
        let (first, second) = (word(bytes, 8), word(bytes, 12));
        match word(bytes, 0) {
            TRANSITION => LegacyBarrier::Transition {
                flags,
                resource: first,
                subresource: second,
                before: LegacyState::from_bits_retain(word(bytes, 16)),
                after: LegacyState::from_bits_retain(word(bytes, 20)),
            },
            ALIASING => LegacyBarrier::Aliasing { flags, before: first, after: second },
            // `check` refused every other type.
            _ => LegacyBarrier::UnorderedAccess { flags, resource: first },
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            LegacyBarrier::Transition { flags, resource, subresource, before, after } => {
                push(out, &[TRANSITION, flags.bits(), resource, subresource, before.bits(), after.bits()])
            }
            LegacyBarrier::Aliasing { flags, before, after } => {
                push(out, &[ALIASING, flags.bits(), before, after, 0, 0]);
            }
            LegacyBarrier::UnorderedAccess { flags, resource } => {
                push(out, &[UNORDERED, flags.bits(), resource, 0, 0, 0]);
            }
        }
    }

    fn check(bytes: &[u8], offset: usize) -> Result<(), IsaError> {
        let used = match word(bytes, 0) {
            TRANSITION => 24,
            ALIASING => 16,
            UNORDERED => 12,
            value => return Err(IsaError::Word { offset, what: "type of a resource barrier", value }),
        };
        match (used..24).step_by(4).map(|at| (at, word(bytes, at))).find(|(_, value)| *value != 0) {
            None => Ok(()),
            Some((at, value)) => Err(IsaError::Word { offset: offset + at, what: "reserved word", value }),
        }
    }
}
