//! NT handles, from the broker that makes one to the last close of its descriptors.
//!
//! ```text
//!   broker makes it ─▶ open ──ShareObjects or OpenNtHandleFromName names it──▶ named
//!                       │                                                      │
//!                       └──────────── the broker saw the last close ───────────┴─▶ gone; the kernel hears of a named one
//! ```
//! The token is known here before any process has the descriptor, and until nobody has it. So a call that comes later
//! than the close of its own descriptor (its process was killed, say) leaves nothing behind: what it shared by a token
//! that is not open is closed at once. That is also what a token comes to that a guest made up.
//!
//! A broker that ends takes its handles with it, as nobody would see their last close: the daemon's own with the
//! daemon, a guestd's when its connection ends. What is still held of them then names nothing.

use std::collections::BTreeMap;

use d3dkmt::ShareToken;
use d3dkmt::limits::SHARES_PER_VM_MAX;
use dxgkrnl::{Input, ProcessId, VmId};

use super::{FlushList, HostState, KernelHost, random};

/// Every NT handle that somebody holds, by VM; true for one that a call has given an object, or tried to.
#[derive(Default)]
pub(super) struct NtHandleTable(BTreeMap<VmId, BTreeMap<ShareToken, bool>>);

/// The process that names an NT handle with this input, and its token.
pub(super) fn named_by(input: &Input) -> Option<(ProcessId, ShareToken)> {
    let Input::Call { process, call, .. } = input else { return None };
    Some((*process, call.nt_handle_made()?))
}

impl NtHandleTable {
    fn make(&mut self, vm: VmId, token: ShareToken) -> anyhow::Result<()> {
        let of_vm = self.0.entry(vm).or_default();
        let count = of_vm.len();
        anyhow::ensure!(
            count < SHARES_PER_VM_MAX,
            "the processes of this VM have {count} NT handles, the limit: close some"
        );
        of_vm.insert(token, false);
        Ok(())
    }

    /// One that the kernel knows of, in a daemon that goes on.
    pub(super) fn resumed(&mut self, vm: VmId, token: ShareToken) {
        self.0.entry(vm).or_default().insert(token, true);
    }

    /// Somebody holds one. It may name nothing yet.
    pub(super) fn seen(&mut self, vm: VmId, token: ShareToken) -> anyhow::Result<()> {
        match self.0.get(&vm).is_some_and(|of_vm| of_vm.contains_key(&token)) {
            true => Ok(()),
            false => self.make(vm, token),
        }
    }

    /// Takes note of a call that names a handle; false if there is none that it could name.
    fn name(&mut self, vm: VmId, token: ShareToken) -> bool {
        let named = self.0.get_mut(&vm).and_then(|of_vm| of_vm.get_mut(&token));
        named.map(|named| *named = true).is_some()
    }

    /// What the kernel is to be told of a last close.
    fn close(&mut self, vm: VmId, token: ShareToken) -> Option<Input> {
        let of_vm = self.0.get_mut(&vm)?;
        let named = of_vm.remove(&token)?;
        if of_vm.is_empty() {
            self.0.remove(&vm);
        }
        named.then_some(Input::NtHandleClosed { vm, token })
    }

    pub(super) fn forget_vm(&mut self, vm: VmId) {
        self.0.remove(&vm);
    }

    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }
}

/// NT handles, for the brokers that make them.
#[derive(Clone, Copy)]
pub struct NtHandles<'a> {
    kernel_host: &'a KernelHost,
}

impl KernelHost {
    pub fn nt_handles(&self) -> NtHandles<'_> {
        NtHandles { kernel_host: self }
    }
}

impl NtHandles<'_> {
    /// The token of a new NT handle of a VM, for its broker.
    pub fn make(&self, vm: VmId) -> anyhow::Result<ShareToken> {
        let token = ShareToken(random()?);
        self.kernel_host.lock().nt_handles.make(vm, token)?;
        Ok(token)
    }

    /// The VM's broker saw the last close of a handle. One that is unknown is none of this VM, or ended before.
    pub fn closed(&self, vm: VmId, token: ShareToken) {
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        self.kernel_host.close_nt_handle(&mut host_state, vm, token, &mut flush_list);
    }

    /// The broker of this VM is gone.
    pub fn end_of(&self, vm: VmId) {
        let of_vm = self.kernel_host.lock().nt_handles.0.get(&vm).cloned().unwrap_or_default();
        for token in of_vm.into_keys() {
            self.closed(vm, token);
        }
    }

    /// NT handles that the processes of all VMs hold.
    pub fn count(&self) -> usize {
        self.kernel_host.lock().nt_handles.0.values().map(BTreeMap::len).sum()
    }

    /// A process shows an NT handle that it holds. True for one that is known or may be: it is watched from now on.
    pub fn seen(&self, vm: VmId, token: ShareToken) -> anyhow::Result<()> {
        let mut host_state = self.kernel_host.lock();
        if let Some(resuming) = &mut host_state.resuming {
            resuming.is_shown(vm, token);
        }
        host_state.nt_handles.seen(vm, token)
    }
}

impl KernelHost {
    /// Nobody holds the handle any more.
    pub(super) fn close_nt_handle(
        &self,
        host_state: &mut HostState,
        vm: VmId,
        token: ShareToken,
        flush_list: &mut FlushList,
    ) {
        if let Some(input) = host_state.nt_handles.close(vm, token) {
            self.step(host_state, input, flush_list);
        }
    }

    /// After the call of a process that names a handle.
    pub(super) fn nt_handle_named(
        &self,
        host_state: &mut HostState,
        process: ProcessId,
        token: ShareToken,
        flush_list: &mut FlushList,
    ) {
        let Some(vm) = host_state.process_table.get(process).map(|attached| attached.guest.vm) else {
            return;
        };
        if !host_state.nt_handles.name(vm, token) {
            self.step(host_state, Input::NtHandleClosed { vm, token }, flush_list);
        }
    }
}
