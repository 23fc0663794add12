//! The GPU address space of a process on one adapter: its ranges and their pages.
//!
//! ```text
//!   0x1_0000 ........... 2^47      for Reserve and Map, first fit from MinimumAddress
//!   0x1_0000_0000, 4 GiB           the process's fence memory: never allocated
//! ```
//! A page is NoAccess (as in a range that is only reserved), Zero - it reads 0 and drops what is written - or of an
//! allocation. A range is reserved in units of 64 KiB, mapped in pages of 4 KiB, and freed as a whole. If Map made it for
//! an allocation, it is freed with the last allocation that it is mapped to.
//!
//! There are two records: `pages` is what calls have mapped, and `engine_pages` is what engines see. Where a change needs a
//! paging buffer, `engine_pages` changes later, to what calls have mapped by then. An operation is done at once only if
//! both have it already. `unseen` tells where they may differ, so that each change costs once what it changes.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use core::iter::Peekable;

use d3dkmt::{NtStatus, limits};
use serde::{Deserialize, Serialize};

use super::open_pages::OpenPages;
use crate::ddi::{Page, PageMap, Piece};
use crate::error::{Refusal, invalid, refuse};
use crate::process::slots::Slots;

pub(crate) const PAGE_BYTES: u64 = 4096;

const RESERVATION_BYTES: u64 = 64 * 1024;

pub(super) const LOWEST: u64 = RESERVATION_BYTES;

/// One past the last address of an address space.
pub(crate) const ADDRESSES_END: u64 = 1 << 47;

pub(super) const FENCE_MEMORY: (u64, u64) = (Slots::GPU_BASE, Slots::GPU_BASE + (1 << 32));

/// Where a range may be: `base` 0 = anywhere from `minimum` up to `maximum`, 0 = no bound.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct AddressBounds {
    pub base: u64,
    pub minimum: u64,
    pub maximum: u64,
}

impl AddressBounds {
    /// Refuses a base that is no multiple of these bytes, or without one a minimum that is no multiple of a page. The pages
    /// of the DDI want more: 64 KiB of the minimum of a reservation, for which ROCm's runtime passes what `mmap` returned,
    /// and a multiple for the maximum, for which clients pass the last byte of a heap.
    fn require_multiple_of(self, bytes: u64) -> Result<(), Refusal> {
        let (name, address, bytes) = match self.base {
            0 => ("minimum", self.minimum, PAGE_BYTES),
            base => ("base", base, bytes),
        };
        if !address.is_multiple_of(bytes) {
            return invalid(format!("the {name} {address:#x} is not a multiple of {} KiB", bytes / 1024));
        }
        Ok(())
    }
}

/// A page other than NoAccess.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum VaPage {
    Zero,
    /// Of an allocation, by the open of the process's handle to it: from this byte of it on.
    Of {
        open: u32,
        offset: u64,
        writable: bool,
    },
}

impl VaPage {
    /// The open that it is of.
    pub fn open(self) -> Option<u32> {
        match self {
            VaPage::Zero => None,
            VaPage::Of { open, .. } => Some(open),
        }
    }
}

impl Page for VaPage {
    fn at(self, by: u64) -> Self {
        match self {
            VaPage::Zero => self,
            VaPage::Of { open, offset, writable } => VaPage::Of { open, offset: offset + by, writable },
        }
    }
}

/// A part of an address space that engines may see otherwise than calls have mapped it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Unseen;

impl Page for Unseen {
    fn at(self, _: u64) -> Self {
        self
    }
}

/// The call that made a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum MadeBy {
    Reserve,
    /// Map without an allocation.
    Map,
    MapOfAllocation,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Range {
    size: u64,
    made_by: MadeBy,
    /// Unique among all ranges, freed ones included.
    number: u64,
}

/// Pages that are no longer there: of an open, or of a range.
pub(crate) struct TakenPages {
    pub base: u64,
    pub end: u64,
    /// Whether engines saw them.
    pub seen: bool,
}

