//! Execution of barriers: which commands they wait for and block, and which caches they write back and invalidate.
//!
//! This module validates nothing: a barrier on a resource that does not exist, or on memory outside of it, synchronizes
//! and touches no cache. Layouts concern the validator only: the bytes of a texture are the same in each. A DISCARD
//! leaves garbage ([`DISCARDED`](super::memory)). The begin of a split barrier waits and writes back; its end, which
//! waits for the begin, invalidates and blocks. A legacy `ResourceBarrier` is translated, as a runtime does for a
//! driver.

use barriers::legacy::{self, Translated};
use d3dkmt::isa::{
    self, BarrierAccess, BarrierGroup, BarrierSync, LegacyBarrier, RangedBarrier, ResourceDesc,
    SubresourceRange, TextureFlags,
};
use d3dkmt::limits::RANGES_PER_BARRIER_MAX;
use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::bandwidth::BYTES_PER_NS;
use super::cache::{Caches, Pace, Range};
use super::command::discard;
use super::memory::Mover;
use crate::page_table::PageFault;

/// Duration of a barrier: enough that a long list can be interrupted at each, and too short to hide a missing barrier.
const BARRIER_NS: Nanos = 1;

/// Address ranges of the subresources that a barrier names, as far as they exist: disjoint, in ascending order. There is
/// one for each named slice, but slices of which all mips are named are one range, and so are such planes.
///
/// It is a formula, because a barrier may name thousands of slices and a packet may have thousands of barriers.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Ranges {
    first: Range,
    /// Number of ranges in a plane, and the distance of their addresses.
    slices: (u32, u64),
    /// The same of the planes.
    planes: (u32, u64),
}

impl Ranges {
    pub const NONE: Self = Ranges { first: (0, 0), slices: (0, 0), planes: (0, 0) };

    pub const fn one(range: Range) -> Self {
        Ranges { first: range, slices: (1, 0), planes: (1, 0) }
    }

    /// The ranges of these subresources.
    pub fn of(desc: &ResourceDesc, of: &SubresourceRange) -> Self {
        Self::existing(desc, of).unwrap_or(Self::NONE)
    }

    fn existing(desc: &ResourceDesc, of: &SubresourceRange) -> Option<Self> {
        let run = |first: u32, count: u32| -> Option<Range> {
            let last = desc.subresource(first.checked_add(count.checked_sub(1)?)?)?;
            Some((desc.gpu_address + desc.subresource(first)?.0, desc.gpu_address + last.0 + last.1))
        };
        if of.mips == 0 {
            let (first, count) =
                if of.first_mip == u32::MAX { (0, desc.subresources()) } else { (of.first_mip, 1) };
            return run(first, count).map(Self::one);
        }
        let within = |first: u32, count: u32, all: u32| count.min(all.saturating_sub(first));
        let mips = within(of.first_mip, of.mips, desc.mips);
        let first = run(desc.subresource_index(of.first_mip, of.first_slice, of.first_plane), mips)?;
        let slice_bytes = desc.slice_bytes()?;
        let plane_bytes = slice_bytes.checked_mul(u64::from(desc.array_size))?;
        let mut ranges = Ranges {
            first,
            slices: (within(of.first_slice, of.slices, desc.array_size), slice_bytes),
            planes: (within(of.first_plane, of.planes, desc.planes), plane_bytes),
        };
        if mips == desc.mips {
            ranges.slices = ranges.join(ranges.slices);
            if of.first_slice == 0 && of.slices >= desc.array_size {
                ranges.planes = ranges.join(ranges.planes);
            }
        }
        Some(ranges)
    }

    /// Extends the first range over those that follow it directly. Returns their number and distance as one.
    fn join(&mut self, (count, distance): (u32, u64)) -> (u32, u64) {
        self.first.1 += distance * u64::from(count.saturating_sub(1));
        (count.min(1), distance)
    }

    pub fn all(self) -> impl Iterator<Item = Range> {
        (0..self.len()).filter_map(move |number| self.get(number))
    }

    pub fn len(&self) -> usize {
        self.slices.0 as usize * self.planes.0 as usize
    }

    pub fn get(&self, number: usize) -> Option<Range> {
        let at = (number < self.len()).then_some(number as u64)?;
        let of_plane = u64::from(self.slices.0);
        let ahead = at / of_plane * self.planes.1 + at % of_plane * self.slices.1;
        Some((self.first.0 + ahead, self.first.1 + ahead))
    }

    /// From the first byte of the first range to the last of the last.
    pub fn cover(&self) -> Range {
        let last = self.len().checked_sub(1).and_then(|last| self.get(last));
        last.map_or((0, 0), |last| (self.first.0, last.1))
    }

    /// All ranges, or one over all of them if there are more than [`RANGES_PER_BARRIER_MAX`].
    pub fn few(&self) -> impl Iterator<Item = Range> + use<> {
        if self.len() > RANGES_PER_BARRIER_MAX { Ranges::one(self.cover()).all() } else { self.all() }
    }

