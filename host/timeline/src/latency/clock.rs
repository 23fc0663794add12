//! The offset of a guest's clock from the host's, and its error.
//!
//! Every message bounds it, because none arrives before it is sent. With *offset* = host - guest:
//!
//! ```text
//!   guest ── sent at g (its clock) ──▶ read at h (the host's)      offset <= h - g
//!   guest ◀── asked for at h ───────── read at g                   offset >= h - g
//! ```
//! So the offset is between the greatest lower bound and the least upper bound. A round trip gives one of each, and
//! half of their distance is the error. A bound belongs to its time: clocks drift, so it widens by [`DRIFT_PPM`] with
//! the distance in time, in both directions. The result is exact: while the clocks drift no faster, the offset is
//! within the bounds.

/// Most drift between two clocks, in parts per million. An emulated guest's clock is calibrated to 500 ppm at worst.
pub const DRIFT_PPM: u64 = 1000;

/// How much a bound widens at this distance in time.
pub fn aged(distance: u64) -> i128 {
    distance.div_ceil(1_000_000 / DRIFT_PPM).into()
}

/// An offset and its error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offset {
    pub nanos: i128,
    pub error: i128,
}

/// Upper or lower bounds, by host time.
#[derive(Clone, Debug, Default)]
struct Bounds {
    list: Vec<(u64, i128)>,
    /// Number of bounds at the front of the list that are sorted and not redundant.
    pruned: usize,
    /// The least bound of all times.
    lowest: Option<i128>,
}

/// Bounds that are added before redundant ones are removed.
const UNPRUNED_MAX: usize = 1 << 16;

impl Bounds {
    fn add(&mut self, at: u64, bound: i128) {
        self.list.push((at, bound));
        self.lowest = Some(self.lowest.map_or(bound, |lowest| lowest.min(bound)));
        if self.list.len() >= 2 * self.pruned + UNPRUNED_MAX {
            self.prune();
        }
    }

    /// Removes bounds that a neighbor implies.
    fn prune(&mut self) {
        self.list.sort_unstable();
        let mut kept: Vec<(u64, i128)> = Vec::new();
        for (at, bound) in std::mem::take(&mut self.list) {
            while kept.last().is_some_and(|last| bound + aged(at - last.0) <= last.1) {
                kept.pop();
            }
            if kept.last().is_none_or(|last| last.1 + aged(at - last.0) > bound) {
                kept.push((at, bound));
            }
        }
        (self.pruned, self.list) = (kept.len(), kept);
    }

    /// The least bound at a time. Requires `prune` first.
    fn at(&self, at: u64) -> Option<i128> {
        // After `prune`, one of the two neighbors is the best bound.
        let next = self.list.partition_point(|(of, _)| *of < at);
        let near = &self.list[next.saturating_sub(1)..self.list.len().min(next + 1)];
        near.iter().map(|(of, bound)| bound + aged(of.abs_diff(at))).min()
    }
}

/// Bounds of one clock's offset.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    upper: Bounds,
    /// Bounds of the negated offset, so that less is better here too.
    lower: Bounds,
}

fn difference(host: u64, guest: u64) -> i128 {
    i128::from(host) - i128::from(guest)
}

impl Clock {
    /// A message from the guest to the host: its send time and its read time.
    pub fn sent(&mut self, guest: u64, read: u64) {
        self.upper.add(read, difference(read, guest));
    }

    /// A message from the host to the guest: its send time and its read time.
    pub fn received(&mut self, sent: u64, guest: u64) {
        self.lower.add(sent, -difference(sent, guest));
    }

    /// Finishes the input; [`Clock::at`] may be called after this.
    pub fn prune(&mut self) {
        self.upper.prune();
        self.lower.prune();
    }

    /// Whether there were messages in both directions.
    pub fn has_both(&self) -> bool {
        self.upper.lowest.is_some() && self.lower.lowest.is_some()
    }

    /// Whether the clock can be the host's own: no message arrived before it was sent.
    pub fn may_be_the_hosts(&self) -> bool {
        [&self.upper, &self.lower].iter().all(|bounds| bounds.lowest.is_none_or(|least| least >= 0))
    }

