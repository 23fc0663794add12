//! Packets from the guest: from the tx ring to endpoints, and events of connections.
//!
//! [`Worker`] calls services and endpoints. It runs on the thread of `vhost-user-backend` that receives kicks, one
//! [`Worker::turn`] for each event, and holds no lock of the device while it calls.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::backend::{RECEIVE, TRANSMIT};
use crate::busy_rings::BusyRings;
use crate::connection::Connection;
use crate::limits::{BACKLOG_TURNS_MAX, PACKETS_PER_TURN_MAX, TAKEN_UNNOTIFIED_MAX, TAKEN_UNNOTIFIED_NS};
use crate::muxer::{ConnectionId, Event, Ports, Violation};
use crate::packet::{HEADER_BYTES, Header};
use crate::queues::QueueError;
use crate::services::{CloseReason, ConnectRequest, Endpoint, Services};
use crate::session::Session;
use crate::timer::OneShot;

/// Rounds of events that endpoints may cause while handling events, before other work has its turn.
const EVENT_ROUNDS_PER_TURN: usize = 16;

/// The caller of services and endpoints.
pub(crate) struct Worker {
    guest_cid: u64,
    services: Arc<dyn Services>,
    pub(crate) session: Arc<Session>,
    pub(crate) endpoints: HashMap<ConnectionId, Served>,
    /// Endpoints with a backlog, the longest waiting first.
    pub(crate) waiting: VecDeque<ConnectionId>,
    pub(crate) busy_rings: BusyRings,
    /// Endpoints that received bytes since the last `idle`.
    processed: Vec<ConnectionId>,
    events: Vec<Event>,
    arrivals: Vec<(ConnectionId, Box<dyn Endpoint>)>,
    packet: Vec<u8>,
    /// Whether the guest's memory is known to be shared, or was complained about: see [`Self::check_shared`].
    is_shared: bool,
    /// Packets taken from the tx ring of which the guest is not yet notified.
    unnotified: usize,
    /// Runs while `unnotified` is above 0.
    unnotified_timer: OneShot,
}

/// An endpoint of a connection.
pub(crate) struct Served {
    pub endpoint: Box<dyn Endpoint>,
    /// Whether it waits for a turn.
    pub waits: bool,
    /// Set when its connection is closed while it has a backlog.
    closed: Option<CloseReason>,
}

impl Served {
    fn new(endpoint: Box<dyn Endpoint>) -> Self {
        Served { endpoint, waits: false, closed: None }
    }

    /// Queues it for a turn, unless it waits for one.
    pub fn queue(&mut self, id: ConnectionId, waiting: &mut VecDeque<ConnectionId>) {
        if !self.waits {
            self.waits = true;
            waiting.push_back(id);
        }
    }
}

impl Worker {
    pub fn new(
        guest_cid: u64,
        services: Arc<dyn Services>,
        session: Arc<Session>,
        unnotified_timer: OneShot,
    ) -> Self {
        Self {
            unnotified: 0,
            unnotified_timer,
            guest_cid,
            services,
            session,
            endpoints: HashMap::new(),
            waiting: VecDeque::new(),
            busy_rings: BusyRings::default(),
            processed: Vec::new(),
            events: Vec::new(),
            arrivals: Vec::new(),
            packet: Vec::new(),
            is_shared: false,
        }
    }

    /// Runs a turn of all pending work. `true`: the turn is over and there may be more. While QEMU has stopped the guest,
    /// endpoints are told what happens to their connections, and wait with the rest.
    pub fn turn(&mut self, check_transmit: bool) -> bool {
        // Values that could not be stored come before the wakes that are in packets.
        let is_met = self.meet_started_guest();
        // Earlier events may have left packets for which the rx ring has room now.
        self.session.enter(|_| ());
        if !self.session.driver_runs() {
            return self.deliver_events() || !is_met;
        }
        self.look_at_rings();
        let mut more = self.deliver_events() || (check_transmit && self.serve_transmit());
        // Packets of all endpoints are handled between two turns. If packets are left over, one more turn follows.
        for _ in 0..BACKLOG_TURNS_MAX {
            if !self.process_next_backlog() || more {
                break;
            }
            more = self.serve_transmit();
        }
        more || self.has_waiting()
    }

    /// Whether an endpoint waits for a turn.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Runs a turn of the longest waiting endpoint; false if none waits.
    fn process_next_backlog(&mut self) -> bool {
        let Some(id) = self.waiting.pop_front() else { return false };
        let Some(served) = self.endpoints.get_mut(&id) else { return true };
        served.waits = false;
        served.endpoint.process_backlog();
        self.list_backlog(id);
        let is_over = |served: &Served| !served.waits && served.closed.is_some();
        if self.endpoints.get(&id).is_some_and(is_over)
            && let Some(Served { mut endpoint, closed: Some(reason), .. }) = self.endpoints.remove(&id)
        {
            endpoint.closed(reason);
        }
        true
    }

    /// After a call of an endpoint: queues it for a turn if it has a backlog.
    fn list_backlog(&mut self, id: ConnectionId) {
        let ring_has_bytes = self.ring_is_busy(id);
        if let Some(served) = self.endpoints.get_mut(&id)
            && (ring_has_bytes || served.endpoint.has_backlog())
        {
            served.queue(id, &mut self.waiting);
        }
    }

