//! Pages that processes have attached as backing for engines: mapped here for a local process, guest RAM for one in a
//! VM.
//!
//! A process attaches pages at an address of its own, and names them by it. The broker allocates the pages, and the
//! process maps them in place of its own. Memory of the device has addresses beyond those of any process, and is mapped
//! elsewhere. So pages stay allocated whatever the process does, and no engine accesses them after detach or after the
//! process is gone. Those of a shared resource are *kept* then, under the same name, until their allocation ends:
//! processes that have it open map them too, and their engines access them.
//!
//! `unsafe`: it maps memory that a client process reads and writes at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use d3dkmt::limits::{DEVICE_MEMORY_END, DEVICE_MEMORY_START, USER_END};
use dxgkrnl::ProcessId;
use fence_page::PAGE_BYTES;
use proto::bulk::piece_bytes;
use proto::limits::{BACKING_MEMFD, BACKING_PAGES_MAX, PAGES_PER_MESSAGE_MAX};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
#[cfg(test)]
use vsock_device::locks::{Rank, is_held};
use vsock_device::{GuestMemory, MemoryError, has_ordinary_pages};

use super::limits::{MAPPINGS_PER_PROCESS_MAX, PIECES_PER_VM_MAX};
use super::shares::Share;

/// Bytes of the pieces in which brokers attach memory of the device.
pub const PIECE_BYTES: u64 = (PAGES_PER_MESSAGE_MAX * PAGE_BYTES) as u64;

/// A memfd of whole pages, mapped here and by one process.
#[derive(Debug)]
pub struct LocalPages {
    base: NonNull<u8>,
    bytes: usize,
    /// Its parts of the client's shares of mappings and of backing memory.
    shares: Option<[Share; 2]>,
    /// The memfd of shared memory, for other processes, with its part of the client's share of descriptors.
    shareable: Option<(OwnedFd, Share)>,
}

// SAFETY: the mapping belongs to this value alone and lives as long; its bytes are only copied, never referred to.
unsafe impl Send for LocalPages {}

impl LocalPages {
    /// Allocates zeroed pages; returns them with the descriptor for the process, which is sealed against resizing.
    pub fn create(pages: u32) -> anyhow::Result<(LocalPages, OwnedFd)> {
        let bytes = pages as usize * PAGE_BYTES;
        let memfd = rustix::fs::memfd_create(BACKING_MEMFD, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .context("cannot create memory")?;
        rustix::fs::ftruncate(&memfd, bytes as u64)
            .with_context(|| format!("cannot size memory to {bytes} bytes"))?;
        let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memfd, seals).context("cannot seal memory")?;
        Ok((LocalPages::map(memfd.as_fd(), bytes)?, memfd))
    }

    /// Maps pages that an earlier daemon allocated, from the descriptor of the process that has them. Requires that
    /// they are sealed against resizing.
    pub fn of(memory: impl AsFd, pages: u32) -> anyhow::Result<LocalPages> {
        let bytes = pages as usize * PAGE_BYTES;
        let seals = rustix::fs::fcntl_get_seals(&memory)
            .context("the memory to attach again is not sealable, so not pages of a daemon")?;
        anyhow::ensure!(
            seals.contains(SealFlags::GROW | SealFlags::SHRINK),
            "the memory to attach again is not sealed against resizing"
        );
        anyhow::ensure!(
            has_ordinary_pages(&memory),
            "the memory to attach again is of hugetlbfs, so not pages of a daemon"
        );
        let actual = rustix::fs::fstat(&memory)?.st_size as u64;
        anyhow::ensure!(
            bytes > 0 && actual == bytes as u64,
            "the memory to attach again has {actual} bytes, not {bytes}"
        );
        LocalPages::map(memory.as_fd(), bytes)
    }

