//! What another process waits for, by `/proc`.

use std::fs::read_to_string;

/// A look at a process's main thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// The state letter of `/proc/PID/stat`.
    pub state: u8,
    /// Nanoseconds on a CPU.
    pub ran_ns: u64,
}

/// Looks at a process; `None` if `/proc` does not show it.
pub fn look(pid: u32) -> Option<Look> {
    let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = *stat.get(stat.rfind(')')? + 2..)?.as_bytes().first()?;
    let schedstat = read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let ran_ns = schedstat.split(' ').next()?.parse().ok()?;
    Some(Look { state, ran_ns })
}

/// Whether a process that looked so before and after an interval has had no CPU, or waited for a disk, in most of it.
/// A process without a CPU is runnable and has run for less than a quarter of the interval.
pub fn was_kept_waiting(before: Option<Look>, after: Option<Look>, interval_ns: u64) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return false };
    match after.state {
        b'D' => true,
        b'R' => after.ran_ns.saturating_sub(before.ran_ns) < interval_ns / 4,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_cpu_does_not_count_and_sleep_does() {
        let look = |state, ran_ns| Some(Look { state, ran_ns });
        assert!(was_kept_waiting(look(b'R', 0), look(b'R', 100_000), 1_000_000));
        assert!(was_kept_waiting(look(b'S', 0), look(b'D', 0), 1_000_000));
        assert!(!was_kept_waiting(look(b'R', 0), look(b'R', 900_000), 1_000_000), "it spins");
        assert!(!was_kept_waiting(look(b'S', 0), look(b'S', 0), 1_000_000), "it sleeps");
        assert!(!was_kept_waiting(None, look(b'R', 0), 1_000_000), "nothing is known");
    }

    #[test]
    fn a_process_sees_itself() {
        let own = look(std::process::id()).expect("/proc is there");
        assert!(matches!(own.state, b'R' | b'S'), "{own:?}");
    }
}
