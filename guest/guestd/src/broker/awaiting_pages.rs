//! Requests for pages, and their wait for pages that were given back.
//!
//! The kernel unpins a region some time after it is freed, and until then its pages count. So a program that starts right
//! after one that had all pages would be refused. It waits instead, at most as long as the kernel may take.

use std::time::Duration;

use proto::limits::PAGES_PER_MESSAGE_MAX;

use super::state::{Client, ClientState};
use super::{Broker, ClientId, Machine};

/// Pages that a process asks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum WantedPages {
    /// Backing pages at this address.
    Backing { address: u64, pages: u32 },
    /// Fence memory. `first`: the process is being attached and gets its stream too. `first_slot`: the first of the slots
    /// that a resumed process had.
    Fences { pages: u32, first: bool, first_slot: Option<u32> },
}

impl WantedPages {
    fn count(self) -> u32 {
        match self {
            WantedPages::Backing { pages, .. } | WantedPages::Fences { pages, .. } => pages,
        }
    }
}

impl<M: Machine> Broker<M> {
    /// Gives a process pages; waits for what others have given back, if it needs it.
    pub(super) fn want_pages(&mut self, client: ClientId, process: u32, wanted: WantedPages) {
        let at_most = self.now + self.config.unpin_time.unwrap_or_default();
        self.want_pages_until(client, process, wanted, at_most);
    }

    /// Gives pages to a client that has waited for them, or lets it wait for more.
    pub(super) fn pages_may_be_free(&mut self, client: ClientId) {
        let state = self.clients.get(&client).map(|client| &client.state);
        let Some(&ClientState::AwaitingPages { process, wanted, at_most, .. }) = state else { return };
        self.change_state(client, ClientState::Attached { process });
        self.want_pages_until(client, process, wanted, at_most);
    }

    fn want_pages_until(&mut self, client: ClientId, process: u32, wanted: WantedPages, at_most: Duration) {
        let (user, count) = (self.processes.get(&process).map(|entry| entry.user), wanted.count());
        let returns = user.and_then(|user| self.quotas.pages.returns_for(user, count));
        if let Some(until) =
            returns.filter(|until| *until <= at_most && count as usize <= PAGES_PER_MESSAGE_MAX)
        {
            self.change_state(client, ClientState::AwaitingPages { process, wanted, until, at_most });
            return;
        }
        match wanted {
            WantedPages::Backing { address, pages } => self.attach_backing(client, process, address, pages),
            WantedPages::Fences { pages, first, first_slot } => {
                self.add_memory(client, process, pages, first, first_slot);
            }
        }
    }

    /// Ends the waits for pages: no host is there to attach them.
    pub(super) fn stop_awaiting_pages(&mut self) {
        let awaits = |entry: &Client<M::Descriptor>| match entry.state {
            ClientState::AwaitingPages { process, .. } => Some(process),
            _ => None,
        };
        let waiting = self.clients.iter().filter_map(|(client, entry)| Some((*client, awaits(entry)?)));
        for (client, process) in waiting.collect::<Vec<_>>() {
            self.change_state(client, ClientState::Attached { process });
        }
    }
}
