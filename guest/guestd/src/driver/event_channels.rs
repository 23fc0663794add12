//! Event channels: events of processes that the host sets by a stream to each of them.
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
use crate::ring::EventRing;

/// epoll's names of event channels have this bit.
const EVENT_CHANNEL: u64 = 1 << 63;
/// Bytes of one event channel before others have their turn.
const BYTES_PER_TURN_MAX: usize = 256;

struct EventChannel {
    ring: EventRing,
    /// Bytes so far.
    received: u64,
}

/// A client that waits until its event channels have had so many bytes each.
struct Draining {
    client: ClientId,
    process: u32,
    wanted: Vec<(u64, u64)>,
}

/// All of them, by process and event.
#[derive(Default)]
pub(super) struct EventChannels {
    event_channels: BTreeMap<(u32, u64), EventChannel>,
    by_key: BTreeMap<u64, (u32, u64)>,
    last_key: u64,
    settling: Vec<Draining>,
}

/// Whether an event of epoll is for an event channel.
pub(super) fn is_event_channel(key: u64) -> bool {
    key & EVENT_CHANNEL != 0
}

impl EventChannels {
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
            return Err(format!("cannot say whose event_channel it is: {said:?}"));
        }
        let mut ring =
            EventRing::new(stream, event.as_fd()).map_err(|error| format!("is it an eventfd? {error}"))?;
        self.last_key += 1;
        let key = EVENT_CHANNEL | self.last_key;
        epoll::add(epoll, ring.stream(), EventData::new_u64(key), EventFlags::IN)
            .map_err(|error| format!("cannot wait for it: {error}"))?;
        ring.arm().map_err(|error| format!("io_uring does not take it: {error}"))?;
        self.by_key.insert(key, name);
        self.event_channels.insert(name, EventChannel { ring, received: 0 });
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
        let Some(event_channel) = self.event_channels.get_mut(&name) else { return false };
        let mut bytes = [0; BYTES_PER_TURN_MAX];
        let failed = match recv(event_channel.ring.stream(), &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => None,
            Ok((count, _)) => match event_channel.ring.acknowledge(count) {
                Ok(()) => {
                    event_channel.received += count as u64;
                    return true;
                }
                Err(error) => Some(error.to_string()),
            },
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(error) => Some(error.to_string()),
        };
        // The host sends its wakes by the process's stream once it sees the end of this one.
        if let Some(error) = failed {
            say(&format!("an event of process {} has no event_channel any more: {error}", name.0));
        }
        self.close(epoll, name);
        false
    }

    /// Nothing sets the event from here on.
    pub(super) fn close(&mut self, epoll: impl AsFd, name: (u32, u64)) {
        if let Some(event_channel) = self.event_channels.remove(&name) {
            let _ = epoll::delete(epoll, event_channel.ring.stream());
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
        self.event_channels.range((process, 0)..=(process, u64::MAX)).map(|(name, _)| *name).collect()
    }

    /// A client waits until the event channels of its process have had so many bytes each. Who waits no longer.
    pub(super) fn drain(
        &mut self,
        epoll: impl AsFd,
        client: ClientId,
        process: u32,
        wanted: Vec<(u64, u64)>,
    ) -> Vec<(ClientId, u32)> {
        self.settling.push(Draining { client, process, wanted });
        for name in self.of(process) {
            while self.turn(epoll.as_fd(), name) {}
        }
        self.settled()
    }

    fn settled(&mut self) -> Vec<(ClientId, u32)> {
        let EventChannels { event_channels, settling, .. } = self;
        let mut over = Vec::new();
        settling.retain(|waiting| {
            let is_there = |&(event, wanted): &(u64, u64)| {
                let event_channel = event_channels.get(&(waiting.process, event));
                // One that has ended brings nothing more.
                event_channel.is_none_or(|event_channel| event_channel.received >= wanted)
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
