//! Cancellation of threads (`pthread_cancel`) in calls of the libraries.
//!
//! A call is no cancellation point, as an ioctl is none: a thread that was cancelled returns from it, and ends at the next
//! cancellation point of its own. Inside a call libc has some, above all `close`. There it would unwind through Rust, which
//! ends the program.
//!
//! `unsafe` here: the state of the calling thread is set by libc.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::null_mut;

const DISABLED: c_int = 1;

unsafe extern "C" {
    /// The crate `libc` does not have it.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While it lives, the thread that made it is not cancelled.
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
    of_this_thread: PhantomData<*mut ()>,
}

impl Uncancelled {
    #[inline]
    #[must_use]
    pub fn begin() -> Uncancelled {
        let mut before = DISABLED;
        // SAFETY: libc writes the state so far to `before`.
        unsafe { pthread_setcancelstate(DISABLED, &raw mut before) };
        Uncancelled { before, of_this_thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a state that libc has returned; nothing is written.
        unsafe { pthread_setcancelstate(self.before, null_mut()) };
    }
}
