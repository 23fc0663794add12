//! One QEMU, from its connect to its end: the muxer and the rings, shared between the device's thread and whoever
//! sends.
//!
//! ```text
//!   guest ──tx ring──▶ device thread ──▶ muxer ──▶ Endpoint::received      (no lock held)
//!   guest ◀──rx ring── pump ◀── muxer ◀── Connection::send                 (any thread, no hop)
//! ```
//!
//! Two locks, never held together: `transmit` guards the tx ring, `outbound` guards the muxer and the rx ring, which
//! belong together because the order of packets in the ring is the muxer's order. Neither is held across a call
//! into an endpoint, a write to an eventfd or a line of log.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use crate::complaints::Complaints;
use crate::limits::QUEUE_SIZE_MAX;
use crate::memory::MemoryTable;
use crate::muxer::{ConnectionId, Event, Muxer};
use crate::packet::HEADER_BYTES;
use crate::queues::{Call, QueueError, Ring};
use crate::services::{CloseReason, Endpoint};

/// What the guest's identifier of the only transport event is (`VIRTIO_VSOCK_EVENT_TRANSPORT_RESET`).
const EVENT_TRANSPORT_RESET: [u8; 4] = 0u32.to_le_bytes();

/// See the module.
pub(crate) struct Session {
    pub table: MemoryTable,
    pub transmit: Mutex<Ring>,
    outbound: Mutex<Outbound>,
    pub complaints: Complaints,
    device_thread: ThreadId,
    wake: Arc<EventFd>,
    pub kicks: AtomicU64,
    /// QEMU has sent a memory table, and services know of it.
    pub has_memory: AtomicBool,
}

/// Everything on the way to the guest.
pub(crate) struct Outbound {
    pub muxer: Muxer,
    pub receive: Ring,
    pub event: Ring,
    /// Endpoints of host-initiated connections on their way to the device's thread.
    pub arrivals: Vec<(ConnectionId, Box<dyn Endpoint>)>,
    /// The guest must be told that its connections are gone, once there is an event ring.
    pub owes_transport_reset: bool,
    /// QEMU is there.
    pub alive: bool,
    pub signals: u64,
    starving: bool,
    payload: Vec<u8>,
}

/// What is left to do once the lock is released.
#[derive(Default)]
struct Aftermath {
    calls: [Option<Call>; 2],
    fault: Option<QueueError>,
}

impl Session {
    /// A session of the calling thread, which becomes the device's thread for it.
    pub fn new(guest_cid: u64, wake: Arc<EventFd>) -> Self {
        let table = MemoryTable::new(GuestMemoryMmap::new());
        Self {
            transmit: Mutex::new(Ring::new(table.clone())),
            outbound: Mutex::new(Outbound {
                muxer: Muxer::new(guest_cid),
                receive: Ring::new(table.clone()),
                event: Ring::new(table.clone()),
                arrivals: Vec::new(),
                owes_transport_reset: false,
                alive: true,
                signals: 0,
                starving: false,
                payload: Vec::new(),
            }),
            complaints: Complaints::new(guest_cid),
            device_thread: std::thread::current().id(),
            wake,
            kicks: AtomicU64::new(0),
            has_memory: AtomicBool::new(false),
            table,
        }
    }

    /// Runs `change` on the muxer, then moves what can be moved into the rx ring and interrupts the guest if it
    /// wants that. Events wait for the device's thread, which is woken if there are any and this is another thread.
    pub fn enter<R>(&self, change: impl FnOnce(&mut Outbound) -> R) -> R {
        let mut outbound = lock(&self.outbound);
        let outcome = change(&mut outbound);
        let aftermath = outbound.pump();
        let has_events = outbound.muxer.has_events() || !outbound.arrivals.is_empty();
        drop(outbound);
        for call in aftermath.calls.iter().flatten() {
            call.signal();
        }
        if let Some(fault) = aftermath.fault {
            self.complaints.ring("rx", &fault);
        }
        if has_events && std::thread::current().id() != self.device_thread {
            // Fails only when the counter is full, and then the thread is awake.
            let _ = self.wake.write(1);
        }
        outcome
    }

    /// Looks without moving anything.
    pub fn peek<R>(&self, look: impl FnOnce(&Outbound) -> R) -> R {
        look(&lock(&self.outbound))
    }

    /// Moves events and arrivals to the device's thread.
    pub fn take_news(&self, events: &mut Vec<Event>, arrivals: &mut Vec<(ConnectionId, Box<dyn Endpoint>)>) {
        let mut outbound = lock(&self.outbound);
        outbound.muxer.take_events(events);
        arrivals.append(&mut outbound.arrivals);
    }

    /// QEMU went away: no ring, no memory, no connection from here on. Endpoints still have to be told.
    pub fn end(&self) {
        lock(&self.transmit).set_ready(false);
        let mut outbound = lock(&self.outbound);
        outbound.alive = false;
        outbound.receive.set_ready(false);
        outbound.event.set_ready(false);
        outbound.receive.set_call(None);
        outbound.event.set_call(None);
        outbound.muxer.close_all(CloseReason::Disconnected);
        drop(outbound);
        self.table.lock().unwrap_or_else(PoisonError::into_inner).replace(GuestMemoryMmap::new());
    }
}

impl Outbound {
    /// Moves packets from the muxer into the rx ring until one of them runs out.
    fn pump(&mut self) -> Aftermath {
        let mut aftermath = Aftermath::default();
        self.send_transport_reset(&mut aftermath);
        let (mut moved, mut bad, mut starving) = (0, 0, false);
        while self.muxer.has_packet() {
            match self.receive.take_buffer(HEADER_BYTES + 1) {
                Some(Ok(buffer)) => {
                    self.payload.clear();
                    let header = self.muxer.next_packet(buffer.size - HEADER_BYTES, &mut self.payload);
                    let encoded = header.map(|header| header.encode());
                    let head = encoded.as_ref().map_or(&[][..], |bytes| &bytes[..]);
                    if let Err(fault) = self.receive.fill_buffer(buffer, [head, &self.payload]) {
                        aftermath.fault = Some(fault);
                    }
                    moved += 1;
                }
                Some(Err(fault)) => {
                    aftermath.fault = Some(fault);
                    bad += 1;
                    // A guest that refills its ring with rubbish must not hold the sender here.
                    if bad > QUEUE_SIZE_MAX {
                        break;
                    }
                }
                None if self.receive.ask_for_kick() => {}
                None => {
                    starving = true;
                    break;
                }
            }
        }
        // Refilled buffers are of interest only while packets wait for them.
        if self.starving && !starving {
            self.receive.refuse_kicks();
        }
        self.starving = starving;
        if moved + bad > 0 {
            aftermath.calls[0] = self.receive.call_if_wanted();
            self.signals += u64::from(aftermath.calls[0].is_some());
        }
        aftermath
    }

    fn send_transport_reset(&mut self, aftermath: &mut Aftermath) {
        if !self.owes_transport_reset {
            return;
        }
        let mut buffer = self.event.take_buffer(EVENT_TRANSPORT_RESET.len());
        if buffer.is_none() && self.event.ask_for_kick() {
            buffer = self.event.take_buffer(EVENT_TRANSPORT_RESET.len());
        }
        if let Some(Ok(buffer)) = buffer {
            self.owes_transport_reset = false;
            aftermath.fault = self.event.fill_buffer(buffer, [&EVENT_TRANSPORT_RESET, &[]]).err();
            aftermath.calls[1] = self.event.call_if_wanted();
        }
    }
}

/// A panic elsewhere is a bug that is reported where it happened; the data behind these locks is whole between calls.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
