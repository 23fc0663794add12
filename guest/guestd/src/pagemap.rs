//! `/proc/self/pagemap`: the guest-physical address of a page of this process.
//!
//! The file has one little-endian u64 for each virtual page: bit 63 is set if the page is present, bits 0-54 are its
//! frame number, which reads as 0 if the file was opened without CAP_SYS_ADMIN. See the kernel's Documentation/admin-guide/mm/pagemap.rst.

use std::fs::File;
use std::os::unix::fs::FileExt;

use fence_page::PAGE_BYTES;

const PRESENT: u64 = 1 << 63;
const FRAME_NUMBER: u64 = (1 << 55) - 1;
const ENTRY_BYTES: usize = 8;

/// Why a page has no address that the host could use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PagemapError {
    #[error("the page is not in memory")]
    Absent,
    #[error("frame numbers are hidden: guestd needs CAP_SYS_ADMIN (run it as root)")]
    Hidden,
}

/// The open file. It shows frame numbers if this process had CAP_SYS_ADMIN when it opened it.
pub struct Pagemap(std::io::Result<File>);

impl Pagemap {
    /// Opens that of this process; an error is reported when an address is asked for.
    pub fn open() -> Self {
        Self(File::open("/proc/self/pagemap"))
    }

    /// Guest-physical addresses of `pages` pages from the virtual address `start`. The error is a readable text.
    pub fn physical_addresses(&self, start: usize, pages: u32) -> Result<Vec<u64>, String> {
        let file = self.0.as_ref().map_err(|error| format!("cannot open /proc/self/pagemap: {error}"))?;
        let mut bytes = vec![0; pages as usize * ENTRY_BYTES];
        file.read_exact_at(&mut bytes, (start / PAGE_BYTES * ENTRY_BYTES) as u64)
            .map_err(|error| format!("cannot read /proc/self/pagemap: {error}"))?;
        parse(&bytes).map_err(|error| error.to_string())
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<u64>, PagemapError> {
    let entries = bytes.chunks_exact(ENTRY_BYTES);
    entries.map(|entry| address(u64::from_le_bytes(entry.try_into().expect("a chunk is 8 bytes")))).collect()
}

fn address(entry: u64) -> Result<u64, PagemapError> {
    if entry & PRESENT == 0 {
        return Err(PagemapError::Absent);
    }
    match entry & FRAME_NUMBER {
        0 => Err(PagemapError::Hidden),
        frame => Ok(frame * PAGE_BYTES as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::{PagemapError, address, parse};

    #[test]
    fn an_entry_is_a_frame_number_or_says_why_not() {
        assert_eq!(address(1 << 63 | 0x1234), Ok(0x0123_4000));
        // Soft-dirty, exclusive and file bits (55, 56, 61) are no part of the address.
        assert_eq!(address(1 << 63 | 1 << 61 | 1 << 56 | 1 << 55 | 1), Ok(0x1000));
        assert_eq!(address(0x1234), Err(PagemapError::Absent));
        assert_eq!(address(1 << 63), Err(PagemapError::Hidden));
    }

    #[test]
    fn one_page_without_an_address_spoils_the_lot() {
        let bytes = [(1_u64 << 63 | 5).to_le_bytes(), 0_u64.to_le_bytes()].concat();
        assert_eq!(parse(&bytes[..8]), Ok(vec![0x5000]));
        assert_eq!(parse(&bytes), Err(PagemapError::Absent));
    }
}
