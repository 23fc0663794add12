//! Reading and writing the caller's memory.
//!
//! `unsafe` here: this module dereferences C pointers. As with any C library, the caller must pass valid ones. What can
//! be checked without a system call (NULL, addresses that no program has memory at, counts that no message could carry)
//! is answered with INVALID_PARAMETER.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use abi::Plain;
use d3dkmt::limits::{OBJECTS_WAITED_ON_MAX, USER_END};
use d3dkmt::{Handle, Handles, NtStatus, Values};
use smallvec::SmallVec;

use crate::client::CreatedFence;
use crate::limits::ARRAY_ENTRIES_MAX;

/// The address at which a program reads the value of a fence; NULL if the CPU cannot read it.
pub(crate) fn cpu_address(fence: &CreatedFence) -> *mut c_void {
    let address = fence.location.as_ref().map_or(0, |location| location.address());
    address as *mut c_void
}

/// Refuses a range where no program has memory: the first page, and what is not the user's half of the addresses.
pub(crate) fn check_range<T>(start: *const T, count: usize) -> Result<(), NtStatus> {
    const FIRST: u64 = 4096;
    let (start, bytes) = (start.addr() as u64, (count as u64).saturating_mul(size_of::<T>() as u64));
    let is_possible = start >= FIRST && start.checked_add(bytes).is_some_and(|end| end <= USER_END);
    if is_possible { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }
}

/// The caller's struct. NULL is INVALID_PARAMETER.
pub(crate) fn read<T: Plain>(argument: *const T) -> Result<T, NtStatus> {
    check_range(argument, 1)?;
    // SAFETY: not NULL; the C contract says that it points to a `T`, perhaps not an aligned one.
    Ok(unsafe { argument.read_unaligned() })
}

/// Writes the struct back with its outputs.
pub(crate) fn write<T: Plain>(argument: *mut T, value: T) {
    // SAFETY: `read` found it not NULL; the C contract says that it points to a `T` to write to.
    unsafe { argument.write_unaligned(value) };
}

/// Writes the first entries of the caller's array.
pub(crate) fn write_array<T: Plain>(array: *mut T, values: &[T]) {
    // SAFETY: the caller's array has room for as many entries as it said; `values` is no longer.
    unsafe {
        std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), array.cast::<u8>(), size_of_val(values))
    };
}

/// Checks a caller's array before it is read. Returns its length.
fn check_array<T>(array: *const T, count: u32) -> Result<usize, NtStatus> {
    let count = count as usize;
    if count > ARRAY_ENTRIES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if count > 0 {
        check_range(array, count)?;
    }
    Ok(count)
}

/// Copies a caller's array, which was checked, and may be NULL if it is empty.
///
/// # Safety
///
/// `target` has room for `count` entries.
unsafe fn copy_array<T: Plain>(array: *const T, target: *mut T, count: usize) {
    if count > 0 {
        // SAFETY: the C contract says that the array has `count` entries, perhaps not aligned ones; `target` has room.
        unsafe {
            std::ptr::copy_nonoverlapping(array.cast::<u8>(), target.cast::<u8>(), count * size_of::<T>());
        }
    }
}

/// A copy of a caller's array; short ones without a heap allocation.
pub(crate) struct Array<T> {
    /// Of a short array only the first entries are written, because clearing all of it would cost as much as a
    /// satisfied wait.
    inline: [MaybeUninit<T>; OBJECTS_WAITED_ON_MAX],
    heap: Vec<T>,
}

impl<T: Plain + Default> Default for Array<T> {
    fn default() -> Self {
        Array { inline: [const { MaybeUninit::uninit() }; OBJECTS_WAITED_ON_MAX], heap: Vec::new() }
    }
}

impl<T: Plain + Default> Array<T> {
    /// Reads in place: `Array` is too large to move on the path of a wait.
    fn read(&mut self, array: *const T, count: u32) -> Result<&[T], NtStatus> {
        let count = check_array(array, count)?;
        let is_short = count <= OBJECTS_WAITED_ON_MAX;
        let target = if is_short {
            self.inline.as_mut_ptr().cast::<T>()
        } else {
            self.heap.resize(count, T::default());
            self.heap.as_mut_ptr()
        };
        // SAFETY: `target` has `count` entries, which are written before they are read.
        Ok(unsafe {
            copy_array(array, target, count);
            std::slice::from_raw_parts(target, count)
        })
    }
}

/// The caller's array of handles, copied into `copy`.
pub(crate) fn read_handles(
    copy: &mut Array<Handle>,
    array: *const u32,
    count: u32,
) -> Result<&[Handle], NtStatus> {
    const { assert!(size_of::<Handle>() == size_of::<u32>()) };
    copy.read(array.cast::<Handle>(), count)
}

/// The caller's array of fence values, copied into `copy`.
pub(crate) fn read_values(copy: &mut Array<u64>, array: *const u64, count: u32) -> Result<&[u64], NtStatus> {
    copy.read(array, count)
}

