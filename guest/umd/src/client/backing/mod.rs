//! Backing pages: the process's own memory behind its allocations, which the host's engines read and write.
//!
//! ```text
//!   D3DKMTCreateAllocation ─▶ the broker makes pages that the host can access ─▶ they get the memory's bytes
//!                          ─▶ they are mapped in place of the memory: same address, same bytes
//!   the last allocation of a page is destroyed ─▶ the pages are detached at the host; the process keeps them, privately
//!   .. and another handle or queued work uses it ─▶ they stay attached; later calls ask the host again
//!
//!   .. with private driver data ─▶ its address is recorded
//!   Map.., Update..GpuVirtualAddress ─▶ what they map is attached, before the call is sent
//!
//!   .. without pSystemMem: memory of the device ─▶ its address at the host is recorded
//!   its first Map.., Update..GpuVirtualAddress, Lock2, or at once if it is shared ─▶ zeroed pages of the broker are
//!                          attached at that address, and mapped anywhere, where Lock2 finds them until it ends
//!   .. of a shared resource that another process has created ─▶ its first Lock2 gets that process's pages of the broker
//! ```
//! So no page of a process is pinned without its knowledge. A process that exits, unmaps the memory or is killed frees
//! no page that the host still writes. Pages that stay attached are the program's memory meanwhile, as pages that Windows
//! has locked are, until it unmaps them. Another thread must not write the memory while an allocation of it is being
//! created. Backed memory is shared with a child that is forked meanwhile; memory of the device is not in its address space.
//!
//! `unsafe` here: the process's memory is replaced.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use d3dkmt::limits::{DEVICE_MEMORY_START, LOCKS_PER_ALLOCATION_MAX};
use d3dkmt::{Handle, NtStatus};
use fence_page::PAGE_BYTES;
use proto::limits::PAGES_PER_MESSAGE_MAX;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use super::attach::{AttachError, Detach};
use crate::notice::print;

mod device_memory;
mod file;
mod maps;
mod pieces;

use device_memory::DeviceMemory;
pub use file::BackingFile;
use maps::{Mapping, OwnMaps};
use pieces::Pieces;

/// No address.
const NOTHING: Range<u64> = 0..0;

/// Provides pages that the host can access.
pub trait BackingProvider {
    /// Provides pages for the memory at this address.
    fn attach_backing(&self, address: u64, pages: u32) -> Result<Arc<BackingFile>, AttachError>;
    /// Detaches the pages that were attached at this address: the host no longer accesses them.
    fn detach_backing(&self, address: u64) -> Result<(), AttachError>;
    /// The same, unless they are in use.
    fn release_backing(&self, address: u64) -> Result<Detach, AttachError>;
    /// Provides the piece at an offset of shared memory that the process has opened, and the bytes of all of it.
    fn share_backing(&self, allocation: Handle, offset: u64) -> Result<(OwnedFd, u64), AttachError>;
    /// The process no longer has that memory.
    fn forget_shared(&self, allocation: Handle);
}

/// Why memory cannot be attached as backing. The texts are for the user of the program.
#[derive(Debug, thiserror::Error)]
pub enum BackingError {
    #[error("not all of {0:#x?} is mapped for reading and writing")]
    NotMapped(Range<u64>),
    #[error("{at:#x} is in a shared mapping ({name}): only private memory can back an allocation")]
    Shared { at: u64, name: String },
    #[error("cannot read /proc/thread-self/maps: {0}")]
    Maps(std::io::Error),
    #[error(transparent)]
    Broker(#[from] AttachError),
    #[error("cannot copy the memory into its backing pages: {0}")]
    Fill(std::io::Error),
    #[error("a file of {0} bytes is needed: is the limit of file sizes lower (ulimit -f)?")]
    FileSize(usize),
    #[error("cannot map the backing pages: {0}")]
    Map(rustix::io::Errno),
}

impl From<&BackingError> for NtStatus {
    fn from(error: &BackingError) -> NtStatus {
        match error {
            BackingError::NotMapped(_) => NtStatus::INVALID_PARAMETER,
            BackingError::Shared { .. } => NtStatus::NOT_SUPPORTED,
            BackingError::Maps(_)
            | BackingError::Broker(_)
            | BackingError::Fill(_)
            | BackingError::FileSize(_)
            | BackingError::Map(_) => NtStatus::NO_MEMORY,
        }
    }
}

/// With fewer locks than these, another one is below the host's limit, although locks and unlocks of other threads may
/// reach the host in another order than they were counted in.
const LOCKS_KNOWN_TO_FIT: u32 = LOCKS_PER_ALLOCATION_MAX / 2;

/// What an allocation belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Parents {
    pub device: Handle,
    /// NULL without one.
    pub resource: Handle,
}

