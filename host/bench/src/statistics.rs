//! Medians and their confidence intervals.

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// A median with its 95% bootstrap interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// Returns the median; 0 for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
        count => sorted[count / 2],
    }
}

/// A pseudo-random generator (xorshift) with a fixed seed: each run draws the same numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Returns the median of one value per round, and the interval that contains 95% of the medians of resampled rounds.
pub fn estimate(rounds: &[f64]) -> Estimate {
    let median_of_all = median(rounds);
    if rounds.len() < 2 {
        return Estimate { median: median_of_all, low: median_of_all, high: median_of_all };
    }
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let resample: Vec<f64> = rounds.iter().map(|_| rounds[dice.below(rounds.len())]).collect();
            median(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |quantile: f64| medians[((RESAMPLES - 1) as f64 * quantile).round() as usize];
    Estimate { median: median_of_all, low: at(0.025), high: at(0.975) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn the_interval_holds_the_median_and_is_narrow_for_equal_rounds() {
        let same = estimate(&[1.5; 20]);
        assert_eq!((same.low, same.median, same.high), (1.5, 1.5, 1.5));
        let rounds: Vec<f64> = (0..21).map(f64::from).collect();
        let spread = estimate(&rounds);
        assert!(spread.low < spread.median && spread.median < spread.high, "{spread:?}");
        assert!(spread.low >= 4.0 && spread.high <= 16.0, "{spread:?}");
        assert_eq!(estimate(&[7.0]).high, 7.0);
    }
}