    /// The offset at a host time. `None` without messages in both directions, or if the clocks drift too fast.
    pub fn at(&self, host: u64) -> Option<Offset> {
        let (upper, lower) = (self.upper.at(host)?, -self.lower.at(host)?);
        let between = upper - lower;
        (between >= 0).then_some(Offset { nanos: lower + between / 2, error: (between + 1) / 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A guest's clock: its offset, and the drift rate in parts per million for each second of host time.
    #[derive(Clone, Debug)]
    struct Planted {
        offset: i64,
        rates: Vec<i64>,
    }

    const SECOND: u64 = 1_000_000_000;

    impl Planted {
        /// The offset at a host time.
        fn offset_at(&self, host: u64) -> i128 {
            let mut offset = i128::from(self.offset);
            for (second, rate) in self.rates.iter().enumerate() {
                let passed = host.saturating_sub(second as u64 * SECOND).min(SECOND);
                offset += i128::from(passed) * i128::from(*rate) / 1_000_000;
            }
            offset
        }

        fn guest(&self, host: u64) -> u64 {
            u64::try_from(i128::from(host) - self.offset_at(host)).unwrap()
        }
    }

    /// Drift within the limit; each second may round by a nanosecond.
    fn planted() -> impl Strategy<Value = Planted> {
        let rates = proptest::collection::vec(-990i64..=990, 10);
        (-1_000_000_000_000i64..0, rates).prop_map(|(offset, rates)| Planted { offset, rates })
    }

    /// Messages: time, duration and direction.
    fn messages() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
        proptest::collection::vec((0..9 * SECOND, 1_000u64..400_000_000, any::<bool>()), 0..60)
    }

    fn clock_of(planted: &Planted, messages: &[(u64, u64, bool)]) -> Clock {
        let mut clock = Clock::default();
        for &(begun, takes, to_host) in messages {
            let (begun, ended) = (SECOND / 100 + begun, SECOND / 100 + begun + takes);
            match to_host {
                true => clock.sent(planted.guest(begun), ended),
                false => clock.received(begun, planted.guest(ended)),
            }
        }
        clock.prune();
        clock
    }

    /// The least bound, from all bounds without pruning.
    fn plainly(clock: &Bounds, at: u64) -> Option<i128> {
        clock.list.iter().map(|(of, most)| most + aged(of.abs_diff(at))).min()
    }

    proptest! {
        #[test]
        fn the_true_offset_is_always_within_the_bound(
            planted in planted(),
            messages in messages(),
            at in 0..10 * SECOND,
        ) {
            let clock = clock_of(&planted, &messages);
            let both = messages.iter().any(|one| one.2) && messages.iter().any(|one| !one.2);
            let known = clock.at(at);
            prop_assert_eq!(known.is_some(), both);
            if let Some(Offset { nanos, error }) = known {
                // The simulated clock rounds ten times.
                let off = (planted.offset_at(at) - nanos).abs();
                prop_assert!(off <= error + 10, "{off} ns off, with a bound of {error} ns");
            }
        }

        #[test]
        fn pruned_bounds_are_redundant(
            planted in planted(),
            messages in messages(),
            at in 0..10 * SECOND,
        ) {
            let mut clock = Clock::default();
            for &(begun, takes, _) in &messages {
                clock.sent(planted.guest(SECOND + begun), SECOND + begun + takes);
            }
            let all = plainly(&clock.upper, at);
            clock.prune();
            let pruned = clock.upper.at(at);
            // Each removed bound may be better by one rounding.
            let close = match (all, pruned) {
                (Some(all), Some(pruned)) => (0..=messages.len() as i128).contains(&(pruned - all)),
                (all, pruned) => all == pruned,
            };
            prop_assert!(close, "{all:?} of all, {pruned:?} of those that are kept");
        }
    }

    #[test]
    fn the_bound_is_half_of_the_smallest_round_trip_and_grows_with_its_age() {
        let mut clock = Clock::default();
        // The guest's clock is 5 s behind. 30 us there, 50 us back; before that 400 us each way.
        let guest = |host: u64| host - 5 * SECOND;
        for (asked, one_way) in [(10 * SECOND, 400_000), (11 * SECOND, 30_000)] {
            clock.sent(guest(asked), asked + one_way);
        }
        clock.received(11 * SECOND, guest(11 * SECOND + 50_000));
        clock.prune();
        let at = clock.at(11 * SECOND + 30_000).unwrap();
        assert_eq!(at, Offset { nanos: 5 * 1_000_000_000 - 10_015, error: 40_015 });
        let later = clock.at(12 * SECOND).unwrap();
        assert!((1_000_000..=1_040_015).contains(&later.error), "{later:?}");
    }

    #[test]
    fn one_way_alone_says_nothing_and_neither_do_clocks_that_go_apart() {
        let mut clock = Clock::default();
        clock.sent(1_000, 2_000);
        clock.prune();
        assert_eq!(clock.at(2_000), None);
        // A drift of ten percent in a second.
        clock.received(SECOND, SECOND / 10);
        clock.sent(SECOND, SECOND + 1);
        clock.prune();
        assert_eq!(clock.at(SECOND), None);
    }

    #[test]
    fn many_bounds_take_little_memory() {
        let mut clock = Clock::default();
        for at in 0..1_000_000u64 {
            clock.sent(at * 1000, at * 1000 + 30_000 + at * 7919 % 1009 * 100);
        }
        assert!(clock.upper.list.len() <= 3 * UNPRUNED_MAX, "{}", clock.upper.list.len());
    }
}
