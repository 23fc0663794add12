//! The kernel's own references to allocations: ring buffers of doorbells (SCH-034, F-103).
//!
//! User mode owns a ring and destroys it. It has to be resident before a doorbell is created with it; from then on the
//! kernel has an open of its own, with a count of its own, until the doorbell ends. If the process destroys its handle
//! meanwhile, the mapping passes to that open, and the ring stays where the engine reads it. Only the end of the
//! device, which ends its doorbells, releases all of it.

use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{Handle, NtStatus, limits};

use crate::ProcessId;
use crate::error::{Refusal, invalid, refuse};
use crate::kernel::Kernel;
use crate::vidmm::allocation::AllocationOpen;

impl Kernel {
    /// The allocations of rings, which a doorbell of this device may be created with.
    pub(crate) fn rings(
        &self,
        process: ProcessId,
        device: u32,
        rings: &[Handle],
    ) -> Result<Vec<u32>, Refusal> {
        /// hRingBuffer and hRingBufferControl.
        const RINGS_MAX: usize = 2;
        if rings.len() > RINGS_MAX {
            return invalid(format!(
                "{} allocations: a doorbell has a ring buffer and its control",
                rings.len()
            ));
        }
        let opened = self.process(process).allocations;
        if opened + rings.len() > limits::ALLOCATIONS_PER_PROCESS_MAX {
            return refuse(NtStatus::NO_MEMORY, format!("the process has {opened} allocations, the limit"));
        }
        let ring = |handle: &Handle| {
            let open = self.allocation_open(process, device, *handle)?;
            let allocation = self.vidmm.memory.allocation_opens[open].allocation;
            if !self.is_brought(&self.vidmm.memory.allocations[allocation]) {
                return invalid(format!("{handle} is not resident: a ring is before its doorbell (F-103)"));
            }
            Ok(allocation)
        };
        let rings = rings.iter().map(ring).collect::<Result<Vec<u32>, _>>()?;
        self.require_memory(process, rings.iter().map(|ring| self.ring_weight(*ring)).sum())?;
        Ok(rings)
    }

    /// Creates an open of the kernel's own, for a doorbell of a process.
    pub(crate) fn hold_ring(&mut self, process: ProcessId, device: u32, allocation: u32) -> u32 {
        let open = AllocationOpen::new(process, device, allocation);
        let open = self.vidmm.memory.allocation_opens.insert(open);
        self.vidmm.memory.allocations[allocation].opens.insert(open);
        self.vidmm.held.insert((allocation, process, open));
        self.process_mut(process).allocations += 1;
        self.processes.charge(process, self.ring_weight(allocation));
        self.raise_residency(open, 1);
        open
    }

    /// An open other than `besides` that the kernel has of an allocation for this process.
    pub(crate) fn held_open(&self, process: ProcessId, allocation: u32, besides: u32) -> Option<u32> {
        let of_process = (allocation, process, 0)..=(allocation, process, u32::MAX);
        let mut opens = self.vidmm.held.range(of_process).map(|(.., open)| *open);
        opens.find(|open| *open != besides)
    }
}
