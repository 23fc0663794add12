//! What pending waits keep of a program. Alone in its process: the limit of descriptors is the process's.

mod host;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread;

use client::EventError;
use d3dkmt::{Handle, NtStatus, WaitFromCpuFlags, WaitOutcome};
use dxcore::client::{CallerEvent, Session, block_on};
use host::event::new_event;
use host::{DEVICE, Peer, connect_with_fences, welcome};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LIMIT: usize = 256;
const EIGHTH: usize = LIMIT / 8;

/// As Mesa's wait for one of several fences: it closes its event after a time-out, whatever became of the wait.
fn wait_in_vain(session: &Session, host: &mut Peer, fence: Handle) {
    let event = new_event();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let caller = CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap();
            let no_flags = WaitFromCpuFlags::empty();
            block_on(session.wait_from_cpu(DEVICE, &[fence], &[1], no_flags, Some(caller)))
        });
        let (request, _) = host.wait_call();
        host.answer_wait(request, WaitOutcome::Registered);
        assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
    });
}

/// Opens files until so many descriptors are free.
fn leave_free(free: usize) -> Vec<File> {
    let mut files: Vec<File> = (0..).map_while(|_| File::open("/dev/null").ok()).collect();
    files.truncate(files.len() - free);
    files
}

#[test]
fn a_program_whose_waits_stay_pending_can_still_open_files() {
    let limit = Rlimit { current: Some(LIMIT as u64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let (session, mut host, fences) = connect_with_fences(welcome(), &[0]);
    let fence = fences[0].object;
    wait_in_vain(&session, &mut host, fence);
    let is_refused = || {
        let event = CallerEvent::from_handle(new_event().as_raw_fd() as u64).unwrap();
        client::CallerEvent::keep(event).err() == Some(EventError::NoDescriptor)
    };
    let own = leave_free(EIGHTH / 2);
    assert!(!is_refused(), "the program has few descriptors left for other reasons");
    drop(own);
    let own = leave_free(LIMIT / 2);
    while !is_refused() {
        wait_in_vain(&session, &mut host, fence);
    }
    let reserve: Vec<File> = (0..EIGHTH - 1).map(|_| File::open("/dev/null").unwrap()).collect();
    drop((own, reserve));
    wait_in_vain(&session, &mut host, fence);
}
