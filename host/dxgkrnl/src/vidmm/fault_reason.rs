//! Why an engine finds no memory at an address, for the note of a page fault.

use alloc::format;
use alloc::string::String;

use super::allocation::AllocationOpen;
use super::vaspace::{ADDRESSES_END, AddressSpace, FENCE_MEMORY, LOWEST, PAGE_BYTES, VaPage};
use crate::ProcessId;
use crate::ddi::EngineId;
use crate::kernel::Kernel;

/// An access so far behind the end of a mapping counts as one beyond it.
const BEYOND_MAX: u64 = 16 * PAGE_BYTES;

impl Kernel {
    /// The reason, as far as the address space of the process has one. Engines of an IoMmu adapter have no other than the
    /// process's own. Below the lowest address drivers report faults that have no address.
    pub(crate) fn fault_reason(
        &self,
        process: ProcessId,
        EngineId { adapter, node }: EngineId,
        address: u64,
        is_write: bool,
    ) -> Option<String> {
        let config = self.config.adapters.get(adapter as usize)?;
        if config.iommu || address < LOWEST {
            return None;
        }
        if (FENCE_MEMORY.0..FENCE_MEMORY.1).contains(&address) {
            let is_refused = is_write && !config.nodes[node as usize % config.nodes.len()].writes_fences;
            let refusal = if is_refused { ", which this node does not write" } else { "" };
            return Some(format!("that is fence memory{refusal}"));
        }
        if address >= ADDRESSES_END {
            return Some(format!("the address space ends at {ADDRESSES_END:#x}"));
        }
        let Some(space) = self.processes.get(process)?.address_spaces.get(&adapter) else {
            return Some("nothing is mapped there".into());
        };
        let (mapped, is_seen) = space.mapped_at(address);
        Some(match mapped {
            None => self.nothing_there(space, address),
            Some(VaPage::Of { open, writable, .. }) => self.page_reason(open, is_seen, is_write && !writable),
            Some(VaPage::Zero) if is_seen => "the page is Zero".into(),
            Some(VaPage::Zero) => "the page is Zero, once its paging operation is done".into(),
        })
    }

    fn nothing_there(&self, space: &AddressSpace, address: u64) -> String {
        let below = space.pages_within(address.saturating_sub(BEYOND_MAX), address).next_back();
        if let Some(piece) = below
            && let Some(open) = piece.page.open()
        {
            let (handle, beyond) = (self.vidmm.memory.allocation_opens[open].handle, address - piece.end);
            let distance = if beyond == 0 { "right".into() } else { format!("{beyond:#x} bytes") };
            return format!(
                "nothing is mapped there, {distance} behind what is mapped of allocation {handle}"
            );
        }
        match space.holds(address, 1) {
            true => "nothing is mapped there, in a range that is reserved".into(),
            false => "nothing is mapped there".into(),
        }
    }

    /// The reason for a page of an allocation.
    fn page_reason(&self, open: u32, is_seen: bool, is_refused_write: bool) -> String {
        let AllocationOpen { handle, allocation, .. } = self.vidmm.memory.allocation_opens[open];
        let state = &self.vidmm.memory.allocations[allocation];
        if !self.has_memory(state) {
            return format!("allocation {handle} is memory of process {}, which has ended", state.owner.0);
        }
        if !self.is_brought(state) {
            return match self.vidmm.offered.contains(&open) {
                true => format!("allocation {handle} is mapped there and is offered"),
                false if self.is_wanted(allocation) => {
                    format!("allocation {handle} is mapped there, and its MakeResident is not done yet")
                }
                false => format!("allocation {handle} is mapped there and is not resident"),
            };
        }
        if !is_seen {
            return format!("allocation {handle} is mapped there once the paging operation is done");
        }
        match is_refused_write {
            true => format!("allocation {handle} is mapped there read-only"),
            false => format!("allocation {handle} is mapped and resident there, which is not the cause"),
        }
    }
}