#[derive(Debug)]
struct AllocationBacking {
    parents: Parents,
    memory: AllocationMemory,
    /// Locks of its handle that were not ended.
    locks: u32,
    /// The program's address of it, once the host has answered a lock.
    locked_at: Option<u64>,
}

impl AllocationBacking {
    fn new(parents: Parents, memory: AllocationMemory) -> AllocationBacking {
        AllocationBacking { parents, memory, locks: 0, locked_at: None }
    }
}

#[derive(Debug)]
enum AllocationMemory {
    /// Of the process, attached as a whole.
    Attached,
    /// Of the process, attached as far as it is mapped. `bytes`: its size, if the driver knows it.
    AsMapped { address: u64, bytes: Option<u64> },
    /// Of the device: its addresses at the host, and where it is mapped once it is attached.
    Device { addresses: Range<u64>, mapped: Option<DeviceMemory> },
    /// Of a resource that this process has opened, and where shared memory of the device is mapped once it was locked.
    Opened(Option<DeviceMemory>),
}

/// All backing pages of this process.
#[derive(Default, Debug)]
pub struct ProcessBacking {
    pieces: Pieces,
    allocations: BTreeMap<Handle, AllocationBacking>,
}

impl ProcessBacking {
    /// Attaches the memory of an allocation, except parts that back other allocations already.
    pub fn add(
        &mut self,
        backing_provider: &impl BackingProvider,
        parents: Parents,
        allocation: Handle,
        memory: Range<u64>,
    ) -> Result<(), BackingError> {
        let range = whole_pages(&memory).ok_or(BackingError::NotMapped(memory))?;
        let maps = OwnMaps::open().and_then(|mut maps| maps.of(&self.pieces.with_pieces(&range)));
        let maps = maps.map_err(BackingError::Maps)?;
        self.pieces.forget_replaced(backing_provider, &range, &maps);
        let gaps = self.pieces.gaps(&range);
        for gap in &gaps {
            require_own(&maps, gap, |mapped| self.maps_device_memory(mapped))?;
        }
        if !gaps.is_empty() {
            self.pieces.detach_unused(backing_provider, &range);
        }
        for (address, pages) in gaps.iter().flat_map(requests) {
            let attached = self.pieces.attach(backing_provider, address, pages, &range);
            let replaced = attached.map_err(BackingError::Broker).and_then(|memory| {
                self.pieces.insert(address, pages, Arc::clone(&memory));
                replace(memory.as_fd(), address, pages, &maps)
            });
            if let Err(error) = replaced {
                // Pages that are mapped already stay, with their bytes: they are ordinary memory.
                self.pieces.detach_unused(backing_provider, &NOTHING);
                return Err(error);
            }
        }
        self.pieces.include(&range, allocation);
        let known = AllocationBacking::new(parents, AllocationMemory::Attached);
        self.allocations.entry(allocation).or_insert(known);
        Ok(())
    }

    /// Records the memory of an allocation, of which [`ProcessBacking::add_mapped`] attaches what is mapped. `bytes`: its
    /// size, if the driver knows it.
    pub fn record(&mut self, parents: Parents, allocation: Handle, address: u64, bytes: Option<u64>) {
        let memory = AllocationMemory::AsMapped { address, bytes };
        self.allocations.insert(allocation, AllocationBacking::new(parents, memory));
    }

    /// Records memory of the device, which has these addresses at the host. [`ProcessBacking::add_mapped`] and
    /// [`ProcessBacking::locked`] attach all of it before engines or the CPU can access any.
    pub fn record_device_memory(&mut self, parents: Parents, allocation: Handle, addresses: Range<u64>) {
        let memory = AllocationMemory::Device { addresses, mapped: None };
        self.allocations.insert(allocation, AllocationBacking::new(parents, memory));
    }

