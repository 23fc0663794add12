//! Rings of shared memory that carry the frames of a session, beside its stream.
//!
//! Each side has an *area*, which it alone writes and the other side only reads. An area has the bytes of the ring from
//! this side, and three words:
//!
//! ```text
//!   byte 0      published   bytes that this side has written to its own ring, in all
//!        64     taken       bytes that this side has read from the other side's ring, in all
//!        128    rest        odd: this side sleeps on the stream and wants a kick; it changes with each sleep
//!        4096   the ring, RING_BYTES
//! ```
//! So each ring has one writer and one reader, and neither trusts the other: a [`Receiver`] copies bytes once, before
//! anybody looks at them, and both check every number that they read.
//!
//! A side that is about to sleep says so, looks once more, and sleeps. A side that has published looks whether the other
//! one sleeps, and if so *kicks* it, once for each sleep: an empty frame on the stream. The two fences between write and
//! look ([`Area::fence`]) exclude that both look too early; `tests.rs` lets loom try every order.
#![deny(unsafe_code)]

mod mapped;
mod outlet;
mod patience;

pub use mapped::{MappedArea, OwnMappedArea};
pub use outlet::{KICK, Outlet, Way};
pub use patience::{LOOK_NS_MAX, Patience, look_until};

/// Bytes of the words of an area, before its ring: a page.
pub const HEAD_BYTES: usize = 4096;
/// Bytes of one ring; a power of two.
pub const RING_BYTES: usize = 32 * 1024;
/// Bytes of one side's area.
pub const AREA_BYTES: usize = HEAD_BYTES + RING_BYTES;

const _: () = assert!(RING_BYTES.is_power_of_two());

/// A word of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    Published,
    Taken,
    Rest,
}

impl Word {
    /// Its place in the area: each has a cache line of its own.
    pub const fn offset(self) -> usize {
        match self {
            Word::Published => 0,
            Word::Taken => 64,
            Word::Rest => 128,
        }
    }
}

/// An area as one of the two sides accesses it. Memory that is gone reads as zero.
pub trait Area {
    /// Loads a word, with acquire ordering.
    fn load(&self, word: Word) -> u64;

    /// Copies bytes of the ring from `at` on; they do not go beyond its end.
    fn read(&self, at: usize, to: &mut Vec<u8>, count: usize);

    /// Orders everything before it against everything after it, in all threads that make such fences.
    fn fence(&self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// This side's own area.
pub trait OwnArea: Area {
    /// Stores a word, with release ordering.
    fn store(&self, word: Word, value: u64);

    /// Copies bytes into the ring from `at` on; they do not go beyond its end.
    fn write(&self, at: usize, bytes: &[u8]);
}

/// The other side has written a number that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadIndex {
    pub word: Word,
    pub value: u64,
    /// What this side has published, or taken.
    pub own: u64,
}

impl std::fmt::Display for BadIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BadIndex { word, value, own } = self;
        let (what, of) = match word {
            Word::Published => ("published", "taken"),
            Word::Taken => ("taken", "published"),
            Word::Rest => ("rest", "rest"),
        };
        write!(f, "the ring's index `{what}` is {value}, with {own} bytes {of} and {RING_BYTES} in the ring")
    }
}

impl std::error::Error for BadIndex {}

/// The writing end of the ring from this side.
#[derive(Debug)]
pub struct Sender<O, P> {
    own: O,
    peer: P,
    published: u64,
    /// The rest of the peer for which it was kicked.
    kicked: u64,
}

impl<O: OwnArea, P: Area> Sender<O, P> {
    /// An end that has sent nothing. Resets its word.
    pub fn new(own: O, peer: P) -> Self {
        own.store(Word::Published, 0);
        Sender { own, peer, published: 0, kicked: 0 }
    }

    /// Bytes that fit now.
    pub fn room(&self) -> Result<usize, BadIndex> {
        let taken = self.peer.load(Word::Taken);
        match self.published.checked_sub(taken) {
            Some(pending) if pending <= RING_BYTES as u64 => Ok(RING_BYTES - pending as usize),
            _ => Err(BadIndex { word: Word::Taken, value: taken, own: self.published }),
        }
    }

    /// Publishes bytes for which there is room.
    pub fn publish(&mut self, bytes: &[u8]) {
        let at = self.published as usize % RING_BYTES;
        let (head, tail) = bytes.split_at(bytes.len().min(RING_BYTES - at));
        self.own.write(at, head);
        if !tail.is_empty() {
            self.own.write(0, tail);
        }
        self.published += bytes.len() as u64;
        self.own.store(Word::Published, self.published);
    }

    /// Whether the peer sleeps and has not been kicked for that: the caller kicks it, after it has published.
    pub fn must_kick(&mut self) -> bool {
        self.own.fence();
        let rest = self.peer.load(Word::Rest);
        let must = rest % 2 == 1 && rest != self.kicked;
        if must {
            self.kicked = rest;
        }
        must
    }
}

/// The reading end of the ring from the other side.
#[derive(Debug)]
pub struct Receiver<O, P> {
    own: O,
    peer: P,
    taken: u64,
    rest: u64,
}

impl<O: OwnArea, P: Area> Receiver<O, P> {
    /// An end that has received nothing, awake. Resets its words.
    pub fn new(own: O, peer: P) -> Self {
        own.store(Word::Taken, 0);
        own.store(Word::Rest, 0);
        Receiver { own, peer, taken: 0, rest: 0 }
    }

    /// Whether nothing is published that is not taken.
    pub fn is_empty(&self) -> bool {
        self.peer.load(Word::Published) == self.taken
    }

    /// The area that it reads, and the bytes taken from it in all: nothing is published that is not taken if the area's
    /// `published` is equal.
    pub fn peer(&self) -> &P {
        &self.peer
    }

    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes at most `most` published bytes and appends them to `to`. Returns how many.
    pub fn take(&mut self, to: &mut Vec<u8>, most: usize) -> Result<usize, BadIndex> {
        let published = self.peer.load(Word::Published);
        let pending = match published.checked_sub(self.taken) {
            Some(pending) if pending <= RING_BYTES as u64 => pending as usize,
            _ => return Err(BadIndex { word: Word::Published, value: published, own: self.taken }),
        };
        let count = pending.min(most);
        if count > 0 {
            let at = self.taken as usize % RING_BYTES;
            let head = count.min(RING_BYTES - at);
            self.peer.read(at, to, head);
            if head < count {
                self.peer.read(0, to, count - head);
            }
            self.taken += count as u64;
            self.own.store(Word::Taken, self.taken);
        }
        Ok(count)
    }

    /// Says that this side sleeps, anew each time: who has kicked it before kicks again. False if something is
    /// published: then it does not sleep.
    pub fn sleep(&mut self) -> bool {
        self.end();
        self.own.fence();
        let may_sleep = self.is_empty();
        if !may_sleep {
            self.wake();
        }
        may_sleep
    }

    /// Says that this side looks no more: the peer kicks whatever it publishes next.
    pub fn end(&mut self) {
        self.rest += 1 + self.rest % 2;
        self.own.store(Word::Rest, self.rest);
    }

    /// Says that this side is awake, and looks at the ring by itself.
    pub fn wake(&mut self) {
        if self.rest % 2 == 1 {
            self.rest += 1;
            self.own.store(Word::Rest, self.rest);
        }
    }
}

#[cfg(test)]
mod tests;
