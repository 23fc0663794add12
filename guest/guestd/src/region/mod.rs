//! A region: pages of a memfd that the host writes. Fence values and the host's ring are read-only for the one client
//! process that gets them; backing pages of allocations and its own ring it may write too.
//!
//! The order matters: map, fill with zeroes, pin, *then* read the addresses (pinning may move a page), and seal last.
//! After `F_SEAL_FUTURE_WRITE` no process can make a writable mapping or write, not even by opening the memfd again;
//! the earlier mapping stays writable. The descriptor of a fence region is also open for reading only.
//!
//! `unsafe`: memory is mapped and unmapped here.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use fence_page::PAGE_BYTES;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::broker::Purpose;
use crate::pagemap::Pagemap;
use crate::pin::{Pin, Pinner};

/// Pages that stay where they are until this is dropped.
pub struct Region {
    // Declared before the mapping, so that it is unpinned first.
    _pin: Pin,
    _mapping: Mapping,
    /// Of device pages, for other processes.
    shareable: Option<OwnedFd>,
}

impl Region {
    /// A descriptor of device pages for another process. The error is a readable text.
    pub fn descriptor(&self) -> Result<OwnedFd, String> {
        let shareable = self.shareable.as_ref().ok_or("they are not memory of the device")?;
        shareable.try_clone().map_err(|error| format!("cannot copy a descriptor: {error}"))
    }
}

/// A new region with its addresses for the host and its descriptor for the process.
pub struct NewRegion {
    pub region: Region,
    /// Guest-physical address of each page.
    pub addresses: Vec<u64>,
    /// Sealed: its size cannot change; a fence region can only be read.
    pub descriptor: OwnedFd,
}

struct Mapping {
    start: *mut c_void,
    length_bytes: usize,
}

impl NewRegion {
    /// Makes a region of `pages` pages, all zero. The error is a readable text.
    pub fn make(purpose: Purpose, pages: u32, pinner: &Pinner, pagemap: &Pagemap) -> Result<Self, String> {
        let length_bytes = pages as usize * PAGE_BYTES;
        let memory = zeroed_memfd(purpose, length_bytes)
            .map_err(|error| format!("cannot make {length_bytes} bytes of memory: {error}"))?;
        let mapping = Mapping::new(&memory, length_bytes)?;
        // SAFETY: `Region` drops the pin before the mapping.
        let pin = unsafe { pinner.pin(mapping.start, length_bytes)? };
        let addresses = pagemap.physical_addresses(mapping.start as usize, pages)?;
        let descriptor =
            sealed(purpose, memory).map_err(|error| format!("cannot seal memory for a process: {error}"))?;
        let shareable = match purpose {
            Purpose::Fences | Purpose::Pages | Purpose::HostRing | Purpose::ProcessRing => None,
            Purpose::DevicePages => {
                let copy = descriptor.try_clone();
                Some(copy.map_err(|error| format!("cannot copy the descriptor of memory: {error}"))?)
            }
        };
        Ok(Self { region: Region { _pin: pin, _mapping: mapping, shareable }, addresses, descriptor })
    }
}

/// Makes a memfd and writes every page once, so that all are present.
fn zeroed_memfd(purpose: Purpose, length_bytes: usize) -> std::io::Result<File> {
    let name = match purpose {
        Purpose::Fences => "gpupv-fences",
        Purpose::Pages | Purpose::DevicePages => proto::limits::BACKING_MEMFD,
        Purpose::HostRing => "gpupv-ring-host",
        Purpose::ProcessRing => "gpupv-ring-process",
    };
    let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, length_bytes as u64)?;
    let memory = File::from(memory);
    for offset in (0..length_bytes).step_by(PAGE_BYTES) {
        memory.write_all_at(&[0; PAGE_BYTES], offset as u64)?;
    }
    Ok(memory)
}

/// Seals the memfd; what only the host writes is opened again for reading only.
fn sealed(purpose: Purpose, memory: File) -> std::io::Result<OwnedFd> {
    let size = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    match purpose {
        Purpose::Fences | Purpose::HostRing => {
            fcntl_add_seals(&memory, SealFlags::FUTURE_WRITE | size)?;
            Ok(File::open(format!("/proc/self/fd/{}", memory.as_raw_fd()))?.into())
        }
        Purpose::Pages | Purpose::DevicePages | Purpose::ProcessRing => {
            fcntl_add_seals(&memory, size)?;
            Ok(memory.into())
        }
    }
}

impl Mapping {
    fn new(memory: &File, length_bytes: usize) -> Result<Self, String> {
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no other.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                memory,
                0,
            )
        }
        .map_err(|error| format!("cannot map {length_bytes} bytes of a region: {error}"))?;
        Ok(Self { start, length_bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the range, and nothing refers into it: its pin was dropped before.
        let _ = unsafe { munmap(self.start, self.length_bytes) };
    }
}

#[cfg(test)]
mod tests;
