//! The caches of an engine: one for each type of access, so that a barrier that names the wrong one has no effect.
//!
//! ```text
//!   a write of type T ──▶ T's cache, dirty ──barrier with T (or COMMON) in AccessBefore, or the end──▶ memory
//!   a read of type R  ◀── R's cache, which keeps what it once read ──barrier with R (or COMMON) in AccessAfter──▶ dropped
//! ```
//! The two types of depth and stencil share one, as one stage of the pipeline does both. What a type wrote, it reads:
//! dirty bytes are in the cache that it reads through. Nobody else sees them, and what is kept for reading does not
//! change when memory does. So a missing flush or a missing invalidation reads stale bytes, each time, and no barrier
//! that is right ever does. Ranges are exact, to the byte: two writers beside each other do no harm.
//!
//! A cache has [`limits::CACHE_RANGES_MAX`] ranges: one more pushes out the oldest, to memory if it is dirty. When it
//! has taken [`limits::CACHE_BYTES_MAX`] bytes it is written back whole and begins anew. Addresses are of the GPU
//! address space, looked up when bytes are written back: what is unmapped by then faults, and is not written.

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
    /// What the engine has bandwidth for, and the rest later.
    OfBandwidth,
    /// All of it.
    AtOnce,
}

/// Addresses, from begin to end.
pub(super) type Range = (u64, u64);

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Line {
    end: u64,
    /// In the cache's staging buffer.
    offset: u64,
    dirty: bool,
    /// Lines are numbered as they come.
    age: u64,
}

#[derive(Serialize, Deserialize)]
struct Cache {
    staging_buffer: u32,
    /// Where the next line goes.
    used: u64,
    /// By their first address; disjoint.
    lines: BTreeMap<u64, Line>,
    /// The same with their ages, the oldest first.
    ages: BTreeSet<(u64, u64)>,
}

/// See the module.
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
    }

    fn remove(&mut self, begin: u64) -> Option<Line> {
        let line = self.lines.remove(&begin)?;
        self.ages.remove(&(line.age, begin));
        Some(line)
    }

    /// No line crosses this address.
    fn cut(&mut self, at: u64) {
        let crossing = self.lines.range_mut(..at).next_back().filter(|(_, line)| line.end > at);
        let Some((begin, line)) = crossing else { return };
        let rest = Line { offset: line.offset + (at - begin), ..*line };
        line.end = at;
        self.insert(at, rest);
    }

    /// The lines of these addresses, and no byte beside them.
    fn within(&mut self, (begin, end): Range) -> Vec<u64> {
        self.cut(begin);
        self.cut(end);
        if begin < end { self.lines.range(begin..end).map(|(at, _)| *at).collect() } else { Vec::new() }
    }

    /// The line that has this address, or else where the next one begins.
    fn at(&self, at: u64) -> Result<(u64, Line), Option<u64>> {
        match self.lines.range(..=at).next_back() {
            Some((begin, line)) if line.end > at => Ok((*begin, *line)),
            _ => Err(self.lines.range(at..).next().map(|(begin, _)| *begin)),
        }
    }
}

/// Which cache: the bits of the types that go through it.
fn cache_of(access: BarrierAccess) -> u32 {
    if DEPTH_STENCIL.contains(access) { DEPTH_STENCIL.bits() } else { access.bits() }
}

/// Whether a barrier with these types is about this cache: COMMON is about every one, NO_ACCESS about none.
fn is_about(accesses: BarrierAccess, cache: u32) -> bool {
    accesses == BarrierAccess::COMMON || accesses.bits() & cache != 0
}

/// The same of what was written: a type that only reads writes nothing back.
fn wrote(accesses: BarrierAccess, cache: u32) -> bool {
    is_about(accesses, cache & BarrierAccess::WRITES.bits())
}

impl Caches {
    /// Everything is lost, without a word.
    pub fn forget(&mut self) {
        *self = Caches::default();
    }