    /// Bytes of all ranges.
    fn bytes(&self) -> u64 {
        (self.first.1 - self.first.0).saturating_mul(self.len() as u64)
    }

    fn meets(&self, other: &Self) -> bool {
        let (mut ranges, mut others) = (self.few(), other.few());
        let (mut next, mut next_other) = (ranges.next(), others.next());
        while let (Some(a), Some(b)) = (next, next_other) {
            if a.0 < b.1 && b.0 < a.1 {
                return true;
            }
            if a.1 <= b.1 { next = ranges.next() } else { next_other = others.next() }
        }
        false
    }
}

/// The effective words and the ranges of a ranged barrier; no ranges stand for all memory. A release alone makes writes visible
/// to memory, an acquire alone makes memory visible: GLOBAL is memory, which has no cache.
pub(crate) fn of_ranged<'a>(
    ranged: &RangedBarrier,
    find: impl Fn(u32) -> Option<&'a ResourceDesc>,
) -> (isa::Barrier, Option<Ranges>) {
    let RangedBarrier { resource, offset, bytes, .. } = *ranged;
    let words = ranged.effective(BarrierAccess::GLOBAL);
    let within = |desc: &ResourceDesc| {
        let offset = offset.min(desc.bytes);
        let begin = desc.gpu_address + offset;
        Ranges::one((begin, begin + bytes.min(desc.bytes - offset)))
    };
    (words, (resource != 0).then(|| find(resource).map_or(Ranges::NONE, within)))
}

#[derive(Serialize, Deserialize)]
pub(super) struct Barrier {
    /// Umbrella scopes are expanded; SPLIT is removed.
    pub sync_before: BarrierSync,
    pub sync_after: BarrierSync,
    write_back: BarrierAccess,
    invalidate: BarrierAccess,
    /// The resource that it names; 0 for all.
    resource: u32,
    ranges: Option<Ranges>,
    discard: bool,
    /// Number of ranges that are discarded already.
    discarded: usize,
}

impl Barrier {
    fn of(barrier: &isa::Barrier) -> Self {
        Barrier {
            sync_before: barrier.sync_before.expanded(),
            sync_after: barrier.sync_after.expanded(),
            write_back: barrier.access_before,
            invalidate: barrier.access_after,
            resource: 0,
            ranges: None,
            discard: false,
            discarded: 0,
        }
    }

    /// On a resource; without ranges if that does not exist.
    fn on(self, resource: u32, ranges: Option<Ranges>) -> Self {
        Barrier { resource, ranges: Some(ranges.unwrap_or(Ranges::NONE)), ..self }
    }

