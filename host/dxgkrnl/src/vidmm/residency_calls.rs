//! Calls with so many allocations that they go on over several steps, and `D3DKMTMakeResident` and `D3DKMTEvict`, which
//! may have the most. See `residency.rs` for their rules.
//!
//! ```text
//!   MakeResident   name ─▶ count ─▶ budget ─▶ apply ─▶ prioritize ─▶ gather ─▶ one operation of the paging queue, answer
//!   Evict          name ─▶ count ───────────▶ apply ─────────────────────────▶ answer
//! ```
//! Nothing changes before `apply`, so that all of the list takes effect or nothing. The answer comes when all of it has.
//! The process makes no other call meanwhile, so it cannot tell such a call from one that is slow. Each entry is looked
//! up again where it changes: its adapter may have been removed since.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use d3dkmt::{Handle, NtStatus, Reply, limits};

use super::long_call::{GroupBytes, Kind, LongCall, Part, ResidencyCall, RestOfCall};
use super::residency::total;
use crate::ProcessId;
use crate::ddi::SegmentGroup;
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::vidmm::allocation::AllocationOpen;
use crate::vidsch::Task;

/// `D3DDDI_MAKERESIDENT_FLAGS`
const CANT_TRIM_FURTHER: u32 = 0x1;
/// Only with CantTrimFurther.
const MUST_SUCCEED: u32 = 0x2;

/// `D3DDDI_EVICT_FLAGS`: EvictOnlyIfNecessary and NotWrittenTo.
const EVICT_FLAGS: u32 = 0x1 | 0x2;

/// Handles of a list that are looked up and counted for one unit of work.
const NAMED_PER_UNIT: usize = 4;

/// A part of a call is done.
enum Done {
    Part(Part),
    Call(Reply),
}

impl Kernel {
    /// `D3DKMTMakeResident`: all of the list or nothing. PriorityList is ignored, as on Windows.
    pub(crate) fn make_resident(
        &mut self,
        process: ProcessId,
        queue: Handle,
        allocations: Vec<Handle>,
        flags: u32,
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.paging_queue(process, queue)?;
        self.require_room(self.vidsch.contexts()[self.vidmm.paging_queues[id].context].queue)?;
        if flags & !(CANT_TRIM_FURTHER | MUST_SUCCEED) != 0 {
            return invalid(format!("flags {flags:#x} have reserved bits set"));
        }
        if flags == MUST_SUCCEED {
            return invalid("MustSucceed is set without CantTrimFurther");
        }
        let call = ResidencyCall::new(Kind::MakeResident { queue, flags }, allocations)?;
        self.begin_call(process, RestOfCall::Residency(Box::new(call)), effects)
    }

    /// `D3DKMTEvict`: all of the list or nothing. Also on a device that is lost.
    pub(crate) fn evict(
        &mut self,
        process: ProcessId,
        device: Handle,
        allocations: Vec<Handle>,
        flags: u32,
        effects: &mut Effects,
    ) -> CallResult {
        self.device(process, device)?;
        if flags & !EVICT_FLAGS != 0 {
            return invalid(format!("flags {flags:#x} have reserved bits set"));
        }
        let call = ResidencyCall::new(Kind::Evict { device }, allocations)?;
        self.begin_call(process, RestOfCall::Residency(Box::new(call)), effects)
    }

    /// Begins a call that may go on over several steps. If it does, its rest is kept for [`Self::leave_call`], and the
    /// refusal with STATUS_PENDING is seen by no caller.
    pub(crate) fn begin_call(
        &mut self,
        process: ProcessId,
        mut rest: RestOfCall,
        effects: &mut Effects,
    ) -> CallResult {
        match self.advance_call(process, &mut rest, effects)? {
            Some(reply) => Ok(reply),
            None => {
                self.vidmm.rest_of_call = Some(rest);
                refuse(NtStatus::PENDING, "the rest of the call comes in later steps")
            }
        }
    }

    /// Leaves the rest of the call that has just begun, if it has any; true if so.
    #[inline]
    pub(crate) fn leave_call(&mut self, process: ProcessId, request: u64) -> bool {
        let Some(rest) = self.vidmm.rest_of_call.take() else { return false };
        self.leave_rest(process, request, rest);
        true
    }

    /// Leaves the rest of a call for later steps, or until what it waits for has happened.
    pub(super) fn leave_rest(&mut self, process: ProcessId, request: u64, rest: RestOfCall) {
        let rest = match rest {
            RestOfCall::Parked(parked) => return self.park_call(request, parked),
            RestOfCall::DestroyContext { context, busy } => {
                return self.await_end_of_context(context, request, busy);
            }
            rest => rest,
        };
        let call = LongCall { request, rest };
        self.processes.charge(process, call.weight());
        self.leave(process, Task::LongCall(call));
    }

