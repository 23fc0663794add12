//! The process's fence memory: pieces that the broker hands out, mapped shared and read-only.
//!
//! ```text
//!   address space reserved for all slots that a process may have; Hello carries its base
//!   +---------+---------+------------------------------- .. -+
//!   | slots 0.| next    | nothing mapped                     |
//!   +---------+---------+------------------------------- .. -+
//! ```
//! So one number gives the host the address of each fence, which engines of an IoMmu adapter need (FEN-008).
//!
//! `unsafe` here: memory that the host writes is mapped, and slots are referenced in it.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

use super::attach::AttachError;
use ::client::Location;
use d3dkmt::limits::FENCE_SLOTS_PER_PROCESS_MAX;
use fence_page::{PAGE_BYTES, SLOT_BYTES, SLOTS_PER_PAGE, Slot, pages_for};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Why a memory descriptor cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("fence memory of {actual} bytes is too small for {slots} slots")]
    TooSmall { actual: u64, slots: u32 },
    #[error("fence memory begins at slot {first_slot}, inside a page")]
    Misplaced { first_slot: u32 },
    #[error("there is address space for only {slots} fence slots: is it limited (ulimit -v, ulimit -l)?")]
    NoSpace { slots: usize },
    #[error("cannot map the fence memory: {0}")]
    Map(#[from] Errno),
}

/// Address space for the slots of the process.
#[derive(Debug)]
struct Space {
    base: NonNull<Slot>,
    bytes: usize,
}

/// For every slot that a process may have.
const SPACE_BYTES_MAX: usize = FENCE_SLOTS_PER_PROCESS_MAX as usize * SLOT_BYTES;
/// A process with limited address space reserves less: at least 1024 slots.
const SPACE_BYTES_MIN: usize = 1024 * SLOT_BYTES;

// SAFETY: the mapping is read-only here and its slots are atomics; it belongs to no thread.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

