//! What an adapter has to bring along to be started (`DxgkDdiStartDevice` and the caps that follow it).
//!
//! An adapter that fails is refused to users like one that is stopped; [`Kernel::start_failures`] says why.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use crate::ddi::{Miniport, PerEngineTdrDdis};
use crate::kernel::Kernel;
use crate::{AdapterConfig, Config, VidSchCaps};

/// Which caps need which others (SCH-009).
const PREREQUISITES: [(VidSchCaps, VidSchCaps); 3] = [
    (VidSchCaps::PREEMPTION_AWARE, VidSchCaps::MULTI_ENGINE_AWARE),
    (VidSchCaps::NO_DMA_PATCHING, VidSchCaps::MULTI_ENGINE_AWARE.union(VidSchCaps::PREEMPTION_AWARE)),
    (VidSchCaps::CANCEL_COMMAND_AWARE, VidSchCaps::MULTI_ENGINE_AWARE),
];

/// Why this adapter does not start, if it does not.
fn failure(adapter: &AdapterConfig, ddis: PerEngineTdrDdis) -> Option<String> {
    for (cap, needed) in PREREQUISITES {
        if adapter.caps.contains(cap) && !adapter.caps.contains(needed) {
            return Some(format!("VidSchCaps {cap:?} needs {needed:?}"));
        }
    }
    if adapter.caps.contains(VidSchCaps::SUPPORT_PER_ENGINE_TDR) && !ddis.is_all() {
        let missing = PerEngineTdrDdis::all() - ddis;
        return Some(format!("SupportPerEngineTDR stands on DDIs that the driver has not: {missing:?}"));
    }
    None
}

/// The adapters of a configuration that do not start, with the reason.
pub(crate) fn failures(config: &Config, miniport: &impl Miniport) -> BTreeMap<u32, String> {
    let ddis = miniport.per_engine_tdr_ddis();
    let of_adapter = |(ordinal, adapter)| Some((ordinal, failure(adapter, ddis)?));
    (0..).zip(&config.adapters).filter_map(of_adapter).collect()
}

impl<M: Miniport> Kernel<M> {
    /// Adapters that did not start, by ordinal, and why.
    pub fn start_failures(&self) -> &BTreeMap<u32, String> {
        &self.start_failures
    }
}
