//! The pieces in which backing pages are attached, and when the host is asked to detach them.
//!
//! A piece without an allocation is detached at once. If it is in use, it stays, and the host is asked again: about one
//! piece a call, after a pause that doubles each time, and about all once the broker refuses pages, because they count
//! against the process.
//!
//! What allocations have of a piece that is detached by the call that ends them is private memory of the program again, from
//! before that call returns: the file stays mapped, with copy-on-write. It is the only moment at which no other thread can
//! unmap the memory and map other memory there, which would be lost. So what an earlier call has ended stays shared: all of a
//! piece that was in use, and the pages that only one of two overlapping allocations had. So does a piece whose file is not
//! kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use d3dkmt::Handle;
use d3dkmt::limits::DEVICE_MEMORY_START;
use fence_page::PAGE_BYTES;

use super::super::attach::{AttachError, Detach};
use super::super::event::descriptors_max;
use super::file::BackingFile;
use super::{BackingProvider, Mapping, OwnMaps, covered, detach_ignoring_errors, make_private};
use crate::limits::{BACKING_FILES_MAX, BACKING_FILES_SHARE};

/// The most calls between two requests about a piece that was in use.
pub(super) const PAUSE_MAX: u64 = 256;

/// The pages that one request attached.
#[derive(Debug)]
struct BackingPiece {
    end: u64,
    /// Of the file that has the pages.
    inode: u64,
    /// Memory of the process: the file, to make it private again.
    file: Option<Arc<BackingFile>>,
    /// Allocations of this process that include any of its pages, and from where to where.
    allocations: BTreeMap<Handle, Range<u64>>,
    /// Pages of allocations that this call ends, or does not create because it fails.
    ended: Vec<Range<u64>>,
    /// The host did not detach it when there was none.
    in_use: Option<InUse>,
}

/// The most files that are kept: a share of the descriptors that the program may have at its first allocation.
pub(super) fn files_max() -> usize {
    static FILES_MAX: OnceLock<usize> = OnceLock::new();
    *FILES_MAX.get_or_init(|| {
        let share = descriptors_max().map_or(u64::MAX, |limit| limit / BACKING_FILES_SHARE);
        usize::try_from(share).map_or(BACKING_FILES_MAX, |share| share.min(BACKING_FILES_MAX))
    })
}

/// When the host is asked again whether a piece is in use.
#[derive(Debug)]
struct InUse {
    /// In [`Pieces::calls`].
    next: u64,
    pause: u64,
}

impl BackingPiece {
    fn overlaps(&self, address: u64, range: &Range<u64>) -> bool {
        address < range.end && self.end > range.start
    }

    /// Makes what has ended private, except where the program has unmapped, replaced or remapped any of it.
    fn make_private(self, address: u64, maps: &[Mapping]) {
        // A second private mapping would undo what was stored since the first.
        let is_there = |mapping: &Mapping| {
            mapping.is_of(self.inode)
                && !mapping.is_private
                && mapping.offset + address == mapping.range.start
        };
        for range in disjoint(self.ended) {
            let file = self.file.as_ref().filter(|_| covered(maps, &range, is_there).is_ok());
            if let Some(file) = file.and_then(|file| file.kept()) {
                make_private(file, address, &range, maps);
            }
        }
    }
}

/// The same pages in ranges that neither overlap nor touch.
pub(super) fn disjoint(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, before| {
        let joins = next.start <= before.end;
        if joins {
            before.end = before.end.max(next.end);
        }
        joins
    });
    ranges
}

/// All pieces of this process.
#[derive(Default, Debug)]
pub(super) struct Pieces {
    /// By start address; disjoint.
    by_address: BTreeMap<u64, BackingPiece>,
    /// From where to where each allocation includes pages.
    included: BTreeMap<Handle, Range<u64>>,
    /// Addresses of pieces without an allocation.
    unused: BTreeSet<u64>,
    /// Addresses of pieces with pages that this call ends.
    ended: Vec<u64>,
    /// Calls that detached what is unused.
    calls: u64,
    /// Pieces with a file.
    files: usize,
}

