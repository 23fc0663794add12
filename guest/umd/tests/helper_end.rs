//! The thread that delivers events ends with its session.

mod host;

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use d3dkmt::{NtStatus, WaitFromCpuFlags, WaitOutcome};
use dxcore::client::{CallerEvent, block_on};
use host::{DEVICE, connect_with_fences, welcome};
use rustix::event::{EventfdFlags, eventfd};

fn has_helper() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.any(|name| name.trim_end() == "gpupv-events")
}

fn eventually(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

#[test]
fn the_thread_that_delivers_events_ends_with_its_session() {
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    assert!(!has_helper(), "no event is named yet");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let event = CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap();
            let fence = fences[0].object;
            block_on(session.wait_from_cpu(DEVICE, &[fence], &[1], WaitFromCpuFlags::empty(), Some(event)))
        });
        let (request, name) = peer.wait_call();
        peer.answer_wait(request, WaitOutcome::Registered);
        assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
        eventually(has_helper);
        peer.wake(name, NtStatus::SUCCESS);
        eventually(|| session.port().channel().pending() == 0);
    });
    // Nothing is pending, so nobody else looks at the stream.
    session.port().end();
    eventually(|| !has_helper());
}
