//! One QEMU, from connect to disconnect: the muxer and the vrings, shared between the device's worker, QEMU's requests
//! and sending threads.
//!
//! ```text
//!   guest ──tx ring──▶ worker ──▶ muxer ──▶ Endpoint::received             (no lock held)
//!   guest ◀──rx ring── pump ◀── muxer ◀── Connection::send                 (any thread, no hop)
//! ```
//!
//! `outbound` guards the muxer and, with the rx ring's own lock inside it, the rx ring, because the order of packets in
//! the ring is the muxer's order. The tx ring has only its own lock. None of them is held across a call into an
//! endpoint, a write to an eventfd or a log line about packets.
//!
//! A sending thread fills the receive buffers that are available when it begins, at most [`BUFFERS_PER_PASS_MAX`]. It
//! may be the thread of another VM, and a guest that adds buffers as fast as they are filled would keep it busy. The
//! worker continues.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use crate::backend::{EVENT, QUEUES, RECEIVE, TRANSMIT};
use crate::complaints::Complaints;
use crate::device::Shared;
use crate::known_connections::Known;
use crate::limits::{BUFFERS_PER_PASS_MAX, BYTES_PER_PASS_MAX};
use crate::locks::{Rank, Ranked};
use crate::memory::{self, DriverLife, GuestMemory, MemoryTable};
use crate::muxer::{Change, ConnectionId, Event, Muxer};
use crate::packet::HEADER_BYTES;
use crate::queues::{QueueError, Segments};
use crate::services::{CloseReason, Endpoint};
use crate::vring::{Call, Ring};

/// Identifier of the only transport event (`VIRTIO_VSOCK_EVENT_TRANSPORT_RESET`).
const EVENT_TRANSPORT_RESET: [u8; 4] = 0u32.to_le_bytes();

/// The session of one QEMU.
pub(crate) struct Session {
    guest_cid: u64,
    pub table: MemoryTable,
    pub rings: [Ring; QUEUES],
    outbound: Ranked<Outbound>,
    /// The current life of the guest's driver.
    life: Ranked<DriverLife>,
    /// The guest goes on, or its driver has restarted: the worker is to see to that.
    pub has_started_again: AtomicBool,
    pub complaints: Arc<Complaints>,
    worker_thread: ThreadId,
    request_thread: OnceLock<ThreadId>,
    notifier: Arc<EventFd>,
    /// The notifier is set: a worker that looks at rings returns to its loop.
    is_woken: AtomicBool,
    /// The tx ring may hold packets whose kick was missed.
    pub check_transmit: AtomicBool,
    /// QEMU has sent a memory table, and services were notified.
    pub has_memory: AtomicBool,
    /// The worker is to stop.
    pub is_over: AtomicBool,
}

/// State of packets to the guest.
pub(crate) struct Outbound {
    pub muxer: Muxer,
    /// Endpoints of host-initiated connections, to be moved to the worker.
    pub arrivals: Vec<(ConnectionId, Box<dyn Endpoint>)>,
    /// The guest must be sent a transport reset, once there is an event ring.
    pub owes_transport_reset: bool,
    /// QEMU is connected.
    pub alive: bool,
    pub signals: u64,
    known: Arc<Ranked<Known>>,
    changes: Vec<Change>,
    starving: bool,
    /// QEMU has stopped the guest, and what was held back meanwhile is not all in its memory again.
    holds_back: bool,
    payload: Vec<u8>,
    segments: Segments,
}

/// Work that is left once the lock is released.
#[derive(Default)]
struct Aftermath {
    calls: [Option<Call>; 2],
    fault: Option<QueueError>,
    /// Packets and buffers are left: the worker continues.
    has_more_packets: bool,
}

