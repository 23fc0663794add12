//! Back-off of VMs whose work hung: their work waits behind that of other VMs, longer each time (GPV-032).
//!
//! A hang costs its VM the device, and every other VM TdrDelay. So a VM is backed off from its first timeout on, for
//! TdrDelay, doubled with each further timeout. Meanwhile its work comes after that of every other VM and is preempted
//! at once; if the preemption takes longer than [`PATIENCE_NS`], the engine is reset. A VM that has the engine for
//! itself is not affected.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Nanos, VmId};

/// How long work of a VM that is backed off may keep the engine from other VMs that want it. The others are served
/// within 100 ms, and a correct packet is rarely as long.
pub(crate) const PATIENCE_NS: Nanos = 80_000_000;

/// Doublings of TdrDelay at most.
const DOUBLINGS_MAX: u32 = 5;

#[derive(Clone, Copy, Serialize, Deserialize)]
struct BackOff {
    timeouts: u32,
    until: Nanos,
}

/// The back-off of each VM whose work timed out.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct BackOffs(BTreeMap<VmId, BackOff>);

impl BackOffs {
    /// Work of this VM timed out. The doubling starts over if the VM had no timeout since its last back-off ended, for
    /// as long as that lasted.
    pub fn timed_out(&mut self, vm: VmId, now: Nanos, delay: Nanos) {
        let length = |timeouts: u32| delay.saturating_mul(1 << timeouts.saturating_sub(1).min(DOUBLINGS_MAX));
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

#[cfg(test)]
mod tests {
    use super::BackOffs;
    use crate::VmId;

    #[test]
    fn a_back_off_doubles_with_each_timeout_and_starts_over_after_as_long_without_one() {
        const DELAY: u64 = 100;
        let (vm, mut back_offs) = (VmId(1), BackOffs::default());
        let mut length_at = |now| {
            back_offs.timed_out(vm, now, DELAY);
            (0..).map(|tenths| tenths * 10).find(|length| !back_offs.includes(vm, now + length))
        };
        // Each timeout comes at the last moment that counts; the length stops at its limit.
        let mut now = 1000;
        for length in [100, 200, 400, 800, 1600, 3200, 3200] {
            assert_eq!(length_at(now), Some(length));
            now += 2 * length;
        }
        assert_eq!(length_at(now + 1), Some(100));
    }
}
