//! Events of the caller: eventfd numbers where Windows has event handles.
//!
//! The caller may close its descriptor as soon as the call returns, while the wait is still pending, and another thread
//! may close it even during the call. So the library uses a duplicate, and checks that, from the first look on: its number
//! cannot become that of another file.
//!
//! `unsafe` here: the caller's descriptor is borrowed to be duplicated, and rustix takes getrlimit for one that cannot fail.

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::client::{EventError, RegisteredEvent};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::fork::{ABOVE_STANDARD_STREAMS, generation};
use crate::limits::EVENTS_SHARE;
use crate::notice::print;

/// A duplicate of a caller's event, for one call.
#[derive(Debug)]
pub struct CallerEvent(OwnedFd);

impl CallerEvent {
    /// Converts the HANDLE of an event: the number of an eventfd. Never 0, which is NULL. Refuses what is clearly no
    /// event. The rest is known only once the event is set or kept, because a full check costs as much as a call.
    pub fn from_handle(handle: u64) -> Result<CallerEvent, EventError> {
        let number = RawFd::try_from(handle).ok().filter(|number| *number > 0);
        let number = number.ok_or(EventError::NotAnEvent)?;
        // SAFETY: borrowed for one fcntl, which answers EBADF for a number that is not open.
        let callers = unsafe { BorrowedFd::borrow_raw(number) };
        let event = match rustix::io::fcntl_dupfd_cloexec(callers, ABOVE_STANDARD_STREAMS) {
            Ok(event) => event,
            Err(Errno::MFILE) => return Err(EventError::NoDescriptor),
            Err(_) => return Err(EventError::NotAnEvent),
        };
        match is_anonymous(event.as_fd()) || is_eventfd(event.as_fd()) {
            true => Ok(CallerEvent(event)),
            false => Err(EventError::NotAnEvent),
        }
    }

    /// Sets the event during the call. Other files on an anonymous inode refuse the write.
    pub fn set(&self) -> Result<(), EventError> {
        match set(self.0.as_fd()) {
            Ok(true) => Ok(()),
            Ok(false) if is_eventfd(self.0.as_fd()) => Ok(()),
            Ok(false) | Err(_) => Err(EventError::NotAnEvent),
        }
    }

    /// The event for use after the call, as long as an object of the program.
    pub fn keep(self) -> Result<Event, EventError> {
        self.keep_as(false)
    }

    fn keep_as(self, is_pending: bool) -> Result<Event, EventError> {
        match is_eventfd(self.0.as_fd()) {
            true => Ok(Event::of(self.0, is_pending)),
            false => Err(EventError::NotAnEvent),
        }
    }
}

impl ::client::CallerEvent for CallerEvent {
    type Registered = Event;

    fn set(&self) -> Result<(), EventError> {
        CallerEvent::set(self)
    }

    /// For a wait or a signal, which may stay pending when the program no longer cares.
    fn keep(self) -> Result<Event, EventError> {
        let takes_the_reserve = takes_the_reserve(self.0.as_raw_fd());
        let event = self.keep_as(true)?;
        if takes_the_reserve { Err(EventError::NoDescriptor) } else { Ok(event) }
    }
}

/// Events of pending waits and signals. The high half is the generation of the process that counts them: a child has copies
/// of its parent's, which stay open, and counts its own.
static PENDING: AtomicU64 = AtomicU64::new(0);

fn no_pending(generation: u32) -> u64 {
    u64::from(generation) << u32::BITS
}

#[derive(Debug)]
struct Kept {
    descriptor: OwnedFd,
    /// It counts as pending in the process of this generation.
    is_pending: AtomicBool,
    generation: u32,
}

