//! The process's fence memory: regions that the broker hands out, mapped shared and read-only.
//!
//! `unsafe` here: memory that the host writes is mapped, and slots are taken from it.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

use super::attach::AttachError;
use ::client::Location;
use fence_page::{PAGE_BYTES, Slot, pages_for};
use rustix::mm::{MapFlags, ProtFlags};

/// Why a memory descriptor cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("fence memory of {actual} bytes holds no {slots} slots")]
    TooSmall { actual: u64, slots: u32 },
    #[error("fence memory cannot be mapped: {0}")]
    Map(#[from] rustix::io::Errno),
}

/// One mapped region: slots `first_slot ..  first_slot + slots`.
#[derive(Debug)]
pub struct Region {
    first_slot: u32,
    slots: u32,
    base: NonNull<Slot>,
}

// SAFETY: the mapping is read-only here and its slots are atomics; it belongs to no thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a memory descriptor. The descriptor itself is not needed afterwards.
    pub fn map(memory: BorrowedFd<'_>, first_slot: u32, slots: u32) -> Result<Region, MemoryError> {
        let actual = rustix::fs::fstat(memory)?.st_size as u64;
        let bytes = pages_for(slots) as usize * PAGE_BYTES;
        if slots == 0 || actual < bytes as u64 {
            return Err(MemoryError::TooSmall { actual, slots });
        }
        // SAFETY: a new mapping at an address of the kernel's choice; the size was checked, and the
        // memory is sealed against shrinking by whoever made it.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                memory.as_fd(),
                0,
            )?
        };
        let base = NonNull::new(base.cast()).expect("mmap never answers NULL");
        Ok(Region { first_slot, slots, base })
    }

    /// Puts other memory in the place of this, with values that are as good.
    fn replace(&self, memory: BorrowedFd<'_>) -> Result<(), MemoryError> {
        let actual = rustix::fs::fstat(memory)?.st_size as u64;
        let bytes = pages_for(self.slots) as usize * PAGE_BYTES;
        if actual < bytes as u64 {
            return Err(MemoryError::TooSmall { actual, slots: self.slots });
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: our own mapping is replaced by one of the same length and protection, in one step for whoever reads it.
        unsafe { rustix::mm::mmap(self.base.as_ptr().cast(), bytes, ProtFlags::READ, flags, memory, 0)? };
        Ok(())
    }

    fn slot(&self, slot: u32) -> Option<&Slot> {
        let index = slot.checked_sub(self.first_slot).filter(|index| *index < self.slots)?;
        // SAFETY: inside the mapping, aligned to the slot size as the mapping is to pages, and
        // mapped as long as `self` lives. Only atomic loads are made through it.
        Some(unsafe { self.base.add(index as usize).as_ref() })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let bytes = pages_for(self.slots) as usize * PAGE_BYTES;
        // SAFETY: our own mapping; every reference into it borrows or counts `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), bytes) };
    }
}

/// Where one fence's value stands. Keeps its region mapped.
#[derive(Clone, Debug)]
pub struct FenceLocation {
    region: Arc<Region>,
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
        self.resolve().value()
    }

    /// `FenceValueCPUVirtualAddress`.
    pub fn address(&self) -> u64 {
        std::ptr::from_ref(self.resolve()) as u64
    }

    fn resolve(&self) -> &Slot {
        self.region.slot(self.slot).expect("checked when the location was made")
    }
}

/// All regions of a session.
#[derive(Debug)]
pub struct FenceMemory {
    regions: RwLock<Vec<Arc<Region>>>,
}

impl FenceMemory {
    pub fn new(first: Region) -> FenceMemory {
        FenceMemory { regions: RwLock::new(vec![Arc::new(first)]) }
    }

    pub fn add(&self, region: Region) {
        self.regions.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(region));
    }

    /// Gets each region anew from a daemon that knows of so many slots; those that it gave and nobody took are a region more.
    pub fn regain<D: AsFd>(
        &self,
        slots: u32,
        mut memory: impl FnMut(u32, u32) -> Result<D, AttachError>,
    ) -> Result<(), AttachError> {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = 0;
        for region in &*regions {
            region.replace(memory(region.first_slot, region.slots)?.as_fd())?;
            next = region.first_slot + region.slots;
        }
        if let Some(more @ 1..) = slots.checked_sub(next) {
            regions.push(Arc::new(Region::map(memory(next, more)?.as_fd(), next, more)?));
        }
        Ok(())
    }

    /// Slots of all regions.
    pub fn slots(&self) -> u32 {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.iter().map(|region| region.slots).fold(0, u32::saturating_add)
    }

    /// The place of a slot, if a region holds it.
    pub fn locate(&self, slot: u32) -> Option<FenceLocation> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let region = regions.iter().find(|region| region.slot(slot).is_some())?;
        Some(FenceLocation { region: region.clone(), slot })
    }
}
