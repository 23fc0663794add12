//! What pending waits keep of a program. The tests take turns: the limit of descriptors is the process's.
//!
//! `unsafe`: a test forks.

mod host;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use client::EventError;
use d3dkmt::{Handle, NtStatus, WaitFromCpuFlags, WaitOutcome};
use dxcore::client::{CallerEvent, Event, Session, block_on};
use host::event::new_event;
use host::{DEVICE, Peer, connect_with_fences, welcome};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LIMIT: usize = 256;
const EIGHTH: usize = LIMIT / 8;

/// The process has few descriptors from here on.
fn limited() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = Rlimit { current: Some(LIMIT as u64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    turn
}

fn callers_event() -> CallerEvent {
    CallerEvent::from_handle(new_event().as_raw_fd() as u64).unwrap()
}

/// The event of a wait, for as long as the wait is pending.
fn pending() -> Result<Event, EventError> {
    client::CallerEvent::keep(callers_event())
}

fn is_refused() -> bool {
    pending().err() == Some(EventError::NoDescriptor)
}

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

/// So many pending waits, and so few free descriptors, that another wait is refused.
fn at_the_reserve() -> (Vec<Event>, Vec<File>) {
    let waits = Vec::from_iter((0..=EIGHTH).map(|_| pending().unwrap()));
    let own = leave_free(EIGHTH / 2);
    assert!(is_refused());
    (waits, own)
}

#[test]
fn a_program_whose_waits_stay_pending_can_still_open_files() {
    let _turn = limited();
    let (session, mut host, fences) = connect_with_fences(welcome(), &[0]);
    let fence = fences[0].object;
    wait_in_vain(&session, &mut host, fence);
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

#[test]
fn an_object_that_keeps_an_event_is_no_pending_wait() {
    let _turn = limited();
    let _objects = Vec::from_iter((0..=EIGHTH).map(|_| callers_event().keep().unwrap()));
    let _own = leave_free(EIGHTH / 2);
    assert!(!is_refused());
}

#[test]
fn an_event_whose_number_is_left_to_the_program_is_no_pending_wait() {
    let _turn = limited();
    let (pending, _own) = at_the_reserve();
    pending.into_iter().for_each(|event| event.set_at_loss(true));
    assert!(!is_refused());
}

#[test]
fn a_forked_child_counts_its_own_waits() {
    let _turn = limited();
    let (pending, _own) = at_the_reserve();
    // SAFETY: the child makes calls of this library, and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let was_refused = is_refused();
        drop(pending);
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(was_refused || is_refused())) }
    }
    assert_child_succeeds(pid);
    assert!(is_refused());
}

#[test]
fn events_are_known_after_the_main_thread_has_ended() {
    let _turn = limited();
    // SAFETY: the child has this thread alone, which ends when it has started another one.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        thread::spawn(|| {
            let main = format!("/proc/self/task/{}/stat", std::process::id());
            while !std::fs::read_to_string(&main).unwrap().contains(") Z ") {
                thread::yield_now();
            }
            // SAFETY: the end of the child.
            unsafe { libc::_exit(i32::from(callers_event().keep().is_err())) }
        });
        // SAFETY: the end of this thread.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    assert_child_succeeds(pid);
}

fn assert_child_succeeds(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: a child of this test.
    assert_eq!((unsafe { libc::waitpid(pid, &raw mut status, 0) }, status), (pid, 0));
}
