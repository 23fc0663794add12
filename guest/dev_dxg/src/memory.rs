//! The client's memory, copied by the kernel, so that a bad address of an ioctl's struct is EFAULT. Memory that the
//! struct points to is checked where the driver's checks name it (`checks`), and trusted elsewhere, as in a call of
//! `libdxcore.so`.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use abi::Plain;
use libc::iovec;

use crate::status::Errno;

const PAGE_BYTES: usize = 4096;
/// Pages that one system call examines.
const PAGES_AT_ONCE: usize = 64;

fn entry(address: *mut c_void, bytes: usize) -> iovec {
    iovec { iov_base: address, iov_len: bytes }
}

/// The client's struct.
pub fn read<T: Plain>(address: *const c_void) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: a `T` has as many bytes, and any bytes are a valid one.
    unsafe {
        read_bytes(address, value.as_mut_ptr().cast(), size_of::<T>())?;
        Ok(value.assume_init())
    }
}

/// Bytes of the client.
pub fn read_array(address: *const c_void, count: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; count];
    // SAFETY: it has as many bytes.
    unsafe { read_bytes(address, bytes.as_mut_ptr().cast(), count) }?;
    Ok(bytes)
}

/// Reads so many bytes of the client's memory.
///
/// # Safety
/// `target` has as many bytes.
unsafe fn read_bytes(address: *const c_void, target: *mut c_void, bytes: usize) -> Result<(), Errno> {
    let (local, remote) = (entry(target, bytes), entry(address.cast_mut(), bytes));
    // SAFETY: writes to `target` only; the kernel checks the other address.
    let copied =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if copied == bytes as isize {
        return Ok(());
    }
    if is_blocked(copied) && !address.is_null() {
        // SAFETY: as for a call of libdxcore.so, the client must pass a valid pointer.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), target.cast::<u8>(), bytes) };
        return Ok(());
    }
    Err(Errno::fault())
}

/// Whether a string of the client is this short text; not if it cannot be read. errno stays as it is.
pub fn is_text(string: *const c_char, text: &CStr) -> bool {
    const BYTES_MAX: usize = 16;
    let wanted = text.to_bytes_with_nul();
    assert!(wanted.len() <= BYTES_MAX, "{text:?} is no short text");
    let mut bytes = [0u8; BYTES_MAX];
    let local = entry(bytes.as_mut_ptr().cast(), wanted.len());
    // A shorter string may end before a page that cannot be read.
    let first = wanted.len().min(PAGE_BYTES - string.addr() % PAGE_BYTES);
    let rest = string.wrapping_add(first).cast_mut().cast();
    let remote = [entry(string.cast_mut().cast(), first), entry(rest, wanted.len() - first)];
    let before = Errno::last();
    // SAFETY: writes to `bytes` only; the kernel checks the other addresses.
    let copied =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, remote.as_ptr(), 2, 0) };
    let is_blocked = is_blocked(copied);
    before.set();
    if is_blocked && !string.is_null() {
        // SAFETY: the client must pass a valid pointer.
        return unsafe { CStr::from_ptr(string) } == text;
    }
    copied == wanted.len() as isize && &bytes[..wanted.len()] == wanted
}

/// Writes a struct of libc to the client's memory.
///
/// # Safety
/// All bytes of the value are initialized.
pub unsafe fn write_of_libc<T>(address: *mut T, value: &T) -> Result<(), Errno> {
    // SAFETY: a `T` has as many bytes.
    unsafe { write_bytes(address.cast(), std::ptr::from_ref(value).cast(), size_of::<T>()) }
        .map_err(|_| Errno(libc::EFAULT))
}

/// Writes the client's struct back.
pub fn write<T: Plain>(address: *mut c_void, value: &T) -> Result<(), Errno> {
    let bytes = size_of::<T>();
    // SAFETY: a `T` has as many bytes.
    unsafe { write_bytes(address, std::ptr::from_ref(value).cast(), bytes) }
}

/// Writes these bytes to the client's memory.
///
/// # Safety
/// `source` has as many bytes.
unsafe fn write_bytes(address: *mut c_void, source: *const c_void, bytes: usize) -> Result<(), Errno> {
    let (local, remote) = (entry(source.cast_mut(), bytes), entry(address, bytes));
    // SAFETY: reads `source` only; the kernel checks the other address.
    let copied =
        unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if copied == bytes as isize {
        return Ok(());
    }
    if is_blocked(copied) && !address.is_null() {
        // SAFETY: the client must pass a valid pointer.
        unsafe { std::ptr::copy_nonoverlapping(source.cast::<u8>(), address.cast::<u8>(), bytes) };
        return Ok(());
    }
    Err(Errno::fault())
}

