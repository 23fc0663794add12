//! Guests: the VMs that are attached, what drivers know of them and their processes, and which processes are frozen.

mod attach;
mod kmd_processes;
mod known;
mod virtual_machine;

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use known::KnownGuests;
pub(crate) use virtual_machine::{Frozen, VirtualMachine};

use crate::VmId;

/// VMs, frozen processes, and the identities that drivers have of either.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Guests {
    pub(crate) vms: BTreeMap<VmId, VirtualMachine>,
    pub(crate) frozen: Frozen,
    pub(crate) known: KnownGuests,
}
