//! A one-shot timer, with no wake-ups unless it is started.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A one-shot timer. Clones are the same timer.
#[derive(Clone, Debug)]
pub(crate) struct OneShot {
    descriptor: Arc<OwnedFd>,
    running: Arc<AtomicBool>,
}

impl OneShot {
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = Arc::new(timerfd_create(TimerfdClockId::Monotonic, flags)?);
        Ok(Self { descriptor, running: Arc::default() })
    }

    /// Starts it unless it runs. False if it cannot be started.
    pub fn start(&self, span_ns: i64) -> bool {
        if self.running.swap(true, Ordering::AcqRel) {
            return true;
        }
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: none, it_value: Timespec { tv_sec: 0, tv_nsec: span_ns } };
        let started = timerfd_settime(&*self.descriptor, TimerfdTimerFlags::empty(), &once).is_ok();
        self.running.store(started, Ordering::Release);
        started
    }

    /// Acknowledges the expiry, so that the descriptor is no longer readable.
    pub fn acknowledge(&self) {
        let _ = rustix::io::read(&*self.descriptor, &mut [0; 8]);
        self.running.store(false, Ordering::Release);
    }
}

impl AsFd for OneShot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
