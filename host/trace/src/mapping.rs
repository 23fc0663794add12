//! A file mapped as shared memory: stores into it survive a kill of this process.
//!
//! `unsafe`: the memory is shared with readers of the file. No reference into it exists; bytes are only written, and
//! copied out.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared, writable mapping of a file.
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to the mapping, and only `&mut self` writes to it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of a file after allocating their disk space, because a store to a page without
    /// space would kill the process.
    pub fn new(file: &File, length: usize) -> io::Result<Mapping> {
        reserve(file, length)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the system chooses the address, so no other mapping is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, length })
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// Writes bytes at an offset. Panics if they do not fit.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.length && bytes.len() <= self.length - at, "within the mapping");
        // SAFETY: the range was checked to be within the mapping, and `bytes` is no part of it.
        unsafe { self.start.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// The mapping from `at` on, for many short writes. Panics if that is less than 8 bytes.
    #[inline]
    pub fn window(&mut self, at: usize) -> Window<'_> {
        assert!(at <= self.length && self.length - at >= 8, "within the mapping");
        // SAFETY: `at` was checked to be within the mapping.
        let start = unsafe { self.start.add(at) };
        Window { start, last: self.length - at - 8, mapping: PhantomData }
    }

    /// Appends a range of the mapping to `out`. Panics if it is out of bounds.
    pub fn copy_to(&self, range: Range<usize>, out: &mut Vec<u8>) {
        assert!(range.start <= range.end && range.end <= self.length, "within the mapping");
        let (length, count) = (out.len(), range.len());
        out.reserve(count);
        // SAFETY: the range was checked to be within the mapping. `out` has room for `count` bytes after its content,
        // outside of the mapping, and they are initialized before its length is set.
        unsafe {
            self.start.as_ptr().add(range.start).copy_to_nonoverlapping(out.as_mut_ptr().add(length), count);
            out.set_len(length + count);
        }
    }

    /// Stores 8 bytes atomically, little-endian, at a multiple of 8, with release order after all earlier writes.
    #[inline]
    pub fn publish(&mut self, at: usize, value: u64) {
        assert!(at.is_multiple_of(8) && at + 8 <= self.length, "within the mapping");
        // SAFETY: 8 aligned bytes within the mapping, which begins at a page; there is no reference to them.
        let word = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) };
        word.store(value.to_le(), Ordering::Release);
    }
}

/// The part of a mapping from an offset to its end.
pub struct Window<'a> {
    start: NonNull<u8>,
    /// The last offset at which 8 bytes fit.
    last: usize,
    mapping: PhantomData<&'a mut Mapping>,
}

impl Window<'_> {
    /// Stores 8 bytes, little-endian, at any offset. Panics if they do not fit.
    #[inline(always)]
    pub fn write_word(&mut self, at: usize, word: u64) {
        assert!(at <= self.last, "within the mapping");
        // SAFETY: 8 bytes from there are within the mapping, which lives as long as this; they need not be aligned.
        unsafe { self.start.as_ptr().add(at).cast::<u64>().write_unaligned(word.to_le()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no pointer to it is used any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Allocates disk space for the first `length` bytes of a file.
fn reserve(file: &File, length: usize) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, length as u64) {
        // Some file systems lack fallocate; there, write zeros beyond the file's end.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            use std::os::unix::fs::FileExt as _;
            let begin = file.metadata()?.len();
            let zeros = vec![0; length.saturating_sub(begin as usize)];
            file.write_all_at(&zeros, begin)
        }
        other => Ok(other?),
    }
}
