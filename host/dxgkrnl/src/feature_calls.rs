//! `D3DKMTIsFeatureEnabled`: which features an adapter has, and since which version.

use crate::ProcessId;
use crate::error::{CallResult, Refusal, refuse};
use crate::feature::first_wddm_version;
use crate::kernel::Kernel;
use alloc::format;
use alloc::string::String;
use core::fmt;
use d3dkmt::{FeatureId, FeatureResult, Handle, NtStatus, Reply};

/// Features of the system that Windows has a number for and that are not modelled: they are known, and never enabled.
const NOT_MODELLED: [FeatureId; 7] = [
    FeatureId::HWFLIPQUEUE,
    FeatureId::SHARE_BACKING_STORE,
    FeatureId::PAGE_BASED_MEMORY_MANAGER,
    FeatureId::KERNEL_MODE_TESTING,
    FeatureId::PAGE_TABLES_64K,
    FeatureId::GPUPV_PRESENT_HWQUEUE,
    FeatureId::GPUVAIOMMU,
];

/// Which parties have a feature. It is enabled for a process if all of them have it.
#[derive(Clone, Copy)]
struct SupportedBy {
    /// The host's system.
    system: bool,
    /// The guest's own kernel (GPV-029); of a process of the host, the system once more.
    kernel: bool,
    /// The driver of the adapter, which advertises it and is not older than the feature.
    driver: bool,
}

impl Kernel {
    fn supported_by(&self, process: ProcessId, adapter: u32, feature: FeatureId) -> SupportedBy {
        let is_new_enough = self.driver_is_new_enough(adapter, feature);
        SupportedBy {
            system: self.config.features.offers(feature),
            kernel: self.features_of(process).offers(feature),
            driver: is_new_enough && self.miniport.advertised_features(adapter).contains(&feature),
        }
    }

    /// Whether the driver of an adapter is for a WDDM that has a feature.
    pub(crate) fn driver_is_new_enough(&self, adapter: u32, feature: FeatureId) -> bool {
        self.config.adapters[adapter as usize].wddm_version >= first_wddm_version(feature)
    }

    /// The end of a refusal's sentence, if the driver is too old for a feature; else nothing.
    pub(crate) fn age_of_driver(&self, adapter: u32, feature: FeatureId) -> String {
        if self.driver_is_new_enough(adapter, feature) {
            return String::new();
        }
        let of_driver = self.config.adapters[adapter as usize].wddm_version;
        format!(
            ": the driver is for WDDM {}, it needs {}",
            Wddm(of_driver),
            Wddm(first_wddm_version(feature))
        )
    }

    /// Refuses a call that needs a feature, given with its name, which the process does not have.
    pub(crate) fn require_feature(
        &self,
        process: ProcessId,
        adapter: u32,
        (feature, name): (FeatureId, &str),
    ) -> Result<(), Refusal> {
        let missing_from = match self.supported_by(process, adapter, feature) {
            SupportedBy { system: false, .. } => "the system",
            SupportedBy { kernel: false, .. } => "the guest's kernel",
            SupportedBy { driver: false, .. } => "the driver",
            SupportedBy { system: true, kernel: true, driver: true } => return Ok(()),
        };
        let why = self.age_of_driver(adapter, feature);
        refuse(NtStatus::NOT_SUPPORTED, format!("{missing_from} has no feature {feature} ({name}){why}"))
    }

    /// `D3DKMTIsFeatureEnabled`. A feature is enabled if all parties have it. A kernel that is older than a feature
    /// does not know it, and does not query its driver for it.
    pub(crate) fn is_feature_enabled(&self, process: ProcessId, adapter: Handle, feature: u32) -> CallResult {
        let adapter = self.started_adapter(process, adapter)?;
        let feature = FeatureId(feature);
        let SupportedBy { kernel: supported_on_current_config, driver, .. } =
            self.supported_by(process, adapter, feature);
        let known = supported_on_current_config || NOT_MODELLED.contains(&feature);
        let supported_by_driver = known && driver;
        let enabled = supported_by_driver && supported_on_current_config;
        Ok(Reply::Feature(FeatureResult {
            version: u16::from(enabled),
            enabled,
            known,
            supported_by_driver,
            supported_on_current_config,
        }))
    }
}

/// A version of WDDM as people write it.
struct Wddm(u32);

impl fmt::Display for Wddm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 / 100 % 10)
    }
}
