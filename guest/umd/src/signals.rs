//! Signals that a thread blocks: in the library's own threads, and where a handler of the program must not run.
//!
//! `unsafe` here: the mask of the calling thread is set by a system call, because libc changes what it is given.

use std::ffi::c_int;

/// Signals of a thread, a bit for each from 1 on.
pub type Signals = u64;

/// Signals that a thread causes itself. If one is blocked, the kernel ends the process instead of calling its handler, and
/// runtimes, capture tools and sandboxes need theirs.
const OWN_FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
/// Signals by which libc cancels a thread, and by which all threads change their user: their sender waits for them.
const OF_LIBC: [c_int; 2] = [32, 33];

/// All that the program may send.
pub const SENT: Signals = !(bits(&OWN_FAULTS) | bits(&OF_LIBC));

const fn bits(signals: &[c_int]) -> Signals {
    let (mut bits, mut at) = (0, 0);
    while at < signals.len() {
        bits |= 1 << (signals[at] - 1);
        at += 1;
    }
    bits
}

/// Blocks these signals in this thread, and no others. Returns those that were blocked before.
pub fn block(signals: Signals) -> Signals {
    change(&raw const signals)
}

/// The signals that this thread blocks.
pub fn blocked() -> Signals {
    change(std::ptr::null())
}

fn change(new: *const Signals) -> Signals {
    let mut before: Signals = 0;
    let old = &raw mut before;
    // SAFETY: the kernel reads one mask, if there is one, and writes the other, each of so many bytes. It cannot fail.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size_of::<Signals>()) };
    before
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::client::start_thread;

    #[test]
    fn a_thread_of_the_library_blocks_what_is_sent_and_none_of_its_faults() {
        let before = blocked();
        let (sender, receiver) = mpsc::channel();
        start_thread("test", 1 << 16, move || sender.send(blocked()).unwrap()).unwrap();
        let blocked_there = receiver.recv().unwrap();
        assert_eq!(
            blocked_there & bits(&[libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, 64]),
            bits(&[15, 2, 10, 64])
        );
        assert_eq!(blocked_there & (bits(&OWN_FAULTS) | bits(&OF_LIBC)), 0);
        assert_eq!(blocked(), before);
    }
}
