//! `D3DKMTQueryAdapterInfo`: numbers of queries, and member offsets of a structure that both sides read.

/// `KMTQUERYADAPTERINFOTYPE`, the ones that are answered.
pub mod kind {
    pub const UM_DRIVER_PRIVATE: u32 = 0;
    pub const DRIVER_VERSION: u32 = 13;
    pub const ADAPTER_TYPE: u32 = 15;
    pub const PHYSICAL_ADAPTER_COUNT: u32 = 30;
    pub const PHYSICAL_ADAPTER_DEVICE_IDS: u32 = 31;
    pub const QUERY_REGISTRY: u32 = 48;
    pub const DRIVER_VERSION_RENDER: u32 = 56;
    pub const ADAPTER_TYPE_RENDER: u32 = 57;
    pub const DRIVER_DESCRIPTION: u32 = 65;
    pub const WDDM_2_7_CAPS: u32 = 70;
}

/// `D3DDDI_QUERYREGISTRY_INFO`: offsets of its members.
pub mod registry {
    /// `ValueName`: UTF-16, ends at a NUL.
    pub const NAME: core::ops::Range<usize> = 8..528;
    pub const VALUE_TYPE: usize = 528;
    pub const PHYSICAL_ADAPTER: usize = 532;
    pub const OUTPUT_SIZE: usize = 536;
    pub const STATUS: usize = 540;
    /// Where the value begins.
    pub const OUTPUT: usize = 544;

    /// `D3DDDI_QUERYREGISTRY_TYPE`.
    pub mod kind {
        pub const SERVICE_KEY: u32 = 0;
        pub const ADAPTER_KEY: u32 = 1;
        pub const DRIVER_STORE_PATH: u32 = 2;
        pub const DRIVER_IMAGE_PATH: u32 = 3;
    }

    /// `D3DDDI_QUERYREGISTRY_STATUS`.
    pub mod status {
        pub const SUCCESS: u32 = 0;
        pub const BUFFER_OVERFLOW: u32 = 1;
        pub const FAIL: u32 = 2;
    }
}
