//! The rings at which a worker looks by itself: those that were lately busy.
//!
//! ```text
//!   at rest: the guest sends a packet  ──▶  busy: looked at between turns, and for a while before the worker sleeps
//!                  ▲                                             │
//!                  └────────────── the worker sleeps ────────────┘
//! ```
//! So the worker of a guest at rest does nothing, and one that is awake needs no packets. Looks that take long may take
//! half of the time at most ([`LookTime`]): a guest that publishes a byte every 100 us would keep its worker looking for
//! ever, and so would a ring at rest beside packets.

use std::time::{Duration, Instant};

use frame_ring::Patience;

use crate::backend::TRANSMIT;
use crate::limits::{BUSY_RINGS_MAX, LOOK_FREE, LOOK_MAX, LOOK_NS_SAVED_MAX, LOOK_SHARE};
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
    look_time: LookTime,
}

/// The time that looks may still take.
struct LookTime {
    /// Below 0 once a look took longer than that.
    left_ns: i64,
    /// When it was last refilled.
    at: Instant,
}

impl Default for LookTime {
    fn default() -> Self {
        LookTime { left_ns: LOOK_NS_SAVED_MAX, at: Instant::now() }
    }
}

impl LookTime {
    /// Whether there is some at this time.
    fn has_some(&mut self, now: Instant) -> bool {
        let passed_ns = i64::try_from(now.duration_since(self.at).as_nanos()).unwrap_or(i64::MAX);
        self.left_ns = self.left_ns.saturating_add(passed_ns / LOOK_SHARE).min(LOOK_NS_SAVED_MAX);
        self.at = now;
        self.left_ns > 0
    }

    /// A look took so long.
    fn spend(&mut self, took: Duration) {
        if took > LOOK_FREE {
            self.left_ns = self.left_ns.saturating_sub(took.as_nanos() as i64);
        }
    }
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
        let began = Instant::now();
        if self.busy_rings.look_time.has_some(began) && self.busy_rings.patience.looks() {
            let has_work = self.look_until(began + LOOK_MAX);
            self.busy_rings.look_time.spend(began.elapsed());
            if has_work {
                return true;
            }
        }
        self.rest_rings();
        // Endpoints may have closed connections meanwhile.
        self.has_waiting() || self.session.peek(Outbound::has_events)
    }

    /// Looks at busy rings, and at what else is to be done. False if there was nothing until `end`.
    fn look_until(&mut self, end: Instant) -> bool {
        let looks = (LOOKS_PER_CLOCK / self.busy_rings.connections.len().max(1) as u32).max(1);
        while Instant::now() < end {
            for _ in 0..looks {
                self.look_at_rings();
                if self.has_waiting() {
                    self.busy_rings.patience.looked(true);
                    return true;
                }
                std::hint::spin_loop();
            }
            // No miss: the kick of a ring that was at rest is a packet as well.
            if self.session.is_woken() || self.has_packets() || self.session.has_refilled() {
                return true;
            }
        }
        self.busy_rings.patience.looked(false);
        false
    }

    /// Whether the guest has put packets into the tx ring.
    pub fn has_packets(&self) -> bool {
        self.session.rings[TRANSMIT].open().is_some_and(|mut ring| ring.available() > 0)
    }

    /// Lets all busy rings rest. One that has something stays busy, and its endpoint is queued.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a second, in ms, that looks take if each takes `look` and the next may begin `pause` later.
    fn looked_ms(look: Duration, pause_us: u64) -> u128 {
        let mut time = LookTime::default();
        let (mut now, mut looked) = (time.at, Duration::ZERO);
        let end = now + Duration::from_secs(1);
        while now < end {
            if time.has_some(now) {
                time.spend(look);
                now += look;
                looked += look;
            }
            now += Duration::from_micros(pause_us);
        }
        looked.as_millis()
    }

    #[test]
    fn long_looks_take_half_of_the_time_and_short_ones_all_of_it() {
        let most_ms = 500 + 2 * LOOK_NS_SAVED_MAX as u128 / 1_000_000;
        let long = Duration::from_micros(100);
        let (takes, after_pauses) = (looked_ms(long, 1), looked_ms(long, 300));
        assert!((480..=most_ms).contains(&takes), "{takes} ms of a second");
        assert!(looked_ms(LOOK_MAX, 1) <= most_ms);
        assert!(looked_ms(LOOK_FREE, 1) > 900);
        assert!(after_pauses > 240, "{after_pauses} ms: looks with pauses are never refused");
    }
}
