//! Locks of allocations for the CPU, and priorities of allocations.
//!
//! A lock returns the address of the allocation in the process that created it: no other process has it in its address
//! space. For memory of the device that is the address at which the creator's library has attached it; the program gets
//! the one where its own library has mapped it. So a process that has opened a shared resource of such memory may lock
//! it too: its library gets the pages from the broker. Locks nest; they end with the handle. A lock does not delay
//! engines.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use d3dkmt::{Handle, NtStatus, Reply, limits};

use crate::ProcessId;
use crate::ddi::HappensBefore;
use crate::error::{CallResult, Refusal, invalid, refuse};
use crate::kernel::Kernel;

/// `D3DDDI_ALLOCATIONPRIORITY_NORMAL`.
pub(crate) const PRIORITY_NORMAL: u32 = 0x7800_0000;

impl Kernel {
    /// `D3DKMTLock2`.
    pub(crate) fn lock(
        &mut self,
        process: ProcessId,
        device: Handle,
        allocation: Handle,
        flags: u32,
    ) -> CallResult {
        let device = self.active_device(process, device)?;
        if flags != 0 {
            return invalid(format!("lock flags {flags:#x} have reserved bits set"));
        }
        let open = self.allocation_open(process, device, allocation)?;
        let state = &self.vidmm.memory.allocations[self.vidmm.memory.allocation_opens[open].allocation];
        let (owner, address) = (state.owner, state.address);
        if state.is_device_memory() && !state.is_cpu_visible() {
            return invalid(format!("{allocation} is not CpuVisible: its driver keeps it from the CPU"));
        }
        if owner != process && !state.outlives_owner() {
            return refuse(
                NtStatus::NOT_SUPPORTED,
                format!("{allocation} is memory of process {}: no other can lock it", owner.0),
            );
        }
        let locks = &mut self.vidmm.memory.allocation_opens[open].locks;
        if *locks >= limits::LOCKS_PER_ALLOCATION_MAX {
            return refuse(NtStatus::NO_MEMORY, format!("{allocation} is locked {locks} times, the limit"));
        }
        *locks += 1;
        self.touched_by_cpu(process, open);
        Ok(Reply::Locked { address })
    }

    /// `D3DKMTUnlock2`. Also on a device that is lost.
    pub(crate) fn unlock(&mut self, process: ProcessId, device: Handle, allocation: Handle) -> CallResult {
        let device = self.device(process, device)?;
        let open = self.allocation_open(process, device, allocation)?;
        let locks = &mut self.vidmm.memory.allocation_opens[open].locks;
        match locks.checked_sub(1) {
            Some(remaining) => *locks = remaining,
            None => return invalid(format!("{allocation} is not locked")),
        }
        self.touched_by_cpu(process, open);
        Ok(Reply::None)
    }

    fn touched_by_cpu(&mut self, process: ProcessId, open: u32) {
        let state = &self.vidmm.memory.allocations[self.vidmm.memory.allocation_opens[open].allocation];
        let (owner, address, bytes) = (state.owner, state.address, state.size);
        self.edge(HappensBefore::Locked { process, owner, address, bytes });
    }

    /// `D3DKMTSetAllocationPriority`.
    pub(crate) fn set_allocation_priority(
        &mut self,
        process: ProcessId,
        device: Handle,
        resource: Handle,
        allocations: &[Handle],
        priorities: &[u32],
    ) -> CallResult {
        let targets = self.named_allocations(process, device, resource, allocations)?;
        let expected = if resource == Handle::NULL { targets.len() } else { 1 };
        if priorities.len() != expected {
            return invalid(format!("{} priorities, where {expected} are wanted", priorities.len()));
        }
        for (allocation, priority) in targets.iter().zip(priorities.iter().cycle()) {
            self.vidmm.memory.allocations[*allocation].priority = *priority;
        }
        Ok(Reply::None)
    }

    /// `D3DKMTGetAllocationPriority`: for a resource the priority of its first allocation.
    pub(crate) fn allocation_priority(
        &mut self,
        process: ProcessId,
        device: Handle,
        resource: Handle,
        allocations: &[Handle],
    ) -> CallResult {
        let targets = self.named_allocations(process, device, resource, allocations)?;
        let of = |allocation: &u32| self.vidmm.memory.allocations[*allocation].priority;
        Ok(Reply::AllocationPriorities(if resource == Handle::NULL {
            targets.iter().map(of).collect()
        } else {
            vec![targets.first().map_or(PRIORITY_NORMAL, of)]
        }))
    }

    /// The allocations of a resource, or those of a list.
    pub(super) fn named_allocations(
        &self,
        process: ProcessId,
        device: Handle,
        resource: Handle,
        allocations: &[Handle],
    ) -> Result<Vec<u32>, Refusal> {
        let device = self.active_device(process, device)?;
        if resource != Handle::NULL {
            if !allocations.is_empty() {
                return invalid(
                    "a resource and a list of allocations are given: a call is for one of the two",
                );
            }
            let open = self.resource_open(process, device, resource)?;
            let resource = self.vidmm.memory.resource_opens[open].resource;
            return Ok(self.vidmm.memory.resources[resource].allocations.clone());
        }
        let most = limits::ALLOCATIONS_PER_CALL_MAX;
        if allocations.is_empty() || allocations.len() > most {
            return invalid(format!("a list has 1 to {most} allocations, not {}", allocations.len()));
        }
        let targets = allocations.iter().map(|handle| {
            let open = self.allocation_open(process, device, *handle)?;
            Ok(self.vidmm.memory.allocation_opens[open].allocation)
        });
        targets.collect()
    }
}
