//! Lengths of time as people write them.

use crate::Nanos;

/// Units of time, the shortest first.
pub const UNITS: [(&str, Nanos); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000)];

/// Forms that [`parse`] accepts, for error messages.
pub const FORMS: &str = "500ns, 20us, 1.5ms, 2s, 3m";

/// Parses a number, which may have a fraction, and its unit. `None` for other text, and for a value that does not fit
/// 64 bits. Exact; fractions of a nanosecond are dropped.
pub fn parse(text: &str) -> Option<Nanos> {
    let unit_at = text.find(|one: char| one.is_ascii_alphabetic())?;
    let (digits, unit) = text.split_at(unit_at);
    let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = match digits.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (digits, ""),
    };
    if !whole.starts_with(|one: char| one.is_ascii_digit()) {
        return None;
    }
    let mut nanos = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    // The fraction as `rest / of`, because the nanoseconds of a minute cannot be divided by ten for every digit.
    let (mut rest, mut of) = (0u64, 1u64);
    for digit in fraction.chars() {
        let digit = u64::from(digit.to_digit(10)?);
        // Further digits are below a nanosecond.
        if of < 1_000_000_000_000 {
            (rest, of) = (rest * 10 + digit, of * 10);
        }
    }
    nanos = nanos.checked_add((u128::from(rest) * u128::from(scale) / u128::from(of)) as u64)?;
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit_and_are_exact() {
        for (text, nanos) in [
            ("500ns", 500),
            ("20us", 20_000),
            ("1.5ms", 1_500_000),
            ("0.000000001s", 1),
            ("1.0000000019s", 1_000_000_001),
            ("18446744073.709551615s", u64::MAX),
            ("2m", 120_000_000_000),
            ("0.1m", 6_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(nanos), "{text}");
        }
        for text in [
            "",
            "5",
            "ms",
            "1.ms",
            ".5ms",
            "-1ms",
            "+1ms",
            "1 ms",
            "1e3s",
            "1.5.5ms",
            "1.xms",
            "4min",
            "18446744073.709551616s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
