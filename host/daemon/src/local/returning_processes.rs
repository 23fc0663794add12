//! Local processes that return to a resumed daemon: see `kernel_host/resuming.rs`.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use dxgkrnl::{ProcessId, VmId};
use listening::PeerCredentials;
use proto::attach::BrokerReply;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use tracing::Level;

use super::replies::Reply;
use super::{Loop, Source};
use crate::backing::BackingPages;
use crate::closing::ClientFd;
use crate::kernel_host::{AwaitedClient, ResumeOutcome};
use crate::limits::PENDING_CONNECTIONS_PER_PEER_MAX;
use crate::local_vm::has_machine;
use crate::memory::{FenceMemory, LocalRegion};
use crate::peer::Peer;

/// State of the loop while it waits for clients.
#[derive(Default)]
pub(super) struct ResumeWait {
    /// New processes that wait meanwhile, by user and key of the connection.
    parked: BTreeMap<(Peer, u64), Parked>,
    limit: Option<u64>,
    is_late: bool,
}

/// A request for a session.
struct Parked {
    vm: VmId,
    connection: Arc<ClientFd>,
    name: String,
    rings: bool,
}

impl ResumeWait {
    /// Drops the request of a connection that is closed.
    pub fn forget(&mut self, peer: Peer, key: u64) {
        self.parked.remove(&(peer, key));
    }
}

