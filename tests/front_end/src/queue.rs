//! The driver's side of one split virtqueue, with EVENT_IDX as specified.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub const QUEUE_SIZE: u16 = 128;
/// Room for one packet of 64 KiB and its header.
const SLOT_BYTES: u64 = 68 * 1024;
const SLOTS_OFFSET: u64 = 0x4000;
const WRITABLE: u16 = 2;
const NEXT: u16 = 1;

pub struct DriverQueue {
    memory: GuestMemoryMmap,
    area: u64,
    pub event_index: bool,
    pub kick: EventFd,
    pub call: EventFd,
    next_available: u16,
    kicked_at: u16,
    last_used: u16,
    next_slot: u16,
    pub kicks: u64,
}

impl DriverQueue {
    /// An empty ring at position `base`.
    pub fn new(memory: &GuestMemoryMmap, area: u64, event_index: bool, base: u16) -> Self {
        let queue = Self {
            memory: memory.clone(),
            area,
            event_index,
            kick: EventFd::new(EFD_NONBLOCK).unwrap(),
            call: EventFd::new(EFD_NONBLOCK).unwrap(),
            next_available: base,
            kicked_at: base,
            last_used: base,
            next_slot: 0,
            kicks: 0,
        };
        memory.write_slice(&[0; SLOTS_OFFSET as usize], GuestAddress(area)).unwrap();
        queue.write_u16(queue.available() + 2, base);
        queue.write_u16(queue.used() + 2, base);
        queue
    }

    /// Descriptor index of the next chain.
    pub fn position(&self) -> u16 {
        self.next_available
    }

    pub fn descriptors(&self) -> u64 {
        self.area
    }

    pub fn available(&self) -> u64 {
        self.area + 0x2000
    }

    pub fn used(&self) -> u64 {
        self.area + 0x3000
    }

    pub fn write_u16(&self, gpa: u64, value: u16) {
        self.memory.store(value, GuestAddress(gpa), Ordering::Release).unwrap();
    }

    pub fn read_u16(&self, gpa: u64) -> u16 {
        self.memory.load(GuestAddress(gpa), Ordering::Acquire).unwrap()
    }

    pub fn write_descriptor(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        let mut bytes = [0; 16];
        bytes[0..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..16].copy_from_slice(&next.to_le_bytes());
        self.memory.write_slice(&bytes, GuestAddress(self.descriptors() + u64::from(index) * 16)).unwrap();
    }

    /// Makes the chain that starts at `head` available.
    pub fn publish(&mut self, head: u16) {
        let entry = self.available() + 4 + u64::from(self.next_available % QUEUE_SIZE) * 2;
        self.write_u16(entry, head);
        self.next_available = self.next_available.wrapping_add(1);
        self.write_u16(self.available() + 2, self.next_available);
    }

    fn slot_address(&self, slot: u16) -> u64 {
        self.area + SLOTS_OFFSET + u64::from(slot) * SLOT_BYTES
    }

    /// Sends one chain of the parts, each in a descriptor of its own; waits while the ring is full.
    ///
    /// Two descriptors make a slot, and 64 slots a ring.
    pub fn post(&mut self, parts: &[&[u8]; 2]) {
        let slots = QUEUE_SIZE / 2;
        let deadline = Instant::now() + crate::PATIENCE;
        while self.next_available.wrapping_sub(self.read_u16(self.used() + 2)) >= slots {
            self.kick_if_wanted();
            assert!(Instant::now() < deadline, "the device does not take packets");
            std::thread::yield_now();
        }
        let slot = self.next_slot % slots;
        self.next_slot = (self.next_slot + 1) % slots;
        let (first, second) = (slot * 2, slot * 2 + 1);
        let address = self.slot_address(slot);
        let payload_address = address + parts[0].len() as u64;
        self.memory.write_slice(parts[0], GuestAddress(address)).unwrap();
        self.memory.write_slice(parts[1], GuestAddress(payload_address)).unwrap();
        if parts[1].is_empty() {
            self.write_descriptor(first, address, parts[0].len() as u32, 0, 0);
        } else {
            self.write_descriptor(first, address, parts[0].len() as u32, NEXT, second);
            self.write_descriptor(second, payload_address, parts[1].len() as u32, 0, 0);
        }
        self.publish(first);
    }

    /// Offers a writable buffer in descriptor `index`.
    pub fn offer_buffer(&mut self, index: u16, len: u32) {
        // Receive slots are small; they share the area of the large ones.
        let address = self.area + SLOTS_OFFSET + u64::from(index) * 0x2000;
        self.write_descriptor(index, address, len, WRITABLE, 0);
        self.publish(index);
    }

    pub fn offer_next_buffer(&mut self, payload: u32) {
        let index = self.next_slot % QUEUE_SIZE;
        self.next_slot = (self.next_slot + 1) % QUEUE_SIZE;
        self.offer_buffer(index, payload + 44);
    }

    /// Kicks if the device requested a notification since the last kick.
    pub fn kick_if_wanted(&mut self) {
        fence(Ordering::SeqCst);
        let wanted = if self.event_index {
            let event = self.read_u16(self.used() + 4 + u64::from(QUEUE_SIZE) * 8);
            let new = self.next_available;
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(self.kicked_at)
        } else {
            self.read_u16(self.used()) & 1 == 0
        };
        self.kicked_at = self.next_available;
        if wanted {
            self.kicks += 1;
            self.kick.write(1).unwrap();
        }
    }

    /// The bytes of the next used chain, if there is one.
    pub fn take_used(&mut self) -> Option<Vec<u8>> {
        if self.read_u16(self.used() + 2) == self.last_used {
            return None;
        }
        let element = self.used() + 4 + u64::from(self.last_used % QUEUE_SIZE) * 8;
        let head: u32 = self.memory.read_obj(GuestAddress(element)).unwrap();
        let len: u32 = self.memory.read_obj(GuestAddress(element + 4)).unwrap();
        self.last_used = self.last_used.wrapping_add(1);
        let address: u64 =
            self.memory.read_obj(GuestAddress(self.descriptors() + u64::from(head) * 16)).unwrap();
        let mut bytes = vec![0; len as usize];
        self.memory.read_slice(&mut bytes, GuestAddress(address)).unwrap();
        Some(bytes)
    }

    /// As [`DriverQueue::take_used`], but waits for the device's call.
    pub fn wait_used(&mut self, patience: Duration) -> Option<Vec<u8>> {
        loop {
            // used_event: request a call for the next used buffer.
            self.write_u16(self.available() + 4 + u64::from(QUEUE_SIZE) * 2, self.last_used);
            fence(Ordering::SeqCst);
            if let Some(bytes) = self.take_used() {
                return Some(bytes);
            }
            if !crate::is_readable(&self.call, patience) {
                return self.take_used();
            }
            let _ = self.call.read();
        }
    }
}
