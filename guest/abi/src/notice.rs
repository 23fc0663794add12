//! Lines on stderr for the user of the program, as both libraries print them.
//!
//! `unsafe` here: stderr is written by libc, and a signal of the calling thread is blocked and consumed by it.

use std::mem::MaybeUninit;

use crate::cancellation::Uncancelled;

/// Prints one line. A stderr that is closed, or that nobody reads any more, is ignored. A line for which it has no room is
/// dropped, because the caller may hold a lock.
pub fn print_line(line: std::fmt::Arguments<'_>) {
    let _uncancelled = Uncancelled::begin();
    if !has_room() {
        return;
    }
    // One write, so that lines of several processes do not mix.
    let line = format!("gpupv: {line}\n");
    without_sigpipe(|| {
        // SAFETY: writes the bytes of `line`.
        let written = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
        written < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPIPE)
    });
}

/// Whether a write to stderr would not block. True if that is unknown: a process may be allowed no descriptor to ask about.
fn has_room() -> bool {
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, as the count says.
    unsafe { libc::poll(&raw mut stderr, 1, 0) != 0 }
}

/// Runs `write`, which returns whether it has raised SIGPIPE. That signal would end a program that does not expect it: it
/// is blocked in this thread, and consumed unless one was pending before.
fn without_sigpipe(write: impl FnOnce() -> bool) {
    let [mut sigpipe, mut pending, mut before] = [const { MaybeUninit::<libc::sigset_t>::uninit() }; 3];
    // SAFETY: the first call initializes `sigpipe`, and the last two write the other sets before they are read.
    let was_pending = unsafe {
        libc::sigemptyset(sigpipe.as_mut_ptr());
        libc::sigaddset(sigpipe.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, sigpipe.as_ptr(), before.as_mut_ptr());
        libc::sigpending(pending.as_mut_ptr());
        libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1
    };
    let is_raised = write();
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the sets are initialized. Without a place for its information a signal is only consumed.
    unsafe {
        if is_raised && !was_pending {
            libc::sigtimedwait(sigpipe.as_ptr(), std::ptr::null_mut(), &raw const at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}
