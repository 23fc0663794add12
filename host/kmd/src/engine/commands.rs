//! A command buffer on an engine: its bytes, and how far they were read.
//!
//! The bytes were checked when the buffer was queued ([`Miniport::validate`](dxgkrnl::ddi::Miniport::validate)). All
//! readers then use them in place: the engine reads one packet at a time; the debug layer and the race detector read
//! the whole buffer when it starts.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use d3dkmt::isa::{self, Packet, Reader};
use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};

/// A packet with its number in the buffer.
pub(super) type Numbered = (u32, Packet);

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
