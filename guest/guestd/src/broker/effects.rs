//! The broker's inputs, its effects, and what it needs from the machine.

use d3dkmt::ShareToken;
use proto::attach::{BrokerReply, GuestdToHost, HostToGuestd};

use super::quotas::Uid;

/// One connection to the broker's socket. Numbers are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The process and user that made a connection, as the guest's kernel reports them (SO_PEERCRED).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub pid: u32,
    pub user: Uid,
}

/// Everything that can happen to the broker.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The connection that `Effect::OpenLink` asked for is established.
    LinkOpened,
    /// It could not be established, or the host has closed it: nothing more will arrive.
    LinkLost {
        why: String,
    },
    /// The host sent an invalid message; the link is still open.
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
    /// Its connection closed, or the process that made it exited.
    ClientGone {
        client: ClientId,
    },
    /// The last descriptor of an NT handle is closed.
    NtHandleClosed {
        token: ShareToken,
    },
    /// `Effect::GiveNtHandle` failed.
    NtHandleNotMade {
        client: ClientId,
        token: ShareToken,
        why: String,
    },
    /// `Effect::OpenEventChannel` failed.
    EventChannelNotOpened {
        client: ClientId,
        process: u32,
        event: u64,
        why: String,
    },
    /// The time of [`super::Broker::next_deadline`] is reached.
    Deadline,
}

/// Everything that the broker asks the driver to do, in order.
#[derive(Debug)]
pub enum Effect<Descriptor> {
    /// Connect to the host; answered by `LinkOpened` or `LinkLost`.
    OpenLink,
    /// Send nothing more, and read until the host closes its end too; then `LinkLost` follows.
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
    /// Make an NT handle or a sync file that carries this token, answer the client with it, and listen to the client
    /// again. `NtHandleClosed` follows once no process has the handle open.
    GiveNtHandle {
        client: ClientId,
        process: u32,
        token: ShareToken,
        is_sync_file: bool,
    },
    /// Make this sync file readable.
    RaiseSyncFile {
        token: ShareToken,
    },
    /// Open a stream to the host that begins with this token, connect its bytes to the event that the client sent,
    /// answer the client, and listen to it again.
    OpenEventChannel {
        client: ClientId,
        process: u32,
        event: u64,
        token: Vec<u8>,
    },
    /// Close the event channel of this event: it is no longer set.
    CloseEventChannel {
        process: u32,
        event: u64,
    },
    /// Close all event channels of this process.
    CloseEventChannels {
        process: u32,
    },
    /// Answer the client, and listen to it again, once each of these event channels has delivered the given number of
    /// bytes.
    Settle {
        client: ClientId,
        process: u32,
        event_channels: Vec<(u64, u64)>,
    },
    /// Close a client's connection; no `ClientGone` follows.
    Close {
        client: ClientId,
    },
    /// Close a client's connection, but keep watching its process: `ClientGone` follows when it exits.
    HangUp {
        client: ClientId,
    },
    /// Log a line on the console.
    Say(String),
}

/// The use of a memory region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Fence values: the process reads, only the host writes.
    Fences,
    /// Pages of an allocation: both read and write.
    Pages,
    /// The same, which other processes may get: see [`Machine::share_region`].
    DevicePages,
    /// The area of a ring that only the host writes.
    HostRing,
    /// The area of a ring that the process writes.
    ProcessRing,
}

/// Memory that the host may write, with its addresses for the host and its descriptor for the process.
pub struct MadeRegion<M: Machine + ?Sized> {
    pub region: M::Region,
    /// Guest-physical address of each page.
    pub addresses: Vec<u64>,
    pub descriptor: M::Descriptor,
}

/// A connection to the host for one process: the broker's copy and the process's.
pub struct MadeStream<M: Machine + ?Sized> {
    pub stream: M::Stream,
    pub descriptor: M::Descriptor,
}

/// Makes memory and streams. Errors are readable texts.
pub trait Machine {
    /// Pinned until dropped.
    type Region;
    /// Shut down when dropped.
    type Stream;
    type Descriptor;

    /// Pages that all processes together may hold. They follow memory that is added to the guest or taken from it.
    fn pages_total_max(&self) -> u32;
    fn make_region(&mut self, purpose: Purpose, pages: u32) -> Result<MadeRegion<Self>, String>;
    /// A descriptor of device pages for another process.
    fn share_region(&mut self, region: &Self::Region) -> Result<Self::Descriptor, String>;
    fn open_stream(&mut self) -> Result<MadeStream<Self>, String>;
}
