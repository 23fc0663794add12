//! Residency of allocations: engines can access only what is resident.
//!
//! ```text
//!   MakeResident ──▶ count of the device's handle + 1 ── paging buffer ──▶ engines find it     PENDING with a fence value
//!                      resident already: done at once
//!   Evict ──▶ count - 1 ──▶ the last count of all handles: engines find NoAccess, at once
//! ```
//! A process has a budget for each segment group of an adapter, and each allocation that it makes resident counts once.
//! Its own memory is in NON_LOCAL, memory of the device where the driver says. Over budget nothing is made resident, and
//! NumBytesToTrim is the excess of both groups, unless CantTrimFurther or MustSucceed is set.
//!
//! An allocation is created not resident. It is resident while any handle to it has a count, of any device or process;
//! the count ends with the handle. Engines fault at memory that is not resident, as at memory that is not mapped: a
//! process must not evict what its queued work still needs. EvictOnlyIfNecessary changes nothing, because a memory
//! manager may evict an allocation without a count at any time. A handle that is offered (`offer.rs`) does not count.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::{Handle, NtStatus, Reply, limits};
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::ddi::SegmentGroup;
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::vidmm::VidMm;
use crate::vidmm::allocation::{Allocation, AllocationOpen};

/// `D3DDDI_MAKERESIDENT_FLAGS`: CantTrimFurther and MustSucceed.
const INSISTING: u32 = 0x1 | 0x2;

/// `D3DDDI_EVICT_FLAGS`: EvictOnlyIfNecessary and NotWrittenTo.
const EVICT_FLAGS: u32 = 0x1 | 0x2;

/// `D3DKMT_ALLOCATIONRESIDENCYSTATUS`.
mod residency_status {
    /// In LOCAL.
    pub const RESIDENT_IN_GPU_MEMORY: u32 = 1;
    /// In NON_LOCAL, where a process's own memory is.
    pub const RESIDENT_IN_SHARED_MEMORY: u32 = 2;
    pub const NOT_RESIDENT: u32 = 3;
}

/// Bytes in each memory segment group, by its number.
pub(super) type GroupBytes = [u64; SegmentGroup::ALL.len()];

/// Bytes of a memory segment group.
pub(crate) struct SegmentGroupUse {
    pub budget: u64,
    pub usage: u64,
}

impl Kernel {
    /// `D3DKMTMakeResident`: all of the list or nothing.
    pub(crate) fn make_resident(
        &mut self,
        process: ProcessId,
        queue: Handle,
        allocations: &[Handle],
        priorities: &[u32],
        flags: u32,
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.paging_queue(process, queue)?;
        self.require_room(self.vidsch.contexts()[self.vidmm.paging_queues[id].context].queue)?;
        let device = self.vidmm.paging_queues[id].device;
        if flags & !INSISTING != 0 {
            return invalid(format!("flags {flags:#x} have reserved bits set"));
        }
        if !priorities.is_empty() && priorities.len() != allocations.len() {
            return invalid(format!("{} priorities of {} allocations", priorities.len(), allocations.len()));
        }
        let named_open_allocations = self.named_for_residency(process, device, allocations)?;
        let counts = tally(&named_open_allocations);
        for (open, more) in &counts {
            let AllocationCount { residency, handle } = self.count_of(*open);
            if residency.saturating_add(*more) > limits::RESIDENCY_COUNT_MAX {
                return refuse(NtStatus::NO_MEMORY, format!("{handle} was made resident {residency} times"));
            }
        }
        // The counts of an offered handle hold from its reclaim on, which makes it resident.
        let holding = counts.keys().filter(|open| !self.vidmm.offered.contains(*open));
        let named_allocations: BTreeSet<u32> =
            holding.map(|open| self.vidmm.memory.allocation_opens[*open].allocation).collect();
        let more = self.bytes_of(named_allocations.iter().filter(|one| !self.is_wanted_by(**one, process)));
        let adapter = self.processes.devices()[device].adapter;
        let over = self.over_budgets(process, adapter, more);
        // A group that gets no more does not matter, though others have filled it.
        let too_much = SegmentGroup::ALL.map(|group| match more[group as usize] {
            0 => 0,
            _ => over[group as usize],
        });
        let too_much = total(too_much);
        if too_much > 0 && flags & INSISTING == 0 {
            let [local, non_local] = more;
            let text = format!(
                "{local} bytes more in LOCAL and {non_local} in NON_LOCAL are {too_much} over the budget"
            );
            self.note(process, text, effects);
            let (paging_fence_value, bytes_to_trim) = (0, too_much);
            return Ok(Reply::Residency { paging_fence_value, bytes_to_trim, over_budget: true });
        }
        let missing: Vec<u32> = named_allocations
            .iter()
            .filter(|one| !self.vidmm.memory.allocations[**one].resident)
            .copied()
            .collect();
        let size = total(self.bytes_of(missing.iter()));
        for (open, count) in counts {
            self.raise_residency(open, count);
        }
        for (open, priority) in named_open_allocations.iter().zip(priorities) {
            let allocation = self.vidmm.memory.allocation_opens[*open].allocation;
            self.vidmm.memory.allocations[allocation].priority = *priority;
        }
        let numbered = |one: &u32| (*one, self.vidmm.memory.allocations[*one].number);
        let missing: Vec<(u32, u64)> = missing.iter().map(numbered).collect();
        let paging_fence_value = self.begin_transfer(id, size, missing);
        let bytes_to_trim = total(over);
        Ok(Reply::Residency { paging_fence_value, bytes_to_trim, over_budget: false })
    }

