//! Pins memory so that its guest-physical address never changes.
//!
//! The host stores into fence pages by guest-physical address, so the guest's kernel must not move them. `mlock` keeps
//! a page in memory but lets compaction move it. A buffer that is registered with io_uring holds a *long-term pin*:
//! the kernel moves such a page to where it may stay, and then leaves it there until it is unregistered.
//!
//! One ring with a sparse table of buffers serves all regions; no I/O is ever done on it. Without io_uring, `mlock` is
//! used and compaction is set to leave locked pages in place, which is logged once.
//!
//! `unsafe`: registered memory must stay mapped until unregistered; [`crate::region::Region`] guarantees that.

use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;
use std::time::Duration;

use io_uring::IoUring;

use crate::limits::{PINNED_REGIONS_MAX, UNPIN_TIME};

/// Pins regions. The broker's thread has one.
pub struct Pinner {
    kind: Kind,
    /// Why pages may move, if they may.
    pub weakness: Option<String>,
}

#[derive(Clone)]
enum Kind {
    Ring(Rc<Ring>),
    Locked,
}

struct Ring {
    ring: IoUring,
    free: RefCell<Vec<u32>>,
}

/// Keeps one range of memory where it is until dropped.
pub struct Pin {
    kind: Kind,
    index: u32,
    start: *mut c_void,
    length_bytes: usize,
}

impl Default for Pinner {
    fn default() -> Self {
        Self::new()
    }
}

impl Pinner {
    pub fn new() -> Self {
        match ring() {
            Ok(ring) => Self { kind: Kind::Ring(Rc::new(ring)), weakness: None },
            Err(error) => Self::locked(&error),
        }
    }

    /// How long the kernel may keep pages that were unpinned: Linux before 6.4 clears entries of a ring's table behind
    /// its caller, up to a second later. `None` if it frees them at once.
    pub fn unpin_time(&self) -> Option<Duration> {
        match self.kind {
            Kind::Ring(_) => Some(UNPIN_TIME),
            Kind::Locked => None,
        }
    }

    /// A pinner without io_uring, because of `error`.
    pub(crate) fn locked(error: &std::io::Error) -> Self {
        let weakness = format!("io_uring is not usable ({error}): fence memory is locked instead");
        Self { kind: Kind::Locked, weakness: Some(weakness) }
    }

    /// Pins a range of whole pages, present or not.
    ///
    /// # Safety
    /// The range must be mapped writable, and stay so until the pin is dropped.
    pub unsafe fn pin(&self, start: *mut c_void, length_bytes: usize) -> Result<Pin, String> {
        let index = match &self.kind {
            // SAFETY: the caller keeps the range mapped until the pin is dropped, which clears the table's entry.
            Kind::Ring(ring) => unsafe { ring.register(start, length_bytes)? },
            Kind::Locked => {
                // SAFETY: the caller says that the range is mapped; locking changes no contents.
                unsafe { rustix::mm::mlock(start, length_bytes) }
                    .map_err(|error| format!("cannot lock {length_bytes} bytes: {error}"))?;
                0
            }
        };
        Ok(Pin { kind: self.kind.clone(), index, start, length_bytes })
    }
}

/// Sets the kernel of this machine to leave locked memory in place, if locking is all that is available.
pub fn keep_locked_memory_in_place() -> Result<(), String> {
    const SETTING: &str = "/proc/sys/vm/compact_unevictable_allowed";
    std::fs::write(SETTING, "0").map_err(|error| {
        format!("the kernel may move fence memory, so fence values may be lost ({SETTING}: {error})")
    })
}

fn ring() -> std::io::Result<Ring> {
    let ring = IoUring::new(1)?;
    ring.submitter().register_buffers_sparse(PINNED_REGIONS_MAX)?;
    Ok(Ring { ring, free: RefCell::new((0..PINNED_REGIONS_MAX).rev().collect()) })
}

impl Ring {
    /// # Safety
    /// As [`Pinner::pin`].
    unsafe fn register(&self, start: *mut c_void, length_bytes: usize) -> Result<u32, String> {
        let mut free = self.free.borrow_mut();
        let Some(index) = free.last().copied() else {
            return Err(format!(
                "{PINNED_REGIONS_MAX} regions of memory are pinned, there is no room for more"
            ));
        };
        let buffer = libc::iovec { iov_base: start, iov_len: length_bytes };
        // SAFETY: the caller keeps the buffer mapped until `unregister`.
        unsafe { self.ring.submitter().register_buffers_update(index, &[buffer], None) }
            .map_err(|error| format!("cannot pin {length_bytes} bytes: {error}"))?;
        free.pop();
        Ok(index)
    }

    fn unregister(&self, index: u32) {
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: an empty entry refers to no memory.
        let cleared = unsafe { self.ring.submitter().register_buffers_update(index, &[empty], None) };
        // An entry that could not be cleared keeps its pages pinned and is not used again.
        if cleared.is_ok() {
            self.free.borrow_mut().push(index);
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        match &self.kind {
            Kind::Ring(ring) => ring.unregister(self.index),
            Kind::Locked => {
                // SAFETY: the range is still mapped (contract of `Pinner::pin`); unlocking changes no contents.
                let _ = unsafe { rustix::mm::munlock(self.start, self.length_bytes) };
            }
        }
    }
}
