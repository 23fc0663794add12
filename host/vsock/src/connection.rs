//! The daemon's handle on one connection.

use std::fmt;
use std::sync::Arc;

use crate::muxer::{ConnectionId, Ports, SendError};
use crate::session::Session;

/// Sends on one connection, from any thread. Cheap to clone; dropping it closes nothing.
///
/// The thread that calls [`Connection::send`] puts the packet into the guest's receive ring itself and interrupts
/// the guest, if the guest has given credit and buffers. Nothing here blocks on the guest.
#[derive(Clone)]
pub struct Connection {
    session: Arc<Session>,
    id: ConnectionId,
    ports: Ports,
}

impl Connection {
    pub(crate) fn new(session: Arc<Session>, id: ConnectionId, ports: Ports) -> Self {
        Self { session, id, ports }
    }

    /// Sends all of `bytes` or nothing. At most [`crate::limits::QUEUED_BYTES_PER_CONNECTION_MAX`] bytes wait for the
    /// guest. Over that it returns [`SendError::Full`], and [`crate::Endpoint::writable`] is called when there is room.
    pub fn send(&self, bytes: &[u8]) -> Result<(), SendError> {
        self.session.enter(|outbound| outbound.muxer.send(self.id, bytes))
    }

    /// Sends as many of `bytes` as there is room for, at least one; returns how many. There is room for
    /// [`crate::limits::QUEUED_BYTES_OWN`] whatever other connections have queued. Without room it returns
    /// [`SendError::Full`], as [`Connection::send`] does.
    ///
    /// If some are left, [`crate::Endpoint::writable`] is called when there is room for them. The sender waits for that: each
    /// attempt fills buffers of the guest, which may add others as fast.
    pub fn send_some(&self, bytes: &[u8]) -> Result<usize, SendError> {
        self.session.enter(|outbound| outbound.muxer.send_some(self.id, bytes))
    }

    /// Half-closes: after everything sent so far the guest sees end of file. The guest may still send.
    pub fn finish(&self) {
        self.session.enter(|outbound| outbound.muxer.finish(self.id));
    }

    /// Resets the connection. Queued bytes are lost, the guest receives RST, and the endpoint is closed with
    /// [`crate::CloseReason::ResetByHost`] on a thread of the device.
    pub fn reset(&self) {
        self.session.enter(|outbound| outbound.muxer.reset(self.id));
    }

    /// Returns credit for `len` bytes to the guest, on a connection with [`crate::Credit::Manual`].
    pub fn consumed(&self, len: u32) {
        self.session.enter(|outbound| outbound.muxer.consumed(self.id, len));
    }

    /// The guest's port.
    pub fn peer_port(&self) -> u32 {
        self.ports.peer
    }

    /// The host's port.
    pub fn local_port(&self) -> u32 {
        self.ports.local
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ports { peer, local } = self.ports;
        write!(formatter, "Connection(guest port {peer}, host port {local})")
    }
}
