//! DMA operations for VMs whose driver QEMU has stopped.
//!
//! Engines go on while a VM is stopped (decision 56). But what owns its pages then is not known: it may be being saved or
//! reset, or its guest has unbound the device and uses the pages for something else. So the operations are held back, in
//! their order, until the driver goes on or its life is over.
//!
//! ```text
//!   driver runs ──▶ performed at once        stopped ──▶ held ──▶ it goes on: performed, then its fences get their values
//!                                                           └──▶ its life is over: dropped
//! ```
//! Memory that ends behind held operations is released behind them. Staging buffers that a held operation names are the VM's until the operation that releases them: later operations that
//! name them are held as well. Their numbers may have a meaning of their own meanwhile, so their bytes are held too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use dxgkrnl::{DmaExecutor, DmaOp, ProcessMemory, SharedMemory, StagedMemory, StagingBuffer, VmId};
use vsock_device::GuestMemory;

/// What an operation costs at least, in bytes moved.
const COST_BYTES: u64 = 64;

/// Entries that are held for one VM at most, some 40 MiB. A VM that has more loses them, and its processes end.
const HELD_MAX: usize = if cfg!(test) { 64 } else { 1 << 19 };

/// An entry of the list that is held back.
enum Held {
    Operation(DmaOp),
    /// The bytes that a staging buffer had when the next operation, the first of the VM that names it, was held.
    StagingBuffer(StagingBuffer, StagedMemory),
    /// Memory that has ended, whose pages operations before this name.
    Ended(SharedMemory),
}

/// What one VM's driver waits for.
struct HeldOfVm {
    memory: GuestMemory,
    held: VecDeque<Held>,
    /// The staging buffers that held operations name, and none of them releases.
    staging_buffers: BTreeSet<StagingBuffer>,
    /// Performs them. It has the staging buffers then.
    dma_executor: DmaExecutor,
    /// There were more than the limit, and they were dropped.
    is_lost: bool,
}

/// DMA operations that are held back, by VM.
#[derive(Default)]
pub struct HeldMoves {
    of_vms: BTreeMap<VmId, HeldOfVm>,
    /// Ended memory that nothing held names any more.
    ended: Vec<SharedMemory>,
}

impl HeldMoves {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.of_vms.is_empty() && self.ended.is_empty()
    }

    /// Drops what was held for drivers whose life is over.
    pub fn drop_ended(&mut self) {
        let HeldMoves { of_vms, ended } = self;
        of_vms.retain(|_, of_vm| {
            let is_over = of_vm.memory.is_over();
            if is_over {
                of_vm.drop_all(ended);
            }
            !is_over
        });
    }

    /// Whether an operation has to come after one that is held.
    pub fn concerns(&self, op: &DmaOp) -> bool {
        !self.of_vms.is_empty() && (matches!(op, DmaOp::ReleaseAll { .. }) || self.before(op).is_some())
    }

    /// Memory of a process of this VM has ended. False if nothing is held that could name it.
    pub fn hold_ended(&mut self, vm: VmId, memory: &SharedMemory) -> bool {
        let of_vm = self.of_vms.get_mut(&vm).filter(|of_vm| !of_vm.is_lost);
        of_vm.map(|of_vm| of_vm.held.push_back(Held::Ended(*memory))).is_some()
    }

    /// Ended memory whose pages can be released.
    pub fn take_ended(&mut self) -> Vec<SharedMemory> {
        std::mem::take(&mut self.ended)
    }

    /// Whether a VM has lost what was held for it.
    pub fn is_lost(&self, vm: VmId) -> bool {
        self.of_vms.get(&vm).is_some_and(|of_vm| of_vm.is_lost)
    }

    /// The VM with a held operation that this one has to come after.
    pub fn before(&self, op: &DmaOp) -> Option<VmId> {
        let names = |of_vm: &HeldOfVm| op.staging_buffers().any(|one| of_vm.staging_buffers.contains(&one));
        self.of_vms.iter().find(|(_, of_vm)| names(of_vm)).map(|(vm, _)| *vm)
    }

    /// Holds an operation back for a VM. `performing` has the bytes of the staging buffers so far.
    pub fn hold(&mut self, vm: VmId, memory: &GuestMemory, op: &DmaOp, performing: &mut DmaExecutor) {
        let of_vm = self.of_vms.entry(vm).or_insert_with(|| HeldOfVm {
            memory: memory.clone(),
            held: VecDeque::new(),
            staging_buffers: BTreeSet::new(),
            dma_executor: DmaExecutor::default(),
            is_lost: false,
        });
        of_vm.hold(op, performing, &mut self.ended);
    }

    /// Holds an operation back behind another of this VM.
    pub fn hold_behind(&mut self, vm: VmId, op: &DmaOp, performing: &mut DmaExecutor) {
        if let Some(of_vm) = self.of_vms.get_mut(&vm) {
            of_vm.hold(op, performing, &mut self.ended);
        }
    }

    /// All staging buffers of an adapter are freed: those that are held, behind what is held.
    pub fn release_all(&mut self, adapter: u32) {
        for of_vm in self.of_vms.values_mut() {
            let before = of_vm.staging_buffers.len();
            of_vm.staging_buffers.retain(|one| one.adapter != adapter);
            if of_vm.staging_buffers.len() < before {
                of_vm.held.push_back(Held::Operation(DmaOp::ReleaseAll { adapter }));
            }
        }
    }

    /// Performs about as many bytes as a step may. True once nothing is held for the VM: its staging buffers are back in
    /// `performing` then.
    pub fn perform_some(
        &mut self,
        vm: VmId,
        memory: &mut impl ProcessMemory,
        performing: &mut DmaExecutor,
    ) -> bool {
        self.drop_ended();
        let Some(of_vm) = self.of_vms.get_mut(&vm) else { return true };
        if !of_vm.perform_some(memory, &mut self.ended) {
            return false;
        }
        for one in std::mem::take(&mut of_vm.staging_buffers) {
            if let Some(bytes) = of_vm.dma_executor.take_staging_buffer(one) {
                performing.put_staging_buffer(one, bytes);
            }
        }
        self.of_vms.remove(&vm);
        true
    }
}

