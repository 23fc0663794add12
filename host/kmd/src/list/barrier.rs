//! Barriers, as an engine carries them out: whom they wait for, what they write back and drop, and whom they hold up.
//!
//! Nothing here judges: a barrier that names a resource that is not there, or memory beside it, synchronizes and
//! touches no cache. Layouts are the validator's: the bytes of a texture are the same in each. A DISCARD leaves garbage
//! ([`DISCARDED`](super::memory)). The begin of a split barrier waits and writes back; its end, which waits for the
//! begin, drops and holds up. The older `ResourceBarrier` is translated, as a runtime does for a driver.

use alloc::vec;
use alloc::vec::Vec;

use barriers::legacy::{self, Translated};
use d3dkmt::isa::{
    self, BarrierAccess, BarrierGroup, BarrierSync, LegacyBarrier, RangedBarrier, RangedFlags, ResourceDesc,
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

/// How long a barrier takes: each is a moment of its own, at which a long list can be cut; and it is too short to hide
/// that another one is missing.
const BARRIER_NS: Nanos = 1;

/// Of one barrier: nearly always one.
type Ranges = SmallVec<[Range; 1]>;

#[derive(Serialize, Deserialize)]
pub(super) struct Barrier {
    /// Without umbrellas, and without SPLIT.
    pub sync_before: BarrierSync,
    pub sync_after: BarrierSync,
    write_back: Option<BarrierAccess>,
    invalidate: Option<BarrierAccess>,
    /// The one it is about; 0: all.
    resource: u32,
    ranges: Option<Ranges>,
    discard: bool,
    /// How many of the ranges were discarded.
    discarded: usize,
}

impl Barrier {
    fn of(barrier: &isa::Barrier) -> Self {
        Barrier {
            sync_before: barrier.sync_before.expanded(),
            sync_after: barrier.sync_after.expanded(),
            write_back: Some(barrier.access_before),
            invalidate: Some(barrier.access_after),
            resource: 0,
            ranges: None,
            discard: false,
            discarded: 0,
        }
    }

    fn on(self, resource: u32, ranges: Ranges) -> Self {
        Barrier { resource, ranges: Some(ranges), ..self }
    }

    fn ranged<'a>(barrier: &RangedBarrier, find: impl Fn(u32) -> Option<&'a ResourceDesc>) -> Self {
        let RangedBarrier { resource, flags, offset, bytes, .. } = *barrier;
        let (acquires, releases) =
            (flags.contains(RangedFlags::ACQUIRE), flags.contains(RangedFlags::RELEASE));
        let mut own = Barrier::of(&barrier.barrier);
        if acquires != releases {
            own.write_back = own.write_back.filter(|_| releases);
            own.invalidate = own.invalidate.filter(|_| acquires);
        }
        if resource == 0 {
            return own;
        }
        let within = |desc: &ResourceDesc| {
            let offset = offset.min(desc.bytes);
            let begin = desc.gpu_address + offset;
            (begin, begin + bytes.min(desc.bytes - offset))
        };
        own.on(resource, find(resource).map(within).into_iter().collect())
    }

    /// The older kind, as a driver gets it (BAR-015).
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

    fn texture<'a>(one: &isa::TextureBarrier, find: impl Fn(u32) -> Option<&'a ResourceDesc>) -> Self {
        let ranges = find(one.resource).map(|desc| ranges_of(desc, &one.subresources).into());
        let discard = one.flags.contains(TextureFlags::DISCARD);
        let barrier = Barrier::of(&one.barrier).on(one.resource, ranges.unwrap_or_default());
        Barrier { discard, ..barrier }
    }

    fn buffer<'a>(one: &isa::BufferBarrier, find: impl Fn(u32) -> Option<&'a ResourceDesc>) -> Self {
        let whole = find(one.resource).map(|desc| (desc.gpu_address, desc.gpu_address + desc.bytes));
        Barrier::of(&one.barrier).on(one.resource, whole.into_iter().collect())
    }

    /// Those of a group, in its order.
    pub fn each<'a>(
        group: &BarrierGroup,
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
        take: impl FnMut(Self),
    ) {
        match group {
            BarrierGroup::Global(barriers) => barriers.iter().map(Barrier::of).for_each(take),
            BarrierGroup::Texture(barriers) => {
                barriers.iter().map(|one| Barrier::texture(one, &find)).for_each(take);
            }
            BarrierGroup::Buffer(barriers) => {
                barriers.iter().map(|one| Barrier::buffer(one, &find)).for_each(take);
            }
            BarrierGroup::Ranged(barriers) => {
                barriers.iter().map(|one| Barrier::ranged(one, &find)).for_each(take);
            }
            BarrierGroup::Unknown { .. } => {}
        }
    }

    /// The resource whose subresources it may share with others.
    pub fn resource(&self) -> u32 {
        self.resource
    }

    /// Two of one subresource act as if the first were complete before the second.
    pub fn shares_subresource(&self, other: &Barrier) -> bool {
        let (Some(ranges), Some(others)) = (&self.ranges, &other.ranges) else { return false };
        self.resource == other.resource
            && ranges.iter().any(|a| others.iter().any(|b| a.0 < b.1 && b.0 < a.1))
    }

    /// It starts: until when it takes. Garbage is written as fast as data.
    pub fn start(&self, clock: Nanos) -> Nanos {
        let discarded = self.ranges.iter().flatten().filter(|_| self.discard);
        let bytes = discarded.fold(0u64, |sum, (begin, end)| sum.saturating_add(end - begin));
        clock.saturating_add(BARRIER_NS).saturating_add(bytes / BYTES_PER_NS)
    }

    /// It ends: its work on the caches. False if the engine has no bandwidth for all of it at this time: then it is to
    /// be asked again.
    pub fn carry_out(&mut self, caches: &mut Caches, mover: &mut Mover<'_>) -> Result<bool, PageFault> {
        if let Some(accesses) = self.write_back
            && !caches.write_back(Pace::OfBandwidth, accesses, self.ranges.as_deref(), mover)?
        {
            return Ok(false);
        }
        if let (true, Some(ranges)) = (self.discard, &self.ranges) {
            while let Some(range) = ranges.get(self.discarded) {
                if mover.is_spent() {
                    return Ok(false);
                }
                discard(*range, caches, mover)?;
                self.discarded += 1;
            }
        }
        if let Some(accesses) = self.invalidate {
            caches.invalidate(accesses, self.ranges.as_deref());
        }
        // It may have cut ranges into pieces.
        caches.trim(mover)?;
        Ok(true)
    }
}

