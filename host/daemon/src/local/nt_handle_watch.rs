//! NT handles and sync files of local processes: created here, and watched for their last close.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use d3dkmt::ShareToken;
use dxgkrnl::VmId;
use fair_queue::{FairQueue, Queue as _};
use nt_handle::{Adopted, NtHandles, Signal, SyncFileFolder};
use rustix::event::epoll;

use super::{Loop, Source};
use crate::kernel_host::KernelHost;
use crate::limits::HANDLES_CLOSED_AT_ONCE_MAX;
use crate::peer::Peer;
use crate::shares::{Budget, OverShare, Share};

/// The NT handles of the processes of one VM. Once created it stays as long as the VM, because closing its watch takes
/// the system milliseconds. Otherwise a process that creates and closes a handle in a loop would cause that each time.
pub(super) struct VmNtHandles {
    key: u64,
    pub handles: NtHandles,
    /// For each handle: its parts of the shares of the peer that created it or presented it first. More than one if
    /// processes have presented several files with the same token, of which all but one are forged.
    shares: BTreeMap<ShareToken, Vec<(Peer, Shares)>>,
    /// Closed handles of which the kernel is not told yet, by the peer that is charged for them.
    closed: FairQueue<Peer, VecDeque<ShareToken>>,
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

    /// The same, of a handle that was there before this daemon: it is never refused.
    fn count(&self, peer: Peer, is_sync_file: bool) -> Shares {
        let _handle = self.nt_handles.count(peer, 1);
        let _descriptor = is_sync_file.then(|| self.descriptors.count(peer, 1));
        Shares { _handle, _descriptor }
    }
}

impl VmNtHandles {
    fn new(key: u64, handles: NtHandles) -> VmNtHandles {
        VmNtHandles { key, handles, shares: BTreeMap::new(), closed: FairQueue::default() }
    }

    /// Charges a handle that was made elsewhere to the peer that presents it first, and each further file with its token.
    /// `is_known`: the handle existed before this daemon, so a peer is not refused for the first file that it presents.
    fn charge_adopted(
        &mut self,
        budgets: &HandleBudgets,
        peer: Peer,
        adopted: Adopted,
        is_known: bool,
    ) -> Result<(), OverShare> {
        let Adopted { token, watch, is_new } = adopted;
        let is_sync_file = self.handles.signal_of(token).is_some();
        let charged = self.shares.entry(token).or_default();
        charged.retain(|(of, _)| *of != Peer::Recovered);
        if !charged.is_empty() && !is_new {
            return Ok(());
        }
        let is_first = charged.iter().all(|(of, _)| *of != peer);
        let shares = match is_known && is_first {
            true => Ok(budgets.count(peer, is_sync_file)),
            false => budgets.take(peer, is_sync_file),
        };
        match shares {
            Ok(shares) => {
                charged.push((peer, shares));
                Ok(())
            }
            Err(over) => {
                if charged.is_empty() {
                    self.shares.remove(&token);
                }
                if is_new {
                    self.handles.abandon(watch);
                }
                Err(over)
            }
        }
    }

    /// Counts a sync file that a killed daemon left for no user yet.
    fn charge_recovered(&mut self, budgets: &HandleBudgets, token: ShareToken) {
        let shares = budgets.count(Peer::Recovered, true);
        self.shares.insert(token, vec![(Peer::Recovered, shares)]);
    }

    /// Finds handles whose last descriptor is closed.
    fn find_closed(&mut self) {
        for token in self.handles.closed() {
            let charged = self.shares.get(&token).and_then(|charged| charged.first());
            let peer = charged.map_or(Peer::Recovered, |(peer, _)| *peer);
            self.closed.push(peer, token);
        }
    }

    /// Whether closed handles of this peer may be left.
    fn may_have_closed(&self, peer: Peer) -> bool {
        self.handles.has_more() || self.closed.get(peer).is_some()
    }