/// The GPU address space of a process on one adapter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AddressSpace {
    /// Ranges by base; disjoint.
    ranges: BTreeMap<u64, Range>,
    /// Pages inside of ranges, as calls have mapped them.
    pages: OpenPages,
    /// Pages inside of ranges, as engines see them.
    engine_pages: OpenPages,
    /// Where calls have mapped something since engines last saw that part. A paging buffer changes nothing elsewhere.
    unseen: PageMap<Unseen>,
    ranges_made: u64,
}

/// Bytes that are charged for a range of an address space, or a piece of one, with its part of the driver's page table.
pub(crate) const PIECE_BYTES: u64 = 192;

impl AddressSpace {
    pub fn reserve(&mut self, bounds: AddressBounds, size: u64) -> Result<u64, Refusal> {
        if size == 0 || !size.is_multiple_of(RESERVATION_BYTES) {
            return invalid(format!("the size {size:#x} is not a multiple of 64 KiB"));
        }
        bounds.require_multiple_of(RESERVATION_BYTES)?;
        self.require_room(1)?;
        let base = self.find(bounds, size, RESERVATION_BYTES)?;
        self.make(base, size, MadeBy::Reserve);
        Ok(base)
    }

    /// Maps pages, `None` = NoAccess, in an existing range or in a new one. Returns the address, and whether what
    /// engines see must change.
    pub fn map(
        &mut self,
        bounds: AddressBounds,
        pages: u64,
        page: Option<VaPage>,
    ) -> Result<(u64, bool), Refusal> {
        let size = match pages.checked_mul(PAGE_BYTES) {
            Some(size @ 1..=ADDRESSES_END) => size,
            _ => return invalid(format!("{pages} pages cannot be mapped")),
        };
        bounds.require_multiple_of(PAGE_BYTES)?;
        self.require_room(1)?;
        let existing = self.range_of(bounds.base, size).filter(|_| bounds.base != 0);
        if let Some(range) = existing {
            if range.made_by != MadeBy::Reserve && page.and_then(VaPage::open).is_none() {
                return invalid(format!(
                    "{size:#x} bytes at {:#x} are of a range that Map made: in it, pages are mapped to allocations only",
                    bounds.base
                ));
            }
            let end = bounds.base + size;
            let is_done =
                is(&self.pages, bounds.base, end, page) && is(&self.engine_pages, bounds.base, end, page);
            self.pages.set(bounds.base, end, page);
            if !is_done {
                self.unseen.set(bounds.base, end, Some(Unseen));
            }
            return Ok((bounds.base, !is_done));
        }
        let base = self.find(bounds, size, PAGE_BYTES)?;
        let made_by = match page {
            Some(VaPage::Of { .. }) => MadeBy::MapOfAllocation,
            Some(VaPage::Zero) | None => MadeBy::Map,
        };
        self.make(base, size, made_by);
        self.pages.set(base, base + size, page);
        if page.is_some() {
            self.unseen.set(base, base + size, Some(Unseen));
        }
        Ok((base, page.is_some()))
    }

    fn make(&mut self, base: u64, size: u64, made_by: MadeBy) {
        self.ranges_made += 1;
        self.ranges.insert(base, Range { size, made_by, number: self.ranges_made });
    }

    /// Frees a range, in both records. The caller updates the page tables of engines.
    pub fn free(&mut self, base: u64, size: u64) -> Result<(), Refusal> {
        if self.ranges.get(&base).is_none_or(|range| range.size != size) {
            return invalid(format!(
                "no range of {size:#x} bytes begins at {base:#x}: a range is freed whole"
            ));
        }
        self.set(base, base + size, None);
        self.ranges.remove(&base);
        Ok(())
    }

