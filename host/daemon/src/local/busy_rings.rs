//! The rings at which the thread looks by itself: those that were lately busy.
//!
//! ```text
//!   at rest: the process kicks  ── a kick ──▶  busy: looked at between turns, and for a while before the thread sleeps
//!                  ▲                                             │
//!                  └────────────── the thread sleeps ────────────┘
//! ```
//! So a daemon at rest does nothing, and one that is awake is sent nothing but bytes of memory.

use std::time::{Duration, Instant};

use frame_ring::{LOOK_NS_MAX, Patience};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{Loop, Source};
use crate::limits::BUSY_RINGS_MAX;

/// While rings are busy, epoll is asked this often, so that nobody waits for more than a few turns of theirs.
const POLL_INTERVAL: Duration = Duration::from_micros(20);
/// Looks at all busy rings between two looks at what epoll reports, while the thread has nothing else to do.
const LOOKS_PER_POLL: u32 = 32;

/// Keys of the streams whose rings are busy.
pub(super) struct BusyRings {
    keys: Vec<u64>,
    patience: Patience,
    polled: Instant,
}

impl BusyRings {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Begins a pass. True if it is time to ask epoll.
    pub fn begin_pass(&mut self) -> bool {
        if self.keys.is_empty() {
            return true;
        }
        let now = Instant::now();
        let is_due = now.duration_since(self.polled) >= POLL_INTERVAL;
        if is_due {
            self.polled = now;
        }
        is_due
    }
}

impl Default for BusyRings {
    fn default() -> Self {
        BusyRings { keys: Vec::new(), patience: Patience::default(), polled: Instant::now() }
    }
}

impl Loop {
    /// After a turn: the thread looks at this ring from here on. If it looks at too many, the process goes on to kick.
    pub(super) fn ring_is_busy(&mut self, key: u64) {
        let Loop { sources, busy_rings, turns, .. } = self;
        let Some(Source::Stream { vm, channel, .. }) = sources.get_mut(&key) else { return };
        let mut has_bytes = channel.ring_has_bytes();
        if !busy_rings.keys.contains(&key)
            && let Some(ring) = channel.ring()
        {
            if busy_rings.keys.len() < BUSY_RINGS_MAX {
                ring.wake();
                busy_rings.keys.push(key);
            } else {
                has_bytes |= !channel.rest_ring();
            }
        }
        if has_bytes {
            turns.join(*vm, key);
        }
    }

    /// Queues each stream whose ring has something.
    pub(super) fn look_at_rings(&mut self) {
        let Loop { sources, busy_rings, turns, .. } = self;
        busy_rings.keys.retain(|key| {
            let Some(Source::Stream { vm, channel, .. }) = sources.get(key) else { return false };
            if channel.ring_has_bytes() {
                turns.join(*vm, *key);
            }
            true
        });
    }

    /// Looks at busy rings for a while before the thread sleeps. True if there is something to do.
    pub(super) fn look_before_sleep(&mut self, events: &mut Vec<epoll::Event>) -> Result<bool, Errno> {
        if self.busy_rings.is_empty() || !self.busy_rings.patience.looks() {
            return Ok(false);
        }
        let began = Instant::now();
        loop {
            for _ in 0..LOOKS_PER_POLL {
                self.look_at_rings();
                if !self.turns.is_empty() {
                    self.busy_rings.patience.looked(true);
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            epoll::wait(&*self.epoll, spare_capacity(events), Some(&Timespec::default()))?;
            if !events.is_empty() {
                return Ok(true);
            }
            if began.elapsed().as_nanos() as u64 >= LOOK_NS_MAX {
                self.busy_rings.patience.looked(false);
                return Ok(false);
            }
        }
    }

    /// Lets all rings rest, before the thread sleeps. False if one has something: then it does not sleep.
    pub(super) fn rest_rings(&mut self) -> bool {
        let Loop { sources, busy_rings, turns, .. } = self;
        busy_rings.keys.retain(|key| {
            let Some(Source::Stream { vm, channel, .. }) = sources.get_mut(key) else { return false };
            let is_at_rest = channel.rest_ring();
            if !is_at_rest {
                turns.join(*vm, *key);
            }
            !is_at_rest
        });
        turns.is_empty()
    }
}
