//! Processes whose host was killed, and that the next host resumes: `docs/RESTART.md`.
//!
//! A process that loses its host keeps its backing pages and nothing else of the broker's. It notices the end of its
//! stream, and asks for its session by a new connection; then for its memory, region by region, and for its backing.
//! The old connection shows meanwhile whether the process lives.

use std::collections::BTreeMap;
use std::time::Duration;

use d3dkmt::limits::DEVICE_MEMORY_START;
use fence_page::pages_for;
use proto::Versions;
use proto::attach::{
    AttachBacking, BrokerReply, ResumeProcess, Resumed, Returning, broker_request, guestd_to_host,
};

use super::awaiting_pages::WantedPages;
use super::rings::RingAreas;
use super::state::{BackingPages, ClientState, DetachedProcess, Pending, Process, ProcessState};
use super::{Broker, ClientId, Effect, Machine, Peer};
use crate::limits::{GROW_PAGES_MAX, HOST_WAIT_MAX};

impl<M: Machine> Broker<M> {
    /// The host is gone: processes that can be resumed wait for the next one. Returns how many do.
    pub(super) fn strand(&mut self) -> usize {
        for pending in self.pending.values() {
            // These clients see their connection close: drop pages that they never got, or were detaching. Who was releasing
            // some attaches them to the next host, which may still use them.
            if let Pending::AttachBacking { process, address, .. }
            | Pending::DetachBacking { process, address, if_unused: false, .. } = pending
                && let Some(entry) = self.processes.get_mut(process)
            {
                // Of shared memory the host may have kept them.
                match entry.backing.remove(address) {
                    Some(pages)
                        if *address >= DEVICE_MEMORY_START
                            && matches!(pending, Pending::DetachBacking { .. }) =>
                    {
                        self.kept.insert((*process, *address), pages);
                    }
                    _ => {}
                }
            }
        }
        let is_leaving = |(number, entry): (&u32, &mut Process<M>)| {
            let of_device = match entry.state {
                ProcessState::Leaving => entry.backing.split_off(&DEVICE_MEMORY_START),
                ProcessState::Alive { .. } => BTreeMap::new(),
            };
            let number = *number;
            of_device.into_iter().map(move |(address, pages)| ((number, address), pages))
        };
        self.kept.extend(self.processes.iter_mut().flat_map(is_leaving));
        let may_go_on = |(number, entry): (&u32, &Process<M>)| match entry.state {
            ProcessState::Alive { client, stream: Some(_) } if !entry.right.token.is_empty() => {
                Some((*number, client))
            }
            ProcessState::Alive { .. } | ProcessState::Leaving => None,
        };
        for (process, client) in self.processes.iter().filter_map(may_go_on).collect::<Vec<_>>() {
            let Some(entry) = self.processes.remove(&process) else { continue };
            if !entry.registered.is_empty() {
                self.effects.push(Effect::CloseEventChannels { process });
            }
            let Process { right, backing, charge, .. } = entry;
            self.stranded.insert(process, DetachedProcess { client, right, backing, charge });
            if let Some(client) = self.clients.get_mut(&client) {
                client.strand(process);
            }
            self.effects.push(Effect::HangUp { client });
        }
        self.stranded.len()
    }

    /// The host is connected. Unless it waits for this guest's processes, their sessions have ended.
    pub(super) fn return_to_host(&mut self, resuming: bool) {
        if resuming {
            let processes = self.stranded.keys().copied().collect();
            self.tell_host(guestd_to_host::Body::Returning(Returning { processes }), Pending::Returning);
            let kept = self.kept.iter().map(|((process, address), pages)| AttachBacking {
                process: *process,
                address: *address,
                pages: pages.addresses.clone(),
            });
            for kept in kept.collect::<Vec<_>>() {
                let pending = Pending::KeptBacking { process: kept.process, address: kept.address };
                self.tell_host(guestd_to_host::Body::KeptBacking(kept), pending);
            }
            for token in self.nt_handles.keys().map(|token| token.0.to_vec()).collect::<Vec<_>>() {
                self.tell_host(guestd_to_host::Body::NtHandleHeld(token), Pending::NtHandleHeld);
            }
        } else {
            for process in self.stranded.keys().copied().collect::<Vec<_>>() {
                self.end_stranded(process);
            }
            // The host has closed them with the link.
            self.forget_nt_handles();
            self.free_kept();
        }
    }

    pub(super) fn free_kept(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.free_backing(kept);
    }

    fn end_stranded(&mut self, process: u32) {
        if let Some(DetachedProcess { client, backing, .. }) = self.stranded.remove(&process) {
            self.free_backing(backing);
            self.clients.remove(&client);
            self.effects.push(Effect::Close { client });
        }
    }

    /// A process has exited that a host may wait for.
    pub(super) fn stranded_gone(&mut self, process: u32) {
        let mut backing = self.stranded.remove(&process).map(|gone| gone.backing).unwrap_or_default();
        // The next host may need what it shares: that host refuses the rest.
        let of_device = backing.split_off(&DEVICE_MEMORY_START);
        self.free_backing(backing);
        self.keep_for_next_host(process, of_device);
        if self.link.is_up() {
            self.tell_host(guestd_to_host::Body::Detach(process), Pending::Detach { process });
        }
    }