impl Kept {
    fn end_pending(&self) {
        if self.is_pending.swap(false, Ordering::Relaxed) && self.generation == generation() {
            PENDING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end_pending();
    }
}

/// Whether a descriptor of this number is to stay free for the program. A client polls its event for a while, closes it and
/// waits again: its waits stay pending and keep one descriptor each. The lowest free number says that all below are used.
fn takes_the_reserve(number: RawFd) -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let pending = PENDING.load(Ordering::Relaxed).saturating_sub(no_pending(generation()));
    // Most programs have none, and are spared the system call.
    let Some(limit) = (pending > 0).then(descriptors_max).flatten() else { return false };
    let share = limit / EVENTS_SHARE;
    let takes = pending > share && number as u64 >= limit - share;
    if takes && !SAID.swap(true, Ordering::Relaxed) {
        print(format_args!(
            "waits with an event are refused: {pending} events of calls that are pending keep a descriptor each, of the {limit} \
             that the program may have (ulimit -n), and the rest is left to the program"
        ));
    }
    takes
}

/// The program's limit of descriptors; `None` without one, or if a filter of the program forbids to ask.
pub(super) fn descriptors_max() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes to the struct only.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    (is_known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// A duplicate of a caller's event.
#[derive(Clone, Debug)]
pub struct Event(Arc<Kept>);

impl RegisteredEvent for Event {
    fn set(&self) {
        Event::set(self);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

impl Event {
    fn of(descriptor: OwnedFd, is_pending: bool) -> Event {
        let generation = generation();
        if is_pending {
            let more = |count: u64| Some(count.max(no_pending(generation)) + 1);
            let _ = PENDING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
        Event(Arc::new(Kept { descriptor, is_pending: AtomicBool::new(is_pending), generation }))
    }

    /// An event of the library's own.
    pub fn new() -> std::io::Result<Event> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let above = rustix::io::fcntl_dupfd_cloexec(&event, ABOVE_STANDARD_STREAMS)?;
        Ok(Event::of(above, false))
    }

    /// Blocks until it is set, and clears it, or until the time is over. One thread waits.
    pub fn wait(&self, timeout: Option<Duration>) -> std::io::Result<()> {
        let mut ready = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout).expect("no longer than a limit"));
        let is_set = rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, timeout.as_ref()))? > 0;
        if is_set {
            rustix::io::retry_on_intr(|| rustix::io::read(self.as_fd(), &mut [0; 8]))?;
        }
        Ok(())
    }

    /// Sets it unless its number is of another file. A program that closes descriptors which it has not opened loses the
    /// session by that: if `taken`, it may close this one, and use its number, at any time, so the number is left to it.
    pub fn set_at_loss(self, taken: bool) {
        let is_own = is_anonymous(self.as_fd());
        if is_own {
            self.set();
        }
        if taken || !is_own {
            self.0.end_pending();
            std::mem::forget(self);
        }
    }

    pub fn set(&self) {
        // It was checked to be an eventfd when it was duplicated.
        let _ = set(self.as_fd());
    }
}

/// Adds 1 without blocking. False if the counter is at its limit: then the event is set already.
fn set(event: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut ready = [PollFd::from_borrowed_fd(event, PollFlags::OUT)];
    let now = Timespec::default();
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, Some(&now)))?;
    let room = ready[0].revents().contains(PollFlags::OUT);
    if room {
        rustix::io::retry_on_intr(|| rustix::io::write(event, &1u64.to_ne_bytes()))?;
    }
    Ok(room)
}

fn is_eventfd(file: BorrowedFd<'_>) -> bool {
    const LINK: &[u8] = b"anon_inode:[eventfd]";
    let mut path = [0u8; 32];
    let mut rest = &mut path[..];
    // `/proc/self` is the main thread, which a program may have ended, and then has no descriptors.
    write!(rest, "/proc/thread-self/fd/{}", file.as_raw_fd()).expect("the path fits");
    let left = rest.len();
    let length = path.len() - left;
    let mut target = [MaybeUninit::<u8>::uninit(); 32];
    match rustix::fs::readlinkat_raw(rustix::fs::CWD, &path[..length], &mut target) {
        Ok((target, _)) => *target == *LINK,
        // Without /proc any anonymous inode passes: files that are no event refuse the write.
        Err(Errno::NOENT) if std::fs::metadata("/proc/self").is_err() => is_anonymous(file),
        Err(_) => false,
    }
}

fn is_anonymous(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(file).is_ok_and(|status| status.st_mode & libc::S_IFMT == 0)
}
