//! Ranges of seeds and shards of them, as written on the command line.

use std::collections::BTreeSet;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `A..B`: the seeds from A up to, but not including, B.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeedRange(pub Range<u64>);

impl FromStr for SeedRange {
    type Err = String;

    fn from_str(text: &str) -> Result<SeedRange, String> {
        let Some((start, end)) = text.split_once("..") else {
            return Err("seeds are a range A..B, such as 0..10000".into());
        };
        let (start, end) = (number(start)?, number(end)?);
        if start >= end {
            return Err(format!("no seed is in {start}..{end}: the second number is not included"));
        }
        Ok(SeedRange(start..end))
    }
}

/// `K/N`: part K of N, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shard {
    pub part: u64,
    pub parts: u64,
}

impl Shard {
    /// Returns the first and the last number of each range of shards that were not found, in order. The number of shards
    /// may be a mistyped one, so the shards themselves are not listed.
    pub fn missing(found: &BTreeSet<u64>, parts: u64) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        let mut next = 0;
        for part in found.iter().copied().filter(|part| *part < parts).chain([parts]) {
            if next < part {
                ranges.push((next, part - 1));
            }
            next = part.saturating_add(1);
        }
        ranges
    }

    /// Returns ranges of shards as Slurm writes them: `3,5-9`.
    pub fn list(ranges: &[(u64, u64)]) -> String {
        let text = |(first, last): &(u64, u64)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        ranges.iter().map(text).collect::<Vec<_>>().join(",")
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let Some((part, parts)) = text.split_once('/') else {
            return Err("a shard is K/N, such as 0/4 for the first of four".into());
        };
        let (part, parts) = (number(part)?, number(parts)?);
        match parts {
            0 => Err("there are no shards of 0".into()),
            _ if part >= parts => Err(format!(
                "there is no shard {part} of {parts}: they are 0/{parts} to {}/{parts}",
                parts - 1
            )),
            _ => Ok(Shard { part, parts }),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_number => Ok(number),
        _ if is_number => Err(format!("{text} is above {}, the limit", u64::MAX)),
        _ => Err(format!("{text:?} is no number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_shards_are_read() {
        assert_eq!("0..10".parse(), Ok(SeedRange(0..10)));
        assert_eq!(format!("7..{}", u64::MAX).parse(), Ok(SeedRange(7..u64::MAX)));
        assert_eq!("3/4".parse(), Ok(Shard { part: 3, parts: 4 }));
    }

    #[test]
    fn shards_are_listed_as_slurm_writes_them() {
        let missing = |found: &[u64], parts| Shard::missing(&found.iter().copied().collect(), parts);
        assert_eq!(Shard::list(&missing(&[1, 2, 4, 8], 11)), "0,3,5-7,9-10");
        assert_eq!(missing(&[0, 1, 2], 3), []);
        // A mistyped number of shards is no list of billions.
        assert_eq!(missing(&[0, 2], 4_000_000_000_000), [(1, 1), (3, 3_999_999_999_999)]);
    }

    #[test]
    fn invalid_ranges_and_shards_are_refused_with_the_reason() {
        for (text, expected) in [
            ("10", "a range A..B"),
            ("5..5", "no seed is in 5..5"),
            ("6..5", "no seed is in 6..5"),
            ("-1..5", "\"-1\" is no number"),
            ("0..=5", "\"=5\" is no number"),
            ("..5", "\"\" is no number"),
            ("0..18446744073709551616", "above 18446744073709551615"),
        ] {
            let error = text.parse::<SeedRange>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("4", "a shard is K/N"),
            ("4/4", "they are 0/4 to 3/4"),
            ("0/0", "no shards of 0"),
            ("a/4", "\"a\" is no number"),
        ] {
            let error = text.parse::<Shard>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
