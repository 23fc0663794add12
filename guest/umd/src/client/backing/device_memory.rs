//! Memory of the device in the address space of this process: mapped when it is attached, or at its first lock if another
//! process has created it; unmapped with its allocation, locked or not.
//!
//! `unsafe` here: memory is mapped and unmapped.

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use fence_page::PAGE_BYTES;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Where an allocation is mapped.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    start: usize,
    bytes: usize,
    /// Its first address at the host; 0 if another process has created it.
    address: u64,
}

impl DeviceMemory {
    /// Reserves address space for memory that has these addresses at the host.
    pub fn reserve(addresses: &Range<u64>) -> Result<DeviceMemory, Errno> {
        let bytes = (addresses.end - addresses.start) as usize;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags)? };
        Ok(DeviceMemory { start: start.expose_provenance(), bytes, address: addresses.start })
    }

    /// Maps pages that are attached at this address.
    pub fn map(&self, pages: BorrowedFd<'_>, address: u64, count: u32) -> Result<(), Errno> {
        let (offset, bytes) = ((address - self.address) as usize, count as usize * PAGE_BYTES);
        assert!(offset + bytes <= self.bytes, "{count} pages at {address:#x} are not of this memory");
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(self.start + offset);
        // SAFETY: the range was reserved above, and nothing but this value knows it yet.
        unsafe { mmap(start, bytes, protection, flags, pages, 0)? };
        // Not in the address space of children. Another thread may fork between the two calls.
        // SAFETY: the mapping just made; nothing in this process changes.
        unsafe { madvise(start, bytes, Advice::LinuxDontFork) }
    }

    /// Whether any of it is mapped in a range of the program's addresses.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        (self.start as u64) < range.end && (self.start + self.bytes) as u64 > range.start
    }

    /// The address for the program.
    pub fn start(&self) -> u64 {
        self.start as u64
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(self.start);
        // SAFETY: the mapping of this value. The program may not use the memory after the end of its allocation.
        let _ = unsafe { munmap(start, self.bytes) };
    }
}
