//! What the broker keeps of each client, process and request, and what must hold between them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Broker, ClientId, Machine};
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
    pub(super) pid: u32,
    pub(super) state: ClientState<Descriptor>,
    /// Requests that were refused so far.
    pub(super) refusals: u32,
}

pub(super) enum ClientState<Descriptor> {
    /// Has asked for nothing yet.
    Fresh,
    /// Asked to attach while the host was not there.
    Held { name: String, until: Duration },
    /// The host is asked for a process.
    Attaching,
    /// The host is told of memory that the client will get. `first`: with it comes the stream.
    Adding { process: u32, first: bool, descriptor: Descriptor },
    /// The host is asked for an NT handle.
    Making { process: u32 },
    /// The host is told of pages that the client will get.
    Lending { process: u32, descriptor: Descriptor },
    /// The host is asked to let go of pages.
    TakingBack { process: u32 },
    /// Has all it asked for.
    Attached { process: u32 },
}

impl<Descriptor> Client<Descriptor> {
    pub(super) fn is_busy(&self) -> bool {
        match self.state {
            ClientState::Fresh | ClientState::Attached { .. } => false,
            ClientState::Held { .. }
            | ClientState::Attaching
            | ClientState::Adding { .. }
            | ClientState::Making { .. }
            | ClientState::Lending { .. }
            | ClientState::TakingBack { .. } => true,
        }
    }

    pub(super) fn held_until(&self) -> Option<Duration> {
        match self.state {
            ClientState::Held { until, .. } => Some(until),
            ClientState::Fresh
            | ClientState::Attaching
            | ClientState::Adding { .. }
            | ClientState::Making { .. }
            | ClientState::Lending { .. }
            | ClientState::TakingBack { .. }
            | ClientState::Attached { .. } => None,
        }
    }
}

/// A process that the host knows of.
pub(super) struct Process<M: Machine> {
    // Before the regions: the stream is shut down before memory goes.
    pub(super) state: ProcessState<M::Stream>,
    /// Memory and its pages, in the order it was added.
    pub(super) regions: Vec<(M::Region, u32)>,
    /// What engines may touch, and its pages, by its address in the process.
    pub(super) lent: BTreeMap<u64, (M::Region, u32)>,
    /// Until it is handed out.
    pub(super) token: Vec<u8>,
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
        self.regions.iter().map(|(_, pages)| pages).sum()
    }

    /// All that are pinned.
    pub(super) fn pinned_pages(&self) -> u32 {
        self.pages() + self.lent.values().map(|(_, pages)| pages).sum::<u32>()
    }
}

/// A request that the host has not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pending {
    Hello,
    Attach { client: ClientId },
    AddMemory { client: ClientId, process: u32 },
    Detach { process: u32 },
    MakeNtHandle { client: ClientId },
    NtHandleClosed,
    Lend { client: ClientId, process: u32, address: u64 },
    TakeBack { client: ClientId, process: u32, address: u64 },
}

impl<M: Machine> Broker<M> {
    /// The first thing that does not hold, in words; a bug if there is one.
    pub(super) fn violation(&self) -> Option<String> {
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
        let detaching =
            self.pending.values().filter(|pending| **pending == Pending::Detach { process: number }).count();
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
                | ClientState::Lending { process, .. }
                | ClientState::TakingBack { process },
            ) if *process == number => {
                stream.is_none().then(|| format!("process {number} is attached and has no stream"))
            }
            Some(ClientState::Adding { process, .. }) if *process == number => None,
            Some(_) | None => Some(format!("process {number} is alive without a client of its own")),
        }
    }
}
