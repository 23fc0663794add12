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

/// The part of an interval that was the process's own: not the time in which it wanted a CPU and had none, or waited for
/// a disk. `None` if nothing is known of it.
pub fn own_ns(before: Option<Look>, after: Option<Look>, interval_ns: u64) -> Option<u64> {
    let (before, after) = (before?, after?);
    Some(match after.state {
        b'D' => 0,
        b'R' => after.ran_ns.saturating_sub(before.ran_ns).min(interval_ns),
        _ => interval_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_cpu_does_not_count_and_sleep_does() {
        let look = |state, ran_ns| Some(Look { state, ran_ns });
        assert_eq!(own_ns(look(b'R', 0), look(b'R', 100_000), 1_000_000), Some(100_000));
        assert_eq!(own_ns(look(b'S', 0), look(b'D', 0), 1_000_000), Some(0));
        assert_eq!(own_ns(look(b'R', 0), look(b'R', 1_100_000), 1_000_000), Some(1_000_000), "it spins");
        assert_eq!(own_ns(look(b'S', 0), look(b'S', 0), 1_000_000), Some(1_000_000), "it sleeps");
        assert_eq!(own_ns(None, look(b'R', 0), 1_000_000), None);
    }

    #[test]
    fn a_process_sees_itself() {
        let own = look(std::process::id()).expect("/proc is there");
        assert!(matches!(own.state, b'R' | b'S'), "{own:?}");
    }
}
