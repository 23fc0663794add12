//! What the broker keeps of each client, process and request, and what must hold between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::quotas::{Charge, Uid};
use super::{Broker, ClientId, Machine, Peer};
use crate::limits::RETRY_PAUSE_MIN;

/// The connection to the host.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Link {
    /// There is none, because of `why`; it is tried again at `retry`, and after `pause` if that fails too.
    Down { retry: Duration, pause: Duration, why: String },
    /// It is being made. `why` it was not there before.
    Opening { pause: Duration, why: String },
    /// Our hello is out.
    Greeting { until: Duration },
    /// The host has welcomed us.
    Up,
    /// We gave it up and wait for the host to do so too, so that it stores into no page any more.
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
    /// Of its user's connections. A stranded one counts as its process only: that comes back by another.
    pub(super) charge: Option<Charge>,
}

pub(super) enum ClientState<Descriptor> {
    /// Has asked for nothing yet.
    Fresh { until: Duration },
    /// Asked to attach while the host was not there.
    Held { name: String, until: Duration },
    /// Asked for the session of its process while the host was not there.
    Returning { process: u32, token: Vec<u8>, until: Duration },
    /// The host is asked for that session.
    Resuming,
    /// Its process has lost its host, and may come back by another connection. This one is closed to requests, and tells
    /// the end of the process.
    Stranded { process: u32 },
    /// The host is asked for a process.
    Attaching,
    /// The host is told of memory that the client will get. `first`: with it comes the stream.
    Adding { process: u32, first: bool, descriptor: Descriptor },
    /// The host is asked for an NT handle.
    Making { process: u32 },
    /// The host is told of pages that the client will get.
    AttachingBacking { process: u32, descriptor: Descriptor },
    /// The host is asked to let go of pages.
    TakingBack { process: u32 },
    /// The host is asked about an event that the client wants kept, forgotten or settled.
    Asking { process: u32 },
    /// Has all it asked for.
    Attached { process: u32 },
}

impl<Descriptor> Client<Descriptor> {
    /// Its process has lost its host.
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
            | ClientState::Making { .. }
            | ClientState::AttachingBacking { .. }
            | ClientState::TakingBack { .. }
            | ClientState::Asking { .. } => true,
        }
    }

    /// When it has waited long enough, or we for it.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.state {
            ClientState::Fresh { until }
            | ClientState::Held { until, .. }
            | ClientState::Returning { until, .. } => Some(until),
            ClientState::Resuming
            | ClientState::Stranded { .. }
            | ClientState::Attaching
            | ClientState::Adding { .. }
            | ClientState::Making { .. }
            | ClientState::AttachingBacking { .. }
            | ClientState::TakingBack { .. }
            | ClientState::Asking { .. }
            | ClientState::Attached { .. } => None,
        }
    }
}

/// A process that the host knows of.
pub(super) struct Process<M: Machine> {
    // Before the regions: the stream is shut down before memory goes.
    pub(super) state: ProcessState<M::Stream>,
    pub(super) user: Uid,
    /// Fence memory, in the order it was added.
    pub(super) regions: Vec<Pinned<M>>,
    /// What engines may touch, by its address in the process.
    pub(super) backing: BTreeMap<u64, BackingPages<M>>,
    /// Events that the host has event channels for.
    pub(super) kept: BTreeSet<u64>,
    /// Until it is handed out.
    pub(super) token: Vec<u8>,
    pub(super) right: ResumeRight,
    /// Of its user's processes.
    pub(super) charge: Charge,
}

/// A region, and what it counts for of what its user may hold.
pub(super) struct Pinned<M: Machine> {
    // Before the charges: it is given back when it is free.
    _region: M::Region,
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
    pub(super) fn new(region: M::Region, pages: Charge, regions: Charge) -> Self {
        Pinned { _region: region, pages, _regions: regions }
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages.count()
    }
}

/// What a process presents to go on with its session after its host was killed; no token if it cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResumeRight {
    pub(super) token: Vec<u8>,
    pub(super) within_ms: Option<u64>,
}

/// Pages that a process lends, and the guest-physical address of each.
pub(super) struct BackingPages<M: Machine> {
    pub(super) memory: Pinned<M>,
    pub(super) addresses: Vec<u64>,
}

