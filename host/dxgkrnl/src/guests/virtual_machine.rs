//! Virtual machines: the adapters of each, and the DDIs for it.
//!
//! ```text
//!   VmAttached   if it is refused: a note, and its processes are not attached either (GPV-012)
//!                its worker process: nothing but an identity, it renders nothing (GPV-003)
//!                for each adapter that it is given - one of its set, of a driver with ParavirtualizationSupported,
//!                with a virtual function left:
//!                    CreateProcess(VirtualMachineWorkerProcess), SetVirtualMachineData
//!   ...          the VM's processes see those adapters and no others
//!   VmAdapter    an adapter is removed or added
//!   VmDetached   its processes end, then DestroyProcess of the worker on each of its adapters, stopped ones too
//! ```
//! A virtual function that another VM releases later is for the next VM that attaches, or for one to which the host adds
//! the adapter: see `adapters.rs`. Every adapter modelled here has a GpuMmu, the other requirement of GPV-007.
//!
//! The host alone decides all of this; no message of a guest does (GPV-011).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use d3dkmt::{NtStatus, WakeTarget};
use serde::{Deserialize, Serialize};

use crate::ddi::KmdProcess;
use crate::effects::HostEvent;
use crate::{ProcessId, VmConfig};

/// A VM that is attached.
#[derive(Serialize, Deserialize)]
pub(crate) struct VirtualMachine {
    pub config: VmConfig,
    /// `hKmdVmWorkerProcess`: the same on each adapter.
    pub worker: KmdProcess,
    /// Ordinals of the adapters that it has.
    pub adapters: BTreeSet<u32>,
    /// Adapters whose driver has its worker process: also one that was removed, until the driver has no other process of
    /// the VM.
    pub workers: BTreeSet<u32>,
    /// How often each adapter was removed while it ran.
    pub removals: BTreeMap<u32, u32>,
}

impl VirtualMachine {
    pub fn new(config: VmConfig, worker: KmdProcess) -> Self {
        let (adapters, workers, removals) = Default::default();
        VirtualMachine { config, worker, adapters, workers, removals }
    }

    /// Records an adapter that was given to it.
    pub(super) fn insert_adapter(&mut self, adapter: u32) {
        self.adapters.insert(adapter);
        self.workers.insert(adapter);
    }

    /// Whether the host removed an adapter, and did not add it again.
    pub fn lacks_removed(&self, adapter: u32) -> bool {
        self.removals.contains_key(&adapter) && !self.adapters.contains(&adapter)
    }

    /// How often an adapter was removed while it ran.
    pub fn removals_of(&self, adapter: u32) -> u32 {
        self.removals.get(&adapter).copied().unwrap_or(0)
    }
}

/// The deferred wake-ups of a process that is frozen or of a paused VM, in order. A repeated wake-up is kept once.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct DeferredWakes {
    /// The guest's kernel froze it.
    pub(super) is_frozen: bool,
    /// Its VM is paused.
    pub(super) is_paused: bool,
    pub(super) events: Vec<HostEvent>,
    pub(super) queued: BTreeSet<(WakeTarget, NtStatus)>,
}

impl DeferredWakes {
    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn add(&mut self, event: HostEvent) {
        if self.queued.insert((event.target, event.status)) {
            self.events.push(event);
        }
    }
}

/// Frozen processes and those of paused VMs, with their deferred wake-ups.
pub(crate) type Frozen = BTreeMap<ProcessId, DeferredWakes>;
