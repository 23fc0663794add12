//! Guests: the VMs that are attached, their identities and those of their processes at drivers, paused VMs and frozen
//! processes.

mod adapters;
mod attach;
mod driver_ids;
mod kmd_processes;
mod pause;
mod virtual_machine;

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use driver_ids::DriverIds;
pub(crate) use virtual_machine::{DeferredWakes, Frozen, VirtualMachine};

use crate::{Nanos, ProcessId, VmId};

/// VMs, frozen processes, and the identities that drivers have of either.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Guests {
    vms: BTreeMap<VmId, VirtualMachine>,
    frozen: Frozen,
    /// VMs that are paused, and since when.
    paused: BTreeMap<VmId, Nanos>,
    driver_ids: DriverIds,
    /// Adapters that were removed from VMs while they ran, ever.
    removals: u64,
}

impl Guests {
    /// Removes a process that ends, with its deferred wake-ups.
    pub fn thaw(&mut self, process: ProcessId) {
        self.frozen.remove(&process);
    }

    /// Whether an adapter was ever removed from a VM that ran.
    #[inline]
    pub fn has_removals(&self) -> bool {
        self.removals > 0
    }

    #[inline]
    pub fn frozen(&self) -> &Frozen {
        &self.frozen
    }

    #[inline]
    pub fn vms(&self) -> &BTreeMap<VmId, VirtualMachine> {
        &self.vms
    }

    #[inline]
    pub fn driver_ids(&self) -> &DriverIds {
        &self.driver_ids
    }
}
