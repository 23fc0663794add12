//! A helper thread that cannot be started. Alone in its process: the limit of descriptors is the process's.

mod host;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use d3dkmt::{NtStatus, WaitFromCpuFlags, WaitOutcome};
use dxcore::client::{CallerEvent, CreatedFence, Session, block_on};
use host::event::{new_event, taken};
use host::{DEVICE, connect_with_fences, welcome};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn wait(session: &Session, fence: &CreatedFence, event: CallerEvent) -> NtStatus {
    let flags = WaitFromCpuFlags::empty();
    block_on(session.wait_from_cpu(DEVICE, &[fence.object], &[1], flags, Some(event)))
}

/// The thread is in `write` of stderr.
static IS_PRINTING: AtomicBool = AtomicBool::new(false);
/// It may go on.
static MAY_GO_ON: AtomicBool = AtomicBool::new(false);

extern "C" fn hold(_: libc::c_int) {
    IS_PRINTING.store(true, Ordering::Release);
    await_true(&MAY_GO_ON);
}

fn await_true(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

/// From here on this thread stops in its first write to stderr, which writes nothing.
fn stop_in_print() {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NUMBER_AT: u32 = 0;
    const FIRST_ARGUMENT_AT: u32 = 16;
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut steps = [
        step(LOAD_WORD, 0, NUMBER_AT),
        step(JUMP_IF_EQUAL, 3, libc::SYS_write as u32),
        step(LOAD_WORD, 0, FIRST_ARGUMENT_AT),
        step(JUMP_IF_EQUAL, 1, libc::STDERR_FILENO as u32),
        step(RETURN, 0, libc::SECCOMP_RET_TRAP),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the handler is a function of this program; the kernel copies the filter, which is of this thread only.
    unsafe {
        libc::signal(libc::SIGSYS, hold as *const () as libc::sighandler_t);
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn an_event_that_is_armed_while_the_helper_cannot_be_started_is_set() {
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let [(_first, first_caller), (second, second_caller)] = [(); 2].map(|()| {
        let event = new_event();
        let caller = CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap();
        (event, caller)
    });
    let (guest, fence) = (session.clone(), fences[0].clone());
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    let failing = thread::spawn(move || {
        stop_in_print();
        wait(&guest, &fence, first_caller)
    });
    await_true(&IS_PRINTING);
    setrlimit(Resource::Nofile, limit).unwrap();

    let guest: Arc<Session> = session.clone();
    let fence = fences[0].clone();
    let waiting = thread::spawn(move || wait(&guest, &fence, second_caller));
    let (request, name) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Registered);
    assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
    peer.wake(name, NtStatus::SUCCESS);
    assert_eq!(taken(&second), 1);

    MAY_GO_ON.store(true, Ordering::Release);
    assert_eq!(failing.join().unwrap(), NtStatus::NO_MEMORY);
}
