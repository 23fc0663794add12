//! Synchronization objects: creation, opens, and the end of them.
//!
//! An *object* has the value. An *open* is one process's handle to it, with a slot of
//! that process's fence memory and flags of its own (NoSignal and NoWait belong to the open, FEN-053).
//! An object lives while it has an open, a share, or a queued packet that names it. How other processes open
//! it: `sharing/`.

use alloc::format;

use d3dkmt::{Handle, SyncObjectFlags, SyncObjectType};
use serde::{Deserialize, Serialize};

use crate::ProcessId;
use crate::error::{Refusal, invalid};
use crate::sync::mapping::Mapping;

/// An open to be made of an object.
#[derive(Clone, Copy, Default)]
pub(crate) struct NewOpen {
    pub flags: SyncObjectFlags,
    /// As [`Open::denied`].
    pub denied: SyncObjectFlags,
    pub mapping: Mapping,
    /// The slot, if another open of the process has one already.
    pub slot: Option<u32>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Open {
    pub process: ProcessId,
    pub handle: Handle,
    pub object: u32,
    /// The device that owns it; legacy objects outlive theirs.
    pub device: Option<u32>,
    /// Adapter of the device that it was opened on: another than the object's for CrossAdapter (FEN-047).
    pub adapter: u32,
    /// The arrival of that adapter in which it was opened.
    pub arrival: u32,
    /// NoSignal and NoWait also for a right that the NT handle lacks (FEN-069).
    pub flags: SyncObjectFlags,
    /// Those of NoSignal and NoWait that are for a right that the NT handle or sync file lacks. What the process shares by
    /// this open lacks it, too.
    pub denied: SyncObjectFlags,
    pub slot: Option<u32>,
    pub mapping: Mapping,
    /// No wait was ever made through it, so its end need not look for one among those of all others. Never so of the
    /// object's oldest open, because a wait for a plain fence does not access it.
    pub is_without_waits: bool,
}

pub(super) const MONITORED_ONLY: SyncObjectFlags = SyncObjectFlags::TOP_OF_PIPELINE
    .union(SyncObjectFlags::NO_SIGNAL)
    .union(SyncObjectFlags::NO_WAIT)
    .union(SyncObjectFlags::NO_SIGNAL_MAX_VALUE_ON_TDR);

/// Whether an object of this type has a value that its process and engines read: a slot, and a device it dies with.
pub(crate) fn is_mapped(object_type: SyncObjectType) -> bool {
    use SyncObjectType as T;
    matches!(object_type, T::MONITORED_FENCE | T::PERIODIC_MONITORED_FENCE | T::NATIVE_FENCE)
}

/// Rules that hold for the flags of any type (FEN-044 to FEN-057).
pub(crate) fn check_flags(object_type: SyncObjectType, flags: SyncObjectFlags) -> Result<(), Refusal> {
    use SyncObjectFlags as F;
    let monitored = matches!(object_type, SyncObjectType::MONITORED_FENCE | SyncObjectType::NATIVE_FENCE);
    if flags.unknown() != 0 {
        return invalid(format!("flags {:#x} have reserved bits set", flags.bits()));
    }
    if flags.contains(F::NT_SECURITY_SHARING) && !flags.contains(F::SHARED) {
        return invalid("NtSecuritySharing needs Shared");
    }
    if flags.contains(F::CROSS_ADAPTER) && !flags.contains(F::SHARED | F::NT_SECURITY_SHARING) {
        return invalid("CrossAdapter needs Shared and NtSecuritySharing");
    }
    if flags.contains(F::NO_SIGNAL | F::NO_WAIT) {
        return invalid("NoSignal and NoWait exclude each other");
    }
    if !monitored && flags.intersects(MONITORED_ONLY) {
        return invalid("TopOfPipeline, NoSignal, NoWait and NoSignalMaxValueOnTdr are for monitored fences");
    }
    if is_mapped(object_type) && flags.contains(F::SHARED) && !flags.contains(F::NT_SECURITY_SHARING) {
        return invalid("a shared monitored fence needs NtSecuritySharing");
    }
    if flags.contains(F::SIGNAL_BY_KMD) && object_type != SyncObjectType::CPU_NOTIFICATION {
        return invalid("SignalByKmd is for CPU_NOTIFICATION");
    }
    Ok(())
}
