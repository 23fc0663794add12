//! Reads the longest step of the daemon's kernel, in work units.

use proto::control::Inspection;

/// Units of the longest step since the daemon began; `None` if this daemon does not count them.
pub fn longest(inspection: &Inspection) -> Option<u64> {
    inspection.counters.as_ref().map(|counters| counters.longest_step).filter(|units| *units > 0)
}
