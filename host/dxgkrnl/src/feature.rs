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

use alloc::format;
use alloc::string::String;
use core::fmt;

use d3dkmt::{FeatureResult, Handle, NtStatus, Reply};
use serde::{Deserialize, Serialize};

use crate::ddi::Miniport;
use crate::error::{CallResult, Refusal, refuse};
use crate::kernel::Kernel;
use crate::{Features, ProcessId};

/// `DXGK_FEATURE_ID`: the category in the top 4 bits, the feature within it in the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FeatureId(pub u32);

impl FeatureId {
    pub const HWSCH: FeatureId = FeatureId(0);
    pub const HWFLIPQUEUE: FeatureId = FeatureId(1);
    pub const LDA_GPUPV: FeatureId = FeatureId(2);
    pub const KMD_SIGNAL_CPU_EVENT: FeatureId = FeatureId(3);
    pub const USER_MODE_SUBMISSION: FeatureId = FeatureId(4);
    pub const SHARE_BACKING_STORE: FeatureId = FeatureId(5);
    pub const PAGE_BASED_MEMORY_MANAGER: FeatureId = FeatureId(32);
    pub const KERNEL_MODE_TESTING: FeatureId = FeatureId(33);
    pub const PAGE_TABLES_64K: FeatureId = FeatureId(34);
    pub const GPUPV_PRESENT_HWQUEUE: FeatureId = FeatureId(35);
    pub const GPUVAIOMMU: FeatureId = FeatureId(36);
    pub const NATIVE_FENCE: FeatureId = FeatureId(37);

    const SUB_ID_BITS: u32 = 28;

    /// `DXGK_FEATURE_CATEGORY`: 0 is the system's own, those of drivers.
    pub const fn category(self) -> u32 {
        self.0 >> Self::SUB_ID_BITS
    }

    /// The number within its category.
    pub const fn sub_id(self) -> u32 {
        self.0 & ((1 << Self::SUB_ID_BITS) - 1)
    }
}

impl fmt::Display for FeatureId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.category() {
            0 => write!(f, "{}", self.sub_id()),
            category => write!(f, "{} of category {category}", self.sub_id()),
        }
    }
}

impl Features {
    /// `DxgkCbIsFeatureEnabled`: whether the system has this. What we do not model, and every other category, is not there.
    pub fn offers(self, feature: FeatureId) -> bool {
        match feature {
            FeatureId::HWSCH => self.contains(Features::HARDWARE_SCHEDULING),
            FeatureId::KMD_SIGNAL_CPU_EVENT => self.contains(Features::KMD_SIGNAL_CPU_EVENT),
            FeatureId::USER_MODE_SUBMISSION => self.contains(Features::USER_MODE_SUBMISSION),
            FeatureId::NATIVE_FENCE => self.contains(Features::NATIVE_FENCE),
            FeatureId::LDA_GPUPV => self.contains(Features::LDA_GPUPV),
            _ => false,
        }
    }
}

/// Those of the system's own that Windows has a number for and that this model does nothing of: their names are known,
/// and they are never enabled.
const NOT_MODELLED: [FeatureId; 7] = [
    FeatureId::HWFLIPQUEUE,
    FeatureId::SHARE_BACKING_STORE,
    FeatureId::PAGE_BASED_MEMORY_MANAGER,
    FeatureId::KERNEL_MODE_TESTING,
    FeatureId::PAGE_TABLES_64K,
    FeatureId::GPUPV_PRESENT_HWQUEUE,
    FeatureId::GPUVAIOMMU,
];

/// The WDDM with which drivers got a feature, as [`crate::AdapterConfig::wddm_version`]; 0 of those that are nowhere said
/// to need one. Windows 11 21H2 and WDDM 3.0 are one release, so an older system is one that lacks the feature (EVT-024).
fn first_wddm_version(feature: FeatureId) -> u32 {
    match feature {
        FeatureId::KMD_SIGNAL_CPU_EVENT => 3000,
        _ => 0,
    }
}

/// Who has a feature. It is there for a process if all of them have it.
#[derive(Clone, Copy)]
struct Holders {
    /// The host's system.
    system: bool,
    /// The guest's own kernel (GPV-029); of a process of the host, the system once more.
    kernel: bool,
    /// The driver of the adapter, which advertises it. What one advertises that is older than the feature is nothing.
    driver: bool,
}

impl<M: Miniport> Kernel<M> {
    fn holders(&self, process: ProcessId, adapter: u32, feature: FeatureId) -> Holders {
        let is_new_enough =
            self.config.adapters[adapter as usize].wddm_version >= first_wddm_version(feature);
        Holders {
            system: self.config.features.offers(feature),
            kernel: self.features_of(process).offers(feature),
            driver: is_new_enough && self.miniport.advertised_features(adapter).contains(&feature),
        }
    }

    /// A call needs a feature, which has this name.
    pub(crate) fn require_feature(
        &self,
        process: ProcessId,
        adapter: u32,
        (feature, name): (FeatureId, &str),
    ) -> Result<(), Refusal> {
        let who = match self.holders(process, adapter, feature) {
            Holders { system: false, .. } => "the system",
            Holders { kernel: false, .. } => "the guest's kernel",
            Holders { driver: false, .. } => "the driver",
            Holders { system: true, kernel: true, driver: true } => return Ok(()),
        };
        let (of_driver, needed) =
            (self.config.adapters[adapter as usize].wddm_version, first_wddm_version(feature));
        let why = if of_driver < needed {
            format!(": the driver is for WDDM {}, it needs {}", Wddm(of_driver), Wddm(needed))
        } else {
            String::new()
        };
        refuse(NtStatus::NOT_SUPPORTED, format!("{who} has no feature {feature} ({name}){why}"))
    }

    /// `D3DKMTIsFeatureEnabled`. Enabled is what everybody has. A kernel that is older than a feature does not know it,
    /// and what it does not know it does not ask its driver for.
    pub(crate) fn is_feature_enabled(&self, process: ProcessId, adapter: Handle, feature: u32) -> CallResult {
        let adapter = self.adapter(process, adapter)?;
        self.require_started(adapter)?;
        let feature = FeatureId(feature);
        let Holders { kernel: supported_on_current_config, driver, .. } =
            self.holders(process, adapter, feature);
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
