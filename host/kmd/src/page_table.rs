//! The page tables of the adapters: translation of the GPU virtual addresses of each process.
//!
//! The kernel reports changes (`update_page_table`); a page without an update is NoAccess. Pages that are unmapped are
//! reported as NoAccess, so the table of a destroyed process becomes empty.

use alloc::collections::BTreeMap;

use dxgkrnl::ProcessId;
use dxgkrnl::ddi::{PageFaultFlags, PageMap, PageTableEntry, Piece};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Kind of access by an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    fn is_refused_by(self, page: PageTableEntry) -> bool {
        match (self, page) {
            (_, PageTableEntry::NoAccess) => true,
            (Access::Write, PageTableEntry::Memory { writable, .. }) => !writable,
            (Access::Read, PageTableEntry::Memory { .. }) | (_, PageTableEntry::Zero) => false,
        }
    }

    fn fault(self, gpu_address: u64) -> PageFault {
        let flags = match self {
            Access::Read => PageFaultFlags::empty(),
            Access::Write => PageFaultFlags::WRITE,
        };
        PageFault { gpu_address, flags }
    }
}

/// A failed access, as `DMA_PAGE_FAULTED` reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PageFault {
    /// The first byte for which the access is not permitted.
    pub gpu_address: u64,
    pub flags: PageFaultFlags,
}

/// Page-table pieces of an access: nearly always one.
pub(crate) type Pieces = SmallVec<[Piece<PageTableEntry>; 1]>;

/// Page tables by adapter and process. No piece is NoAccess.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct PageTables {
    tables: BTreeMap<(u32, ProcessId), PageMap<PageTableEntry>>,
}

impl PageTables {
    pub fn update(
        &mut self,
        (adapter, process): (u32, ProcessId),
        base: u64,
        bytes: u64,
        entry: PageTableEntry,
    ) {
        let table = self.tables.entry((adapter, process)).or_default();
        let page = (entry != PageTableEntry::NoAccess).then_some(entry);
        table.set(base, base.saturating_add(bytes), page);
        if table.is_empty() {
            self.tables.remove(&(adapter, process));
        }
    }

