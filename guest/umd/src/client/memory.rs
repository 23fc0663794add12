//! The process's fence memory: pieces that the broker hands out, mapped shared and read-only.
//!
//! ```text
//!   address space reserved for all slots that a process may have; its base is what Hello says
//!   +---------+---------+------------------------------- .. -+
//!   | slots 0.| next    | nothing mapped                     |
//!   +---------+---------+------------------------------- .. -+
//! ```
//! So one number tells the host where each fence is, as engines of an IoMmu adapter need it (FEN-008).
//!
//! `unsafe` here: memory that the host writes is mapped, and slots are taken from it.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

use super::attach::AttachError;
use ::client::Location;
use d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX;
use fence_page::{PAGE_BYTES, SLOT_BYTES, SLOTS_PER_PAGE, Slot, pages_for};
use rustix::mm::{MapFlags, ProtFlags};

/// Why a memory descriptor cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("fence memory of {actual} bytes holds no {slots} slots")]
    TooSmall { actual: u64, slots: u32 },
    #[error(
        "fence memory of slots {first_slot} to {end} is not whole pages below slot {FENCE_SLOTS_PER_PROCESS_MAX}"
    )]
    Misplaced { first_slot: u32, end: u64 },
    #[error("fence memory cannot be mapped: {0}")]
    Map(#[from] rustix::io::Errno),
}

/// Address space for every slot that the process may have.
#[derive(Debug)]
struct Space {
    base: NonNull<Slot>,
}

/// Its bytes.
const SPACE_BYTES: usize = FENCE_SLOTS_PER_PROCESS_MAX as usize * SLOT_BYTES;

// SAFETY: what is mapped is read-only here and its slots are atomics; it belongs to no thread.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

impl Space {
    fn reserve() -> Result<Space, MemoryError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice, which nobody can touch.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), SPACE_BYTES, ProtFlags::empty(), flags)?
        };
        Ok(Space { base: NonNull::new(base.cast()).expect("mmap never answers NULL") })
    }

    /// Maps memory for these slots, in the place of what is there. The descriptor itself is not needed afterwards.
    fn map(&self, memory: BorrowedFd<'_>, first_slot: u32, slots: u32) -> Result<(), MemoryError> {
        let actual = rustix::fs::fstat(memory)?.st_size as u64;
        let bytes = pages_for(slots) as usize * PAGE_BYTES;
        if slots == 0 || actual < bytes as u64 {
            return Err(MemoryError::TooSmall { actual, slots });
        }
        let offset = first_slot as usize * SLOT_BYTES;
        if !first_slot.is_multiple_of(SLOTS_PER_PAGE) || offset + bytes > SPACE_BYTES {
            return Err(MemoryError::Misplaced { first_slot, end: u64::from(first_slot) + u64::from(slots) });
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: a part of the address space that is ours, replaced in one step for whoever reads it; the size was checked,
        // and the memory is sealed against shrinking by whoever made it.
        unsafe {
            let address = self.base.as_ptr().cast::<u8>().add(offset);
            rustix::mm::mmap(address.cast(), bytes, ProtFlags::READ, flags, memory, 0)?
        };
        Ok(())
    }

    /// A slot for which memory is mapped.
    fn slot(&self, slot: u32) -> &Slot {
        // SAFETY: whoever made the location knew that it is mapped, and it stays so as long as `self` lives. Only atomic
        // loads are made through it.
        unsafe { self.base.add(slot as usize).as_ref() }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: our own mapping; every reference into it borrows or counts `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), SPACE_BYTES) };
    }
}

/// Where one fence's value stands. Keeps the memory mapped.
#[derive(Clone, Debug)]
pub struct FenceLocation {
    space: Arc<Space>,
    slot: u32,
}

impl Location for FenceLocation {
    fn value(&self) -> u64 {
        FenceLocation::value(self)
    }
}

impl FenceLocation {
    /// The fence value now: one load.
    pub fn value(&self) -> u64 {
        self.space.slot(self.slot).value()
    }

    /// `FenceValueCPUVirtualAddress`.
    pub fn address(&self) -> u64 {
        std::ptr::from_ref(self.space.slot(self.slot)) as u64
    }
}

/// The fence memory of a session.
#[derive(Debug)]
pub struct FenceMemory {
    space: Arc<Space>,
    /// The slots of each piece.
    pieces: RwLock<Vec<Range<u32>>>,
}

impl FenceMemory {
    /// Reserves the address space, nothing mapped yet.
    pub fn reserve() -> Result<FenceMemory, MemoryError> {
        Ok(FenceMemory { space: Arc::new(Space::reserve()?), pieces: RwLock::default() })
    }

    /// The address of slot 0.
    pub fn address(&self) -> u64 {
        self.space.base.as_ptr() as u64
    }

    /// Maps a piece that the broker gave.
    pub fn add(&self, memory: BorrowedFd<'_>, first_slot: u32, slots: u32) -> Result<(), MemoryError> {
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        self.space.map(memory, first_slot, slots)?;
        pieces.push(first_slot..first_slot + slots);
        Ok(())
    }

    /// Gets each piece anew from a daemon that knows of so many slots; those that it gave and nobody took are a piece more.
    pub fn regain<D: AsFd>(
        &self,
        slots: u32,
        mut memory: impl FnMut(u32, u32) -> Result<D, AttachError>,
    ) -> Result<(), AttachError> {
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        let next = pieces.iter().map(|piece| piece.end).max().unwrap_or(0);
        if slots > next {
            pieces.push(next..slots);
        }
        for piece in &*pieces {
            let (first, slots) = (piece.start, piece.len() as u32);
            self.space.map(memory(first, slots)?.as_fd(), first, slots)?;
        }
        Ok(())
    }

    /// Slots of all pieces.
    pub fn slots(&self) -> u32 {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        pieces.iter().map(|piece| piece.len() as u32).fold(0, u32::saturating_add)
    }

    /// The place of a slot, if a piece holds it.
    pub fn locate(&self, slot: u32) -> Option<FenceLocation> {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let mapped = pieces.iter().any(|piece| piece.contains(&slot));
        mapped.then(|| FenceLocation { space: self.space.clone(), slot })
    }
}
