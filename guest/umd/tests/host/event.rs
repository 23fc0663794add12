//! Events of a caller, as a test makes and reads them.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

pub fn new_event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Waits until the event is set. Returns how often it was.
pub fn taken(event: &OwnedFd) -> u64 {
    let long = Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&long)), Ok(1), "the event is set");
    let mut count = [0; 8];
    rustix::io::read(event, &mut count).unwrap();
    u64::from_ne_bytes(count)
}

pub fn is_set(event: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
}