impl Loop {
    /// Begins to wait for clients of the daemon before this one, if there are any, up to the time limit.
    pub(super) fn begin_returning(&mut self) -> anyhow::Result<()> {
        if !self.kernel_host.resumption().is_resuming() {
            return Ok(());
        }
        let mut returning = ResumeWait::default();
        // guestd reports whether a process of a VM with a machine is alive.
        for AwaitedClient { process, pid, .. } in
            self.kernel_host.resumption().awaited().into_iter().filter(|client| !has_machine(client.vm))
        {
            match Pid::from_raw(pid as i32).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                // It exited while no daemon ran.
                None | Some(Err(Errno::SRCH)) => self.kernel_host.sessions().detach(process),
                Some(Ok(pidfd)) => {
                    let key = self.add(Source::Pid { process, pidfd, share: None })?;
                    self.keys_of.insert(process, vec![key]);
                }
                Some(Err(_)) => _ = self.keys_of.insert(process, Vec::new()),
            }
        }
        if let Some(limit) = self.kernel_host.resume_within {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            // Zero would disarm it.
            let limit = limit.max(Duration::from_nanos(1));
            let it_value = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
            let spec = Itimerspec { it_interval: zero, it_value };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
            returning.limit = Some(self.add(Source::ReturnLimit(timer))?);
        }
        self.returning = Some(returning);
        self.check_awaited();
        Ok(())
    }

    pub(super) fn return_limit_is_over(&mut self) {
        if let Some(returning) = &mut self.returning {
            returning.is_late = true;
        }
    }

    /// Defers a new process until the old ones have returned. The connection of a user over its share was accepted for a
    /// process that returns, so a new one is refused there.
    pub(super) fn park(
        &mut self,
        key: u64,
        vm: VmId,
        connection: &Arc<ClientFd>,
        name: String,
        rings: bool,
    ) -> anyhow::Result<()> {
        let peer = connection.peer();
        self.kernel_host.budgets.descriptors.check(peer)?;
        let parked = &mut self.returning.as_mut().context("the daemon waits for no process")?.parked;
        if parked.contains_key(&(peer, key)) {
            // A repeated request is still to be answered.
            return Ok(());
        }
        let of_peer = parked.range((peer, 0)..=(peer, u64::MAX)).count();
        anyhow::ensure!(
            of_peer < PENDING_CONNECTIONS_PER_PEER_MAX,
            "{of_peer} processes of {peer} wait until those of the daemon before have returned: try again then"
        );
        parked.insert((peer, key), Parked { vm, connection: connection.clone(), name, rings });
        Ok(())
    }

    /// Resumes once every client has returned or is gone, or the time limit has passed.
    pub(super) fn check_awaited(&mut self) {
        let Some(returning) = &self.returning else { return };
        let awaited = self.kernel_host.resumption().awaited();
        if !returning.is_late && awaited.iter().any(|client| client.has_called) {
            return;
        }
        for AwaitedClient { process, vm, pid, has_called } in awaited {
            if has_called {
                let (process, vm) = (process.0, vm.0);
                let line =
                    || format!("process {process} (vm {vm}, pid {pid}) did not return: it is detached");
                self.kernel_host.log.warn(Peer::Process(ProcessId(process)), line);
            }
            self.end_process(process);
        }
        // Some may not have been watched while descriptors or watches were used up.
        for vm in self.sync_file_folders.keys().copied().collect::<Vec<_>>() {
            self.recover_sync_files(vm);
        }
        let ResumeOutcome { closed, not_welcomed } = self.kernel_host.resumption().resume_all();
        if closed > 0 {
            let why = "no returned process has them open";
            self.kernel_host
                .log
                .push_daemon_line(Level::WARN, format!("{closed} NT handles are closed: {why}"));
        }
        self.close_unopened_sync_files();
        let Some(ResumeWait { parked, limit, .. }) = self.returning.take() else { return };
        limit.into_iter().for_each(|key| self.forget(key));
        not_welcomed.into_iter().for_each(|process| self.end_process(process));
        // In the order of their connections.
        let parked: BTreeMap<_, _> = parked.into_iter().map(|((_, key), parked)| (key, parked)).collect();
        for (key, Parked { vm, connection, name, rings }) in parked {
            // The end of a process that was not welcomed may have closed it.
            if !self.sources.contains_key(&key) {
                continue;
            }
            let attached = self.attach(key, vm, &connection, name, rings);
            if let Err(error) = attached.and_then(|reply| reply.send(&connection)) {
                self.refuse_for_good(key, &connection, &error);
            }
        }
    }

    /// Drops a connection or a stream that a process closed before it had returned: it may try again. False if the
    /// daemon does not wait for the process.
    pub(super) fn drop_unfinished(&mut self, key: u64, process: ProcessId) -> bool {
        if self.returning.is_none() || !self.kernel_host.resumption().is_awaited(process) {
            return false;
        }
        if let Some(keys) = self.keys_of.get_mut(&process) {
            keys.retain(|other| *other != key);
        }
        self.forget(key);
        true
    }

    /// Gives a returning process a new stream. What an earlier try of it has here ends.
    pub(super) fn resume(
        &mut self,
        key: u64,
        vm: VmId,
        connection: &ClientFd,
        process: ProcessId,
        token: &[u8],
        rings: bool,
    ) -> anyhow::Result<Reply> {
        let parked = self.returning.as_ref().map(|returning| &returning.parked);
        let is_parked = parked.is_some_and(|parked| parked.contains_key(&(connection.peer(), key)));
        anyhow::ensure!(!is_parked, "a connection is for one process: this one waits to attach a new one");
        let pid = PeerCredentials::of(connection)?.pid()?.as_raw_nonzero().get() as u32;
        let memory = FenceMemory::Local(Vec::new());
        let (slots, token) = self.kernel_host.resumption().resume(vm, pid, process, token, memory)?;
        let client = self.kernel_host.sessions().client(process).context("the process has ended")?;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let keys = self.keys_of.remove(&process).unwrap_or_default().into_iter();
        let is_pid = |key: &u64| matches!(self.sources.get(key), Some(Source::Pid { .. }));
        let (mut keys, earlier): (Vec<u64>, Vec<u64>) = keys.partition(is_pid);
        earlier.into_iter().for_each(|key| self.forget(key));
        // What the process had before the kill is counted again, whatever its user has by now.
        let (peer, descriptors) = (connection.peer(), self.kernel_host.budgets.descriptors.clone());
        for key in &keys {
            if let Some(Source::Pid { share, .. }) = self.sources.get_mut(key) {
                *share = Some(descriptors.count(peer, 1));
            }
        }
        keys.push(key);
        let watched = self.watch_stream(&client, descriptors.count(peer, 1), peer, ours, &mut keys);
        self.keys_of.insert(process, keys);
        let process_share = self.budgets_of(vm).processes.count(peer, 1);
        if let Some(Source::Broker { process: of, share, .. }) = self.sources.get_mut(&key) {
            (*of, *share) = (Some(process), Some(process_share));
        }
        watched?;
        let areas = self.offer_rings(&client, connection.peer(), rings);
        let (token, process, rings) = (token.to_vec(), process.0, areas.is_some());
        let message = BrokerReply { token, process, slots, rings, ..BrokerReply::default() };
        Ok(Reply { message, descriptors: [theirs].into_iter().chain(areas.into_iter().flatten()).collect() })
    }

    /// Adds memory for the slots of a returning process; returns its descriptor.
    pub(super) fn regain(
        &self,
        peer: Peer,
        process: ProcessId,
        first: u32,
        slots: u32,
    ) -> anyhow::Result<OwnedFd> {
        let most = d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX;
        anyhow::ensure!((1..=most).contains(&slots), "{slots} fence slots, allowed are 1 to {most}");
        let pages = fence_page::pages_for(slots);
        let share = self.kernel_host.budgets.mappings.count(peer, 1);
        let (region, descriptor) = LocalRegion::create(pages, share)?;
        self.kernel_host.resumption().regain(process, first, pages, |memory| match memory {
            FenceMemory::Local(regions) => {
                regions.push((first, region));
                Ok(())
            }
            FenceMemory::Guest { .. } => anyhow::bail!("the process is not a local one"),
        })?;
        Ok(descriptor)
    }

    pub(super) fn reattach_backing(
        &self,
        process: ProcessId,
        address: u64,
        pages: u32,
        memory: &ClientFd,
    ) -> anyhow::Result<()> {
        let mut local = self.mapped_again(memory, pages)?;
        if self.kernel_host.sessions().is_shared_memory(process, address) {
            local = self.shareable(local, memory)?;
        }
        self.kernel_host.resumption().reattach_backing(process, address, pages, BackingPages::Local(local))
    }

    /// Watches an NT handle that a returning process of this VM has open.
    pub(super) fn have_nt_handle(&mut self, vm: VmId, handle: &ClientFd) -> anyhow::Result<()> {
        anyhow::ensure!(self.returning.is_some(), "only a returning process can present an NT handle");
        // Before the token is recorded: a descriptor that is refused leaves none.
        let adopted = self.nt_handles_of(vm)?.handles.adopt(handle.as_fd())?;
        let adopted =
            adopted.with_context(|| format!("descriptor {} is no NT handle", handle.as_fd().as_raw_fd()))?;
        let token = adopted.token;
        self.charge_nt_handle(vm, handle.peer(), adopted)?;
        self.kernel_host.nt_handles().insert_open(vm, token)?;
        self.raise_through_signal(vm, token);
        Ok(())
    }
}
