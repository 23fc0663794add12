//! Areas that are mapped into this process: both of a client process, and both of a local one at the daemon.
//!
//! `unsafe`: memory is mapped that another process accesses at the same time. All accesses are atomic.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::{AREA_BYTES, Area, HEAD_BYTES, OwnArea, RING_BYTES, Word};

const WORD_BYTES: usize = size_of::<AtomicU64>();

/// An area of the other side, mapped read-only.
#[derive(Clone, Debug)]
pub struct MappedArea(Arc<Mapping>);

/// This side's own area, mapped writable.
#[derive(Clone, Debug)]
pub struct OwnMappedArea(MappedArea);

#[derive(Debug)]
struct Mapping(NonNull<u8>);

// SAFETY: the mapping belongs to this value and to no thread; all accesses to it are atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps an area. Its size was sealed, or this process trusts who made it. A forked child does not have it.
    fn new(memory: BorrowedFd<'_>, access: ProtFlags) -> Result<Mapping, Errno> {
        if rustix::fs::fstat(memory)?.st_size < AREA_BYTES as i64 {
            return Err(Errno::OVERFLOW);
        }
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), AREA_BYTES, access, MapFlags::SHARED, memory, 0)?
        };
        let mapping = Mapping(NonNull::new(base.cast()).ok_or(Errno::NOMEM)?);
        // SAFETY: the mapping just made; a child that accessed it would speak for its parent.
        unsafe { rustix::mm::madvise(base, AREA_BYTES, Advice::LinuxDontFork)? };
        Ok(mapping)
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned, and only ever accessed atomically.
        unsafe { self.0.add(word.offset()).cast().as_ref() }
    }

    /// The ring in words of 8 bytes. A word and its bytes are never accessed at once: what is published is not written
    /// before it was taken, and a peer that breaks that is another process.
    fn ring_words(&self) -> &[AtomicU64] {
        // SAFETY: inside the mapping, aligned, and only ever accessed atomically.
        unsafe {
            NonNull::slice_from_raw_parts(self.0.add(HEAD_BYTES).cast(), RING_BYTES / WORD_BYTES).as_ref()
        }
    }

    fn ring(&self) -> &[AtomicU8] {
        // SAFETY: inside the mapping, and only ever accessed atomically.
        unsafe { NonNull::slice_from_raw_parts(self.0.add(HEAD_BYTES).cast(), RING_BYTES).as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; nothing refers into it after this value.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), AREA_BYTES) };
    }
}

impl MappedArea {
    pub fn map(memory: BorrowedFd<'_>) -> Result<MappedArea, Errno> {
        Ok(MappedArea(Arc::new(Mapping::new(memory, ProtFlags::READ)?)))
    }

    /// Where its bytes are.
    pub fn address(&self) -> usize {
        self.0.0.as_ptr().expose_provenance()
    }
}

impl OwnMappedArea {
    pub fn map(memory: BorrowedFd<'_>) -> Result<OwnMappedArea, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        Ok(OwnMappedArea(MappedArea(Arc::new(Mapping::new(memory, access)?))))
    }

    /// Where its bytes are.
    pub fn address(&self) -> usize {
        self.0.address()
    }
}

impl Area for MappedArea {
    fn load(&self, word: Word) -> u64 {
        self.0.word(word).load(Ordering::Acquire)
    }

    fn read(&self, at: usize, to: &mut Vec<u8>, count: usize) {
        let (end, ring) = (at + count, self.0.ring());
        let load = |byte: &AtomicU8| byte.load(Ordering::Relaxed);
        // Bytes up to the first whole word, whole words, and the bytes after them.
        let first_word = at.next_multiple_of(WORD_BYTES).min(end);
        let words =
            &self.0.ring_words()[first_word / WORD_BYTES..(end / WORD_BYTES).max(first_word / WORD_BYTES)];
        to.reserve(count);
        to.extend(ring[at..first_word].iter().map(load));
        for word in words {
            to.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        to.extend(ring[first_word + words.len() * WORD_BYTES..end].iter().map(load));
    }
}

impl Area for OwnMappedArea {
    fn load(&self, word: Word) -> u64 {
        self.0.load(word)
    }

    fn read(&self, at: usize, to: &mut Vec<u8>, count: usize) {
        self.0.read(at, to, count);
    }
}

impl OwnArea for OwnMappedArea {
    fn store(&self, word: Word, value: u64) {
        self.0.0.word(word).store(value, Ordering::Release);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (to, byte) in self.0.0.ring()[at..at + bytes.len()].iter().zip(bytes) {
            to.store(*byte, Ordering::Relaxed);
        }
    }
}
