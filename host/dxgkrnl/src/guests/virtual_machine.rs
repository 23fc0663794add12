//! Virtual machines: the adapters of each, and the DDIs for it.
//!
//! ```text
//!   VmAttached   if it is refused: a note, and its processes are not attached either (GPV-012)
//!                its worker process: nothing but an identity, it renders nothing (GPV-003)
//!                for each adapter that it is given - one of its set, of a driver with ParavirtualizationSupported,
//!                with a virtual function left:
//!                    CreateProcess(VirtualMachineWorkerProcess), SetVirtualMachineData
//!   ...          the VM's processes see those adapters and no others
//!   VmDetached   its processes end, then DestroyProcess of the worker on each of its adapters, stopped ones too
//! ```
//! The adapters of a VM are fixed when it attaches: a virtual function that another VM releases later is for the next
//! VM that attaches. Every adapter modelled here has a GpuMmu, the other requirement of GPV-007.
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
    /// Ordinals of the adapters that it was given.
    pub adapters: BTreeSet<u32>,
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
