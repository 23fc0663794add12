//! Destroy DDIs of a VM that is refused: its slow DDIs took the driver too long (`driver_host::slow`).
//!
//! ```text
//!   destroy DDI ──VM is served──▶ the driver
//!        │ VM is refused, or older ones of it wait
//!        ▼
//!     deferred ──RETRY_NS later──▶ VM is served: the driver      still refused: deferred again
//! ```
//! A create that is refused fails, and its caller hears of it. A destroy cannot fail: the kernel's object is gone, and the
//! driver would keep its own for ever. Asking at once would let a VM lose the driver for all others by ending many
//! objects. So a destroy waits, in the order of its VM; and while one waits, the VM gets no new objects, so that what
//! waits is bounded by what the VM had. The driver sees objects longer than the kernel does: callbacks about them name
//! nothing, and are dropped (contexts and hardware queues in `handles.rs`, native fences in `native_reports.rs`); and it
//! knows a new object of the same id by another handle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use driver_host::abi::{DXGKARG_CREATEPROCESS, Ddi};
use dxgkrnl::{Nanos, VmId};
use serde::{Deserialize, Serialize};

/// Kernel time from one look at what waits to the next.
const RETRY_NS: Nanos = 10_000_000;
/// The same after a look that asked the driver: there may be more.
const CONTINUE_NS: Nanos = 1_000_000;
/// Destroy DDIs that one look asks at most: the kernel stands still meanwhile.
pub(super) const DESTROYS_PER_RETRY: usize = 8;
/// Destroy DDIs that wait at most. Those beyond are asked at once, and charged.
const DEFERRED_MAX: usize = 1 << 16;

/// The destroy DDIs of one driver that wait.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct DeferredDestruction {
    /// With their buffers. A VM of which none waits has no entry.
    of_vms: BTreeMap<VmId, VecDeque<(Ddi, Vec<u8>)>>,
    count: usize,
    /// Native fences that they end.
    fences: BTreeSet<u64>,
    /// When the driver is asked the next ones; `None` if nothing waits.
    pub due: Option<Nanos>,
}

impl DeferredDestruction {
    /// How many of a VM wait.
    pub fn count(&self, vm: VmId) -> usize {
        self.of_vms.get(&vm).map_or(0, VecDeque::len)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn is_full(&self) -> bool {
        self.count >= DEFERRED_MAX
    }

    pub fn vms(&self) -> Vec<VmId> {
        self.of_vms.keys().copied().collect()
    }

    /// Whether the end of this native fence waits.
    pub fn has_fence(&self, fence: u64) -> bool {
        self.fences.contains(&fence)
    }

    pub fn push(&mut self, vm: VmId, ddi: Ddi, buffer: Vec<u8>, now: Nanos) {
        self.fences.extend(native_fence(&ddi));
        self.due.get_or_insert(now + RETRY_NS);
        self.of_vms.entry(vm).or_default().push_back((ddi, buffer));
        self.count += 1;
    }

    /// The oldest of a VM.
    pub fn first(&self, vm: VmId) -> Option<&Ddi> {
        self.of_vms.get(&vm)?.front().map(|(ddi, _)| ddi)
    }

    pub fn pop(&mut self, vm: VmId) -> Option<(Ddi, Vec<u8>)> {
        let of_vm = self.of_vms.get_mut(&vm)?;
        let oldest = of_vm.pop_front();
        if of_vm.is_empty() {
            self.of_vms.remove(&vm);
        }
        self.count -= usize::from(oldest.is_some());
        if let Some(fence) = oldest.as_ref().and_then(|(ddi, _)| native_fence(ddi)) {
            self.fences.remove(&fence);
        }
        oldest
    }

    /// After a look: when the next one is, if anything waits.
    pub fn looked(&mut self, now: Nanos, has_asked: bool) {
        let distance = if has_asked { CONTINUE_NS } else { RETRY_NS };
        self.due = (self.count > 0).then_some(now + distance);
    }
}

/// The native fence that a DDI ends.
fn native_fence(ddi: &Ddi) -> Option<u64> {
    let Ddi::DxgkDdiDestroyNativeFence(destroy) = ddi else { return None };
    Some(destroy.hGlobalNativeFence)
}

/// Whether a DDI ends an object: it waits while its VM is refused.
pub(super) fn is_destroy(ddi: &Ddi) -> bool {
    matches!(
        ddi,
        Ddi::DxgkDdiDestroyProcess(_)
            | Ddi::DxgkDdiDestroyDevice(_)
            | Ddi::DxgkDdiDestroyContext(_)
            | Ddi::DxgkDdiDestroyHwQueue(_)
            | Ddi::DxgkDdiCloseAllocation(_)
            | Ddi::DxgkDdiDestroyAllocation(_)
            | Ddi::DxgkDdiDestroyCpuEvent(_)
            | Ddi::DxgkDdiCloseNativeFence(_)
            | Ddi::DxgkDdiDestroyNativeFence(_)
            | Ddi::DxgkDdiDisconnectDoorbell(_)
            | Ddi::DxgkDdiDestroyDoorbell(_)
            | Ddi::DxgkDdiDestroyPeriodicFrameNotification(_)
    )
}

/// Whether a client's call is refused if the driver fails this DDI. The others end something, or are the scheduler's.
pub(super) fn is_refusable(ddi: &Ddi) -> bool {
    /// A VM's worker process, which is no client's.
    const WORKER: u32 = 1;
    match ddi {
        Ddi::DxgkDdiCreateProcess(DXGKARG_CREATEPROCESS { Kind: kind, .. }) => *kind != WORKER,
        _ => matches!(
            ddi,
            Ddi::DxgkDdiEscape(_)
                | Ddi::DxgkDdiQueryAdapterInfo(_)
                | Ddi::DxgkDdiGetStandardAllocationDriverData(_)
                | Ddi::DxgkDdiCreateAllocation(_)
                | Ddi::DxgkDdiOpenAllocation(_)
                | Ddi::DxgkDdiCreateDevice(_)
                | Ddi::DxgkDdiCreateContext(_)
                | Ddi::DxgkDdiCreateHwQueue(_)
                | Ddi::DxgkDdiCreateDoorbell(_)
                | Ddi::DxgkDdiConnectDoorbell(_)
                | Ddi::DxgkDdiSetNativeFenceLogBuffer(_)
                | Ddi::DxgkDdiCreateNativeFence(_)
                | Ddi::DxgkDdiCreateCpuEvent(_)
                | Ddi::DxgkDdiCreatePeriodicFrameNotification(_)
        ),
    }
}
