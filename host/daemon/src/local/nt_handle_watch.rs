//! NT handles and sync files of local processes: created here, and watched for their last close.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use d3dkmt::ShareToken;
use dxgkrnl::{ProcessId, VmId};
use nt_handle::NtHandles;
use rustix::event::epoll;

use super::{Loop, Source, answer, refuse};
use crate::closing::ClientFd;
use crate::peer::Peer;
use crate::shares::Share;

/// The NT handles of the processes of one VM. Once created it stays as long as the VM, because closing its watch takes
/// the system milliseconds. Otherwise a process that creates and closes a handle in a loop would cause that each time.
pub(super) struct VmNtHandles {
    key: u64,
    pub handles: NtHandles,
    /// For each handle: its parts of the shares of the process that created it, or presented it first.
    shares: BTreeMap<ShareToken, Shares>,
}

/// The parts of its creator's shares that an NT handle holds.
pub(super) struct Shares {
    _handle: Share,
    /// Of a sync file: of the daemon's descriptors.
    _descriptor: Option<Share>,
}

impl Loop {
    /// Gives a process an NT handle that names nothing yet. If it is refused, its connection stays open.
    pub(super) fn give_nt_handle(
        &mut self,
        vm: VmId,
        process: ProcessId,
        connection: &ClientFd,
        is_sync_file: bool,
    ) -> anyhow::Result<bool> {
        // So a name is free as soon as the last of its handles is closed.
        self.close_nt_handles(vm);
        match self.make_nt_handle(vm, connection.peer(), is_sync_file) {
            Ok(handle) => answer(connection, process, &[handle.as_fd()]),
            Err(error) => {
                let line = || format!("process {} is refused an NT handle: {error:#}", process.0);
                self.kernel_host.log.debug(Peer::Process(process), line);
                refuse(connection, &error)
            }
        }
    }

    pub(super) fn nt_handles_of(&mut self, vm: VmId) -> anyhow::Result<&mut VmNtHandles> {
        Ok(match self.nt_handles.entry(vm) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let (handles, key) = (NtHandles::new()?, self.next_key);
                let data = epoll::EventData::new_u64(key);
                epoll::add(&*self.epoll, handles.descriptor(), data, epoll::EventFlags::IN)?;
                self.next_key += 1;
                self.sources.insert(key, Source::NtHandles { vm });
                entry.insert(VmNtHandles { key, handles, shares: BTreeMap::new() })
            }
        })
    }

    /// Charges an NT handle, of which the daemon keeps a descriptor if it is a sync file.
    fn shares_of(&mut self, vm: VmId, peer: Peer, is_sync_file: bool) -> anyhow::Result<Shares> {
        let _handle = self.budgets_of(vm).nt_handles.take(peer, 1)?;
        let descriptors = &self.kernel_host.budgets.descriptors;
        let _descriptor = is_sync_file.then(|| descriptors.take(peer, 1)).transpose()?;
        Ok(Shares { _handle, _descriptor })
    }

    /// Charges an adopted handle to the process that presents it first.
    pub(super) fn charge_nt_handle(&mut self, vm: VmId, peer: Peer, token: ShareToken) -> anyhow::Result<()> {
        let of_vm = self.nt_handles_of(vm)?;
        if of_vm.shares.contains_key(&token) {
            return Ok(());
        }
        let is_sync_file = of_vm.handles.signal_of(token).is_some();
        let shares = self.shares_of(vm, peer, is_sync_file)?;
        self.nt_handles_of(vm)?.shares.insert(token, shares);
        Ok(())
    }

    fn make_nt_handle(&mut self, vm: VmId, peer: Peer, is_sync_file: bool) -> anyhow::Result<OwnedFd> {
        let shares = self.shares_of(vm, peer, is_sync_file)?;
        // Before the token: a failure here leaves no token.
        self.nt_handles_of(vm)?;
        let token = self.kernel_host.nt_handles().make(vm)?;
        let of_vm = self.nt_handles_of(vm)?;
        let added = match is_sync_file {
            true => of_vm.handles.make_sync_file(token),
            false => of_vm.handles.make(token),
        };
        match &added {
            Ok(_) => {
                of_vm.shares.insert(token, shares);
                self.raise_through_signal(vm, token);
            }
            Err(_) => self.kernel_host.nt_handles().closed(vm, token),
        }
        Ok(added?)
    }

    /// Lets the kernel's thread raise the signal of a sync file that is watched here.
    pub(super) fn raise_through_signal(&self, vm: VmId, token: ShareToken) {
        let of_vm = self.nt_handles.get(&vm);
        if let Some(signal) = of_vm.and_then(|of_vm| of_vm.handles.signal_of(token)).cloned() {
            self.kernel_host.nt_handles().raised_by(vm, token, Arc::new(move |_| signal.raise()));
        }
    }

    /// Reports NT handles whose last descriptor is closed.
    pub(super) fn close_nt_handles(&mut self, vm: VmId) {
        let Some(of_vm) = self.nt_handles.get_mut(&vm) else { return };
        for token in of_vm.handles.closed() {
            of_vm.shares.remove(&token);
            self.kernel_host.nt_handles().closed(vm, token);
        }
    }

    /// Removes the NT handles of a VM that is gone; their last close is not reported.
    pub(super) fn forget_nt_handles(&mut self, vm: VmId) {
        if let Some(of_vm) = self.nt_handles.remove(&vm) {
            self.forget(of_vm.key);
        }
    }
}