/// Writes an array to the client's memory.
pub fn write_array<T: Plain>(address: *mut c_void, values: &[T]) -> Result<(), Errno> {
    // SAFETY: the slice has as many bytes.
    unsafe { write_bytes(address, values.as_ptr().cast(), size_of_val(values)) }
}

/// Checks that an array of the client can be read.
pub fn readable<T>(array: *const T, count: u32) -> Result<(), Errno> {
    readable_bytes(array.cast(), count as usize * size_of::<T>())
}

/// Checks that so many bytes of the client can be read: one byte of each page.
pub fn readable_bytes(address: *const c_void, bytes: usize) -> Result<(), Errno> {
    let begin = address as usize;
    let Some(end) = begin.checked_add(bytes) else { return Err(Errno::fault()) };
    let mut next = begin;
    while next < end {
        let mut remote = [entry(std::ptr::null_mut(), 1); PAGES_AT_ONCE];
        let mut pages = 0;
        while next < end && pages < PAGES_AT_ONCE {
            remote[pages].iov_base = next as *mut c_void;
            pages += 1;
            next = (next / PAGE_BYTES + 1) * PAGE_BYTES;
        }
        let mut bytes = [0u8; PAGES_AT_ONCE];
        let local = entry(bytes.as_mut_ptr().cast(), pages);
        // SAFETY: writes to `bytes` only; the kernel checks the other addresses.
        let copied = unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const local, 1, remote.as_ptr(), pages as u64, 0)
        };
        if copied != pages as isize && !is_blocked(copied) {
            return Err(Errno::fault());
        }
    }
    Ok(())
}

/// Whether the copy failed because a filter of system calls (seccomp) blocks it.
fn is_blocked(copied: isize) -> bool {
    copied < 0 && matches!(Errno::last().0, libc::EPERM | libc::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A readable page before one that is not mapped.
    fn page_before_a_hole() -> *mut u8 {
        // SAFETY: new private mappings, the second of which is removed.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let both = libc::mmap(std::ptr::null_mut(), 2 * PAGE_BYTES, libc::PROT_READ, flags, -1, 0);
            assert_ne!(both, libc::MAP_FAILED);
            libc::munmap(both.cast::<u8>().add(PAGE_BYTES).cast(), PAGE_BYTES);
            both.cast()
        }
    }

    #[test]
    fn bad_addresses_are_efault() {
        let page = page_before_a_hole();
        let last = page.wrapping_add(PAGE_BYTES - 8).cast::<c_void>();
        assert_eq!(read::<u64>(last), Ok(0));
        assert_eq!(read::<[u64; 2]>(last), Err(Errno(libc::EFAULT)));
        assert_eq!(read::<u32>(std::ptr::null()), Err(Errno(libc::EFAULT)));
        assert_eq!(write(page.cast(), &1u32), Err(Errno(libc::EFAULT)));
        let mut word = 0u64;
        assert_eq!(write((&raw mut word).cast(), &7u64), Ok(()));
        assert_eq!(word, 7);
    }

    #[test]
    fn a_string_is_compared_as_far_as_it_can_be_read() {
        // SAFETY: private memory of this test.
        let page = unsafe {
            let page = page_before_a_hole();
            libc::mprotect(page.cast(), PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE);
            page
        };
        let is_device = |string: &[u8]| {
            let at = page.wrapping_add(PAGE_BYTES - string.len());
            // SAFETY: the last bytes of the page.
            unsafe { std::ptr::copy_nonoverlapping(string.as_ptr(), at, string.len()) };
            is_text(at.cast(), c"/dev/dxg")
        };
        assert!(is_device(b"/dev/dxg\0") && is_device(b"/dev/dxg\0more"));
        for other in [&b"/dev/dxg"[..], b"/dev/dx\0", b"/dev/dxgs\0", b"/\0", b"\0", b""] {
            assert!(!is_device(other), "{other:?}");
        }
        Errno(libc::ENOTTY).set();
        assert!(!is_text(std::ptr::null(), c"/dev/dxg") && !is_text(8 as *const c_char, c""));
        assert_eq!(Errno::last(), Errno::NOTTY, "errno has changed");
    }

    #[test]
    fn an_array_is_readable_if_all_its_pages_are() {
        let page = page_before_a_hole();
        assert_eq!(readable(page, PAGE_BYTES as u32), Ok(()));
        assert_eq!(readable(page, PAGE_BYTES as u32 + 1), Err(Errno(libc::EFAULT)));
        assert_eq!(readable(page.cast::<u64>(), u32::MAX), Err(Errno(libc::EFAULT)));
        assert_eq!(readable(std::ptr::null::<u64>(), 0), Ok(()));
        let big = vec![0u8; 100 * PAGE_BYTES];
        assert_eq!(readable(big.as_ptr(), big.len() as u32), Ok(()));
    }
}
