//! The program's own memory that the host's engines read and write: what its allocations are of.
//!
//! ```text
//!   D3DKMTCreateAllocation ─▶ the broker makes pages that the host reaches ─▶ they get the bytes that are there
//!                          ─▶ they are mapped in place of the memory: same address, same bytes
//!   the last allocation of a page ends ─▶ the host is told, and touches it no more; the program keeps the pages
//! ```
//! So no page of a program is ever pinned behind its back, and a program that ends, unmaps the memory or is killed
//! takes nothing away that the host still writes. Another thread must not write the memory while an allocation of it
//! is being created. Memory that is backed is shared with a forked child from then on.
//!
//! `unsafe` here: the program's memory is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use d3dkmt::{Handle, NtStatus};
use fence_page::PAGE_BYTES;
use proto::limits::{BACKING_MEMFD, PAGES_PER_MESSAGE_MAX};
use rustix::mm::{MapFlags, ProtFlags};

use super::attach::AttachError;

/// Who makes pages that the host reaches.
pub trait BackingProvider {
    /// Pages for the memory at this address.
    fn attach_backing(&self, address: u64, pages: u32) -> Result<OwnedFd, AttachError>;
    /// The host is to touch nothing of what was attached as backing at this address.
    fn detach_backing(&self, address: u64) -> Result<(), AttachError>;
}

/// Why memory cannot be lent. The text is for the person who runs the program.
#[derive(Debug, thiserror::Error)]
pub enum BackingError {
    #[error("not all of {0:#x?} is mapped for reading and writing")]
    NotMapped(Range<u64>),
    #[error("{at:#x} is of a shared mapping ({name}): only memory of the process alone can be backing")]
    Shared { at: u64, name: String },
    #[error("/proc/self/maps cannot be read: {0}")]
    Maps(std::io::Error),
    #[error(transparent)]
    Broker(#[from] AttachError),
    #[error("the pages cannot be filled: {0}")]
    Fill(std::io::Error),
    #[error("the pages cannot be mapped: {0}")]
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
            | BackingError::Map(_) => NtStatus::NO_MEMORY,
        }
    }
}

/// What was attached as backing with one request.
#[derive(Debug)]
struct BackingPiece {
    end: u64,
    /// Allocations of any of its pages.
    allocations: BTreeSet<Handle>,
}

#[derive(Debug)]
struct AllocationBacking {
    device: Handle,
    resource: Handle,
}

/// Everything that this process has lent.
#[derive(Default, Debug)]
pub struct ProcessBacking {
    /// By their address; disjoint.
    pieces: BTreeMap<u64, BackingPiece>,
    allocations: BTreeMap<Handle, AllocationBacking>,
}

impl ProcessBacking {
    /// Lends the memory of an allocation, as far as it is not lent for another one.
    pub fn add(
        &mut self,
        backing_provider: &impl BackingProvider,
        device: Handle,
        resource: Handle,
        allocation: Handle,
        memory: Range<u64>,
    ) -> Result<(), BackingError> {
        let range = whole_pages(&memory).ok_or(BackingError::NotMapped(memory))?;
        let maps = std::fs::read_to_string("/proc/self/maps").map_err(BackingError::Maps)?;
        self.forget_replaced(backing_provider, &range, &maps);
        let gaps = self.gaps(&range);
        for gap in &gaps {
            require_own(&maps, gap)?;
        }
        let mut backing = Vec::new();
        for (address, pages) in gaps.iter().flat_map(requests) {
            match replace(backing_provider, address, pages) {
                Ok(()) => backing.push((address, pages)),
                Err(error) => {
                    // What is mapped by now stays, with its bytes: it is memory like any other.
                    backing.iter().for_each(|(address, _)| give_up(backing_provider, *address));
                    return Err(error);
                }
            }
        }
        for (address, pages) in backing {
            let end = address + u64::from(pages) * PAGE_BYTES as u64;
            self.pieces.insert(address, BackingPiece { end, allocations: BTreeSet::new() });
        }
        for piece in self.pieces.range_mut(..range.end).map(|(_, piece)| piece) {
            if piece.end > range.start {
                piece.allocations.insert(allocation);
            }
        }
        self.allocations.insert(allocation, AllocationBacking { device, resource });
        Ok(())
    }