    /// Room for a line of this type, where nothing of it is left.
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
            Cache { staging_buffer, used: 0, lines: BTreeMap::new(), ages: BTreeSet::new() }
        });
        for line in cache.within((begin, end)) {
            cache.remove(line);
        }
        if cache.used + (end - begin) > CACHE_BYTES_MAX {
            self.write_back(Pace::AtOnce, access, None, mover)?;
            self.caches.entry(bit).and_modify(|cache| {
                cache.lines.clear();
                cache.ages.clear();
                cache.used = 0;
            });
        }
        self.push_out_oldest(bit, CACHE_RANGES_MAX - 1, mover)?;
        self.lines_made += 1;
        let Some(cache) = self.caches.get_mut(&bit) else { unreachable!("it was made above") };
        let line = Line { end, offset: cache.used, dirty, age: self.lines_made };
        cache.used += end - begin;
        let place = mover.place(cache.staging_buffer, line.offset);
        match cache.lines.range_mut(..begin).next_back() {
            // Goes on where the last one stopped.
            Some((at, last))
                if last.end == begin && last.offset + (begin - at) == line.offset && last.dirty == dirty =>
            {
                last.end = end;
            }
            _ => cache.insert(begin, line),
        }
        Ok(place)
    }

    /// No cache has more ranges than it may have.
    pub fn trim(&mut self, mover: &mut Mover<'_>) -> Result<(), PageFault> {
        let over = self.caches.iter().filter(|(_, cache)| cache.lines.len() > CACHE_RANGES_MAX);
        let over: Vec<u32> = over.map(|(bit, _)| *bit).collect();
        over.into_iter().try_for_each(|bit| self.push_out_oldest(bit, CACHE_RANGES_MAX, mover))
    }

    /// Until so many ranges are left.
    fn push_out_oldest(&mut self, bit: u32, left: usize, mover: &mut Mover<'_>) -> Result<(), PageFault> {
        let Some(cache) = self.caches.get_mut(&bit) else { return Ok(()) };
        while cache.lines.len() > left {
            let Some((_, begin)) = cache.ages.first().copied() else { break };
            let Some(line) = cache.remove(begin) else { break };
            if line.dirty {
                mover.store(mover.place(cache.staging_buffer, line.offset), begin, line.end - begin)?;
            }
        }
        Ok(())
    }

    /// A write of this type is about to land here: where its bytes go.
    pub fn write(
        &mut self,
        access: BarrierAccess,
        range: Range,
        mover: &mut Mover<'_>,
    ) -> Result<MemoryRef, PageFault> {
        self.new_line(access, range, true, mover)
    }

    /// A read of this type: what is not kept yet is read from memory, and kept. The bytes go to a place, if to any.
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
            let (place, until) = match found {
                Ok((line_begin, line)) => {
                    let staging_buffer = self.caches[&cache_of(access)].staging_buffer;
                    (mover.place(staging_buffer, line.offset + (at - line_begin)), line.end.min(end))
                }
                Err(next) => {
                    let until = next.unwrap_or(end).min(end);
                    let place = self.new_line(access, (at, until), false, mover)?;
                    mover.load(at, until - at, place)?;
                    (place, until)
                }
            };
            if let Some(to) = to {
                mover.copy(place, ahead(to, at - begin), until - at);
            }
            at = until;
        }
        Ok(())
    }

    /// The first of what a read of this type would find, without keeping it: of a range that is not empty.
    pub fn first_part(
        &self,
        access: BarrierAccess,
        (begin, end): Range,
        mover: &Mover<'_>,
    ) -> Result<ByteRun, PageFault> {
        let cache = self.caches.get(&cache_of(access));
        match cache.map_or(Err(None), |cache| cache.at(begin).map(|line| (cache.staging_buffer, line))) {
            Ok((staging_buffer, (line_begin, line))) => {
                let place = mover.place(staging_buffer, line.offset + (begin - line_begin));
                Ok((Some(place), line.end.min(end) - begin))
            }
            Err(next) => {
                let until = next.unwrap_or(end).min(end);
                mover.first_part(begin, until - begin, Access::Read)
            }
        }
    }

    /// Nothing of this type is kept of these addresses: they are written past the cache.
    pub fn pass(&mut self, access: BarrierAccess, range: Range) {
        if let Some(cache) = self.caches.get_mut(&cache_of(access)) {
            for line in cache.within(range) {
                cache.remove(line);
            }
        }
    }

    /// What these types wrote goes to memory, in the order in which it was written; `None`: everywhere. False if the
    /// engine has no bandwidth for all of it at this time: then it is to be asked again.
    pub fn write_back(
        &mut self,
        pace: Pace,
        accesses: BarrierAccess,
        ranges: Option<&[Range]>,
        mover: &mut Mover<'_>,
    ) -> Result<bool, PageFault> {
        let mut dirty = Vec::new();
        for (bit, cache) in self.caches.iter_mut().filter(|(bit, _)| wrote(accesses, **bit)) {
            for at in lines_of(cache, ranges) {
                if let Some(line) = cache.lines.get(&at).filter(|line| line.dirty) {
                    dirty.push((line.age, *bit, at));
                }
            }
        }
        dirty.sort_unstable();
        for (_, bit, begin) in dirty {
            if pace == Pace::OfBandwidth && mover.is_spent() {
                return Ok(false);
            }
            let Some(cache) = self.caches.get_mut(&bit) else { continue };
            let Some(line) = cache.lines.get_mut(&begin) else { continue };
            line.dirty = false;
            mover.store(mover.place(cache.staging_buffer, line.offset), begin, line.end - begin)?;
        }
        Ok(true)
    }

    /// What these types keep for reading is dropped.
    pub fn invalidate(&mut self, accesses: BarrierAccess, ranges: Option<&[Range]>) {
        for (_, cache) in self.caches.iter_mut().filter(|(bit, _)| is_about(accesses, **bit)) {
            for at in lines_of(cache, ranges) {
                if cache.lines.get(&at).is_some_and(|line| !line.dirty) {
                    cache.remove(at);
                }
            }
        }
    }

    /// Nothing is kept of these addresses by anybody, written or not.
    pub fn drop_ranges(&mut self, ranges: &[Range]) {
        for cache in self.caches.values_mut() {
            for at in lines_of(cache, Some(ranges)) {
                cache.remove(at);
            }
        }
    }

    /// All is written back, and the caches are empty. False: as for [`Caches::write_back`].
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
