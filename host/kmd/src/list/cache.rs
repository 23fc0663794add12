//! The caches of an engine: one for each type of access, so that a barrier with the wrong access type has no effect.
//!
//! ```text
//!   write of type T ──▶ T's cache, dirty ──barrier with T (or COMMON) in AccessBefore, or the end──▶ memory
//!   read of type R  ◀── R's cache, which keeps bytes read ──barrier with R (or COMMON) in AccessAfter──▶ dropped
//! ```
//! The two depth-stencil types share a cache, because one pipeline stage does both. A type reads its own writes,
//! because it reads through the cache with its dirty bytes. No other type sees dirty bytes, and cached reads do not
//! change when memory does. So a missing flush or a missing invalidation reads stale bytes every time, and a correct
//! barrier never does. Ranges are exact to the byte: two writers of adjacent bytes do not interfere.
//!
//! A cache has [`CACHE_RANGES_MAX`] ranges: one more evicts the oldest, to memory if it is dirty. After
//! [`CACHE_BYTES_MAX`] bytes the whole cache is written back and emptied. Addresses are GPU virtual addresses,
//! translated at write-back: a range that is unmapped by then faults and is not written.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use d3dkmt::isa::BarrierAccess;
use d3dkmt::limits::{CACHE_BYTES_MAX, CACHE_RANGES_MAX};
use dxgkrnl::MemoryRef;
use serde::{Deserialize, Serialize};

use super::memory::{ByteRun, Mover, ahead};
use crate::page_table::{Access, PageFault};

/// The types that share a cache.
pub(super) const DEPTH_STENCIL: BarrierAccess =
    BarrierAccess::DEPTH_STENCIL_READ.union(BarrierAccess::DEPTH_STENCIL_WRITE);

/// How much is written back at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As much as the engine has bandwidth for; the rest later.
    OfBandwidth,
    /// All of it.
    AtOnce,
}

/// First address, and the address after the last.
pub(super) type Range = (u64, u64);

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Line {
    end: u64,
    /// Offset in the cache's staging buffer.
    offset: u64,
    dirty: bool,
    /// Sequence number of its creation.
    age: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(from = "SavedCache")]
struct Cache {
    staging_buffer: u32,
    /// Where the next line goes.
    used: u64,
    /// By first address; disjoint.
    lines: BTreeMap<u64, Line>,
    /// The same lines by age, oldest first.
    ages: BTreeSet<(u64, u64)>,
    /// The dirty ones of these.
    #[serde(skip)]
    dirty: BTreeSet<(u64, u64)>,
}

/// A cache in a saved state.
#[derive(Deserialize)]
struct SavedCache {
    staging_buffer: u32,
    used: u64,
    lines: BTreeMap<u64, Line>,
    ages: BTreeSet<(u64, u64)>,
}

impl From<SavedCache> for Cache {
    fn from(SavedCache { staging_buffer, used, lines, ages }: SavedCache) -> Cache {
        let dirty =
            lines.iter().filter(|(_, line)| line.dirty).map(|(begin, line)| (line.age, *begin)).collect();
        Cache { staging_buffer, used, lines, ages, dirty }
    }
}

/// All caches of one engine.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Caches {
    /// By [`cache_of`].
    caches: BTreeMap<u32, Cache>,
    lines_made: u64,
}

impl Cache {
    fn insert(&mut self, begin: u64, line: Line) {
        self.lines.insert(begin, line);
        self.ages.insert((line.age, begin));
        if line.dirty {
            self.dirty.insert((line.age, begin));
        }
    }

    fn remove(&mut self, begin: u64) -> Option<Line> {
        let line = self.lines.remove(&begin)?;
        self.ages.remove(&(line.age, begin));
        self.dirty.remove(&(line.age, begin));
        Some(line)
    }

    /// The oldest dirty line, by age and first address.
    fn oldest_dirty(&self) -> Option<(u64, u64)> {
        self.dirty.first().copied()
    }