    /// The host has locked an allocation, and answered this address. Returns the one for the program; `None` if the
    /// memory has ended meanwhile.
    pub fn locked(
        &mut self,
        backing_provider: &impl BackingProvider,
        device: Handle,
        allocation: Handle,
        address: u64,
    ) -> Result<Option<u64>, BackingError> {
        let known = self.allocations.get_mut(&allocation).filter(|known| known.parents.device == device);
        let Some(known) = known else {
            return Ok((address < DEVICE_MEMORY_START).then_some(address));
        };
        let address = match &mut known.memory {
            AllocationMemory::Device { mapped: Some(memory), .. }
            | AllocationMemory::Opened(Some(memory)) => memory.start(),
            AllocationMemory::Device { addresses, mapped: mapped @ None } => {
                let memory = device_memory(backing_provider, &mut self.pieces, allocation, addresses)?;
                mapped.insert(memory).start()
            }
            AllocationMemory::Opened(memory @ None) if address >= DEVICE_MEMORY_START => {
                let shared = shared_memory(backing_provider, allocation)
                    .inspect_err(|_| backing_provider.forget_shared(allocation))?;
                memory.insert(shared).start()
            }
            AllocationMemory::Attached
            | AllocationMemory::AsMapped { .. }
            | AllocationMemory::Opened(None) => address,
        };
        known.locks += 1;
        known.locked_at = Some(address);
        Ok(Some(address))
    }

    /// Locks an allocation that the host has locked before, and returns the program's address of it. `None` if only the
    /// host knows whether it can be locked.
    pub fn lock_again(&mut self, device: Handle, allocation: Handle) -> Option<u64> {
        let known = self.allocations.get_mut(&allocation).filter(|known| known.parents.device == device)?;
        let address = known.locked_at.filter(|_| known.locks < LOCKS_KNOWN_TO_FIT)?;
        known.locks += 1;
        Some(address)
    }

    /// Records allocations of a resource that this process has opened.
    pub fn record_opened(&mut self, parents: Parents, allocations: &[Handle]) {
        for allocation in allocations {
            let memory = AllocationMemory::Opened(None);
            self.allocations.insert(*allocation, AllocationBacking::new(parents, memory));
        }
    }

    /// Ends a lock of an allocation. False if no lock is known here.
    pub fn unlock(&mut self, device: Handle, allocation: Handle) -> bool {
        match self.allocations.get_mut(&allocation) {
            Some(known) if known.parents.device == device && known.locks > 0 => {
                known.locks -= 1;
                true
            }
            _ => false,
        }
    }

    /// Attaches the part of an allocation's memory that is about to be mapped. Of memory of the process nothing else is
    /// attached: a forked child shares it. Memory of the device is attached as a whole. A range that no memory can have,
    /// or that the allocation has not, is left to the host, which refuses it.
    pub fn add_mapped(
        &mut self,
        backing_provider: &impl BackingProvider,
        allocation: Handle,
        part: &Range<u64>,
    ) -> Result<(), BackingError> {
        let known = self.allocations.get_mut(&allocation).map(|known| (known.parents, &mut known.memory));
        let (parents, address, bytes) = match known {
            Some((parents, AllocationMemory::AsMapped { address, bytes })) => (parents, *address, *bytes),
            Some((_, AllocationMemory::Device { addresses, mapped: mapped @ None }))
                if part.end <= addresses.end - addresses.start =>
            {
                *mapped = Some(device_memory(backing_provider, &mut self.pieces, allocation, addresses)?);
                return Ok(());
            }
            _ => return Ok(()),
        };
        if bytes.is_some_and(|bytes| part.end > bytes) {
            return Ok(());
        }
        match (address.checked_add(part.start), address.checked_add(part.end)) {
            (Some(start), Some(end)) if start < end => {
                self.add(backing_provider, parents, allocation, start..end)
            }
            _ => Ok(()),
        }
    }

    /// Forgets these allocations, and detaches memory that backs no other allocation.
    pub fn end(&mut self, backing_provider: &impl BackingProvider, allocations: &[Handle]) {
        for allocation in allocations {
            let ended = self.allocations.remove(allocation);
            if let Some(AllocationMemory::Opened(Some(_))) = ended.map(|of| of.memory) {
                backing_provider.forget_shared(*allocation);
            }
            self.pieces.end(*allocation);
        }
        self.pieces.detach_unused(backing_provider, &NOTHING);
    }

    /// Allocations that belong to what this is true of.
    pub fn of(&self, belongs: impl Fn(Parents) -> bool) -> Vec<Handle> {
        let of_it = self.allocations.iter().filter(|(_, of)| belongs(of.parents));
        of_it.map(|(allocation, _)| *allocation).collect()
    }

