//! A command buffer on an engine: its bytes, and how far they were read.
//!
//! The bytes were checked when the buffer was queued ([`Miniport::validate`](dxgkrnl::ddi::Miniport::validate)). From then
//! on everybody reads them where they stand: the engine one packet at a time, the debug layer and the race search from
//! the beginning, when the buffer's turn comes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use d3dkmt::isa::{self, Packet, Reader};
use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};

/// A packet, and which of its buffer's it is.
pub(super) type Numbered = (u32, Packet);

/// See the module.
#[derive(Serialize, Deserialize)]
pub(crate) struct Commands {
    bytes: Vec<u8>,
    /// Where the packet stands that was not read yet, and which it is.
    offset: usize,
    number: u32,
    /// Packets that come before it: looked at and put back, or what one was taken apart into.
    ahead: VecDeque<Numbered>,
    /// Which packet was taken last.
    last: u32,
}

impl Commands {
    /// Bytes of another KMD's format are work of this length.
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

    /// Those that were not taken yet.
    pub fn left(&self) -> impl Iterator<Item = Packet> {
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

    /// The packet that comes next.
    pub fn peek(&mut self) -> Option<&Packet> {
        if self.ahead.is_empty() {
            let next = self.read()?;
            self.ahead.push_back(next);
        }
        self.ahead.front().map(|(_, packet)| packet)
    }

    pub fn take(&mut self) -> Option<Numbered> {
        let taken = self.ahead.pop_front().or_else(|| self.read())?;
        self.last = taken.0;
        Some(taken)
    }

    /// These come next, in their order.
    pub fn put_back(&mut self, packets: impl DoubleEndedIterator<Item = Numbered>) {
        packets.rev().for_each(|packet| self.ahead.push_front(packet));
    }

    /// Which packet was taken last.
    pub fn last(&self) -> u32 {
        self.last
    }
}
