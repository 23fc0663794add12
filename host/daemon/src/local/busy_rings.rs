//! The rings at which the thread looks by itself: those that were lately busy.
//!
//! ```text
//!   at rest: the process kicks  ── a kick ──▶  busy: looked at between turns, and for a while before the thread sleeps
//!                  ▲                                             │
//!                  └────────────── the thread sleeps ────────────┘
//! ```
//! So a daemon at rest does nothing, and one that is awake is sent nothing but bytes of memory.

use std::time::Instant;

use frame_ring::{LOOK_NS_MAX, Patience};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{Loop, Source};
use crate::limits::BUSY_RINGS_MAX;

/// Passes over waiting streams between two looks at what epoll reports.
const PASSES_PER_POLL: u32 = 16;
/// Looks at all busy rings between two looks at what epoll reports, while the thread has nothing else to do.
const LOOKS_PER_POLL: u32 = 32;

/// Keys of the streams whose rings are busy.
#[derive(Default)]
pub(super) struct BusyRings {
    keys: Vec<u64>,
    patience: Patience,
    passes: u32,
}

impl BusyRings {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Begins a pass. True if it is time to look at what epoll reports, and at all busy rings.
    pub fn begin_pass(&mut self) -> bool {
        self.passes = self.passes.wrapping_add(1);
        self.keys.is_empty() || self.passes.is_multiple_of(PASSES_PER_POLL)
    }
}

impl Loop {
    /// After a turn: the thread looks at this ring from here on. If it looks at too many, the process goes on to kick.
    pub(super) fn ring_is_busy(&mut self, key: u64) {
        let Some(Source::Stream { vm, channel, .. }) = self.sources.get_mut(&key) else { return };
        let vm = *vm;
        let Some(ring) = channel.ring() else { return };
        if self.busy_rings.keys.contains(&key) {
            if !ring.is_empty() {
                self.turns.join(vm, key);
            }
            return;
        }
        ring.wake();
        if self.busy_rings.keys.len() < BUSY_RINGS_MAX {
            self.busy_rings.keys.push(key);
        }
        if (self.busy_rings.keys.len() == BUSY_RINGS_MAX && !ring.sleep()) || !ring.is_empty() {
            self.turns.join(vm, key);
        }
    }

    /// Queues each stream whose ring has something.
    pub(super) fn look_at_rings(&mut self) {
        let Loop { sources, busy_rings, turns, .. } = self;
        busy_rings.keys.retain(|key| {
            let Some(Source::Stream { vm, channel, .. }) = sources.get_mut(key) else { return false };
            let Some(ring) = channel.ring() else { return false };
            if !ring.is_empty() {
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
                    self.busy_rings.patience.found();
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            epoll::wait(&*self.epoll, spare_capacity(events), Some(&Timespec::default()))?;
            if !events.is_empty() {
                return Ok(true);
            }
            if began.elapsed().as_nanos() as u64 >= LOOK_NS_MAX {
                self.busy_rings.patience.missed();
                return Ok(false);
            }
        }
    }

    /// Lets all rings rest, before the thread sleeps. False if one has something: then it does not sleep.
    pub(super) fn rest_rings(&mut self) -> bool {
        let Loop { sources, busy_rings, turns, .. } = self;
        busy_rings.keys.retain(|key| {
            let Some(Source::Stream { vm, channel, .. }) = sources.get_mut(key) else { return false };
            let is_at_rest = channel.ring().is_none_or(|ring| ring.sleep());
            if !is_at_rest {
                turns.join(*vm, *key);
            }
            !is_at_rest
        });
        turns.is_empty()
    }
}
