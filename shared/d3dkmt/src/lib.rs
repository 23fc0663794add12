//! Types of the D3DKMT interface, shared by guest, wire and host: handles, statuses, object
//! types, flags, limits, and the closed enums [`Call`] and [`Reply`].
//!
//! Numbers that come from outside (a status, an object type, a flag word) are kept unchanged:
//! open enums and flag words that retain unknown bits. Only the kernel model decides what is refused.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[macro_use]
mod table;

mod allocation;
pub mod allocation_data;
mod call;
pub mod counts;
pub mod escape;
mod feature;
mod flags;
mod handle;
mod handles;
pub mod isa;
pub mod limits;
pub mod list_escape;
mod lists;
pub mod names;
mod object;
mod parameters;
pub mod query;
mod reply;
mod status;

pub use allocation::{AllocationInfo, CreateAllocation, ResourceInfo, StandardAllocation};
pub use call::{Call, CallEffect, CallOf, Reply, ReplyKind};
pub use escape::{CpuEventUsage, EscapeFlags};
pub use feature::FeatureId;
pub use flags::access;
pub use flags::{
    CreateAllocationFlags, CreateContextFlags, DestroyAllocationFlags, HwQueueFlags, KeyedMutexFlags,
    SignalFlags, SyncObjectFlags, WaitFromCpuFlags,
};
pub use handle::{EventId, GuestEvent, Handle, HandleKind, Luid, ShareToken, WakeTarget};
pub use lists::{Handles, Values};
pub use object::{DeviceExecutionState, SyncObjectInfo, SyncObjectType, device_state_type};
pub use parameters::{GpuSignal, GpuVaOperation, RuntimeBuffer};
pub use reply::{
    AcquireOutcome, Adapter, CreatedSyncObject, FeatureResult, PageFaultState, ReplyValue, ReplyValueKind,
    WaitOutcome,
};
pub use status::NtStatus;

#[cfg(test)]
mod tests;