    /// Closes the files that are kept: the memory stays as it is.
    pub fn close_files(&mut self) {
        self.pieces.close_files();
    }

    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty() && self.pieces.is_empty()
    }

    /// Whether memory of the device is mapped anywhere in this range of the process.
    fn maps_device_memory(&self, range: &Range<u64>) -> bool {
        self.allocations.values().any(|known| match &known.memory {
            AllocationMemory::Device { mapped, .. } | AllocationMemory::Opened(mapped) => {
                mapped.as_ref().is_some_and(|memory| memory.overlaps(range))
            }
            AllocationMemory::Attached | AllocationMemory::AsMapped { .. } => false,
        })
    }
}

/// Attaches zeroed pages as memory of the device of an allocation, at the host's addresses for it, and maps them.
fn device_memory(
    backing_provider: &impl BackingProvider,
    pieces: &mut Pieces,
    allocation: Handle,
    addresses: &Range<u64>,
) -> Result<DeviceMemory, BackingError> {
    let memory = DeviceMemory::reserve(addresses).map_err(BackingError::Map)?;
    let mut attached = Vec::new();
    for (address, pages) in requests(addresses) {
        let piece = pieces.attach(backing_provider, address, pages, addresses).map_err(BackingError::Broker);
        let mapped = piece.and_then(|piece| {
            let mapped = memory.map(piece.as_fd(), address, pages).map_err(BackingError::Map);
            attached.push((address, pages, piece));
            mapped
        });
        if let Err(error) = mapped {
            attached.iter().for_each(|(address, ..)| detach_ignoring_errors(backing_provider, *address));
            return Err(error);
        }
    }
    for (address, pages, piece) in attached {
        pieces.insert(address, pages, piece);
    }
    pieces.include(addresses, allocation);
    Ok(memory)
}

/// Maps shared memory of the device that another process has created.
fn shared_memory(
    backing_provider: &impl BackingProvider,
    allocation: Handle,
) -> Result<DeviceMemory, BackingError> {
    let (first, bytes) = backing_provider.share_backing(allocation, 0)?;
    let memory = DeviceMemory::reserve(&(0..bytes)).map_err(BackingError::Map)?;
    let mut first = Some(first);
    for (offset, pages) in requests(&(0..bytes)) {
        let piece = match first.take() {
            Some(first) => first,
            None => backing_provider.share_backing(allocation, offset)?.0,
        };
        // An access beyond the end of the piece's file would end the program.
        let bytes = rustix::fs::fstat(&piece).map_err(BackingError::Map)?.st_size as u64;
        if bytes < u64::from(pages) * PAGE_BYTES as u64 {
            return Err(BackingError::Map(rustix::io::Errno::OVERFLOW));
        }
        memory.map(piece.as_fd(), offset, pages).map_err(BackingError::Map)?;
    }
    Ok(memory)
}

/// Detaches memory of the device. An error is ignored: without a host there is nothing to detach.
fn detach_ignoring_errors(backing_provider: &impl BackingProvider, address: u64) {
    let _ = backing_provider.detach_backing(address);
}

fn whole_pages(memory: &Range<u64>) -> Option<Range<u64>> {
    let page = PAGE_BYTES as u64;
    let end = memory.end.checked_next_multiple_of(page)?;
    (memory.start > 0 && memory.start < end).then_some(memory.start / page * page..end)
}

/// Address and pages of each request for a gap.
fn requests(gap: &Range<u64>) -> impl Iterator<Item = (u64, u32)> + use<> {
    const BYTES_MAX: u64 = (PAGES_PER_MESSAGE_MAX * PAGE_BYTES) as u64;
    let end = gap.end;
    (gap.start..end).step_by(BYTES_MAX as usize).map(move |address| {
        let bytes = BYTES_MAX.min(end - address);
        (address, (bytes / PAGE_BYTES as u64) as u32)
    })
}

/// Replaces the process's pages by these, with the same bytes.
fn replace(memory: BorrowedFd<'_>, address: u64, pages: u32, maps: &[Mapping]) -> Result<(), BackingError> {
    let bytes = pages as usize * PAGE_BYTES;
    fill(memory, address, bytes)?;
    for part in parts(maps, &(address..address + bytes as u64)) {
        part.map(memory, address, MapFlags::SHARED | MapFlags::FIXED).map_err(BackingError::Map)?;
    }
    Ok(())
}