    /// `D3DKMTEvict`: all of the list or nothing. Also on a device that is lost.
    pub(crate) fn evict(
        &mut self,
        process: ProcessId,
        device: Handle,
        allocations: &[Handle],
        flags: u32,
    ) -> CallResult {
        let device = self.device(process, device)?;
        if flags & !EVICT_FLAGS != 0 {
            return invalid(format!("flags {flags:#x} have reserved bits set"));
        }
        let counts = tally(&self.named_for_residency(process, device, allocations)?);
        if !self.is_present(device) {
            // The counts went with the earlier arrival of the adapter.
            return Ok(Reply::Residency { paging_fence_value: 0, bytes_to_trim: 0, over_budget: false });
        }
        for (open, times) in &counts {
            let AllocationCount { residency, handle } = self.count_of(*open);
            if residency < *times {
                return invalid(format!(
                    "{handle} is evicted {times} times, and was made resident {residency} times"
                ));
            }
        }
        for (open, times) in counts {
            self.lower_residency(open, times);
        }
        let adapter = self.processes.devices()[device].adapter;
        let bytes_to_trim = total(self.over_budgets(process, adapter, GroupBytes::default()));
        Ok(Reply::Residency { paging_fence_value: 0, bytes_to_trim, over_budget: false })
    }

    /// `D3DKMTQueryVideoMemoryInfo` of the caller itself (W-292).
    pub(crate) fn video_memory_info(
        &mut self,
        process: ProcessId,
        adapter: Handle,
        segment_group: u32,
        physical_adapter: u32,
    ) -> CallResult {
        let adapter = self.started_adapter(process, adapter)?;
        self.require_linked(process, adapter, physical_adapter)?;
        let SegmentGroupUse { budget, usage } = self.segment_group_use(process, adapter, segment_group)?;
        let reserved = self.process(process).reserved_bytes.get(&(adapter, segment_group));
        Ok(Reply::VideoMemoryInfo {
            budget,
            current_usage: usage,
            current_reservation: reserved.copied().unwrap_or(0),
            available_for_reservation: budget / 2,
        })
    }

    /// `D3DKMTChangeVideoMemoryReservation` of the caller itself: up to what is available for reservation.
    pub(crate) fn reserve_video_memory(
        &mut self,
        process: ProcessId,
        adapter: Handle,
        segment_group: u32,
        reservation: u64,
        physical_adapter: u32,
    ) -> CallResult {
        let adapter = self.started_adapter(process, adapter)?;
        self.require_linked(process, adapter, physical_adapter)?;
        let available = self.segment_group_use(process, adapter, segment_group)?.budget / 2;
        if reservation > available {
            return invalid(format!(
                "a reservation of {reservation} bytes; {available} are available for it"
            ));
        }
        let reserved = &mut self.process_mut(process).reserved_bytes;
        match reservation {
            0 => reserved.remove(&(adapter, segment_group)),
            _ => reserved.insert((adapter, segment_group), reservation),
        };
        Ok(Reply::None)
    }

    /// `D3DKMTQueryAllocationResidency`. A resource is resident if each of its allocations is.
    pub(crate) fn allocation_residency(
        &mut self,
        process: ProcessId,
        device: Handle,
        resource: Handle,
        allocations: &[Handle],
    ) -> CallResult {
        let named = self.named_allocations(process, device, resource, allocations)?;
        let status = |allocation: &u32| {
            let allocation = &self.vidmm.memory.allocations[*allocation];
            match (allocation.resident, allocation.segment_group()) {
                (false, _) => residency_status::NOT_RESIDENT,
                (true, SegmentGroup::Local) => residency_status::RESIDENT_IN_GPU_MEMORY,
                (true, SegmentGroup::NonLocal) => residency_status::RESIDENT_IN_SHARED_MEMORY,
            }
        };
        let statuses = named.iter().map(status);
        Ok(Reply::AllocationResidency(if resource == Handle::NULL {
            statuses.collect()
        } else {
            // The highest number is the least that is true of all.
            vec![statuses.max().unwrap_or(residency_status::RESIDENT_IN_SHARED_MEMORY)]
        }))
    }

