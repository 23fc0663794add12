//! The daemon's memory for the state of processes, charged to them and to their VMs.
//!
//! ```text
//!   VM       limit: VmConfig::memory_bytes, `reserved` by its processes
//!   process  reserved >= used, in chunks: most charges touch nothing but the process
//! ```
//! An object that a process creates is charged at its weight, which is no less than what is allocated for it
//! (`tests/cost.rs` measures both); the charge is released with the object. A call that creates one checks first
//! ([`Processes::shortage`]): a process may have twice what its VM has left beside it. So one process leaves a third,
//! the next a third of that, and the next process always finds some. The account of a VM ends with its last process
//! and NT handle.

use alloc::format;
use alloc::string::String;

use d3dkmt::limits::is_fair_share;
use serde::{Deserialize, Serialize};

use super::{Process, Processes};
use crate::sync::waits::Waits;
use crate::{ProcessId, VmId};

/// Bytes of its VM's memory that a process reserves at a time.
const CHUNK: u64 = 16 << 10;

/// Charge of a process that has created nothing.
pub(crate) const PROCESS_BYTES: u64 = 8 << 10;

/// Memory that is counted again when it may have changed. By ordinal of the adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Counted {
    /// Command buffers that engines have, and what else the driver keeps.
    Driver(u32),
    /// Ranges of the address space, and pieces of them.
    Addresses(u32),
}

/// Account of a process, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    pub used: u64,
    reserved: u64,
}

impl Account {
    /// Whether too little is reserved, or far too much.
    #[inline]
    fn needs_reserving(&self) -> bool {
        self.used > self.reserved || self.reserved - self.used >= 2 * CHUNK
    }

    fn free(&mut self, bytes: u64) {
        debug_assert!(self.used >= bytes, "{bytes} were not charged");
        self.used = self.used.saturating_sub(bytes);
    }
}

/// Account of a VM, or of the host's own processes together, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct VmAccount {
    limit: u64,
    reserved: u64,
    /// Charged for NT handles, which belong to the VM.
    shared: u64,
}

impl Processes {
    /// Opens the account of a VM with this limit, if it has none.
    pub(super) fn open_account(&mut self, vm: VmId, limit: u64) {
        self.accounts.entry(vm).or_insert(VmAccount { limit, reserved: 0, shared: 0 });
    }

    pub(super) fn close_account(&mut self, vm: VmId, account: Account) {
        let Some(of_vm) = self.accounts.get_mut(&vm) else { return };
        of_vm.reserved -= account.reserved;
        self.forget_if_empty(vm);
    }

    fn forget_if_empty(&mut self, vm: VmId) {
        if self.accounts.get(&vm).is_some_and(|account| account.reserved + account.shared == 0) {
            self.accounts.remove(&vm);
        }
    }

    /// Why a VM cannot be charged `bytes` for an NT handle, if it cannot.
    pub fn shortage_for_share(&self, vm: VmId, bytes: u64) -> Option<String> {
        let used = self.accounts.get(&vm)?.shared;
        self.shortage_of_vm(vm, Account { used, reserved: used }, bytes)
    }

    /// Bytes that all VMs are charged.
    pub fn charged_bytes(&self) -> u64 {
        self.accounts.values().map(|account| account.reserved + account.shared).sum()
    }

    /// Charges a VM for an NT handle.
    pub fn charge_share(&mut self, vm: VmId, bytes: u64) {
        if let Some(of_vm) = self.accounts.get_mut(&vm) {
            of_vm.shared += bytes;
        }
    }

    /// Releases the charge for an NT handle.
    pub fn release_share(&mut self, vm: VmId, bytes: u64) {
        if let Some(of_vm) = self.accounts.get_mut(&vm) {
            of_vm.shared -= bytes;
            self.forget_if_empty(vm);
        }
    }

    /// Why a process cannot be charged `bytes` more, if it cannot.
    #[inline]
    pub fn shortage(&self, process: &Process, bytes: u64) -> Option<String> {
        if process.memory.used + bytes <= process.memory.reserved {
            return None;
        }
        self.shortage_of_vm(process.vm, process.memory, bytes)
    }

