//! The model of the WDDM graphics kernel (dxgkrnl), as a value.
//!
//! [`Kernel::handle`] receives the time and one [`Input`], and appends the [`Effects`] that the host has to carry out.
//! The kernel has no clock, no socket, no thread and no hash iteration; it never blocks and never fails. Laws:
//!
//! - the same config and the same `(now, Input)` list give the same effects and the same snapshot;
//! - one answer for each call with a request number, none for a one-way call. The answer comes in the same step, except
//!   for an escape that waits for an idle GPU;
//! - a wait latches on any value transition that happens after it was queued, never on one before (a queued wait: unless
//!   the policy `gpu_wait` says `looks-at-head`);
//! - memory is write-only: the kernel keeps fence values itself and asks for stores;
//! - no guest input can panic it: bad input gets an NTSTATUS and a note that says why.
//!
//! Start reading at [`kernel`]. Each part is a folder with private tables: `process` has handles and devices; `sync`
//! objects, signals and waits; `sharing` global handles, NT handles and names; `vidmm` allocations and address spaces;
//! `vidsch` contexts, queues and engines; `tdr` the recovery from timeouts and faults; `events` CPU events and periodic
//! notifications; `native` native fences; `guests` VMs; `driver` the port to the miniport; `history` destroyed objects;
//! `view` snapshots and explanations. `ddi` is the interface that a kernel-mode driver implements. [`views`] serves
//! checkers that inspect the kernel after every step.
//!
//! A process creates a fence, waits for a value, and is woken by the signal:
//!
//! ```
//! use d3dkmt::{Call, EventId, Reply, SignalFlags, SyncObjectInfo, SyncObjectType, WaitFromCpuFlags};
//! use dxgkrnl::{Config, Effects, Input, Kernel, ProcessId, VmId};
//!
//! let mut kernel = Kernel::new(Config::default(), kmd::SimulatedMiniport::default());
//! let process = ProcessId(1);
//! let mut step = |now, input| {
//!     let mut effects = Effects::default();
//!     kernel.handle(now, input, &mut effects);
//!     effects
//! };
//! step(0, Input::ProcessAttached { process, vm: VmId::HOST, pid: 42, name: "client".into() });
//! step(0, Input::FenceMemoryAdded { process, slots: 64 });
//! let mut request = 0;
//! let mut call = |now, call| {
//!     request += 1;
//!     step(now, Input::Call { process, request, call })
//! };
//!
//! let Reply::Adapters(adapters) = call(0, Call::EnumAdapters { capacity: 1 }).answers[0].reply.clone() else { panic!() };
//! let adapter = adapters[0].handle;
//! let Reply::Device(device) = call(0, Call::CreateDevice { adapter, flags: 0 }).answers[0].reply else { panic!() };
//! let info = SyncObjectInfo { object_type: SyncObjectType::MONITORED_FENCE, ..SyncObjectInfo::default() };
//! let create = Call::CreateSynchronizationObject { device, info, legacy: false };
//! let Reply::SyncObject(fence) = call(1_000, create).answers[0].reply.clone() else { panic!() };
//!
//! let (objects, values) = (vec![fence.object], vec![5]);
//! let (flags, event) = (WaitFromCpuFlags::empty(), EventId(9));
//! let waiting = call(2_000, Call::WaitFromCpu {
//!     device, objects: objects.clone().into(), values: values.clone().into(), flags, event,
//! });
//! assert!(waiting.events.is_empty());
//! let flags = SignalFlags::empty();
//! let signaled = call(3_000, Call::SignalFromCpu { device, objects: objects.into(), values: values.into(), flags });
//! // A store of the value, an answer, and the event of the wait: the host carries them out in this order.
//! assert_eq!((signaled.stores.len(), signaled.answers.len(), signaled.events.len()), (1, 1, 1));
//! ```
//!
//! # Stability
//!
//! The API of this crate is 0.x: a minor version may change it, and the changelog says so. Stable is the behaviour that
//! docs/CONFORMANCE.md lists; [`SEMANTIC_VERSION`] counts its changes, and a recording names the version that it needs.
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
    AdapterConfig, Config, EngineType, Features, Flaw, Grant, HOST_NAME, NodeConfig, RegistryData,
    RegistryKey, RegistryValue, TargetConfig, TdrConfig, VidSchCaps, VmConfig, virtualization_flags,
};
pub use ddi::engine_ids::EngineId;
pub use dma::{
    ComputeOp, DmaError, DmaExecutor, DmaOp, MemoryRef, ProcessMemory, StagedMemory, StagingBuffer,
};
pub use effects::{Answer, DriverAnswer, Effects, FenceStore, HostEvent, Note, SyncFileReady};
pub use fault::{Fault, Injection};
pub use ids::{Nanos, ProcessId, VmId};
pub use input::Input;
pub use kernel::{Kernel, LAYOUT_VERSION, NotRestored};
#[doc(hidden)]
pub use planted::PlantedBug;
pub use policy::Policy;
pub use process::{STATUS_SLOT, is_fence_address};
#[cfg(debug_assertions)]
pub use slab::visited;
pub use tdr::bugcheck::Bugcheck;
pub use vidsch::DoorbellStatus;
pub use view::snapshot::Snapshot;
pub use view::{AttachedProcess, SharedMemory, details, snapshot, views, why};

/// Version of the model's behaviour: changes whenever the same inputs may give other effects. A trace names the version
/// that recorded it.
pub const SEMANTIC_VERSION: u32 = 33;
