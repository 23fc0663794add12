//! The broker's state of each client, process and request, and the invariants between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fair_queue::Queue as _;

use super::awaiting_pages::WantedPages;
use super::nt_handles::NtHandleCharge;
use super::quotas::{Charge, Uid};
use super::rings::RingAreas;
use super::{Broker, ClientId, Machine, Peer};
use crate::limits::RETRY_PAUSE_MIN;

/// The connection to the host.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Link {
    /// There is no link, because of `why`. The next attempt is at `retry`; the one after that follows after `pause`.
    Down { retry: Duration, pause: Duration, why: String },
    /// It is being opened. `why`: the reason why it was down before.
    Opening { pause: Duration, why: String },
    /// The hello is sent.
    Greeting { until: Duration },
    /// The host has sent its welcome.
    Up,
    /// The broker has closed its end and waits until the host does, so that it stores into no page any more.
    Finishing { until: Duration },
}

impl Link {
    pub(super) fn new() -> Self {
        Self::Down { retry: Duration::ZERO, pause: RETRY_PAUSE_MIN, why: "it was not tried yet".to_owned() }
    }

    pub(super) fn is_up(&self) -> bool {
        *self == Self::Up
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Down { retry, .. } => Some(*retry),
            Self::Greeting { until } | Self::Finishing { until } => Some(*until),
            Self::Opening { .. } | Self::Up => None,
        }
    }
}

/// One connection to the broker's socket.
pub(super) struct Client<Descriptor> {
    pub(super) peer: Peer,
    pub(super) state: ClientState<Descriptor>,
    /// Requests that were refused so far.
    pub(super) refusals: u32,
    /// The charge for the connection. A stranded client is charged as a process only, because it returns by another
    /// connection.
    pub(super) charge: Option<Charge>,
}

pub(super) enum ClientState<Descriptor> {
    /// Has sent no request yet.
    Fresh { until: Duration },
    /// Asked to attach while the host was not connected.
    Held { name: String, rings: bool, until: Duration },
    /// Asked to resume its session while the host was not connected.
    Returning { process: u32, token: Vec<u8>, rings: bool, until: Duration },
    /// The host was asked to resume the session.
    Resuming,
    /// Its process has lost its host, and may return by another connection. This one takes no requests; it only shows
    /// the process's exit.
    Stranded { process: u32 },
    /// The host was asked for a process number.
    Attaching,
    /// The host was asked to add memory that the client will get. `first`: the stream comes with it.
    Adding { process: u32, first: bool, descriptor: Descriptor },
    /// The host was asked for an NT handle.
    MakingNtHandle { process: u32 },
    /// Waits for pages that others have given back.
    AwaitingPages { process: u32, wanted: WantedPages, until: Duration, at_most: Duration },
    /// The host was asked to attach pages that the client will get.
    AttachingBacking { process: u32, descriptor: Descriptor },
    /// The host was asked to detach pages.
    DetachingBacking { process: u32 },
    /// The host was asked whose pages the client gets.
    SharingBacking { process: u32 },
    /// The host was asked to register, unregister or settle an event.
    AwaitingEvent { process: u32 },
    /// No request is pending.
    Attached { process: u32 },
}

impl<Descriptor> Client<Descriptor> {
    /// Marks the client: its process has lost its host.
    pub(super) fn strand(&mut self, process: u32) {
        self.state = ClientState::Stranded { process };
        self.charge = None;
    }

    pub(super) fn is_busy(&self) -> bool {
        match self.state {
            ClientState::Fresh { .. } | ClientState::Attached { .. } => false,
            ClientState::Held { .. }
            | ClientState::Returning { .. }
            | ClientState::Resuming
            | ClientState::Stranded { .. }
            | ClientState::Attaching
            | ClientState::Adding { .. }
            | ClientState::MakingNtHandle { .. }
            | ClientState::AwaitingPages { .. }
            | ClientState::AttachingBacking { .. }
            | ClientState::DetachingBacking { .. }
            | ClientState::SharingBacking { .. }
            | ClientState::AwaitingEvent { .. } => true,
        }
    }

    pub(super) fn waits_for_host(&self) -> bool {
        matches!(self.state, ClientState::Held { .. } | ClientState::Returning { .. })
    }

    /// When the client's wait, or the broker's wait for it, times out.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.state {
            ClientState::Fresh { until }
            | ClientState::Held { until, .. }
            | ClientState::Returning { until, .. }
            | ClientState::AwaitingPages { until, .. } => Some(until),
            ClientState::Resuming
            | ClientState::Stranded { .. }
            | ClientState::Attaching
            | ClientState::Adding { .. }
            | ClientState::MakingNtHandle { .. }
            | ClientState::AttachingBacking { .. }
            | ClientState::DetachingBacking { .. }
            | ClientState::SharingBacking { .. }
            | ClientState::AwaitingEvent { .. }
            | ClientState::Attached { .. } => None,
        }
    }
}

