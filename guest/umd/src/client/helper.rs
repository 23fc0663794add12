//! The helper thread, started when the first event is armed, and what it sleeps on.
//!
//! It watches the stream through a one-shot epoll that is armed only while events are armed *and*
//! nobody reads the stream: a leader switches the watch off for as long as it leads. So the helper
//! is not woken for what a leader reads, and a call costs two epoll_ctl instead of two switches of
//! context.
//!
//! `unsafe` here: the thread must get none of the host program's signals.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::fork::SessionDescriptor;
use crate::limits::HELPER_STACK_BYTES;

/// Where the helper sleeps.
#[derive(Debug)]
pub(super) struct Watch(SessionDescriptor);

impl Watch {
    /// A watch on the stream, switched off.
    pub fn new(stream: BorrowedFd<'_>) -> Result<Watch, Errno> {
        let [epoll] =
            SessionDescriptor::adopt(|| epoll::create(epoll::CreateFlags::CLOEXEC).map(|epoll| [epoll]))?;
        let watch = Watch(epoll);
        watch.add(stream)?;
        Ok(watch)
    }

    /// Another stream has taken the place of the one that is watched: the system has forgotten that.
    pub fn add(&self, stream: BorrowedFd<'_>) -> Result<(), Errno> {
        // One-shot in every state: a hang-up is told of even without flags, but only once.
        epoll::add(self.0.as_fd(), stream, epoll::EventData::new_u64(0), epoll::EventFlags::ONESHOT)
    }

    /// Wakes the helper once, as soon as the stream has bytes or has ended; also if it has by now.
    pub fn switch_on(&self, stream: BorrowedFd<'_>) {
        self.modify(stream, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT);
    }

    /// Wakes it once if the stream ends.
    pub fn switch_off(&self, stream: BorrowedFd<'_>) {
        self.modify(stream, epoll::EventFlags::ONESHOT);
    }

    fn modify(&self, stream: BorrowedFd<'_>, flags: epoll::EventFlags) {
        // It cannot fail: both descriptors are ours, and the entry was added.
        let _ = epoll::modify(self.0.as_fd(), stream, epoll::EventData::new_u64(0), flags);
    }

    /// Sleeps until the watch fires. An error is an early return: the caller looks again.
    pub fn sleep(&self) {
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 1];
        let _ = epoll::wait(self.0.as_fd(), &mut events, None);
    }
}

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
