//! NT handles and sync files of local processes: created here, and watched for their last close.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use d3dkmt::ShareToken;
use dxgkrnl::{ProcessId, VmId};
use nt_handle::{NtHandles, Signal, SyncFileFolder};
use rustix::event::epoll;

use super::{Loop, Source, answer, refuse};
use crate::closing::ClientFd;
use crate::kernel_host::KernelHost;
use crate::peer::Peer;
use crate::shares::{Budget, OverShare, Share};

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

struct HandleBudgets {
    nt_handles: Arc<Budget>,
    descriptors: Arc<Budget>,
}

impl HandleBudgets {
    /// The parts of an NT handle, or of a sync file, of which the daemon keeps a descriptor.
    fn take(&self, peer: Peer, is_sync_file: bool) -> Result<Shares, OverShare> {
        let _handle = self.nt_handles.take(peer, 1)?;
        let _descriptor = is_sync_file.then(|| self.descriptors.take(peer, 1)).transpose()?;
        Ok(Shares { _handle, _descriptor })
    }
}

impl VmNtHandles {
    /// Charges a handle that was made elsewhere, unless it is charged already.
    fn charge_adopted(
        &mut self,
        budgets: &HandleBudgets,
        peer: Peer,
        token: ShareToken,
    ) -> Result<(), OverShare> {
        if !self.shares.contains_key(&token) {
            let shares = budgets.take(peer, self.handles.signal_of(token).is_some())?;
            self.shares.insert(token, shares);
        }
        Ok(())
    }

    /// The handles whose last descriptor is closed. They are charged to nobody any more.
    fn take_closed(&mut self) -> Vec<ShareToken> {
        let closed = self.handles.closed();
        closed.iter().for_each(|token| drop(self.shares.remove(token)));
        closed
    }
}

/// Where the broker of each VM makes its sync files. The sockets must be this daemon's by now.
pub(super) fn sync_file_folders(
    kernel_host: &KernelHost,
    sockets: &[(VmId, &Path)],
) -> BTreeMap<VmId, SyncFileFolder> {
    let folder = match kernel_host.has_journal {
        true => SyncFileFolder::resumed,
        false => SyncFileFolder::fresh,
    };
    sockets.iter().map(|(vm, socket)| (*vm, folder(socket))).collect()
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
        let folder =
            self.sync_file_folders.get(&vm).with_context(|| format!("vm {} has no broker here", vm.0));
        Ok(match self.nt_handles.entry(vm) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let (handles, key) = (NtHandles::new(folder?.clone())?, self.next_key);
                let data = epoll::EventData::new_u64(key);
                epoll::add(&*self.epoll, handles.descriptor(), data, epoll::EventFlags::IN)?;
                self.next_key += 1;
                self.sources.insert(key, Source::NtHandles { vm });
                entry.insert(VmNtHandles { key, handles, shares: BTreeMap::new() })
            }
        })
    }

    /// What NT handles and sync files of a VM's processes are charged to.
    fn budgets_of_handles(&mut self, vm: VmId) -> HandleBudgets {
        let descriptors = self.kernel_host.budgets.descriptors.clone();
        HandleBudgets { nt_handles: self.budgets_of(vm).nt_handles.clone(), descriptors }
    }

    /// Charges an adopted handle to the process that presents it first.
    pub(super) fn charge_nt_handle(&mut self, vm: VmId, peer: Peer, token: ShareToken) -> anyhow::Result<()> {
        let budgets = self.budgets_of_handles(vm);
        Ok(self.nt_handles_of(vm)?.charge_adopted(&budgets, peer, token)?)
    }

    fn make_nt_handle(&mut self, vm: VmId, peer: Peer, is_sync_file: bool) -> anyhow::Result<OwnedFd> {
        let shares = self.budgets_of_handles(vm).take(peer, is_sync_file)?;
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

    /// Begins to watch a VM's NT handles. Sync files that a killed daemon left are the kernel's again, if it resumes;
    /// otherwise they become readable, because no fence is left of them.
    pub(super) fn recover_sync_files(&mut self, vm: VmId) -> anyhow::Result<()> {
        let recovered = match self.kernel_host.has_journal {
            true => self.nt_handles_of(vm)?.handles.recover(),
            false => return self.nt_handles_of(vm).map(drop),
        };
        for token in recovered {
            // Its creator may be gone, so it is charged to the user that has the file.
            let own = Peer::Uid(rustix::process::geteuid().as_raw());
            let is_kept = self.kernel_host.resumption().is_resuming()
                && self.charge_nt_handle(vm, own, token).is_ok()
                && self.kernel_host.nt_handles().insert_open(vm, token).is_ok();
            match is_kept {
                true => self.raise_through_signal(vm, token),
                false => self.nt_handles_of(vm)?.handles.signal_of(token).into_iter().for_each(Signal::raise),
            }
        }
        Ok(())
    }

    /// Closes the recovered sync files that no process has open, once all processes have returned.
    pub(super) fn close_unopened_sync_files(&mut self) {
        for (vm, of_vm) in &mut self.nt_handles {
            for token in of_vm.handles.unopened() {
                of_vm.shares.remove(&token);
                self.kernel_host.nt_handles().closed(*vm, token);
            }
        }
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
        for token in of_vm.take_closed() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adopted_handle_is_charged_once_to_whom_presents_it_first_until_its_last_close() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("broker.sock");
        let new = || NtHandles::new(SyncFileFolder::resumed(&socket)).unwrap();
        let mut before = new();
        let (handle, file) = (ShareToken([1; 16]), ShareToken([2; 16]));
        let made = (before.make(handle).unwrap(), before.make_sync_file(file).unwrap());
        let mut of_vm = VmNtHandles { key: 0, handles: new(), shares: BTreeMap::new() };
        let budget = || Budget::new("things", "close some", 6);
        let budgets = HandleBudgets { nt_handles: budget(), descriptors: budget() };
        let used = || (budgets.nt_handles.figures().1, budgets.descriptors.figures().1);
        for peer in [Peer::Uid(1), Peer::Uid(2)] {
            for descriptor in [made.0.as_fd(), made.1.as_fd()] {
                let token = of_vm.handles.adopt(descriptor).unwrap().unwrap();
                of_vm.charge_adopted(&budgets, peer, token).unwrap();
            }
            assert_eq!(used(), (2, 1));
        }
        // Two more are all that the first user may have, and the second has none of them.
        let more: Vec<_> = (0..2).map(|_| budgets.take(Peer::Uid(1), false).unwrap()).collect();
        assert!(budgets.take(Peer::Uid(1), false).is_err() && budgets.take(Peer::Uid(2), false).is_ok());
        drop((more, made, before));
        let mut closed = of_vm.take_closed();
        closed.sort_by_key(|token| token.0);
        assert_eq!((closed, used()), (vec![handle, file], (0, 0)));
    }
}