    /// Allocations that have ended: memory that no other one is of is taken back.
    pub fn retain(
        &mut self,
        backing_provider: &impl BackingProvider,
        mut lives: impl FnMut(Handle, /* device */ Handle, /* resource */ Handle) -> bool,
    ) {
        self.allocations.retain(|handle, of| lives(*handle, of.device, of.resource));
        self.pieces.retain(|address, piece| {
            piece.allocations.retain(|allocation| self.allocations.contains_key(allocation));
            if piece.allocations.is_empty() {
                give_up(backing_provider, *address);
            }
            !piece.allocations.is_empty()
        });
    }

    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty()
    }

    /// Parts of a range that are not lent.
    fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (address, piece) in self.pieces.range(..range.end).filter(|(_, piece)| piece.end > range.start) {
            if *address > at {
                gaps.push(at..*address);
            }
            at = at.max(piece.end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Pieces that the program has unmapped since, or put other memory in the place of, are none any more: whatever was
    /// allocated of them, it is not of what is there now.
    fn forget_replaced(&mut self, backing_provider: &impl BackingProvider, range: &Range<u64>, maps: &str) {
        let pieces = self.pieces.range(..range.end).filter(|(_, piece)| piece.end > range.start);
        let replaced = |(address, piece): &(&u64, &BackingPiece)| {
            let whole = **address..piece.end;
            covered(maps, &whole, |mapping| mapping.is_backed()).is_err()
        };
        for address in pieces.filter(replaced).map(|(address, _)| *address).collect::<Vec<_>>() {
            give_up(backing_provider, address);
            self.pieces.remove(&address);
        }
    }
}

/// The host touches nothing there any more. Without a host that is so already.
fn give_up(backing_provider: &impl BackingProvider, address: u64) {
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

/// Puts pages that the host reaches in the place of the program's, with the same bytes.
fn replace(backing_provider: &impl BackingProvider, address: u64, pages: u32) -> Result<(), BackingError> {
    let descriptor = backing_provider.attach_backing(address, pages)?;
    let bytes = pages as usize * PAGE_BYTES;
    fill(descriptor.as_fd(), address, bytes)
        .and_then(|()| map(descriptor.as_fd(), address, bytes))
        .inspect_err(|_| give_up(backing_provider, address))
}

fn fill(memory: BorrowedFd<'_>, address: u64, bytes: usize) -> Result<(), BackingError> {
    let mut done = 0;
    while done < bytes {
        // SAFETY: the system reads the program's memory, and answers EFAULT where there is none.
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

fn map(memory: BorrowedFd<'_>, address: u64, bytes: usize) -> Result<(), BackingError> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: the range was seen to be private memory of the program that can be written; it gets memory that can be
    // written as well and has the same bytes.
    unsafe { rustix::mm::mmap(address as *mut c_void, bytes, protection, flags, memory, 0) }
        .map(drop)
        .map_err(BackingError::Map)
}

/// A line of `/proc/self/maps`.
struct Mapping<'a> {
    range: Range<u64>,
    permissions: &'a str,
    name: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let number = |hex| u64::from_str_radix(hex, 16).ok();
        // permissions, offset, device, inode, name
        let permissions = rest.get(..4)?;
        let name = rest.splitn(5, ' ').nth(4).unwrap_or_default().trim();
        Some(Mapping { range: number(start)?..number(end)?, permissions, name })
    }

    /// Pages that a broker made for this.
    fn is_backed(&self) -> bool {
        self.name.strip_prefix("/memfd:").is_some_and(|name| name.starts_with(BACKING_MEMFD))
    }

    fn is_writable(&self) -> bool {
        self.permissions.starts_with("rw")
    }

    fn is_private(&self) -> bool {
        self.permissions.ends_with('p')
    }
}

/// The whole range is mapped, and all of it is as it must be; else the first mapping that is not, or none.
fn covered<'a>(
    maps: &'a str,
    range: &Range<u64>,
    mut right: impl FnMut(&Mapping<'_>) -> bool,
) -> Result<(), Option<Mapping<'a>>> {
    let mut at = range.start;
    for mapping in maps.lines().filter_map(Mapping::parse).filter(|mapping| mapping.range.end > range.start) {
        if at >= range.end {
            break;
        }
        if mapping.range.start > at {
            return Err(None);
        }
        if !right(&mapping) {
            return Err(Some(mapping));
        }
        at = mapping.range.end;
    }
    if at >= range.end { Ok(()) } else { Err(None) }
}

/// Memory that nobody else has, or that was attached as backing before and given back.
fn require_own(maps: &str, range: &Range<u64>) -> Result<(), BackingError> {
    let right =
        |mapping: &Mapping<'_>| mapping.is_writable() && (mapping.is_private() || mapping.is_backed());
    covered(maps, range, right).map_err(|wrong| match wrong {
        Some(mapping) if mapping.is_writable() => {
            BackingError::Shared { at: mapping.range.start.max(range.start), name: mapping.name.to_owned() }
        }
        _ => BackingError::NotMapped(range.clone()),
    })
}

#[cfg(test)]
mod tests;
