//! A process's fence memory as the daemon writes it: mapped here for a local process, guest RAM for
//! a process in a VM.
//!
//! `unsafe`: it maps memory that a client process reads at the same time.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;

use anyhow::Context as _;
use fence_page::{PAGE_BYTES, SLOT_BYTES, SLOTS_PER_PAGE, Slot};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use vsock_device::GuestMemory;
#[cfg(test)]
use vsock_device::locks::{Rank, is_held};

use super::backing::GuestCharge;
use super::shares::Share;

/// A memfd of whole pages, mapped for writing here and nowhere else.
#[derive(Debug)]
pub struct LocalRegion {
    base: NonNull<Slot>,
    pages: u32,
    /// Its part of the client's share of mappings.
    _share: Share,
}

// SAFETY: the mapping belongs to this value alone and lives as long; it contains atomics.
unsafe impl Send for LocalRegion {}

impl LocalRegion {
    /// Creates a region and the descriptor for the process, which is read-only and sealed: no process can map it for
    /// writing again.
    pub(super) fn create(pages: u32, share: Share) -> anyhow::Result<(LocalRegion, OwnedFd)> {
        let length = pages as usize * PAGE_BYTES;
        let memfd = rustix::fs::memfd_create("gpupv-fences", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .context("cannot create fence memory")?;
        rustix::fs::ftruncate(&memfd, length as u64)
            .with_context(|| format!("cannot size fence memory to {length} bytes"))?;
        // SAFETY: a new mapping at an address of the kernel's choice; no Rust object is there yet.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memfd,
                0,
            )
        }
        .context("cannot map fence memory")?;
        let base = NonNull::new(base.cast::<Slot>()).context("fence memory was mapped at address 0")?;
        let region = LocalRegion { base, pages, _share: share };
        let seals = SealFlags::FUTURE_WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memfd, seals).context("cannot seal fence memory")?;
        Ok((region, read_only(&memfd)?))
    }

    /// Number of its slots.
    pub fn slots(&self) -> u32 {
        self.pages * SLOTS_PER_PAGE
    }

    fn store(&self, slot: u32, value: u64) {
        debug_assert!(slot < self.pages * SLOTS_PER_PAGE);
        // SAFETY: the caller keeps `slot` below the region's slots; a zeroed page is valid `Slot`s.
        unsafe { self.base.add(slot as usize).as_ref() }.publish(value);
    }
}

impl Drop for LocalRegion {
    fn drop(&mut self) {
        #[cfg(test)]
        assert!(!is_held(Rank::Kernel), "fence memory is unmapped under the kernel lock");
        let length = self.pages as usize * PAGE_BYTES;
        // SAFETY: this is the mapping made in `create`; nothing refers into it after this value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), length) };
    }
}

/// A descriptor of the same memory that is open for reading only.
pub(super) fn read_only(memory: &OwnedFd) -> anyhow::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(File::open(&path).with_context(|| format!("cannot reopen {path} for reading"))?.into())
}

/// The memory of one process's slots.
#[derive(Debug)]
pub enum FenceMemory {
    /// Regions with the first slot of each, in order.
    Local(Vec<(u32, LocalRegion)>),
    Guest {
        memory: GuestMemory,
        /// Guest-physical address of each page, in order of slots.
        pages: Vec<u64>,
        /// Parts of the VM's quota, one for each message that added pages.
        charges: Vec<GuestCharge>,
    },
}

impl FenceMemory {
    /// Number of slots.
    pub fn slots(&self) -> u32 {
        match self {
            FenceMemory::Local(regions) => {
                regions.last().map_or(0, |(first, region)| first + region.pages * SLOTS_PER_PAGE)
            }
            FenceMemory::Guest { pages, .. } => pages.len() as u32 * SLOTS_PER_PAGE,
        }
    }

    /// Stores a value. A guest page that is no longer in the VM's memory table is an error, for the log. Nothing is stored
    /// for a guest that QEMU has stopped: once it goes on the kernel stores all its values again.
    pub fn store(&self, slot: u32, value: u64) -> anyhow::Result<()> {
        match self {
            FenceMemory::Local(regions) => {
                let at = regions.partition_point(|(first, _)| *first <= slot);
                let (first, region) =
                    at.checked_sub(1).map(|at| &regions[at]).context("slot has no memory")?;
                region.store(slot - first, value);
                Ok(())
            }
            FenceMemory::Guest { memory, pages, .. } => {
                let page = pages.get((slot / SLOTS_PER_PAGE) as usize).context("slot has no memory")?;
                let address = page + u64::from(slot % SLOTS_PER_PAGE) * SLOT_BYTES as u64;
                Ok(memory.while_driver_runs(|| memory.store_u64(address, value)).unwrap_or(Ok(()))?)
            }
        }
    }
}
