//! Memory of the device, alone or in a shared resource: creation, opens, locks, and ends (MEM-030 to MEM-039).

use d3dkmt::allocation_data::{AllocationData, AllocationDataFlags};
use d3dkmt::limits::DEVICE_MEMORY_START;
use d3dkmt::{CreateAllocation, CreateAllocationFlags as F, Handle, NtStatus, Reply, ResourceInfo};

use super::{IP, Naive, PAGE_BYTES, Verdict};

/// An allocation without pSystemMem.
pub struct Memory {
    /// The process that created it: it names the memory with its address, also when it is gone.
    pub owner: u32,
    pub address: u64,
    pub bytes: u64,
    visible: bool,
    /// The VM whose processes may open it, and the global handle of its resource; none if it is not shared.
    shared: Option<(u32, Handle)>,
    adapter: usize,
    /// The device of its creation, which tells whether its adapter has stopped and started since.
    device: usize,
}

/// A process's handles to it: of the allocation, and of its resource if it has one. Each ends by itself.
pub struct MemoryOpen {
    pub process: u32,
    pub device: usize,
    pub memory: usize,
    pub allocation: Handle,
    pub resource: Handle,
    pub locks: u32,
    pub ended: bool,
    pub resource_ended: bool,
}

impl Naive {
    pub(super) fn create_memory(
        &mut self,
        process: u32,
        create: &CreateAllocation,
        kernel_reply: &Reply,
    ) -> Verdict {
        let (device, mistakes) = self.device_mistakes(process, create.device);
        let (Some(device), []) = (device, &mistakes[..]) else { return Err(mistakes) };
        let [info] = &create.allocations[..] else { unreachable!("operations create one") };
        let data = AllocationData::decode(&info.private_data).expect("operations use the driver's format");
        let bytes = data.size.next_multiple_of(PAGE_BYTES);
        // MEM-030: beyond the addresses of processes, one after the other, and never again.
        let earlier = self.memories.iter().filter(|memory| memory.owner == process);
        let address = DEVICE_MEMORY_START + earlier.map(|memory| memory.bytes).sum::<u64>();
        let Reply::Allocations { resource, shared_handle, ref allocations, ref private_data, .. } =
            *kernel_reply
        else {
            return Ok(Reply::None);
        };
        let is_shared = create.flags.contains(F::CREATE_SHARED);
        let vm = self.vm_of(process);
        self.memories.push(Memory {
            owner: process,
            address,
            bytes,
            visible: data.flags.contains(AllocationDataFlags::CPU_VISIBLE),
            shared: is_shared.then_some((vm, shared_handle)),
            adapter: self.devices[device].adapter,
            device,
        });
        let allocation = allocations.first().copied().unwrap_or(Handle::NULL);
        self.add_memory_open(process, device, self.memories.len() - 1, (resource, allocation));
        Ok(Reply::Allocations {
            resource: if create.flags.contains(F::CREATE_RESOURCE) { resource } else { Handle::NULL },
            shared_handle: if is_shared { shared_handle } else { Handle::NULL },
            allocations: vec![allocation],
            private_data: private_data.clone(),
            sizes: vec![bytes],
            addresses: vec![address],
        })
    }

    fn add_memory_open(
        &mut self,
        process: u32,
        device: usize,
        memory: usize,
        (resource, allocation): (Handle, Handle),
    ) {
        let resource_ended = resource == Handle::NULL;
        let (locks, ended) = (0, false);
        let open = MemoryOpen { process, device, memory, allocation, resource, locks, ended, resource_ended };
        self.memory_opens.push(open);
    }

