//! The messages with which QEMU has set up a device, to be replayed to another daemon's device. A plain value: it sends
//! nothing.
//!
//! While no daemon runs, QEMU must still be able to stop the guest, reset it and exit. So it is answered from here
//! ([`Setup::answer`]): a set-up message is stored, and the next device gets it; the position of a ring is read from
//! guest memory; a query gets the answer of the last device.
//!
//! Each message replaces the earlier one on the same subject, so the last of each is enough. Only the position of a
//! ring differs from QEMU's message, because the guest and the device have progressed since. Its used ring is in guest
//! memory, whose descriptors the proxy has, and contains the device's position. Chains that a killed device had taken
//! and not returned are taken again.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::wire::{Message, Request};

/// Bytes of one region in a memory table: guest-physical address, size, QEMU's address, offset into the file.
const REGION_BYTES: usize = 32;
/// Offset of the index in a used ring, behind its flags.
const USED_INDEX_OFFSET: u64 = 2;
/// In the payload of messages about a kick, call or error: the message has no descriptor. The lower bits are the ring's
/// number.
const NO_DESCRIPTOR: u64 = 1 << 8;
const RING_MASK: u64 = 0xff;
/// Offset of QEMU's address of the used ring in SET_VRING_ADDR.
const USED_ADDRESS_OFFSET: usize = 16;
/// Offset, size and flags in GET_CONFIG, before room for its bytes.
const CONFIG_RANGE_BYTES: usize = 12;
/// An acknowledgement, if QEMU asked for one.
const SUCCESS: [u8; 8] = 0u64.to_le_bytes();
/// `VHOST_USER_PROTOCOL_F_REPLY_ACK`.
pub(super) const REPLY_ACK: u64 = 1 << 3;

/// Messages about the whole device, in the order in which a device requires them.
const OF_DEVICE: [Request; 4] =
    [Request::SET_PROTOCOL_FEATURES, Request::SET_OWNER, Request::SET_FEATURES, Request::SET_MEM_TABLE];

/// Messages about each ring. It starts with its kick.
const OF_RING: [Request; 7] = [
    Request::SET_VRING_NUM,
    Request::SET_VRING_BASE,
    Request::SET_VRING_ADDR,
    Request::SET_VRING_ERR,
    Request::SET_VRING_CALL,
    Request::SET_VRING_KICK,
    Request::SET_VRING_ENABLE,
];

/// The stored setup of a device.
#[derive(Debug, Default)]
pub(super) struct Setup {
    /// The last message of each request and ring; ring 0 for the device.
    messages: BTreeMap<(Request, u64), Message>,
    /// The last query of each kind, and the answer of the device.
    answers: BTreeMap<Request, (Vec<u8>, Vec<u8>)>,
}

/// The ring that a message is about.
fn ring_of(message: &Message) -> Option<u64> {
    match message.request {
        Request::SET_VRING_KICK | Request::SET_VRING_CALL | Request::SET_VRING_ERR => {
            Some(message.u64_at(0) & RING_MASK)
        }
        request if OF_RING.contains(&request) => Some(u64::from(message.u32_at(0))),
        Request::GET_VRING_BASE => Some(u64::from(message.u32_at(0))),
        _ => None,
    }
}

/// The part of a query that says what it asks for: the range of the configuration space, without room for its bytes.
fn subject_of(message: &Message) -> &[u8] {
    let bytes = message.payload.len().min(CONFIG_RANGE_BYTES);
    &message.payload[..bytes]
}

/// Payload of messages about a ring's position.
fn base_payload(ring: u64, position: u32) -> Vec<u8> {
    [ring as u32, position].into_iter().flat_map(u32::to_le_bytes).collect()
}

impl Setup {
    /// Stores a message that a device has handled. `answer`: the payload of its answer.
    pub fn store(&mut self, message: Message, answer: &[u8]) {
        match ring_of(&message) {
            // The ring is stopped: it starts again with another kick, and at this position if QEMU names no other.
            Some(ring) if message.request == Request::GET_VRING_BASE => {
                self.messages.remove(&(Request::SET_VRING_KICK, ring));
                let base = Message::new(Request::SET_VRING_BASE, answer.to_vec());
                self.messages.insert((Request::SET_VRING_BASE, ring), base);
            }
            Some(ring) => _ = self.messages.insert((message.request, ring), message),
            None if OF_DEVICE.contains(&message.request) => {
                self.messages.insert((message.request, 0), message);
            }
            None if message.has_own_reply() => {
                let query = subject_of(&message).to_vec();
                self.answers.insert(message.request, (query, answer.to_vec()));
            }
            // Writes to a configuration space that is read-only.
            None => {}
        }
    }

    /// Returns the payload of an answer in place of a device, while there is none. A set-up message is answered with
    /// success, because the next device gets it. `None`: only a device can answer.
    pub fn answer(&self, message: &Message) -> Option<Vec<u8>> {
        match ring_of(message) {
            Some(ring) if message.request == Request::GET_VRING_BASE => {
                Some(base_payload(ring, self.position(ring)))
            }
            Some(_) => Some(SUCCESS.to_vec()),
            None if OF_DEVICE.contains(&message.request) => Some(SUCCESS.to_vec()),
            None => {
                let (query, answer) = self.answers.get(&message.request)?;
                (query == subject_of(message)).then(|| answer.clone())
            }
        }
    }