impl Pieces {
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Asks the broker for pages at this address. If it refuses them, it is first asked about all pieces that were in use,
    /// except those in the range `kept`.
    pub fn attach(
        &mut self,
        backing_provider: &impl BackingProvider,
        address: u64,
        pages: u32,
        kept: &Range<u64>,
    ) -> Result<Arc<BackingFile>, AttachError> {
        match backing_provider.attach_backing(address, pages) {
            Err(AttachError::Refused(_)) if self.release_in_use(backing_provider, kept) => {
                backing_provider.attach_backing(address, pages)
            }
            attached => attached,
        }
    }

    /// Whether it detached any.
    fn release_in_use(&mut self, backing_provider: &impl BackingProvider, kept: &Range<u64>) -> bool {
        let before = self.by_address.len();
        let in_use = self.unused(kept).filter(|(_, piece)| piece.in_use.is_some());
        for address in in_use.map(|(address, _)| address).collect::<Vec<_>>() {
            self.release(backing_provider, address);
        }
        self.by_address.len() < before
    }

    /// Records pages that were attached, for an allocation that is about to be included.
    pub fn insert(&mut self, address: u64, pages: u32, file: Arc<BackingFile>) {
        let (end, inode) = (address + u64::from(pages) * PAGE_BYTES as u64, file.inode());
        let file = (address < DEVICE_MEMORY_START && self.files < files_max()).then_some(file);
        self.files += usize::from(file.is_some());
        let (allocations, ended) = (BTreeMap::new(), std::iter::once(address..end).collect());
        self.by_address.insert(address, BackingPiece { end, inode, file, allocations, ended, in_use: None });
        self.unused.insert(address);
        self.ended.push(address);
    }

    pub fn close_files(&mut self) {
        self.by_address.values_mut().for_each(|piece| piece.file = None);
        self.files = 0;
    }

    #[cfg(test)]
    pub fn file_number(&self, address: u64) -> std::os::fd::RawFd {
        use std::os::fd::{AsFd as _, AsRawFd as _};
        self.by_address[&address].file.as_ref().expect("a file that is kept").as_fd().as_raw_fd()
    }

    fn remove(&mut self, address: u64) -> Option<BackingPiece> {
        let piece = self.by_address.remove(&address)?;
        self.files -= usize::from(piece.file.is_some());
        self.unused.remove(&address);
        Some(piece)
    }

    /// An allocation includes pages in this range.
    pub fn include(&mut self, range: &Range<u64>, allocation: Handle) {
        for (address, piece) in self.by_address.range_mut(self.first_in(range)..range.end) {
            let pages = range.start.max(*address)..range.end.min(piece.end);
            let known = piece.allocations.entry(allocation).or_insert_with(|| pages.clone());
            *known = known.start.min(pages.start)..known.end.max(pages.end);
            piece.ended.clear();
            piece.in_use = None;
            self.unused.remove(address);
        }
        let known = self.included.entry(allocation).or_insert_with(|| range.clone());
        *known = known.start.min(range.start)..known.end.max(range.end);
    }

    /// Forgets an allocation.
    pub fn end(&mut self, allocation: Handle) {
        let Some(range) = self.included.remove(&allocation) else { return };
        for (address, piece) in self.by_address.range_mut(self.first_in(&range)..range.end) {
            if let Some(pages) = piece.allocations.remove(&allocation) {
                piece.ended.push(pages);
                self.ended.push(*address);
                if piece.allocations.is_empty() {
                    self.unused.insert(*address);
                }
            }
        }
    }

    /// Pieces without an allocation, except those in the range `kept`.
    fn unused(&self, kept: &Range<u64>) -> impl Iterator<Item = (u64, &BackingPiece)> {
        let pieces = self.unused.iter().map(|address| (*address, &self.by_address[address]));
        pieces.filter(|(address, piece)| !piece.overlaps(*address, kept))
    }

