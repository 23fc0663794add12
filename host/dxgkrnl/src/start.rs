//! What a driver may not advertise: its adapter's start fails, and the adapter counts as never started.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::ddi::Miniport;
use crate::kernel::Kernel;
use crate::{AdapterConfig, Config, Features, VidSchCaps};

/// Why this adapter cannot be started, if it cannot.
fn start_failure(config: &Config, adapter: &AdapterConfig) -> Option<&'static str> {
    let native = adapter.caps.contains(VidSchCaps::NATIVE_GPU_FENCE);
    if native && !config.features.contains(Features::NATIVE_FENCE) {
        return Some("it advertises NativeGpuFence without the feature 37 of the system (FEN-106)");
    }
    None
}

/// The adapters of a configuration whose start fails, by ordinal, and why.
pub(crate) fn failures(config: &Config) -> BTreeMap<u32, String> {
    let failure = |(ordinal, adapter)| Some((ordinal, start_failure(config, adapter)?.into()));
    (0..).zip(&config.adapters).filter_map(failure).collect()
}

impl<M: Miniport> Kernel<M> {
    /// Adapters that never started, by ordinal, and why: nobody can open them.
    pub fn start_failures(&self) -> &BTreeMap<u32, String> {
        &self.start_failures
    }
}
