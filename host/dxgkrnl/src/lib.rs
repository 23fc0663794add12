//! The model of the WDDM graphics kernel (dxgkrnl), as a value.
//!
//! [`Kernel::handle`] receives the time and one [`Input`], and appends the [`Effects`] that the host has to carry out.
//! The kernel has no clock, no socket, no thread and no hash iteration; it never blocks and never fails. Laws:
//!
//! - the same config and the same `(now, Input)` list give the same effects and the same snapshot;
//! - one answer for each call with a request number, none for a one-way call. The answer comes in the same step, except
//!   for an escape that waits for an idle GPU;
//! - a wait latches on any value transition that happens after it was queued, never on one before;
//! - memory is write-only: the kernel keeps fence values itself and asks for stores;
//! - no guest input can panic it: bad input gets an NTSTATUS and a note that says why.
//!
//! Start reading at [`kernel`]. Each part is a folder with private tables: `process` has handles and devices; `sync`
//! objects, signals and waits; `sharing` global handles, NT handles and names; `vidmm` allocations and address spaces;
//! `vidsch` contexts, queues and engines; `tdr` the recovery from timeouts and faults; `events` CPU events and periodic
//! notifications; `native` native fences; `guests` VMs; `driver` the port to the miniport; `history` destroyed objects;
//! `view` snapshots and explanations. `ddi` is the interface that a kernel-mode driver implements. [`views`] serves
//! checkers that inspect the kernel after every step.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod adapter_info;
mod config;
pub mod ddi;
mod dispatch;
mod dma;
mod driver;
pub mod duration;
mod effects;
mod error;
mod escape;
mod events;
mod fault;
mod feature;
mod feature_calls;
mod guests;
mod history;
mod ids;
mod inject;
mod input;
pub mod kernel;
mod native;
mod plant;
mod planted;
pub mod policy;
mod process;
mod registry;
mod sharing;
mod slab;
mod sync;
mod tdr;
mod vidmm;
mod vidsch;
mod view;

pub use config::{
    AdapterConfig, Config, EngineType, Features, Flaw, Grant, NodeConfig, RegistryData, RegistryKey,
    RegistryValue, TargetConfig, TdrConfig, VidSchCaps, VmConfig, virtualization_flags,
};
pub use ddi::engine_ids::EngineId;
pub use dma::{ComputeOp, DmaError, DmaExecutor, DmaOp, MemoryRef, ProcessMemory, StagingBuffer};
pub use effects::{Answer, DriverAnswer, Effects, FenceStore, HostEvent, Note, SyncFileReady};
pub use fault::Fault;
pub use ids::{Nanos, ProcessId, VmId};
pub use input::Input;
pub use kernel::{Kernel, LAYOUT_VERSION, NotRestored};
#[doc(hidden)]
pub use planted::PlantedBug;
pub use policy::Policy;
pub use process::{STATUS_SLOT, is_fence_address};
#[cfg(debug_assertions)]
pub use slab::visited;
pub use sync::mapping::FenceMapping;
pub use tdr::bugcheck::Bugcheck;
pub use vidsch::DoorbellStatus;
pub use view::snapshot::Snapshot;
pub use view::{AttachedProcess, SharedMemory, snapshot, views, why};

/// Version of the model's behaviour: changes whenever the same inputs may give other effects. A trace names the version
/// that recorded it.
pub const SEMANTIC_VERSION: u32 = 17;
