//! Formatting of numbers and texts.

use d3dkmt::NtStatus;
use d3dkmt::text::is_printable;
use dxgkrnl::Nanos;
use unicode_width::UnicodeWidthChar as _;

const UNITS: [(Nanos, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];

/// A duration in a suitable unit, with three decimals: `1.234 ms`.
pub fn duration(nanos: Nanos) -> String {
    for (unit, name) in UNITS {
        if nanos >= unit {
            let (whole, part) = (nanos / unit, nanos % unit / (unit / 1000));
            return format!("{whole}.{part:03} {name}");
        }
    }
    format!("{nanos} ns")
}

/// A duration that is known to three digits, in a suitable unit: `1.23 ms`, `25.0 us`. Digits beyond these are cut off.
pub(crate) fn three_digits(nanos: Nanos) -> String {
    let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| nanos >= *unit) else {
        return format!("{nanos} ns");
    };
    let decimals = match nanos / unit {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let parts = 10_u64.pow(decimals);
    let known = nanos / (unit / parts);
    match decimals as usize {
        0 => format!("{known} {name}"),
        width => format!("{}.{:0width$} {name}", known / parts, known % parts),
    }
}

/// The name of a status, as `SUCCESS`, or its number if it has none.
pub fn status_name(status: u32) -> String {
    NtStatus(status).name().map_or_else(|| format!("{status:#010x}"), str::to_owned)
}

/// Number of cells that a terminal shows a text in: none for a combining character, two for an East Asian one.
pub fn cells(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(0)).sum()
}

/// The beginning of a text that fits into this number of cells, with the combining characters of its last letter.
pub fn cut(text: &str, cells: usize) -> &str {
    let mut used = 0;
    let beyond = text.char_indices().find(|(_, letter)| {
        used += letter.width().unwrap_or(0);
        used > cells
    });
    beyond.map_or(text, |(end, _)| &text[..end])
}

/// Escapes text for XML or HTML. Unprintable characters except line breaks and tabs are replaced: XML has no control
/// characters, and others would reorder the text around a guest's name.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            character if is_printable(character) => escaped.push(character),
            _ => escaped.push('\u{FFFD}'),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown_in_each_unit() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (25_007, "25.0 us"),
            (300_031, "300 us"),
            (3_001_000_000, "3.00 s"),
            (4_056_000_000_000, "4056 s"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(three_digits(nanos), expected, "{nanos}");
        }
    }

    #[test]
    fn texts_are_measured_and_cut_by_cells() {
        // Four letters, the first with two accents; three letters of two cells each.
        let (accents, wide) = ("e\u{301}\u{302}abc", "\u{6e90}\u{6e90}\u{6e90}");
        for (text, count, at_three) in
            [("abcd", 4, "abc"), (accents, 4, "e\u{301}\u{302}ab"), (wide, 6, "\u{6e90}"), ("", 0, "")]
        {
            assert_eq!((cells(text), cut(text, 3)), (count, at_three), "{text}");
            assert_eq!((cut(text, count), cut(text, 0)), (text, ""), "{text}");
        }
        assert_eq!(cut("ae\u{301}", 2), "ae\u{301}", "a letter keeps its accent");
    }
}
