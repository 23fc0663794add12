//! Offers: a process says which resident memory it can do without.
//!
//! ```text
//!   OfferAllocations ──▶ (behind work: `after_work.rs`) the handle's counts do not hold ──▶ engines find NoAccess, unless another handle has a count
//!   ReclaimAllocations2 ──▶ the counts hold again ── paging buffer ──▶ engines find it     PENDING with a fence value
//!   ReclaimAllocations ───▶ the same at once, for a device without paging queues
//! ```
//! An offer is of a handle, and ends with it. The handle keeps its counts: MakeResident and Evict change them, and they
//! hold from the reclaim on. Offered bytes do not count as the process's usage.
//!
//! This model never discards memory, of a process or of the device: every reclaim finds the bytes as they were, whatever
//! the priority of the offer. To offer what is offered, or to reclaim what is not, changes nothing.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::{Handle, Reply, limits};

use super::after_work::{Action, AfterWorkCall};
use super::allocation_calls::NAMED_PER_UNIT;
use super::long_call::{ReclaimCall, RestOfCall};
use crate::ProcessId;
use crate::effects::Effects;
use crate::error::{CallResult, Refusal, invalid};
use crate::kernel::Kernel;
use crate::vidmm::VidMm;

/// `D3DKMT_OFFER_FLAGS`: OfferImmediately and AllowDecommit.
const OFFER_FLAGS: u32 = OFFER_IMMEDIATELY | 0x2;
const OFFER_IMMEDIATELY: u32 = 0x1;

/// `D3DDDI_RECLAIM_RESULT_OK`.
const RECLAIM_OK: u32 = 0;

/// The handles of a call, which are of allocations or of resources.
#[derive(Clone, Copy)]
pub(crate) struct Listed<'a> {
    pub list: &'a [Handle],
    pub resources: bool,
}

impl VidMm {
    /// Whether the counts of an open hold its allocation resident.
    pub(super) fn wants(&self, open: u32) -> bool {
        self.memory.allocation_opens[open].residency > 0 && !self.offered.contains(&open)
    }
}

impl Kernel {
    /// `D3DKMTOfferAllocations`: all of the list or nothing.
    pub(crate) fn offer_allocations(
        &mut self,
        process: ProcessId,
        device: Handle,
        listed: Listed<'_>,
        priority: u32,
        flags: u32,
        effects: &mut Effects,
    ) -> CallResult {
        let (device, name) = (self.active_device(process, device)?, device);
        if !(1..=4).contains(&priority) {
            return invalid(format!("offer priority {priority} is none of LOW 1, NORMAL 2, HIGH 3, AUTO 4"));
        }
        if flags & !OFFER_FLAGS != 0 {
            return invalid(format!("flags {flags:#x} have reserved bits set"));
        }
        let opens = self.listed_opens(process, device, listed)?.into();
        let rest = match flags & OFFER_IMMEDIATELY {
            0 => RestOfCall::AfterWork(AfterWorkCall::new(name, Action::Offer(opens))),
            _ => RestOfCall::Offer(opens),
        };
        self.begin_call(process, rest, effects)
    }

    /// Offers opens; false if some are beyond the units of the step.
    pub(super) fn offer(&mut self, opens: &mut VecDeque<u32>) -> bool {
        while !self.is_spent() {
            let Some(open) = opens.pop_front() else { return true };
            self.offer_open(open);
            self.spend(1);
        }
        false
    }

    pub(super) fn offer_open(&mut self, open: u32) {
        self.change_residency(open, |vidmm| _ = vidmm.offered.insert(open));
    }

    /// `D3DKMTReclaimAllocations`: all of the list or nothing.
    pub(crate) fn reclaim_allocations(
        &mut self,
        process: ProcessId,
        device: Handle,
        listed: Listed<'_>,
        effects: &mut Effects,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        self.begin_reclaim(process, device, None, listed, effects)
    }

