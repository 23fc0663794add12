//! Features that the system offers drivers (`DXGK_FEATURE_ID`), and what a driver makes of them.
//!
//! ```text
//!   system offers                 driver advertises          adapter
//!   Config::features  --asks-->   what it found there  --->  starts
//!                                 anything else        --->  does not start (SCH-043)
//! ```
//!
//! What a process has of a feature is less: see [`Kernel::is_feature_enabled`].
//!
//! A driver is to ask first (`DxgkCbIsFeatureEnabled`), so advertising what is not there is a mistake of its own. The
//! configuration is what it asks: [`Features::offers`].

use alloc::vec::Vec;

use d3dkmt::FeatureId;

use crate::Features;

impl Features {
    /// `DxgkCbIsFeatureEnabled`: whether the system has this. What we do not model, and every other category, is not there.
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

    /// Those of these that are modelled.
    pub fn of_ids(ids: impl IntoIterator<Item = FeatureId>) -> Features {
        ids.into_iter().filter_map(Features::of).collect()
    }

    /// Their numbers.
    pub fn ids(self) -> Vec<FeatureId> {
        FeatureId::MODELLED.into_iter().filter(|feature| self.offers(*feature)).collect()
    }
}
