//! Checks that an adapter has to pass to start (`DxgkDdiStartDevice` and the caps that follow it).
//!
//! Client processes cannot use an adapter that fails them, as if it were stopped; [`crate::Kernel::start_failures`]
//! has the reason.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use crate::ddi::{Miniport, PerEngineTdrDdis, SchedulingLogBuffer};
use crate::kernel::Kernel;
use crate::{AdapterConfig, Config, Features, VidSchCaps};
use d3dkmt::FeatureId;

/// Which caps need which others (SCH-009).
pub(super) const PREREQUISITES: [(VidSchCaps, VidSchCaps); 3] = [
    (VidSchCaps::PREEMPTION_AWARE, VidSchCaps::MULTI_ENGINE_AWARE),
    (VidSchCaps::NO_DMA_PATCHING, VidSchCaps::MULTI_ENGINE_AWARE.union(VidSchCaps::PREEMPTION_AWARE)),
    (VidSchCaps::CANCEL_COMMAND_AWARE, VidSchCaps::MULTI_ENGINE_AWARE),
];

/// Why this adapter does not start; `None` if it starts.
pub(super) fn failure(
    features: Features,
    adapter: &AdapterConfig,
    ddis: PerEngineTdrDdis,
    advertised: &[FeatureId],
) -> Option<String> {
    if let Some(feature) = advertised.iter().find(|feature| !features.offers(**feature)) {
        return Some(format!(
            "the driver advertises feature {feature}, which the system does not offer (SCH-043)"
        ));
    }
    let native = adapter.caps.contains(VidSchCaps::NATIVE_GPU_FENCE);
    if native && !features.contains(Features::NATIVE_FENCE) {
        return Some(String::from("NativeGpuFence needs feature 37 of the system (FEN-106)"));
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
        return Some(format!(
            "SupportPerEngineTDR needs DDIs that the driver does not implement: {missing:?}"
        ));
    }
    None
}

/// The adapters of a configuration that do not start, with the reason.
pub(crate) fn failures(config: &Config, miniport: &dyn Miniport) -> BTreeMap<u32, String> {
    let of_adapter = |(ordinal, adapter)| {
        let ddis = miniport.per_engine_tdr_ddis(ordinal);
        let advertised = miniport.advertised_features(ordinal);
        Some((ordinal, failure(config.features, adapter, ddis, &advertised)?))
    };
    (0..).zip(&config.adapters).filter_map(of_adapter).collect()
}

/// Gives each engine of hardware scheduling of an adapter that starts its scheduling log (SCH-044).
pub(crate) fn set_scheduling_logs(config: &Config, adapter: u32, miniport: &mut dyn Miniport) {
    let Some(hardware) = config.adapters.get(adapter as usize) else { return };
    if !config.features.contains(Features::HARDWARE_SCHEDULING) {
        return;
    }
    for (engine, _) in hardware.engines(adapter).filter(|(_, node)| node.hw_queues) {
        miniport.set_scheduling_log_buffer(engine, SchedulingLogBuffer::new());
    }
}

impl Kernel {
    /// The same of an adapter that starts again.
    pub(crate) fn set_scheduling_logs(&mut self, adapter: u32) {
        set_scheduling_logs(&self.config, adapter, &mut *self.miniport);
    }
}
