//! VMs whose work hung: it waits behind that of others, each time longer (GPV-032).
//!
//! A hang costs the VM that has it its device, and everybody else TdrDelay. So a VM is backed off from its first timeout
//! on: for TdrDelay, doubled with each further one, its work comes after that of every other VM, it gives way at once, and
//! the engine is reset soon if it does not. A VM that has its engine for itself notices nothing of it.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Nanos, VmId};

/// How long work of a VM that is backed off may keep the engine from others that want it. Others are served within 100 ms; a
/// sound packet of such a VM is rarely as long.
pub(crate) const PATIENCE_NS: Nanos = 80_000_000;

/// Doublings of TdrDelay.
const DOUBLINGS_MAX: u32 = 5;

#[derive(Clone, Copy, Serialize, Deserialize)]
struct BackOff {
    timeouts: u32,
    until: Nanos,
}

/// See the module.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct BackOffs(BTreeMap<VmId, BackOff>);

impl BackOffs {
    /// Work of this VM timed out. It begins anew if it was left alone for as long as it was backed off last.
    pub fn timed_out(&mut self, vm: VmId, now: Nanos, delay: Nanos) {
        let length = |timeouts: u32| delay.saturating_mul(1 << timeouts.min(DOUBLINGS_MAX));
        let state = self.0.entry(vm).or_insert(BackOff { timeouts: 0, until: 0 });
        if now > state.until.saturating_add(length(state.timeouts)) {
            state.timeouts = 0;
        }
        state.timeouts += 1;
        state.until = now.saturating_add(length(state.timeouts));
    }

    pub fn includes(&self, vm: VmId, now: Nanos) -> bool {
        self.0.get(&vm).is_some_and(|state| now < state.until)
    }

    pub fn forget(&mut self, vm: VmId) {
        self.0.remove(&vm);
    }
}
