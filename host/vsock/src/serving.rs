//! The device's thread: it waits for QEMU, for kicks, for requests and for news from other threads, and it alone
//! calls services and endpoints.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vhost::vhost_user::{BackendReqHandler, Error as RequestError};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use crate::connection::Connection;
use crate::device::{Attached, Shared};
use crate::limits::PACKETS_PER_TURN_MAX;
use crate::muxer::{ConnectionId, Event, Ports, Violation};
use crate::packet::{HEADER_BYTES, Header};
use crate::queues::QueueError;
use crate::requests::{Requests, TRANSMIT};
use crate::services::{CloseReason, ConnectRequest, Endpoint};
use crate::session::{Session, lock};

// What an epoll event is about; smaller numbers are kicks of the queue with that index.
const SOCKET: u64 = 3;
const WAKE: u64 = 4;
const LISTENER: u64 = 5;

/// How long a QEMU may pause in the middle of a request before it is given up.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);

/// Rounds of events that endpoints may cause by what they do about events, before other work gets its turn.
const EVENT_ROUNDS_PER_TURN: usize = 16;

/// Waits for QEMUs.
pub(crate) struct Server {
    shared: Arc<Shared>,
    listener: UnixListener,
    epoll: Arc<Epoll>,
}

impl Server {
    pub fn new(shared: Arc<Shared>, listener: UnixListener) -> io::Result<Self> {
        let epoll = Arc::new(Epoll::new()?);
        // Edge-triggered: a connection that cannot be accepted (no descriptors left) must not keep the thread busy.
        watch(&epoll, &listener, EventSet::IN | EventSet::EDGE_TRIGGERED, LISTENER)?;
        watch(&epoll, &*shared.wake, EventSet::IN, WAKE)?;
        Ok(Self { shared, listener, epoll })
    }

    pub fn run(self) {
        let mut events = [EpollEvent::default(); 2];
        while !self.shared.stop.load(Ordering::Acquire) {
            if let Err(error) = wait(&self.shared, &self.epoll, -1, &mut events) {
                tracing::error!(cid = self.shared.config.guest_cid, "the vsock device cannot wait: {error}");
                return;
            }
            let _ = self.shared.wake.read();
            self.serve_waiting();
        }
    }

    /// Serves the QEMUs that wait at the listener, one after the other.
    fn serve_waiting(&self) {
        let cid = self.shared.config.guest_cid;
        while !self.shared.stop.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.serve(stream) {
                        tracing::warn!(cid, "QEMU could not be served: {error}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return tracing::warn!(cid, "QEMU could not be accepted: {error}"),
            }
        }
    }

    /// Serves one QEMU to its end.
    fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let shared = &self.shared;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(REQUEST_PATIENCE))?;
        watch(&self.epoll, &stream, EventSet::IN | EventSet::READ_HANG_UP, SOCKET)?;
        let session = Arc::new(Session::new(shared.config.guest_cid, Arc::clone(&shared.wake)));
        let requests = Arc::new(Mutex::new(Requests::new(
            Arc::clone(&session),
            Arc::clone(&shared.services),
            Arc::clone(&self.epoll),
            shared.config.guest_cid,
        )));
        let attached = Attached { session: Arc::clone(&session), stream: stream.try_clone()? };
        *lock(&shared.attached) = Some(attached);
        shared.sessions.fetch_add(1, Ordering::Relaxed);
        tracing::info!(cid = shared.config.guest_cid, "QEMU connected");

        let mut worker = Worker::new(Arc::clone(shared), Arc::clone(&session), Arc::clone(&requests));
        let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(&requests));
        worker.run(&self.epoll, &self.listener, &mut handler);

        *lock(&shared.attached) = None;
        session.end();
        worker.end();
        drop(handler);
        lock(&requests).drop_kicks();
        if session.has_memory.load(Ordering::Acquire) {
            shared.services.disconnected();
        }
        tracing::info!(cid = shared.config.guest_cid, "QEMU disconnected");
        Ok(())
    }
}

/// Serves one QEMU.
struct Worker {
    shared: Arc<Shared>,
    session: Arc<Session>,
    requests: Arc<Mutex<Requests>>,
    endpoints: HashMap<ConnectionId, Box<dyn Endpoint>>,
    /// Endpoints that received bytes since the last `idle`.
    touched: Vec<ConnectionId>,
    events: Vec<Event>,
    arrivals: Vec<(ConnectionId, Box<dyn Endpoint>)>,
    packet: Vec<u8>,
}

