//! Event channels: each is a stream by which the host sets one event of a process.
//!
//! A byte of a stream is one signal. The kernel sets the event when the byte arrives (`ring.rs`). The work here follows
//! and delays no waiter: read the byte, and arm for the next.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::broker::ClientId;
use crate::console::say;
use crate::ring::EventRing;

/// epoll keys of event channels have this bit.
const EVENT_CHANNEL: u64 = 1 << 63;
/// Bytes read of one event channel before the others are served.
const BYTES_PER_TURN_MAX: usize = 256;

struct EventChannel {
    ring: EventRing,
    /// Bytes received so far.
    received: u64,
}

/// A client that waits until its event channels have received the given numbers of bytes.
struct Draining {
    client: ClientId,
    process: u32,
    expected: Vec<(u64, u64)>,
}

/// All event channels, by process and event.
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
    /// Sends the token on a new stream to the host, which sets the event from here on.
    pub(super) fn open(
        &mut self,
        epoll: impl AsFd,
        name: (u32, u64),
        stream: OwnedFd,
        token: &[u8],
        event: &OwnedFd,
    ) -> Result<(), String> {
        let sent = send(&stream, token, SendFlags::NOSIGNAL);
        if sent != Ok(token.len()) {
            return Err(format!("cannot send the event channel's token: {sent:?}"));
        }
        let mut ring =
            EventRing::new(stream, event.as_fd()).map_err(|error| format!("is it an eventfd? {error}"))?;
        self.last_key += 1;
        let key = EVENT_CHANNEL | self.last_key;
        epoll::add(epoll, ring.stream(), EventData::new_u64(key), EventFlags::IN)
            .map_err(|error| format!("cannot watch the event channel: {error}"))?;
        ring.arm().map_err(|error| format!("io_uring cannot poll the event channel: {error}"))?;
        self.by_key.insert(key, name);
        self.event_channels.insert(name, EventChannel { ring, received: 0 });
        Ok(())
    }

    /// Bytes have arrived, or the host has closed the stream.
    pub(super) fn ready(&mut self, epoll: impl AsFd, key: u64) -> Vec<(ClientId, u32)> {
        if let Some(name) = self.by_key.get(&key).copied() {
            self.turn(epoll, name);
        }
        self.settled()
    }

    /// Reads one event channel once. True if there may be more.
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
        // Once the host sees the end of this stream, it sends the wakes by the process's stream.
        if let Some(error) = failed {
            say(&format!("an event channel of process {} is closed: {error}", name.0));
        }
        self.close(epoll, name);
        false
    }

    /// Closes the event channel: the event is no longer set.
    pub(super) fn close(&mut self, epoll: impl AsFd, name: (u32, u64)) {
        if let Some(event_channel) = self.event_channels.remove(&name) {
            let _ = epoll::delete(epoll, event_channel.ring.stream());
            self.by_key.retain(|_, other| *other != name);
        }
    }

    /// Closes all event channels of a process that leaves or has lost its host.
    pub(super) fn close_all_of(&mut self, epoll: impl AsFd, process: u32) {
        for name in self.of(process) {
            self.close(epoll.as_fd(), name);
        }
        self.settling.retain(|waiting| waiting.process != process);
    }

    fn of(&self, process: u32) -> Vec<(u32, u64)> {
        self.event_channels.range((process, 0)..=(process, u64::MAX)).map(|(name, _)| *name).collect()
    }

    /// Lets a client wait until the event channels of its process have received `expected` bytes. Returns clients whose
    /// wait is over.
    pub(super) fn drain(
        &mut self,
        epoll: impl AsFd,
        client: ClientId,
        process: u32,
        expected: Vec<(u64, u64)>,
    ) -> Vec<(ClientId, u32)> {
        self.settling.push(Draining { client, process, expected });
        for name in self.of(process) {
            while self.turn(epoll.as_fd(), name) {}
        }
        self.settled()
    }

    fn settled(&mut self) -> Vec<(ClientId, u32)> {
        let EventChannels { event_channels, settling, .. } = self;
        let mut settled_clients = Vec::new();
        settling.retain(|waiting| {
            let is_there = |&(event, expected): &(u64, u64)| {
                let event_channel = event_channels.get(&(waiting.process, event));
                // A closed channel delivers nothing more.
                event_channel.is_none_or(|event_channel| event_channel.received >= expected)
            };
            let settled = waiting.expected.iter().all(is_there);
            if settled {
                settled_clients.push((waiting.client, waiting.process));
            }
            !settled
        });
        settled_clients
    }
}