    /// Frees the range of a page that an open no longer has, if Map made it for an allocation, and it is mapped to none
    /// any more.
    pub fn free_unmapped(&mut self, address: u64) -> Option<TakenPages> {
        let (base, range) = self.ranges.range(..=address).next_back()?;
        let (base, end) = (*base, base + range.size);
        if range.made_by != MadeBy::MapOfAllocation || self.pages.within(base, end).next().is_some() {
            return None;
        }
        let seen = self.engine_pages.within(base, end).next().is_some();
        self.set(base, end, None);
        self.ranges.remove(&base);
        Some(TakenPages { base, end, seen })
    }

    /// Frees every range. A change that is still pending applies to none of those that come.
    pub fn clear(&mut self) {
        *self = AddressSpace { ranges_made: self.ranges_made, ..AddressSpace::default() };
    }

    /// Whether one range contains all of this.
    pub fn holds(&self, base: u64, size: u64) -> bool {
        self.range_number(base, size).is_some()
    }

    /// The range that contains all of this.
    fn range_of(&self, base: u64, size: u64) -> Option<Range> {
        let end = base.checked_add(size)?;
        let (begin, range) = self.ranges.range(..=base).next_back()?;
        (end <= begin + range.size).then_some(*range)
    }

    /// The number of the range that contains all of this.
    pub fn range_number(&self, base: u64, size: u64) -> Option<u64> {
        self.range_of(base, size).map(|range| range.number)
    }

    /// The number of the range that contains all of these pages, if Reserve made it.
    pub fn reserved_range(&self, base: u64, size: u64) -> Result<u64, Refusal> {
        let whole_pages = base.is_multiple_of(PAGE_BYTES) && size.is_multiple_of(PAGE_BYTES) && size > 0;
        let Some(range) = self.range_of(base, size).filter(|_| whole_pages) else {
            return invalid(format!("{size:#x} bytes at {base:#x} are no pages of a range of the process"));
        };
        if range.made_by != MadeBy::Reserve {
            return invalid(format!(
                "{size:#x} bytes at {base:#x} are of a range that Map made, not Reserve"
            ));
        }
        Ok(range.number)
    }

    /// Sets pages in both records.
    pub fn set(&mut self, base: u64, end: u64, page: Option<VaPage>) {
        self.pages.set(base, end, page);
        self.engine_pages.set(base, end, page);
        self.unseen.set(base, end, None);
    }

    /// The pages between two addresses, as calls have mapped them.
    pub fn pages_within(&self, base: u64, end: u64) -> impl DoubleEndedIterator<Item = Piece<VaPage>> {
        self.pages.within(base, end)
    }

    /// Lets engines see between two addresses what calls have mapped, as far as `most` pieces reach. Returns what changed
    /// for them, `None` = NoAccess, and the address where the rest begins; `None` if nothing is left.
    pub fn show(&mut self, base: u64, end: u64, most: usize) -> Option<(Vec<Piece<Option<VaPage>>>, u64)> {
        let part = self.unseen.within(base, end).next()?;
        let (changed, done) = self.differences(part.base, part.end, most);
        self.unseen.set(part.base, done, None);
        for Piece { base, end, page } in &changed {
            self.engine_pages.set(*base, *end, *page);
        }
        Some((changed, done))
    }

    /// What calls have mapped between two addresses and engines see otherwise, as far as `most` pieces reach, and where
    /// the rest begins.
    fn differences(&self, base: u64, end: u64, most: usize) -> (Vec<Piece<Option<VaPage>>>, u64) {
        let mut mapped = Walk { pieces: self.pages.within(base, end).peekable(), end };
        let mut seen = Walk { pieces: self.engine_pages.within(base, end).peekable(), end };
        let (mut different, mut at) = (Vec::<Piece<Option<VaPage>>>::new(), base);
        for _ in 0..most {
            if at >= end {
                break;
            }
            let ((page, mapped_end), (seen_page, seen_end)) = (mapped.at(at), seen.at(at));
            let piece_end = mapped_end.min(seen_end);
            if page != seen_page {
                match different.last_mut() {
                    Some(last) if last.end == at && last.page.map(|one| one.at(at - last.base)) == page => {
                        last.end = piece_end;
                    }
                    _ => different.push(Piece { base: at, end: piece_end, page }),
                }
            }
            at = piece_end;
        }
        (different, at)
    }

