//! Formatting of numbers and texts.

use d3dkmt::NtStatus;
use d3dkmt::text::is_printable;
use dxgkrnl::Nanos;

/// A duration in a suitable unit, with three decimals: `1.234 ms`.
pub fn duration(nanos: Nanos) -> String {
    const UNITS: [(Nanos, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    for (unit, name) in UNITS {
        if nanos >= unit {
            let (whole, part) = (nanos / unit, nanos % unit / (unit / 1000));
            return format!("{whole}.{part:03} {name}");
        }
    }
    format!("{nanos} ns")
}

/// The name of a status, as `SUCCESS`, or its number if it has none.
pub fn status_name(status: u32) -> String {
    NtStatus(status).name().map_or_else(|| format!("{status:#010x}"), str::to_owned)
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