impl Session {
    /// A session whose worker is the calling thread.
    pub fn new(shared: &Shared, table: MemoryTable, rings: [Ring; QUEUES]) -> Self {
        let guest_cid = shared.config.guest_cid;
        let mut muxer = Muxer::new(guest_cid);
        shared.known.lock().ports().into_iter().for_each(|ports| muxer.reset_ports(ports));
        Self {
            guest_cid,
            table,
            rings,
            outbound: Ranked::new(
                Rank::Outbound,
                Outbound {
                    muxer,
                    known: Arc::clone(&shared.known),
                    changes: Vec::new(),
                    arrivals: Vec::new(),
                    owes_transport_reset: false,
                    alive: true,
                    signals: 0,
                    starving: false,
                    holds_back: false,
                    payload: Vec::new(),
                    segments: Segments::new(),
                },
            ),
            life: Ranked::new(Rank::DriverLife, DriverLife::new()),
            has_started_again: AtomicBool::new(false),
            complaints: Arc::clone(&shared.complaints),
            worker_thread: std::thread::current().id(),
            request_thread: OnceLock::new(),
            notifier: Arc::clone(&shared.notifier),
            is_woken: AtomicBool::new(false),
            check_transmit: AtomicBool::new(false),
            has_memory: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// Runs `change` on the muxer, then moves packets into the rx ring and interrupts the guest if it requested that.
    /// Events wait for the worker, which is woken if there are any and this is another thread.
    pub fn enter<R>(&self, change: impl FnOnce(&mut Outbound) -> R) -> R {
        let mut outbound = self.outbound.lock();
        let outcome = change(&mut outbound);
        // Before the guest learns of a new connection, and after it is sent the end of one.
        let noted = outbound.note_changes();
        let aftermath = outbound.pump(&self.rings);
        let noted = noted.and(outbound.note_changes());
        let has_events = outbound.has_events();
        drop(outbound);
        for call in aftermath.calls.iter().flatten() {
            call.signal();
        }
        if let Some(fault) = aftermath.fault {
            self.complaints.ring("rx", &fault);
        }
        if let Err(error) = noted {
            self.complaints.known_connections(&error);
        }
        if aftermath.has_more_packets || (has_events && std::thread::current().id() != self.worker_thread) {
            self.wake_worker();
        }
        outcome
    }

    /// Reads the state without moving packets.
    pub fn peek<R>(&self, read: impl FnOnce(&Outbound) -> R) -> R {
        read(&self.outbound.lock())
    }

    /// Moves events and arrivals to the worker.
    pub fn take_events(
        &self,
        events: &mut Vec<Event>,
        arrivals: &mut Vec<(ConnectionId, Box<dyn Endpoint>)>,
    ) {
        let mut outbound = self.outbound.lock();
        outbound.muxer.take_events(events);
        arrivals.append(&mut outbound.arrivals);
    }

    pub fn wake_worker(&self) {
        self.is_woken.store(true, Ordering::Release);
        // Fails only when the counter is full; then the worker is awake.
        let _ = self.notifier.write(1);
    }

    /// Whether the worker is to return to its loop.
    pub fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::Acquire)
    }

    pub fn take_wake(&self) {
        let _ = self.notifier.read();
        // In this order: while it says that the worker is woken, the notifier is set, or is about to be.
        self.is_woken.store(false, Ordering::Release);
    }

    /// Makes the worker read the tx ring without a kick.
    pub fn request_transmit_check(&self) {
        self.check_transmit.store(true, Ordering::Release);
        self.wake_worker();
    }

    /// Handles the position that QEMU sets for a ring. It passes back the stopped position when it resumes a paused
    /// guest. Another position means that the guest's driver restarted and has lost its connections. A first start at a
    /// position other than 0 means that a guest with connections is attached to a new device.
    pub fn base_set(&self, index: usize, stopped_at: Option<u16>, base: u16) {
        match stopped_at {
            Some(position) if position != base => {
                tracing::info!(cid = self.guest_cid, "the guest's vsock driver restarted");
                self.driver_restarted();
            }
            Some(_) if index == TRANSMIT => self.tell_started_again(),
            Some(_) => {}
            None if index == TRANSMIT && base != 0 => {
                self.enter(|outbound| outbound.owes_transport_reset = true);
            }
            None => {}
        }
    }

    /// The guest's driver has lost its connections, and the memory that it had is another's.
    pub fn driver_restarted(&self) {
        let new = DriverLife::new();
        std::mem::replace(&mut *self.life.lock(), new).end();
        self.enter(|outbound| outbound.muxer.close_all(CloseReason::GuestRestarted));
        self.tell_started_again();
    }

    fn tell_started_again(&self) {
        self.has_started_again.store(true, Ordering::Release);
        self.wake_worker();
    }

    /// Everything that was held back for a guest that QEMU had stopped is in its memory: it may be sent packets again.
    pub fn sends_again(&self) {
        self.enter(|outbound| outbound.holds_back = false);
    }

    /// A guest that QEMU had stopped goes on.
    pub fn driver_goes_on(&self) {
        self.life.lock().go_on();
    }

    /// QEMU has stopped the guest: nothing but the vrings writes its memory when this returns.
    pub fn driver_stopped(&self) {
        self.outbound.lock().holds_back = true;
        // Bytes that are still held back from an earlier stop wait for the next start.
        self.has_started_again.store(false, Ordering::Release);
        self.life.lock().stop();
    }

    /// Whether the guest has added receive buffers for packets that wait for them.
    pub fn has_refilled(&self) -> bool {
        let outbound = self.outbound.lock();
        outbound.starving && self.rings[RECEIVE].open().is_some_and(|mut ring| ring.available() > 0)
    }

    /// Whether QEMU has not stopped the guest. It stops one between two turns of the worker.
    pub fn driver_runs(&self) -> bool {
        self.life.lock().runs()
    }

