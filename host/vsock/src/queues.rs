//! Packets in and out of an open vring.
//!
//! Nothing that a guest writes here is trusted. Chains are cut at a limit, lengths are bounded before anything is
//! copied, and addresses go through the memory table. A ring with inconsistent indices is not used until QEMU resets
//! it.

use std::num::Wrapping;
use std::sync::atomic::Ordering;

use virtio_queue::desc::split::Descriptor;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemory as _, GuestMemoryMmap, Permissions};

use crate::limits::{DESCRIPTORS_PER_CHAIN_MAX, PACKET_BYTES_MAX};
use crate::packet::{HEADER_BYTES, Header};
use crate::vring::{Call, OpenRing};

/// An invalid ring or chain of the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum QueueError {
    /// Indices or addresses of the ring itself; the ring stops until QEMU resets it.
    #[error("the ring is inconsistent or outside guest memory; stopped until reset")]
    Ring,
    #[error("descriptor chain has the wrong direction, is too long, or leads outside guest memory")]
    Chain,
    #[error("chain is shorter than the packet in it")]
    ChainTooShort,
    #[error("payload of {0} bytes is over the limit")]
    PayloadTooLong(u32),
}

/// A checked chain of receive buffers, to be filled with a packet.
pub(crate) struct ReceiveBuffer {
    head: u16,
    /// Bytes for header and payload together.
    pub size: usize,
}

/// The parts of a receive buffer, in order; none of them empty.
pub(crate) type Segments = Vec<(GuestAddress, usize)>;

impl OpenRing<'_> {
    /// Number of available chains that are not taken. The guest may add some at any time.
    pub fn available(&mut self) -> usize {
        let available = self.on_queue(|queue, memory| {
            let end = queue.avail_idx(memory, Ordering::Acquire)?;
            Ok(usize::from((end - Wrapping(queue.next_avail())).0))
        });
        available.unwrap_or_default()
    }

    /// Whether nothing was ever available.
    pub fn is_unused(&mut self) -> bool {
        let at_start = self.on_queue(|queue, memory| {
            Ok(queue.next_avail() == 0 && queue.avail_idx(memory, Ordering::Acquire)?.0 == 0)
        });
        at_start.unwrap_or_default()
    }

    /// Takes the next packet of the guest out of the ring into `bytes` (header, then payload) and returns the chain.
    /// `None`: the ring is empty or broken.
    pub fn take_packet(&mut self, bytes: &mut Vec<u8>) -> Option<Result<Header, QueueError>> {
        let outcome = self.take(|memory, chain| gather(memory, chain, bytes))?;
        let given_back = |(head, outcome)| self.give_back(head, 0).and(outcome);
        Some(outcome.and_then(given_back))
    }

    /// Takes the next chain of receive buffers, of at least `size_min` bytes. `None`: the ring is empty or broken.
    pub fn take_buffer(
        &mut self,
        size_min: usize,
        segments: &mut Segments,
    ) -> Option<Result<ReceiveBuffer, QueueError>> {
        let outcome = self.take(|memory, chain| writable_segments(memory, chain, segments))?;
        Some(outcome.and_then(|(head, size)| match size {
            Ok(size) if size >= size_min => Ok(ReceiveBuffer { head, size }),
            // The chain is returned to the guest, with nothing in it.
            Ok(_) => self.give_back(head, 0).and(Err(QueueError::ChainTooShort)),
            Err(error) => self.give_back(head, 0).and(Err(error)),
        }))
    }

    /// Fills the buffer just taken with `parts`, one after the other, and returns it to the guest.
    pub fn fill_buffer(
        &mut self,
        buffer: ReceiveBuffer,
        segments: &Segments,
        parts: [&[u8]; 2],
    ) -> Result<(), QueueError> {
        let (_, memory) = self.parts();
        let mut segments = segments.iter().copied();
        let mut segment = segments.next();
        for mut part in parts {
            while !part.is_empty() {
                let (address, room) = segment.ok_or(QueueError::ChainTooShort)?;
                let len = part.len().min(room);
                memory.write_slice(&part[..len], address).map_err(|_| QueueError::Chain)?;
                part = &part[len..];
                segment = if len < room {
                    Some((GuestAddress(address.0 + len as u64), room - len))
                } else {
                    segments.next()
                };
            }
        }
        let len = parts[0].len() + parts[1].len();
        self.give_back(buffer.head, len as u32)
    }

    /// Enables kicks for the next chain. `true`: chains have been added meanwhile, check again.
    pub fn ask_for_kick(&mut self) -> bool {
        self.on_queue(|queue, memory| queue.enable_notification(memory)).unwrap_or(false)
    }

    /// Disables kicks, which are useless while the worker reads the ring anyway.
    pub fn refuse_kicks(&mut self) {
        let _ = self.on_queue(|queue, memory| queue.disable_notification(memory));
    }

    /// The call to signal after chains were returned, if the guest requested it.
    pub fn call_if_wanted(&mut self) -> Option<Call> {
        let needs_notification = self.on_queue(|queue, memory| queue.needs_notification(memory));
        if needs_notification.unwrap_or(false) { self.call() } else { None }
    }

    /// Takes the next chain out of the available ring and reads it. `None`: there is none.
    fn take<R>(
        &mut self,
        read: impl FnOnce(&GuestMemoryMmap, DescriptorChain<&GuestMemoryMmap>) -> R,
    ) -> Option<Result<(u16, R), QueueError>> {
        let taken = self.on_queue(|queue, memory| {
            let chain = queue.iter(memory)?.next();
            Ok(chain.map(|chain| (chain.head_index(), read(memory, chain))))
        });
        taken.transpose()
    }

    fn give_back(&mut self, head: u16, len: u32) -> Result<(), QueueError> {
        self.on_queue(|queue, memory| queue.add_used(memory, head, len))
    }

    /// Runs `work` on the ring itself. If it fails, the ring is marked broken; a broken ring looks empty.
    fn on_queue<R: Default>(
        &mut self,
        work: impl FnOnce(&mut Queue, &GuestMemoryMmap) -> Result<R, virtio_queue::Error>,
    ) -> Result<R, QueueError> {
        if self.is_broken() {
            return Ok(R::default());
        }
        let (queue, memory) = self.parts();
        work(queue, memory).map_err(|_| {
            self.set_broken();
            QueueError::Ring
        })
    }
}

