//! Features that the system offers drivers (`DXGK_FEATURE_ID`).
//!
//! ```text
//!   system offers                 driver advertises          adapter
//!   Config::features  --asks-->   what it found there  --->  starts
//!                                 anything else        --->  does not start (SCH-043)
//! ```
//!
//! A process needs the feature in its guest's kernel too: see [`crate::Kernel::is_feature_enabled`].
//!
//! A driver must query a feature first (`DxgkCbIsFeatureEnabled`, here [`Features::offers`] of the configuration), so
//! a driver that advertises a missing feature is at fault.

use alloc::vec::Vec;

use d3dkmt::FeatureId;

use crate::Features;

impl Features {
    /// `DxgkCbIsFeatureEnabled`: whether the system has this feature. It has none that is not modelled, and no other
    /// category.
    pub fn offers(self, feature: FeatureId) -> bool {
        Features::of(feature).is_some_and(|bit| self.contains(bit))
    }

    fn of(feature: FeatureId) -> Option<Features> {
        match feature {
            FeatureId::HWSCH => Some(Features::HARDWARE_SCHEDULING),
            FeatureId::KMD_SIGNAL_CPU_EVENT => Some(Features::KMD_SIGNAL_CPU_EVENT),
            FeatureId::USER_MODE_SUBMISSION => Some(Features::USER_MODE_SUBMISSION),
            FeatureId::NATIVE_FENCE => Some(Features::NATIVE_FENCE),
            FeatureId::LDA_GPUPV => Some(Features::LDA_GPUPV),
            _ => None,
        }
    }

    /// The modelled features among these.
    pub fn of_ids(ids: impl IntoIterator<Item = FeatureId>) -> Features {
        ids.into_iter().filter_map(Features::of).collect()
    }

    /// The numbers of these features.
    pub fn ids(self) -> Vec<FeatureId> {
        FeatureId::MODELLED.into_iter().filter(|feature| self.offers(*feature)).collect()
    }
}

/// The first WDDM version whose drivers have a feature, as [`crate::AdapterConfig::wddm_version`]; 0 if no document
/// names one. Windows 11 21H2 and WDDM 3.0 are one release, so an older system is one that lacks the feature (EVT-024).
pub(crate) fn first_wddm_version(feature: FeatureId) -> u32 {
    match feature {
        FeatureId::HWSCH => 2400,
        FeatureId::KMD_SIGNAL_CPU_EVENT => 3000,
        FeatureId::NATIVE_FENCE | FeatureId::USER_MODE_SUBMISSION => 3200,
        _ => 0,
    }
}
