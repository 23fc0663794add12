//! Layout of the shared fence memory and its two operations.
//!
//! A process's fence memory is a sequence of *slots*, numbered from 0, spread over one or more memory
//! regions. A slot is 64 bytes, so that two fences never share a cache line, and holds one aligned
//! `u64` at offset 0: the fence value. The host is the only writer; the guest maps it read-only.
//! A value is one load: no generation, no sequence lock. The rest of the slot is reserved, zero.
//!
//! ```text
//! region (memfd, whole pages)
//! +--------+--------+--------+-- ..           slot n of a region that starts with slot `first`:
//! | slot f | slot f1| slot f2|                byte (n - first) * 64
//! +--------+--------+--------+-- ..
//!  u64 value, 56 bytes reserved
//! ```
#![no_std]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one slot: a cache line.
pub const SLOT_BYTES: usize = 64;
/// Bytes of one page of fence memory.
pub const PAGE_BYTES: usize = 4096;
/// Slots of one page.
pub const SLOTS_PER_PAGE: u32 = (PAGE_BYTES / SLOT_BYTES) as u32;

/// One fence value in shared memory. At least 8-byte aligned (FEN-003); here a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Slot {
    value: AtomicU64,
    reserved: [u64; 7],
}

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES && align_of::<Slot>() == SLOT_BYTES);

/// Storage of a fence value: `AtomicU64` in the product, loom's atomic under the model checker.
pub trait ValueCell {
    fn load_acquire(&self) -> u64;
    fn store_release(&self, value: u64);
}

impl ValueCell for AtomicU64 {
    #[inline]
    fn load_acquire(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    #[inline]
    fn store_release(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

impl Slot {
    /// The fence value now. One load.
    #[inline]
    pub fn value(&self) -> u64 {
        self.value.load_acquire()
    }

    /// Stores a value, on the host's side. A reader that sees it sees everything stored before it.
    #[inline]
    pub fn publish(&self, value: u64) {
        self.value.store_release(value);
    }
}

/// Pages that hold at least `slots` slots.
pub const fn pages_for(slots: u32) -> u32 {
    slots.div_ceil(SLOTS_PER_PAGE)
}

/// Byte offset of the `n`th slot of a region.
pub const fn slot_offset(n: u32) -> usize {
    n as usize * SLOT_BYTES
}

#[cfg(test)]
mod tests;
