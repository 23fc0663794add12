//! Backing pages: pages of a process that the host's engines read and write. The broker makes them; the process fills
//! and maps them.
//!
//! They are freed only once the host has answered that it has detached them, refused them, or detached the process; or
//! released them, if it has answered that it keeps them for processes that have opened them. Memory of the process that
//! the host does not detach, because it is in use, stays the process's.

use d3dkmt::limits::DEVICE_MEMORY_START;
use proto::attach::host_to_guestd::Body;
use proto::attach::{AttachBacking, BrokerReply, DetachBacking, ShareBacking, SharedBacking, guestd_to_host};
use proto::limits::{BACKING_PAGES_MAX, PAGES_PER_MESSAGE_MAX};

use super::state::{BackingPages, ClientState, NewRegion, Pending};
use super::{Broker, ClientId, Machine, Purpose};

impl<M: Machine> Broker<M> {
    /// Makes pages and reports them to the host.
    pub(super) fn attach_backing(&mut self, client: ClientId, process: u32, address: u64, pages: u32) {
        match self.make_backing(process, address, pages) {
            Ok((descriptor, addresses)) => {
                if let Some(client) = self.clients.get_mut(&client) {
                    client.state = ClientState::AttachingBacking { process, descriptor };
                }
                let body =
                    guestd_to_host::Body::AttachBacking(AttachBacking { process, address, pages: addresses });
                self.tell_host(body, Pending::AttachBacking { client, process, address });
            }
            Err(words) => {
                self.say_refusal(format!("process {process} cannot attach backing pages: {words}"));
                self.refuse_over_limit(client, words);
            }
        }
    }

