//! NT handles, from their creation by a broker to the last close of their descriptors.
//!
//! ```text
//!   broker makes it ─▶ open ──ShareObjects or OpenNtHandleFromName names it──▶ named
//!                       │                                                      │
//!                       └──────────── the broker saw the last close ───────────┴─▶ gone, also in the kernel
//! ```
//! The token is recorded here before any process has the descriptor, and until no process has it. So a call that
//! arrives after the close of its own descriptor (its process was killed, say) leaves nothing behind. An object that it
//! shared by a token that is not open is closed at once. The same happens to a token that a guest made up.
//!
//! When a broker is gone, its handles are closed, because no other component would see their last close. The daemon's
//! own broker exits with the daemon, a guestd's when its connection closes. Descriptors that are still open then name
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use d3dkmt::ShareToken;
use d3dkmt::limits::SHARES_PER_VM_MAX;
use dxgkrnl::{Input, ProcessId, VmId};

use super::{FlushList, HostState, KernelHost, random};

/// Makes a sync file readable, through the broker that created it. Called without a lock.
pub type RaiseSyncFile = Arc<dyn Fn(ShareToken) + Send + Sync>;

/// An open NT handle or sync file.
#[derive(Default, Clone)]
struct OpenHandle {
    /// A call has given it an object, or tried to.
    is_named: bool,
    /// Of a sync file, or of a handle that a broker may have made as one.
    raise: Option<RaiseSyncFile>,
}

/// Every open NT handle and sync file, by VM.
#[derive(Default)]
pub(super) struct NtHandleTable(BTreeMap<VmId, BTreeMap<ShareToken, OpenHandle>>);

/// The process whose call names an NT handle, and the token.
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
        of_vm.insert(token, OpenHandle::default());
        Ok(())
    }

    /// Adds a handle that the kernel of a resumed daemon knows.
    pub(super) fn resumed(&mut self, vm: VmId, token: ShareToken) {
        self.0.entry(vm).or_default().insert(token, OpenHandle { is_named: true, raise: None });
    }

    /// Adds a handle that a process has open, if it is new. It may name nothing yet.
    pub(super) fn insert_open(&mut self, vm: VmId, token: ShareToken) -> anyhow::Result<()> {
        match self.0.get(&vm).is_some_and(|of_vm| of_vm.contains_key(&token)) {
            true => Ok(()),
            false => self.make(vm, token),
        }
    }

    /// Records a call that names a handle; false if no such handle is open.
    fn name(&mut self, vm: VmId, token: ShareToken) -> bool {
        let named = self.0.get_mut(&vm).and_then(|of_vm| of_vm.get_mut(&token));
        named.map(|named| named.is_named = true).is_some()
    }

    fn set_raise(&mut self, vm: VmId, token: ShareToken, raise: RaiseSyncFile) {
        if let Some(open) = self.0.get_mut(&vm).and_then(|of_vm| of_vm.get_mut(&token)) {
            open.raise = Some(raise);
        }
    }

    /// How a sync file is made readable; `None` if its broker is gone or not back yet.
    pub(super) fn raise_of(&self, vm: VmId, token: ShareToken) -> Option<RaiseSyncFile> {
        self.0.get(&vm)?.get(&token)?.raise.clone()
    }

    /// Removes a handle at its last close; returns the kernel's input for it, if it has one.
    fn close(&mut self, vm: VmId, token: ShareToken) -> Option<Input> {
        let of_vm = self.0.get_mut(&vm)?;
        let closed = of_vm.remove(&token)?;
        if of_vm.is_empty() {
            self.0.remove(&vm);
        }
        closed.is_named.then_some(Input::NtHandleClosed { vm, token })
    }

    pub(super) fn forget_vm(&mut self, vm: VmId) {
        self.0.remove(&vm);
    }

    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }
}

/// View of the NT handles, for the brokers that create them.
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
    /// Creates an NT handle of a VM; returns its token.
    pub fn make(&self, vm: VmId) -> anyhow::Result<ShareToken> {
        let token = ShareToken(random()?);
        self.kernel_host.lock().nt_handles.make(vm, token)?;
        Ok(token)
    }

    /// Closes a handle whose last close the VM's broker saw. Ignores an unknown one: it belongs to another VM, or is
    /// already closed.
    pub fn closed(&self, vm: VmId, token: ShareToken) {
        let mut flush_list = FlushList::default();
        let mut host_state = self.kernel_host.lock();
        self.kernel_host.close_nt_handle(&mut host_state, vm, token, &mut flush_list);
    }

    /// Closes all handles of a VM whose broker is gone.
    pub fn end_of(&self, vm: VmId) {
        let of_vm = self.kernel_host.lock().nt_handles.0.get(&vm).cloned().unwrap_or_default();
        for token in of_vm.into_keys() {
            self.closed(vm, token);
            self.kernel_host.yield_to_waiters();
        }
    }

    /// Number of open NT handles of all VMs.
    pub fn count(&self) -> usize {
        self.kernel_host.lock().nt_handles.0.values().map(BTreeMap::len).sum()
    }

    /// Whether a handle of a VM is open, as far as is known.
    pub fn is_open(&self, vm: VmId, token: ShareToken) -> bool {
        self.kernel_host.lock().nt_handles.0.get(&vm).is_some_and(|of_vm| of_vm.contains_key(&token))
    }

    /// Records that a process has an NT handle open; it is tracked from now on. An error if the VM has too many.
    pub fn insert_open(&self, vm: VmId, token: ShareToken) -> anyhow::Result<()> {
        let mut host_state = self.kernel_host.lock();
        if let Some(resuming) = &mut host_state.resuming {
            resuming.mark_open(vm, token);
        }
        host_state.nt_handles.insert_open(vm, token)
    }

    /// Sets how a sync file is made readable. If it is ready already, as one may be whose daemon was killed, this is done
    /// now, or when the clients of that daemon are back: not before the bytes that it stands for are moved.
    pub fn raised_by(&self, vm: VmId, token: ShareToken, raise: RaiseSyncFile) {
        let mut host_state = self.kernel_host.lock();
        host_state.nt_handles.set_raise(vm, token, raise.clone());
        if let Some(resuming) = &mut host_state.resuming {
            return resuming.defer_raise(vm, token);
        }
        let is_ready = host_state.kernel.is_ready_sync_file(vm, token);
        drop(host_state);
        if is_ready {
            raise(token);
        }
    }
}

impl HostState {
    /// Those of these sync files that are ready, and how each is made readable: call it without a lock.
    pub(super) fn ready_sync_files(
        &self,
        of: impl IntoIterator<Item = (VmId, ShareToken)>,
    ) -> Vec<(ShareToken, RaiseSyncFile)> {
        let ready = of.into_iter().filter(|(vm, token)| self.kernel.is_ready_sync_file(*vm, *token));
        ready.filter_map(|(vm, token)| Some((token, self.nt_handles.raise_of(vm, token)?))).collect()
    }
}

impl KernelHost {
    /// Closes a handle that no process has open any more.
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

    /// Runs after a call that names a handle.
    pub(super) fn nt_handle_named(
        &self,
        host_state: &mut HostState,
        process: ProcessId,
        token: ShareToken,
        flush_list: &mut FlushList,
    ) {
        let Some(vm) = host_state.process_table.get(process).map(|attached| attached.client.vm) else {
            return;
        };
        if !host_state.nt_handles.name(vm, token) {
            self.step(host_state, Input::NtHandleClosed { vm, token }, flush_list);
        }
    }
}
