//! The GPU address space of a process on one adapter: which ranges are taken, and which pages of them are Zero.
//!
//! ```text
//!   0x1_0000 ........... 2^47      for Reserve and Map, first fit from MinimumAddress
//!   0x1_0000_0000, 4 GiB           the process's fence memory: never given away
//! ```
//! Without allocations a page is NoAccess (as in a range that is only reserved) or Zero: it reads 0 and drops what is
//! written. A range is reserved in units of 64 KiB, mapped in pages of 4 KiB, and freed as it was made.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{NtStatus, limits};

use crate::kernel::{Refusal, invalid, refuse};
use crate::process::Slots;

pub(crate) const PAGE_BYTES: u64 = 4096;
const RESERVATION_BYTES: u64 = 64 * 1024;
const LOWEST: u64 = RESERVATION_BYTES;
const END: u64 = 1 << 47;
const FENCE_MEMORY: (u64, u64) = (Slots::GPU_BASE, Slots::GPU_BASE + (1 << 32));

/// Where a range may be: `base` 0 = anywhere from `minimum` up to `maximum`, 0 = no bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub base: u64,
    pub minimum: u64,
    pub maximum: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressSpace {
    /// Size by base; disjoint.
    ranges: BTreeMap<u64, u64>,
    /// End by base of what is Zero; disjoint, inside of ranges.
    zero: BTreeMap<u64, u64>,
}

impl AddressSpace {
    pub fn reserve(&mut self, place: Place, size: u64) -> Result<u64, Refusal> {
        if size == 0 || !size.is_multiple_of(RESERVATION_BYTES) {
            return invalid(format!("the size {size:#x} is not a multiple of 64 KiB"));
        }
        if !place.base.is_multiple_of(RESERVATION_BYTES) {
            return invalid(format!("the base {:#x} is not a multiple of 64 KiB", place.base));
        }
        self.require_room()?;
        let base = self.find(place, size)?;
        self.ranges.insert(base, size);
        Ok(base)
    }

    /// Makes pages Zero, or else NoAccess: in a range that is there, or in a new one. Gives the address, and whether
    /// a page changed.
    pub fn map(&mut self, place: Place, pages: u64, zero: bool) -> Result<(u64, bool), Refusal> {
        let size = match pages.checked_mul(PAGE_BYTES) {
            Some(size @ 1..=END) => size,
            _ => return invalid(format!("{pages} pages cannot be mapped")),
        };
        if !place.base.is_multiple_of(PAGE_BYTES) {
            return invalid(format!("the base {:#x} is not a multiple of 4 KiB", place.base));
        }
        self.require_room()?;
        if place.base != 0 && self.holds(place.base, size) {
            let changed = if zero {
                self.zero_within(place.base, size) < size
            } else {
                self.zero_within(place.base, size) > 0
            };
            self.set(place.base, size, zero);
            return Ok((place.base, changed));
        }
        let base = self.find(place, size)?;
        self.ranges.insert(base, size);
        self.set(base, size, zero);
        Ok((base, zero))
    }

    pub fn free(&mut self, base: u64, size: u64) -> Result<(), Refusal> {
        if self.ranges.get(&base) != Some(&size) {
            return invalid(format!(
                "no range of {size:#x} bytes begins at {base:#x}: a range is freed whole"
            ));
        }
        self.set(base, size, false);
        self.ranges.remove(&base);
        Ok(())
    }

    /// Whether one range holds all of this.
    pub fn holds(&self, base: u64, size: u64) -> bool {
        let Some(end) = base.checked_add(size) else { return false };
        self.ranges.range(..=base).next_back().is_some_and(|(begin, size)| end <= begin + size)
    }

    /// `UNMAP`. Does nothing to what is not there (any more).
    pub fn unmap(&mut self, base: u64, size: u64) {
        if self.holds(base, size) {
            self.set(base, size, false);
        }
    }

    /// Refuses if one more range, or one more piece of one, would be too many.
    pub fn require_room(&self) -> Result<(), Refusal> {
        if self.ranges.len() + self.zero.len() < limits::GPU_VA_RANGES_MAX {
            return Ok(());
        }
        let why = format!("the address space has {} ranges, the limit", limits::GPU_VA_RANGES_MAX);
        refuse(NtStatus::NO_MEMORY, why)
    }

    /// What stands at an address, for people.
    pub fn describe(&self, address: u64) -> Option<&'static str> {
        if !self.holds(address, 1) {
            return None;
        }
        Some(if self.zero_within(address, 1) > 0 { "the page is Zero" } else { "the page is NoAccess" })
    }

    /// Ranges with how many bytes of each are Zero.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.ranges.iter().map(|(base, size)| (*base, *size, self.zero_within(*base, *size)))
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Where so many bytes can be.
    fn find(&self, place: Place, size: u64) -> Result<u64, Refusal> {
        let to = if place.maximum == 0 { END } else { place.maximum.min(END) };
        if place.base != 0 {
            let end = place.base.checked_add(size).filter(|end| *end <= END);
            return match end {
                Some(end) if place.base >= LOWEST && self.taken(place.base, end).is_none() => Ok(place.base),
                _ => invalid(format!("{size:#x} bytes at {:#x} are not free for use", place.base)),
            };
        }
        let mut at = place.minimum.max(LOWEST).checked_next_multiple_of(RESERVATION_BYTES);
        while let Some(base) = at {
            let Some(end) = base.checked_add(size).filter(|end| *end <= to) else { break };
            match self.taken(base, end) {
                None => return Ok(base),
                Some(taken) => at = taken.checked_next_multiple_of(RESERVATION_BYTES),
            }
        }
        refuse(NtStatus::NO_MEMORY, format!("there is no place for {size:#x} bytes in the address space"))
    }

    /// The end of something that overlaps.
    fn taken(&self, base: u64, end: u64) -> Option<u64> {
        if base < FENCE_MEMORY.1 && end > FENCE_MEMORY.0 {
            return Some(FENCE_MEMORY.1);
        }
        let (begin, size) = self.ranges.range(..end).next_back()?;
        Some(begin + size).filter(|taken| *taken > base)
    }

    /// Zero pieces that overlap.
    fn pieces(&self, base: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let overlapping = self.zero.range(..end).rev().map(|(begin, end)| (*begin, *end));
        overlapping.take_while(move |(_, piece_end)| *piece_end > base)
    }

    fn zero_within(&self, base: u64, size: u64) -> u64 {
        let end = base + size;
        self.pieces(base, end).map(|(begin, piece_end)| piece_end.min(end) - begin.max(base)).sum()
    }

    fn set(&mut self, base: u64, size: u64, zero: bool) {
        let end = base + size;
        let pieces: Vec<_> = self.pieces(base, end).collect();
        for (begin, piece_end) in pieces {
            self.zero.remove(&begin);
            if begin < base {
                self.zero.insert(begin, base);
            }
            if piece_end > end {
                self.zero.insert(end, piece_end);
            }
        }
        if zero {
            self.zero.insert(base, end);
        }
    }
}
