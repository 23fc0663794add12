//! How long a side looks at the ring before it sleeps.
//!
//! Looking pays off where the other side answers while this one looks. It brings nothing where both share a core, or
//! where nothing comes for long. So a side looks as long as that has brought something lately. Once it has not, a few
//! times, it stops, and tries again after a number of sleeps that doubles each time.

use std::time::Instant;

/// The longest look between two processes of one machine, in nanoseconds.
pub const LOOK_NS_MAX: u64 = 50_000;
/// Looks in a row without a result, before a side stops looking.
const MISSES_MAX: u32 = 3;
const PAUSE_MIN: u32 = 16;
const PAUSE_MAX: u32 = 4096;
/// Looks between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 16;

/// Looks until `is_there`, for at most [`LOOK_NS_MAX`]. False if the time is over.
pub fn look_until(mut is_there: impl FnMut() -> bool) -> bool {
    if is_there() {
        return true;
    }
    let began = Instant::now();
    loop {
        for _ in 0..LOOKS_PER_CLOCK {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
        if began.elapsed().as_nanos() as u64 >= LOOK_NS_MAX {
            return false;
        }
    }
}

/// Decides how long to look, from what looking has brought.
#[derive(Clone, Debug)]
pub struct Patience {
    misses: u32,
    /// Sleeps until the next look.
    pause: u32,
    next_pause: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { misses: 0, pause: 0, next_pause: PAUSE_MIN }
    }
}

impl Patience {
    /// Whether to look before this sleep, for a bounded time: [`LOOK_NS_MAX`], or the caller's own.
    pub fn looks(&mut self) -> bool {
        match self.pause {
            0 => true,
            _ => {
                self.pause -= 1;
                false
            }
        }
    }

    /// Records whether a look ended with a result.
    pub fn looked(&mut self, found: bool) {
        if found {
            *self = Patience::default();
            return;
        }
        self.misses += 1;
        if self.misses >= MISSES_MAX {
            // One look is a trial from here on.
            self.misses = MISSES_MAX - 1;
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many sleeps are looked before, if no look brings anything.
    fn looks_in(sleeps: u32) -> u32 {
        let mut patience = Patience::default();
        (0..sleeps)
            .filter(|_| {
                let looks = patience.looks();
                if looks {
                    patience.looked(false);
                }
                looks
            })
            .count() as u32
    }

    #[test]
    fn looks_that_bring_nothing_become_rare() {
        assert_eq!((looks_in(3), looks_in(19), looks_in(20)), (3, 3, 4));
        assert!(looks_in(100_000) < 40);
    }

    #[test]
    fn a_result_makes_it_look_each_time() {
        let mut patience = Patience::default();
        for _ in 0..1000 {
            if patience.looks() {
                patience.looked(false);
            }
        }
        while !patience.looks() {}
        patience.looked(true);
        assert!((0..100).all(|_| {
            let looks = patience.looks();
            patience.looked(true);
            looks
        }));
    }
}
