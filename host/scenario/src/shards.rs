//! Shards: parts of a range of seeds or files, and whether their reports are of the whole.

use std::fmt;
use std::ops::Range;

/// Number of gaps that a message lists.
const GAPS_SHOWN: usize = 8;

/// Returns part `k` of `n`: consecutive ranges, as even as possible. A shard is not every n-th number, so that
/// `--seeds` can run it again, and a merged report stops where the whole one does.
pub fn shard(whole: &Range<u64>, k: u64, n: u64) -> Range<u64> {
    let count = u128::from(whole.end - whole.start);
    let border = |k: u64| whole.start + (count * u128::from(k) / u128::from(n)) as u64;
    border(k)..border(k + 1)
}

/// The ranges that no part has, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gaps(pub Vec<Range<u64>>);

impl fmt::Display for Gaps {
    /// `125 to 249, 500`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().take(GAPS_SHOWN).map(|gap| match gap.end - gap.start {
            1 => gap.start.to_string(),
            _ => format!("{} to {}", gap.start, gap.end - 1),
        });
        write!(f, "{}", shown.collect::<Vec<_>>().join(", "))?;
        match self.0.len().saturating_sub(GAPS_SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more ranges"),
        }
    }
}

/// Reason why the reports of shards cannot be merged. `&str` is what the shards have: a seed, a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Mismatch {
    #[error("no report to merge")]
    Nothing,
    #[error("reports of different code: {0} and {1}")]
    Commits(String, String),
    #[error(
        "its text differs between reports: digests {0:#x} and {1:#x}. Run all shards again with the same file"
    )]
    Texts(u64, u64),
    #[error("reports that stop after different numbers of failures: {0} and {1}")]
    StopAfter(usize, usize),
    #[error("reports of different plans: seeds {}..{} and {}..{}", .0.start, .0.end, .1.start, .1.end)]
    Plans(Range<u64>, Range<u64>),
    #[error("reports of different scenarios: {0} files with digest {1:#x}, and {2} with {3:#x}")]
    Suites(u64, u64, u64, u64),
    #[error("reports of different backends: {0} and {1}")]
    Backends(String, String),
    #[error("{0}s {1} are missing: add the report of their shard")]
    Gaps(&'static str, Gaps),
    #[error("{0} {1} is in two reports")]
    Overlap(&'static str, u64),
}

/// Checks that parts, sorted by their start and end, have each number of the whole once.
pub fn check_cover(
    what: &'static str,
    whole: &Range<u64>,
    parts: impl IntoIterator<Item = Range<u64>>,
) -> Result<(), Mismatch> {
    let (mut next, mut gaps) = (whole.start, Vec::new());
    // The end is a part without numbers.
    for part in parts.into_iter().chain(std::iter::once(whole.end..whole.end)) {
        if part.start < next {
            return Err(Mismatch::Overlap(what, part.start));
        }
        if next < part.start {
            gaps.push(next..part.start);
        }
        next = part.end;
    }
    if gaps.is_empty() { Ok(()) } else { Err(Mismatch::Gaps(what, Gaps(gaps))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(pairs: &[(u64, u64)]) -> Vec<Range<u64>> {
        pairs.iter().map(|(start, end)| *start..*end).collect()
    }

    fn gaps(pairs: &[(u64, u64)]) -> Result<(), Mismatch> {
        Err(Mismatch::Gaps("seed", Gaps(ranges(pairs))))
    }

    #[test]
    fn gaps_and_overlaps_are_found() {
        for (parts, expected) in [
            (&[(0, 4), (4, 4), (4, 10)][..], Ok(())),
            (&[(0, 4), (4, 9)], gaps(&[(9, 10)])),
            (&[(2, 4), (5, 9)], gaps(&[(0, 2), (4, 5), (9, 10)])),
            (&[(0, 5), (4, 10)], Err(Mismatch::Overlap("seed", 4))),
            (&[], gaps(&[(0, 10)])),
        ] {
            assert_eq!(check_cover("seed", &(0..10), ranges(parts)), expected, "{parts:?}");
        }
        assert_eq!(Gaps(vec![0..2, 4..5]).to_string(), "0 to 1, 4");
        let many = (0..10).map(|at| at * 2..at * 2 + 1).collect();
        assert!(Gaps(many).to_string().ends_with("14 and 2 more ranges"));
    }
}
