//! Backing pages: pages of a process that the host's engines read and write. The broker makes them; the process fills
//! and maps them.
//!
//! They are freed only once the host has answered that it has detached them, refused them, or detached the process.

use proto::attach::{AttachBacking, BrokerReply, DetachBacking, guestd_to_host};
use proto::limits::{BACKING_PAGES_MAX, PAGES_PER_MESSAGE_MAX};

use super::state::{BackingPages, ClientState, NewRegion, Pending};
use super::{Broker, ClientId, Machine, Purpose, refused};

impl<M: Machine> Broker<M> {
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
                self.not_for_now(client, words);
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
        if entry.backing.contains_key(&address) {
            return Err(format!("backing pages are attached at {address:#x} already"));
        }
        let (user, backing) =
            (entry.user, entry.backing.values().map(|backing| backing.memory.pages()).sum::<u32>());
        if pages > BACKING_PAGES_MAX.saturating_sub(backing) {
            return Err(format!("the process has {backing} of at most {BACKING_PAGES_MAX} backing pages"));
        }
        let NewRegion { memory, addresses, descriptor } = self.make_region(user, Purpose::Pages, pages)?;
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
            self.not_for_now(client, words);
        }
    }

    /// Refuses without counting it as misbehaviour, because other processes may have used up the limit.
    fn not_for_now(&mut self, client: ClientId, words: String) {
        self.reply(client, refused(words), Vec::new());
    }

    /// Returns the descriptor that the client waits for, if the client still exists.
    fn stop_attaching(&mut self, client: ClientId, process: u32) -> Option<M::Descriptor> {
        let entry = self.clients.get_mut(&client)?;
        match std::mem::replace(&mut entry.state, ClientState::Attached { process }) {
            ClientState::AttachingBacking { descriptor, .. } => Some(descriptor),
            _ => unreachable!("pages are backing for a client that waits for it"),
        }
    }

    pub(super) fn detach_backing(&mut self, client: ClientId, process: u32, address: u64) {
        let has = self.processes.get(&process).is_some_and(|entry| entry.backing.contains_key(&address));
        if !has {
            return self.refuse(client, format!("no backing pages are attached at {address:#x}"));
        }
        if let Some(client) = self.clients.get_mut(&client) {
            client.state = ClientState::DetachingBacking { process };
        }
        let body = guestd_to_host::Body::DetachBacking(DetachBacking { process, address });
        self.tell_host(body, Pending::DetachBacking { client, process, address });
    }

    pub(super) fn taken_back(&mut self, client: ClientId, process: u32, address: u64) {
        if let Some(entry) = self.processes.get_mut(&process) {
            entry.backing.remove(&address);
        }
        let Some(entry) = self.clients.get_mut(&client) else { return };
        entry.state = ClientState::Attached { process };
        self.reply(client, BrokerReply { process, ..BrokerReply::default() }, Vec::new());
    }
}
