//! NT handles of local processes: created here, and watched for their last close.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd as _, OwnedFd};

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
    /// For each handle that was created here: its part of its creator's share.
    shares: BTreeMap<ShareToken, Share>,
}

impl Loop {
    /// Gives a process an NT handle that names nothing yet. If it is refused, its connection stays open.
    pub(super) fn give_nt_handle(
        &mut self,
        vm: VmId,
        process: ProcessId,
        connection: &ClientFd,
    ) -> anyhow::Result<bool> {
        // So a name is free as soon as the last of its handles is closed.
        self.close_nt_handles(vm);
        match self.make_nt_handle(vm, connection.peer()) {
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

    fn make_nt_handle(&mut self, vm: VmId, peer: Peer) -> anyhow::Result<OwnedFd> {
        let share = self.budgets_of(vm).nt_handles.take(peer, 1)?;
        // Before the token: a failure here leaves no token.
        self.nt_handles_of(vm)?;
        let token = self.kernel_host.nt_handles().make(vm)?;
        let of_vm = self.nt_handles_of(vm)?;
        let added = of_vm.handles.make(token);
        match &added {
            Ok(_) => _ = of_vm.shares.insert(token, share),
            Err(_) => self.kernel_host.nt_handles().closed(vm, token),
        }
        Ok(added?)
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
