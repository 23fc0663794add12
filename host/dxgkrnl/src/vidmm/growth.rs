//! Growth of allocations whose size their driver does not know: memory of a process with private data of another driver.
//!
//! ```text
//!   CreateAllocation with pSystemMem, and the driver knows no size ──▶ 0 bytes
//!   Map.., Update..GpuVirtualAddress by the creator's handle ──▶ up to the end of what is mapped
//! ```
//! Only the creator maps more, because only its library can back the memory with pages that engines access. An allocation
//! never shrinks. What it grows by counts against the budgets of the processes that have it resident; the creator's
//! budget limits it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use d3dkmt::{NtStatus, limits};

use crate::ProcessId;
use crate::ddi::SegmentGroup;
use crate::error::{Refusal, invalid, refuse};
use crate::kernel::Kernel;

/// Ends in bytes to which allocations grow, by open.
#[derive(Default)]
pub(super) struct Growth(BTreeMap<u32, u64>);

impl Kernel {
    /// Checks that a mapping of an open may end at this byte of its allocation, and adds to `growth` what that takes.
    pub(super) fn reach(&self, open: u32, end: u64, growth: &mut Growth) -> Result<(), Refusal> {
        let state = &self.vidmm.memory.allocation_opens[open];
        let allocation = &self.vidmm.memory.allocations[state.allocation];
        let size = allocation.size;
        if end <= size {
            return Ok(());
        }
        let handle = state.handle;
        if allocation.driver.as_ref().is_none_or(|driver| !driver.grows) {
            return invalid(format!("{handle} has {size:#x} bytes, and the mapping ends at byte {end:#x}"));
        }
        if !state.is_creators {
            return invalid(format!(
                "{handle} has {size:#x} bytes, the mapping ends at byte {end:#x}, and only its creator maps more"
            ));
        }
        if allocation.address.checked_add(end).is_none_or(|end| end > limits::USER_END) {
            let start = allocation.address;
            return invalid(format!("{end:#x} bytes at {start:#x} are not memory of the process"));
        }
        let entry = growth.0.entry(open).or_default();
        *entry = end.max(*entry);
        Ok(())
    }

    /// Refuses growth that takes a process over its budget.
    pub(super) fn require_growth(
        &self,
        process: ProcessId,
        adapter: u32,
        growth: &Growth,
    ) -> Result<(), Refusal> {
        let grown = |(open, end): (&u32, &u64)| {
            let allocation = self.vidmm.memory.allocation_opens[*open].allocation;
            let is_counted = self.is_wanted_by(allocation, process);
            if is_counted { *end - self.vidmm.memory.allocations[allocation].size } else { 0 }
        };
        let more = growth.0.iter().map(grown).fold(0, u64::saturating_add);
        // Only memory of a process grows.
        let [_, over] = self.over_budgets(process, adapter, [0, more]);
        match if more > 0 { over } else { 0 } {
            0 => Ok(()),
            over => {
                let why = format!("resident allocations grow by {more} bytes, {over} over the budget");
                refuse(NtStatus::NO_MEMORY, why)
            }
        }
    }

    /// Lets allocations grow.
    pub(super) fn grow(&mut self, adapter: u32, growth: Growth) {
        for (open, end) in growth.0 {
            let index = self.vidmm.memory.allocation_opens[open].allocation;
            let allocation = &mut self.vidmm.memory.allocations[index];
            let more = end.saturating_sub(allocation.size);
            allocation.size += more;
            let wanting: Vec<ProcessId> = allocation.wanting.keys().copied().collect();
            for process in wanting {
                let of = (adapter, SegmentGroup::NonLocal);
                *self.process_mut(process).resident_bytes.entry(of).or_default() += more;
            }
        }
    }
}