/// Where these subresources are, as far as there are any: disjoint, the first one first.
pub(crate) fn ranges_of(desc: &ResourceDesc, of: &SubresourceRange) -> Vec<Range> {
    let whole = (0, desc.subresources());
    let run = |first: u32, count: u32| -> Option<Range> {
        let last = desc.subresource(first.checked_add(count.checked_sub(1)?)?)?;
        Some((desc.gpu_address + desc.subresource(first)?.0, desc.gpu_address + last.0 + last.1))
    };
    if of.mips == 0 {
        let (first, count) = if of.first_mip == u32::MAX { whole } else { (of.first_mip, 1) };
        return run(first, count).into_iter().collect();
    }
    let upto = |first: u32, count: u32, all: u32| first..first.saturating_add(count).min(all);
    let mips = upto(of.first_mip, of.mips, desc.mips);
    let (planes, slices) =
        (upto(of.first_plane, of.planes, desc.planes), upto(of.first_slice, of.slices, desc.array_size));
    let of_slice = |slice: u32, plane: u32| {
        run(desc.subresource_index(mips.start, slice, plane), mips.end.saturating_sub(mips.start))
    };
    let mut ranges: Vec<Range> = Vec::new();
    for (plane, slice) in planes.clone().flat_map(|plane| slices.clone().map(move |slice| (plane, slice))) {
        let Some((begin, end)) = of_slice(slice, plane) else { continue };
        let count = ranges.len();
        match ranges.last_mut().filter(|last| last.1 == begin) {
            Some(last) => last.1 = end,
            None if count == RANGES_PER_BARRIER_MAX => {
                let last = of_slice(slices.end - 1, planes.end - 1).unwrap_or((begin, end));
                return vec![(ranges[0].0, last.1)];
            }
            None => ranges.push((begin, end)),
        }
    }
    ranges
}