/// Copies a packet of the guest into `bytes`, never more than the header and [`PACKET_BYTES_MAX`].
fn gather(
    memory: &GuestMemoryMmap,
    chain: DescriptorChain<&GuestMemoryMmap>,
    bytes: &mut Vec<u8>,
) -> Result<Header, QueueError> {
    bytes.clear();
    let mut needed = HEADER_BYTES;
    let mut header = None;
    for descriptor in chain.take(DESCRIPTORS_PER_CHAIN_MAX) {
        let (mut address, mut left) = readable(&descriptor)?;
        while left > 0 && bytes.len() < needed {
            let start = bytes.len();
            let len = left.min(needed - start);
            bytes.resize(start + len, 0);
            memory.read_slice(&mut bytes[start..], address).map_err(|_| QueueError::Chain)?;
            left -= len;
            address = GuestAddress(address.0.wrapping_add(len as u64));
            if header.is_none() && bytes.len() == HEADER_BYTES {
                let decoded = decode(bytes)?;
                needed += decoded.len as usize;
                header = Some(decoded);
            }
        }
        if bytes.len() == needed && header.is_some() {
            return header.ok_or(QueueError::ChainTooShort);
        }
    }
    Err(QueueError::ChainTooShort)
}

fn decode(bytes: &[u8]) -> Result<Header, QueueError> {
    let bytes = bytes.first_chunk::<HEADER_BYTES>().ok_or(QueueError::ChainTooShort)?;
    let header = Header::decode(bytes);
    if header.len as usize > PACKET_BYTES_MAX {
        return Err(QueueError::PayloadTooLong(header.len));
    }
    Ok(header)
}

fn readable(descriptor: &Descriptor) -> Result<(GuestAddress, usize), QueueError> {
    if descriptor.is_write_only() {
        return Err(QueueError::Chain);
    }
    Ok((descriptor.addr(), descriptor.len() as usize))
}

/// Lists the parts of a receive chain and checks that all of it can be written.
fn writable_segments(
    memory: &GuestMemoryMmap,
    chain: DescriptorChain<&GuestMemoryMmap>,
    segments: &mut Segments,
) -> Result<usize, QueueError> {
    segments.clear();
    let mut size = 0;
    for descriptor in chain.take(DESCRIPTORS_PER_CHAIN_MAX) {
        let (address, len) = (descriptor.addr(), descriptor.len() as usize);
        let in_memory = address.0.checked_add(len as u64).is_some()
            && memory.check_range(address, len, Permissions::Write);
        if !descriptor.is_write_only() || !in_memory {
            return Err(QueueError::Chain);
        }
        if len > 0 {
            segments.push((address, len));
            size += len;
        }
    }
    Ok(size)
}
