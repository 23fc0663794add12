//! One virtqueue: descriptor chains in guest memory, the kick and call eventfds, and when to use them.
//!
//! Nothing a guest writes here is believed: chains are cut at a limit, lengths are bounded before anything is copied,
//! addresses go through the memory table, and a ring whose indices make no sense is left alone until QEMU resets it.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use virtio_queue::desc::split::Descriptor;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemory as _, GuestMemoryMmap, Permissions};

use crate::limits::{DESCRIPTORS_PER_CHAIN_MAX, PACKET_BYTES_MAX, QUEUE_SIZE_MAX};
use crate::memory::MemoryTable;
use crate::packet::{HEADER_BYTES, Header};

/// A ring or a chain that the guest got wrong.
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

/// What to write to so that the guest looks at its used ring.
#[derive(Clone, Debug)]
pub(crate) struct Call(Arc<File>);

impl Call {
    /// Interrupts the guest. A full eventfd counter already holds an interrupt, so errors do not matter.
    pub fn signal(&self) {
        let _ = (&*self.0).write_all(&1u64.to_ne_bytes());
    }
}

/// One virtqueue as the front-end set it up.
pub(crate) struct Ring {
    queue: Queue,
    table: MemoryTable,
    call: Option<Call>,
    /// SET_VRING_ENABLE.
    pub enabled: bool,
    /// The guest broke the ring itself.
    broken: bool,
    segments: Vec<(GuestAddress, usize)>,
}

/// A chain of receive buffers, checked, of which packets can be made.
pub(crate) struct ReceiveBuffer {
    head: u16,
    /// Bytes for header and payload together.
    pub size: usize,
}

impl Ring {
    pub fn new(table: MemoryTable) -> Self {
        let queue = Queue::new(QUEUE_SIZE_MAX).expect("the limit is a power of two");
        Self { queue, table, call: None, enabled: false, broken: false, segments: Vec::new() }
    }

    pub fn set_size(&mut self, size: u16) -> bool {
        self.queue.try_set_size(size).is_ok()
    }

    /// Guest-physical addresses of descriptor table, available ring and used ring.
    pub fn set_addresses(&mut self, descriptors: u64, available: u64, used: u64) -> bool {
        let queue = &mut self.queue;
        let aligned = queue.try_set_desc_table_address(GuestAddress(descriptors)).is_ok()
            && queue.try_set_avail_ring_address(GuestAddress(available)).is_ok()
            && queue.try_set_used_ring_address(GuestAddress(used)).is_ok();
        if !aligned {
            return false;
        }
        // SET_VRING_BASE tells only where we read; where we write is in the ring.
        match self.queue.used_idx(&*self.table.memory(), std::sync::atomic::Ordering::Acquire) {
            Ok(index) => {
                self.queue.set_next_used(index.0);
                true
            }
            Err(_) => false,
        }
    }

    pub fn set_event_index(&mut self, enabled: bool) {
        self.queue.set_event_idx(enabled);
    }

    pub fn set_base(&mut self, next_available: u16) {
        self.queue.set_next_avail(next_available);
    }

    pub fn base(&self) -> u16 {
        self.queue.next_avail()
    }

    pub fn set_call(&mut self, call: Option<File>) {
        self.call = call.map(|file| Call(Arc::new(file)));
    }

    /// Starts or stops the ring; a stopped ring touches no guest memory.
    pub fn set_ready(&mut self, ready: bool) {
        self.queue.set_ready(ready);
        self.broken = ready && !self.queue.is_valid(&*self.table.memory());
    }

    /// The memory table changed: a ring outside it must stop, and a ring that was outside may be inside now.
    pub fn revalidate(&mut self) {
        self.set_ready(self.queue.ready());
    }

    pub fn is_running(&self) -> bool {
        self.enabled && !self.broken && self.queue.ready()
    }

    /// Takes the next packet of the guest out of the ring into `bytes` (header, then payload) and gives the chain
    /// back. `None`: the ring is empty or stopped.
    pub fn take_packet(&mut self, bytes: &mut Vec<u8>) -> Option<Result<Header, QueueError>> {
        if !self.is_running() {
            return None;
        }
        let table = self.table.clone();
        let memory = table.memory();
        let chain = match self.pop(&memory) {
            Ok(chain) => chain?,
            Err(error) => return Some(Err(error)),
        };
        let head = chain.head_index();
        let outcome = gather(&memory, chain, bytes);
        Some(self.give_back(&memory, head, 0).and(outcome))
    }

