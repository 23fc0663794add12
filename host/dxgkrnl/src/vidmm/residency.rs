//! Residency of allocations: engines can access only what is resident.
//!
//! ```text
//!   MakeResident ──▶ count of the device's handle + 1 ── paging buffer ──▶ engines find it     PENDING with a fence value
//!                      resident already: done at once
//!   Evict ──▶ count - 1 ──▶ the last count of all handles: engines find NoAccess, at once
//! ```
//! A process has a budget for each segment group of an adapter, and each allocation that it makes resident counts once.
//! Its own memory is in NON_LOCAL, memory of the device where the driver says. Over budget nothing is made resident, and
//! NumBytesToTrim is the excess of both groups, unless CantTrimFurther is set.
//!
//! An allocation is created not resident. It is resident while any handle to it has a count, of any device or process;
//! the count ends with the handle. Engines fault at memory that is not resident, as at memory that is not mapped: a
//! process must not evict what its queued work still needs. EvictOnlyIfNecessary changes nothing, because a memory
//! manager may evict an allocation without a count at any time. A handle that is offered (`offer.rs`) does not count.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::{Handle, Reply};

use crate::ProcessId;
use crate::ddi::SegmentGroup;
use crate::error::{CallResult, Refusal, invalid};
use crate::kernel::Kernel;
use crate::process::HandleTarget;
use crate::vidmm::VidMm;
use crate::vidmm::address::{AllocationPages, GoneMemory};
use crate::vidmm::allocation::{Allocation, AllocationOpen};
use crate::vidmm::long_call::GroupBytes;
use crate::vidmm::paging::{BecomingResident, Pending};

/// `D3DKMT_ALLOCATIONRESIDENCYSTATUS`.
mod residency_status {
    /// In LOCAL.
    pub const RESIDENT_IN_GPU_MEMORY: u32 = 1;
    /// In NON_LOCAL, where a process's own memory is.
    pub const RESIDENT_IN_SHARED_MEMORY: u32 = 2;
    pub const NOT_RESIDENT: u32 = 3;
}

/// Bytes of a memory segment group.
pub(crate) struct SegmentGroupUse {
    pub budget: u64,
    pub usage: u64,
}

impl Kernel {
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

    /// `D3DKMTQueryAllocationResidency`. A resource is resident if each of its allocations is. Memory of a process that is
    /// gone is not.
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
            match (self.is_resident(allocation), allocation.segment_group()) {
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

    /// Removes counts from a handle, as many as it has.
    pub(super) fn lower_residency(&mut self, open: u32, times: u32) {
        self.change_residency(open, |vidmm| {
            let residency = &mut vidmm.memory.allocation_opens[open].residency;
            *residency = residency.saturating_sub(times);
        });
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
        if self.vidmm.memory.allocations[allocation].resident.is_some() && !self.is_wanted(allocation) {
            self.vidmm.memory.allocations[allocation].resident = None;
            self.update_engine_pages_of(process, allocation);
        }
    }

    /// Removes all counts of a handle that ends.
    pub(crate) fn drop_residency(&mut self, open: u32) {
        let times = self.vidmm.memory.allocation_opens[open].residency;
        self.lower_residency(open, times);
        self.vidmm.offered.remove(&open);
    }

    /// An operation that makes allocations resident, named by index and number.
    pub(super) fn becoming_resident(&self, adapter: u32, allocations: Vec<(u32, u64)>) -> Pending {
        let (allocations, resets) = (allocations.into(), self.tdr.adapter_resets_of(adapter));
        Pending::Resident(BecomingResident { allocations, resets })
    }

    /// Makes an allocation resident for which a paging buffer has run, unless it is gone or evicted again. In LOCAL it is
    /// lost already if there are more resets of the adapter by now. What is beyond the units of the step is a task of
    /// `process`.
    pub(crate) fn become_resident(&mut self, process: ProcessId, (index, number): (u32, u64), resets: u64) {
        let Some(allocation) = self.vidmm.memory.allocations.get(index) else { return };
        if allocation.number == number && !self.is_brought(allocation) && self.is_wanted(index) {
            self.vidmm.memory.allocations[index].resident = Some(resets);
            if self.is_brought(&self.vidmm.memory.allocations[index]) {
                self.update_engine_pages_of(process, index);
            }
        }
    }

    /// Updates page tables for an allocation that a reset of its adapter has lost. Its counts stay, and a later MakeResident
    /// makes it resident again.
    pub(crate) fn purge(&mut self, process: ProcessId, handle: Handle) {
        let Some(HandleTarget::Allocation(open)) = self.process(process).handles.get(handle) else { return };
        let index = self.vidmm.memory.allocation_opens[open].allocation;
        let allocation = &self.vidmm.memory.allocations[index];
        if allocation.resident.is_some() && !self.is_brought(allocation) {
            self.vidmm.memory.allocations[index].resident = None;
            self.update_engine_pages_of(process, index);
        }
    }

    /// Updates page tables for the memory of a process that ends, from this allocation on: what others have mapped of it
    /// is NoAccess. Returns where the rest begins if the units of the step do not reach for all.
    pub(crate) fn take_memory_from_others(
        &mut self,
        process: ProcessId,
        from: GoneMemory,
    ) -> Option<GoneMemory> {
        self.process_mut(process).memory_is_gone = true;
        let GoneMemory { mut allocation, mut pages } = from;
        loop {
            if let Some(rest) = pages.take().and_then(|pages| self.update_some_engine_pages(pages)) {
                return Some(GoneMemory { allocation, pages: Some(rest) });
            }
            if self.is_spent() {
                return Some(GoneMemory { allocation, pages: None });
            }
            let mut of_it = self.vidmm.memory.owned.range((process, allocation)..=(process, u32::MAX));
            let (_, index) = *of_it.next()?;
            self.spend(1);
            allocation = index.saturating_add(1);
            let state = &self.vidmm.memory.allocations[index];
            let all = AllocationPages { allocation: index, number: state.number, open: 0, base: 0 };
            pages = (!state.outlives_owner()).then_some(all);
        }
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
        let wrong = |(index, one): (u32, &Allocation)| one.resident.is_some() && !self.is_wanted(index);
        self.vidmm.memory.allocations.iter().any(wrong).then_some("an allocation that is resident")
    }
}

pub(super) fn total(bytes: GroupBytes) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}