    /// Keeps pages of a process that is gone. A host that waits for it is told at once, another one later.
    fn keep_for_next_host(&mut self, process: u32, of_device: BTreeMap<u64, BackingPages<M>>) {
        if !self.link.is_up() && self.stranded.is_empty() {
            // No process returns to that host.
            self.free_backing(of_device);
            return self.free_kept();
        }
        for (address, backing) in of_device {
            if self.link.is_up() {
                let pages = backing.addresses.clone();
                let body = guestd_to_host::Body::KeptBacking(AttachBacking { process, address, pages });
                self.tell_host(body, Pending::KeptBacking { process, address });
            }
            self.kept.insert((process, address), backing);
        }
    }

    pub(super) fn resume(&mut self, now: Duration, client: ClientId, resume: broker_request::Resume) {
        if let Err(none) = Versions::agree(resume.version, resume.version_min, "libdxcore.so") {
            return self.expel(client, none.to_string());
        }
        self.ask_for_session(now, client, resume.process, resume.token, resume.rings);
    }

    pub(super) fn ask_for_session(
        &mut self,
        now: Duration,
        client: ClientId,
        process: u32,
        token: Vec<u8>,
        rings: bool,
    ) {
        if !self.link.is_up() {
            let until = now + HOST_WAIT_MAX;
            self.change_state(client, ClientState::Returning { process, token, rings, until });
            return;
        }
        let Some(Peer { pid, user }) = self.change_state(client, ClientState::Resuming) else { return };
        // The host decides whether the process may resume, even if the broker does not know yet that its host was lost.
        // The kernel reports the pid.
        let rings = self.lend_rings(user, rings);
        let pages = rings.as_ref().map(RingAreas::pages);
        let resume = ResumeProcess { process, pid, token, rings: pages };
        self.tell_host(guestd_to_host::Body::Resume(resume), Pending::Resume { client, process, rings });
    }

    /// The host resumes the process. It has checked pid and token.
    pub(super) fn resumed(
        &mut self,
        client: ClientId,
        process: u32,
        mut rings: Option<RingAreas<M>>,
        resumed: Resumed,
    ) -> Result<(), &'static str> {
        let Some(stranded) = self.stranded.get(&process) else {
            // It exited meanwhile, and the broker has reported that.
            self.expel(client, "the process has ended".to_owned());
            return Ok(());
        };
        let old = stranded.client;
        let pid_of = |client| self.clients.get(&client).map(|client| client.peer.pid);
        let Some(user) = self.clients.get(&client).map(|client| client.peer.user) else { return Ok(()) };
        if pid_of(client) != pid_of(old) {
            return Err("it gives the session of one process to another");
        }
        let Ok(made) = self.machine.open_stream() else {
            // The host may have been killed again: the process tries again.
            self.clients.remove(&client);
            self.effects.push(Effect::Close { client });
            return Ok(());
        };
        let Some(DetachedProcess { right, backing, charge, .. }) = self.stranded.remove(&process) else {
            return Ok(());
        };
        self.clients.remove(&old);
        self.effects.push(Effect::Close { client: old });
        if let Some(client) = self.clients.get_mut(&client) {
            client.state = ClientState::Attached { process };
        }
        let state = ProcessState::Alive { client, stream: Some(made.stream) };
        let (regions, registered, token) = Default::default();
        let areas = rings.as_mut().map(RingAreas::take_descriptors).unwrap_or_default();
        let resumed_process =
            Process { state, user, regions, backing, rings, registered, token, right, charge };
        self.processes.insert(process, resumed_process);
        let Resumed { slots, token } = resumed;
        let reply = BrokerReply { process, slots, token, rings: !areas.is_empty(), ..BrokerReply::default() };
        self.reply(client, reply, std::iter::once(made.descriptor).chain(areas).collect());
        Ok(())
    }

    /// The host refuses to resume it. The old process is ended only if it asked itself: another process's request must
    /// not end it.
    pub(super) fn not_resumed(&mut self, client: ClientId, process: u32, words: String) {
        let pid = self.clients.get(&client).map(|client| client.peer.pid);
        let of = self.stranded.get(&process).and_then(|stranded| self.clients.get(&stranded.client));
        if of.is_some() && of.map(|of| of.peer.pid) == pid {
            self.end_stranded(process);
        }
        self.expel(client, words);
    }

    /// Memory for slots that a process had.
    pub(super) fn regain(&mut self, client: ClientId, process: u32, first_slot: u32, slots: u32) {
        let pages = pages_for(slots);
        if pages == 0 || pages > GROW_PAGES_MAX {
            return self.refuse(client, format!("{slots} fence slots cannot be mapped again by one request"));
        }
        let wanted = WantedPages::Fences { pages, first: false, first_slot: Some(first_slot) };
        self.want_pages(client, process, wanted);
    }
}
