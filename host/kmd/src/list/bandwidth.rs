//! How fast an engine moves bytes: all that its commands and barriers do shares one bandwidth.
//!
//! An engine may be [`MOVED_BYTES_PER_STEP`] ahead of it, so that little work takes no time. Who has more to do goes on
//! when the engine has caught up: so no moment of an engine moves much more than that, and time goes on between two of
//! them.

use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};

/// What an engine moves in a nanosecond.
pub(super) const BYTES_PER_NS: u64 = 16;

/// A move, and a command, take as much of it as so many bytes more, however few they move; a piece of a page table that
/// is looked up takes less. It is about what they take here.
pub(super) const BYTES_PER_MOVE: u64 = 256;
pub(super) const BYTES_PER_PIECE: u64 = 64;

/// See the module.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Bandwidth {
    /// At this time so many bytes were called back and not moved yet by hardware that is as fast as this and no faster.
    at: Nanos,
    ahead: u64,
}

impl Bandwidth {
    /// So many bytes are moved, at this time or at the latest one seen.
    pub fn take(&mut self, clock: Nanos, bytes: u64) {
        self.ahead = self.ahead_at(clock).saturating_add(bytes);
        self.at = self.at.max(clock);
    }

    fn ahead_at(&self, clock: Nanos) -> u64 {
        self.ahead.saturating_sub(clock.saturating_sub(self.at).saturating_mul(BYTES_PER_NS))
    }

    /// From when on there may be more: the time that it is, unless too much is ahead.
    pub fn next(&self, clock: Nanos) -> Nanos {
        let excess = self.ahead_at(clock).saturating_sub(MOVED_BYTES_PER_STEP);
        clock.saturating_add(excess.div_ceil(BYTES_PER_NS))
    }

    /// Nothing more is moved at this time.
    pub fn is_spent(&self, clock: Nanos) -> bool {
        self.next(clock) > clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = MOVED_BYTES_PER_STEP;

    #[test]
    fn a_steps_bytes_take_no_time_and_those_behind_them_take_theirs() {
        let mut bandwidth = Bandwidth::default();
        bandwidth.take(100, STEP);
        assert!(!bandwidth.is_spent(100));
        bandwidth.take(100, 1);
        assert_eq!(bandwidth.next(100), 101);
        bandwidth.take(100, STEP - 1);
        assert_eq!(bandwidth.next(100), 100 + STEP / BYTES_PER_NS);
        let later = 100 + STEP / BYTES_PER_NS;
        assert!(!bandwidth.is_spent(later));
        bandwidth.take(later, 32);
        assert_eq!(bandwidth.next(later), later + 2);
        assert!(!bandwidth.is_spent(later * 9), "it rested");
        bandwidth.take(Nanos::MAX, u64::MAX);
        assert!(bandwidth.next(0) > 0 && bandwidth.next(Nanos::MAX) == Nanos::MAX);
    }
}
