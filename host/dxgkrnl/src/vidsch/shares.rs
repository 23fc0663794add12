//! Engine time by VM (GPV-032): a VM is one client of an engine, however many contexts it has.
//!
//! The VM that has used the least is next. One that comes back after a time without work begins where the others are: it has
//! no claim to what it did not use.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Nanos, VmId};

/// How long a VM's work runs before its engine is asked for it while another VM waits. The documents say that server
/// virtualization gives fixed slices, and not how long they are.
pub(crate) const VM_SLICE_NS: Nanos = 10_000_000;

/// What the shortest buffer is charged: else a VM with work that takes no time would be next for ever.
const LEAST_CHARGE_NS: Nanos = 1_000;

/// Time that each VM has used of one engine.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Shares {
    used: BTreeMap<VmId, Nanos>,
    /// What the VM that was served last had used, or more: it never falls.
    floor: Nanos,
}

impl Shares {
    /// Nanoseconds; 0 for a VM that was never here.
    pub fn used(&self, vm: VmId) -> Nanos {
        self.used.get(&vm).copied().unwrap_or(0)
    }

    /// What a VM has used `alone` is no debt: a VM that comes later begins there.
    pub fn charge(&mut self, vm: VmId, nanos: Nanos, alone: bool) {
        let used = self.used.entry(vm).or_default();
        *used = used.saturating_add(nanos.max(LEAST_CHARGE_NS));
        if alone {
            self.floor = self.floor.max(*used);
        }
    }

    /// A VM without work for the engine has some: it begins where the one is that was served last.
    pub fn join(&mut self, vm: VmId) {
        let used = self.used.entry(vm).or_default();
        *used = (*used).max(self.floor);
    }

    /// A buffer of this VM is given to the engine.
    pub fn serve(&mut self, vm: VmId) {
        self.floor = self.floor.max(self.used(vm));
    }

    /// The VM is gone.
    pub fn forget(&mut self, vm: VmId) {
        self.used.remove(&vm);
    }
}