impl Worker {
    fn new(shared: Arc<Shared>, session: Arc<Session>, requests: Arc<Mutex<Requests>>) -> Self {
        Self {
            shared,
            session,
            requests,
            endpoints: HashMap::new(),
            touched: Vec::new(),
            events: Vec::new(),
            arrivals: Vec::new(),
            packet: Vec::new(),
        }
    }

    fn run(
        &mut self,
        epoll: &Epoll,
        listener: &UnixListener,
        handler: &mut BackendReqHandler<Mutex<Requests>>,
    ) {
        let mut ready = [EpollEvent::default(); 8];
        let mut more = false;
        while !self.shared.stop.load(Ordering::Acquire) {
            let timeout = if more { 0 } else { -1 };
            let count = match wait(&self.shared, epoll, timeout, &mut ready) {
                Ok(count) => count,
                Err(error) => {
                    let cid = self.shared.config.guest_cid;
                    return tracing::error!(cid, "the vsock device cannot wait: {error}");
                }
            };
            let mut look_at_transmit = more;
            for event in &ready[..count] {
                match event.data() {
                    SOCKET => {
                        if let Err(error) = handler.handle_request() {
                            return self.log_end(&error);
                        }
                        look_at_transmit |= std::mem::take(&mut lock(&self.requests).look_at_rings);
                    }
                    WAKE => drop(self.shared.wake.read()),
                    LISTENER => self.turn_away(listener),
                    index => look_at_transmit |= self.take_kick(index as usize),
                }
            }
            // Whatever happened may have left packets that the rx ring now takes.
            self.session.enter(|_| ());
            more = self.deliver_events() || (look_at_transmit && self.serve_transmit());
        }
    }

    /// `true` if it was a kick of the transmit queue. The others are served by whatever moves packets next.
    fn take_kick(&mut self, index: usize) -> bool {
        if !lock(&self.requests).take_kick(index) {
            return false;
        }
        self.session.kicks.fetch_add(1, Ordering::Relaxed);
        index == TRANSMIT
    }

    /// Two QEMUs on one socket would be two VMs with one identity.
    fn turn_away(&self, listener: &UnixListener) {
        while listener.accept().is_ok() {
            let cid = self.shared.config.guest_cid;
            tracing::warn!(cid, "a second QEMU connected to the device of a running one and was turned away");
        }
    }

    /// Handles packets of the guest. `true`: the turn is over and there may be more.
    fn serve_transmit(&mut self) -> bool {
        lock(&self.session.transmit).refuse_kicks();
        let mut more = true;
        for _ in 0..PACKETS_PER_TURN_MAX {
            let mut ring = lock(&self.session.transmit);
            match ring.take_packet(&mut self.packet) {
                Some(outcome) => {
                    drop(ring);
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
        let call = lock(&self.session.transmit).call_if_wanted();
        if let Some(call) = call {
            call.signal();
        }
        more
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
        let (cid, peer_port, local_port) = (self.shared.config.guest_cid, header.src_port, header.dst_port);
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
        let endpoint = self.shared.services.accept(request, connection);
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
    fn end(&mut self) {
        self.touched.clear();
        while self.deliver_events() {}
        for (_, mut endpoint) in self.endpoints.drain() {
            endpoint.closed(CloseReason::Disconnected);
        }
    }

    fn log_end(&self, error: &RequestError) {
        let cid = self.shared.config.guest_cid;
        match error {
            RequestError::Disconnected | RequestError::PartialMessage | RequestError::SocketBroken(_) => {
                tracing::debug!(cid, "QEMU closed its socket: {error}");
            }
            other => tracing::warn!(cid, "QEMU sent a request that cannot be served: {other}"),
        }
    }
}

fn watch(epoll: &Epoll, file: &impl AsRawFd, events: EventSet, data: u64) -> io::Result<()> {
    epoll.ctl(ControlOperation::Add, file.as_raw_fd(), EpollEvent::new(events, data))
}

fn wait(shared: &Shared, epoll: &Epoll, timeout: i32, ready: &mut [EpollEvent]) -> io::Result<usize> {
    loop {
        match epoll.wait(timeout, ready) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => {
                shared.wakeups.fetch_add(1, Ordering::Relaxed);
                return outcome;
            }
        }
    }
}
