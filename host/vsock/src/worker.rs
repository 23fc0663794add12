//! The way from the guest: packets of the tx ring to endpoints, and what happens to connections.
//!
//! [`Worker`] is what calls services and endpoints. It runs in the thread of `vhost-user-backend` that takes the
//! kicks, one [`Worker::turn`] for each event, and it holds no lock of the device while it calls.

use std::collections::HashMap;
use std::sync::Arc;

use crate::backend::TRANSMIT;
use crate::connection::Connection;
use crate::limits::{PACKETS_PER_TURN_MAX, TAKEN_UNTOLD_MAX, TAKEN_UNTOLD_NS};
use crate::muxer::{ConnectionId, Event, Ports, Violation};
use crate::packet::{HEADER_BYTES, Header};
use crate::queues::QueueError;
use crate::services::{CloseReason, ConnectRequest, Endpoint, Services};
use crate::session::Session;
use crate::timer::OneShot;

/// Rounds of events that endpoints may cause by what they do about events, before other work gets its turn.
const EVENT_ROUNDS_PER_TURN: usize = 16;

/// See the module.
pub(crate) struct Worker {
    guest_cid: u64,
    services: Arc<dyn Services>,
    session: Arc<Session>,
    endpoints: HashMap<ConnectionId, Box<dyn Endpoint>>,
    /// Endpoints that received bytes since the last `idle`.
    touched: Vec<ConnectionId>,
    events: Vec<Event>,
    arrivals: Vec<(ConnectionId, Box<dyn Endpoint>)>,
    packet: Vec<u8>,
    /// Packets taken from the tx ring that the guest was not told of.
    untold: usize,
    /// Runs while there are any.
    untold_timer: OneShot,
}

impl Worker {
    pub fn new(
        guest_cid: u64,
        services: Arc<dyn Services>,
        session: Arc<Session>,
        untold_timer: OneShot,
    ) -> Self {
        Self {
            untold: 0,
            untold_timer,
            guest_cid,
            services,
            session,
            endpoints: HashMap::new(),
            touched: Vec::new(),
            events: Vec::new(),
            arrivals: Vec::new(),
            packet: Vec::new(),
        }
    }

    /// Does what there is to do. `true`: the turn is over and there may be more.
    pub fn turn(&mut self, look_at_transmit: bool) -> bool {
        // Whatever happened may have left packets that the rx ring now takes.
        self.session.enter(|_| ());
        self.deliver_events() || (look_at_transmit && self.serve_transmit())
    }

    /// Handles packets of the guest. `true`: the turn is over and there may be more.
    fn serve_transmit(&mut self) -> bool {
        if let Some(mut ring) = self.session.rings[TRANSMIT].open() {
            ring.refuse_kicks();
        }
        let mut more = true;
        for _ in 0..PACKETS_PER_TURN_MAX {
            let Some(mut ring) = self.session.rings[TRANSMIT].open() else {
                more = false;
                break;
            };
            match ring.take_packet(&mut self.packet) {
                Some(outcome) => {
                    drop(ring);
                    self.untold += 1;
                    self.handle_packet(outcome);
                }
                None if ring.ask_for_kick() => {}
                None => {
                    more = false;
                    break;
                }
            }
        }
        self.flush();
        let enough = self.untold >= TAKEN_UNTOLD_MAX;
        if enough || (self.untold > 0 && !self.untold_timer.start(TAKEN_UNTOLD_NS)) {
            self.tell_taken();
        }
        more
    }

    /// Tells the guest that buffers of the tx ring are free again, if it wants to hear of it.
    pub fn tell_taken(&mut self) {
        self.untold = 0;
        let call = self.session.rings[TRANSMIT].open().and_then(|mut ring| ring.call_if_wanted());
        if let Some(call) = call {
            call.signal();
        }
    }

    /// The time of [`TAKEN_UNTOLD_NS`] is over.
    pub fn untold_time_is_over(&mut self) {
        self.untold_timer.acknowledge();
        if self.untold > 0 {
            self.tell_taken();
        }
    }

