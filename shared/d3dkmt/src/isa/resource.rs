//! Descriptions of resources. A user-mode driver describes each one when it creates it; commands name it by number.
//!
//! A [`ResourceDesc`] is 96 bytes, little-endian:
//!
//! ```text
//!   0 u32 kind            4 u32 heap           8 u32 flags          12 u32 initial layout
//!  16 u64 GPU address    24 u64 bytes         32 u32 width          36 u32 height
//!  40 u32 depth          44 u32 mips          48 u32 array size     52 u32 planes
//!  56 u32 texel bytes    60 u32 initial legacy state                64 name, 32 bytes of UTF-8, zeros behind it
//! ```
//!
//! A texture's subresources stand in its memory in the order of their flat index (mip + slice * mips + plane * mips *
//! array size), each packed: no padding between texels, rows, depth slices or subresources. Every plane has texels of
//! the same size. A mip has half the width, height and depth of the one before it, at least 1. A buffer is one
//! subresource.

use serde::{Deserialize, Serialize};

use super::element::{long, push, word};
use super::work::open_words;
use super::{BarrierLayout, LegacyState};
use alloc::vec::Vec;
use bitflags::bitflags;
use core::fmt;

open_words! {
    /// `D3D12_RESOURCE_DIMENSION`.
    ResourceKind {
        Buffer = 1,
        Texture1D = 2,
        Texture2D = 3,
        Texture3D = 4,
    }
}

open_words! {
    /// `D3D12_HEAP_TYPE`.
    HeapType {
        Default = 1,
        Upload = 2,
        Readback = 3,
    }
}

bitflags! {
    /// `D3D12_RESOURCE_FLAGS`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct ResourceFlags: u32 {
        const ALLOW_RENDER_TARGET = 0x1;
        const ALLOW_DEPTH_STENCIL = 0x2;
        const ALLOW_UNORDERED_ACCESS = 0x4;
        const DENY_SHADER_RESOURCE = 0x8;
        const ALLOW_CROSS_ADAPTER = 0x10;
        const ALLOW_SIMULTANEOUS_ACCESS = 0x20;
        const VIDEO_DECODE_REFERENCE_ONLY = 0x40;
        const VIDEO_ENCODE_REFERENCE_ONLY = 0x80;
        const RAYTRACING_ACCELERATION_STRUCTURE = 0x100;
    }
}

/// `SetName`: what messages call a resource.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct ResourceName([u8; Self::BYTES]);

impl ResourceName {
    pub const BYTES: usize = 32;

    /// The name, cut to the bytes that fit.
    pub fn new(name: &str) -> Self {
        let mut bytes = [0; Self::BYTES];
        let end = name.find('\0').unwrap_or(name.len()).min(Self::BYTES);
        let end = (0..=end).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        ResourceName(bytes)
    }

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Decodes a name; `None` if it is not UTF-8, or has bytes other than zero after the first zero.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let (name, rest) = bytes.split_at(end);
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        Some(ResourceName::new(core::str::from_utf8(name).ok()?))
    }
}

impl AsRef<str> for ResourceName {
    fn as_ref(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(Self::BYTES);
        core::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_ref())
    }
}

/// Description of a resource, encoded in 96 bytes: the module has the layout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ResourceDesc {
    pub kind: ResourceKind,
    pub heap: HeapType,
    pub flags: ResourceFlags,
    pub initial_layout: BarrierLayout,
    /// Address of its first byte, in the address space of the process.
    pub gpu_address: u64,
    /// A texture may have more than its subresources need.
    pub bytes: u64,
    pub width: u32,
    pub height: u32,
    pub depth: u32,
    pub mips: u32,
    pub array_size: u32,
    pub planes: u32,
    pub texel_bytes: u32,
    /// Not COMMON for a resource that was created with a state instead of a layout.
    pub initial_state: LegacyState,
    pub name: ResourceName,
}

/// Why a description is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DescError {
    Length {
        actual: usize,
    },
    Field {
        name: &'static str,
        value: u64,
        right: &'static str,
    },
    /// Its subresources need more than it has.
    Bytes {
        needed: u64,
        given: u64,
    },
    Name,
}

