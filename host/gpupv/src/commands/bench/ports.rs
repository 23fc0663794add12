//! The raw peers of `gpupv bench` inside a VM: echo, sink and relay, without any gpupv code in between. Also the host's
//! side of a wake: on order it sends raw bytes or has the driver signal.

use std::sync::{Arc, Mutex};

use dxgkrnl::Fault;
use proto::bench::{DRIVER_USAGE, Order};
use proto::limits::{DRIVER_PORT, ECHO_PORT, RELAY_PORT, SINK_PORT};
use rustix::time::{ClockId, clock_gettime};
use vsock_device::{CloseReason, Connection, Endpoint};

use crate::daemon::kernel_host::KernelHost;
use crate::daemon::vm::{MorePorts, PortServices};

/// The peers of one VM.
struct Peers {
    kernel_host: Arc<KernelHost>,
    relay: RelayHub,
    driver: RelayHub,
}

impl PortServices for Peers {
    fn accept(&self, port: u32, connection: &Connection) -> Option<Box<dyn Endpoint>> {
        let connection = connection.clone();
        match port {
            ECHO_PORT => Some(Box::new(Echo::new(connection))),
            SINK_PORT => Some(Box::new(Sink::new(connection))),
            RELAY_PORT => Some(Box::new(Relay::new(self.relay.clone(), connection))),
            DRIVER_PORT => {
                Some(Box::new(Driver::new(self.kernel_host.clone(), self.driver.clone(), connection)))
            }
            _ => None,
        }
    }
}

/// Ports that a measured daemon serves.
pub fn peers() -> MorePorts {
    MorePorts(Arc::new(|kernel_host| {
        Box::new(Peers { kernel_host, relay: RelayHub::default(), driver: RelayHub::default() })
    }))
}

/// Sends back what it receives, at once.
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

/// Discards what it receives. The first 8 bytes are the count of the bytes that follow (little-endian). Once all have
/// arrived the sink answers with one byte and starts again.
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

impl RelayHub {
    fn join(&self, connection: &Connection) {
        self.connections().push(connection.clone());
    }

    fn leave(&self, connection: &Connection) {
        self.connections().retain(|other| other.peer_port() != connection.peer_port());
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.0.lock().expect("no panic happens under the relay's lock")
    }

    /// Sends to every connection of the hub but this one.
    fn send_from(&self, connection: &Connection, bytes: &[u8]) {
        let others = self.connections().clone();
        for other in others.iter().filter(|other| other.peer_port() != connection.peer_port()) {
            // A peer that has disconnected is ignored.
            let _ = other.send(bytes);
        }
    }
}

/// Forwards what it receives to every other relay connection of the VM.
pub struct Relay {
    hub: RelayHub,
    connection: Connection,
}

impl Relay {
    pub fn new(hub: RelayHub, connection: Connection) -> Self {
        hub.join(&connection);
        Relay { hub, connection }
    }
}

impl Endpoint for Relay {
    fn received(&mut self, bytes: &[u8]) {
        self.hub.send_from(&self.connection, bytes);
    }

    fn peer_finished(&mut self) {
        self.connection.finish();
    }

    fn closed(&mut self, _reason: CloseReason) {
        self.hub.leave(&self.connection);
    }
}

/// Executes the orders of one connection.
pub struct Orders {
    kernel_host: Arc<KernelHost>,
    begun_ns: u64,
}

impl Orders {
    pub fn new(kernel_host: Arc<KernelHost>) -> Self {
        Orders { kernel_host, begun_ns: 0 }
    }

    /// Executes an order and returns its answer, if it has one. `raw` sends to the other connections.
    pub fn obey(&mut self, order: Order, raw: impl FnOnce(&[u8])) -> Option<[u8; 8]> {
        let began = || {
            let now = clock_gettime(ClockId::Monotonic);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        match order {
            Order::Signal => {
                self.begun_ns = began();
                self.kernel_host.fault(Fault::ObjectGoesBad { adapter: 0, usage: DRIVER_USAGE });
                None
            }
            Order::Raw(count) => {
                let bytes = vec![0x5A; count.into()];
                self.begun_ns = began();
                raw(&bytes);
                None
            }
            Order::When => Some(self.begun_ns.to_le_bytes()),
        }
    }
}

/// A connection that sends orders, or one that receives raw bytes.
pub struct Driver {
    orders: Orders,
    hub: RelayHub,
    connection: Connection,
    received: Vec<u8>,
}

impl Driver {
    pub fn new(kernel_host: Arc<KernelHost>, hub: RelayHub, connection: Connection) -> Self {
        hub.join(&connection);
        Driver { orders: Orders::new(kernel_host), hub, connection, received: Vec::new() }
    }
}

impl Endpoint for Driver {
    fn received(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        let Driver { orders, hub, connection, received } = self;
        let whole = received.len() / Order::BYTES * Order::BYTES;
        for order in received.drain(..whole).as_slice().chunks_exact(Order::BYTES) {
            let Some(order) = order.try_into().ok().and_then(Order::parse) else { return connection.reset() };
            let answer = orders.obey(order, |bytes| hub.send_from(connection, bytes));
            if answer.is_some_and(|answer| connection.send(&answer).is_err()) {
                return connection.reset();
            }
        }
    }

    fn peer_finished(&mut self) {
        self.connection.finish();
    }

    fn closed(&mut self, _reason: CloseReason) {
        self.hub.leave(&self.connection);
    }
}
