//! Events of the caller: eventfd numbers where Windows has event handles.
//!
//! The caller may close its descriptor as soon as the call returns, while the wait is still pending. So an event that
//! outlives the call is a duplicate.
//!
//! `unsafe` here: the caller's descriptor is borrowed during a call.

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use ::client::{NotAnEvent, RegisteredEvent};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::fork::ABOVE_STANDARD_STREAMS;

/// A caller's event, checked, valid during the call.
#[derive(Clone, Copy, Debug)]
pub struct CallerEvent(RawFd);

impl CallerEvent {
    /// Converts the HANDLE of an event: the number of an eventfd. Never 0, which is NULL. Refuses what is clearly no
    /// event. The rest is known only once the event is set or duplicated, because a full check costs as much as a call.
    pub fn from_handle(handle: u64) -> Result<CallerEvent, NotAnEvent> {
        match RawFd::try_from(handle) {
            Ok(number) if number > 0 && (is_anonymous(number) || is_eventfd(number)) => {
                Ok(CallerEvent(number))
            }
            _ => Err(NotAnEvent),
        }
    }

    fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: checked open in this call. If the caller closes it meanwhile, it gets an error or sets another of its
        // events; no memory is at stake.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    /// Sets the event during the call. Other files on an anonymous inode refuse the write.
    pub fn set(&self) -> Result<(), NotAnEvent> {
        match set(self.borrow()) {
            Ok(true) => Ok(()),
            Ok(false) if is_eventfd(self.0) => Ok(()),
            Ok(false) | Err(_) => Err(NotAnEvent),
        }
    }

    /// Duplicates the event for use after the call.
    pub fn keep(&self) -> Result<Event, NotAnEvent> {
        if !is_eventfd(self.0) {
            return Err(NotAnEvent);
        }
        let duplicate = rustix::io::fcntl_dupfd_cloexec(self.borrow(), ABOVE_STANDARD_STREAMS);
        duplicate.map(|duplicate| Event(Arc::new(duplicate))).map_err(|_| NotAnEvent)
    }
}

impl ::client::CallerEvent for CallerEvent {
    type Registered = Event;

    fn set(&self) -> Result<(), NotAnEvent> {
        CallerEvent::set(self)
    }

    fn keep(&self) -> Result<Event, NotAnEvent> {
        CallerEvent::keep(self)
    }
}

/// A duplicate of a caller's event.
#[derive(Clone, Debug)]
pub struct Event(Arc<OwnedFd>);

impl RegisteredEvent for Event {
    fn set(&self) {
        Event::set(self);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Event {
    /// An event of the library's own.
    pub fn new() -> std::io::Result<Event> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let above = rustix::io::fcntl_dupfd_cloexec(&event, ABOVE_STANDARD_STREAMS)?;
        Ok(Event(Arc::new(above)))
    }

    /// Blocks until it is set, and clears it.
    pub fn wait(&self) -> std::io::Result<()> {
        let mut count = [0; 8];
        rustix::io::retry_on_intr(|| rustix::io::read(self.0.as_fd(), &mut count))?;
        Ok(())
    }

    pub fn set(&self) {
        // It was checked to be an eventfd when it was duplicated.
        let _ = set(self.0.as_fd());
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

fn is_eventfd(number: RawFd) -> bool {
    const LINK: &[u8] = b"anon_inode:[eventfd]";
    let mut path = [0u8; 32];
    let mut rest = &mut path[..];
    write!(rest, "/proc/self/fd/{number}").expect("the path fits");
    let left = rest.len();
    let length = path.len() - left;
    let mut target = [MaybeUninit::<u8>::uninit(); 32];
    match rustix::fs::readlinkat_raw(rustix::fs::CWD, &path[..length], &mut target) {
        Ok((target, _)) => *target == *LINK,
        // Without /proc any anonymous inode passes: files that are no event refuse the write.
        Err(Errno::NOENT) if std::fs::metadata("/proc/self").is_err() => is_anonymous(number),
        Err(_) => false,
    }
}

fn is_anonymous(number: RawFd) -> bool {
    // SAFETY: borrowed for one fstat, which answers EBADF for a number that is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::fs::fstat(borrowed).is_ok_and(|status| status.st_mode & libc::S_IFMT == 0)
}
