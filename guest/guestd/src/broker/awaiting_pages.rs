//! Requests for pages, and their wait for pages that were given back.
//!
//! The kernel unpins a region some time after it is freed, and until then its pages count. So a program that starts right
//! after one that had all pages would be refused. It waits instead, at most as long as the kernel may take. Memory of
//! processes that have ended is freed some regions at a time, users in turns.

use std::collections::BTreeMap;
use std::time::Duration;

use fair_queue::Queue as _;
use proto::limits::PAGES_PER_MESSAGE_MAX;

use super::rings::RingAreas;
use super::state::{BackingPages, Client, ClientState, Pinned, Process};
use super::{Broker, ClientId, Machine, Quotas};
use crate::limits::{FREE_TIME_MAX, REGIONS_FREED_AT_ONCE_MAX};

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
        let at_most = self.now + FREE_TIME_MAX + self.config.unpin_time.unwrap_or_default();
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
        self.update_pages_total();
        let (user, count) = (self.processes.get(&process).map(|entry| entry.user), wanted.count());
        let Quotas { pages, regions, .. } = &self.quotas;
        let is_over = |user| pages.is_over(user, count) || regions.is_over(user, 1);
        let awaits_free = !self.freed.is_empty() && user.is_some_and(is_over);
        let returns = match awaits_free {
            true => Some(self.now),
            false => user.and_then(|user| pages.returns_for(user, count)),
        };
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

    /// Frees memory that no host accesses, in later turns.
    pub(super) fn free(&mut self, memory: impl IntoIterator<Item = Pinned<M>>) {
        for region in memory {
            self.freed.push(region.user(), region);
        }
    }

    pub(super) fn free_backing<Address>(&mut self, backing: BTreeMap<Address, BackingPages<M>>) {
        self.free(backing.into_values().map(|backing| backing.memory));
    }

    /// Frees the memory of a process that no host knows.
    pub(super) fn free_process(&mut self, process: Process<M>) {
        let Process { regions, backing, rings, .. } = process;
        self.free(regions);
        self.free_backing(backing);
        self.free(rings.into_iter().flat_map(RingAreas::into_memory));
    }

    /// Frees some regions.
    pub(super) fn free_some(&mut self) {
        for _ in 0..REGIONS_FREED_AT_ONCE_MAX {
            let Some(region) = self.freed.pop() else { break };
            drop(region);
        }
        self.quotas.pages.pass(self.now);
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
