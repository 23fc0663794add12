//! Fence memory of a process: which of its slots are in use.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use d3dkmt::limits;
use serde::{Deserialize, Serialize};

const SLOT_BYTES: u64 = 64;

const STATUS_SLOT: u32 = 0;

/// The fence slots of a process: who has which. The status slot has no owner. Freed slots are reused
/// longest-free first.
#[derive(Default, Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slots {
    capacity: u32,
    /// Open index by slot, for slots used at least once.
    owners: Vec<Option<u32>>,
    free: VecDeque<u32>,
}

impl Slots {
    /// First GPU virtual address of a process's fence memory; slots follow each other from here.
    pub const GPU_BASE: u64 = 0x1_0000_0000;

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many fences have.
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

    /// Gives a slot to no open: the kernel stores there, engines do not.
    pub fn allocate_for_kernel(&mut self) -> Option<u32> {
        let slot = self.allocate(0)?;
        self.owners[slot as usize] = None;
        Some(slot)
    }

    /// Another open of the same process goes on with the slot.
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

    /// The open whose value stands at this GPU virtual address.
    pub fn owner_at(&self, gpu_address: u64) -> Option<u32> {
        let offset = gpu_address.checked_sub(Slots::GPU_BASE)?;
        if !offset.is_multiple_of(SLOT_BYTES) {
            return None;
        }
        *self.owners.get(usize::try_from(offset / SLOT_BYTES).ok()?)?
    }
}
