//! Engine time by VM (GPV-032): a VM is one client of an engine, however many contexts it has.
//!
//! The VM that has used the least is next. A VM that returns after a time without work starts level with the others:
//! unused time gives no credit.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Nanos, VmId};

/// How long a VM's work runs while another VM waits, before its engine is asked to preempt it. The documents say that
/// server virtualization gives fixed slices, but not how long they are.
pub(crate) const VM_SLICE_NS: Nanos = 10_000_000;

/// Charge of the shortest buffer. Without it, a VM with work that takes no time would always be next.
const LEAST_CHARGE_NS: Nanos = 1_000;

/// Time that each VM has used of one engine.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Shares {
    used: BTreeMap<VmId, Nanos>,
    /// At least the time that the VM served last had used. It never decreases.
    floor: Nanos,
}

impl Shares {
    /// Nanoseconds; 0 for a VM that was never here.
    pub fn used(&self, vm: VmId) -> Nanos {
        self.used.get(&vm).copied().unwrap_or(0)
    }

    /// Charges engine time to a VM. Time used `alone` is no debt: a VM that comes later starts from there.
    pub fn charge(&mut self, vm: VmId, nanos: Nanos, alone: bool) {
        let used = self.used.entry(vm).or_default();
        *used = used.saturating_add(nanos.max(LEAST_CHARGE_NS));
        if alone {
            self.floor = self.floor.max(*used);
        }
    }

    /// Adds a VM that had no work for the engine: it starts level with the VM that was served last.
    pub fn join(&mut self, vm: VmId) {
        let used = self.used.entry(vm).or_default();
        *used = (*used).max(self.floor);
    }

    /// Notes that the engine gets a buffer of this VM.
    pub fn serve(&mut self, vm: VmId) {
        self.floor = self.floor.max(self.used(vm));
    }

    /// Forgets a VM that is gone.
    pub fn forget(&mut self, vm: VmId) {
        self.used.remove(&vm);
    }
}
