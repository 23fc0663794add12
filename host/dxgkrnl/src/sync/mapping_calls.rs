//! The addresses at which CPUs and GPUs find fences. See `mapping.rs` for the rules.

use alloc::format;
use alloc::string::String;

use d3dkmt::{SyncObjectFlags, SyncObjectType};

use super::mapping::Mapping;
use crate::ProcessId;
use crate::ddi::EngineId;
use crate::effects::Effects;
use crate::error::{Refusal, invalid};
use crate::kernel::Kernel;

impl Kernel {
    /// Refuses an EngineAffinity that names a physical adapter which is not linked.
    pub(crate) fn check_affinity(
        &self,
        process: ProcessId,
        adapter: u32,
        engine_affinity: u32,
    ) -> Result<(), Refusal> {
        let linked = self.physical_adapters(process, adapter);
        if engine_affinity & !all_of(linked) == 0 {
            return Ok(());
        }
        invalid(format!(
            "EngineAffinity {engine_affinity:#x} names a physical adapter that is not linked: there are {linked}"
        ))
    }

    /// The address of a process's slot for engines of this adapter.
    pub(crate) fn engine_address(&self, process: ProcessId, adapter: u32, slot: u32) -> u64 {
        let iommu = self.config.adapters[adapter as usize].iommu;
        self.process(process).slots.engine_address(slot, iommu)
    }

    /// The CPU address of slot 0 in a process: engines of IoMmu adapters use its fences at their CPU addresses.
    pub fn fence_address(&self, process: ProcessId) -> Option<u64> {
        self.processes.get(process).map(|process| process.slots.cpu_base())
    }

    /// Adds fence slots to a process.
    pub(crate) fn fence_memory_added(&mut self, process: ProcessId, slots: u32, effects: &mut Effects) {
        if self.processes.get(process).is_none() {
            return;
        }
        self.change_iommu_mapping(process, Some(slots));
        let all = &mut self.process_mut(process).slots;
        let had_status = all.status().is_some();
        all.add(slots);
        if !had_status {
            self.store_status(process, effects);
        }
    }

    /// Sets the address at which a process has mapped its fence memory, before its first call.
    pub(crate) fn fence_memory_mapped(&mut self, process: ProcessId, address: u64, effects: &mut Effects) {
        let Some(state) = self.processes.get_mut(process) else { return };
        if !state.slots.map_at(address) {
            let text = format!(
                "fence memory cannot be mapped at {address:#x}: no process has it there, or it has fences already"
            );
            self.note(process, text, effects);
        }
    }

    /// The open of a process's fence that an engine finds at an address, whatever its access.
    pub(crate) fn open_at(&self, engine: EngineId, process: ProcessId, address: u64) -> Option<u32> {
        let owner = self.processes.get(process)?;
        let adapter = self.config.adapters.get(engine.adapter as usize)?;
        // Each adapter has an address space of its own.
        self.open_on_adapter(owner.slots.owner_at(address, adapter.iommu)?, engine.adapter)
    }

    /// The open whose value an engine finds at this address, if it may write it; or why not.
    pub(crate) fn open_to_write(
        &self,
        engine: EngineId,
        process: ProcessId,
        address: u64,
    ) -> Result<u32, String> {
        let id = self.open_to_read(engine, process, address)?;
        let open = &self.sync.opens[id];
        if open.flags.contains(SyncObjectFlags::NO_SIGNAL) && !self.is_paging_write(open, engine) {
            return Err(format!("{} has NoSignal", open.handle));
        }
        if self.sync.objects[open.object].object_type == SyncObjectType::PERIODIC_MONITORED_FENCE {
            return Err(format!("{} is a periodic fence", open.handle));
        }
        Ok(id)
    }

    /// The same for a read: a fence is mapped for both (FEN-007).
    pub(crate) fn open_to_read(
        &self,
        engine: EngineId,
        process: ProcessId,
        address: u64,
    ) -> Result<u32, String> {
        let owner = self.processes.get(process).ok_or("its process is gone")?;
        let adapter = self.config.adapters.get(engine.adapter as usize).ok_or("there is no such adapter")?;
        let space = owner.address_spaces.get(&engine.adapter);
        let page = || space.and_then(|space| space.describe(address)).unwrap_or("no fence is mapped there");
        let id = self.open_at(engine, process, address).ok_or_else(page)?;
        let open = &self.sync.opens[id];
        self.require_present_open(id, open.object).map_err(|refusal| refusal.why)?;
        if open.flags.contains(SyncObjectFlags::NO_GPU_ACCESS) {
            return Err(format!("{} has NoGPUAccess", open.handle));
        }
        let physical = adapter.physical_adapter_of(engine.node);
        let linked = self.physical_adapters(process, engine.adapter);
        if self.mapped_on(open.mapping, linked) & 1u32.checked_shl(physical).unwrap_or(0) == 0 {
            return Err(format!(
                "{} is not mapped on physical adapter {physical} (EngineAffinity {:#x})",
                open.handle, open.mapping.engine_affinity
            ));
        }
        if let Some(value) = open.mapping.pending {
            return Err(format!("{} is mapped when the paging fence has {value}", open.handle));
        }
        Ok(id)
    }

    fn mapped_on(&self, mapping: Mapping, linked: u32) -> u32 {
        if mapping.engine_affinity == 0 { all_of(linked) } else { mapping.engine_affinity }
    }
}

/// Mask of all `linked` physical adapters, one bit each.
fn all_of(linked: u32) -> u32 {
    1u32.checked_shl(linked).map_or(u32::MAX, |bit| bit - 1)
}