/// A process whose host was killed, until it comes back or ends. No host knows any page of its.
pub(super) struct DetachedProcess<M: Machine> {
    /// Its connection until it has another.
    pub(super) client: ClientId,
    pub(super) right: ResumeRight,
    /// They hold what the program and engines have put there.
    pub(super) backing: BTreeMap<u64, BackingPages<M>>,
    /// It is a process still.
    pub(super) charge: Charge,
}

pub(super) enum ProcessState<Stream> {
    /// Its client is there. No stream until it is handed out.
    Alive { client: ClientId, stream: Option<Stream> },
    /// The host is asked to let go of it.
    Leaving,
}

impl<M: Machine> Process<M> {
    /// Pages of fence memory.
    pub(super) fn pages(&self) -> u32 {
        self.regions.iter().map(Pinned::pages).sum()
    }
}

/// A request that the host has not answered yet.
#[derive(Debug)]
pub(super) enum Pending {
    Hello,
    Attach {
        client: ClientId,
        user: Uid,
        /// For the process, whether its client is still there or not.
        charge: Charge,
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
        charge: Charge,
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
    },
    RegisterEvent {
        client: ClientId,
        process: u32,
        event: u64,
    },
    /// Nobody waits for it if its client was told otherwise already.
    UnregisterEvent {
        client: Option<ClientId>,
        process: u32,
    },
    Settle {
        client: ClientId,
        process: u32,
    },
    Returning,
    NtHandleHeld,
    Resume {
        client: ClientId,
        process: u32,
    },
    ReattachBacking {
        client: ClientId,
        process: u32,
    },
}

impl Pending {
    /// How the host breaks the protocol if it answers this with something else than belongs to it.
    pub fn wrong_answer(&self) -> &'static str {
        match self {
            Pending::Hello => "its answer to our hello is not `welcome`",
            Pending::Attach { .. } => "its answer to an attach is not `attached`",
            Pending::AddMemory { .. } => "its answer to new memory is not `first_slot`",
            Pending::MakeNtHandle { .. } => "its answer to a new NT handle is no `nt_handle`",
            Pending::NtHandleClosed => "its answer to a closed NT handle is not `nt_handle_closed`",
            Pending::Detach { .. } => "its answer to a detach is not `detached`",
            Pending::AttachBacking { .. } => "its answer to backing pages is not `backing`",
            Pending::DetachBacking { .. } => "its answer to pages taken back is not `taken_back`",
            Pending::RegisterEvent { .. } => "its answer to an event to keep is no `event_channel`",
            Pending::UnregisterEvent { .. } => "its answer to an event to forget is not `forgotten`",
            Pending::Settle { .. } => "its answer to settle is not `rung`",
            Pending::Returning => "its answer to who is back is not `returned`",
            Pending::NtHandleHeld => "its answer to an NT handle that is held is not `nt_handle_held`",
            Pending::Resume { .. } => "its answer to a resume is not `resumed`",
            Pending::ReattachBacking { .. } => "its answer to pages backing again is not `backing`",
        }
    }
}

impl<M: Machine> Broker<M> {
    /// The first thing that does not hold, in words; a bug if there is one.
    pub(super) fn violation(&self) -> Option<String> {
        let deadline =
            |(client, entry): (&ClientId, &Client<M::Descriptor>)| Some((entry.deadline()?, *client));
        if !self.deadlines.iter().copied().eq(BTreeSet::from_iter(self.clients.iter().filter_map(deadline))) {
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
            return Some(format!("process {process} is stranded, and is not"));
        }
        match self.link {
            // The host's answers no longer count: what is left goes when the link does.
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
            |pending: &&Pending| matches!(pending, Pending::Detach { process } if *process == number);
        let detaching = self.pending.values().filter(is_detach).count();
        let (client, stream) = match &process.state {
            ProcessState::Leaving => {
                return (detaching != 1)
                    .then(|| format!("process {number} leaves with {detaching} detaches under way"));
            }
            ProcessState::Alive { client, stream } => (client, stream),
        };
        if detaching != 0 {
            return Some(format!("process {number} is alive with {detaching} detaches under way"));
        }
        match self.clients.get(client).map(|client| &client.state) {
            Some(
                ClientState::Attached { process }
                | ClientState::Making { process }
                | ClientState::AttachingBacking { process, .. }
                | ClientState::TakingBack { process }
                | ClientState::Asking { process },
            ) if *process == number => {
                stream.is_none().then(|| format!("process {number} is attached and has no stream"))
            }
            Some(ClientState::Adding { process, .. }) if *process == number => None,
            Some(_) | None => Some(format!("process {number} is alive without a client of its own")),
        }
    }
}