    /// Lets a guest that goes on be written again, and tells services of it or of one that has restarted, before its
    /// first packet. `false`: something that was held back comes first, in further turns.
    fn meet_started_guest(&mut self) -> bool {
        if !self.session.has_started_again.load(Ordering::Relaxed)
            || !self.session.has_started_again.swap(false, Ordering::AcqRel)
        {
            return true;
        }
        if !self.services.goes_on(&|| self.session.driver_goes_on()) {
            self.session.has_started_again.store(true, Ordering::Release);
            return false;
        }
        // Without a memory table there is nobody to tell.
        if self.session.has_memory.load(Ordering::Acquire) {
            self.services.memory_changed(self.session.guest_memory());
        }
        self.session.sends_again();
        true
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
                    // A driver that has restarted since the turn began. Nothing is held back for it.
                    let _ = self.meet_started_guest();
                    self.unnotified += 1;
                    self.is_shared = true;
                    self.handle_packet(outcome);
                }
                None if ring.ask_for_kick() => {}
                None => {
                    more = false;
                    break;
                }
            }
        }
        self.check_shared();
        more |= self.flush();
        let is_due = self.unnotified >= TAKEN_UNNOTIFIED_MAX;
        if is_due || (self.unnotified > 0 && !self.unnotified_timer.start(TAKEN_UNNOTIFIED_NS)) {
            self.notify_taken();
        }
        more
    }

    /// Names memory that QEMU does not share with this process, which no request of its shows. A driver fills its rx ring as
    /// soon as it runs, and kicks the tx ring for packets in it. QEMU kicks a ring once when it starts. So rings that never
    /// had anything at a second kick are not those that the driver fills.
    fn check_shared(&mut self) {
        let rings = &self.session.rings;
        let is_unused = |index: usize| rings[index].open().is_some_and(|mut ring| ring.is_unused());
        let is_kicked_again = rings[TRANSMIT].kicks_since_start() > 1;
        if self.is_shared || !is_kicked_again || !is_unused(RECEIVE) || !is_unused(TRANSMIT) {
            return;
        }
        self.is_shared = true;
        let words = "its kicks arrive and its queues stay empty, so its memory is not shared with the daemon: start QEMU with \
                     -object memory-backend-memfd,id=memory,size=..,share=on -machine memory-backend=memory";
        self.session.complaints.machine("the guest cannot be served", &words);
    }

    /// Notifies the guest that buffers of the tx ring are free, if it requested that.
    pub fn notify_taken(&mut self) {
        // A ring that is stopped is notified of when it goes on.
        let Some(mut ring) = self.session.rings[TRANSMIT].open() else { return };
        self.unnotified = 0;
        let call = ring.call_if_wanted();
        drop(ring);
        if let Some(call) = call {
            call.signal();
        }
    }

    /// Handles the expiry of [`TAKEN_UNNOTIFIED_NS`].
    pub fn unnotified_timer_expired(&mut self) {
        self.unnotified_timer.acknowledge();
        if self.unnotified > 0 {
            self.notify_taken();
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

    /// Calls `idle` on endpoints that received bytes. `true`: there are more events.
    fn flush(&mut self) -> bool {
        for id in std::mem::take(&mut self.processed) {
            self.with_endpoint(id, |endpoint| endpoint.idle());
        }
        self.deliver_events()
    }

    /// Delivers events that are not caused by the current packet. `true`: there are more.
    fn deliver_events(&mut self) -> bool {
        for _ in 0..EVENT_ROUNDS_PER_TURN {
            self.session.take_events(&mut self.events, &mut self.arrivals);
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
        // Reuse the allocation.
        self.events = events;
    }

    fn offer(&mut self, id: ConnectionId, request: ConnectRequest) {
        let ports = Ports { peer: request.peer_port, local: request.local_port };
        let connection = Connection::new(Arc::clone(&self.session), id, ports);
        let endpoint = self.services.accept(request, connection);
        let credit = endpoint.as_ref().map(|endpoint| endpoint.credit());
        // Before the decision: an endpoint that reset its connection at once must still be called with `closed`.
        self.endpoints.extend(endpoint.map(|endpoint| (id, Served::new(endpoint))));
        self.session.enter(|outbound| outbound.muxer.decide(id, credit));
    }

    fn deliver_payload(&mut self, id: ConnectionId) {
        if let Some(served) = self.endpoints.get_mut(&id) {
            served.endpoint.received(&self.packet[HEADER_BYTES..]);
            self.list_backlog(id);
            if self.processed.last() != Some(&id) && !self.processed.contains(&id) {
                self.processed.push(id);
            }
        }
    }

    fn with_endpoint(&mut self, id: ConnectionId, call: impl FnOnce(&mut Box<dyn Endpoint>)) {
        if let Some(served) = self.endpoints.get_mut(&id) {
            call(&mut served.endpoint);
            self.list_backlog(id);
        }
    }

    fn close(&mut self, id: ConnectionId, reason: CloseReason) {
        // What the guest wrote into a ring before counts.
        self.list_backlog(id);
        match self.endpoints.get_mut(&id) {
            Some(served) if served.waits => served.closed = Some(reason),
            _ => {
                if let Some(mut served) = self.endpoints.remove(&id) {
                    served.endpoint.closed(reason);
                }
            }
        }
    }

    /// Closes every endpoint, because QEMU is gone.
    pub fn end(&mut self) {
        self.processed.clear();
        self.busy_rings.clear();
        while self.deliver_events() {}
        for (_, Served { mut endpoint, .. }) in self.endpoints.drain() {
            endpoint.closed(CloseReason::Disconnected);
        }
    }
}