impl HeldOfVm {
    fn hold(&mut self, op: &DmaOp, performing: &mut DmaExecutor, ended: &mut Vec<SharedMemory>) {
        for one in op.staging_buffers() {
            if self.staging_buffers.insert(one)
                && let Some(bytes) = performing.take_staging_buffer(one)
            {
                self.held.push_back(Held::StagingBuffer(one, bytes));
            }
        }
        if let DmaOp::Release { staging_buffer } = op {
            self.staging_buffers.remove(staging_buffer);
        }
        // A long operation takes one entry, however long the VM is stopped.
        let is_more = match self.held.back_mut() {
            Some(Held::Operation(last)) => last.extend_by(op),
            Some(Held::StagingBuffer(..) | Held::Ended(_)) | None => false,
        };
        if !is_more {
            self.held.push_back(Held::Operation(*op));
        }
        if self.is_lost || self.held.len() > HELD_MAX {
            self.is_lost = true;
            self.drop_all(ended);
        }
    }

    fn drop_all(&mut self, ended: &mut Vec<SharedMemory>) {
        ended.extend(self.held.drain(..).filter_map(|held| match held {
            Held::Ended(memory) => Some(memory),
            Held::Operation(_) | Held::StagingBuffer(..) => None,
        }));
    }

    /// True once nothing is held.
    fn perform_some(&mut self, memory: &mut impl ProcessMemory, ended: &mut Vec<SharedMemory>) -> bool {
        let mut left = MOVED_BYTES_PER_STEP;
        while left >= COST_BYTES {
            match self.held.pop_front() {
                None => return true,
                Some(Held::StagingBuffer(one, bytes)) => self.dma_executor.put_staging_buffer(one, bytes),
                Some(Held::Ended(memory)) => ended.push(memory),
                Some(Held::Operation(op)) => {
                    let (first, rest) = op.split(left & !(COST_BYTES - 1));
                    if let Some(rest) = rest {
                        self.held.push_front(Held::Operation(rest));
                    }
                    // A process that has ended since has no memory, and a fault was reported to nobody else either.
                    let _ = self.dma_executor.perform(&first, memory);
                    left = left.saturating_sub(first.bytes().max(COST_BYTES));
                }
            }
        }
        self.held.is_empty()
    }
}
