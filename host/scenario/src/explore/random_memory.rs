//! Random programs: memory of the device, locked by the CPU, and shared with other processes.

use d3dkmt::allocation_data::AllocationData;
use d3dkmt::{CallOf, DestroyAllocationFlags};

use super::random::Drawer;
use crate::program::{AllocationSpec, Binding, HandleRef, Kind, PrivateData, Share};
use crate::script::by_hand::open_allocation;
use crate::script::words::GENERIC_ALL;

/// Memory of the device that a process has created or opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceMemory {
    pub device: Binding,
    pub allocation: Binding,
}

impl Drawer {
    /// Adds a call on memory of the device: creation, open, lock, unlock, a mapping for engines, or destruction.
    pub fn device_memory(&mut self, guest: usize) {
        let own = self.draft.guests[guest].allocations.clone();
        let Some(one) = self.draft.pick(&own) else { return self.more_device_memory(guest) };
        let (device, allocation) = (HandleRef::Bound(one.device), self.handle(guest, one.allocation));
        match self.below(16) {
            0..4 => self.more_device_memory(guest),
            4..8 => self.draft.call(guest, CallOf::Lock { device, allocation, flags: 0 }),
            8..12 => self.draft.call(guest, CallOf::Unlock { device, allocation }),
            12..14 if self.lists => {
                let queue = self.paging_queue(guest, one.device);
                self.map_memory(guest, (one.device, queue), one.allocation);
            }
            _ => {
                let (resource, allocations) = (HandleRef::NULL, vec![allocation]);
                let flags = DestroyAllocationFlags::empty();
                self.draft.call(guest, CallOf::DestroyAllocation { device, resource, allocations, flags });
            }
        }
    }

    /// Opens memory of another process, or creates some.
    fn more_device_memory(&mut self, guest: usize) {
        let Some(device) = self.device(guest) else { return };
        let shares = self.draft.memory_shares.clone();
        let share = self.draft.pick(&shares).filter(|_| !self.draft.random.one_in(3));
        let Some(share) = share else {
            self.new_device_memory(guest, device);
            return;
        };
        let main = self.draft.guests[guest].main;
        let bytes = AllocationData::BYTES as u32;
        let open = open_allocation(HandleRef::Bound(device), Share(share), bytes);
        let allocation = self.draft.push_named(main, Kind::Allocation, open);
        self.draft.guests[guest].allocations.push(DeviceMemory { device, allocation });
    }

    /// Creates memory of the device, mostly in a shared resource.
    pub fn new_device_memory(&mut self, guest: usize, device: Binding) -> Binding {
        let (local, cpu_visible, shared) = (!self.one_in(4), !self.one_in(6), !self.one_in(3));
        let create = AllocationSpec {
            device: HandleRef::Bound(device),
            bytes: super::random_lists::MEMORY_BYTES,
            private_data: PrivateData::Device { local, cpu_visible },
            shared,
        };
        let main = self.draft.guests[guest].main;
        let allocation = self.draft.push_named(main, Kind::Allocation, CallOf::CreateAllocation { create });
        self.draft.guests[guest].allocations.push(DeviceMemory { device, allocation });
        if shared {
            let objects = vec![HandleRef::Bound(allocation)];
            let share = CallOf::ShareObjects { objects, desired_access: GENERIC_ALL, name: None, token: () };
            let share = self.draft.push_named(main, Kind::Share, share);
            self.draft.memory_shares.push(share);
        }
        allocation
    }
}
