//! Fence memory of a process: which of its slots are in use.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use d3dkmt::limits;
use serde::{Deserialize, Serialize};

use crate::vidmm::vaspace::PAGE_BYTES;

const SLOT_BYTES: u64 = 64;

/// The slot with the number of the process's devices that are not ACTIVE.
pub const STATUS_SLOT: u32 = 0;

/// CPU address of fence memory in a process that has reported none.
const CPU_BASE: u64 = 0x7F00_0000_0000;

/// Whether slot 0 can be at this address of a process: a page, with room for as many slots as a process may have.
pub fn is_fence_address(address: u64) -> bool {
    const BYTES: u64 = limits::FENCE_SLOTS_PER_PROCESS_MAX as u64 * SLOT_BYTES;
    (PAGE_BYTES..=limits::USER_END - BYTES).contains(&address) && address.is_multiple_of(PAGE_BYTES)
}

/// The fence slots of a process and their owners. The status slot has no owner. Freed slots are reused
/// longest-free first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slots {
    capacity: u32,
    /// The CPU address of slot 0 in the process.
    cpu_base: u64,
    /// Open index by slot, for slots used at least once.
    owners: Vec<Option<u32>>,
    free: VecDeque<u32>,
}

impl Default for Slots {
    fn default() -> Self {
        Slots { capacity: 0, cpu_base: CPU_BASE, owners: Vec::new(), free: VecDeque::new() }
    }
}

impl Slots {
    /// First GPU virtual address of a process's fence memory; slots follow each other from here.
    pub const GPU_BASE: u64 = 0x1_0000_0000;

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of slots that fences have.
    pub fn used(&self) -> u32 {
        (self.owners.len() - self.free.len()) as u32 - u32::from(self.status().is_some())
    }

    /// The slot of the status: the first, once there is memory.
    pub fn status(&self) -> Option<u32> {
        (self.capacity > 0).then_some(STATUS_SLOT)
    }

    pub fn add(&mut self, slots: u32) {
        if self.capacity == 0 && slots > 0 {
            self.owners.push(None);
        }
        self.capacity = self.capacity.saturating_add(slots).min(limits::FENCE_SLOTS_PER_PROCESS_MAX);
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || (self.owners.len() as u32) < self.capacity
    }

    /// Gives a slot to an open; `None` if there is none.
    pub fn allocate(&mut self, open: u32) -> Option<u32> {
        if let Some(slot) = self.free.pop_front() {
            self.owners[slot as usize] = Some(open);
            return Some(slot);
        }
        if self.owners.len() as u32 >= self.capacity {
            return None;
        }
        self.owners.push(Some(open));
        Some(self.owners.len() as u32 - 1)
    }

    /// Allocates a slot without an open: the kernel stores there, engines do not.
    pub fn allocate_for_kernel(&mut self) -> Option<u32> {
        let slot = self.allocate(0)?;
        self.owners[slot as usize] = None;
        Some(slot)
    }

    /// Transfers the slot to another open of the same process.
    pub fn hand_over(&mut self, slot: u32, open: u32) {
        self.owners[slot as usize] = Some(open);
    }

    pub fn release(&mut self, slot: u32) {
        self.owners[slot as usize] = None;
        self.free.push_back(slot);
    }

    /// GPU virtual address of a slot.
    pub fn gpu_address(slot: u32) -> u64 {
        Slots::GPU_BASE + u64::from(slot) * SLOT_BYTES
    }

    /// Where the process reads slot 0.
    pub fn cpu_base(&self) -> u64 {
        self.cpu_base
    }

    /// Sets the CPU address of slot 0. False if there is no room for all slots that a process may have, or if the
    /// process has had fences, whose addresses it knows.
    pub fn map_at(&mut self, cpu_base: u64) -> bool {
        let is_new = self.owners.len() <= usize::from(self.status().is_some());
        let possible = is_fence_address(cpu_base) && is_new;
        if possible {
            self.cpu_base = cpu_base;
        }
        possible
    }

    /// Address of a slot for engines: its CPU address on an IoMmu adapter.
    pub fn engine_address(&self, slot: u32, iommu: bool) -> u64 {
        self.engine_base(iommu) + u64::from(slot) * SLOT_BYTES
    }

    fn engine_base(&self, iommu: bool) -> u64 {
        if iommu { self.cpu_base } else { Slots::GPU_BASE }
    }

    /// The open whose value an engine finds at this address.
    pub fn owner_at(&self, address: u64, iommu: bool) -> Option<u32> {
        let offset = address.checked_sub(self.engine_base(iommu))?;
        if !offset.is_multiple_of(SLOT_BYTES) {
            return None;
        }
        *self.owners.get(usize::try_from(offset / SLOT_BYTES).ok()?)?
    }
}