    /// Detaches pieces without an allocation of this process, except those in the range `kept`. Of those that were in use
    /// before, it asks about the one that waits longest, if its pause is over.
    pub fn detach_unused(&mut self, backing_provider: &impl BackingProvider, kept: &Range<u64>) {
        self.calls += 1;
        let (mut first, mut again) = (Vec::new(), None);
        for (address, piece) in self.unused(kept) {
            match &piece.in_use {
                None => first.push(address),
                Some(in_use) if in_use.next <= self.calls => {
                    let of_it = (in_use.next, address);
                    again = Some(again.map_or(of_it, |other| of_it.min(other)));
                }
                Some(_) => {}
            }
        }
        let released = |address| Some((address, self.release(backing_provider, address)?));
        let detached = first.into_iter().filter_map(released).collect();
        if let Some((_, address)) = again {
            self.release(backing_provider, address);
        }
        for address in self.ended.drain(..) {
            if let Some(piece) = self.by_address.get_mut(&address) {
                piece.ended.clear();
            }
        }
        make_pieces_private(detached);
    }

    /// Detaches a piece unless it is in use, and returns it. An error is ignored: without a host there is nothing to detach.
    fn release(&mut self, backing_provider: &impl BackingProvider, address: u64) -> Option<BackingPiece> {
        let is_in_use = matches!(backing_provider.release_backing(address), Ok(Detach::InUse));
        match self.by_address.get_mut(&address) {
            Some(piece) if is_in_use => {
                // It stays shared, so its file may be kept of another piece.
                self.files -= usize::from(piece.file.take().is_some());
                let pause = piece.in_use.as_ref().map_or(1, |before| PAUSE_MAX.min(2 * before.pause));
                piece.in_use = Some(InUse { next: self.calls + pause, pause });
                None
            }
            Some(_) | None => self.remove(address),
        }
    }

    /// Parts of a range that are not attached.
    pub fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (address, piece) in self.in_range(range) {
            if address > at {
                gaps.push(at..address);
            }
            at = at.max(piece.end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    fn in_range(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &BackingPiece)> {
        self.by_address.range(self.first_in(range)..range.end).map(|(address, piece)| (*address, piece))
    }

    /// Where the first piece begins that overlaps a range, or the range without one before it.
    fn first_in(&self, range: &Range<u64>) -> u64 {
        let before = self.by_address.range(..range.start).next_back();
        before.filter(|(_, piece)| piece.end > range.start).map_or(range.start, |(address, _)| *address)
    }

    /// A range, with all of each piece that it overlaps.
    pub fn with_pieces(&self, range: &Range<u64>) -> Range<u64> {
        let pieces = self.in_range(range);
        pieces.fold(range.clone(), |all, (address, piece)| all.start.min(address)..all.end.max(piece.end))
    }

    /// Forgets pieces that the process has unmapped or replaced since: the memory at their addresses no longer backs
    /// the allocations. Engines know memory by its address, so what still uses such a piece finds nothing there from now
    /// on: it must not write what the program has there now.
    pub fn forget_replaced(
        &mut self,
        backing_provider: &impl BackingProvider,
        range: &Range<u64>,
        maps: &[Mapping],
    ) {
        let is_replaced = |(address, piece): &(u64, &BackingPiece)| {
            let whole = *address..piece.end;
            covered(maps, &whole, |mapping| mapping.is_of(piece.inode)).is_err()
        };
        let replaced: Vec<u64> =
            self.in_range(range).filter(is_replaced).map(|(address, _)| address).collect();
        for address in replaced {
            detach_ignoring_errors(backing_provider, address);
            self.remove(address);
        }
    }
}

/// Makes what has ended of detached pieces private memory of the program again. They are in the order of their addresses.
fn make_pieces_private(mut detached: Vec<(u64, BackingPiece)>) {
    detached.retain(|(_, piece)| piece.file.is_some() && !piece.ended.is_empty());
    if detached.is_empty() {
        return;
    }
    let Ok(mut maps) = OwnMaps::open() else { return };
    for (address, piece) in detached {
        // A program that has unmapped memory of a living allocation may have other memory there.
        let Ok(maps) = maps.of(&(address..piece.end)) else { return };
        piece.make_private(address, &maps);
    }
}