    /// Makes a line clean, because it is written back: where its bytes are, and the address after its last.
    fn clean(&mut self, (age, begin): (u64, u64)) -> Option<(u64, u64)> {
        self.dirty.remove(&(age, begin));
        let line = self.lines.get_mut(&begin)?;
        line.dirty = false;
        Some((line.offset, line.end))
    }

    /// Splits the line that crosses this address.
    fn cut(&mut self, at: u64) {
        let crossing = self.lines.range_mut(..at).next_back().filter(|(_, line)| line.end > at);
        let Some((begin, line)) = crossing else { return };
        let rest = Line { offset: line.offset + (at - begin), ..*line };
        line.end = at;
        self.insert(at, rest);
    }

    /// The lines of exactly these addresses: lines that cross either end are split.
    fn within(&mut self, (begin, end): Range) -> Vec<u64> {
        self.cut(begin);
        self.cut(end);
        if begin < end { self.lines.range(begin..end).map(|(at, _)| *at).collect() } else { Vec::new() }
    }

    /// The line that contains this address, or else the start of the next line.
    fn at(&self, at: u64) -> Result<(u64, Line), Option<u64>> {
        match self.lines.range(..=at).next_back() {
            Some((begin, line)) if line.end > at => Ok((*begin, *line)),
            _ => Err(self.lines.range(at..).next().map(|(begin, _)| *begin)),
        }
    }
}

/// Key of the cache for an access: the bits of the access types that share it.
fn cache_of(access: BarrierAccess) -> u32 {
    if DEPTH_STENCIL.contains(access) { DEPTH_STENCIL.bits() } else { access.bits() }
}

/// Whether a barrier with these access types affects this cache. COMMON affects every cache, NO_ACCESS none.
fn is_about(accesses: BarrierAccess, cache: u32) -> bool {
    accesses == BarrierAccess::COMMON || accesses.bits() & cache != 0
}

/// Whether a barrier with these access types writes this cache back. Read-only types write nothing back.
fn wrote(accesses: BarrierAccess, cache: u32) -> bool {
    is_about(accesses, cache & BarrierAccess::WRITES.bits())
}

impl Caches {
    /// Drops all caches without a write-back.
    pub fn forget(&mut self) {
        *self = Caches::default();
    }

    /// Allocates a line of this type, and drops what the cache had in its range.
    fn new_line(
        &mut self,
        access: BarrierAccess,
        (begin, end): Range,
        dirty: bool,
        mover: &mut Mover<'_>,
    ) -> Result<MemoryRef, PageFault> {
        let bit = cache_of(access);
        let cache = self.caches.entry(bit).or_insert_with(|| {
            let staging_buffer = mover.new_staging_buffer();
            let (lines, ages, dirty) = Default::default();
            Cache { staging_buffer, used: 0, lines, ages, dirty }
        });
        for line in cache.within((begin, end)) {
            cache.remove(line);
        }
        if cache.used + (end - begin) > CACHE_BYTES_MAX {
            self.write_back(Pace::AtOnce, access, None, mover)?;
            self.caches.entry(bit).and_modify(|cache| {
                cache.lines.clear();
                cache.ages.clear();
                cache.dirty.clear();
                cache.used = 0;
            });
        }
        self.push_out_oldest(bit, CACHE_RANGES_MAX - 1, mover)?;
        self.lines_made += 1;
        let Some(cache) = self.caches.get_mut(&bit) else { unreachable!("it was made above") };
        let line = Line { end, offset: cache.used, dirty, age: self.lines_made };
        cache.used += end - begin;
        let memory = mover.staging_ref(cache.staging_buffer, line.offset);
        match cache.lines.range_mut(..begin).next_back() {
            // Extends the previous line, which ends here.
            Some((at, last))
                if last.end == begin && last.offset + (begin - at) == line.offset && last.dirty == dirty =>
            {
                last.end = end;
            }
            _ => cache.insert(begin, line),
        }
        Ok(memory)
    }

