//! Allocations and resources, for snapshots.

use alloc::vec::Vec;

use d3dkmt::Handle;

use super::snapshot::{AllocationState, DriverAllocationState, ResourceState};
use crate::kernel::Kernel;
use crate::vidmm::allocation::{AllocationOpen, ResourceOpen};

impl Kernel {
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
                resident: allocation.resident,
                locks: open.locks,
                priority: allocation.priority,
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
