//! Time, and the numbers of VMs and processes.

use serde::{Deserialize, Serialize};

/// Nanoseconds since the daemon started; the daemon's monotonic clock.
pub type Nanos = u64;

/// A VM. 0 is the host itself: local processes without a VM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct VmId(pub u32);

impl VmId {
    pub const HOST: VmId = VmId(0);
}

/// A client process. Numbers are not reused while the daemon lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ProcessId(pub u32);

/// The earlier of two optional times; `None` is never.
#[inline]
pub(crate) fn earliest(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
