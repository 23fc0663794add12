//! Offers: a process says which resident memory it can do without.
//!
//! ```text
//!   OfferAllocations ──▶ the handle's counts do not hold ──▶ engines find NoAccess, unless another handle has a count
//!   ReclaimAllocations2 ──▶ the counts hold again ── paging buffer ──▶ engines find it     PENDING with a fence value
//!   ReclaimAllocations ───▶ the same at once, for a device without paging queues
//! ```
//! An offer is of a handle, and ends with it. The handle keeps its counts: MakeResident and Evict change them, and they
//! hold from the reclaim on. Offered bytes do not count as the process's usage.
//!
//! This model never discards memory, of a process or of the device: every reclaim finds the bytes as they were, whatever
//! the priority of the offer. To offer what is offered, or to reclaim what is not, changes nothing.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::{Handle, Reply, limits};

use crate::ProcessId;
use crate::error::{CallResult, Refusal, invalid};
use crate::kernel::Kernel;
use crate::vidmm::VidMm;

/// `D3DKMT_OFFER_FLAGS`: OfferImmediately and AllowDecommit.
const OFFER_FLAGS: u32 = 0x1 | 0x2;

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
    /// `D3DKMTOfferAllocations`: all of the list or nothing. Also on a device that is lost.
    pub(crate) fn offer_allocations(
        &mut self,
        process: ProcessId,
        device: Handle,
        listed: Listed<'_>,
        priority: u32,
        flags: u32,
    ) -> CallResult {
        let device = self.device(process, device)?;
        if !(1..=4).contains(&priority) {
            return invalid(format!("offer priority {priority} is none of LOW 1, NORMAL 2, HIGH 3, AUTO 4"));
        }
        if flags & !OFFER_FLAGS != 0 {
            return invalid(format!("flags {flags:#x} have reserved bits set"));
        }
        for open in self.listed_opens(process, device, listed)? {
            self.change_residency(open, |vidmm| _ = vidmm.offered.insert(open));
        }
        Ok(Reply::None)
    }

    /// `D3DKMTReclaimAllocations`: all of the list or nothing.
    pub(crate) fn reclaim_allocations(
        &mut self,
        process: ProcessId,
        device: Handle,
        listed: Listed<'_>,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        let missing = self.reclaim(process, device, listed)?;
        self.become_resident(&missing);
        Ok(Reply::Reclaimed { results: vec![RECLAIM_OK; listed.list.len()], paging_fence_value: 0 })
    }

    /// `D3DKMTReclaimAllocations2`: all of the list or nothing.
    pub(crate) fn reclaim_allocations2(
        &mut self,
        process: ProcessId,
        queue: Handle,
        listed: Listed<'_>,
    ) -> CallResult {
        let id = self.paging_queue(process, queue)?;
        self.require_room(self.vidsch.contexts()[self.vidmm.paging_queues[id].context].queue)?;
        let missing = self.reclaim(process, self.vidmm.paging_queues[id].device, listed)?;
        let sizes = missing.iter().map(|(index, _)| self.vidmm.memory.allocations[*index].size);
        let size = sizes.fold(0, u64::saturating_add);
        let paging_fence_value = self.begin_transfer(id, size, missing);
        Ok(Reply::Reclaimed { results: vec![RECLAIM_OK; listed.list.len()], paging_fence_value })
    }

    /// Ends the offers of a list. Returns the allocations that are to become resident by it, with their numbers.
    fn reclaim(
        &mut self,
        process: ProcessId,
        device: u32,
        listed: Listed<'_>,
    ) -> Result<Vec<(u32, u64)>, Refusal> {
        let mut reclaimed = BTreeSet::new();
        for open in self.listed_opens(process, device, listed)? {
            if self.vidmm.offered.contains(&open) {
                self.change_residency(open, |vidmm| _ = vidmm.offered.remove(&open));
                reclaimed.insert(self.vidmm.memory.allocation_opens[open].allocation);
            }
        }
        let missing = reclaimed.into_iter().filter(|allocation| {
            !self.vidmm.memory.allocations[*allocation].resident && self.is_wanted(*allocation)
        });
        Ok(missing.map(|allocation| (allocation, self.vidmm.memory.allocations[allocation].number)).collect())
    }

    /// The opens of the allocations that a call names.
    fn listed_opens(&self, process: ProcessId, device: u32, listed: Listed<'_>) -> Result<Vec<u32>, Refusal> {
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
            for allocation in allocations {
                opens.push(self.allocation_open(process, device, *allocation)?);
            }
        }
        Ok(opens)
    }
}