fn fill(memory: BorrowedFd<'_>, address: u64, bytes: usize) -> Result<(), BackingError> {
    // Beyond the limit the kernel would end the program by SIGXFSZ.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes as u64) {
        return Err(BackingError::FileSize(bytes));
    }
    let mut done = 0;
    while done < bytes {
        // SAFETY: the kernel reads the process's memory, and answers EFAULT where there is none.
        let count = unsafe {
            let source = (address as usize + done) as *const c_void;
            libc::pwrite(memory.as_raw_fd(), source, bytes - done, done as libc::off_t)
        };
        match usize::try_from(count) {
            Ok(0) => return Err(BackingError::Fill(std::io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(_) => match std::io::Error::last_os_error() {
                error if error.kind() == std::io::ErrorKind::Interrupted => {}
                error => return Err(BackingError::Fill(error)),
            },
        }
    }
    Ok(())
}

/// Maps the file whose first byte is at this address again over a part of its mapping, so that writes are the program's
/// alone. The bytes stay, also those that another thread writes meanwhile. What cannot be mapped is shared as before.
fn make_private(memory: BorrowedFd<'_>, address: u64, range: &Range<u64>, maps: &[Mapping]) {
    for part in parts(maps, range) {
        if part.map(memory, address, MapFlags::PRIVATE | MapFlags::FIXED).is_err() {
            part.share_again(memory, address);
            return;
        }
    }
}

/// Memory of the process that has one protection.
struct Part {
    range: Range<u64>,
    protection: ProtFlags,
}

/// A range as it is mapped.
fn parts(maps: &[Mapping], range: &Range<u64>) -> impl Iterator<Item = Part> {
    overlapping(maps, range).iter().map(|mapping| Part {
        range: mapping.range.start.max(range.start)..mapping.range.end.min(range.end),
        protection: mapping.protection,
    })
}

impl Part {
    /// Maps the file whose first byte is at this address over this memory, which keeps its protection.
    fn map(&self, memory: BorrowedFd<'_>, address: u64, flags: MapFlags) -> Result<(), rustix::io::Errno> {
        let Range { start, end } = self.range;
        let (at, bytes) = (start as *mut c_void, (end - start) as usize);
        // SAFETY: the caller has checked that the range is memory of the process that may be replaced; the new memory
        // has the same bytes and protection.
        unsafe { rustix::mm::mmap(at, bytes, self.protection, flags, memory, start - address) }.map(drop)
    }

    /// Maps the file where a mapping has failed: before Linux 6.12 the kernel unmaps what was there, and then finds that there
    /// is too little memory for a private mapping (`vm.overcommit_memory=2`). A shared one needs none.
    fn share_again(&self, memory: BorrowedFd<'_>, address: u64) {
        static SAID: AtomicBool = AtomicBool::new(false);
        match self.map(memory, address, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE) {
            // It still is there, or another thread has mapped memory there.
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) if !SAID.swap(true, Ordering::Relaxed) => print(format_args!(
                "memory of an allocation that has ended is no longer mapped at {:#x?}: {error}",
                self.range
            )),
            Err(_) => {}
        }
    }
}

/// Those of these mappings that overlap a range.
fn overlapping<'m>(maps: &'m [Mapping], range: &Range<u64>) -> &'m [Mapping] {
    let first = maps.partition_point(|mapping| mapping.range.end <= range.start);
    let after = maps.partition_point(|mapping| mapping.range.start < range.end);
    &maps[first..after]
}

/// Checks that the whole range is mapped and that `right` holds for each mapping. The error is the first mapping for
/// which it does not hold, or `None` for a gap.
fn covered<'m>(
    maps: &'m [Mapping],
    range: &Range<u64>,
    mut right: impl FnMut(&Mapping) -> bool,
) -> Result<(), Option<&'m Mapping>> {
    let mut at = range.start;
    for mapping in overlapping(maps, range) {
        if mapping.range.start > at {
            return Err(None);
        }
        if !right(mapping) {
            return Err(Some(mapping));
        }
        at = mapping.range.end;
    }
    if at >= range.end { Ok(()) } else { Err(None) }
}

/// Checks that the range is private memory, or backing pages that were detached before, and no memory of the device.
fn require_own(
    maps: &[Mapping],
    range: &Range<u64>,
    is_of_device: impl Fn(&Range<u64>) -> bool,
) -> Result<(), BackingError> {
    let was_attached = |mapping: &Mapping| mapping.is_backed() && !is_of_device(&mapping.range);
    let right = |mapping: &Mapping| mapping.is_writable() && (mapping.is_private || was_attached(mapping));
    covered(maps, range, right).map_err(|wrong| match wrong {
        Some(mapping) if mapping.is_writable() => {
            BackingError::Shared { at: mapping.range.start.max(range.start), name: mapping.name.clone() }
        }
        _ => BackingError::NotMapped(range.clone()),
    })
}

#[cfg(test)]
mod tests;