    /// Why there is no room for one more process of a VM, if there is none.
    pub fn shortage_for_process(&self, vm: VmId) -> Option<String> {
        self.shortage_of_vm(vm, Account::default(), PROCESS_BYTES)
    }

    fn shortage_of_vm(&self, vm: VmId, Account { used, reserved }: Account, bytes: u64) -> Option<String> {
        let account = self.accounts.get(&vm)?;
        let (limit, allotted) = (account.limit, account.reserved + account.shared);
        let after = (used + bytes).next_multiple_of(CHUNK);
        let left = (limit + reserved).saturating_sub(allotted + after);
        (!is_fair_share(after, left)).then(|| {
            let left = limit.saturating_sub(allotted);
            format!(
                "{bytes} more bytes of the host's memory are too much: {used} are in use here, and {left} of the VM's \
                 {limit} (memory_bytes) are left; nobody may have more than twice what it leaves to others"
            )
        })
    }

    /// Charges a process `bytes`.
    #[inline]
    pub fn charge(&mut self, id: ProcessId, bytes: u64) {
        self.change(id, |process| process.memory.used += bytes);
    }

    /// Releases a charge of `bytes`.
    #[inline]
    pub fn release(&mut self, id: ProcessId, bytes: u64) {
        self.change(id, |process| process.memory.free(bytes));
    }

    /// Changes what a process uses, and what it has reserved if that is too little or far too much.
    #[inline]
    fn change(&mut self, id: ProcessId, change: impl FnOnce(&mut Process)) {
        let Some(process) = self.by_id.get_mut(&id) else { return };
        change(process);
        if process.memory.needs_reserving() {
            self.reserve(id);
        }
    }

    /// Sets the reservation of a process to what it uses, in whole chunks.
    #[cold]
    fn reserve(&mut self, id: ProcessId) {
        let Some(process) = self.by_id.get_mut(&id) else { return };
        let Some(of_vm) = self.accounts.get_mut(&process.vm) else { return };
        let needed = process.memory.used.next_multiple_of(CHUNK);
        of_vm.reserved = of_vm.reserved + needed - process.memory.reserved;
        process.memory.reserved = needed;
    }

    /// Releases the charge for a CPU wait that has ended, and its name. Returns how many chunks of names were swept.
    #[inline]
    pub fn forget_wait(&mut self, id: ProcessId, bytes: u64, waits: &Waits) -> u32 {
        let process = self.by_id.get_mut(&id).expect("its waits end before a process does");
        process.memory.free(bytes);
        let chunks = process.waits.forget(id, waits);
        if process.memory.needs_reserving() {
            self.reserve(id);
        }
        chunks
    }

    /// Charges a process for queued packets, which count against its limit of queued bytes, too.
    #[inline]
    pub fn queue_bytes(&mut self, id: ProcessId, bytes: usize) {
        self.change(id, |process| {
            process.queued_bytes += bytes;
            process.memory.used += bytes as u64;
        });
    }

    /// Releases the charge for queued packets.
    #[inline]
    pub fn unqueue_bytes(&mut self, id: ProcessId, bytes: usize) {
        self.change(id, |process| {
            process.queued_bytes -= bytes;
            process.memory.free(bytes as u64);
        });
    }

    /// Replaces the last charge for `item` by the bytes that it takes now.
    pub fn note_bytes(&mut self, id: ProcessId, item: Counted, bytes: u64) {
        let Some(process) = self.by_id.get_mut(&id) else { return };
        let before = match bytes {
            0 => process.counted.remove(&item),
            _ => process.counted.insert(item, bytes),
        };
        self.charge(id, bytes);
        self.release(id, before.unwrap_or(0));
    }

    /// Whether the account of a VM is not the sum of those of its processes, or one uses more than it has reserved.
    pub fn is_misaccounted(&self) -> bool {
        let of_vm = |vm: VmId| self.by_id.values().filter(move |process| process.vm == vm);
        let sum = |vm: VmId| of_vm(vm).map(|process| process.memory.reserved).sum::<u64>();
        self.accounts.iter().any(|(vm, account)| account.reserved != sum(*vm))
            || self.by_id.values().any(|process| process.memory.used > process.memory.reserved)
    }
}