    /// Whether an open has pages, in either record.
    pub fn maps(&self, open: u32) -> bool {
        self.engine_pages.of_from(open, 0).chain(self.pages.of_from(open, 0)).next().is_some()
    }

    /// The pages of an open from an address on, as engines see them.
    pub fn engine_pages_from(&self, open: u32, base: u64) -> impl Iterator<Item = Piece<VaPage>> {
        self.engine_pages.of_from(open, base)
    }

    /// Passes some pages of an open to another, or sets them to NoAccess, in both records. `None` if the open has no
    /// page.
    pub fn take_pages(&mut self, open: u32, heir: Option<u32>) -> Option<TakenPages> {
        let passed = |piece: Piece<VaPage>| match (piece.page, heir) {
            (VaPage::Of { offset, writable, .. }, Some(open)) => Some(VaPage::Of { open, offset, writable }),
            (VaPage::Zero | VaPage::Of { .. }, _) => None,
        };
        let Some(seen) = self.engine_pages.of_from(open, 0).next() else {
            let piece = self.pages.of_from(open, 0).next()?;
            self.pages.set(piece.base, piece.end, passed(piece));
            return Some(TakenPages { base: piece.base, end: piece.end, seen: false });
        };
        // Where calls have mapped something else since, that stays.
        let (base, mapped) = (seen.base, self.pages.within(seen.base, seen.end).next());
        let end = match mapped {
            Some(piece) if piece.base == base => piece.end,
            Some(piece) => piece.base,
            None => seen.end,
        };
        if let Some(piece) = mapped.filter(|piece| piece.base == base && piece.page.open() == Some(open)) {
            self.pages.set(base, end, passed(piece));
        }
        self.engine_pages.set(base, end, passed(seen));
        Some(TakenPages { base, end, seen: true })
    }

    /// Refuses `pieces` more ranges, or pieces of one, if that is above the limit.
    pub fn require_room(&self, pieces: u64) -> Result<(), Refusal> {
        let most = limits::GPU_VA_RANGES_MAX;
        // Engines see what calls have changed once that has taken effect, which may be later.
        let has = self.ranges.len() + self.pages.len().max(self.engine_pages.len());
        if (has as u64).saturating_add(pieces) <= most as u64 {
            return Ok(());
        }
        let why = format!(
            "the address space has {has} ranges and pieces of them, {pieces} more are over the limit of {most}"
        );
        refuse(NtStatus::NO_MEMORY, why)
    }

    /// The page at an address as calls have mapped it, `None` = NoAccess, and whether engines see the same.
    pub fn mapped_at(&self, address: u64) -> (Option<VaPage>, bool) {
        let page = |pages: &OpenPages| pages.find(address).map(|piece| piece.page.at(address - piece.base));
        let mapped = page(&self.pages);
        (mapped, mapped == page(&self.engine_pages))
    }

