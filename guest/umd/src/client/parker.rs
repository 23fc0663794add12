//! Where one waiting thread sleeps while another reads the stream.
//!
//! A condition variable sleeps on after a signal handler has run. If that handler has forked, the thread would sleep for
//! ever in the child, where no other thread exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

/// A time limit that no program reaches.
const FOR_EVER: futex::Timespec = futex::Timespec { tv_sec: 1 << 32, tv_nsec: 0 };

/// Counts how often its thread was woken.
#[derive(Clone, Default, Debug)]
pub(super) struct Parker(Arc<AtomicU32>);

impl Parker {
    pub fn is(&self, other: &Parker) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The count for [`Parker::sleep`], read before the thread releases the lock of what it waits for.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps until the count is another one, or a signal handler has run.
    pub fn sleep(&self, count: u32) {
        // With a time limit the system call returns after each handler, also after one with SA_RESTART.
        let _ = futex::wait(&self.0, futex::Flags::PRIVATE, count, Some(&FOR_EVER));
    }

    pub fn wake(&self) {
        self.0.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }
}