    fn map(memfd: BorrowedFd<'_>, bytes: usize) -> anyhow::Result<LocalPages> {
        // SAFETY: a new mapping at an address of the kernel's choice; no Rust object is there.
        let base = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, memfd, 0)
        }
        .context("cannot map memory")?;
        let base = NonNull::new(base.cast::<u8>()).context("memory was mapped at address 0")?;
        Ok(LocalPages { base, bytes, shares: None, shareable: None })
    }

    /// The same pages, charged to a client's shares while mapped.
    pub(super) fn charged_to(self, shares: [Share; 2]) -> LocalPages {
        let mut charged = self;
        charged.shares = Some(shares);
        charged
    }

    /// The same pages, of which other processes may get this descriptor.
    pub(super) fn shareable(self, descriptor: OwnedFd, share: Share) -> LocalPages {
        let mut shareable = self;
        shareable.shareable = Some((descriptor, share));
        shareable
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        debug_assert!(offset + bytes.len() <= self.bytes);
        let size = piece_bytes(self.base.as_ptr().addr() + offset, bytes.as_ptr().addr());
        for (number, piece) in bytes.chunks_mut(size).enumerate() {
            let at = offset + number * size;
            // SAFETY: the caller keeps the range inside the mapping; `bytes` is borrowed exclusively and does not
            // overlap it. A concurrent write of the process may be read in part, as on any memory shared by two
            // processors.
            unsafe {
                std::ptr::copy_nonoverlapping(self.base.as_ptr().add(at), piece.as_mut_ptr(), piece.len());
            }
        }
    }

    /// Copies as `memmove` does, to a place that may be in the same pages.
    fn copy(&self, offset: usize, to: &LocalPages, target: usize, bytes: usize) {
        debug_assert!(offset + bytes <= self.bytes && target + bytes <= to.bytes);
        // SAFETY: both ranges are inside their mappings, which live as long as the two values; they may overlap.
        unsafe { std::ptr::copy(self.base.as_ptr().add(offset), to.base.as_ptr().add(target), bytes) }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        debug_assert!(offset + bytes.len() <= self.bytes);
        let size = piece_bytes(bytes.as_ptr().addr(), self.base.as_ptr().addr() + offset);
        for (number, piece) in bytes.chunks(size).enumerate() {
            let at = offset + number * size;
            // SAFETY: as above.
            unsafe {
                std::ptr::copy_nonoverlapping(piece.as_ptr(), self.base.as_ptr().add(at), piece.len());
            }
        }
    }
}

impl Drop for LocalPages {
    fn drop(&mut self) {
        // It may free megabytes.
        #[cfg(test)]
        assert!(!is_held(Rank::Kernel), "backing memory is unmapped under the kernel lock");
        // SAFETY: this is the mapping made in `map`; nothing refers into it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Tells the broker of a VM that kept pages of a process, at an address, are no longer accessed.
#[derive(Clone)]
pub struct ReleaseBacking(pub Arc<dyn Fn(ProcessId, u64) + Send + Sync>);

impl fmt::Debug for ReleaseBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseBacking").finish_non_exhaustive()
    }
}

/// Backing pages and fence memory that the processes of one VM have. Each page that a message names takes memory of the
/// daemon, also if the guest names the same page again.
#[derive(Debug, Default)]
pub struct GuestPagesQuota {
    pieces: AtomicUsize,
    pages: AtomicUsize,
}

impl GuestPagesQuota {
    /// Counts a piece. A VM may have each page of its memory attached once, in a limited number of pieces.
    fn charge(quota: &Arc<GuestPagesQuota>, pages: usize, pages_max: usize) -> anyhow::Result<GuestCharge> {
        let add = |count: &AtomicUsize, more: usize, most: usize| {
            let added = |before: usize| before.checked_add(more).filter(|after| *after <= most);
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).err()
        };
        if let Some(pieces) = add(&quota.pieces, 1, PIECES_PER_VM_MAX) {
            anyhow::bail!("the VM has {pieces} pieces of pages, the limit: attach larger ones");
        }
        if let Some(attached) = add(&quota.pages, pages, pages_max) {
            quota.pieces.fetch_sub(1, Ordering::Relaxed);
            anyhow::bail!(
                "the VM has {attached} pages attached, and {pages} more are over the {pages_max} of its memory"
            );
        }
        Ok(GuestCharge { quota: Arc::clone(quota), pages })
    }
}

