//! The system's clock: its time, and when it is set. Absolute timeouts of keyed mutexes use it (FEN-078).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// From 1601 to 1970, in units of 100 ns.
const UNIX_EPOCH_100NS: i64 = 116_444_736_000_000_000;
const UNITS_PER_SECOND: i64 = 10_000_000;

/// The time now, in units of 100 ns since 1601.
pub fn utc_100ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    let units = now.tv_sec.saturating_mul(UNITS_PER_SECOND).saturating_add(now.tv_nsec as i64 / 100);
    units.saturating_add(UNIX_EPOCH_100NS)
}

/// A descriptor that becomes readable when the clock is set, and costs nothing otherwise.
#[derive(Debug)]
pub struct ClockWatch(OwnedFd);

impl ClockWatch {
    pub fn new() -> std::io::Result<ClockWatch> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let watch = ClockWatch(timerfd_create(TimerfdClockId::Realtime, flags)?);
        watch.arm()?;
        Ok(watch)
    }

    /// Arms for a time that never comes: setting the clock cancels the timer, with ECANCELED.
    fn arm(&self) -> std::io::Result<()> {
        let never = Timespec { tv_sec: i64::MAX / 1_000_000_000, tv_nsec: 0 };
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: none, it_value: never };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&self.0, flags, &spec)?;
        Ok(())
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Acknowledges that the clock was set. Read the clock after this.
    pub fn acknowledge(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
        if let Err(error) = self.arm() {
            tracing::error!("cannot watch the system's clock any longer: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClockWatch, utc_100ns};

    #[test]
    fn the_time_counts_from_1601() {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        // 369 years, 89 of them leap years.
        let seconds = (since_1970.as_secs() + (369 * 365 + 89) * 86_400) as i64;
        assert!((utc_100ns() / 10_000_000 - seconds).abs() < 3600);
    }

    #[test]
    fn a_clock_that_is_not_set_is_not_readable() {
        let watch = ClockWatch::new().unwrap();
        let read = rustix::io::read(watch.descriptor(), &mut [0u8; 8]);
        assert_eq!(read, Err(rustix::io::Errno::AGAIN));
    }
}