    /// Describes the page at an address, for a note.
    pub fn describe(&self, address: u64) -> Option<&'static str> {
        if !self.holds(address, 1) {
            return None;
        }
        Some(match self.pages.find(address).map(|piece| piece.page) {
            None => "the page is NoAccess",
            Some(VaPage::Zero) => "the page is Zero",
            Some(VaPage::Of { .. }) => "the page is of an allocation",
        })
    }

    /// Base and size of each range, with how many bytes of it are Zero, and how many of allocations.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64, u64, u64)> {
        self.ranges.iter().map(|(base, Range { size, .. })| {
            let (mut zero, mut of_allocations) = (0, 0);
            for piece in self.pages.within(*base, base + size) {
                match piece.page {
                    VaPage::Zero => zero += piece.end - piece.base,
                    VaPage::Of { .. } => of_allocations += piece.end - piece.base,
                }
            }
            (*base, *size, zero, of_allocations)
        })
    }

    /// Every open of which it has pages, in either record.
    pub fn opens(&self) -> impl Iterator<Item = u32> {
        self.pages.opens().chain(self.engine_pages.opens())
    }

    /// Whether an index of its pages disagrees with them.
    pub fn is_miscounted(&self) -> bool {
        let is_marked = |base, end| {
            let mut at = base;
            self.unseen.within(base, end).for_each(|part| at = if part.base == at { part.end } else { at });
            at == end
        };
        let (differences, _) = self.differences(0, ADDRESSES_END, usize::MAX);
        self.pages.is_miscounted()
            || self.engine_pages.is_miscounted()
            || differences.into_iter().any(|piece| !is_marked(piece.base, piece.end))
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Entries of its tables.
    pub fn pieces(&self) -> usize {
        self.ranges.len() + self.pages.len() + self.engine_pages.len() + self.unseen.len()
    }

    /// Finds room for `size` bytes: at a multiple of [`RESERVATION_BYTES`], or if there is none of `unit`.
    fn find(&self, bounds: AddressBounds, size: u64, unit: u64) -> Result<u64, Refusal> {
        let to = if bounds.maximum == 0 { ADDRESSES_END } else { bounds.maximum.min(ADDRESSES_END) };
        if bounds.base != 0 {
            let end = bounds.base.checked_add(size).filter(|end| *end <= ADDRESSES_END);
            return match end {
                Some(end) if bounds.base >= LOWEST && self.overlap_end(bounds.base, end).is_none() => {
                    Ok(bounds.base)
                }
                _ => invalid(format!("{size:#x} bytes at {:#x} are not free for use", bounds.base)),
            };
        }
        let fits = |unit: u64| {
            let mut at = bounds.minimum.max(LOWEST).checked_next_multiple_of(unit);
            while let Some(base) = at {
                let end = base.checked_add(size).filter(|end| *end <= to)?;
                match self.overlap_end(base, end) {
                    None => return Some(base),
                    Some(overlap_end) => at = overlap_end.checked_next_multiple_of(unit),
                }
            }
            None
        };
        let found = match unit {
            RESERVATION_BYTES => fits(unit),
            _ => fits(RESERVATION_BYTES).or_else(|| fits(unit)),
        };
        let Some(base) = found else {
            let why = format!("there is no room for {size:#x} bytes in the address space");
            return refuse(NtStatus::NO_MEMORY, why);
        };
        Ok(base)
    }

    /// The end of a range that overlaps this one.
    fn overlap_end(&self, base: u64, end: u64) -> Option<u64> {
        if base < FENCE_MEMORY.1 && end > FENCE_MEMORY.0 {
            return Some(FENCE_MEMORY.1);
        }
        let (begin, range) = self.ranges.range(..end).next_back()?;
        Some(begin + range.size).filter(|overlap_end| *overlap_end > base)
    }
}

/// A walk along pieces and the gaps between them.
struct Walk<Pieces: Iterator<Item = Piece<VaPage>>> {
    pieces: Peekable<Pieces>,
    end: u64,
}

impl<Pieces: Iterator<Item = Piece<VaPage>>> Walk<Pieces> {
    /// The page at an address, not before the last one asked for, and the end of its piece or gap.
    fn at(&mut self, at: u64) -> (Option<VaPage>, u64) {
        while self.pieces.next_if(|piece| piece.end <= at).is_some() {}
        match self.pieces.peek() {
            Some(piece) if piece.base <= at => (Some(piece.page.at(at - piece.base)), piece.end),
            Some(piece) => (None, piece.base),
            None => (None, self.end),
        }
    }
}

/// Whether all pages from `base` to `end` are `page`.
fn is(map: &OpenPages, base: u64, end: u64, page: Option<VaPage>) -> bool {
    let Some(page) = page else { return map.within(base, end).next().is_none() };
    let mut at = base;
    for piece in map.within(base, end) {
        if piece.base != at || piece.page != page.at(at - base) {
            return false;
        }
        at = piece.end;
    }
    at == end
}
