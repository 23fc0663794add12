//! Pages by address, and by the open of the allocation that they are of: what becomes of one open costs what it has
//! mapped, however much else the address space has.

use alloc::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::vaspace::VaPage;
use crate::ddi::{PageMap, Piece};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct OpenPages {
    pieces: PageMap<VaPage>,
    /// The open and the base of each piece that is of an allocation.
    bases: BTreeSet<(u32, u64)>,
}

impl OpenPages {
    /// Sets the contents from `base` up to `end`; `None` removes them.
    pub fn set(&mut self, base: u64, end: u64, page: Option<VaPage>) {
        let mut name = |at: u64, page: VaPage, is_there: bool| {
            if let Some(open) = page.open() {
                match is_there {
                    true => _ = self.bases.insert((open, at)),
                    false => _ = self.bases.remove(&(open, at)),
                }
            }
        };
        for was in self.pieces.set(base, end, page) {
            name(was.base, was.page, false);
            if was.base < base {
                name(was.base, was.page, true);
            }
            if was.end > end {
                name(end, was.page, true);
            }
        }
        if let Some(page) = page
            && base < end
        {
            name(base, page, true);
        }
    }

    /// The pieces of an open that begin at this address or behind it, in order.
    pub fn of_from(&self, open: u32, base: u64) -> impl Iterator<Item = Piece<VaPage>> {
        let bases = self.bases.range((open, base)..=(open, u64::MAX));
        bases.filter_map(|(_, base)| self.pieces.find(*base))
    }

    /// Every open that has a piece.
    pub fn opens(&self) -> impl Iterator<Item = u32> {
        self.bases.iter().map(|(open, _)| *open)
    }

    pub fn find(&self, address: u64) -> Option<Piece<VaPage>> {
        self.pieces.find(address)
    }

    /// As [`PageMap::within`].
    pub fn within(&self, base: u64, end: u64) -> impl DoubleEndedIterator<Item = Piece<VaPage>> {
        self.pieces.within(base, end)
    }

    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether the index has other entries than the pieces.
    pub fn is_miscounted(&self) -> bool {
        let named = self.pieces.iter().filter_map(|piece| Some((piece.page.open()?, piece.base)));
        named.collect::<BTreeSet<_>>() != self.bases
    }
}
