//! The messages with which QEMU has set up a device, to be replayed to another daemon's device. A plain value: it sends
//! nothing.
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

impl Setup {
    /// Stores a message that a device has handled.
    pub fn store(&mut self, message: Message) {
        match ring_of(&message) {
            // The ring is stopped: it starts again with another kick.
            Some(ring) if message.request == Request::GET_VRING_BASE => {
                self.messages.remove(&(Request::SET_VRING_KICK, ring));
            }
            Some(ring) => _ = self.messages.insert((message.request, ring), message),
            None if OF_DEVICE.contains(&message.request) => {
                self.messages.insert((message.request, 0), message);
            }
            // Queries, and writes to a configuration space that is read-only.
            None => {}
        }
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
                        let mut payload = (ring as u32).to_le_bytes().to_vec();
                        payload.extend(u32::from(self.used_index(ring)?).to_le_bytes());
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