    /// Continues a call, and answers it when it is through.
    pub(crate) fn continue_call(&mut self, process: ProcessId, mut call: LongCall, effects: &mut Effects) {
        // What it has to do may change with what it finds.
        let weight = call.weight();
        let result = self.advance_call(process, &mut call.rest, effects).transpose();
        self.processes.release(process, weight);
        match result {
            Some(result) => self.answer(process, call.request, result, effects),
            None => self.leave_rest(process, call.request, call.rest),
        }
    }

    /// Does as much of a call as the units of the step allow; `None` if that is not all.
    pub(super) fn advance_call(
        &mut self,
        process: ProcessId,
        rest: &mut RestOfCall,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Refusal> {
        match rest {
            RestOfCall::Residency(call) => self.advance_residency(process, call, effects),
            RestOfCall::Offer(opens) => Ok(self.offer(opens).then_some(Reply::None)),
            RestOfCall::Reclaim(call) => self.advance_reclaim(process, call),
            RestOfCall::Destroy(handles) => {
                Ok(self.end_allocations(process, handles, false).then_some(Reply::None))
            }
            RestOfCall::Due(due) => Ok(self.advance_due(process, due, effects)),
            RestOfCall::AfterWork(_) => self.advance_after_work(process, rest, effects),
            RestOfCall::Parked(_) | RestOfCall::DestroyContext { .. } => Ok(None),
            RestOfCall::PriorityClass(position) => {
                Ok(self.replace_ready_of(process, position).then_some(Reply::None))
            }
        }
    }

    /// Refuses to go on with a call on a device that was lost, or whose adapter has left, since the call began.
    pub(super) fn require_device_of_call(&self, device: u32) -> Result<(), Refusal> {
        match self.is_on_adapter(device) {
            true => self.require_active(device),
            false => refuse(NtStatus::DEVICE_REMOVED, "the adapter was stopped or removed during the call"),
        }
    }

    fn advance_residency(
        &mut self,
        process: ProcessId,
        call: &mut ResidencyCall,
        effects: &mut Effects,
    ) -> Result<Option<Reply>, Refusal> {
        let device = match call.kind {
            Kind::MakeResident { queue, .. } => {
                self.vidmm.paging_queues[self.paging_queue(process, queue)?].device
            }
            Kind::Evict { device } => self.device(process, device)?,
        };
        // What the call has counted so far is gone with the adapter.
        if matches!(call.kind, Kind::MakeResident { .. }) {
            self.require_device_of_call(device)?;
        }
        while !self.is_spent() {
            self.spend(1);
            if matches!(call.part, Part::Count(_) | Part::Apply(_))
                && let Some(reply) = self.counts_are_gone(device, call)
            {
                return Ok(Some(reply));
            }
            let done = match call.part {
                Part::Name(at) => self.name_listed(process, device, call, at)?,
                Part::Count(behind) => self.count_listed(process, call, behind)?,
                Part::Budget => self.require_budget(process, device, call, effects),
                Part::Apply(behind) => self.apply_counts(call, behind),
                Part::Gather(behind) => self.gather_missing(process, call, behind)?,
                Part::Answer(value) => Done::Call(self.residency_reply(process, device, value)),
            };
            match done {
                Done::Part(part) => call.part = part,
                Done::Call(reply) => return Ok(Some(reply)),
            }
        }
        Ok(None)
    }

    /// Looks up the handles of some entries.
    fn name_listed(
        &self,
        process: ProcessId,
        device: u32,
        call: &mut ResidencyCall,
        at: usize,
    ) -> Result<Done, Refusal> {
        let end = (at + NAMED_PER_UNIT).min(call.list.len());
        for handle in &call.list[at..end] {
            *call.counts.entry(self.allocation_open(process, device, *handle)?).or_default() += 1;
        }
        Ok(Done::Part(if end < call.list.len() { Part::Name(end) } else { Part::Count(None) }))
    }

    /// Checks the count of the next open.
    fn count_listed(
        &self,
        process: ProcessId,
        call: &mut ResidencyCall,
        behind: Option<u32>,
    ) -> Result<Done, Refusal> {
        let Some((index, times)) = call.count_behind(behind) else {
            return Ok(Done::Part(match call.kind {
                Kind::MakeResident { .. } => Part::Budget,
                Kind::Evict { .. } => Part::Apply(None),
            }));
        };
        let AllocationOpen { residency, handle, allocation, .. } = self.vidmm.memory.allocation_opens[index];
        match call.kind {
            Kind::MakeResident { .. } if residency.saturating_add(times) > limits::RESIDENCY_COUNT_MAX => {
                return refuse(NtStatus::NO_MEMORY, format!("{handle} was made resident {residency} times"));
            }
            Kind::Evict { .. } if residency < times => {
                return invalid(format!(
                    "{handle} is evicted {times} times, and was made resident {residency} times"
                ));
            }
            // The counts of an offered handle hold from its reclaim on, which makes it resident.
            Kind::MakeResident { .. } if !self.vidmm.offered.contains(&index) => {
                if call.allocations.insert(allocation) && !self.is_wanted_by(allocation, process) {
                    let allocation = &self.vidmm.memory.allocations[allocation];
                    let group = &mut call.more[allocation.segment_group() as usize];
                    *group = group.saturating_add(allocation.size);
                }
            }
            Kind::MakeResident { .. } | Kind::Evict { .. } => {}
        }
        Ok(Done::Part(Part::Count(Some(index))))
    }

    /// The reply of Evict if the counts went with the earlier arrival of the adapter.
    fn counts_are_gone(&self, device: u32, call: &ResidencyCall) -> Option<Reply> {
        let is_gone = matches!(call.kind, Kind::Evict { .. }) && !self.is_present(device);
        is_gone.then_some(Reply::Residency { paging_fence_value: 0, bytes_to_trim: 0, over_budget: false })
    }

    /// Checks the budgets. Over budget nothing is made resident, unless the caller insists.
    fn require_budget(
        &self,
        process: ProcessId,
        device: u32,
        call: &ResidencyCall,
        effects: &mut Effects,
    ) -> Done {
        let insists = match call.kind {
            Kind::MakeResident { flags, .. } => flags & CANT_TRIM_FURTHER != 0,
            Kind::Evict { .. } => true,
        };
        let more = call.more;
        let over = self.over_budgets(process, self.processes.devices()[device].adapter, more);
        // A group that gets no more does not matter, though others have filled it.
        let too_much = SegmentGroup::ALL.map(|group| match more[group as usize] {
            0 => 0,
            _ => over[group as usize],
        });
        let too_much = total(too_much);
        if too_much == 0 || insists {
            return Done::Part(Part::Apply(None));
        }
        let [local, non_local] = more;
        let text = format!(
            "{local} bytes more in LOCAL and {non_local} in NON_LOCAL are {too_much} over the budget"
        );
        self.note(process, text, effects);
        let (paging_fence_value, bytes_to_trim) = (0, too_much);
        Done::Call(Reply::Residency { paging_fence_value, bytes_to_trim, over_budget: true })
    }

    /// Raises or lowers the count of the next open.
    fn apply_counts(&mut self, call: &mut ResidencyCall, behind: Option<u32>) -> Done {
        let Some((open, times)) = call.count_behind(behind) else {
            return Done::Part(match call.kind {
                Kind::MakeResident { .. } => Part::Gather(None),
                Kind::Evict { .. } => Part::Answer(0),
            });
        };
        match call.kind {
            Kind::MakeResident { .. } => self.raise_residency(open, times),
            Kind::Evict { .. } => self.lower_residency(open, times),
        }
        Done::Part(Part::Apply(Some(open)))
    }

    /// Lists the next allocation that has to become resident. Behind the last, begins the operation that does it.
    fn gather_missing(
        &mut self,
        process: ProcessId,
        call: &mut ResidencyCall,
        behind: Option<u32>,
    ) -> Result<Done, Refusal> {
        let Kind::MakeResident { queue, .. } = call.kind else {
            return invalid("an Evict makes nothing resident");
        };
        let id = self.paging_queue(process, queue)?;
        let next = call.allocations.range((behind.map_or(Unbounded, Excluded), Unbounded)).next().copied();
        if let Some(index) = next {
            if let Some(allocation) =
                self.vidmm.memory.allocations.get(index).filter(|one| !self.is_brought(one))
            {
                let bytes = call.missing_bytes.unwrap_or(0);
                call.missing_bytes = Some(bytes.saturating_add(allocation.size));
                let named = (index, allocation.number);
                if self.vidmm.paging_queues[id].becoming_resident.insert(named) {
                    call.missing.push(named);
                }
            }
            return Ok(Done::Part(Part::Gather(Some(index))));
        }
        let missing = core::mem::take(&mut call.missing);
        let paging_fence_value = match call.missing_bytes {
            Some(size) => self.begin_transfer_of_all(id, size, missing),
            None => 0,
        };
        Ok(Done::Part(Part::Answer(paging_fence_value)))
    }

    fn residency_reply(&self, process: ProcessId, device: u32, paging_fence_value: u64) -> Reply {
        let adapter = self.processes.devices()[device].adapter;
        let bytes_to_trim = total(self.over_budgets(process, adapter, GroupBytes::default()));
        Reply::Residency { paging_fence_value, bytes_to_trim, over_budget: false }
    }
}