impl fmt::Display for DescError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DescError::Length { actual } => {
                write!(f, "a resource is described by {} bytes, not by {actual}", ResourceDesc::SIZE)
            }
            DescError::Field { name, value, right } => {
                write!(f, "the resource's {name} is {value:#x}; it must be {right}")
            }
            DescError::Bytes { needed, given } => {
                write!(f, "the resource's subresources need {needed} bytes, but it has {given}")
            }
            DescError::Name => write!(f, "the resource's name is not UTF-8 with zeros behind it"),
        }
    }
}

impl ResourceDesc {
    /// Bytes of an encoded description.
    pub const SIZE: usize = 96;

    /// A buffer in a default heap.
    pub fn buffer(name: &str, gpu_address: u64, bytes: u64) -> Self {
        ResourceDesc {
            kind: ResourceKind::Buffer,
            heap: HeapType::Default,
            flags: ResourceFlags::empty(),
            initial_layout: BarrierLayout::UNDEFINED,
            gpu_address,
            bytes,
            width: 1,
            height: 1,
            depth: 1,
            mips: 1,
            array_size: 1,
            planes: 1,
            texel_bytes: 1,
            initial_state: LegacyState::COMMON,
            name: ResourceName::new(name),
        }
    }

    /// A texture of two dimensions with texels of 4 bytes, one mip, slice and plane, in the layout COMMON.
    pub fn texture(name: &str, gpu_address: u64, (width, height): (u32, u32)) -> Self {
        let (kind, initial_layout) = (ResourceKind::Texture2D, BarrierLayout::COMMON);
        let desc = ResourceDesc::buffer(name, gpu_address, 0);
        let desc = ResourceDesc { kind, initial_layout, width, height, texel_bytes: 4, ..desc };
        desc.with_packed_bytes()
    }

    /// With as many bytes as its subresources need.
    pub fn with_packed_bytes(self) -> Self {
        ResourceDesc { bytes: self.needed_bytes().unwrap_or(u64::MAX), ..self }
    }

    pub fn is_texture(&self) -> bool {
        self.kind != ResourceKind::Buffer
    }

    pub fn has_simultaneous_access(&self) -> bool {
        self.flags.contains(ResourceFlags::ALLOW_SIMULTANEOUS_ACCESS)
    }

    /// Number of subresources, at most `u32::MAX`, which is more than any checked description has.
    pub fn subresources(&self) -> u32 {
        self.mips.saturating_mul(self.array_size).saturating_mul(self.planes)
    }

    /// The flat index of a subresource.
    pub fn subresource_index(&self, mip: u32, slice: u32, plane: u32) -> u32 {
        let slices = slice.saturating_add(plane.saturating_mul(self.array_size));
        mip.saturating_add(slices.saturating_mul(self.mips))
    }

    /// Offset from the start of the resource and size of a subresource, in bytes. `None` if the index is out of range.
    pub fn subresource(&self, index: u32) -> Option<(u64, u64)> {
        if index >= self.subresources() {
            return None;
        }
        if !self.is_texture() {
            return Some((0, self.bytes));
        }
        let (slice, mip) = (index / self.mips, index % self.mips);
        let before = u64::from(slice).checked_mul(self.bytes_of_mips(self.mips)?)?;
        Some((before.checked_add(self.bytes_of_mips(mip)?)?, self.mip_bytes(mip)?))
    }

    /// Bytes of a slice of a texture, with all its mips.
    pub fn slice_bytes(&self) -> Option<u64> {
        self.bytes_of_mips(self.mips)
    }

    fn mip_bytes(&self, mip: u32) -> Option<u64> {
        let size = |size: u32| u64::from(size.checked_shr(mip).unwrap_or(0).max(1));
        let area = size(self.width).checked_mul(size(self.height))?;
        area.checked_mul(size(self.depth))?.checked_mul(u64::from(self.texel_bytes))
    }

    /// Bytes of the first `count` mips of a slice.
    fn bytes_of_mips(&self, count: u32) -> Option<u64> {
        // More than 64 are of one texel each; a checked description has no more than 15.
        let large = (0..count.min(64)).try_fold(0u64, |sum, mip| sum.checked_add(self.mip_bytes(mip)?))?;
        large.checked_add(u64::from(count.saturating_sub(64)).checked_mul(u64::from(self.texel_bytes))?)
    }

    fn needed_bytes(&self) -> Option<u64> {
        let slices = u64::from(self.array_size).checked_mul(u64::from(self.planes))?;
        self.bytes_of_mips(self.mips)?.checked_mul(slices)
    }

