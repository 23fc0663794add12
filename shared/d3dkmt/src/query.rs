//! `D3DKMTQueryAdapterInfo`: numbers of queries, and member offsets of a structure that both sides read.

use core::fmt;

/// The version of a driver, four numbers of 16 bits, as `D3DKMT_KMD_DRIVER_VERSION` and `D3DKMT_UMD_DRIVER_VERSION`
/// have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DriverVersion(pub u64);

impl DriverVersion {
    /// That of a driver that was not updated yet.
    pub const FIRST: DriverVersion = DriverVersion(1 << 48);

    /// Reads four numbers with points between them.
    pub fn parse(text: &str) -> Option<DriverVersion> {
        let mut version = 0;
        let mut parts = 0;
        for part in text.split('.') {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            let number: u16 = part.parse().ok().filter(|_| is_number)?;
            version = version << 16 | u64::from(number);
            parts += 1;
        }
        (parts == 4).then_some(DriverVersion(version))
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |shift: u32| (self.0 >> shift) as u16;
        write!(f, "{}.{}.{}.{}", part(48), part(32), part(16), part(0))
    }
}

/// `KMTQUERYADAPTERINFOTYPE`, the ones that are answered.
pub mod kind {
    pub const UM_DRIVER_PRIVATE: u32 = 0;
    pub const DRIVER_VERSION: u32 = 13;
    pub const ADAPTER_TYPE: u32 = 15;
    pub const UMD_DRIVER_VERSION: u32 = 18;
    pub const PHYSICAL_ADAPTER_COUNT: u32 = 30;
    pub const PHYSICAL_ADAPTER_DEVICE_IDS: u32 = 31;
    pub const QUERY_REGISTRY: u32 = 48;
    pub const KMD_DRIVER_VERSION: u32 = 49;
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