    /// Evicts the oldest ranges of each cache that has too many.
    pub fn trim(&mut self, mover: &mut Mover<'_>) -> Result<(), PageFault> {
        let over = self.caches.iter().filter(|(_, cache)| cache.lines.len() > CACHE_RANGES_MAX);
        let over: Vec<u32> = over.map(|(bit, _)| *bit).collect();
        over.into_iter().try_for_each(|bit| self.push_out_oldest(bit, CACHE_RANGES_MAX, mover))
    }

    /// Evicts the oldest ranges until `left` remain.
    fn push_out_oldest(&mut self, bit: u32, left: usize, mover: &mut Mover<'_>) -> Result<(), PageFault> {
        let Some(cache) = self.caches.get_mut(&bit) else { return Ok(()) };
        while cache.lines.len() > left {
            let Some((_, begin)) = cache.ages.first().copied() else { break };
            let Some(line) = cache.remove(begin) else { break };
            if line.dirty {
                mover.store(mover.staging_ref(cache.staging_buffer, line.offset), begin, line.end - begin)?;
            }
        }
        Ok(())
    }

    /// Reserves a dirty range for a write of this type. Returns where to put the bytes.
    pub fn write(
        &mut self,
        access: BarrierAccess,
        range: Range,
        mover: &mut Mover<'_>,
    ) -> Result<MemoryRef, PageFault> {
        self.new_line(access, range, true, mover)
    }

    /// Reads through the cache of this type: bytes that are not cached are loaded from memory first. The bytes are
    /// copied to `to`, if given.
    pub fn read(
        &mut self,
        access: BarrierAccess,
        (begin, end): Range,
        to: Option<MemoryRef>,
        mover: &mut Mover<'_>,
    ) -> Result<(), PageFault> {
        let mut at = begin;
        while at < end {
            let found = self.caches.get(&cache_of(access)).map_or(Err(None), |cache| cache.at(at));
            let (memory, until) = match found {
                Ok((line_begin, line)) => {
                    let staging_buffer = self.caches[&cache_of(access)].staging_buffer;
                    (mover.staging_ref(staging_buffer, line.offset + (at - line_begin)), line.end.min(end))
                }
                Err(next) => {
                    let until = next.unwrap_or(end).min(end);
                    let memory = self.new_line(access, (at, until), false, mover)?;
                    mover.load(at, until - at, memory)?;
                    (memory, until)
                }
            };
            if let Some(to) = to {
                mover.copy(memory, ahead(to, at - begin), until - at);
            }
            at = until;
        }
        Ok(())
    }

    /// The first run of bytes that a read of this type would find, without caching it. The range must not be empty.
    pub fn first_part(
        &self,
        access: BarrierAccess,
        (begin, end): Range,
        mover: &Mover<'_>,
    ) -> Result<ByteRun, PageFault> {
        let cache = self.caches.get(&cache_of(access));
        match cache.map_or(Err(None), |cache| cache.at(begin).map(|line| (cache.staging_buffer, line))) {
            Ok((staging_buffer, (line_begin, line))) => {
                let memory = mover.staging_ref(staging_buffer, line.offset + (begin - line_begin));
                Ok((Some(memory), line.end.min(end) - begin))
            }
            Err(next) => {
                let until = next.unwrap_or(end).min(end);
                mover.first_part(begin, until - begin, Access::Read)
            }
        }
    }

    /// Drops these addresses from the cache of this type, because a write bypasses it.
    pub fn pass(&mut self, access: BarrierAccess, range: Range) {
        if let Some(cache) = self.caches.get_mut(&cache_of(access)) {
            for line in cache.within(range) {
                cache.remove(line);
            }
        }
    }

