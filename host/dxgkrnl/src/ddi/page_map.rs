//! What stands at the pages of an address space, in pieces that follow each other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::memory::PageTableEntry;

/// What a piece of pages says of its first byte, and so of each one behind it.
pub trait Page: Copy {
    /// What stands so many bytes further on.
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

/// So many bytes of one kind, and what stands at the first of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Piece<T> {
    pub base: u64,
    pub end: u64,
    pub page: T,
}

/// The record of the kernel for its address spaces, and one that a driver may keep its page tables in. Addresses of
/// which nothing was said have no piece.
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
    /// From now on this stands from `base` up to `end`; `None`: nothing.
    pub fn set(&mut self, base: u64, end: u64, page: Option<T>) {
        let overlapping = self.pieces.range(..end).rev().take_while(|(_, (piece_end, _))| *piece_end > base);
        let overlapping: Vec<_> = overlapping.map(|(begin, piece)| (*begin, *piece)).collect();
        for (begin, (piece_end, was)) in overlapping {
            self.pieces.remove(&begin);
            if begin < base {
                self.pieces.insert(begin, (base, was));
            }
            if piece_end > end {
                self.pieces.insert(end, (piece_end, was.at(end - begin)));
            }
        }
        if let Some(page) = page
            && base < end
        {
            self.pieces.insert(base, (end, page));
        }
    }

    /// The piece that an address is in, from the address on.
    pub fn find(&self, address: u64) -> Option<Piece<T>> {
        let (base, (end, page)) = self.pieces.range(..=address).next_back()?;
        (*end > address).then(|| Piece { base: address, end: *end, page: page.at(address - base) })
    }

    /// What stands from `base` up to `end`, in order.
    pub fn within(&self, base: u64, end: u64) -> impl Iterator<Item = Piece<T>> {
        let first = self.find(base).filter(|_| base < end);
        // Nearly always there are none, and that is known without a search.
        let behind = first.map_or(base, |first| first.end);
        let others = (behind < end).then(|| self.pieces.range(behind..end)).into_iter().flatten();
        let others = others.map(|(base, (end, page))| Piece { base: *base, end: *end, page: *page });
        first.into_iter().chain(others).map(move |piece| Piece { end: piece.end.min(end), ..piece })
    }

    /// Every piece, in order.
    pub fn iter(&self) -> impl Iterator<Item = Piece<T>> {
        self.pieces.iter().map(|(base, (end, page))| Piece { base: *base, end: *end, page: *page })
    }

    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}