    fn make_backing(
        &mut self,
        process: u32,
        address: u64,
        pages: u32,
    ) -> Result<(M::Descriptor, Vec<u64>), String> {
        if pages == 0 || pages as usize > PAGES_PER_MESSAGE_MAX {
            return Err(format!("{pages} pages at once, allowed are 1 to {PAGES_PER_MESSAGE_MAX}"));
        }
        let Some(entry) = self.processes.get(&process) else {
            return Err("the process has ended".to_owned());
        };
        if entry.backing.contains_key(&address) || self.kept.contains_key(&(process, address)) {
            return Err(format!("backing pages are attached at {address:#x} already"));
        }
        let (user, backing) =
            (entry.user, entry.backing.values().map(|backing| backing.memory.pages()).sum::<u32>());
        if pages > BACKING_PAGES_MAX.saturating_sub(backing) {
            return Err(format!("the process has {backing} of at most {BACKING_PAGES_MAX} backing pages"));
        }
        let purpose = if address >= DEVICE_MEMORY_START { Purpose::DevicePages } else { Purpose::Pages };
        let NewRegion { memory, addresses, descriptor } = self.make_region(user, purpose, pages)?;
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.backing.insert(address, BackingPages { memory, addresses: addresses.clone() });
        }
        Ok((descriptor, addresses))
    }

    /// A resumed process attaches its backing pages again: the broker still has them.
    pub(super) fn reattach_backing(&mut self, client: ClientId, process: u32, address: u64, pages: u32) {
        let backing = self.processes.get(&process).and_then(|entry| entry.backing.get(&address));
        let Some(backing) = backing.filter(|backing| backing.memory.pages() == pages) else {
            return self.refuse(client, format!("no {pages} backing pages were attached at {address:#x}"));
        };
        let pages = backing.addresses.clone();
        let body = guestd_to_host::Body::AttachBacking(AttachBacking { process, address, pages });
        self.ask(client, process, body, Pending::ReattachBacking { client, process });
    }

    /// The host has attached the pages: reply with them.
    pub(super) fn backing(&mut self, client: ClientId, process: u32) {
        let Some(descriptor) = self.stop_attaching(client, process) else { return };
        self.reply(client, BrokerReply { process, ..BrokerReply::default() }, vec![descriptor]);
    }

    /// The host has refused the pages, so it will not access them.
    pub(super) fn not_backed(&mut self, client: ClientId, process: u32, address: u64, words: String) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.backing.remove(&address);
        }
        if self.stop_attaching(client, process).is_some() {
            self.refuse_over_limit(client, words);
        }
    }

    /// Returns the descriptor that the client waits for, if the client still exists.
    fn stop_attaching(&mut self, client: ClientId, process: u32) -> Option<M::Descriptor> {
        let entry = self.clients.get_mut(&client)?;
        match std::mem::replace(&mut entry.state, ClientState::Attached { process }) {
            ClientState::AttachingBacking { descriptor, .. } => Some(descriptor),
            _ => unreachable!("pages are backing for a client that waits for it"),
        }
    }

    /// Asks the host to detach backing pages; with `if_unused`, to release them.
    pub(super) fn detach_backing(&mut self, client: ClientId, process: u32, address: u64, if_unused: bool) {
        let has = self.processes.get(&process).is_some_and(|entry| entry.backing.contains_key(&address));
        if !has {
            return self.refuse(client, format!("no backing pages are attached at {address:#x}"));
        }
        if let Some(client) = self.clients.get_mut(&client) {
            client.state = ClientState::DetachingBacking { process };
        }
        let pages = DetachBacking { process, address };
        let body = match if_unused {
            true => guestd_to_host::Body::ReleaseBacking(pages),
            false => guestd_to_host::Body::DetachBacking(pages),
        };
        self.tell_host(body, Pending::DetachBacking { client, process, address, if_unused });
    }

    pub(super) fn taken_back(&mut self, client: ClientId, process: u32, address: u64) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.backing.remove(&address);
        }
        self.detach_is_over(client, process, false);
    }

    /// `in_use`: another handle, or queued work, uses the memory of the process, and it stays attached.
    fn detach_is_over(&mut self, client: ClientId, process: u32, in_use: bool) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        entry.state = ClientState::Attached { process };
        self.reply(client, BrokerReply { process, in_use, ..BrokerReply::default() }, Vec::new());
    }

    /// Handles an answer about backing pages. An error says how the host breaks the protocol.
    pub(super) fn backing_answered(
        &mut self,
        pending: Pending<M>,
        answer: Result<Option<Body>, String>,
    ) -> Result<(), &'static str> {
        match (pending, answer) {
            (Pending::AttachBacking { client, process, .. }, Ok(Some(Body::BackingAttached(true)))) => {
                self.backing(client, process);
            }
            (Pending::AttachBacking { client, process, address }, Err(words)) => {
                self.not_backed(client, process, address, words);
            }
            // The host does not access pages that it does not know.
            (
                Pending::DetachBacking { client, process, address, .. },
                Ok(Some(Body::TakenBack(true))) | Err(_),
            ) => self.taken_back(client, process, address),
            (Pending::DetachBacking { client, process, address, .. }, Ok(Some(Body::Kept(_)))) => {
                self.keep(process, &[address]);
                self.taken_back(client, process, address);
            }
            (Pending::DetachBacking { client, process, .. }, Ok(Some(Body::InUse(true)))) => {
                self.detach_is_over(client, process, true);
            }
            (Pending::ShareBacking { client, process }, Ok(Some(Body::SharedBacking(shared)))) => {
                self.shared(client, process, Ok(shared));
            }
            (Pending::ShareBacking { client, process }, Err(words)) => {
                self.shared(client, process, Err(words));
            }
            (Pending::KeptBacking { .. }, Ok(Some(Body::BackingAttached(true)))) => {}
            // The restarted host does not need them any more.
            (Pending::KeptBacking { process, address }, Err(_)) => {
                self.kept.remove(&(process, address));
            }
            (pending, _) => return Err(pending.wrong_answer()),
        }
        Ok(())
    }

    /// A process wants pages of shared memory that it has opened: the host knows whose they are.
    pub(super) fn share_backing(&mut self, client: ClientId, process: u32, allocation: u32, offset: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.state = ClientState::SharingBacking { process };
        }
        let body = guestd_to_host::Body::ShareBacking(ShareBacking { process, allocation, offset });
        self.tell_host(body, Pending::ShareBacking { client, process });
    }

    pub(super) fn shared(&mut self, client: ClientId, process: u32, shared: Result<SharedBacking, String>) {
        let Some(entry) = self.clients.get_mut(&client) else { return };
        entry.state = ClientState::Attached { process };
        let descriptor = shared.and_then(|SharedBacking { process: owner, address, bytes }| {
            let attached = self.processes.get(&owner).and_then(|owner| owner.backing.get(&address));
            let pages = attached.or_else(|| self.kept.get(&(owner, address)));
            let pages = pages.ok_or_else(|| format!("process {owner} has no pages at {address:#x}"))?;
            Ok((self.machine.share_region(pages.memory.region())?, bytes))
        });
        match descriptor {
            Ok((descriptor, bytes)) => {
                let reply = BrokerReply { process, bytes, ..BrokerReply::default() };
                self.reply(client, reply, vec![descriptor]);
            }
            Err(words) => self.refuse_over_limit(client, words),
        }
    }

    /// The host has detached pages of a process, but still accesses those at these addresses.
    pub(super) fn keep(&mut self, process: u32, addresses: &[u64]) {
        let Some(entry) = self.processes.get_mut(&process) else { return };
        for address in addresses {
            // It may have released them before.
            if let Some(pages) = entry.backing.remove(address) {
                self.kept.insert((process, *address), pages);
            }
        }
    }

    /// The host no longer accesses kept pages. Its answer that it keeps them may follow.
    pub(super) fn backing_released(&mut self, process: u32, address: u64) {
        let was_kept = self.kept.remove(&(process, address)).is_some();
        let is_detached = |pending: &Pending<M>| match pending {
            Pending::Detach { process: of } => *of == process,
            Pending::DetachBacking { process: of, address: at, .. } => (*of, *at) == (process, address),
            _ => false,
        };
        if !was_kept
            && self.pending.values().any(is_detached)
            && let Some(entry) = self.processes.get_mut(&process)
        {
            entry.backing.remove(&address);
        }
    }
}
