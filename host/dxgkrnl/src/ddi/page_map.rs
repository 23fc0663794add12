//! A map from addresses to page contents, in disjoint pieces.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::page_tables::PageTableEntry;
use crate::slab::visit;

/// Contents of a piece of pages, given for its first byte; those of later bytes follow from it.
pub trait Page: Copy {
    /// The contents `offset` bytes further on.
    #[must_use]
    fn at(self, offset: u64) -> Self;
}

impl Page for PageTableEntry {
    fn at(self, offset: u64) -> Self {
        match self {
            PageTableEntry::NoAccess | PageTableEntry::Zero => self,
            PageTableEntry::Memory { owner, address, writable } => {
                PageTableEntry::Memory { owner, address: address + offset, writable }
            }
        }
    }
}

/// An address range, and the contents at its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Piece<T> {
    pub base: u64,
    pub end: u64,
    pub page: T,
}

/// Page contents by address. The kernel keeps its address spaces in one, and a driver may keep its page tables in one.
/// Addresses that were never set have no piece.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PageMap<T> {
    /// By base; disjoint.
    pieces: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for PageMap<T> {
    fn default() -> Self {
        PageMap { pieces: BTreeMap::new() }
    }
}

impl<T: Page> PageMap<T> {
    /// Sets the contents from `base` up to `end`; `None` removes them. Returns the pieces that were there, also their
    /// parts outside of that range, which stay.
    pub fn set(&mut self, base: u64, end: u64, page: Option<T>) -> Vec<Piece<T>> {
        let overlapping = self.pieces.range(..end).rev().take_while(|(_, (piece_end, _))| *piece_end > base);
        let overlapping: Vec<_> = overlapping.map(piece).collect();
        for was in &overlapping {
            visit();
            self.pieces.remove(&was.base);
            if was.base < base {
                self.pieces.insert(was.base, (base, was.page));
            }
            if was.end > end {
                self.pieces.insert(end, (was.end, was.page.at(end - was.base)));
            }
        }
        if let Some(page) = page
            && base < end
        {
            self.pieces.insert(base, (end, page));
        }
        overlapping
    }

    /// The piece that contains an address, from the address on.
    pub fn find(&self, address: u64) -> Option<Piece<T>> {
        let (base, (end, page)) = self.pieces.range(..=address).next_back()?;
        (*end > address).then(|| Piece { base: address, end: *end, page: page.at(address - base) })
    }

    /// The pieces from `base` up to `end`, cut to that range, in order.
    pub fn within(&self, base: u64, end: u64) -> impl DoubleEndedIterator<Item = Piece<T>> {
        let first = self.find(base).filter(|_| base < end);
        // Nearly always the first piece covers the range, and no search is needed.
        let behind = first.map_or(base, |first| first.end);
        let others = (behind < end).then(|| self.pieces.range(behind..end)).into_iter().flatten();
        let others = others.map(piece).inspect(|_| visit());
        first.into_iter().chain(others).map(move |piece| Piece { end: piece.end.min(end), ..piece })
    }

    /// Every piece, in order.
    pub fn iter(&self) -> impl Iterator<Item = Piece<T>> {
        self.pieces.iter().map(piece).inspect(|_| visit())
    }

    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

fn piece<T: Copy>((base, (end, page)): (&u64, &(u64, T))) -> Piece<T> {
    Piece { base: *base, end: *end, page: *page }
}