    pub(super) fn open_memory(
        &mut self,
        process: u32,
        device: Handle,
        global: Handle,
        info: ResourceInfo,
        kernel_reply: &Reply,
    ) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let vm = self.vm_of(process);
        let has_resource = |memory: usize| {
            self.memory_opens.iter().any(|open| open.memory == memory && !open.resource_ended)
        };
        let is_it =
            |memory: &usize| self.memories[*memory].shared == Some((vm, global)) && has_resource(*memory);
        let memory = (0..self.memories.len()).find(is_it);
        match memory {
            None => mistakes.push(IP),
            Some(memory) => {
                let Memory { adapter, device: of, .. } = self.memories[memory];
                if device.is_some_and(|device| self.devices[device].adapter != adapter) {
                    mistakes.push(IP);
                }
                if self.dead_devices.contains(&of) {
                    mistakes.push(NtStatus::DEVICE_REMOVED);
                }
                // W-266: the sizes are those of the resource. One whose allocation has ended has none.
                if !self.memory_lives(memory) || info.total_private_data_size < AllocationData::BYTES as u32 {
                    mistakes.push(IP);
                }
            }
        }
        let (Some(device), Some(memory), []) = (device, memory, &mistakes[..]) else { return Err(mistakes) };
        let Reply::OpenedResource { resource, ref allocations, ref private_data, .. } = *kernel_reply else {
            return Ok(Reply::None);
        };
        let allocation = allocations.first().copied().unwrap_or(Handle::NULL);
        self.add_memory_open(process, device, memory, (resource, allocation));
        Ok(Reply::OpenedResource {
            resource,
            allocations: vec![allocation],
            runtime_data: vec![],
            keyed_mutex: Handle::NULL,
            sync_object: Handle::NULL,
            private_data: private_data.clone(),
            private_data_sizes: vec![AllocationData::BYTES as u32],
        })
    }

    /// An allocation lives while a handle names it.
    pub fn memory_lives(&self, memory: usize) -> bool {
        self.memory_opens.iter().any(|open| open.memory == memory && !open.ended)
    }

    /// MEM-036: whether processes that have opened it find it by its name.
    pub fn is_shared_memory(&self, memory: usize) -> bool {
        self.memories[memory].shared.is_some() && self.memory_lives(memory)
    }

    /// The open that a handle of an allocation names on a device.
    fn memory_open(&self, process: u32, device: usize, allocation: Handle) -> Option<usize> {
        let is_it = |open: &MemoryOpen| {
            !open.ended && (open.process, open.device, open.allocation) == (process, device, allocation)
        };
        self.memory_opens.iter().position(is_it)
    }

    /// MEM-032, MEM-035: the address is the creator's, in whatever process.
    pub(super) fn lock_memory(&mut self, process: u32, device: Handle, allocation: Handle) -> Verdict {
        let (device, mut mistakes) = self.device_mistakes(process, device);
        let open = device.and_then(|device| self.memory_open(process, device, allocation));
        // MEM-033
        if !open.is_some_and(|open| self.memories[self.memory_opens[open].memory].visible) {
            mistakes.push(IP);
        }
        let (Some(open), []) = (open, &mistakes[..]) else { return Err(mistakes) };
        self.memory_opens[open].locks += 1;
        Ok(Reply::Locked { address: self.memories[self.memory_opens[open].memory].address })
    }

    /// MEM-038: of one handle. Also on a device that is lost.
    pub(super) fn unlock_memory(&mut self, process: u32, device: Handle, allocation: Handle) -> Verdict {
        let device = self.device(process, device).ok_or(vec![IP])?;
        let open = self.memory_open(process, device, allocation).ok_or(vec![IP])?;
        self.memory_opens[open].locks = self.memory_opens[open].locks.checked_sub(1).ok_or(vec![IP])?;
        Ok(Reply::None)
    }

    /// A resource takes its allocation with it; an allocation leaves its resource behind. Also on a device that is lost.
    pub(super) fn destroy_memory(
        &mut self,
        process: u32,
        device: Handle,
        resource: Handle,
        allocations: &[Handle],
    ) -> Verdict {
        let device = self.device(process, device).ok_or(vec![IP])?;
        if resource != Handle::NULL {
            let is_it = |open: &MemoryOpen| {
                !open.resource_ended
                    && (open.process, open.device, open.resource) == (process, device, resource)
            };
            let open = self.memory_opens.iter().position(is_it).ok_or(vec![IP])?;
            (self.memory_opens[open].ended, self.memory_opens[open].resource_ended) = (true, true);
            return Ok(Reply::None);
        }
        for allocation in allocations {
            let open = self.memory_open(process, device, *allocation).ok_or(vec![IP])?;
            self.memory_opens[open].ended = true;
        }
        Ok(Reply::None)
    }

    pub(super) fn end_memory_of(&mut self, device: usize) {
        for open in self.memory_opens.iter_mut().filter(|open| open.device == device) {
            (open.ended, open.resource_ended) = (true, true);
        }
    }
}