    /// `D3DKMTInvalidateCache`. Memory of a process is coherent with its engines, so nothing has to be invalidated.
    pub(crate) fn invalidate_cache(
        &mut self,
        process: ProcessId,
        device: Handle,
        allocation: Handle,
        offset: u64,
        length: u64,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let open = self.allocation_open(process, device, allocation)?;
        let size = self.vidmm.memory.allocations[self.vidmm.memory.allocation_opens[open].allocation].size;
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(Reply::None),
            _ => invalid(format!("{length} bytes at {offset} are beyond the {size} of {allocation}")),
        }
    }

    /// The budget of a memory segment group and the process's usage of it.
    pub(crate) fn segment_group_use(
        &self,
        process: ProcessId,
        adapter: u32,
        segment_group: u32,
    ) -> Result<SegmentGroupUse, Refusal> {
        let Some(group) = SegmentGroup::ALL.get(segment_group as usize) else {
            return invalid(format!("segment group {segment_group} is neither LOCAL 0 nor NON_LOCAL 1"));
        };
        let budget = self.config.adapters[adapter as usize].budget_bytes()[*group as usize];
        Ok(SegmentGroupUse { budget, usage: self.resident_bytes(process, adapter, *group) })
    }

    fn named_for_residency(
        &self,
        process: ProcessId,
        device: u32,
        allocations: &[Handle],
    ) -> Result<Vec<u32>, Refusal> {
        let most = limits::MAKE_RESIDENT_ALLOCATIONS_MAX;
        if allocations.is_empty() || allocations.len() > most {
            return invalid(format!("a list has 1 to {most} allocations, not {}", allocations.len()));
        }
        allocations.iter().map(|handle| self.allocation_open(process, device, *handle)).collect()
    }

    fn count_of(&self, open: u32) -> AllocationCount {
        let open = &self.vidmm.memory.allocation_opens[open];
        AllocationCount { residency: open.residency, handle: open.handle }
    }

    pub(crate) fn resident_bytes(&self, process: ProcessId, adapter: u32, group: SegmentGroup) -> u64 {
        self.process(process).resident_bytes.get(&(adapter, group)).copied().unwrap_or(0)
    }

    /// By how much a process would be over each budget if it made `more` bytes resident.
    pub(super) fn over_budgets(&self, process: ProcessId, adapter: u32, more: GroupBytes) -> GroupBytes {
        let budgets = self.config.adapters[adapter as usize].budget_bytes();
        SegmentGroup::ALL.map(|group| {
            let resident = self.resident_bytes(process, adapter, group);
            resident.saturating_add(more[group as usize]).saturating_sub(budgets[group as usize])
        })
    }

    fn bytes_of<'a>(&self, allocations: impl Iterator<Item = &'a u32>) -> GroupBytes {
        let mut bytes = GroupBytes::default();
        for allocation in allocations.map(|one| &self.vidmm.memory.allocations[*one]) {
            let group = &mut bytes[allocation.segment_group() as usize];
            *group = group.saturating_add(allocation.size);
        }
        bytes
    }

    pub(super) fn is_wanted(&self, allocation: u32) -> bool {
        !self.vidmm.memory.allocations[allocation].wanting.is_empty()
    }

    pub(super) fn is_wanted_by(&self, allocation: u32, process: ProcessId) -> bool {
        self.vidmm.memory.allocations[allocation].wanting.contains_key(&process)
    }

    /// Adds counts to a handle.
    pub(crate) fn raise_residency(&mut self, open: u32, times: u32) {
        self.change_residency(open, |vidmm| vidmm.memory.allocation_opens[open].residency += times);
    }

    /// Removes counts from a handle.
    fn lower_residency(&mut self, open: u32, times: u32) {
        self.change_residency(open, |vidmm| vidmm.memory.allocation_opens[open].residency -= times);
    }

    /// Changes the counts or the offer of a handle, and the process's resident bytes with it. An allocation that no
    /// handle wants is no longer resident.
    pub(super) fn change_residency(&mut self, open: u32, change: impl FnOnce(&mut VidMm)) {
        let AllocationOpen { process, allocation, device, .. } = self.vidmm.memory.allocation_opens[open];
        let wanted_before = self.vidmm.wants(open);
        change(&mut self.vidmm);
        let wants = self.vidmm.wants(open);
        if wants == wanted_before {
            return;
        }
        let was_wanted = self.is_wanted_by(allocation, process);
        self.vidmm.memory.allocations[allocation].count_wanting(process, wants);
        let is_wanted = self.is_wanted_by(allocation, process);
        if is_wanted == was_wanted {
            return;
        }
        let state = &self.vidmm.memory.allocations[allocation];
        let (size, group) = (state.size, state.segment_group());
        let adapter = self.processes.devices()[device].adapter;
        let bytes = self.process_mut(process).resident_bytes.entry((adapter, group)).or_default();
        if is_wanted {
            *bytes += size;
            return;
        }
        *bytes -= size;
        if self.vidmm.memory.allocations[allocation].resident && !self.is_wanted(allocation) {
            self.vidmm.memory.allocations[allocation].resident = false;
            self.update_engine_pages_of(&[allocation]);
        }
    }

    /// Removes all counts of a handle that ends.
    pub(crate) fn drop_residency(&mut self, open: u32) {
        let times = self.vidmm.memory.allocation_opens[open].residency;
        self.lower_residency(open, times);
        self.vidmm.offered.remove(&open);
    }

    /// Makes allocations resident whose paging buffer has run. Some may be gone, or evicted again.
    pub(crate) fn become_resident(&mut self, allocations: &[(u32, u64)]) {
        let is_it = |(index, number): &(u32, u64)| {
            self.vidmm
                .memory
                .allocations
                .get(*index)
                .is_some_and(|one| one.number == *number && !one.resident)
                && self.is_wanted(*index)
        };
        let now_resident: Vec<u32> =
            allocations.iter().filter(|one| is_it(one)).map(|(index, _)| *index).collect();
        for allocation in &now_resident {
            self.vidmm.memory.allocations[*allocation].resident = true;
        }
        self.update_engine_pages_of(&now_resident);
    }

    /// Updates page tables for the memory of a process that is gone: what others have mapped of it is NoAccess.
    pub(crate) fn memory_of_process_is_gone(&mut self, process: ProcessId) {
        let of_it = self.vidmm.memory.owned.range((process, 0)..=(process, u32::MAX));
        let ends_with_it = |index: &u32| !self.vidmm.memory.allocations[*index].outlives_owner();
        let of_it: Vec<u32> = of_it.map(|(_, index)| *index).filter(ends_with_it).collect();
        self.update_engine_pages_of(&of_it);
    }

    /// Reports resident bytes of a process that disagree with the counts of its handles.
    pub(crate) fn residency_miscounted(&self) -> Option<&'static str> {
        let mut bytes: BTreeMap<(ProcessId, (u32, SegmentGroup)), u64> = BTreeMap::new();
        let mut wanting: BTreeMap<(u32, ProcessId), u32> = BTreeMap::new();
        let opens = self.vidmm.memory.allocation_opens.iter();
        for (_, open) in opens.filter(|(index, _)| self.vidmm.wants(*index)) {
            let wants = wanting.entry((open.allocation, open.process)).or_default();
            *wants += 1;
            if *wants == 1 {
                let adapter = self.processes.devices()[open.device].adapter;
                let allocation = &self.vidmm.memory.allocations[open.allocation];
                let of = (adapter, allocation.segment_group());
                *bytes.entry((open.process, of)).or_default() += allocation.size;
            }
        }
        let counts = |(index, one): (u32, &Allocation)| {
            one.wanting.clone().into_iter().map(move |(process, count)| ((index, process), count))
        };
        if !self.vidmm.memory.allocations.iter().flat_map(counts).eq(wanting) {
            return Some("the opens that want an allocation");
        }
        // An allocation that may still grow can be resident without a byte.
        bytes.retain(|_, bytes| *bytes > 0);
        let counted = self.processes.by_id().iter().flat_map(|(id, process)| {
            let resident = process.resident_bytes.iter().filter(|(_, bytes)| **bytes > 0);
            resident.map(|(of, bytes)| ((*id, *of), *bytes))
        });
        if !counted.eq(bytes) {
            return Some("the resident bytes of a process");
        }
        let wrong = |(index, one): (u32, &Allocation)| one.resident && !self.is_wanted(index);
        self.vidmm.memory.allocations.iter().any(wrong).then_some("an allocation that is resident")
    }
}

fn total(bytes: GroupBytes) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}

#[derive(Serialize, Deserialize)]
struct AllocationCount {
    residency: u32,
    handle: Handle,
}

/// How often each open is named.
fn tally(opens: &[u32]) -> BTreeMap<u32, u32> {
    let mut tally = BTreeMap::new();
    for open in opens {
        *tally.entry(*open).or_default() += 1;
    }
    tally
}
