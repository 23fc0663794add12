//! Features by their published numbers.

use core::fmt;

use serde::{Deserialize, Serialize};

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

    /// The features that this release models. The others are known by name only.
    pub const MODELLED: [FeatureId; 5] = [
        FeatureId::HWSCH,
        FeatureId::LDA_GPUPV,
        FeatureId::KMD_SIGNAL_CPU_EVENT,
        FeatureId::USER_MODE_SUBMISSION,
        FeatureId::NATIVE_FENCE,
    ];

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