    /// Decodes a description and checks every field of it.
    pub fn decode(data: &[u8]) -> Result<Self, DescError> {
        if data.len() != Self::SIZE {
            return Err(DescError::Length { actual: data.len() });
        }
        let field = |name, at, right| DescError::Field { name, value: u64::from(word(data, at)), right };
        let desc = ResourceDesc {
            kind: ResourceKind::from_word(word(data, 0)).ok_or_else(|| field("kind", 0, "1 to 4"))?,
            heap: HeapType::from_word(word(data, 4)).ok_or_else(|| field("heap", 4, "1 to 3"))?,
            flags: ResourceFlags::from_bits(word(data, 8))
                .ok_or_else(|| field("flags", 8, "bits of 0x1ff"))?,
            initial_layout: BarrierLayout(word(data, 12)),
            gpu_address: long(data, 16),
            bytes: long(data, 24),
            width: word(data, 32),
            height: word(data, 36),
            depth: word(data, 40),
            mips: word(data, 44),
            array_size: word(data, 48),
            planes: word(data, 52),
            texel_bytes: word(data, 56),
            initial_state: LegacyState::from_bits(word(data, 60))
                .ok_or_else(|| field("initial state", 60, "bits of D3D12_RESOURCE_STATES"))?,
            name: ResourceName::decode(&data[64..96]).ok_or(DescError::Name)?,
        };
        desc.check().map(|()| desc)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut data = Vec::with_capacity(Self::SIZE);
        push(&mut data, &[self.kind as u32, self.heap as u32, self.flags.bits(), self.initial_layout.0]);
        data.extend_from_slice(&self.gpu_address.to_le_bytes());
        data.extend_from_slice(&self.bytes.to_le_bytes());
        push(&mut data, &[self.width, self.height, self.depth, self.mips, self.array_size, self.planes]);
        push(&mut data, &[self.texel_bytes, self.initial_state.bits()]);
        data.extend_from_slice(&self.name.0);
        data
    }

    /// Checks a description: dimensions within `D3D12_REQ_*`, and room for its subresources.
    pub fn check(&self) -> Result<(), DescError> {
        let field = |name, value: u32, range: core::ops::RangeInclusive<u32>, right| {
            let error = DescError::Field { name, value: u64::from(value), right };
            if range.contains(&value) { Ok(()) } else { Err(error) }
        };
        if self.bytes == 0 || self.gpu_address.checked_add(self.bytes).is_none() {
            let right = "at least 1, and end within the address space";
            return Err(DescError::Field { name: "bytes", value: self.bytes, right });
        }
        let (flat, line, volume) = (
            matches!(self.kind, ResourceKind::Buffer | ResourceKind::Texture1D),
            self.kind == ResourceKind::Buffer,
            self.kind == ResourceKind::Texture3D,
        );
        if line {
            field("width", self.width, 1..=1, "1 (a buffer has only bytes)")?;
            field("texel bytes", self.texel_bytes, 1..=1, "1 for a buffer")?;
            field("mips", self.mips, 1..=1, "1 for a buffer")?;
            field("planes", self.planes, 1..=1, "1 for a buffer")?;
        }
        if flat {
            field("height", self.height, 1..=1, "1 for a resource of this kind")?;
        }
        if volume {
            field("width", self.width, 1..=2048, "1 to 2048")?;
            field("height", self.height, 1..=2048, "1 to 2048")?;
            field("depth", self.depth, 1..=2048, "1 to 2048")?;
        } else {
            field("depth", self.depth, 1..=1, "1 but for a volume")?;
        }
        if line || volume {
            field("array size", self.array_size, 1..=1, "1 for a resource of this kind")?;
        }
        field("width", self.width, 1..=16384, "1 to 16384")?;
        field("height", self.height, 1..=16384, "1 to 16384")?;
        field("array size", self.array_size, 1..=2048, "1 to 2048")?;
        field("planes", self.planes, 1..=3, "1 to 3")?;
        field("texel bytes", self.texel_bytes, 1..=16, "1 to 16")?;
        let longest = self.width.max(self.height).max(self.depth);
        field("mips", self.mips, 1..=u32::BITS - longest.leading_zeros(), "one for each halving at most")?;
        let needed = if line { self.bytes } else { self.needed_bytes().unwrap_or(u64::MAX) };
        if needed > self.bytes {
            return Err(DescError::Bytes { needed, given: self.bytes });
        }
        Ok(())
    }
}
