//! How numbers are said.

use d3dkmt::NtStatus;
use dxgkrnl::Nanos;

/// A length of time in the unit that fits, to three places: `1.234 ms`.
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

/// `SUCCESS`, or the number of a status that has no name here.
pub fn status_name(status: u32) -> String {
    NtStatus(status).name().map_or_else(|| format!("{status:#010x}"), str::to_owned)
}

/// As text of XML or HTML. XML has no control characters; line breaks and tabs stay.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(one),
            one if one.is_control() => escaped.push('\u{FFFD}'),
            one => escaped.push(one),
        }
    }
    escaped
}