    /// `D3DKMTReclaimAllocations2`: all of the list or nothing.
    pub(crate) fn reclaim_allocations2(
        &mut self,
        process: ProcessId,
        queue: Handle,
        listed: Listed<'_>,
        effects: &mut Effects,
    ) -> CallResult {
        let id = self.paging_queue(process, queue)?;
        self.require_room(self.vidsch.contexts()[self.vidmm.paging_queues[id].context].queue)?;
        self.begin_reclaim(process, self.vidmm.paging_queues[id].device, Some(queue), listed, effects)
    }

    fn begin_reclaim(
        &mut self,
        process: ProcessId,
        device: u32,
        queue: Option<Handle>,
        listed: Listed<'_>,
        effects: &mut Effects,
    ) -> CallResult {
        let opens = self.listed_opens(process, device, listed)?.into();
        let (names, reclaimed) = (listed.list.len(), BTreeSet::new());
        let call = ReclaimCall { device, queue, names, opens, reclaimed, missing: Vec::new() };
        self.begin_call(process, RestOfCall::Reclaim(Box::new(call)), effects)
    }

    /// Ends the offers of a list, then lists the allocations that are to become resident by it, with their numbers. Behind
    /// the last, begins the operation that does it, or does it at once.
    pub(super) fn advance_reclaim(
        &mut self,
        process: ProcessId,
        call: &mut ReclaimCall,
    ) -> Result<Option<Reply>, Refusal> {
        self.require_device_of_call(call.device)?;
        while let Some(open) = call.opens.pop_front() {
            self.vidmm.after_work.forget_offer(open);
            if self.vidmm.offered.contains(&open) {
                self.change_residency(open, |vidmm| _ = vidmm.offered.remove(&open));
                call.reclaimed.insert(self.vidmm.memory.allocation_opens[open].allocation);
            }
            self.spend(1);
            if self.is_spent() {
                return Ok(None);
            }
        }
        while let Some(index) = call.reclaimed.pop_first() {
            let allocation = &self.vidmm.memory.allocations[index];
            if !self.is_brought(allocation) && self.is_wanted(index) {
                call.missing.push((index, allocation.number));
            }
            self.spend(1);
            if self.is_spent() {
                return Ok(None);
            }
        }
        let missing = core::mem::take(&mut call.missing);
        let results = vec![RECLAIM_OK; call.names];
        let Some(queue) = call.queue else {
            if !missing.is_empty() {
                let adapter = self.processes.devices()[call.device].adapter;
                self.take_effect_at_once(process, adapter, self.becoming_resident(adapter, missing));
            }
            if self.is_spent() {
                return Ok(None);
            }
            return Ok(Some(Reply::Reclaimed { results, paging_fence_value: 0 }));
        };
        let sizes = missing.iter().map(|(index, _)| self.vidmm.memory.allocations[*index].size);
        let size = sizes.fold(0, u64::saturating_add);
        let paging_fence_value = self.begin_transfer(self.paging_queue(process, queue)?, size, missing);
        Ok(Some(Reply::Reclaimed { results, paging_fence_value }))
    }

    /// The opens of the allocations that a call names: up to as many as one call may create, so they are looked up in one
    /// step.
    fn listed_opens(
        &mut self,
        process: ProcessId,
        device: u32,
        listed: Listed<'_>,
    ) -> Result<Vec<u32>, Refusal> {
        let Listed { list, resources } = listed;
        let most = limits::ALLOCATIONS_PER_CALL_MAX;
        if list.is_empty() || list.len() > most {
            return invalid(format!("a list has 1 to {most} entries, not {}", list.len()));
        }
        let mut opens = Vec::with_capacity(list.len());
        for handle in list {
            if !resources {
                opens.push(self.allocation_open(process, device, *handle)?);
                continue;
            }
            let resource = self.resource_open(process, device, *handle)?;
            let allocations = &self.vidmm.memory.resource_opens[resource].allocations;
            if allocations.len() > most - opens.len() {
                return invalid(format!("the resources have more than {most} allocations"));
            }
            let destroyed = |handle: &&Handle| self.vidmm.after_work.is_condemned(process, **handle);
            for allocation in allocations.iter().filter(|handle| !destroyed(handle)) {
                opens.push(self.allocation_open(process, device, *allocation)?);
            }
        }
        self.spend((opens.len() / NAMED_PER_UNIT) as u32);
        Ok(opens)
    }
}
