//! The bandwidth of an engine, which all its commands and barriers share.
//!
//! An engine may be [`MOVED_BYTES_PER_STEP`] ahead of it, so that a small transfer takes no time. A longer transfer
//! continues when the engine has caught up. So no step moves much more than that, and simulated time advances between
//! two steps.

use d3dkmt::limits::MOVED_BYTES_PER_STEP;
use dxgkrnl::Nanos;
use serde::{Deserialize, Serialize};

/// Bytes that an engine moves in a nanosecond.
pub(super) const BYTES_PER_NS: u64 = 16;

/// Fixed cost of a move or a command, in bytes of bandwidth. A looked-up piece of a page table costs less
/// ([`BYTES_PER_PIECE`]). Both are about what they cost the simulation.
pub(super) const BYTES_PER_MOVE: u64 = 256;
pub(super) const BYTES_PER_PIECE: u64 = 64;

/// Bandwidth of one engine that is in use.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Bandwidth {
    /// At time `at`, `ahead` bytes were called back that hardware of this bandwidth had not moved yet.
    at: Nanos,
    ahead: u64,
}

impl Bandwidth {
    /// Charges a move of `bytes` at this time, or at the latest time seen if that is later.
    pub fn take(&mut self, clock: Nanos, bytes: u64) {
        self.ahead = self.ahead_at(clock).saturating_add(bytes);
        self.at = self.at.max(clock);
    }

    fn ahead_at(&self, clock: Nanos) -> u64 {
        self.ahead.saturating_sub(clock.saturating_sub(self.at).saturating_mul(BYTES_PER_NS))
    }

    /// The earliest time for the next move: `clock`, unless too much is ahead.
    pub fn next(&self, clock: Nanos) -> Nanos {
        let excess = self.ahead_at(clock).saturating_sub(MOVED_BYTES_PER_STEP);
        clock.saturating_add(excess.div_ceil(BYTES_PER_NS))
    }

    /// Whether nothing more can be moved at this time.
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