    /// Whether a device acknowledges this message, if it asks for that.
    pub fn acknowledges(&self, message: &Message) -> bool {
        let features = match message.request {
            // It is in force at once.
            Request::SET_PROTOCOL_FEATURES => message.u64_at(0),
            _ => self.protocol_features(),
        };
        features & REPLY_ACK != 0
    }

    /// Whether QEMU has claimed the device.
    pub fn is_owned(&self) -> bool {
        self.messages.contains_key(&(Request::SET_OWNER, 0))
    }

    fn value_of(&self, request: Request) -> u64 {
        self.messages.get(&(request, 0)).map_or(0, |message| message.u64_at(0))
    }

    /// Features that QEMU has accepted.
    pub fn features(&self) -> u64 {
        self.value_of(Request::SET_FEATURES)
    }

    /// Protocol features that QEMU has accepted.
    pub fn protocol_features(&self) -> u64 {
        self.value_of(Request::SET_PROTOCOL_FEATURES)
    }

    /// Returns all messages that bring a device to the state of the last one, in order. Running rings start at their
    /// current position in guest memory.
    pub fn replay_messages(&self) -> io::Result<Vec<ReplayedMessage<'_>>> {
        let of_device = OF_DEVICE.iter().filter_map(|request| self.messages.get(&(*request, 0)));
        let mut messages: Vec<_> = of_device.map(ReplayedMessage::AsSaid).collect();
        let rings =
            self.messages.keys().filter(|(request, _)| OF_RING.contains(request)).map(|(_, ring)| *ring);
        let rings = rings.collect::<std::collections::BTreeSet<_>>();
        for ring in rings {
            for request in OF_RING {
                match self.messages.get(&(request, ring)) {
                    Some(_) if request == Request::SET_VRING_BASE && self.runs(ring) => {
                        let payload = base_payload(ring, u32::from(self.used_index(ring)?));
                        messages.push(ReplayedMessage::Base(Message::new(request, payload)));
                    }
                    Some(message) => messages.push(ReplayedMessage::AsSaid(message)),
                    None => {}
                }
            }
        }
        Ok(messages)
    }

    fn runs(&self, ring: u64) -> bool {
        self.messages.contains_key(&(Request::SET_VRING_KICK, ring))
    }

    /// Eventfds of running rings. A killed device may have read a kick without reading the ring, or filled a ring
    /// without a call. So each is signaled once more; a spurious one is harmless.
    pub fn events(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let events = self.messages.iter().filter(|((request, ring), _)| {
            matches!(*request, Request::SET_VRING_KICK | Request::SET_VRING_CALL) && self.runs(*ring)
        });
        events.flat_map(|(_, message)| &message.descriptors).map(AsFd::as_fd)
    }

    /// Returns where a device that stops a ring now would stop it: where it is, or where QEMU last set it.
    fn position(&self, ring: u64) -> u32 {
        let used_index = self.runs(ring).then(|| self.used_index(ring).ok()).flatten();
        let base = || self.messages.get(&(Request::SET_VRING_BASE, ring)).map_or(0, |base| base.u32_at(4));
        used_index.map_or_else(base, u32::from)
    }

    /// Reads a device's position from a ring's used index.
    fn used_index(&self, ring: u64) -> io::Result<u16> {
        let address = self.messages.get(&(Request::SET_VRING_ADDR, ring));
        let address = address.map_or(0, |message| message.u64_at(USED_ADDRESS_OFFSET));
        let outside = || {
            let words = format!("the used ring of queue {ring} at {address:#x} is outside guest memory");
            io::Error::new(io::ErrorKind::InvalidData, words)
        };
        let (file, offset) = self
            .in_memory(address.checked_add(USED_INDEX_OFFSET).ok_or_else(outside)?)
            .ok_or_else(outside)?;
        let mut index = [0; 2];
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut index, offset))?;
        if read == index.len() { Ok(u16::from_le_bytes(index)) } else { Err(outside()) }
    }

    /// Returns the file and offset of an address of QEMU's.
    fn in_memory(&self, address: u64) -> Option<(&OwnedFd, u64)> {
        let table = self.messages.get(&(Request::SET_MEM_TABLE, 0))?;
        let regions = (0..table.descriptors.len()).map(|at| {
            let field = |number: usize| table.u64_at(8 + at * REGION_BYTES + number * 8);
            (&table.descriptors[at], field(1), field(2), field(3))
        });
        regions.into_iter().find_map(|(file, bytes, start, offset)| {
            let inside = address.checked_sub(start).filter(|inside| *inside < bytes)?;
            Some((file, offset.checked_add(inside)?))
        })
    }
}

/// One message to a new device.
#[derive(Debug)]
pub(super) enum ReplayedMessage<'a> {
    AsSaid(&'a Message),
    /// The current position of a ring.
    Base(Message),
}

impl ReplayedMessage<'_> {
    pub fn message(&self) -> &Message {
        match self {
            ReplayedMessage::AsSaid(message) => message,
            ReplayedMessage::Base(message) => message,
        }
    }
}

/// Whether QEMU requests polling of a ring instead of kicks, which the daemon's device does not support.
pub(super) fn is_polled(message: &Message) -> bool {
    message.request == Request::SET_VRING_KICK && message.u64_at(0) & NO_DESCRIPTOR != 0
}