/// One piece, counted until it is dropped.
#[derive(Debug)]
pub struct GuestCharge {
    quota: Arc<GuestPagesQuota>,
    pages: usize,
}

impl Drop for GuestCharge {
    fn drop(&mut self) {
        self.quota.pieces.fetch_sub(1, Ordering::Relaxed);
        self.quota.pages.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

/// What all pages that one session of guestd attaches have in common.
#[derive(Debug)]
pub struct GuestSession {
    pub memory: GuestMemory,
    /// `None` of a broker that is too old to keep pages.
    pub release: Option<ReleaseBacking>,
    pub quota: Arc<GuestPagesQuota>,
}

impl GuestSession {
    /// Counts a piece of so many pages; refused if the VM has too many.
    pub fn charge(&self, pages: usize) -> anyhow::Result<GuestCharge> {
        let pages_max = (self.memory.bytes() / PAGE_BYTES as u64) as usize;
        GuestPagesQuota::charge(&self.quota, pages, pages_max)
    }
}

/// Pages of a guest's memory.
#[derive(Debug)]
pub struct GuestPages {
    session: Arc<GuestSession>,
    /// Guest-physical address of each page.
    pages: Box<[u64]>,
    _charge: GuestCharge,
}

impl GuestPages {
    /// Counts the pages; refused if the VM has too many.
    pub fn of(session: &Arc<GuestSession>, pages: Vec<u64>) -> anyhow::Result<GuestPages> {
        let charge = session.charge(pages.len())?;
        Ok(GuestPages { session: Arc::clone(session), pages: pages.into(), _charge: charge })
    }

    /// Tells guestd that these pages, which it kept, are no longer accessed.
    pub fn release(&self, process: ProcessId, address: u64) {
        if let Some(ReleaseBacking(release)) = &self.session.release {
            release(process, address);
        }
    }
}

/// Checks the number of pages of one message.
pub fn check_count(pages: usize) -> anyhow::Result<()> {
    anyhow::ensure!(
        (1..=PAGES_PER_MESSAGE_MAX).contains(&pages),
        "{pages} pages at once, allowed are 1 to {PAGES_PER_MESSAGE_MAX}"
    );
    Ok(())
}

/// Checks guest-physical addresses of pages in one message.
pub fn check_addresses(memory: &GuestMemory, pages: &[u64]) -> anyhow::Result<()> {
    check_count(pages.len())?;
    for page in pages {
        anyhow::ensure!(page % PAGE_BYTES as u64 == 0, "page {page:#x} is not aligned");
        memory.check(*page, PAGE_BYTES as u64).with_context(|| format!("page {page:#x}"))?;
    }
    Ok(())
}

/// Pages that one message attached as backing.
#[derive(Debug)]
pub enum BackingPages {
    Local(LocalPages),
    Guest(GuestPages),
}

impl BackingPages {
    /// A descriptor for another process, of shared memory that is mapped here.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            BackingPages::Local(pages) => Some(pages.shareable.as_ref()?.0.as_fd()),
            BackingPages::Guest(_) => None,
        }
    }

    /// Whether they stay allocated although the process has detached them or is gone.
    fn can_outlive(&self) -> bool {
        match self {
            BackingPages::Local(_) => true,
            BackingPages::Guest(guest) => guest.session.release.is_some(),
        }
    }

