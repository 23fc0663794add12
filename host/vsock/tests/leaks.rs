//! Sessions leave no descriptor and no thread in the process. Alone in its binary, so that it can count all of them.

mod services;

use std::time::Instant;

use front_end::GuestVm;
use services::{ECHO, Event, PANIC, RECORD, Rig};
use vsock_device::CloseReason;

fn entries(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// Descriptors and threads of this process.
fn held() -> (usize, usize) {
    (entries("/proc/self/fd"), entries("/proc/self/task"))
}

/// A joined thread is listed a moment longer.
fn assert_held(expected: (usize, usize), when: &str) {
    let deadline = Instant::now() + front_end::PATIENCE;
    while held() != expected && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(held(), expected, "descriptors and threads {when}");
}

#[test]
fn sessions_leave_no_descriptor_and_no_thread() {
    let before = held();
    let rig = Rig::new();
    let at_rest = held();
    // Handles that the daemon keeps must not keep a VM's descriptors.
    let mut kept = Vec::new();
    for round in 0..30 {
        let mut guest = GuestVm::boot(&rig.socket);
        guest.connect(1, RECORD);
        kept.push(rig.accepted());
        if round % 3 == 1 {
            guest.stop();
            guest.reset_driver();
            guest.start(0);
            rig.assert_closed(1, CloseReason::GuestRestarted);
        }
        if round % 3 == 2 {
            guest.connect(2, PANIC);
            kept.push(rig.accepted());
            guest.send_payload(2, PANIC, b"x");
        }
        if round % 3 == 0 {
            guest.send_payload(9, ECHO, b"no such connection");
        }
        drop(guest);
        while !matches!(rig.next(), Event::Disconnected) {}
        assert_held(at_rest, "after a session");
    }
    drop((rig, kept));
    assert_held(before, "after the device");
}
