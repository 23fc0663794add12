//! Allocations and resources, for snapshots.

use alloc::vec::Vec;
use core::ops::Range;

use d3dkmt::Handle;

use super::snapshot::{AllocationState, DriverAllocationState, ResourceState};
use crate::kernel::Kernel;
use crate::process::HandleTarget;
use crate::vidmm::allocation::{Allocation, AllocationOpen, ResourceOpen};
use crate::{ProcessId, VmId};

/// Memory of the device in a shared resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedMemory {
    /// The process that created it, present or gone.
    pub owner: ProcessId,
    /// Its first address there.
    pub address: u64,
    pub bytes: u64,
}

impl Kernel {
    /// The shared memory of the device that a handle of a process names, if the process may have it in its address
    /// space.
    pub fn shared_memory(&self, process: ProcessId, allocation: Handle) -> Option<SharedMemory> {
        let memory = self.vidmm.memory();
        if self.vidmm.after_work().is_condemned(process, allocation) {
            return None;
        }
        let Some(HandleTarget::Allocation(open)) = self.processes.get(process)?.handles.get(allocation)
        else {
            return None;
        };
        let allocation = &memory.allocations[memory.allocation_opens[open].allocation];
        let is_for_it = allocation.outlives_owner() && allocation.is_cpu_visible();
        let Allocation { owner, address, size: bytes, .. } = *allocation;
        is_for_it.then_some(SharedMemory { owner, address, bytes })
    }

    /// Whether an address of a process, present or gone, is shared memory of the device, which stays until its
    /// allocation ends.
    pub fn is_shared_memory(&self, owner: ProcessId, address: u64) -> bool {
        self.shared_memory_vm(owner, address).is_some()
    }

    /// The same, or memory of the device that its process has destroyed while queued work may use it.
    pub fn outlives_detach(&self, owner: ProcessId, address: u64) -> bool {
        self.is_shared_memory(owner, address) || self.vidmm.memory().kept_at(owner, address).is_some()
    }

    /// Whether memory of the process in a range of its addresses is of an allocation that its creator has destroyed and
    /// that another handle, or queued work, may use.
    pub fn is_used_after_destroy(&self, owner: ProcessId, range: Range<u64>) -> bool {
        self.vidmm.memory().is_used_without_creator(owner, range)
    }

    /// The VM whose processes may open it, if it is such memory.
    pub fn shared_memory_vm(&self, owner: ProcessId, address: u64) -> Option<VmId> {
        self.vidmm.memory().shared_at(owner, address)?.shared_in
    }

    /// Whether pages of a process from this address on are a piece of its memory as its broker attaches them: of shared
    /// memory the whole of each `piece_bytes`, because other processes map it; of other memory any part of it alone.
    pub fn is_piece(&self, owner: ProcessId, address: u64, bytes: u64, piece_bytes: u64) -> bool {
        let memory = self.vidmm.memory();
        match memory.shared_at(owner, address) {
            Some(shared) => {
                let offset = address - shared.address;
                offset.is_multiple_of(piece_bytes) && bytes == piece_bytes.min(shared.size - offset)
            }
            None => !memory.shared_begins_in(owner, address..address.saturating_add(bytes)),
        }
    }

    /// The memory of the device that the last step has ended and whose pages were or may be kept.
    pub fn ended_shared_memory(&self) -> impl Iterator<Item = SharedMemory> {
        let ended = self.vidmm.memory().shared_ended.iter();
        ended.map(|(owner, address, bytes)| SharedMemory { owner: *owner, address: *address, bytes: *bytes })
    }

    pub(crate) fn resource_states(&self) -> Vec<ResourceState> {
        let state = |open: &ResourceOpen| {
            let resource = &self.vidmm.memory().resources[open.resource];
            ResourceState {
                process: open.process.0,
                handle: open.handle,
                device: self.processes.devices()[open.device].handle,
                resource: open.resource,
                shared_handle: resource.global.unwrap_or(Handle::NULL),
                runtime_data_bytes: resource.runtime_data.len() as u32,
                destroyed: self.vidmm.after_work().is_condemned(open.process, open.handle),
            }
        };
        self.vidmm.memory().resource_opens.iter().map(|(_, open)| state(open)).collect()
    }

    pub(crate) fn allocation_states(&self) -> Vec<AllocationState> {
        let state = |open: &AllocationOpen| {
            let allocation = &self.vidmm.memory().allocations[open.allocation];
            AllocationState {
                process: open.process.0,
                handle: open.handle,
                device: self.processes.devices()[open.device].handle,
                resource: open
                    .resource
                    .map_or(Handle::NULL, |open| self.vidmm.memory().resource_opens[open].handle),
                allocation: open.allocation,
                size: allocation.size,
                address: allocation.address,
                residency: open.residency,
                resident: self.is_brought(allocation),
                locks: open.locks,
                priority: allocation.priority,
                destroyed: self.vidmm.after_work().is_condemned(open.process, open.handle),
                driver: allocation.driver.as_ref().map(|driver| DriverAllocationState {
                    private_data_bytes: driver.private_data.len() as u32,
                    alignment: driver.alignment,
                    segment_group: driver.segment_group,
                    cpu_visible: driver.cpu_visible,
                    grows: driver.grows,
                    description: self.miniport.describe_allocation(driver.adapter, allocation.id()),
                }),
            }
        };
        self.vidmm.memory().allocation_opens.iter().map(|(_, open)| state(open)).collect()
    }
}
