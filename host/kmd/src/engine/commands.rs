//! A command buffer on an engine: its bytes, and how far they were read.
//!
//! The bytes were checked when the buffer was queued ([`Miniport::validate`](dxgkrnl::ddi::Miniport::validate)). All
//! readers then use them in place: the engine reads one packet at a time; the debug layer and the race detector read
//! the buffer when it starts, up to the next packet that waits in hardware, and the rest once it has waited.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use d3dkmt::isa::{self, Packet, Reader};
use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};

/// A packet with its number in the buffer.
pub(super) type Numbered = (u32, Packet);

/// A packet of a command buffer: its offset and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Position {
    pub offset: usize,
    pub number: u32,
}

/// The bytes of a command buffer, with the position of the next packet.
#[derive(Serialize, Deserialize)]
pub(crate) struct Commands {
    bytes: Vec<u8>,
    /// Offset and number of the next packet to read.
    offset: usize,
    number: u32,
    /// Packets to take before it: packets that were peeked at or put back, or the parts of a packet that was split.
    ahead: VecDeque<Numbered>,
    /// Number of the packet that was taken last.
    last: u32,
}

impl Commands {
    /// Bytes in another KMD's format become one Busy packet of `opaque_packet_ns`.
    pub fn new(bytes: Vec<u8>, opaque_packet_ns: Nanos) -> Self {
        let bytes = match Reader::new(&bytes) {
            Ok(Some(_)) => bytes,
            Ok(None) | Err(_) => isa::encode(&[Packet::Busy { duration_ns: opaque_packet_ns }]),
        };
        let offset = Reader::checked(&bytes).offset();
        Commands { bytes, offset, number: 0, ahead: VecDeque::new(), last: 0 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All packets.
    pub fn packets(&self) -> Reader<'_> {
        Reader::checked(&self.bytes)
    }

    /// The first packet from `from` on that waits in hardware.
    pub fn next_wait(&self, from: Position) -> Option<Position> {
        let (mut number, mut packets) = (from.number, Reader::resumed(&self.bytes, from.offset));
        loop {
            let offset = packets.offset();
            if packets.next()?.ok()?.waits_in_hardware() {
                return Some(Position { offset, number });
            }
            number += 1;
        }
    }

    /// The first packet.
    pub fn start(&self) -> Position {
        Position { offset: self.packets().offset(), number: 0 }
    }

    /// The packet after one.
    pub fn after(&self, at: Position) -> Position {
        let mut packets = Reader::resumed(&self.bytes, at.offset);
        packets.next();
        Position { offset: packets.offset(), number: at.number + 1 }
    }

    /// The packets from one up to another, or to the last.
    pub fn part(&self, from: Position, to: Option<Position>) -> Reader<'_> {
        let end = to.map_or(self.bytes.len(), |to| to.offset);
        Reader::resumed(&self.bytes[..end], from.offset)
    }

    /// Whether the next packet is a part of the packet that was taken last.
    pub fn has_more_parts(&self) -> bool {
        self.ahead.front().is_some_and(|(number, packet)| {
            *number == self.last && matches!(packet, Packet::FenceWait { .. })
        })
    }

    /// The packets that were not taken yet.
    pub fn remaining(&self) -> impl Iterator<Item = Packet> {
        let rest = Reader::resumed(&self.bytes, self.offset).map_while(Result::ok);
        self.ahead.iter().map(|(_, packet)| packet.clone()).chain(rest.map(|packet| packet.to_owned()))
    }

    pub fn is_empty(&self) -> bool {
        self.ahead.is_empty() && self.offset == self.bytes.len()
    }

    fn read(&mut self) -> Option<Numbered> {
        let mut reader = Reader::resumed(&self.bytes, self.offset);
        let packet = reader.next()?.ok()?.to_owned();
        self.offset = reader.offset();
        self.number += 1;
        Some((self.number - 1, packet))
    }

    /// The next packet, without taking it.
    pub fn peek(&mut self) -> Option<&Packet> {
        if self.ahead.is_empty() {
            let next = self.read()?;
            self.ahead.push_back(next);
        }
        self.ahead.front().map(|(_, packet)| packet)
    }

    pub fn take(&mut self) -> Option<Numbered> {
        let next = self.ahead.pop_front().or_else(|| self.read())?;
        self.last = next.0;
        Some(next)
    }

    /// Puts packets in front of all others; they are taken next, in this order.
    pub fn put_back(&mut self, packets: impl DoubleEndedIterator<Item = Numbered>) {
        packets.rev().for_each(|packet| self.ahead.push_front(packet));
    }

    /// Number of the packet that was taken last.
    pub fn last(&self) -> u32 {
        self.last
    }
}
