//! The rings at which the thread looks by itself: those that were lately busy.
//!
//! ```text
//!   at rest: the process kicks  ── a kick ──▶  busy: looked at between turns, and for a while before the thread sleeps
//!                  ▲                                             │
//!                  └────────────── the thread sleeps ────────────┘
//! ```
//! So a daemon at rest does nothing, and one that is awake is sent nothing but bytes of memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use frame_ring::{LOOK_NS_MAX, Patience};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{Loop, Source};
use crate::limits::BUSY_RINGS_MAX;
use crate::peer::Peer;
use crate::rings::RingWatch;
use crate::round_robin::Owner;

/// While rings are busy, epoll is asked this often, so that nobody waits for more than a few turns of theirs.
const POLL_INTERVAL: Duration = Duration::from_micros(20);
/// Looks at all busy rings between two looks at what epoll reports, while the thread has nothing else to do.
const LOOKS_PER_POLL: u32 = 32;

/// A ring at which the thread looks, by the key of its stream.
struct BusyRing {
    key: u64,
    owner: Owner,
    /// As of the last turn of its stream.
    watch: RingWatch,
    /// Looks in a row that found nothing.
    idle_looks: u32,
}

/// A ring at which so many looks found nothing shortens no turns of others.
const IDLE_LOOKS_MAX: u32 = 256;

/// Which of the rings gives its place to one of `peer`, if there is no other place: that of the user with the most, at which
/// most looks found nothing. `None` if no user has two more than `peer`: else two users would take each other's places.
fn displaced(rings: impl Iterator<Item = (Peer, u32)> + Clone, peer: Peer) -> Option<usize> {
    let mut counts: BTreeMap<Peer, usize> = BTreeMap::new();
    rings.clone().for_each(|(of, _)| *counts.entry(of).or_default() += 1);
    let own = counts.get(&peer).copied().unwrap_or(0);
    let (most, _) =
        counts.into_iter().filter(|(_, count)| *count > own + 1).max_by_key(|(_, count)| *count)?;
    let of_most = rings.enumerate().filter(|(_, (of, _))| *of == most);
    of_most.max_by_key(|(_, (_, idle_looks))| *idle_looks).map(|(at, _)| at)
}

/// The rings that are busy. They are looked at often, so what a look needs is beside each other.
pub(super) struct BusyRings {
    rings: Vec<BusyRing>,
    patience: Patience,
    polled: Instant,
}

/// Whether the thread looks at a ring from here on.
enum Put {
    /// It did before.
    Updated,
    /// It does now, and no longer at the ring that gave its place.
    Added { displaced: Option<BusyRing> },
    /// It looks at too many.
    NoPlace,
}

impl BusyRings {
    /// Puts a ring among those that are looked at.
    fn put(&mut self, ring: BusyRing) -> Put {
        if let Some(known) = self.rings.iter_mut().find(|known| known.key == ring.key) {
            known.watch = ring.watch;
            return Put::Updated;
        }
        if self.rings.len() < BUSY_RINGS_MAX {
            self.rings.push(ring);
            return Put::Added { displaced: None };
        }
        let users = self.rings.iter().map(|ring| (ring.owner.1, ring.idle_looks));
        match displaced(users, ring.owner.1) {
            Some(at) => Put::Added { displaced: Some(std::mem::replace(&mut self.rings[at], ring)) },
            None => Put::NoPlace,
        }
    }

    /// Whether it is time to ask epoll.
    pub fn is_poll_due(&self) -> bool {
        self.rings.is_empty() || self.polled.elapsed() >= POLL_INTERVAL
    }

    /// Epoll was asked.
    pub fn polled(&mut self) {
        if !self.rings.is_empty() {
            self.polled = Instant::now();
        }
    }

    /// Whether the thread looks at rings before it sleeps: call it once for each sleep.
    pub fn looks(&mut self) -> bool {
        !self.rings.is_empty() && self.patience.looks()
    }

    /// The owner of each ring that had something lately.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.rings.iter().filter(|ring| ring.idle_looks < IDLE_LOOKS_MAX).map(|ring| ring.owner)
    }

    /// Forgets the ring of a stream that has ended.
    pub fn forget(&mut self, key: u64) {
        self.rings.retain(|ring| ring.key != key);
    }
}

impl Default for BusyRings {
    fn default() -> Self {
        BusyRings { rings: Vec::new(), patience: Patience::default(), polled: Instant::now() }
    }
}

impl Loop {
    /// After a turn: the thread looks at this ring from here on. If it looks at too many, and no other user has more of
    /// them, the process goes on to kick.
    pub(super) fn ring_is_busy(&mut self, key: u64) {
        let Loop { sources, busy_rings, turns, .. } = self;
        let Some(Source::Stream { vm, stream, channel, .. }) = sources.get_mut(&key) else { return };
        let (owner, Some(watch)) = ((*vm, stream.peer()), channel.watch_ring()) else { return };
        let mut has_bytes = false;
        match busy_rings.put(BusyRing { key, owner, watch, idle_looks: 0 }) {
            // The thread looks at it before it sleeps.
            Put::Updated => {}
            Put::NoPlace => has_bytes = !channel.rest_ring(),
            Put::Added { displaced } => {
                if let Some(ring) = channel.ring() {
                    ring.wake();
                }
                has_bytes = channel.ring_has_bytes();
                if let Some(BusyRing { key, owner, .. }) = displaced
                    && let Some(Source::Stream { channel, .. }) = sources.get_mut(&key)
                    && !channel.rest_ring()
                {
                    turns.join(owner, key);
                }
            }
        }
        if has_bytes {
            turns.join(owner, key);
        }
    }

    /// Queues each stream whose ring has something.
    pub(super) fn look_at_rings(&mut self) {
        for ring in &mut self.busy_rings.rings {
            ring.idle_looks = ring.idle_looks.saturating_add(1);
            if ring.watch.has_bytes() {
                ring.idle_looks = 0;
                self.turns.join(ring.owner, ring.key);
            }
        }
    }

    /// Looks at busy rings for a while before the thread sleeps. True if there is something to do.
    pub(super) fn look_before_sleep(&mut self, events: &mut Vec<epoll::Event>) -> Result<bool, Errno> {
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
        busy_rings.rings.retain(|BusyRing { key, owner, .. }| {
            let Some(Source::Stream { channel, .. }) = sources.get_mut(key) else { return false };
            let is_at_rest = channel.rest_ring();
            if !is_at_rest {
                turns.join(*owner, *key);
            }
            !is_at_rest
        });
        turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_many_busy_rings_gives_places_to_users_with_fewer() {
        let mut rings: Vec<(Peer, u32)> =
            (0..BUSY_RINGS_MAX as u32).map(|idle| (Peer::Uid(1), idle)).collect();
        assert_eq!(displaced(rings.iter().copied(), Peer::Uid(1)), None, "its own rings stay");
        let mut taken = 0;
        for user in [2, 3, 2, 3].into_iter().cycle() {
            let Some(at) = displaced(rings.iter().copied(), Peer::Uid(user)) else { break };
            assert_eq!(rings[at].0, Peer::Uid(1));
            rings[at] = (Peer::Uid(user), 0);
            taken += 1;
        }
        assert_eq!(taken, 42, "each has a third");
        let most_idle =
            |peer| displaced([(Peer::Uid(1), 3), (Peer::Uid(1), 9), (Peer::Uid(1), 0)].into_iter(), peer);
        assert_eq!(most_idle(Peer::Uid(4)), Some(1));
        for user in 1..=3 {
            assert_eq!(displaced(rings.iter().copied(), Peer::Uid(user)), None);
        }
    }
}
