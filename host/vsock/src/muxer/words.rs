//! Inputs and outputs of the muxer, apart from packets.

use super::flow::Ports;
use crate::limits::CONNECTIONS_PER_VM_MAX;
use crate::services::{CloseReason, ConnectRequest};

/// Names a connection. Never reused: a new connection in the same table row has another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// An event for the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The guest requests a connection; answer with [`super::Muxer::decide`].
    Offered(ConnectionId, ConnectRequest),
    /// The guest accepted the device's request.
    Connected(ConnectionId),
    /// The payload of the packet just received belongs to this connection.
    Received(ConnectionId),
    /// The guest has finished sending.
    PeerFinished(ConnectionId),
    /// There is room again after a refused send.
    Writable(ConnectionId),
    /// The connection is closed.
    Closed(ConnectionId, CloseReason),
}

/// A change of the connections that the guest may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The guest is about to be sent its first packet.
    Known(Ports),
    /// The guest was sent its end, or has sent it.
    Gone(Ports),
}

/// Why [`super::Muxer::send`] queued nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The connection's or the VM's queue has no room; `Endpoint::writable` is called when it has. A slice longer than
    /// [`crate::limits::QUEUED_BYTES_PER_CONNECTION_MAX`] never fits.
    #[error("the queue of the connection is full")]
    Full,
    /// The connection is closed, or this side has finished.
    #[error("the connection is closed")]
    Closed,
}

/// The VM already has [`CONNECTIONS_PER_VM_MAX`] connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the VM already has {CONNECTIONS_PER_VM_MAX} connections")]
pub struct TooManyConnections;

/// A packet that broke a rule. It was dropped or answered with RST; this is for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// Spoofed sender. Dropped.
    #[error("source CID is not the guest's")]
    SourceCid,
    /// Answered with RST.
    #[error("destination CID is not the host's")]
    DestinationCid,
    /// Answered with RST.
    #[error("socket type is not stream")]
    SocketType,
    /// Answered with RST.
    #[error("unknown operation")]
    Operation,
    /// Answered with RST. Ordinary after a reset: the guest had packets in flight.
    #[error("no such connection")]
    NoSuchConnection,
    /// Answered with RST.
    #[error("the VM has too many connections")]
    TooManyConnections,
    /// Closes the connection.
    #[error("REQUEST on a pair of ports in use")]
    PortsInUse,
    /// Closes the connection.
    #[error("operation does not fit the connection's state")]
    State,
    /// Closes the connection.
    #[error("more payload than credit")]
    CreditOverrun,
}

impl Violation {
    /// Whether a well-behaved guest can cause it.
    pub fn is_ordinary(self) -> bool {
        self == Violation::NoSuchConnection
    }
}

/// Totals since the muxer was created.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Packets taken from the guest, bad ones included.
    pub packets_received: u64,
    /// Packets passed to the guest.
    pub packets_sent: u64,
    /// Payload bytes delivered to endpoints.
    pub bytes_received: u64,
    /// Payload bytes passed to the guest.
    pub bytes_sent: u64,
    /// Packets that broke a rule.
    pub violations: u64,
}
