//! The rings at which a worker looks by itself: those that were lately busy.
//!
//! ```text
//!   at rest: the guest sends a packet  ──▶  busy: looked at between turns, and for a while before the worker sleeps
//!                  ▲                                             │
//!                  └────────────── the worker sleeps ────────────┘
//! ```
//! So the worker of a guest at rest does nothing, and one that is awake needs no packets.

use std::time::Instant;

use frame_ring::Patience;

use crate::backend::TRANSMIT;
use crate::limits::{BUSY_RINGS_MAX, LOOK_NS_MAX};
use crate::muxer::ConnectionId;
use crate::session::Outbound;
use crate::worker::Worker;

/// Looks at busy rings between two looks at the tx ring and the clock.
const LOOKS_PER_CLOCK: u32 = 32;

/// Connections whose rings are busy.
#[derive(Default)]
pub(crate) struct BusyRings {
    connections: Vec<ConnectionId>,
    patience: Patience,
}

impl BusyRings {
    pub fn clear(&mut self) {
        self.connections.clear();
    }
}

impl Worker {
    /// After a call of an endpoint: the worker looks at its ring from here on. If it looks at too many, the guest goes
    /// on to send packets. True if the ring has something.
    pub(crate) fn ring_is_busy(&mut self, id: ConnectionId) -> bool {
        let Worker { endpoints, busy_rings: BusyRings { connections, .. }, .. } = self;
        let Some(served) = endpoints.get_mut(&id).filter(|served| served.endpoint.has_ring()) else {
            return false;
        };
        if connections.contains(&id) {
            return served.endpoint.look_at_ring();
        }
        if connections.len() >= BUSY_RINGS_MAX {
            return !served.endpoint.rest_ring();
        }
        connections.push(id);
        served.endpoint.wake_ring();
        served.endpoint.look_at_ring()
    }

    /// Queues each endpoint whose ring has something.
    pub(crate) fn look_at_rings(&mut self) {
        let Worker { endpoints, waiting, busy_rings: BusyRings { connections, .. }, .. } = self;
        connections.retain(|id| {
            let Some(served) = endpoints.get_mut(id).filter(|served| served.endpoint.has_ring()) else {
                return false;
            };
            if !served.waits && served.endpoint.look_at_ring() {
                served.queue(*id, waiting);
            }
            true
        });
    }

    pub fn has_busy_rings(&self) -> bool {
        !self.busy_rings.connections.is_empty()
    }

    /// Looks at busy rings for a while before the worker sleeps, and then lets them rest. True if there is something to
    /// do.
    pub fn look_before_sleep(&mut self) -> bool {
        if self.busy_rings.patience.looks() {
            let began = Instant::now();
            let looks = (LOOKS_PER_CLOCK / self.busy_rings.connections.len().max(1) as u32).max(1);
            while began.elapsed().as_nanos() < u128::from(LOOK_NS_MAX) {
                for _ in 0..looks {
                    self.look_at_rings();
                    if self.has_waiting() {
                        self.busy_rings.patience.looked(true);
                        return true;
                    }
                    std::hint::spin_loop();
                }
                // No miss: the kick of a ring that was at rest is a packet as well.
                if self.session.is_woken() || self.has_packets() {
                    return true;
                }
            }
            self.busy_rings.patience.looked(false);
        }
        self.rest_rings();
        // Endpoints may have closed connections meanwhile.
        self.has_waiting() || self.session.peek(Outbound::has_events)
    }

    /// Whether the guest has put packets into the tx ring.
    pub fn has_packets(&self) -> bool {
        self.session.rings[TRANSMIT].open().is_some_and(|mut ring| ring.available() > 0)
    }

    /// Lets all rings rest. One that has something stays busy, and its endpoint is queued.
    fn rest_rings(&mut self) {
        let Worker { endpoints, waiting, busy_rings: BusyRings { connections, .. }, .. } = self;
        connections.retain(|id| {
            let Some(served) = endpoints.get_mut(id).filter(|served| served.endpoint.has_ring()) else {
                return false;
            };
            if served.endpoint.rest_ring() {
                return false;
            }
            served.queue(*id, waiting);
            true
        });
    }
}