/// A process that the host knows of.
pub(super) struct Process<M: Machine> {
    // Declared before the regions, so that the stream is shut down before memory is freed.
    pub(super) state: ProcessState<M::Stream>,
    pub(super) user: Uid,
    /// Fence memory, in the order it was added.
    pub(super) regions: Vec<Pinned<M>>,
    /// Backing pages, which engines may access, by address in the process.
    pub(super) backing: BTreeMap<u64, BackingPages<M>>,
    /// The areas of its rings, if it has any.
    pub(super) rings: Option<RingAreas<M>>,
    /// Events that the host has event channels for, and the charge for each.
    pub(super) registered: BTreeMap<u64, Charge>,
    /// The stream's token, until the process gets it.
    pub(super) token: Vec<u8>,
    pub(super) right: ResumeRight,
    /// The charge for the process.
    pub(super) charge: Charge,
}

/// A region, and its charges to the user's quotas.
pub(super) struct Pinned<M: Machine> {
    // Declared before the charges, so that they are released after the memory is freed.
    region: M::Region,
    pages: Charge,
    _regions: Charge,
}

/// A region that was just made.
pub(super) struct NewRegion<M: Machine> {
    pub(super) memory: Pinned<M>,
    /// Guest-physical address of each page.
    pub(super) addresses: Vec<u64>,
    pub(super) descriptor: M::Descriptor,
}

impl<M: Machine> Pinned<M> {
    pub(super) fn new(region: M::Region, mut pages: Charge, regions: Charge) -> Self {
        pages.pin();
        Pinned { region, pages, _regions: regions }
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages.count()
    }

    pub(super) fn user(&self) -> Uid {
        self.pages.user()
    }

    pub(super) fn region(&self) -> &M::Region {
        &self.region
    }
}

/// What a process presents to resume its session after its host was killed; without a token it cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResumeRight {
    pub(super) token: Vec<u8>,
    pub(super) within_ms: Option<u64>,
}

/// Backing pages of a process, and the guest-physical address of each.
pub(super) struct BackingPages<M: Machine> {
    pub(super) memory: Pinned<M>,
    pub(super) addresses: Vec<u64>,
}

/// A process whose host was killed, until it is resumed or exits. No host knows any page of it.
pub(super) struct DetachedProcess<M: Machine> {
    /// Its old connection, until it is resumed by another.
    pub(super) client: ClientId,
    pub(super) right: ResumeRight,
    /// They hold the data of the process and of engines.
    pub(super) backing: BTreeMap<u64, BackingPages<M>>,
    /// The charge for the process.
    pub(super) charge: Charge,
}

pub(super) enum ProcessState<Stream> {
    /// Its client is connected. No stream until the process gets it.
    Alive { client: ClientId, stream: Option<Stream> },
    /// The host was asked to detach it.
    Leaving,
}

impl<M: Machine> Process<M> {
    /// Pages of fence memory.
    pub(super) fn pages(&self) -> u32 {
        self.regions.iter().map(Pinned::pages).sum()
    }
}

/// An event for which the host was asked for an event channel.
pub(super) struct Registration {
    pub(super) client: ClientId,
    pub(super) process: u32,
    pub(super) event: u64,
    pub(super) charge: Charge,
}

/// A request that the host has not answered yet.
pub(super) enum Pending<M: Machine> {
    Hello,
    Attach {
        client: ClientId,
        user: Uid,
        /// The charge for the process, even if its client is gone.
        charge: Charge,
        rings: Option<RingAreas<M>>,
    },
    AddMemory {
        client: ClientId,
        process: u32,
    },
    Detach {
        process: u32,
    },
    MakeNtHandle {
        client: ClientId,
        charge: NtHandleCharge,
    },
    NtHandleClosed,
    AttachBacking {
        client: ClientId,
        process: u32,
        address: u64,
    },
    DetachBacking {
        client: ClientId,
        process: u32,
        address: u64,
        /// A release: memory in use stays attached.
        if_unused: bool,
    },
    RegisterEvent(Registration),
    /// No client waits for it if the client got another answer already.
    UnregisterEvent {
        client: Option<ClientId>,
        process: u32,
    },
    Settle {
        client: ClientId,
        process: u32,
    },
    ShareBacking {
        client: ClientId,
        process: u32,
    },
    KeptBacking {
        process: u32,
        address: u64,
    },
    Returning,
    NtHandleHeld,
    Resume {
        client: ClientId,
        process: u32,
        rings: Option<RingAreas<M>>,
    },
    ReattachBacking {
        client: ClientId,
        process: u32,
    },
}