/// The caller's array, as a list of a call.
fn read_list<L: smallvec::Array<Item: Plain>>(
    array: *const L::Item,
    count: u32,
) -> Result<SmallVec<L>, NtStatus> {
    let count = check_array(array, count)?;
    if count == 1 {
        // Pushed, not copied: a copy of so few bytes is slow to read back.
        let mut list = SmallVec::new();
        list.push(read(array)?);
        return Ok(list);
    }
    let mut list = SmallVec::<L>::with_capacity(count);
    // SAFETY: the list has room for `count` entries, which are written before they count.
    unsafe {
        copy_array(array, list.as_mut_ptr(), count);
        list.set_len(count);
    }
    Ok(list)
}

/// The caller's array of handles, as a list of a call.
pub(crate) fn handle_list(array: *const u32, count: u32) -> Result<Handles, NtStatus> {
    read_list(array.cast::<Handle>(), count)
}

/// The caller's array of fence values, as a list of a call.
pub(crate) fn value_list(array: *const u64, count: u32) -> Result<Values, NtStatus> {
    read_list(array, count)
}

/// Reads fence values at an address that may be no pointer at all (a union whose member is not known here): `None` if
/// the address is not readable.
pub(crate) fn probe_values(address: u64, count: u32) -> Option<Vec<u64>> {
    let count = Some(count as usize).filter(|count| *count <= ARRAY_ENTRIES_MAX)?;
    let mut values = vec![0u64; count];
    let bytes = count * size_of::<u64>();
    let local = libc::iovec { iov_base: values.as_mut_ptr().cast::<c_void>(), iov_len: bytes };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes };
    // SAFETY: writes only to `values`; the kernel checks the other address.
    let copied =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    (copied == bytes as isize).then_some(values)
}

/// A caller's array of structs, or of a string's units.
pub(crate) fn read_array<T: Plain>(array: *const T, count: usize) -> Result<Vec<T>, NtStatus> {
    if count > ARRAY_ENTRIES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if count > 0 {
        check_range(array, count)?;
    }
    // SAFETY: the C contract says that the array has `count` entries, perhaps not aligned ones.
    Ok((0..count).map(|at| unsafe { array.add(at).read_unaligned() }).collect())
}

/// Writes bytes into the caller's buffer, as many as fit.
pub(crate) fn write_bytes(buffer: *mut c_void, size: u32, bytes: &[u8]) {
    if !buffer.is_null() {
        write_array(buffer.cast::<u8>(), &bytes[..bytes.len().min(size as usize)]);
    }
}

/// Private driver data: bytes of the caller.
pub(crate) fn read_bytes(data: *const c_void, size: u32) -> Result<Vec<u8>, NtStatus> {
    let size = size as usize;
    if size > d3dkmt::limits::PRIVATE_DATA_BYTES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if size > 0 {
        check_range(data.cast::<u8>(), size)?;
    }
    let mut bytes = Vec::with_capacity(size);
    if size > 0 {
        // SAFETY: the C contract says that `data` has `size` bytes; `bytes` has room for them, and then has them.
        unsafe {
            std::ptr::copy_nonoverlapping(data.cast::<u8>(), bytes.as_mut_ptr(), size);
            bytes.set_len(size);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes behind which nothing belongs to the caller; from an odd address on.
    fn odd(bytes: &[u8]) -> (Vec<u8>, *mut u8) {
        let mut memory = [&[0], bytes].concat();
        let start = memory.as_mut_ptr().wrapping_add(1);
        (memory, start)
    }

    #[test]
    fn arrays_at_odd_addresses_are_copied_and_not_read_beyond_their_end() {
        for count in [0, 1, OBJECTS_WAITED_ON_MAX, OBJECTS_WAITED_ON_MAX + 1] {
            let bytes: Vec<u8> = (0..count as u64).flat_map(u64::to_le_bytes).collect();
            let (_memory, start) = odd(&bytes);
            let expected: Vec<u64> = (0..count as u64).collect();
            let mut copy = Array::default();
            assert_eq!(read_values(&mut copy, start.cast::<u64>(), count as u32), Ok(&expected[..]));
            assert_eq!(read_array(start.cast::<u64>(), count), Ok(expected));
            assert_eq!(read_bytes(start.cast::<c_void>(), bytes.len() as u32), Ok(bytes));
        }
    }

    #[test]
    fn null_and_counts_that_no_message_has_room_for_are_refused_unread() {
        let refused = NtStatus::INVALID_PARAMETER;
        let (_memory, start) = odd(&[1]);
        for (address, count) in [(std::ptr::null_mut(), 1), (start, u32::MAX)] {
            let mut copy = Array::default();
            assert_eq!(read_handles(&mut copy, address.cast::<u32>(), count), Err(refused));
            assert_eq!(read_array(address.cast::<u64>(), count as usize), Err(refused));
            assert_eq!(read_bytes(address.cast::<c_void>(), count), Err(refused));
        }
        assert_eq!(read(std::ptr::null::<u64>()), Err(refused));
    }

    #[test]
    fn a_buffer_gets_what_fits() {
        let (memory, start) = odd(&[0; 3]);
        write_bytes(start.cast::<c_void>(), 3, &[1, 2, 3, 4]);
        write_bytes(std::ptr::null_mut(), 3, &[1]);
        write(start.cast::<u16>(), read(start.cast::<u16>()).map_or(0, u16::swap_bytes));
        // SAFETY: the pointer is into `memory`, which lives.
        assert_eq!(unsafe { std::slice::from_raw_parts(start, 3) }, [2, 1, 3]);
        drop(memory);
    }
}
