//! Room for the descriptors of many clients.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;

/// Descriptors for which there is room at most: 8 bytes of the kernel's memory each.
const RESERVED_MAX: u64 = 1 << 16;

/// Makes room for this many descriptors, as the process's limit is, in the kernel's table of them.
///
/// The table of a process with threads is replaced whenever it is full, at 256, 512 and so on. Whoever opens a descriptor
/// waits until each processor has noticed, which takes 7 to 40 ms, and so do all others that open one. A table never gets
/// smaller. If there is no room for one so high, it is left as it is.
pub fn reserve_descriptors(most: u64) {
    let highest = most.min(RESERVED_MAX).saturating_sub(1);
    if let (Ok(some), Ok(highest)) = (eventfd(0, EventfdFlags::CLOEXEC), i32::try_from(highest)) {
        drop(fcntl_dupfd_cloexec(some, highest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_descriptors_has_room_at_once() {
        let room = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
            size.trim().parse::<u64>().unwrap()
        };
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        reserve_descriptors(most);
        assert!(room() >= most.min(RESERVED_MAX), "{} of {most}", room());
        reserve_descriptors(0);
        reserve_descriptors(u64::MAX);
    }
}
