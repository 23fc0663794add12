//! What the broker is told, what it asks for, and what it needs of the machine.

use d3dkmt::ShareToken;
use proto::attach::{BrokerReply, GuestdToHost, HostToGuestd};

use super::quotas::Uid;

/// One connection to the broker's socket. Numbers are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The user that made a connection, as the guest's kernel says (SO_PEERCRED).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub pid: u32,
    pub user: Uid,
}

/// Everything that can happen to the broker.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The connection that `Effect::OpenLink` asked for is there.
    LinkOpened,
    /// It could not be made, or it is gone: the host has closed it, nothing more will come.
    LinkLost {
        why: String,
    },
    /// The host sent something that is no message; the link is still open.
    LinkGarbled {
        why: String,
    },
    FromHost(HostToGuestd),
    ClientArrived {
        client: ClientId,
        peer: Peer,
    },
    Packet {
        client: ClientId,
        bytes: Vec<u8>,
    },
    /// Its connection closed or the process that made it ended.
    ClientGone {
        client: ClientId,
    },
    /// The last descriptor of an NT handle is closed.
    NtHandleClosed {
        token: ShareToken,
    },
    /// `Effect::GiveNtHandle` could not be done.
    NtHandleNotMade {
        client: ClientId,
        token: ShareToken,
        why: String,
    },
    /// `Effect::OpenEventChannel` could not be done.
    EventChannelNotOpened {
        client: ClientId,
        process: u32,
        event: u64,
        why: String,
    },
    /// The time of [`super::Broker::next_deadline`] has come.
    Deadline,
}

/// Everything that the broker asks for, to be done in order.
#[derive(Debug)]
pub enum Effect<Descriptor> {
    /// Connect to the host; answered by `LinkOpened` or `LinkLost`.
    OpenLink,
    /// Send nothing more, and read until the host closes its end too: `LinkLost` then.
    FinishLink,
    /// Close the link now; no `LinkLost` follows.
    DropLink,
    ToHost(GuestdToHost),
    /// Answer a client and listen to it again.
    Reply {
        client: ClientId,
        reply: BrokerReply,
        descriptors: Vec<Descriptor>,
    },
    /// Make an NT handle that carries this token, answer the client with it, and listen to the client again.
    /// `NtHandleClosed` follows once nobody holds the handle.
    GiveNtHandle {
        client: ClientId,
        process: u32,
        token: ShareToken,
    },
    /// Open a stream to the host that begins with this token, have its bytes set the event that came with the client's
    /// request, answer the client, and listen to it again.
    OpenEventChannel {
        client: ClientId,
        process: u32,
        event: u64,
        token: Vec<u8>,
    },
    /// Set this event no more.
    CloseEventChannel {
        process: u32,
        event: u64,
    },
    /// Set no event of this process any more.
    CloseEventChannels {
        process: u32,
    },
    /// Answer the client, and listen to it again, when the event channels of its events have brought so many bytes each.
    Settle {
        client: ClientId,
        process: u32,
        event_channels: Vec<(u64, u64)>,
    },
    /// Close a client's connection; no `ClientGone` follows.
    Close {
        client: ClientId,
    },
    /// Close a client's connection to it, and go on watching for the end of its process: `ClientGone` then.
    HangUp {
        client: ClientId,
    },
    /// For the console.
    Say(String),
}

/// What memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Fence values: the process reads, only the host writes.
    Fences,
    /// Pages of an allocation: both read and write.
    Pages,
}

/// Memory that the host may write, with what the host and the process need to know of it.
pub struct MadeRegion<M: Machine + ?Sized> {
    pub region: M::Region,
    /// Guest-physical address of each page.
    pub addresses: Vec<u64>,
    pub descriptor: M::Descriptor,
}

/// A connection to the host for one process: our copy and the process's.
pub struct MadeStream<M: Machine + ?Sized> {
    pub stream: M::Stream,
    pub descriptor: M::Descriptor,
}

/// Where memory and streams come from. Errors are in words for a person.
pub trait Machine {
    /// Pinned until dropped.
    type Region;
    /// Shut down when dropped.
    type Stream;
    type Descriptor;

    fn make_region(&mut self, purpose: Purpose, pages: u32) -> Result<MadeRegion<Self>, String>;
    fn open_stream(&mut self) -> Result<MadeStream<Self>, String>;
}
