//! Types of the D3DKMT interface, shared by guest, wire and host: handles, statuses, object
//! types, flags, limits, and the closed enums [`Call`] and [`Reply`].
//!
//! Numbers that come from outside (a status, an object type, a flag word) are kept unchanged:
//! open enums and flag words that retain unknown bits. Only the kernel model decides what is refused.
//!
//! A command buffer for the simulated engines, and a status from outside:
//!
//! ```
//! use d3dkmt::isa::{self, CommandBuffer, Packet};
//! use d3dkmt::NtStatus;
//!
//! let packets = [Packet::Busy { duration_ns: 20_000 }, Packet::FenceWrite { gpu_address: 0x1000, value: 7 }];
//! let private_data = isa::encode(&packets);
//! assert_eq!(isa::decode(&private_data), Ok(CommandBuffer::Packets(packets.to_vec())));
//! // A buffer in the format of another driver is no error: it counts as work of a usual length.
//! assert_eq!(isa::decode(b"vendor bytes"), Ok(CommandBuffer::Opaque(12)));
//!
//! assert_eq!(NtStatus::INVALID_PARAMETER.to_string(), "STATUS_INVALID_PARAMETER");
//! assert_eq!(NtStatus(0xC000_9999).to_string(), "0xC0009999");
//! ```
//!
//! # Stability
//!
//! The API of this crate is 0.x: a minor version may change it, and the changelog says so. Stable are the numbers that programs see: statuses,
//! flags, layouts and handles of the C ABI, and the packets of [`isa`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[macro_use]
mod table;

mod allocation;
pub mod allocation_data;
mod call;
pub mod calls;
pub mod counts;
pub mod escape;
mod feature;
mod flags;
pub mod gpu_va;
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
pub mod random;
mod reply;
mod status;
pub mod text;

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
