//! The raw peers of `gpupv bench` inside a VM: echo, sink and relay, with nothing of ours in between.

use std::sync::{Arc, Mutex};

use vsock_device::{CloseReason, Connection, Endpoint};

/// Sends back what it gets, at once.
pub struct Echo(Connection);

impl Echo {
    pub fn new(connection: Connection) -> Self {
        Echo(connection)
    }
}

impl Endpoint for Echo {
    fn received(&mut self, bytes: &[u8]) {
        if self.0.send(bytes).is_err() {
            self.0.reset();
        }
    }

    fn peer_finished(&mut self) {
        self.0.finish();
    }

    fn closed(&mut self, _reason: CloseReason) {}
}

/// Swallows what it gets. The first 8 bytes say how many will come (little-endian, these 8 not counted);
/// when all are there it answers with one byte and begins anew.
pub struct Sink {
    connection: Connection,
    header: Vec<u8>,
    left: u64,
}

impl Sink {
    pub fn new(connection: Connection) -> Self {
        Sink { connection, header: Vec::new(), left: 0 }
    }
}

impl Endpoint for Sink {
    fn received(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let missing = 8 - self.header.len();
                let (head, rest) = bytes.split_at(missing.min(bytes.len()));
                self.header.extend_from_slice(head);
                bytes = rest;
                let Ok(length) = <[u8; 8]>::try_from(&self.header[..]) else { return };
                self.left = u64::from_le_bytes(length);
                self.header.clear();
                continue;
            }
            let taken = (bytes.len() as u64).min(self.left);
            self.left -= taken;
            bytes = &bytes[taken as usize..];
            if self.left == 0 && self.connection.send(&[1]).is_err() {
                self.connection.reset();
            }
        }
    }

    fn peer_finished(&mut self) {
        self.connection.finish();
    }

    fn closed(&mut self, _reason: CloseReason) {}
}

/// The two connections of a VM that are relayed to each other.
#[derive(Clone, Default)]
pub struct RelayHub(Arc<Mutex<Vec<Connection>>>);

/// Passes what it gets on to every other relay connection of the VM.
pub struct Relay {
    hub: RelayHub,
    connection: Connection,
}

impl Relay {
    pub fn new(hub: RelayHub, connection: Connection) -> Self {
        hub.0.lock().expect("no panic happens under the relay's lock").push(connection.clone());
        Relay { hub, connection }
    }

    fn is_own(&self, other: &Connection) -> bool {
        other.peer_port() == self.connection.peer_port()
    }
}

impl Endpoint for Relay {
    fn received(&mut self, bytes: &[u8]) {
        let others = self.hub.0.lock().expect("no panic happens under the relay's lock").clone();
        for other in others.iter().filter(|other| !self.is_own(other)) {
            // A peer that went away is no loss.
            let _ = other.send(bytes);
        }
    }

    fn peer_finished(&mut self) {
        self.connection.finish();
    }

    fn closed(&mut self, _reason: CloseReason) {
        let mut others = self.hub.0.lock().expect("no panic happens under the relay's lock");
        others.retain(|other| !self.is_own(other));
    }
}
