//! Private driver data of an allocation in the format of the simulated KMD. For C in
//! `guest/umd/include/gpupv_allocation.h`. Little-endian, 48 bytes, in and out:
//!
//! ```text
//!   0 u32 magic "GPAL"   4 u32 version, 1
//!   8 u64 size in bytes             out: rounded up to whole units of the alignment
//!  16 u32 alignment, 0 or 2^n       out: at least 4096
//!  20 u32 segment                   out: LOCAL or NON_LOCAL
//!  24 u32 flags                     out: CPU_VISIBLE if the CPU can access it
//!  28 u32 width   32 u32 height   36 u32 D3DDDIFORMAT: what `DxgkDdiDescribeAllocation` returns; 0 for a buffer
//!  40 u64                           out: the driver's number of the allocation
//! ```

use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Any segment; the driver chooses.
pub const SEGMENT_ANY: u32 = 0;
pub const SEGMENT_LOCAL: u32 = 1;
pub const SEGMENT_NON_LOCAL: u32 = 2;

bitflags::bitflags! {
    /// Flags of [`AllocationData`].
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
    pub struct AllocationDataFlags: u32 {
        const CPU_VISIBLE = 0x1;
    }
}

/// The data, without magic and version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct AllocationData {
    /// Bytes.
    pub size: u64,
    pub alignment: u32,
    pub segment: u32,
    pub flags: AllocationDataFlags,
    pub width: u32,
    pub height: u32,
    /// `D3DDDIFORMAT`.
    pub format: u32,
    /// The driver's number of the allocation.
    pub number: u64,
}

/// Why bytes are not [`AllocationData`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAllocationData {
    /// They do not begin with the magic: another driver's data.
    Unknown,
    /// They begin with it, but have another length.
    Length,
    /// Of another version.
    Version(u32),
}

impl AllocationData {
    /// "GPAL".
    pub const MAGIC: u32 = u32::from_le_bytes(*b"GPAL");
    pub const VERSION: u32 = 1;
    pub const BYTES: usize = 48;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let words = [Self::MAGIC, Self::VERSION, self.size as u32, (self.size >> 32) as u32];
        let more = [self.alignment, self.segment, self.flags.bits(), self.width, self.height, self.format];
        let number = [self.number as u32, (self.number >> 32) as u32];
        let mut bytes = [0; Self::BYTES];
        let all = words.into_iter().chain(more).chain(number);
        for (place, word) in bytes.chunks_exact_mut(4).zip(all) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Unknown flags stay as they are.
    ///
    /// # Errors
    ///
    /// Why they are no such data.
    pub fn decode(data: &[u8]) -> Result<Self, NotAllocationData> {
        let word = |number: usize| {
            let bytes = data.get(number * 4..number * 4 + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        if word(0) != Some(Self::MAGIC) {
            return Err(NotAllocationData::Unknown);
        }
        if data.len() != Self::BYTES {
            return Err(NotAllocationData::Length);
        }
        let word = |number: usize| word(number).unwrap_or_default();
        let long = |number: usize| u64::from(word(number)) | u64::from(word(number + 1)) << 32;
        if word(1) != Self::VERSION {
            return Err(NotAllocationData::Version(word(1)));
        }
        Ok(AllocationData {
            size: long(2),
            alignment: word(4),
            segment: word(5),
            flags: AllocationDataFlags::from_bits_retain(word(6)),
            width: word(7),
            height: word(8),
            format: word(9),
            number: long(10),
        })
    }
}

/// Data of a driver that nobody here knows, for tests: `bytes` bytes, at least [`FOREIGN_BYTES_MIN`], of which the
/// first eight say how much memory its program has behind the allocation.
pub fn foreign(memory_bytes: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0xA5; bytes.max(FOREIGN_BYTES_MIN)];
    data[..4].copy_from_slice(&FOREIGN_MAGIC.to_le_bytes());
    data[4..FOREIGN_BYTES_MIN].copy_from_slice(&memory_bytes.to_le_bytes());
    data
}

/// Bytes of [`foreign`] data at least.
pub const FOREIGN_BYTES_MIN: usize = 12;

const FOREIGN_MAGIC: u32 = u32::from_le_bytes(*b"????");

/// Bytes of memory that a program has behind an allocation with this private data, if the data say so.
pub fn memory_bytes(data: &[u8]) -> Option<u64> {
    if let Ok(data) = AllocationData::decode(data) {
        return Some(data.size);
    }
    let (magic, size) = data.get(..FOREIGN_BYTES_MIN)?.split_at(4);
    (magic == FOREIGN_MAGIC.to_le_bytes()).then_some(u64::from_le_bytes(size.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_read_as_they_were_written() {
        let data = AllocationData {
            size: 0x1_2345_6789,
            alignment: 0x1_0000,
            segment: SEGMENT_NON_LOCAL,
            flags: AllocationDataFlags::CPU_VISIBLE,
            width: 64,
            height: 32,
            format: 21,
            number: 0x7_0000_0001,
        };
        let bytes = data.encode();
        assert_eq!(AllocationData::decode(&bytes), Ok(data));
        assert_eq!(memory_bytes(&bytes), Some(data.size));
        assert_eq!(AllocationData::decode(&bytes[..47]), Err(NotAllocationData::Length));
        assert_eq!(AllocationData::decode(&[&bytes[..], &[0]].concat()), Err(NotAllocationData::Length));
        let mut newer = bytes;
        newer[4] = 2;
        assert_eq!(AllocationData::decode(&newer), Err(NotAllocationData::Version(2)));
        for end in 0..4 {
            assert_eq!(AllocationData::decode(&bytes[..end]), Err(NotAllocationData::Unknown));
        }
        let unknown = foreign(0x5000, 536);
        assert_eq!((unknown.len(), memory_bytes(&unknown)), (536, Some(0x5000)));
        assert_eq!(AllocationData::decode(&unknown), Err(NotAllocationData::Unknown));
    }
}
