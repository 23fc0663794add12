//! What another process waits for, by `/proc`.

use std::fs::read_to_string;

/// A look at a process's main thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// The state letter of `/proc/PID/stat`.
    pub state: u8,
    /// Nanoseconds on a CPU.
    pub ran_ns: u64,
    /// It is about to end.
    pub exits: bool,
}

/// Fields of `/proc/PID/stat` between the state and the flags.
const FIELDS_BEFORE_FLAGS: usize = 5;
/// The flag of the kernel for a process that exits: `include/linux/sched.h`.
const PF_EXITING: u32 = 0x4;

/// Looks at a process; `None` if `/proc` does not show it.
pub fn look(pid: u32) -> Option<Look> {
    let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    let flags: u32 = fields.nth(FIELDS_BEFORE_FLAGS)?.parse().ok()?;
    let schedstat = read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let ran_ns = schedstat.split(' ').next()?.parse().ok()?;
    Some(Look { state, ran_ns, exits: flags & PF_EXITING != 0 })
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
        let look = |state, ran_ns| Some(Look { state, ran_ns, exits: false });
        assert_eq!(own_ns(look(b'R', 0), look(b'R', 100_000), 1_000_000), Some(100_000));
        assert_eq!(own_ns(look(b'S', 0), look(b'D', 0), 1_000_000), Some(0));
        assert_eq!(own_ns(look(b'R', 0), look(b'R', 1_100_000), 1_000_000), Some(1_000_000), "it spins");
        assert_eq!(own_ns(look(b'S', 0), look(b'S', 0), 1_000_000), Some(1_000_000), "it sleeps");
        assert_eq!(own_ns(None, look(b'R', 0), 1_000_000), None);
    }

    #[test]
    fn a_process_sees_itself() {
        let own = look(std::process::id()).expect("/proc is there");
        assert!(matches!(own.state, b'R' | b'S') && !own.exits, "{own:?}");
    }

    #[test]
    fn a_process_that_has_ended_is_seen_to_exit() {
        let mut child = std::process::Command::new("true").spawn().expect("true is there");
        while look(child.id()).is_some_and(|look| look.state != b'Z') {
            std::thread::yield_now();
        }
        let ended = look(child.id());
        child.wait().expect("it has ended");
        assert!(ended.expect("it is not reaped").exits, "{ended:?}");
    }
}
