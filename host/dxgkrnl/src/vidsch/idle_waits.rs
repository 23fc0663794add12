//! Escapes with HardwareAccess that wait until the GPU of their adapter is idle (ESC-017): the tables.
//!
//! ```text
//!   waiting ── its VM's turn ──▶ hold: the engines get no new work ── they run nothing ──▶ DxgkDdiEscape, answer
//!      ▲                           │
//!      └─ HOLD_MAX, others want ───┘      waiting for WAIT_DELAYS times TdrDelay: STATUS_DEVICE_BUSY
//! ```
//! `escape/idle.rs` has the behaviour.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use d3dkmt::{EscapeFlags, Handle};
use serde::{Deserialize, Serialize};

use crate::{Nanos, ProcessId, VmId};

/// How long engines are held for a VM's escape while another VM has work ready for one of them. If they are not idle by
/// then, they get work for as long, and the escape keeps waiting.
pub(crate) const HOLD_MAX_NS: Nanos = 100_000_000;

/// How many times TdrDelay an escape waits at most, because a hang is reset within one delay and a quantum.
pub(crate) const WAIT_DELAYS: u64 = 2;

/// Memory of a waiting escape beside its data.
pub(crate) const IDLE_WAIT_BYTES: u64 = 512;

/// The arguments of an escape that waits.
#[derive(Serialize, Deserialize)]
pub(crate) struct WaitingEscape {
    pub adapter: Handle,
    pub device: Handle,
    pub context: Handle,
    pub kind: u32,
    pub flags: EscapeFlags,
    pub data: Vec<u8>,
}

impl WaitingEscape {
    /// Bytes that the process is charged.
    pub fn weight(&self) -> u64 {
        IDLE_WAIT_BYTES + self.data.len() as u64
    }
}

/// A call that is answered once its adapter is idle.
#[derive(Serialize, Deserialize)]
pub(crate) struct IdleWait {
    pub process: ProcessId,
    pub vm: VmId,
    pub request: u64,
    pub adapter: u32,
    pub since: Nanos,
    pub escape: WaitingEscape,
}

/// A hold of an adapter for this VM: the engines get no new work.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub vm: VmId,
    pub since: Nanos,
}

#[derive(Default, Serialize, Deserialize)]
struct OfAdapter {
    /// Waiting calls in their order, by VM.
    waiting: BTreeMap<VmId, BTreeSet<u64>>,
    hold: Option<Hold>,
    /// VMs whose last hold ended before the engines were idle, and when their next one may begin.
    paused: BTreeMap<VmId, Nanos>,
    /// Queues of hardware queues whose head is held.
    held_queues: BTreeSet<u32>,
}

/// Escapes that wait for idle GPUs, and the holds of adapters.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct IdleWaits {
    calls: BTreeMap<u64, IdleWait>,
    adapters: BTreeMap<u32, OfAdapter>,
    begun: u64,
    /// Whether a call that waited runs now.
    #[serde(skip)]
    is_served: bool,
}

impl IdleWaits {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.adapters.is_empty()
    }

    /// Whether a call waits for this adapter.
    pub fn has_any_for(&self, adapter: u32) -> bool {
        self.adapters.get(&adapter).is_some_and(|of| !of.waiting.is_empty())
    }

    /// Adapters that calls wait for.
    pub fn adapters(&self) -> Vec<u32> {
        self.adapters.keys().copied().collect()
    }

    pub fn calls(&self) -> &BTreeMap<u64, IdleWait> {
        &self.calls
    }

    /// Adds a waiting call. Returns its number.
    pub fn begin(&mut self, call: IdleWait) -> u64 {
        self.begun += 1;
        let of_adapter = self.adapters.entry(call.adapter).or_default();
        of_adapter.waiting.entry(call.vm).or_default().insert(self.begun);
        self.calls.insert(self.begun, call);
        self.begun
    }

    /// Removes a call that waits no longer.
    pub fn end(&mut self, id: u64) -> Option<IdleWait> {
        let call = self.calls.remove(&id)?;
        if let Some(of_adapter) = self.adapters.get_mut(&call.adapter)
            && let Some(of_vm) = of_adapter.waiting.get_mut(&call.vm)
        {
            of_vm.remove(&id);
            if of_vm.is_empty() {
                of_adapter.waiting.remove(&call.vm);
                of_adapter.paused.remove(&call.vm);
            }
        }
        self.forget_if_unused(call.adapter);
        Some(call)
    }

    /// The first call of each VM.
    pub fn firsts(&self, adapter: u32) -> impl Iterator<Item = (VmId, u64)> {
        let waiting = self.adapters.get(&adapter).into_iter().flat_map(|of| &of.waiting);
        waiting.filter_map(|(vm, ids)| Some((*vm, *ids.first()?)))
    }

    pub fn first_of(&self, adapter: u32, vm: VmId) -> Option<u64> {
        self.adapters.get(&adapter)?.waiting.get(&vm)?.first().copied()
    }

    /// When a hold for this VM may begin.
    pub fn paused_until(&self, adapter: u32, vm: VmId) -> Nanos {
        self.adapters.get(&adapter).and_then(|of| of.paused.get(&vm)).copied().unwrap_or(0)
    }

    pub fn hold_of(&self, adapter: u32) -> Option<Hold> {
        self.adapters.get(&adapter)?.hold
    }

    /// Whether the engines of an adapter get no new work.
    #[inline]
    pub fn holds(&self, adapter: u32) -> bool {
        !self.adapters.is_empty() && self.hold_of(adapter).is_some()
    }

    pub fn hold(&mut self, adapter: u32, hold: Hold) {
        if let Some(of_adapter) = self.adapters.get_mut(&adapter) {
            of_adapter.hold = Some(hold);
        }
    }

    /// The head of this queue waits until the hold is over.
    pub fn hold_queue(&mut self, adapter: u32, queue: u32) {
        if let Some(of_adapter) = self.adapters.get_mut(&adapter) {
            of_adapter.held_queues.insert(queue);
        }
    }

    pub fn held_queues(&self, adapter: u32) -> impl Iterator<Item = u32> {
        self.adapters.get(&adapter).into_iter().flat_map(|of| of.held_queues.iter().copied())
    }

    /// Ends the hold; the next one of its VM begins at `not_before` at the earliest. Returns the queues that were held.
    pub fn release(&mut self, adapter: u32, not_before: Option<Nanos>) -> BTreeSet<u32> {
        let Some(of_adapter) = self.adapters.get_mut(&adapter) else { return BTreeSet::new() };
        let queues = core::mem::take(&mut of_adapter.held_queues);
        if let (Some(hold), Some(until)) = (of_adapter.hold.take(), not_before)
            && of_adapter.waiting.contains_key(&hold.vm)
        {
            of_adapter.paused.insert(hold.vm, until);
        }
        self.forget_if_unused(adapter);
        queues
    }

    fn forget_if_unused(&mut self, adapter: u32) {
        if self.adapters.get(&adapter).is_some_and(|of| of.waiting.is_empty() && of.hold.is_none()) {
            self.adapters.remove(&adapter);
        }
    }

    pub fn is_served(&self) -> bool {
        self.is_served
    }

    pub fn set_served(&mut self, is_served: bool) {
        self.is_served = is_served;
    }
}
