//! The one timer, armed for the kernel's next deadline. Armed only while an engine is busy, so that an idle daemon has
//! no wake-ups.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dxgkrnl::Nanos;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

pub(super) const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The clock of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// CLOCK_MONOTONIC, from the daemon's start.
    #[default]
    Monotonic,
    /// Stands still at 0 until `Daemon::advance` advances it: a scenario has exact time.
    Virtual,
}

/// The daemon's clock and its timer descriptor.
#[derive(Debug)]
pub struct Timer {
    descriptor: OwnedFd,
    clock: Clock,
    /// Subtracted from CLOCK_MONOTONIC, modulo 2^64: its time when the daemon started, or earlier if it resumed from a
    /// journal. Changes under the kernel lock only.
    epoch: AtomicU64,
    /// The time of [`Clock::Virtual`], or of a daemon that waits for its clients. Changes under the kernel lock only.
    moved_to: AtomicU64,
    is_stopped: AtomicBool,
}

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub(super) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * NANOS_PER_SECOND + now.tv_nsec as u64
}

impl Timer {
    pub fn new(clock: Clock) -> std::io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let (epoch, moved_to, is_stopped) =
            (AtomicU64::new(monotonic()), AtomicU64::new(0), AtomicBool::new(false));
        Ok(Timer { descriptor, clock, epoch, moved_to, is_stopped })
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Time since the daemon started. After resuming from a journal: since that journal began, without outages.
    pub fn now(&self) -> Nanos {
        match self.clock {
            Clock::Monotonic if !self.is_stopped.load(Ordering::Relaxed) => {
                monotonic().wrapping_sub(self.epoch.load(Ordering::Relaxed))
            }
            Clock::Monotonic | Clock::Virtual => self.moved_to.load(Ordering::Relaxed),
        }
    }

    /// Stops time at `now`, until [`Self::resume`] continues from there.
    pub(super) fn stop_at(&self, now: Nanos) {
        self.moved_to.store(now, Ordering::Relaxed);
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn resume(&self) {
        let stopped_at = self.moved_to.load(Ordering::Relaxed);
        self.epoch.store(monotonic().wrapping_sub(stopped_at), Ordering::Relaxed);
        self.is_stopped.store(false, Ordering::Relaxed);
    }

    /// Sets the time of a virtual clock; has no effect on another.
    pub(super) fn move_to(&self, now: Nanos) {
        self.moved_to.store(now, Ordering::Relaxed);
    }

    /// Readable when the armed time has passed, until another is armed.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Arms for a time, or disarms. A time that the kernel cannot express is never reached anyway. A virtual clock is
    /// never armed.
    pub fn arm(&self, due: Option<Nanos>) -> std::io::Result<()> {
        if self.clock == Clock::Virtual || self.is_stopped.load(Ordering::Relaxed) {
            return Ok(());
        }
        // After resuming from a journal of another boot, the epoch is before the clock's start.
        let epoch = self.epoch.load(Ordering::Relaxed) as i64;
        let due = due.map(|due| i128::from(due) + i128::from(epoch)).filter(|due| *due < i64::MAX.into());
        // Zero would disarm: an overdue time is due one nanosecond after the clock's start.
        let due = due.map_or(0, |due| due.max(1) as u64);
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: (due / NANOS_PER_SECOND) as i64,
                tv_nsec: (due % NANOS_PER_SECOND) as _,
            },
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }
}