    /// Bytes that are mapped here for them alone.
    fn mapped_bytes(&self) -> usize {
        match self {
            BackingPages::Local(pages) => pages.bytes,
            BackingPages::Guest(_) => 0,
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            BackingPages::Local(pages) => pages.bytes as u64,
            BackingPages::Guest(guest) => (guest.pages.len() * PAGE_BYTES) as u64,
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), BackingFault> {
        match self {
            BackingPages::Local(pages) => pages.read(offset as usize, bytes),
            BackingPages::Guest(GuestPages { session, pages, .. }) => {
                for (address, part) in runs(pages, offset, bytes.len()) {
                    session.memory.read(address, &mut bytes[part])?;
                }
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BackingFault> {
        match self {
            BackingPages::Local(pages) => pages.write(offset as usize, bytes),
            BackingPages::Guest(GuestPages { session, pages, .. }) => {
                for (address, part) in runs(pages, offset, bytes.len()) {
                    session.memory.write(address, &bytes[part])?;
                }
            }
        }
        Ok(())
    }
}

/// Splits a range of pages into runs of guest-physical addresses, each with its part of the bytes. Consecutive pages of
/// guest memory are one run.
fn runs(
    pages: &[u64],
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + use<'_> {
    let (mut page, mut within) = (offset as usize / PAGE_BYTES, offset as usize % PAGE_BYTES);
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let (first, start) = (pages[page] + within as u64, done);
        done = length.min(done + PAGE_BYTES - within);
        (page, within) = (page + 1, 0);
        while done < length && pages[page] == pages[page - 1] + PAGE_BYTES as u64 {
            done = length.min(done + PAGE_BYTES);
            page += 1;
        }
        Some((first, start..done))
    })
}

/// Why bytes of a process cannot be accessed. A plain value without allocation, because an engine may cause any number
/// of them.
#[derive(Debug, thiserror::Error)]
pub enum BackingFault {
    #[error("{0:#x} is not backing")]
    NotBacked(u64),
    #[error(transparent)]
    Guest(#[from] MemoryError),
}

/// All backing pages of one process, by its address there. Disjoint.
#[derive(Default, Debug)]
pub struct ProcessBacking {
    pieces: BTreeMap<u64, BackingPages>,
    /// Addresses of pieces that the process has detached, or that outlive it.
    kept: BTreeSet<u64>,
    /// Bytes of all pieces.
    bytes: u64,
}

impl ProcessBacking {
    /// Checks whether `pages` pages may be attached at an address.
    pub fn check(&self, address: u64, pages: u32) -> anyhow::Result<()> {
        check_count(pages as usize)?;
        let range = if address >= DEVICE_MEMORY_START { DEVICE_MEMORY_END } else { USER_END };
        let end = address.checked_add(u64::from(pages) * PAGE_BYTES as u64).filter(|end| *end <= range);
        let end = end.filter(|_| address.is_multiple_of(PAGE_BYTES as u64));
        let end = end.with_context(|| format!("{pages} pages at {address:#x} are no pages of a process"))?;
        let before = self.pieces.range(..end).next_back();
        if let Some((start, backing)) = before.filter(|(start, backing)| *start + backing.bytes() > address) {
            anyhow::bail!(
                "{pages} pages at {address:#x} overlap the {:#x} bytes backing at {start:#x}",
                backing.bytes()
            );
        }
        let backing = self.pages();
        anyhow::ensure!(
            pages <= BACKING_PAGES_MAX - backing.min(BACKING_PAGES_MAX),
            "the process has {backing} of at most {BACKING_PAGES_MAX} backing pages"
        );
        Ok(())
    }

    /// Checks whether the process may have another mapping here: the limit leaves some for other processes of its user.
    pub fn check_mappings(&self) -> anyhow::Result<()> {
        let pieces = self.pieces.len();
        anyhow::ensure!(
            pieces < MAPPINGS_PER_PROCESS_MAX,
            "the process has {pieces} pieces of backing pages, the limit: detach some, or attach larger ones"
        );
        Ok(())
    }

    /// The memory of its guest, if it has pages of one.
    pub fn guest_memory(&self) -> Option<&GuestMemory> {
        self.pieces.values().next().and_then(|pages| match pages {
            BackingPages::Local(_) => None,
            BackingPages::Guest(GuestPages { session, .. }) => Some(&session.memory),
        })
    }

    /// Number of pieces; each one of a local process is a mapping of its own.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    pub fn pages(&self) -> u32 {
        (self.bytes / PAGE_BYTES as u64) as u32
    }

    /// Bytes that are mapped here.
    pub fn mapped_bytes(&self) -> usize {
        self.pieces.values().map(BackingPages::mapped_bytes).sum()
    }

    /// Adds pages that [`ProcessBacking::check`] accepted.
    pub fn add(&mut self, address: u64, pages: BackingPages) {
        self.bytes += pages.bytes();
        self.pieces.insert(address, pages);
    }

    /// Detaches the pages at an address and returns them: they are no longer accessed. `None` if there are none.
    pub fn detach(&mut self, address: u64) -> Option<BackingPages> {
        if self.kept.contains(&address) { None } else { self.remove(address) }
    }

    fn remove(&mut self, address: u64) -> Option<BackingPages> {
        self.kept.remove(&address);
        let removed = self.pieces.remove(&address);
        self.bytes -= removed.as_ref().map_or(0, BackingPages::bytes);
        removed
    }

    /// Keeps the pages at an address, although the process has detached them. False if it has none there that can be
    /// kept.
    pub fn keep(&mut self, address: u64) -> bool {
        self.pieces.get(&address).is_some_and(BackingPages::can_outlive) && self.kept.insert(address)
    }

    /// Splits off the pages for which this is true, which are kept from here on. Only memory of the device is shared, so
    /// the pages of the process's own addresses, of which it may have many, are not looked at.
    pub fn split_off_kept(&mut self, outlives: impl Fn(u64) -> bool) -> ProcessBacking {
        let mut kept = ProcessBacking::default();
        let of_device = self.pieces.range(DEVICE_MEMORY_START..);
        let pieces = of_device.filter(|(address, pages)| pages.can_outlive() && outlives(**address));
        for address in pieces.map(|(address, _)| *address).collect::<Vec<_>>() {
            if let Some(pages) = self.remove(address) {
                kept.add(address, pages);
                kept.keep(address);
            }
        }
        kept
    }

    /// Removes kept pages in a range of addresses, and returns each.
    pub fn release(&mut self, start: u64, bytes: u64) -> Vec<(u64, BackingPages)> {
        let ended: Vec<u64> = self.kept.range(start..start.saturating_add(bytes)).copied().collect();
        ended.into_iter().filter_map(|address| Some((address, self.remove(address)?))).collect()
    }

    /// The pages that were attached at an address.
    pub fn piece(&self, address: u64) -> Option<&BackingPages> {
        self.pieces.get(&address)
    }

    /// First addresses of kept pages.
    pub fn kept(&self) -> impl Iterator<Item = u64> {
        self.kept.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Reads bytes at an address of the process.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), BackingFault> {
        let mut done = 0;
        while done < bytes.len() {
            let (backing, offset, length) = self.find(address + done as u64, bytes.len() - done)?;
            backing.read(offset, &mut bytes[done..done + length])?;
            done += length;
        }
        Ok(())
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), BackingFault> {
        let mut done = 0;
        while done < bytes.len() {
            let (backing, offset, length) = self.find(address + done as u64, bytes.len() - done)?;
            backing.write(offset, &bytes[done..done + length])?;
            done += length;
        }
        Ok(())
    }

    /// Copies as `memmove` does, directly between two processes' pages, if each range lies in one piece that is mapped
    /// here. True if it did.
    pub fn copy(&self, address: u64, to: &ProcessBacking, target: u64, bytes: usize) -> bool {
        let (Ok((from, offset, here)), Ok((to, target, there))) =
            (self.find(address, bytes), to.find(target, bytes))
        else {
            return false;
        };
        match (from, to) {
            (BackingPages::Local(from), BackingPages::Local(to)) if here == bytes && there == bytes => {
                from.copy(offset as usize, to, target as usize, bytes);
                true
            }
            _ => false,
        }
    }

    /// Finds the piece and offset of an address, and how many of `length` bytes are there.
    fn find(&self, address: u64, length: usize) -> Result<(&BackingPages, u64, usize), BackingFault> {
        let backing = self.pieces.range(..=address).next_back();
        let backing = backing
            .map(|(first, backing)| (backing, address - first))
            .filter(|(backing, at)| *at < backing.bytes());
        let (backing, offset) = backing.ok_or(BackingFault::NotBacked(address))?;
        Ok((backing, offset, length.min((backing.bytes() - offset) as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(count: u32) -> BackingPages {
        BackingPages::Local(LocalPages::create(count).unwrap().0)
    }

    #[test]
    fn adjacent_pieces_are_read_and_written_as_one() {
        let mut backing = ProcessBacking::default();
        backing.add(0x10000, pages(2));
        backing.add(0x12000, pages(1));
        let written: Vec<u8> = (0..0x2800).map(|at: u32| (at % 251) as u8).collect();
        backing.write(0x10400, &written).unwrap();
        let mut read = vec![0; written.len()];
        backing.read(0x10400, &mut read).unwrap();
        assert_eq!(read, written);
        for (address, length) in [(0xFFFF, 2), (0x12FFF, 2), (0x13000, 1), (0, 1)] {
            let error = backing.read(address, &mut vec![0; length]).unwrap_err().to_string();
            assert!(error.ends_with("is not backing"), "{error}");
        }
        assert!(backing.detach(0x10000).is_some() && backing.detach(0x10000).is_none());
        assert!(backing.write(0x10400, &written).is_err());
    }

    #[test]
    fn kept_pages_are_accessed_until_they_are_released() {
        const START: u64 = DEVICE_MEMORY_START;
        let mut backing = ProcessBacking::default();
        backing.add(START, pages(2));
        backing.add(0x10000, pages(1));
        assert!(backing.keep(START) && !backing.keep(START) && !backing.keep(0x9000));
        assert!(backing.detach(START).is_none(), "the process has detached it before");
        backing.write(START + 0x1800, &[7]).unwrap();
        let mut kept = backing.split_off_kept(|address| address >= START);
        assert_eq!((backing.pieces(), kept.kept().collect::<Vec<_>>()), (1, vec![START]));
        let mut byte = [0];
        kept.read(START + 0x1800, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        assert!(kept.release(START + 0x2000, 0x2000).is_empty());
        assert_eq!(kept.release(START, 0x2000).len(), 1);
        assert!(kept.is_empty() && kept.read(START + 0x1800, &mut byte).is_err());
    }

    /// A hole in it could not be filled again.
    #[test]
    fn pages_of_hugetlbfs_are_not_attached_again() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let memory = match rustix::fs::memfd_create("huge", flags) {
            Ok(memory) => memory,
            Err(error) => return eprintln!("this system makes no memory of hugetlbfs: {error}"),
        };
        rustix::fs::ftruncate(&memory, 2 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK).unwrap();
        let refused = LocalPages::of(&memory, 512).unwrap_err().to_string();
        assert!(refused.contains("is of hugetlbfs"), "{refused}");
    }

    /// An access beyond its end would end the daemon.
    #[test]
    fn pages_that_can_be_shortened_or_are_too_few_are_not_attached_again() {
        let memory = |pages: u64, seals| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let memory = rustix::fs::memfd_create("pages", flags).unwrap();
            rustix::fs::ftruncate(&memory, pages * PAGE_BYTES as u64).unwrap();
            rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
            memory
        };
        let sealed = SealFlags::GROW | SealFlags::SHRINK;
        for (seals, pages, words) in [
            (SealFlags::GROW, 2, "is not sealed against resizing"),
            (SealFlags::SHRINK, 2, "is not sealed against resizing"),
            (sealed, 3, "has 8192 bytes, not 12288"),
            (sealed, 1, "has 8192 bytes, not 4096"),
            (sealed, 0, "has 8192 bytes, not 0"),
        ] {
            let refused = LocalPages::of(memory(2, seals), pages).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        assert_eq!(LocalPages::of(memory(2, sealed), 2).unwrap().bytes, 2 * PAGE_BYTES);
    }

    #[test]
    fn a_process_has_so_many_backing_pages_and_detached_ones_do_not_count() {
        let mut backing = ProcessBacking::default();
        let piece = PAGES_PER_MESSAGE_MAX as u32;
        let address = |number: u32| 0x10_0000 + u64::from(number) * PIECE_BYTES;
        backing.add(address(0), pages(1));
        backing.bytes += u64::from(BACKING_PAGES_MAX - piece) * PAGE_BYTES as u64;
        let refused = backing.check(address(1), piece).unwrap_err().to_string();
        assert!(refused.contains(&format!("of at most {BACKING_PAGES_MAX} backing pages")), "{refused}");
        assert!(backing.check(address(1), piece - 1).is_ok());
        drop(backing.detach(address(0)));
        assert!(backing.check(address(1), piece).is_ok());
    }

    #[test]
    fn a_guest_attaches_no_more_pieces_than_its_vm_may_have_and_no_page_twice() {
        let quota = Arc::new(GuestPagesQuota::default());
        let charge = |pages| GuestPagesQuota::charge(&quota, pages, 1 << 20);
        let mut pieces: Vec<_> = (0..PIECES_PER_VM_MAX).map(|_| charge(1).unwrap()).collect();
        assert!(charge(1).unwrap_err().to_string().contains("pieces of pages, the limit"));
        pieces.pop();
        let many = (1 << 20) - pieces.len();
        assert!(charge(many + 1).unwrap_err().to_string().contains("are over the 1048576 of its memory"));
        let rest = charge(many).unwrap();
        drop((rest, pieces));
        assert_eq!((quota.pieces.load(Ordering::Relaxed), quota.pages.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn pages_at_addresses_of_the_process_are_not_looked_at_when_it_ends() {
        let mut backing = ProcessBacking::default();
        for address in [0x10000, 0x20000, DEVICE_MEMORY_START] {
            backing.add(address, pages(1));
        }
        let looked_at = std::cell::RefCell::new(Vec::new());
        let kept = backing.split_off_kept(|address| {
            looked_at.borrow_mut().push(address);
            true
        });
        assert_eq!(looked_at.into_inner(), [DEVICE_MEMORY_START]);
        assert_eq!((backing.pieces(), kept.pieces()), (2, 1));
    }

    #[test]
    fn a_copy_inside_of_a_piece_is_a_memmove_and_one_across_pieces_is_not_done() {
        let mut backing = ProcessBacking::default();
        backing.add(0x10000, pages(2));
        backing.add(0x12000, pages(1));
        let written: Vec<u8> = (0..0x1000).map(|at: u32| (at % 251) as u8).collect();
        backing.write(0x10000, &written).unwrap();
        assert!(backing.copy(0x10000, &backing, 0x10004, 0x1000), "they overlap");
        let mut read = vec![0; written.len()];
        backing.read(0x10004, &mut read).unwrap();
        assert_eq!(read, written);
        assert!(
            !backing.copy(0x10000, &backing, 0x11800, 0x1000) && !backing.copy(0x20000, &backing, 0x10000, 1)
        );
    }

    #[test]
    fn overlapping_unaligned_and_excessive_pages_are_refused() {
        let mut backing = ProcessBacking::default();
        backing.add(0x10000, pages(4));
        let wrong = [
            (0x10000, 1, "overlap the 0x4000 bytes backing at 0x10000"),
            (0xF000, 2, "overlap"),
            (0x13000, 1, "overlap"),
            (0x14800, 1, "no pages of a process"),
            (USER_END - 0x1000, 2, "no pages of a process"),
            (DEVICE_MEMORY_END - 0x1000, 2, "no pages of a process"),
            (DEVICE_MEMORY_START + 8, 1, "no pages of a process"),
            (u64::MAX - 0xFFF, 1, "no pages of a process"),
            (0x20000, 0, "allowed are 1 to 4096"),
            (0x20000, 4097, "allowed are 1 to 4096"),
        ];
        for (address, count, words) in wrong {
            let error = backing.check(address, count).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        for address in [0x14000, 0xF000, DEVICE_MEMORY_START] {
            assert!(backing.check(address, 1).is_ok());
        }
    }

    #[test]
    fn pages_that_follow_one_another_are_one_run() {
        let pages = [0x5000, 0x6000, 0x9000, 0xA000, 0x1000];
        let found: Vec<_> = runs(&pages, 0x800, 0x4000).collect();
        assert_eq!(found, [(0x5800, 0..0x1800), (0x9000, 0x1800..0x3800), (0x1000, 0x3800..0x4000)]);
        assert_eq!(runs(&pages, 0x1000, 4).collect::<Vec<_>>(), [(0x6000, 0..4)]);
    }
}