    /// Guest memory of the driver's current life.
    pub fn guest_memory(&self) -> GuestMemory {
        GuestMemory::new(self.table.clone(), self.life.lock().clone())
    }

    /// Records that the calling thread answers QEMU's requests.
    pub fn note_request_thread(&self) {
        let _ = self.request_thread.set(std::thread::current().id());
    }

    /// Whether the calling thread may be inside a call to services or endpoints of this session.
    pub fn is_own_thread(&self) -> bool {
        let id = std::thread::current().id();
        id == self.worker_thread || self.request_thread.get() == Some(&id)
    }

    /// Ends the session after QEMU disconnected: no ring, memory or connection from here on. Endpoints are closed
    /// later.
    pub fn end(&self) {
        self.rings.iter().for_each(Ring::release);
        let mut outbound = self.outbound.lock();
        outbound.alive = false;
        outbound.muxer.close_all(CloseReason::Disconnected);
        drop(outbound);
        self.life.lock().end();
        memory::replace(&self.table, GuestMemoryMmap::new());
    }
}

impl Outbound {
    /// Whether the worker has events or arrivals to take.
    pub fn has_events(&self) -> bool {
        self.muxer.has_events() || !self.arrivals.is_empty()
    }

    /// Writes changed connections to the file of known connections. The writes are short and go to the page cache.
    /// Returns the first error; the other changes are written all the same.
    fn note_changes(&mut self) -> io::Result<()> {
        self.muxer.take_changes(&mut self.changes);
        if !self.alive {
            // The guest is sent nothing more, so what it does not know yet is for the next session.
            self.changes.clear();
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        let (mut known, mut noted) = (self.known.lock(), Ok(()));
        for change in self.changes.drain(..) {
            noted = noted.and(known.change(change));
        }
        noted
    }

    /// Moves packets from the muxer into the rx ring until one of them runs out.
    fn pump(&mut self, rings: &[Ring; QUEUES]) -> Aftermath {
        let mut aftermath = Aftermath::default();
        if self.holds_back {
            return aftermath;
        }
        if self.owes_transport_reset {
            self.send_transport_reset(&rings[EVENT], &mut aftermath);
        }
        if self.starving || self.muxer.has_packet() {
            self.fill(&rings[RECEIVE], &mut aftermath);
        }
        aftermath
    }

    fn fill(&mut self, ring: &Ring, aftermath: &mut Aftermath) {
        let Some(mut ring) = ring.open() else {
            self.starving = true;
            return;
        };
        let (mut taken, mut bytes, mut starving) = (0, 0, false);
        // One more than are available, to find out whether more were added.
        for _ in 0..=ring.available().min(BUFFERS_PER_PASS_MAX) {
            if !self.muxer.has_packet() || bytes >= BYTES_PER_PASS_MAX {
                break;
            }
            match ring.take_buffer(HEADER_BYTES + 1, &mut self.segments) {
                Some(Ok(buffer)) => {
                    self.payload.clear();
                    let header = self.muxer.next_packet(buffer.size - HEADER_BYTES, &mut self.payload);
                    let encoded = header.map(|header| header.encode());
                    let head = encoded.as_ref().map_or(&[][..], |bytes| &bytes[..]);
                    if let Err(fault) = ring.fill_buffer(buffer, &self.segments, [head, &self.payload]) {
                        aftermath.fault = Some(fault);
                    }
                    taken += 1;
                    bytes += head.len() + self.payload.len();
                }
                Some(Err(fault)) => {
                    aftermath.fault = Some(fault);
                    taken += 1;
                }
                None if ring.ask_for_kick() => {}
                None => {
                    starving = true;
                    break;
                }
            }
        }
        // Kicks for refilled buffers are needed only while packets wait for them.
        if self.starving && !starving {
            ring.refuse_kicks();
        }
        self.starving = starving;
        aftermath.has_more_packets = !starving && self.muxer.has_packet();
        if taken > 0 {
            aftermath.calls[0] = ring.call_if_wanted();
            self.signals += u64::from(aftermath.calls[0].is_some());
        }
    }

    fn send_transport_reset(&mut self, ring: &Ring, aftermath: &mut Aftermath) {
        let Some(mut ring) = ring.open() else { return };
        let mut buffer = ring.take_buffer(EVENT_TRANSPORT_RESET.len(), &mut self.segments);
        if buffer.is_none() && ring.ask_for_kick() {
            buffer = ring.take_buffer(EVENT_TRANSPORT_RESET.len(), &mut self.segments);
        }
        if let Some(Ok(buffer)) = buffer {
            self.owes_transport_reset = false;
            aftermath.fault = ring.fill_buffer(buffer, &self.segments, [&EVENT_TRANSPORT_RESET, &[]]).err();
            aftermath.calls[1] = ring.call_if_wanted();
        }
    }
}