    /// Translates a range into contiguous pieces, each `Zero` or `Memory`. The error is the first address that faults.
    /// An unknown process faults at once.
    pub fn resolve(
        &self,
        (adapter, process): (u32, ProcessId),
        gpu_address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Pieces, PageFault> {
        let fault = |gpu_address| access.fault(gpu_address);
        let end = gpu_address.checked_add(bytes).ok_or(fault(gpu_address))?;
        let (mut at, mut pieces) = (gpu_address, Pieces::new());
        if at < end {
            let table = self.tables.get(&(adapter, process)).ok_or(fault(at))?;
            for piece in table.within(at, end) {
                if piece.base != at || access.is_refused_by(piece.page) {
                    return Err(fault(at));
                }
                at = piece.end;
                pieces.push(piece);
            }
        }
        if at < end { Err(fault(at)) } else { Ok(pieces) }
    }

    /// The pieces of a range that are mapped.
    pub fn mapped(
        &self,
        (adapter, process): (u32, ProcessId),
        base: u64,
        end: u64,
    ) -> impl Iterator<Item = Piece<PageTableEntry>> {
        self.tables.get(&(adapter, process)).into_iter().flat_map(move |table| table.within(base, end))
    }

    /// Whether engines can read any page of a range.
    pub fn has_memory(&self, space: (u32, ProcessId), base: u64, bytes: u64) -> bool {
        self.mapped(space, base, base.saturating_add(bytes)).next().is_some()
    }

    /// The first piece of a range, limited to `bytes`.
    pub fn first(
        &self,
        (adapter, process): (u32, ProcessId),
        gpu_address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Piece<PageTableEntry>, PageFault> {
        let table = self.tables.get(&(adapter, process));
        let piece = table.and_then(|table| table.find(gpu_address));
        let piece = piece.filter(|piece| !access.is_refused_by(piece.page));
        let piece = piece.ok_or(access.fault(gpu_address))?;
        Ok(Piece { end: piece.end.min(gpu_address.saturating_add(bytes)), ..piece })
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: (u32, ProcessId) = (0, ProcessId(7));
    const PAGE: u64 = 4096;

    fn memory(address: u64, writable: bool) -> PageTableEntry {
        PageTableEntry::Memory { owner: ProcessId(3), address, writable }
    }

    fn piece(base: u64, page: PageTableEntry, bytes: u64) -> Piece<PageTableEntry> {
        Piece { base, end: base + bytes, page }
    }

    #[test]
    fn unmapped_or_read_only_page_faults_at_its_first_byte() {
        let mut tables = PageTables::default();
        assert_eq!(tables.resolve(OF, 0x1_0000, 4, Access::Read).unwrap_err().gpu_address, 0x1_0000);
        tables.update(OF, 0x1_0000, 2 * PAGE, memory(0x7000, true));
        tables.update(OF, 0x1_0000 + 2 * PAGE, PAGE, memory(0x9000, false));
        let found = tables.resolve(OF, 0x1_0FF0, 0x1010, Access::Write).unwrap();
        assert_eq!(found[..], [piece(0x1_0FF0, memory(0x7FF0, true), 0x1010)]);
        assert!(tables.has_memory(OF, 0, 0x1_0001) && tables.has_memory(OF, 0x1_2FFF, PAGE));
        assert!(!tables.has_memory(OF, 0, 0x1_0000) && !tables.has_memory((1, OF.1), 0x1_0000, 4));
        let fault = tables.resolve(OF, 0x1_1FF0, 0x20, Access::Write).unwrap_err();
        assert_eq!(fault, PageFault { gpu_address: 0x1_2000, flags: PageFaultFlags::WRITE });
        let read = tables.resolve(OF, 0x1_1FF0, 0x20, Access::Read).unwrap();
        assert_eq!(
            read[..],
            [piece(0x1_1FF0, memory(0x8FF0, true), 0x10), piece(0x1_2000, memory(0x9000, false), 0x10)]
        );
        let fault = tables.resolve(OF, 0x1_2000, PAGE + 1, Access::Read).unwrap_err();
        assert_eq!(fault, PageFault { gpu_address: 0x1_3000, flags: PageFaultFlags::empty() });
        for (other, space) in [(1, OF.1), (0, ProcessId(8))].map(|other| (other, 0x1_0000)) {
            assert_eq!(tables.resolve(other, space, 4, Access::Read).unwrap_err().gpu_address, 0x1_0000);
        }
        assert_eq!(tables.resolve(OF, u64::MAX, 2, Access::Read).unwrap_err().gpu_address, u64::MAX);
        assert_eq!(tables.resolve(OF, u64::MAX, 0, Access::Read), Ok(Pieces::new()));
    }

    #[test]
    fn a_change_inside_of_a_piece_leaves_the_rest_as_it_was() {
        let mut tables = PageTables::default();
        tables.update(OF, 0x1_0000, 4 * PAGE, memory(0x7000, true));
        tables.update(OF, 0x1_1000, PAGE, PageTableEntry::Zero);
        let whole = tables.resolve(OF, 0x1_0000, 4 * PAGE, Access::Write).unwrap();
        let expected = [
            piece(0x1_0000, memory(0x7000, true), PAGE),
            piece(0x1_1000, PageTableEntry::Zero, PAGE),
            piece(0x1_2000, memory(0x9000, true), 2 * PAGE),
        ];
        assert_eq!(whole[..], expected);
        tables.update(OF, 0x1_1000, 2 * PAGE, PageTableEntry::NoAccess);
        assert_eq!(tables.resolve(OF, 0x1_0000, 2 * PAGE, Access::Read).unwrap_err().gpu_address, 0x1_1000);
        let last = tables.resolve(OF, 0x1_3000, PAGE, Access::Read).unwrap();
        assert_eq!(last[..], [piece(0x1_3000, memory(0xA000, true), PAGE)]);
        tables.update(OF, 0, 1 << 47, PageTableEntry::NoAccess);
        assert!(tables.is_empty());
    }
}
