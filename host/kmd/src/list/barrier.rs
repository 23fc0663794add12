//! Execution of barriers: which commands they wait for and block, and which caches they write back and invalidate.
//!
//! This module validates nothing: a barrier on a resource that does not exist, or on memory outside of it, synchronizes
//! and touches no cache. Layouts concern the validator only: the bytes of a texture are the same in each. A DISCARD
//! leaves garbage ([`DISCARDED`](super::memory)). The begin of a split barrier waits and writes back; its end, which
//! waits for the begin, invalidates and blocks. A legacy `ResourceBarrier` is translated, as a runtime does for a
//! driver.

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

/// Duration of a barrier: enough that a long list can be interrupted at each, and too short to hide a missing barrier.
const BARRIER_NS: Nanos = 1;

/// Ranges of one barrier: nearly always one.
type Ranges = SmallVec<[Range; 1]>;

#[derive(Serialize, Deserialize)]
pub(super) struct Barrier {
    /// Umbrella scopes are expanded; SPLIT is removed.
    pub sync_before: BarrierSync,
    pub sync_after: BarrierSync,
    write_back: Option<BarrierAccess>,
    invalidate: Option<BarrierAccess>,
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
        let ranges = find(isa_barrier.resource).map(|desc| ranges_of(desc, &isa_barrier.subresources).into());
        let discard = isa_barrier.flags.contains(TextureFlags::DISCARD);
        let barrier = Barrier::of(&isa_barrier.barrier).on(isa_barrier.resource, ranges.unwrap_or_default());
        Barrier { discard, ..barrier }
    }

    fn buffer<'a>(isa_barrier: &isa::BufferBarrier, find: impl Fn(u32) -> Option<&'a ResourceDesc>) -> Self {
        let whole = find(isa_barrier.resource).map(|desc| (desc.gpu_address, desc.gpu_address + desc.bytes));
        Barrier::of(&isa_barrier.barrier).on(isa_barrier.resource, whole.into_iter().collect())
    }

    /// Calls `take` for each barrier of a group, in order.
    pub fn each<'a>(
        group: &BarrierGroup,
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
        take: impl FnMut(Self),
    ) {
        match group {
            BarrierGroup::Global(barriers) => barriers.iter().map(Barrier::of).for_each(take),
            BarrierGroup::Texture(barriers) => {
                barriers.iter().map(|isa_barrier| Barrier::texture(isa_barrier, &find)).for_each(take);
            }
            BarrierGroup::Buffer(barriers) => {
                barriers.iter().map(|isa_barrier| Barrier::buffer(isa_barrier, &find)).for_each(take);
            }
            BarrierGroup::Ranged(barriers) => {
                barriers.iter().map(|isa_barrier| Barrier::ranged(isa_barrier, &find)).for_each(take);
            }
            BarrierGroup::Unknown { .. } => {}
        }
    }

    /// The resource that it names; 0 for all.
    pub fn resource(&self) -> u32 {
        self.resource
    }

    /// Whether it names a subresource that `other` names. Such barriers act as if the first completes before the
    /// second.
    pub fn shares_subresource(&self, other: &Barrier) -> bool {
        let (Some(ranges), Some(others)) = (&self.ranges, &other.ranges) else { return false };
        self.resource == other.resource
            && ranges.iter().any(|a| others.iter().any(|b| a.0 < b.1 && b.0 < a.1))
    }

    /// Starts the barrier and returns when it ends. A DISCARD writes its garbage at the speed of data.
    pub fn start(&self, clock: Nanos) -> Nanos {
        let discarded = self.ranges.iter().flatten().filter(|_| self.discard);
        let bytes = discarded.fold(0u64, |sum, (begin, end)| sum.saturating_add(end - begin));
        clock.saturating_add(BARRIER_NS).saturating_add(bytes / BYTES_PER_NS)
    }

    /// Does the barrier's cache operations at its end. False if the engine lacks the bandwidth for all of them now; the
    /// caller then calls again later.
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
        // The operations may have split cache ranges.
        caches.trim(mover)?;
        Ok(true)
    }
}

/// Address ranges of these subresources, as far as they exist: disjoint, in ascending order.
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