impl Space {
    /// Reserves the maximum, or as much as the limits allow (RLIMIT_AS, RLIMIT_MEMLOCK).
    fn reserve() -> Result<Space, MemoryError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let mut bytes = SPACE_BYTES_MAX;
        loop {
            // SAFETY: a new mapping at an address of the kernel's choice, without access rights.
            let base =
                unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags) };
            match base {
                Ok(base) => {
                    let base = NonNull::new(base.cast()).expect("mmap never answers NULL");
                    return Ok(Space { base, bytes });
                }
                Err(Errno::NOMEM | Errno::AGAIN) if bytes > SPACE_BYTES_MIN => bytes /= 4,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Maps memory for these slots, replacing what is mapped there. The descriptor is not needed afterwards.
    fn map(&self, memory: BorrowedFd<'_>, first_slot: u32, slots: u32) -> Result<(), MemoryError> {
        let actual = rustix::fs::fstat(memory)?.st_size as u64;
        let bytes = pages_for(slots) as usize * PAGE_BYTES;
        if slots == 0 || actual < bytes as u64 {
            return Err(MemoryError::TooSmall { actual, slots });
        }
        let offset = first_slot as usize * SLOT_BYTES;
        if !first_slot.is_multiple_of(SLOTS_PER_PAGE) {
            return Err(MemoryError::Misplaced { first_slot });
        }
        if offset + bytes > self.bytes {
            return Err(MemoryError::NoSpace { slots: self.bytes / SLOT_BYTES });
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: a part of the reserved address space, replaced atomically for its readers; the size was checked, and
        // the memory's creator sealed it against shrinking.
        unsafe {
            let address = self.base.as_ptr().cast::<u8>().add(offset);
            rustix::mm::mmap(address.cast(), bytes, ProtFlags::READ, flags, memory, 0)?
        };
        Ok(())
    }

    /// A slot whose memory is mapped.
    fn slot(&self, slot: u32) -> &Slot {
        // SAFETY: a location is created only for a mapped slot, which stays mapped as long as `self` lives. Only atomic
        // loads are made through it.
        unsafe { self.base.add(slot as usize).as_ref() }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: our own mapping; every reference into it borrows or counts `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Where one fence's value is stored. Keeps the memory mapped.
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

/// The slots and the descriptor of each piece of a restarted daemon's memory.
#[derive(Debug)]
pub struct RegainedMemory<D>(Vec<(Range<u32>, D)>);

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

    /// Asks for each piece again, from a daemon that knows of `slots` slots. Slots that the daemon granted and the
    /// process never mapped become one more piece. The old memory stays mapped until [`FenceMemory::replace`].
    pub fn regain<D: AsFd>(
        &self,
        slots: u32,
        mut memory: impl FnMut(u32, u32) -> Result<D, AttachError>,
    ) -> Result<RegainedMemory<D>, AttachError> {
        let mut pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner).clone();
        let next = pieces.iter().map(|piece| piece.end).max().unwrap_or(0);
        if slots > next {
            pieces.push(next..slots);
        }
        let regain = |piece: Range<u32>| Ok((piece.clone(), memory(piece.start, piece.len() as u32)?));
        pieces.into_iter().map(regain).collect::<Result<_, AttachError>>().map(RegainedMemory)
    }

    /// Maps memory of a restarted daemon over the old. Call it only after that daemon's Welcome: until then the bytes that
    /// a new value stands for may not be in memory yet.
    pub fn replace<D: AsFd>(&self, regained: &RegainedMemory<D>) -> Result<(), MemoryError> {
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        for (piece, memory) in &regained.0 {
            self.space.map(memory.as_fd(), piece.start, piece.len() as u32)?;
            if !pieces.contains(piece) {
                pieces.push(piece.clone());
            }
        }
        Ok(())
    }

    /// Slots of all pieces.
    pub fn slots(&self) -> u32 {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        pieces.iter().map(|piece| piece.len() as u32).fold(0, u32::saturating_add)
    }

    /// The location of a slot, if a piece has it.
    pub fn locate(&self, slot: u32) -> Option<FenceLocation> {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let mapped = pieces.iter().any(|piece| piece.contains(&slot));
        mapped.then(|| FenceLocation { space: self.space.clone(), slot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    fn pages(count: u64) -> OwnedFd {
        let memory = rustix::fs::memfd_create("fences", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, count * PAGE_BYTES as u64).unwrap();
        memory
    }

    #[test]
    fn slots_follow_each_other_whatever_piece_they_came_with() {
        let memory = FenceMemory::reserve().unwrap();
        memory.add(pages(1).as_fd(), 0, 64).unwrap();
        memory.add(pages(2).as_fd(), 64, 128).unwrap();
        assert_eq!(memory.slots(), 192);
        for slot in [0, 63, 64, 191] {
            assert_eq!(memory.locate(slot).unwrap().address(), memory.address() + 64 * u64::from(slot));
            assert_eq!(memory.locate(slot).unwrap().value(), 0);
        }
        assert!(memory.locate(192).is_none());
    }

    #[test]
    fn a_piece_that_does_not_fit_is_refused_and_no_slot_of_it_is_located() {
        let memory = FenceMemory::reserve().unwrap();
        let add = |first, slots| memory.add(pages(1).as_fd(), first, slots);
        assert!(matches!(add(1, 64), Err(MemoryError::Misplaced { first_slot: 1 })));
        assert!(matches!(add(0, 65), Err(MemoryError::TooSmall { .. })));
        assert!(matches!(add(0, 0), Err(MemoryError::TooSmall { .. })));
        assert!(matches!(add(FENCE_SLOTS_PER_PROCESS_MAX, 64), Err(MemoryError::NoSpace { .. })));
        assert!(matches!(add(u32::MAX - 63, 64), Err(MemoryError::NoSpace { .. })));
        assert_eq!((memory.slots(), memory.locate(0).is_none()), (0, true));
        add(FENCE_SLOTS_PER_PROCESS_MAX - 64, 64).unwrap();
    }

    #[test]
    fn memory_that_is_not_got_back_is_not_located() {
        let memory = FenceMemory::reserve().unwrap();
        memory.add(pages(1).as_fd(), 0, 64).unwrap();
        let first_pages_only = |first, _| if first == 0 { Ok(pages(1)) } else { Err(AttachError::Closed) };
        assert!(memory.regain(128, first_pages_only).is_err());
        let regained = memory.regain(128, |_, _| Ok::<_, AttachError>(pages(1))).unwrap();
        assert_eq!((memory.slots(), memory.locate(64).is_none()), (64, true));
        memory.replace(&regained).unwrap();
        assert_eq!(memory.locate(127).unwrap().value(), 0);
    }
}
