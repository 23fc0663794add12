//! The way from the guest: packets of the tx ring to endpoints, and what happens to connections.
//!
//! [`Worker`] is what calls services and endpoints. It runs in the thread of `vhost-user-backend` that takes the
//! kicks, one [`Worker::turn`] for each event, and it holds no lock of the device while it calls.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::backend::TRANSMIT;
use crate::connection::Connection;
use crate::limits::{BACKLOG_TURNS_MAX, PACKETS_PER_TURN_MAX, TAKEN_UNTOLD_MAX, TAKEN_UNTOLD_NS};
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
    endpoints: HashMap<ConnectionId, Served>,
    /// Endpoints that have put something off: who has waited longest is next.
    waiting: VecDeque<ConnectionId>,
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

/// An endpoint of a connection.
struct Served {
    endpoint: Box<dyn Endpoint>,
    /// It waits for a turn.
    waits: bool,
    /// Its connection is over, and it has still to do what it put off.
    closed: Option<CloseReason>,
}

impl Served {
    fn new(endpoint: Box<dyn Endpoint>) -> Self {
        Served { endpoint, waits: false, closed: None }
    }
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
            waiting: VecDeque::new(),
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
        let mut more = self.deliver_events() || (look_at_transmit && self.serve_transmit());
        // Between two turns of endpoints come the packets of all, and behind as many packets as there may be one turn.
        for _ in 0..BACKLOG_TURNS_MAX {
            if !self.go_on() || more {
                break;
            }
            more = self.serve_transmit();
        }
        more || !self.waiting.is_empty()
    }

    /// A turn of the endpoint that has waited longest for one; false if none does.
    fn go_on(&mut self) -> bool {
        let Some(id) = self.waiting.pop_front() else { return false };
        let Some(served) = self.endpoints.get_mut(&id) else { return true };
        served.waits = false;
        served.endpoint.go_on();
        self.look_at_backlog(id);
        let is_over = |served: &Served| !served.waits && served.closed.is_some();
        if self.endpoints.get(&id).is_some_and(is_over)
            && let Some(Served { mut endpoint, closed: Some(reason), .. }) = self.endpoints.remove(&id)
        {
            endpoint.closed(reason);
        }
        true
    }

    /// An endpoint was called: it waits for a turn if it has put something off.
    fn look_at_backlog(&mut self, id: ConnectionId) {
        if let Some(served) = self.endpoints.get_mut(&id)
            && !served.waits
            && served.endpoint.has_backlog()
        {
            served.waits = true;
            self.waiting.push_back(id);
        }
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
            self.with_endpoint(id, |endpoint| endpoint.idle());
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
        self.endpoints.extend(self.arrivals.drain(..).map(|(id, endpoint)| (id, Served::new(endpoint))));
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
        self.endpoints.extend(endpoint.map(|endpoint| (id, Served::new(endpoint))));
        self.session.enter(|outbound| outbound.muxer.decide(id, credit));
    }

    fn deliver_payload(&mut self, id: ConnectionId) {
        if let Some(served) = self.endpoints.get_mut(&id) {
            served.endpoint.received(&self.packet[HEADER_BYTES..]);
            self.look_at_backlog(id);
            if self.touched.last() != Some(&id) && !self.touched.contains(&id) {
                self.touched.push(id);
            }
        }
    }

    fn with_endpoint(&mut self, id: ConnectionId, call: impl FnOnce(&mut Box<dyn Endpoint>)) {
        if let Some(served) = self.endpoints.get_mut(&id) {
            call(&mut served.endpoint);
            self.look_at_backlog(id);
        }
    }

    fn close(&mut self, id: ConnectionId, reason: CloseReason) {
        match self.endpoints.get_mut(&id) {
            Some(served) if served.waits => served.closed = Some(reason),
            _ => {
                if let Some(mut served) = self.endpoints.remove(&id) {
                    served.endpoint.closed(reason);
                }
            }
        }
    }

    /// Tells every endpoint that QEMU is gone.
    pub fn end(&mut self) {
        self.touched.clear();
        while self.deliver_events() {}
        for (_, Served { mut endpoint, .. }) in self.endpoints.drain() {
            endpoint.closed(CloseReason::Disconnected);
        }
    }
}
