//! The helper thread: started when the first event is armed, never before.
//!
//! `unsafe` here: the thread must get none of the host program's signals.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags};

use crate::limits::HELPER_STACK_BYTES;

/// Starts the helper with every signal blocked: the program's handlers belong on its own threads.
pub(super) fn start(body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are ours; `before` is written by the call, and read only as it left it.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let builder = std::thread::Builder::new().name("gpupv-events".to_owned()).stack_size(HELPER_STACK_BYTES);
    let started = builder.spawn(body);
    // SAFETY: gives this thread back the set that the first call stored.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started.map(drop)
}

/// Sleeps until the stream has bytes, or has ended.
pub(super) fn wait_readable(stream: BorrowedFd<'_>) {
    let mut ready = [PollFd::from_borrowed_fd(stream, PollFlags::IN)];
    // An error is an early return: the caller looks again.
    let _ = rustix::event::poll(&mut ready, None);
}
