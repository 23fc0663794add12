//! The one timer: when the kernel next wants to be told the time. Armed only while an engine is busy,
//! so that a daemon at rest has no wake-ups.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use dxgkrnl::Nanos;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Which time the kernel is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// CLOCK_MONOTONIC, from the daemon's start.
    #[default]
    Monotonic,
    /// Stands still at 0 until `Daemon::advance` moves it: a scenario has exact time.
    Virtual,
}

/// The daemon's clock and its timer descriptor.
#[derive(Debug)]
pub struct Timer {
    descriptor: OwnedFd,
    clock: Clock,
    /// CLOCK_MONOTONIC when the daemon started.
    epoch: u64,
    /// The time of [`Clock::Virtual`]; changes under the seat only.
    moved_to: AtomicU64,
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * NANOS_PER_SECOND + now.tv_nsec as u64
}

impl Timer {
    pub fn new(clock: Clock) -> std::io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Timer { descriptor, clock, epoch: monotonic(), moved_to: AtomicU64::new(0) })
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Time since the daemon started.
    pub fn now(&self) -> Nanos {
        match self.clock {
            Clock::Monotonic => monotonic() - self.epoch,
            Clock::Virtual => self.moved_to.load(Ordering::Relaxed),
        }
    }

    /// Sets the time of a virtual clock; another one goes its own way.
    pub(super) fn move_to(&self, now: Nanos) {
        self.moved_to.store(now, Ordering::Relaxed);
    }

    /// Readable when the armed time has come.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Arms for a time, or disarms. A time the kernel cannot express is never reached anyway. Nothing of
    /// the world moves a virtual clock.
    pub fn arm(&self, due: Option<Nanos>) {
        if self.clock == Clock::Virtual {
            return;
        }
        let due = due.and_then(|due| due.checked_add(self.epoch)).filter(|due| *due < i64::MAX as u64);
        // Zero would disarm: an overdue time is due one nanosecond after the clock's start.
        let due = due.map_or(0, |due| due.max(1));
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: (due / NANOS_PER_SECOND) as i64,
                tv_nsec: (due % NANOS_PER_SECOND) as _,
            },
        };
        if let Err(error) = timerfd_settime(&self.descriptor, TimerfdTimerFlags::ABSTIME, &spec) {
            tracing::error!("cannot arm the timer for {due} ns: {error}");
        }
    }

    /// Takes the expiry, so that the descriptor is no longer readable.
    pub fn acknowledge(&self) {
        let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
    }
}
