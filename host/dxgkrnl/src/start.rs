//! What an adapter has to bring along to be started (`DxgkDdiStartDevice` and the caps that follow it).
//!
//! An adapter that fails is refused to users like one that is stopped; [`Kernel::start_failures`] says why.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use crate::ddi::{Miniport, PerEngineTdrDdis, SchedulingLogBuffer};
use crate::kernel::Kernel;
use crate::{AdapterConfig, Config, FeatureId, Features, ProcessId, VidSchCaps};

/// Which caps need which others (SCH-009).
const PREREQUISITES: [(VidSchCaps, VidSchCaps); 3] = [
    (VidSchCaps::PREEMPTION_AWARE, VidSchCaps::MULTI_ENGINE_AWARE),
    (VidSchCaps::NO_DMA_PATCHING, VidSchCaps::MULTI_ENGINE_AWARE.union(VidSchCaps::PREEMPTION_AWARE)),
    (VidSchCaps::CANCEL_COMMAND_AWARE, VidSchCaps::MULTI_ENGINE_AWARE),
];

/// Why this adapter does not start, if it does not.
fn failure(
    features: Features,
    adapter: &AdapterConfig,
    ddis: PerEngineTdrDdis,
    advertised: &[FeatureId],
) -> Option<String> {
    if let Some(feature) = advertised.iter().find(|feature| !features.offers(**feature)) {
        return Some(format!("the driver advertises feature {feature}, which the system has not (SCH-043)"));
    }
    let native = adapter.caps.contains(VidSchCaps::NATIVE_GPU_FENCE);
    if native && !features.contains(Features::NATIVE_FENCE) {
        return Some(String::from("NativeGpuFence without the feature 37 of the system (FEN-106)"));
    }
    for (cap, needed) in PREREQUISITES {
        if adapter.caps.contains(cap) && !adapter.caps.contains(needed) {
            return Some(format!("VidSchCaps {cap:?} needs {needed:?}"));
        }
    }
    if let Some(node) = adapter.paging_node.filter(|node| *node as usize >= adapter.nodes.len()) {
        return Some(format!("PagingNode {node}: the adapter has {} nodes", adapter.nodes.len()));
    }
    if adapter.caps.contains(VidSchCaps::SUPPORT_PER_ENGINE_TDR) && !ddis.is_all() {
        let missing = PerEngineTdrDdis::all() - ddis;
        return Some(format!("SupportPerEngineTDR stands on DDIs that the driver has not: {missing:?}"));
    }
    None
}

/// The adapters of a configuration that do not start, with the reason.
pub(crate) fn failures(config: &Config, miniport: &impl Miniport) -> BTreeMap<u32, String> {
    let of_adapter = |(ordinal, adapter)| {
        let ddis = miniport.per_engine_tdr_ddis(ordinal);
        let advertised = miniport.advertised_features(ordinal);
        Some((ordinal, failure(config.features, adapter, ddis, &advertised)?))
    };
    (0..).zip(&config.adapters).filter_map(of_adapter).collect()
}

/// Each engine of hardware scheduling gets its scheduling log (SCH-044).
pub(crate) fn set_scheduling_logs(config: &Config, miniport: &mut impl Miniport) {
    if !config.features.contains(Features::HARDWARE_SCHEDULING) {
        return;
    }
    for (ordinal, adapter) in (0..).zip(&config.adapters) {
        for (engine, _) in adapter.engines(ordinal).filter(|(_, node)| node.hw_queues) {
            miniport.set_scheduling_log_buffer(engine, SchedulingLogBuffer::new());
        }
    }
}

impl<M: Miniport> Kernel<M> {
    /// The fence memory of a process is mapped for adapters whose GPUs use CPU addresses, more of it or no more:
    /// in a frame in which their GPUs touch nothing (TDR-042).
    pub(crate) fn change_iommu_mapping(&mut self, process: ProcessId, added: Option<u32>) {
        for (ordinal, adapter) in (0..).zip(&self.config.adapters) {
            if adapter.iommu && !self.stopped_adapters.contains(&ordinal) {
                self.miniport.begin_exclusive_access(ordinal);
                self.miniport.iommu_mapping_changed(ordinal, process, added);
                self.miniport.end_exclusive_access(ordinal);
            }
        }
    }

    /// Adapters that did not start, by ordinal, and why.
    pub fn start_failures(&self) -> &BTreeMap<u32, String> {
        &self.start_failures
    }
}