    /// Writes the dirty bytes of these types to memory, in the order of their writes; `None` means all addresses. False
    /// if the engine lacks the bandwidth for all of it now; the caller then calls again later.
    pub fn write_back(
        &mut self,
        pace: Pace,
        accesses: BarrierAccess,
        ranges: Option<&[Range]>,
        mover: &mut Mover<'_>,
    ) -> Result<bool, PageFault> {
        // Of ranges, the lines are looked up once. Of all addresses, each look finds one: this is called again for each
        // piece of bandwidth, and must not visit all lines then.
        let mut of_ranges = ranges.map(|ranges| self.dirty_lines(accesses, ranges).into_iter());
        loop {
            let next = match &mut of_ranges {
                Some(lines) => lines.next(),
                None => self.oldest_dirty(accesses),
            };
            let Some((age, bit, begin)) = next else { return Ok(true) };
            if pace == Pace::OfBandwidth && mover.is_spent() {
                return Ok(false);
            }
            let Some(cache) = self.caches.get_mut(&bit) else { continue };
            let Some((offset, end)) = cache.clean((age, begin)) else { continue };
            mover.store(mover.staging_ref(cache.staging_buffer, offset), begin, end - begin)?;
        }
    }

    /// The oldest dirty line of these types: its age, cache and first address.
    fn oldest_dirty(&self, accesses: BarrierAccess) -> Option<(u64, u32, u64)> {
        let written = self.caches.iter().filter(|(bit, _)| wrote(accesses, **bit));
        written.filter_map(|(bit, cache)| cache.oldest_dirty().map(|(age, begin)| (age, *bit, begin))).min()
    }

    /// The dirty lines of these types in these ranges, oldest first.
    fn dirty_lines(&mut self, accesses: BarrierAccess, ranges: &[Range]) -> Vec<(u64, u32, u64)> {
        let mut dirty = Vec::new();
        for (bit, cache) in self.caches.iter_mut().filter(|(bit, _)| wrote(accesses, **bit)) {
            for at in lines_of(cache, Some(ranges)) {
                if let Some(line) = cache.lines.get(&at).filter(|line| line.dirty) {
                    dirty.push((line.age, *bit, at));
                }
            }
        }
        dirty.sort_unstable();
        dirty
    }

    /// Drops the clean bytes of these types.
    pub fn invalidate(&mut self, accesses: BarrierAccess, ranges: Option<&[Range]>) {
        for (_, cache) in self.caches.iter_mut().filter(|(bit, _)| is_about(accesses, **bit)) {
            for at in lines_of(cache, ranges) {
                if cache.lines.get(&at).is_some_and(|line| !line.dirty) {
                    cache.remove(at);
                }
            }
        }
    }

    /// Drops these addresses from all caches, clean or dirty.
    pub fn drop_ranges(&mut self, ranges: &[Range]) {
        for cache in self.caches.values_mut() {
            for at in lines_of(cache, Some(ranges)) {
                cache.remove(at);
            }
        }
    }

    /// As `drop_ranges`, of bytes that something else stores to memory. What that splits is kept to the limit.
    pub fn drop_stored(&mut self, range: Range, mover: &mut Mover<'_>) -> Result<(), PageFault> {
        self.drop_ranges(&[range]);
        self.trim(mover)
    }

    /// Writes everything back and empties the caches. Returns false as [`Caches::write_back`] does.
    pub fn end(&mut self, pace: Pace, mover: &mut Mover<'_>) -> Result<bool, PageFault> {
        if !self.write_back(pace, BarrierAccess::COMMON, None, mover)? {
            return Ok(false);
        }
        for cache in core::mem::take(&mut self.caches).into_values() {
            mover.release(cache.staging_buffer);
        }
        Ok(true)
    }
}

fn lines_of(cache: &mut Cache, ranges: Option<&[Range]>) -> Vec<u64> {
    match ranges {
        None => cache.lines.keys().copied().collect(),
        Some(ranges) => ranges.iter().flat_map(|range| cache.within(*range)).collect(),
    }
}
