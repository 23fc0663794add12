//! Signals that a thread leaves to other threads of its process.
//!
//! The system delivers a signal of the process to any thread that does not block it. A handler makes system calls, and
//! the list of its thread may lack them.
//!
//! `unsafe`: the functions of C for sets of signals.

use std::ffi::c_int;
use std::mem::zeroed;

/// Signals that the thread causes itself: the system ends the process if one of them is blocked.
const OWN: [c_int; 7] =
    [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP];

/// Blocks all signals in the calling thread but those that it causes itself. Threads that it starts inherit it.
pub(crate) fn block() {
    // SAFETY: the set is this frame's and is filled before it is read; the numbers are of signals, so no call fails.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigfillset(&raw mut set);
        for signal in OWN {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}