    fn handle_packet(&mut self, outcome: Result<Header, QueueError>) {
        let header = match outcome {
            Ok(header) => header,
            Err(error) => return self.session.complaints.ring("tx", &error),
        };
        let events = &mut self.events;
        let arrivals = &mut self.arrivals;
        let verdict = self.session.enter(|outbound| {
            let verdict = outbound.muxer.receive(&header);
            outbound.muxer.take_events(events);
            arrivals.append(&mut outbound.arrivals);
            verdict
        });
        self.dispatch();
        match verdict {
            Ok(()) => {}
            Err(violation) if violation.is_ordinary() => self.note_ordinary(&header, violation),
            Err(violation) => {
                self.session.complaints.packet(header.src_port, header.dst_port, &violation);
            }
        }
    }

    fn note_ordinary(&self, header: &Header, violation: Violation) {
        let (cid, peer_port, local_port) = (self.guest_cid, header.src_port, header.dst_port);
        tracing::debug!(cid, peer_port, local_port, "vsock packet answered with RST: {violation}");
    }

    /// Tells endpoints that got bytes that no more are at hand.
    fn flush(&mut self) {
        for id in std::mem::take(&mut self.touched) {
            if let Some(endpoint) = self.endpoints.get_mut(&id) {
                endpoint.idle();
            }
        }
        self.deliver_events();
    }

    /// Delivers events that do not come from a packet at hand. `true`: there are more.
    fn deliver_events(&mut self) -> bool {
        for _ in 0..EVENT_ROUNDS_PER_TURN {
            self.session.take_news(&mut self.events, &mut self.arrivals);
            if self.events.is_empty() && self.arrivals.is_empty() {
                return false;
            }
            self.dispatch();
        }
        true
    }

    fn dispatch(&mut self) {
        self.endpoints.extend(self.arrivals.drain(..));
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                Event::Offered(id, request) => self.offer(id, request),
                Event::Connected(id) => self.with_endpoint(id, |endpoint| endpoint.connected()),
                Event::Received(id) => self.deliver_payload(id),
                Event::PeerFinished(id) => self.with_endpoint(id, |endpoint| endpoint.peer_finished()),
                Event::Writable(id) => self.with_endpoint(id, |endpoint| endpoint.writable()),
                Event::Closed(id, reason) => self.close(id, reason),
            }
        }
        // Keeps the allocation.
        self.events = events;
    }

    fn offer(&mut self, id: ConnectionId, request: ConnectRequest) {
        let ports = Ports { peer: request.peer_port, local: request.local_port };
        let connection = Connection::new(Arc::clone(&self.session), id, ports);
        let endpoint = self.services.accept(request, connection);
        let credit = endpoint.as_ref().map(|endpoint| endpoint.credit());
        // Before the decision: an endpoint that reset its connection at once still has to be told `closed`.
        self.endpoints.extend(endpoint.map(|endpoint| (id, endpoint)));
        self.session.enter(|outbound| outbound.muxer.decide(id, credit));
    }

    fn deliver_payload(&mut self, id: ConnectionId) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            endpoint.received(&self.packet[HEADER_BYTES..]);
            if self.touched.last() != Some(&id) && !self.touched.contains(&id) {
                self.touched.push(id);
            }
        }
    }

    fn with_endpoint(&mut self, id: ConnectionId, call: impl FnOnce(&mut Box<dyn Endpoint>)) {
        if let Some(endpoint) = self.endpoints.get_mut(&id) {
            call(endpoint);
        }
    }

    fn close(&mut self, id: ConnectionId, reason: CloseReason) {
        if let Some(mut endpoint) = self.endpoints.remove(&id) {
            endpoint.closed(reason);
        }
    }

    /// Tells every endpoint that QEMU is gone.
    pub fn end(&mut self) {
        self.touched.clear();
        while self.deliver_events() {}
        for (_, mut endpoint) in self.endpoints.drain() {
            endpoint.closed(CloseReason::Disconnected);
        }
    }
}