    fn ranged<'a>(barrier: &RangedBarrier, find: impl Fn(u32) -> Option<&'a ResourceDesc>) -> Self {
        let (words, ranges) = of_ranged(barrier, find);
        Barrier { resource: barrier.resource, ranges, ..Barrier::of(&words) }
    }

    /// A legacy barrier, translated as a driver gets it (BAR-015).
    pub fn legacy<'a>(
        barrier: &LegacyBarrier,
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
    ) -> Option<Self> {
        Some(match legacy::translate(barrier, &find)? {
            Translated::Global(barrier) => Barrier::of(&barrier),
            Translated::Texture(barrier) => Barrier::texture(&barrier, find),
            Translated::Buffer(barrier) => Barrier::buffer(&barrier, find),
        })
    }

    fn texture<'a>(
        isa_barrier: &isa::TextureBarrier,
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
    ) -> Self {
        let ranges = find(isa_barrier.resource).map(|desc| Ranges::of(desc, &isa_barrier.subresources));
        let discard = isa_barrier.flags.contains(TextureFlags::DISCARD);
        Barrier { discard, ..Barrier::of(&isa_barrier.barrier).on(isa_barrier.resource, ranges) }
    }

    fn buffer<'a>(isa_barrier: &isa::BufferBarrier, find: impl Fn(u32) -> Option<&'a ResourceDesc>) -> Self {
        let whole = |desc: &ResourceDesc| Ranges::one((desc.gpu_address, desc.gpu_address + desc.bytes));
        Barrier::of(&isa_barrier.barrier).on(isa_barrier.resource, find(isa_barrier.resource).map(whole))
    }

    /// The barrier of a group at this position.
    pub fn in_group<'a>(
        group: &BarrierGroup,
        at: usize,
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
    ) -> Option<Self> {
        Some(match group {
            BarrierGroup::Global(barriers) => Barrier::of(barriers.get(at)?),
            BarrierGroup::Texture(barriers) => Barrier::texture(barriers.get(at)?, find),
            BarrierGroup::Buffer(barriers) => Barrier::buffer(barriers.get(at)?, find),
            BarrierGroup::Ranged(barriers) => Barrier::ranged(barriers.get(at)?, find),
            BarrierGroup::Unknown { .. } => return None,
        })
    }

    /// The resource that it names; 0 for all.
    pub fn resource(&self) -> u32 {
        self.resource
    }

    /// Whether it writes garbage.
    pub fn discards(&self) -> bool {
        self.discard
    }

    /// Whether it names bytes of this range.
    pub fn meets(&self, range: Range) -> bool {
        self.ranges.is_some_and(|ranges| ranges.meets(&Ranges::one(range)))
    }

    /// Whether it names a subresource that `other` names. Such barriers act as if the first completes before the
    /// second.
    pub fn shares_subresource(&self, other: &Barrier) -> bool {
        let (Some(ranges), Some(others)) = (&self.ranges, &other.ranges) else { return false };
        self.resource == other.resource && ranges.meets(others)
    }

    /// Starts the barrier and returns when it ends. A DISCARD writes its garbage at the speed of data.
    pub fn start(&self, clock: Nanos) -> Nanos {
        let bytes = self.ranges.filter(|_| self.discard).map_or(0, |discarded| discarded.bytes());
        clock.saturating_add(BARRIER_NS).saturating_add(bytes / BYTES_PER_NS)
    }

    /// Does the barrier's cache operations at its end. False if the engine lacks the bandwidth for all of them now; the
    /// caller then calls again later.
    pub fn carry_out(&mut self, caches: &mut Caches, mover: &mut Mover<'_>) -> Result<bool, PageFault> {
        // To write back and to invalidate too much loses nothing. A discard does, so it takes each range by itself.
        let few: Option<SmallVec<[Range; 1]>> = self.ranges.map(|ranges| ranges.few().collect());
        if !caches.write_back(Pace::OfBandwidth, self.write_back, few.as_deref(), mover)? {
            return Ok(false);
        }
        while let Some(range) = self.ranges.filter(|_| self.discard).and_then(|all| all.get(self.discarded)) {
            if mover.is_spent() {
                return Ok(false);
            }
            discard(range, caches, mover)?;
            self.discarded += 1;
        }
        caches.invalidate(self.invalidate, few.as_deref());
        // The operations may have split cache ranges.
        caches.trim(mover)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use d3dkmt::random::Random;

    /// The ranges, slice by slice; those that touch are joined.
    fn one_by_one(desc: &ResourceDesc, of: &SubresourceRange) -> Vec<Range> {
        let upto = |first: u32, count: u32, all: u32| first..first.saturating_add(count).min(all);
        let mut ranges: Vec<Range> = Vec::new();
        for plane in upto(of.first_plane, of.planes, desc.planes) {
            for slice in upto(of.first_slice, of.slices, desc.array_size) {
                for mip in upto(of.first_mip, of.mips, desc.mips) {
                    let (offset, bytes) =
                        desc.subresource(desc.subresource_index(mip, slice, plane)).expect("it exists");
                    let begin = desc.gpu_address + offset;
                    match ranges.last_mut().filter(|last| last.1 == begin) {
                        Some(last) => last.1 += bytes,
                        None => ranges.push((begin, begin + bytes)),
                    }
                }
            }
        }
        ranges
    }

    #[test]
    fn ranges_are_those_of_the_subresources_one_by_one() {
        let mut chance = Random::new(1);
        for _ in 0..20_000 {
            let mut number = |most: u64| chance.below(most + 1) as u32;
            let desc = ResourceDesc {
                mips: 1 + number(3),
                array_size: 1 + number(4),
                planes: 1 + number(2),
                ..ResourceDesc::texture("t", 0x1000, (16, 4))
            };
            let of = SubresourceRange {
                first_mip: number(4),
                mips: 1 + number(4),
                first_slice: number(5),
                slices: number(6),
                first_plane: number(3),
                planes: number(4),
            };
            let ranges = Ranges::of(&desc, &of);
            let all: Vec<Range> = ranges.all().collect();
            assert_eq!(all, one_by_one(&desc, &of), "{desc:?} {of:?}");
            assert_eq!(ranges.few().collect::<Vec<_>>(), all);
            assert_eq!(ranges.bytes(), all.iter().map(|(begin, end)| end - begin).sum::<u64>());
        }
    }

    #[test]
    fn more_ranges_than_the_limit_are_written_back_as_one() {
        let slices = RANGES_PER_BARRIER_MAX as u32 + 1;
        let desc = ResourceDesc { mips: 2, array_size: slices, ..ResourceDesc::texture("t", 0, (2, 2)) };
        let of = SubresourceRange { mips: 1, slices, planes: 1, ..SubresourceRange::one(0) };
        let ranges = Ranges::of(&desc, &of);
        assert_eq!((ranges.len(), ranges.get(1)), (65, Some((20, 36))));
        assert_eq!(ranges.few().collect::<Vec<_>>(), [(0, 64 * 20 + 16)]);
        let others = Ranges::of(&desc, &SubresourceRange { first_mip: 1, slices: 3, ..of });
        assert!(others.meets(&ranges) && others.meets(&others));
        assert!(!others.meets(&Ranges::of(&desc, &SubresourceRange { slices: 64, ..of })));
    }
}
