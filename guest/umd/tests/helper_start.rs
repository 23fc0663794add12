//! A helper thread that cannot be started. Alone in its process: the limit of descriptors and stderr are the process's.

mod host;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, mpsc};
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

/// Waits until the thread is in `write` of stderr.
fn await_print(thread: &File) {
    let mut text = [0; 6];
    while thread.read_at(&mut text, 0).unwrap() < text.len() || &text != b"1 0x2 " {
        thread::yield_now();
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
    // What the library prints fills the pipe, so its thread stays in `print`.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while rustix::io::write(&writer, &[b'.'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let stderr = rustix::io::dup(std::io::stderr()).unwrap();
    rustix::stdio::dup2_stderr(&writer).unwrap();
    let (guest, fence) = (session.clone(), fences[0].clone());
    let (begin, began) = mpsc::channel();
    let (say_thread, threads) = mpsc::channel();
    let failing = thread::spawn(move || {
        say_thread.send(rustix::thread::gettid()).unwrap();
        began.recv().unwrap();
        wait(&guest, &fence, first_caller)
    });
    let thread = threads.recv().unwrap().as_raw_nonzero();
    let thread = File::open(format!("/proc/self/task/{thread}/syscall")).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    begin.send(()).unwrap();
    await_print(&thread);
    setrlimit(Resource::Nofile, limit).unwrap();

    let guest: Arc<Session> = session.clone();
    let fence = fences[0].clone();
    let waiting = thread::spawn(move || wait(&guest, &fence, second_caller));
    let (request, name) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Registered);
    assert_eq!(waiting.join().unwrap(), NtStatus::SUCCESS);
    peer.wake(name, NtStatus::SUCCESS);
    assert_eq!(taken(&second), 1);

    rustix::io::read(&reader, &mut [0; 1 << 16]).unwrap();
    assert_eq!(failing.join().unwrap(), NtStatus::NO_MEMORY);
    rustix::stdio::dup2_stderr(&stderr).unwrap();
}
