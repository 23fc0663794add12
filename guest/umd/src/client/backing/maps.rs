//! The mappings of this process in a range of addresses.
//!
//! Linux 6.11 and later answer for one address at a time (`PROCMAP_QUERY`). Earlier ones have the text of
//! `/proc/thread-self/maps` only, which is read up to the range: a program may have tens of thousands of mappings, and each
//! piece of backing pages is one more. `/proc/self` is the main thread, which a program may have ended, and then has none.
//!
//! `unsafe` here: rustix does not have that ioctl.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::limits::BACKING_MEMFD;
use rustix::io::Errno;
use rustix::mm::ProtFlags;

/// One mapping of the process.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub range: Range<u64>,
    pub protection: ProtFlags,
    pub is_private: bool,
    /// Of the first byte in its file.
    pub offset: u64,
    pub inode: u64,
    pub name: String,
}

impl Mapping {
    /// A line of `/proc/thread-self/maps`.
    pub fn parse(line: &str) -> Option<Self> {
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let number = |hex| u64::from_str_radix(hex, 16).ok();
        // permissions, offset, device, inode, name
        let permissions = rest.get(..4)?;
        let mut columns = rest.splitn(5, ' ').skip(1);
        let offset = number(columns.next()?)?;
        let mut columns = columns.skip(1);
        let inode = columns.next()?.parse().ok()?;
        let name = columns.next().unwrap_or_default().trim().to_owned();
        let flags = [('r', ProtFlags::READ), ('w', ProtFlags::WRITE), ('x', ProtFlags::EXEC)];
        let set = flags.into_iter().filter(|(letter, _)| permissions.contains(*letter));
        let protection = set.map(|(_, flag)| flag).collect();
        let is_private = permissions.ends_with('p');
        Some(Mapping { range: number(start)?..number(end)?, protection, is_private, offset, inode, name })
    }

    /// Whether the mapping is of backing pages that a broker made.
    pub fn is_backed(&self) -> bool {
        self.name.strip_prefix("/memfd:").is_some_and(|name| name.starts_with(BACKING_MEMFD))
    }

    /// Whether it is of the backing pages in this file.
    pub fn is_of(&self, inode: u64) -> bool {
        self.is_backed() && self.inode == inode
    }

    pub fn is_writable(&self) -> bool {
        self.protection.contains(ProtFlags::READ | ProtFlags::WRITE)
    }
}

/// The kernel is known not to have that ioctl.
static HAS_TEXT_ONLY: AtomicBool = AtomicBool::new(false);

/// The mappings of this process.
#[derive(Debug)]
pub(super) struct OwnMaps {
    file: BufReader<File>,
    /// The last line that was read of the file.
    last: Option<Mapping>,
    /// The kernel may answer for an address.
    pub(super) may_query: bool,
}

impl OwnMaps {
    /// Of this moment and later.
    pub fn open() -> std::io::Result<OwnMaps> {
        // A profile of AppArmor that allows the second only is usual.
        let file = File::open("/proc/thread-self/maps").or_else(|_| File::open("/proc/self/maps"));
        file.map(OwnMaps::over)
    }

    /// Of a file that has them.
    pub(super) fn over(file: File) -> OwnMaps {
        const READ_BYTES: usize = 32 * 1024;
        OwnMaps {
            file: BufReader::with_capacity(READ_BYTES, file),
            last: None,
            may_query: !HAS_TEXT_ONLY.load(Ordering::Relaxed),
        }
    }

    /// The mappings that overlap a range, in the order of their addresses. Later calls ask for later ranges.
    pub fn of(&mut self, range: &Range<u64>) -> std::io::Result<Vec<Mapping>> {
        if self.may_query {
            match walk(range, |address| self.covering_or_next(address)) {
                Some(found) => return Ok(found),
                None => self.may_query = false,
            }
        }
        self.read(range)
    }

    /// Reads the lines up to the end of the range.
    fn read(&mut self, range: &Range<u64>) -> std::io::Result<Vec<Mapping>> {
        let mut found = Vec::new();
        while let Some(mapping) = self.last.take().map_or_else(|| self.next_line(), |last| Ok(Some(last)))? {
            if mapping.range.end > range.start && mapping.range.start < range.end {
                found.push(mapping.clone());
            }
            if mapping.range.end >= range.end {
                self.last = Some(mapping);
                break;
            }
        }
        Ok(found)
    }

    fn next_line(&mut self) -> std::io::Result<Option<Mapping>> {
        let mut line = Vec::new();
        while self.file.read_until(b'\n', &mut line)? > 0 {
            if let Some(mapping) = Mapping::parse(&String::from_utf8_lossy(&line)) {
                return Ok(Some(mapping));
            }
            line.clear();
        }
        Ok(None)
    }

    fn covering_or_next(&self, address: u64) -> Result<Mapping, Errno> {
        let mut name = [0u8; libc::PATH_MAX as usize];
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_flags: COVERING_OR_NEXT,
            query_addr: address,
            vma_name_size: name.len() as u32,
            vma_name_addr: name.as_mut_ptr() as u64,
            ..Query::default()
        };
        // SAFETY: the kernel writes the struct, whose size it is told, and a name into the buffer, of which likewise.
        match unsafe { libc::ioctl(self.file.get_ref().as_raw_fd(), PROCMAP_QUERY, &raw mut query) } {
            0 => Ok(query.mapping(&name)),
            _ => {
                let error = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL);
                if error == Errno::NOTTY {
                    HAS_TEXT_ONLY.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }
}

/// Asks for each mapping of a range; `None` if this kernel does not answer, or if a filter of the program forbids to ask.
pub(super) fn walk(
    range: &Range<u64>,
    mut covering_or_next: impl FnMut(u64) -> Result<Mapping, Errno>,
) -> Option<Vec<Mapping>> {
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        match covering_or_next(at) {
            // A filter of the program, too, may answer that all went well.
            Ok(mapping) if mapping.range.end <= at.max(mapping.range.start) => return None,
            Ok(mut mapping) if mapping.range.start < range.end => {
                // Another thread may have changed what is mapped, so that it now is one with the mapping before.
                if mapping.range.start < at && !found.is_empty() {
                    mapping.offset += at - mapping.range.start;
                    mapping.range.start = at;
                }
                at = mapping.range.end;
                found.push(mapping);
            }
            Ok(_) | Err(Errno::NOENT) => break,
            Err(_) => return None,
        }
    }
    Some(found)
}

/// `_IOWR('f', 17, struct procmap_query)`
const PROCMAP_QUERY: libc::Ioctl = 0xC068_6611_u32 as libc::Ioctl;
const COVERING_OR_NEXT: u64 = 0x10;
const SHARED: u64 = 8;

/// `struct procmap_query`
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<Query>() == 0x68);

impl Query {
    /// The answer. The size of a name counts its NUL.
    fn mapping(&self, name: &[u8]) -> Mapping {
        let name = &name[..(self.vma_name_size as usize).saturating_sub(1).min(name.len())];
        let flags = [(1, ProtFlags::READ), (2, ProtFlags::WRITE), (4, ProtFlags::EXEC)];
        let set = flags.into_iter().filter(|(flag, _)| self.vma_flags & flag != 0);
        Mapping {
            range: self.vma_start..self.vma_end,
            protection: set.map(|(_, flag)| flag).collect(),
            is_private: self.vma_flags & SHARED == 0,
            offset: self.vma_offset,
            inode: self.inode,
            name: String::from_utf8_lossy(name).into_owned(),
        }
    }
}