    /// Takes the next chain of receive buffers, of at least `size_min` bytes. `None`: the ring is empty or stopped.
    pub fn take_buffer(&mut self, size_min: usize) -> Option<Result<ReceiveBuffer, QueueError>> {
        if !self.is_running() {
            return None;
        }
        let table = self.table.clone();
        let memory = table.memory();
        let chain = match self.pop(&memory) {
            Ok(chain) => chain?,
            Err(error) => return Some(Err(error)),
        };
        let head = chain.head_index();
        match writable_segments(&memory, chain, &mut self.segments) {
            Ok(size) if size >= size_min => Some(Ok(ReceiveBuffer { head, size })),
            Ok(_) => Some(self.give_back(&memory, head, 0).and(Err(QueueError::ChainTooShort))),
            // The guest gets its useless chain back, with nothing in it.
            Err(error) => Some(self.give_back(&memory, head, 0).and(Err(error))),
        }
    }

    /// Fills the buffer just taken with `parts`, one after the other, and gives it back to the guest.
    pub fn fill_buffer(&mut self, buffer: ReceiveBuffer, parts: [&[u8]; 2]) -> Result<(), QueueError> {
        let table = self.table.clone();
        let memory = table.memory();
        let mut segments = self.segments.iter().copied();
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
        self.give_back(&memory, buffer.head, len as u32)
    }

    /// Asks for a kick on the next chain. `true`: chains have come meanwhile, look again.
    pub fn ask_for_kick(&mut self) -> bool {
        if !self.is_running() {
            return false;
        }
        let table = self.table.clone();
        let outcome = self.queue.enable_notification(&*table.memory());
        self.broken |= outcome.is_err();
        outcome.unwrap_or(false)
    }

    /// Kicks are useless while we look at the ring anyway.
    pub fn refuse_kicks(&mut self) {
        if self.is_running() {
            let table = self.table.clone();
            let outcome = self.queue.disable_notification(&*table.memory());
            self.broken |= outcome.is_err();
        }
    }

    /// The call to signal after chains were given back, if the guest wants to hear of them.
    pub fn call_if_wanted(&mut self) -> Option<Call> {
        if !self.is_running() {
            return None;
        }
        let table = self.table.clone();
        match self.queue.needs_notification(&*table.memory()) {
            Ok(true) => self.call.clone(),
            Ok(false) => None,
            Err(_) => {
                self.broken = true;
                None
            }
        }
    }

    fn pop<'m>(
        &mut self,
        memory: &'m GuestMemoryMmap,
    ) -> Result<Option<DescriptorChain<&'m GuestMemoryMmap>>, QueueError> {
        let mut available = self.queue.iter(memory).map_err(|_| {
            self.broken = true;
            QueueError::Ring
        })?;
        Ok(available.next())
    }

    fn give_back(&mut self, memory: &GuestMemoryMmap, head: u16, len: u32) -> Result<(), QueueError> {
        self.queue.add_used(memory, head, len).map_err(|_| {
            self.broken = true;
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
    let mut wanted = HEADER_BYTES;
    let mut header = None;
    for descriptor in chain.take(DESCRIPTORS_PER_CHAIN_MAX) {
        let (mut address, mut left) = readable(&descriptor)?;
        while left > 0 && bytes.len() < wanted {
            let start = bytes.len();
            let len = left.min(wanted - start);
            bytes.resize(start + len, 0);
            memory.read_slice(&mut bytes[start..], address).map_err(|_| QueueError::Chain)?;
            left -= len;
            address = GuestAddress(address.0.wrapping_add(len as u64));
            if header.is_none() && bytes.len() == HEADER_BYTES {
                let decoded = decode(bytes)?;
                wanted += decoded.len as usize;
                header = Some(decoded);
            }
        }
        if bytes.len() == wanted && header.is_some() {
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
    segments: &mut Vec<(GuestAddress, usize)>,
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
