//! The C interface of a kernel-mode driver, declared once: `ddis.rs` and `callbacks.rs` have a row for each function.
//!
//! From the rows follow the C structs, the tables of function pointers, the messages between daemon and driver process,
//! and the header `dxgk_miniport.h`. Rows are only appended: the number of a row is part of traces.
#![allow(
    non_camel_case_types,
    non_snake_case,
    clippy::upper_case_acronyms,
    reason = "these are the names that C has"
)]

mod callbacks;
mod ddis;
mod declare;
mod header;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use callbacks::*;
pub use ddis::*;
pub use declare::{Field, Row};
pub use header::{header, table_of_ddis};

pub type UINT = u32;
pub type UINT64 = u64;
pub type NTSTATUS = i32;

/// Version of the interface: a driver of another version is refused. Appended functions do not change it; the tables'
/// sizes tell them apart.
pub const DXGK_MINIPORT_VERSION: UINT = 1;
/// A handle that names nothing.
pub const DXGK_NO_HANDLE: UINT64 = UINT64::MAX;
/// A due time that never comes.
pub const SIM_NEVER: UINT64 = UINT64::MAX;

pub const STATUS_SUCCESS: NTSTATUS = 0;
pub const STATUS_PENDING: NTSTATUS = 0x103;
pub const STATUS_UNSUCCESSFUL: NTSTATUS = 0xC000_0001_u32 as i32;
pub const STATUS_INVALID_PARAMETER: NTSTATUS = 0xC000_000D_u32 as i32;
pub const STATUS_INVALID_DEVICE_REQUEST: NTSTATUS = 0xC000_0010_u32 as i32;
pub const STATUS_NO_MEMORY: NTSTATUS = 0xC000_0017_u32 as i32;
pub const STATUS_INSUFFICIENT_RESOURCES: NTSTATUS = 0xC000_009A_u32 as i32;
pub const STATUS_NOT_SUPPORTED: NTSTATUS = 0xC000_00BB_u32 as i32;

/// A pointer of the driver's process. In a message it is nothing: the bytes that it points to travel beside it.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pointer(pub usize);

impl Serialize for Pointer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for Pointer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Pointer(0))
    }
}

/// `DXGK_ALLOCATIONINFO`: an element of `pAllocationInfo`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DXGK_ALLOCATIONINFO {
    pub pPrivateDriverData: Pointer,
    pub PrivateDriverDataSize: UINT64,
    pub hAllocation: UINT64,
    pub Size: UINT64,
    pub Alignment: UINT,
    pub Flags: UINT,
}

impl DXGK_ALLOCATIONINFO {
    /// Flags, in: memory of the process.
    pub const SYSTEM_MEMORY: UINT = 1;
    /// Flags, out.
    pub const LOCAL_SEGMENT: UINT = 2;
    pub const CPU_VISIBLE: UINT = 4;
}

/// `DXGK_NATIVEFENCEVALUE`: an element of a list of native fence values.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DXGK_NATIVEFENCEVALUE {
    pub hGlobalNativeFence: UINT64,
    pub Value: UINT64,
    pub Flags: UINT64,
}

impl DXGK_NATIVEFENCEVALUE {
    pub const ALWAYS_SIGNALED: UINT64 = 1;
    pub const NOTIFICATION_ONLY: UINT64 = 2;

    /// Its bytes in C.
    pub fn bytes(self) -> impl Iterator<Item = u8> {
        [self.hGlobalNativeFence, self.Value, self.Flags].into_iter().flat_map(u64::to_ne_bytes)
    }
}

#[cfg(test)]
mod tests;
