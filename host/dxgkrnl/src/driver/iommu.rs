//! Mappings of fence memory for adapters whose GPUs use CPU addresses.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::ProcessId;
use crate::kernel::Kernel;

impl Kernel {
    /// Adds slots of a process's fence memory to the IOMMU mapping, or removes the mapping (`None`), on each adapter
    /// whose GPU uses CPU addresses. That GPU accesses no memory meanwhile (TDR-042).
    pub(crate) fn change_iommu_mapping(&mut self, process: ProcessId, added: Option<u32>) {
        for (ordinal, adapter) in (0..).zip(&self.config.adapters) {
            if adapter.iommu && !self.tdr.stopped_adapters().contains(&ordinal) {
                self.miniport.begin_exclusive_access(ordinal);
                self.miniport.iommu_mapping_changed(ordinal, process, added);
                self.miniport.end_exclusive_access(ordinal);
            }
        }
    }

    /// Maps a process's fence memory anew on an adapter that starts again.
    pub(crate) fn remap_on_iommu(&mut self, adapter: u32, process: ProcessId, slots: u32) {
        if self.config.adapters[adapter as usize].iommu {
            self.miniport.begin_exclusive_access(adapter);
            self.miniport.iommu_mapping_changed(adapter, process, None);
            if slots > 0 {
                self.miniport.iommu_mapping_changed(adapter, process, Some(slots));
            }
            self.miniport.end_exclusive_access(adapter);
        }
    }

    /// Adapters that did not start, by ordinal, and why.
    pub fn start_failures(&self) -> &BTreeMap<u32, String> {
        self.tdr.start_failures()
    }
}
