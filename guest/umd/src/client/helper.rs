//! The helper thread, started when the first event is armed, and the epoll that it sleeps on.
//!
//! It watches the stream through a one-shot epoll that is armed only while events are armed *and* no thread reads the
//! stream: a leader switches the watch off while it leads. So the leader's messages do not wake the helper, and a call
//! costs two epoll_ctl instead of two context switches.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::epoll;
use rustix::io::Errno;

use crate::fork::SessionDescriptor;
use crate::limits::HELPER_STACK_BYTES;
use crate::signals::{SENT, block};

/// The epoll that the helper sleeps on.
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

    /// Adds a stream that has replaced the watched one: the kernel dropped the old entry.
    pub fn add(&self, stream: BorrowedFd<'_>) -> Result<(), Errno> {
        // One-shot in every state: a hang-up is reported even without flags, but only once.
        epoll::add(self.0.as_fd(), stream, epoll::EventData::new_u64(0), epoll::EventFlags::ONESHOT)
    }

    /// Wakes the helper once when the stream is readable or has ended, also if it already is.
    pub fn switch_on(&self, stream: BorrowedFd<'_>) {
        self.modify(stream, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT);
    }

    /// Wakes the helper once if the stream ends.
    pub fn switch_off(&self, stream: BorrowedFd<'_>) {
        self.modify(stream, epoll::EventFlags::ONESHOT);
    }

    fn modify(&self, stream: BorrowedFd<'_>, flags: epoll::EventFlags) {
        // It cannot fail: both descriptors belong to this session, and the entry was added.
        let _ = epoll::modify(self.0.as_fd(), stream, epoll::EventData::new_u64(0), flags);
    }

    /// Sleeps until the watch fires. False if the program has closed the epoll, or uses its number. Another error is an early
    /// return: the caller checks again.
    pub fn sleep(&self) -> bool {
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 1];
        let slept = epoll::wait(self.0.as_fd(), &mut events, None);
        !matches!(slept, Err(Errno::BADF | Errno::INVAL))
    }
}

/// Starts the helper.
pub(super) fn start(body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    start_thread("gpupv-events", HELPER_STACK_BYTES, body)
}

/// Starts a thread that blocks the signals that the program may send, so that its handlers run on its own threads.
pub fn start_thread(
    name: &str,
    stack_bytes: usize,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    let before = block(SENT);
    let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes);
    let started = builder.spawn(body);
    block(before);
    started.map(drop)
}
