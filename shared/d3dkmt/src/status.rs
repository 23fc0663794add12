//! NTSTATUS values.

use core::fmt;

use serde::{Deserialize, Serialize};

/// `NTSTATUS`: status of a D3DKMT call. Unknown values are passed on unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct NtStatus(pub u32);

macro_rules! statuses {
    ($($name:ident = $value:literal),+ $(,)?) => {
        impl NtStatus {
            $(#[doc = concat!("`STATUS_", stringify!($name), "`")]
            pub const $name: NtStatus = NtStatus($value);)+

            /// Every status this crate has a name for.
            pub const NAMED: &'static [NtStatus] = &[$(NtStatus::$name),+];

            /// The name without `STATUS_`, if this crate has one for the value.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0x0000_0000,
    ABANDONED = 0x0000_0080,
    TIMEOUT = 0x0000_0102,
    PENDING = 0x0000_0103,
    DEVICE_BUSY = 0x8000_0011,
    UNSUCCESSFUL = 0xC000_0001,
    NOT_IMPLEMENTED = 0xC000_0002,
    INVALID_HANDLE = 0xC000_0008,
    INVALID_PARAMETER = 0xC000_000D,
    NO_MEMORY = 0xC000_0017,
    ILLEGAL_INSTRUCTION = 0xC000_001D,
    ACCESS_DENIED = 0xC000_0022,
    BUFFER_TOO_SMALL = 0xC000_0023,
    OBJECT_TYPE_MISMATCH = 0xC000_0024,
    OBJECT_NAME_INVALID = 0xC000_0033,
    OBJECT_NAME_NOT_FOUND = 0xC000_0034,
    OBJECT_NAME_COLLISION = 0xC000_0035,
    NOT_SUPPORTED = 0xC000_00BB,
    INTERNAL_ERROR = 0xC000_00E5,
    DEVICE_REMOVED = 0xC000_02B6,
    GRAPHICS_ALLOCATION_BUSY = 0xC01E_0102,
}

impl NtStatus {
    /// `NT_SUCCESS`: TIMEOUT, PENDING and ABANDONED count as success codes.
    pub const fn is_success(self) -> bool {
        (self.0 as i32) >= 0
    }
}

impl fmt::Display for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "STATUS_{name}"),
            None => write!(f, "{:#010X}", self.0),
        }
    }
}

impl fmt::Debug for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
