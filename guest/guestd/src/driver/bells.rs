//! Bells: events of processes that the host sets by a stream to each of them.
//!
//! A byte of a stream is one signal. The kernel sets the event with the byte's arrival (`ring.rs`); what is done here
//! comes after it and is in nobody's way: to read the byte, and to be ready for the next.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::broker::ClientId;
use crate::console::say;
use crate::ring::Ring;

/// epoll's names of bells have this bit.
const BELL: u64 = 1 << 63;
/// Bytes of one bell before others have their turn.
const BYTES_PER_TURN_MAX: usize = 256;

struct Bell {
    ring: Ring,
    /// Bytes so far.
    received: u64,
}

/// A client that waits until its bells have had so many bytes each.
struct Settling {
    client: ClientId,
    process: u32,
    wanted: Vec<(u64, u64)>,
}

/// All of them, by process and event.
#[derive(Default)]
pub(super) struct Bells {
    bells: BTreeMap<(u32, u64), Bell>,
    by_key: BTreeMap<u64, (u32, u64)>,
    last_key: u64,
    settling: Vec<Settling>,
}

/// Whether an event of epoll is for a bell.
pub(super) fn is_bell(key: u64) -> bool {
    key & BELL != 0
}

impl Bells {
    /// Says who it is on a new stream to the host, which sets the event from here on.
    pub(super) fn open(
        &mut self,
        epoll: impl AsFd,
        name: (u32, u64),
        stream: OwnedFd,
        token: &[u8],
        event: &OwnedFd,
    ) -> Result<(), String> {
        let said = send(&stream, token, SendFlags::NOSIGNAL);
        if said != Ok(token.len()) {
            return Err(format!("cannot say whose bell it is: {said:?}"));
        }
        let mut ring =
            Ring::new(stream, event.as_fd()).map_err(|error| format!("is it an eventfd? {error}"))?;
        self.last_key += 1;
        let key = BELL | self.last_key;
        epoll::add(epoll, ring.stream(), EventData::new_u64(key), EventFlags::IN)
            .map_err(|error| format!("cannot wait for it: {error}"))?;
        ring.arm().map_err(|error| format!("io_uring does not take it: {error}"))?;
        self.by_key.insert(key, name);
        self.bells.insert(name, Bell { ring, received: 0 });
        Ok(())
    }

    /// Bytes have come, or the host has ended the stream.
    pub(super) fn ready(&mut self, epoll: impl AsFd, key: u64) -> Vec<(ClientId, u32)> {
        if let Some(name) = self.by_key.get(&key).copied() {
            self.turn(epoll, name);
        }
        self.settled()
    }

    /// True if there may be more.
    fn turn(&mut self, epoll: impl AsFd, name: (u32, u64)) -> bool {
        let Some(bell) = self.bells.get_mut(&name) else { return false };
        let mut bytes = [0; BYTES_PER_TURN_MAX];
        let failed = match recv(bell.ring.stream(), &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => None,
            Ok((count, _)) => match bell.ring.settle(count) {
                Ok(()) => {
                    bell.received += count as u64;
                    return true;
                }
                Err(error) => Some(error.to_string()),
            },
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(error) => Some(error.to_string()),
        };
        // The host sends its wakes by the process's stream once it sees the end of this one.
        if let Some(error) = failed {
            say(&format!("an event of process {} has no bell any more: {error}", name.0));
        }
        self.close(epoll, name);
        false
    }

    /// Nothing sets the event from here on.
    pub(super) fn close(&mut self, epoll: impl AsFd, name: (u32, u64)) {
        if let Some(bell) = self.bells.remove(&name) {
            let _ = epoll::delete(epoll, bell.ring.stream());
            self.by_key.retain(|_, other| *other != name);
        }
    }

    /// The process is at its end, or its host is.
    pub(super) fn close_all_of(&mut self, epoll: impl AsFd, process: u32) {
        for name in self.of(process) {
            self.close(epoll.as_fd(), name);
        }
        self.settling.retain(|waiting| waiting.process != process);
    }

    fn of(&self, process: u32) -> Vec<(u32, u64)> {
        self.bells.range((process, 0)..=(process, u64::MAX)).map(|(name, _)| *name).collect()
    }

    /// A client waits until the bells of its process have had so many bytes each. Who waits no longer.
    pub(super) fn settle(
        &mut self,
        epoll: impl AsFd,
        client: ClientId,
        process: u32,
        wanted: Vec<(u64, u64)>,
    ) -> Vec<(ClientId, u32)> {
        self.settling.push(Settling { client, process, wanted });
        for name in self.of(process) {
            while self.turn(epoll.as_fd(), name) {}
        }
        self.settled()
    }

    fn settled(&mut self) -> Vec<(ClientId, u32)> {
        let Bells { bells, settling, .. } = self;
        let mut over = Vec::new();
        settling.retain(|waiting| {
            let is_there = |&(event, wanted): &(u64, u64)| {
                let bell = bells.get(&(waiting.process, event));
                // One that has ended brings nothing more.
                bell.is_none_or(|bell| bell.received >= wanted)
            };
            let settled = waiting.wanted.iter().all(is_there);
            if settled {
                over.push((waiting.client, waiting.process));
            }
            !settled
        });
        over
    }
}