    /// Takes a closed handle, of this peer or of the one whose turn it is. It is charged to nobody any more.
    fn take_closed(&mut self, peer: Option<Peer>) -> Option<ShareToken> {
        let token = match peer {
            Some(peer) => self.closed.pop_of(peer),
            None => self.closed.pop(),
        }?;
        self.shares.remove(&token);
        Some(token)
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
                entry.insert(VmNtHandles::new(key, handles))
            }
        })
    }

    /// What NT handles and sync files of a VM's processes are charged to.
    fn budgets_of_handles(&mut self, vm: VmId) -> HandleBudgets {
        let descriptors = self.kernel_host.budgets.descriptors.clone();
        HandleBudgets { nt_handles: self.budgets_of(vm).nt_handles.clone(), descriptors }
    }

    /// Charges an adopted handle to the peer that presents it first.
    pub(super) fn charge_nt_handle(&mut self, vm: VmId, peer: Peer, adopted: Adopted) -> anyhow::Result<()> {
        let budgets = self.budgets_of_handles(vm);
        let is_known = self.kernel_host.nt_handles().is_open(vm, adopted.token);
        Ok(self.nt_handles_of(vm)?.charge_adopted(&budgets, peer, adopted, is_known)?)
    }

    /// Makes an NT handle that names nothing yet.
    pub(super) fn make_nt_handle(
        &mut self,
        vm: VmId,
        peer: Peer,
        is_sync_file: bool,
    ) -> anyhow::Result<OwnedFd> {
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
                of_vm.shares.insert(token, vec![(peer, shares)]);
                self.raise_through_signal(vm, token);
            }
            Err(_) => self.kernel_host.nt_handles().closed(vm, token),
        }
        Ok(added?)
    }

    /// Begins to watch a VM's NT handles. Sync files that a killed daemon left are the kernel's again, if it resumes;
    /// otherwise they become readable, because no fence is left of them. Descriptors or watches may be used up now. So this
    /// is called once more before the daemon resumes.
    pub(super) fn recover_sync_files(&mut self, vm: VmId) {
        if let Err(error) = self.try_recover_sync_files(vm) {
            let line = || format!("the NT handles of vm {} cannot be watched yet: {error:#}", vm.0);
            self.kernel_host.log.warn(Peer::Vm(vm), line);
        }
    }

    fn try_recover_sync_files(&mut self, vm: VmId) -> anyhow::Result<()> {
        let recovered = match self.kernel_host.has_journal {
            true => self.nt_handles_of(vm)?.handles.recover(),
            false => return self.nt_handles_of(vm).map(drop),
        };
        let budgets = self.budgets_of_handles(vm);
        for token in recovered {
            let is_kept = self.kernel_host.resumption().is_resuming()
                && self.kernel_host.nt_handles().insert_open(vm, token).is_ok();
            match is_kept {
                // Its creator may be gone. No user is charged before one presents it, and no full budget makes it
                // readable: a wait would end before its fence has the value.
                true => {
                    self.nt_handles_of(vm)?.charge_recovered(&budgets, token);
                    self.raise_through_signal(vm, token);
                }
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

    /// Tells the kernel of some NT handles whose last descriptor is closed; the rest have another turn.
    pub(super) fn close_nt_handles(&mut self, vm: VmId) {
        self.close_nt_handles_of(vm, None);
    }

    /// The same of the handles that are charged to this peer; true if some are left. Once none are, the names and shares of
    /// what its processes have closed are free.
    pub(super) fn must_close_more(&mut self, vm: VmId, peer: Peer) -> bool {
        self.close_nt_handles_of(vm, Some(peer));
        self.nt_handles.get(&vm).is_some_and(|of_vm| of_vm.may_have_closed(peer))
    }

    fn close_nt_handles_of(&mut self, vm: VmId, peer: Option<Peer>) {
        let Some(of_vm) = self.nt_handles.get_mut(&vm) else { return };
        of_vm.find_closed();
        for _ in 0..HANDLES_CLOSED_AT_ONCE_MAX {
            let Some(token) = of_vm.take_closed(peer) else { break };
            self.kernel_host.nt_handles().closed(vm, token);
            self.kernel_host.yield_to_waiters();
        }
        if of_vm.handles.has_more() || !of_vm.closed.is_empty() {
            self.turns.join((vm, Peer::Vm(vm)), of_vm.key);
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
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    fn take_all_closed(of_vm: &mut VmNtHandles) -> Vec<ShareToken> {
        of_vm.find_closed();
        std::iter::from_fn(|| of_vm.take_closed(None)).collect()
    }

    #[test]
    fn an_adopted_handle_is_charged_once_to_whom_presents_it_first_until_its_last_close() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("broker.sock");
        let new = || NtHandles::new(SyncFileFolder::resumed(&socket)).unwrap();
        let mut before = new();
        let (handle, file) = (ShareToken([1; 16]), ShareToken([2; 16]));
        let made = (before.make(handle).unwrap(), before.make_sync_file(file).unwrap());
        let mut of_vm = VmNtHandles::new(0, new());
        let budget = || Budget::new("things", "close some", 6);
        let budgets = HandleBudgets { nt_handles: budget(), descriptors: budget() };
        let used = || (budgets.nt_handles.figures().1, budgets.descriptors.figures().1);
        for peer in [Peer::Uid(1), Peer::Uid(2)] {
            for descriptor in [made.0.as_fd(), made.1.as_fd()] {
                let adopted = of_vm.handles.adopt(descriptor).unwrap().unwrap();
                of_vm.charge_adopted(&budgets, peer, adopted, false).unwrap();
            }
            assert_eq!(used(), (2, 1));
        }
        // Two more are all that the first user may have, and the second has none of them.
        let more: Vec<_> = (0..2).map(|_| budgets.take(Peer::Uid(1), false).unwrap()).collect();
        assert!(budgets.take(Peer::Uid(1), false).is_err() && budgets.take(Peer::Uid(2), false).is_ok());
        drop((more, made, before));
        let mut closed = take_all_closed(&mut of_vm);
        closed.sort_by_key(|token| token.0);
        assert_eq!((closed, used()), (vec![handle, file], (0, 0)));
    }

    /// A sealed file with the bytes of an NT handle, as any process can make one.
    fn forged(handle: impl AsFd) -> OwnedFd {
        let mut bytes = [0; 24];
        assert_eq!(rustix::io::pread(handle, &mut bytes, 0), Ok(bytes.len()));
        let file =
            rustix::fs::memfd_create("forged", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::io::write(&file, &bytes).unwrap();
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    }

    /// As a FUSE server can state them: the name, the owner and the mode of a sync file, in another file system. The server
    /// need not answer what the daemon asks of it.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_sync_file_of_another_file_system_is_refused_without_a_question_to_its_server() {
        use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmod, mknodat, stat};
        use sandbox::thread_calls::has_bits;
        use sandbox::{Filters, Kind as _};

        let folder = tempfile::tempdir().unwrap();
        let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return eprintln!("skipped: no /dev/shm") };
        if stat(folder.path()).unwrap().st_dev == stat(other.path()).unwrap().st_dev {
            return eprintln!("skipped: temporary files are in /dev/shm");
        }
        let handles = NtHandles::new(SyncFileFolder::resumed(&folder.path().join("broker.sock"))).unwrap();
        let handles = std::cell::RefCell::new(handles);
        let _made = handles.borrow_mut().make_sync_file(ShareToken([1; 16])).unwrap();
        let path = other.path().join(format!("gpupv-sync-file-{}", "5c".repeat(16)));
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let foreign = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        chmod(&path, Mode::WUSR).unwrap();
        assert_eq!(nt_handle::token_of(foreign.as_fd()), Some(ShareToken([0x5c; 16])));

        let asking = [libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_fstatfs, libc::SYS_inotify_add_watch];
        let asking = asking.into_iter().chain([libc::SYS_chmod, libc::SYS_fchmodat]);
        let unsynced = AtFlags::STATX_DONT_SYNC.bits().into();
        let statx = has_bits(2, unsynced, 0).map(|rule| (libc::SYS_statx, vec![rule]));
        let filters = Filters::forbid(asking.map(|call| Ok((call, Vec::new()))).chain([statx])).unwrap();
        let ended = sandbox::testing::in_child(&filters, crate::thread_kind::ThreadKind::ENDING, || {
            let refused = handles.borrow_mut().adopt(foreign.as_fd());
            i32::from(!matches!(refused, Err(nt_handle::NotMade::NotOwn)))
        });
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    }

    #[test]
    fn recovered_sync_files_are_charged_to_no_user_before_one_presents_them_and_are_never_refused() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("broker.sock");
        let new = || NtHandles::new(SyncFileFolder::resumed(&socket)).unwrap();
        let mut before = new();
        let made: Vec<_> =
            (0..4).map(|number| before.make_sync_file(ShareToken([number; 16])).unwrap()).collect();
        let mut of_vm = VmNtHandles::new(0, new());
        let budget = || Budget::new("things", "close some", 6);
        let budgets = HandleBudgets { nt_handles: budget(), descriptors: budget() };
        for token in of_vm.handles.recover() {
            of_vm.charge_recovered(&budgets, token);
        }
        let own = Peer::Uid(rustix::process::geteuid().as_raw());
        assert!(budgets.take(own, false).is_ok(), "the daemon's user is charged for none of them");
        for file in &made {
            let adopted = of_vm.handles.adopt(file.as_fd()).unwrap().unwrap();
            of_vm.charge_adopted(&budgets, Peer::Uid(7), adopted, true).unwrap();
        }
        assert!(of_vm.shares.values().flatten().all(|(peer, _)| *peer == Peer::Uid(7)));
        assert!(budgets.take(Peer::Uid(7), false).is_err(), "it has more than its share now");
        assert_eq!(budgets.descriptors.figures().1, 4);
    }

    #[test]
    fn forged_files_are_charged_to_who_presents_them_and_take_no_handle_from_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let new = || NtHandles::new(SyncFileFolder::resumed(&folder.path().join("broker.sock"))).unwrap();
        let mut before = new();
        let handle = before.make(ShareToken([1; 16])).unwrap();
        let mut of_vm = VmNtHandles::new(0, new());
        let budget = || Budget::new("things", "close some", 6);
        let budgets = HandleBudgets { nt_handles: budget(), descriptors: budget() };
        let (forger, owner) = (Peer::Uid(1), Peer::Uid(2));
        let mut files: Vec<OwnedFd> = Vec::new();
        let mut present = |of_vm: &mut VmNtHandles, peer, file: OwnedFd| {
            let adopted = of_vm.handles.adopt(file.as_fd()).unwrap().unwrap();
            files.push(file);
            of_vm.charge_adopted(&budgets, peer, adopted, true)
        };
        for _ in 0..4 {
            present(&mut of_vm, forger, forged(&handle)).unwrap();
        }
        assert!(present(&mut of_vm, forger, forged(&handle)).is_err(), "it has its share");
        present(&mut of_vm, owner, handle.try_clone().unwrap()).unwrap();
        assert_eq!(of_vm.handles.len(), 5, "a refused file is not watched");
        files.clear();
        assert!(take_all_closed(&mut of_vm).is_empty(), "the owner has its handle open");
        drop(handle);
        assert_eq!(take_all_closed(&mut of_vm), [ShareToken([1; 16])]);
        assert_eq!(budgets.nt_handles.figures().1, 0);
    }
}