impl<M: Machine> Pending<M> {
    /// How the host breaks the protocol if its answer has the wrong type.
    pub fn wrong_answer(&self) -> &'static str {
        match self {
            Pending::Hello => "its answer to our hello is not `welcome`",
            Pending::Attach { .. } => "its answer to an attach is not `attached`",
            Pending::AddMemory { .. } => "its answer to new memory is not `first_slot`",
            Pending::MakeNtHandle { .. } => "its answer to a new NT handle is no `nt_handle`",
            Pending::NtHandleClosed => "its answer to a closed NT handle is not `nt_handle_closed`",
            Pending::Detach { .. } => "its answer to a detach is not `detached`",
            Pending::AttachBacking { .. } => "its answer to new backing pages is not `backing_attached`",
            Pending::DetachBacking { .. } => "its answer to detached backing pages is not `taken_back`",
            Pending::ShareBacking { .. } => "its answer to pages of another process is no `shared_backing`",
            Pending::KeptBacking { .. } => "its answer to kept pages is not `backing_attached`",
            Pending::RegisterEvent(_) => "its answer to an event registration is no `event_channel`",
            Pending::UnregisterEvent { .. } => "its answer to an event's unregistration is not `forgotten`",
            Pending::Settle { .. } => "its answer to settle is not `rung`",
            Pending::Returning => "its answer to the list of returning processes is not `returned`",
            Pending::NtHandleHeld => "its answer to an open NT handle is not `nt_handle_held`",
            Pending::Resume { .. } => "its answer to a resume is not `resumed`",
            Pending::ReattachBacking { .. } => {
                "its answer to resumed backing pages is not `backing_attached`"
            }
        }
    }
}

impl<M: Machine> Broker<M> {
    /// The first invariant that does not hold, as text; a bug if there is one.
    pub(super) fn violation(&self) -> Option<String> {
        let is_due = |client: &ClientId, entry: &Client<M::Descriptor>| {
            self.due.get(entry.peer.user).is_some_and(|clients| clients.contains(client))
        };
        let deadline = |(client, entry): (&ClientId, &Client<M::Descriptor>)| {
            entry.deadline().filter(|_| !is_due(client, entry)).map(|deadline| (deadline, *client))
        };
        let expected: BTreeSet<_> = self.clients.iter().filter_map(deadline).collect();
        // Clients that are due may have other deadlines by now.
        let are_listed = match self.due.is_empty() {
            true => self.deadlines == expected,
            false => self.deadlines.is_superset(&expected),
        };
        if !are_listed {
            return Some("the deadlines are not those of the clients".to_owned());
        }
        let is_its = |(process, stranded): &(&u32, &DetachedProcess<M>)| {
            let client = self.clients.get(&stranded.client).map(|client| &client.state);
            matches!(client, Some(ClientState::Stranded { process: of }) if of == *process)
        };
        if let Some((process, _)) = self.stranded.iter().find(|stranded| !is_its(stranded)) {
            return Some(format!("process {process} is stranded without a client of its own"));
        }
        if let Some(process) = self.stranded.keys().find(|process| self.processes.contains_key(process)) {
            return Some(format!("process {process} is stranded and attached at once"));
        }
        match self.link {
            // The host's answers are ignored: the rest is freed when the link closes.
            Link::Finishing { .. } => None,
            Link::Up => {
                self.processes.iter().find_map(|(number, process)| self.process_violation(*number, process))
            }
            Link::Down { .. } | Link::Opening { .. } | Link::Greeting { .. } => {
                (!self.processes.is_empty()).then(|| "there are processes without a link".to_owned())
            }
        }
    }

    fn process_violation(&self, number: u32, process: &Process<M>) -> Option<String> {
        let is_detach =
            |pending: &&Pending<M>| matches!(pending, Pending::Detach { process } if *process == number);
        let detaching = self.pending.values().filter(is_detach).count();
        let (client, stream) = match &process.state {
            ProcessState::Leaving => {
                return (detaching != 1)
                    .then(|| format!("process {number} leaves with {detaching} pending detaches"));
            }
            ProcessState::Alive { client, stream } => (client, stream),
        };
        if detaching != 0 {
            return Some(format!("process {number} is alive with {detaching} pending detaches"));
        }
        match self.clients.get(client).map(|client| &client.state) {
            Some(
                ClientState::Attached { process }
                | ClientState::MakingNtHandle { process }
                | ClientState::AttachingBacking { process, .. }
                | ClientState::DetachingBacking { process }
                | ClientState::SharingBacking { process }
                | ClientState::AwaitingEvent { process },
            ) if *process == number => {
                stream.is_none().then(|| format!("process {number} is attached and has no stream"))
            }
            // It gets its stream with its first page.
            Some(ClientState::Adding { process, .. } | ClientState::AwaitingPages { process, .. })
                if *process == number =>
            {
                None
            }
            Some(_) | None => Some(format!("process {number} is alive without a client of its own")),
        }
    }
}
