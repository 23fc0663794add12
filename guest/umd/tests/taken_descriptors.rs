//! A program that closes descriptors which it has not opened, as daemons do, and opens sockets with their numbers: the library
//! neither reads nor writes them, nor closes them, and the session is lost.
//!
//! `unsafe`: the test does this to its own descriptors, and forks.

mod host;

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use d3dkmt::{NtStatus, WaitFromCpuFlags, WaitOutcome};
use dxcore::client::{CallerEvent, Session, TRANSPORT_LOST, block_on};
use host::event::{is_set, new_event};
use host::{DEVICE, Peer, connect, connect_resumable, connect_with_fences, welcome};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

const EVENT: &str = "anon_inode:[eventfd]";

/// The tests look at all descriptors of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn sockets() -> BTreeSet<RawFd> {
    open_files("socket:")
}

/// The numbers of this kind of file.
fn open_files(kind: &str) -> BTreeSet<RawFd> {
    let is_of_kind = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|file| file.to_string_lossy().starts_with(kind))
    };
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_of_kind);
    entries.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// A number that was the library's and is of a socket of the program, and the socket's other end.
struct Taken {
    number: RawFd,
    far: OwnedFd,
}

impl Taken {
    fn new(number: RawFd, kind: SocketType) -> Taken {
        let (near, far) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        // SAFETY: what a program does that does not know whose number it is.
        assert_eq!(unsafe { libc::dup2(near.as_raw_fd(), number) }, number);
        send(&far, b"mine", SendFlags::empty()).unwrap();
        Taken { number, far }
    }

    fn assert_untouched(&self) {
        // SAFETY: open since it was taken.
        let near = unsafe { BorrowedFd::borrow_raw(self.number) };
        let mut bytes = [0; 16];
        assert_eq!(recv(&self.far, &mut bytes, RecvFlags::DONTWAIT).err(), Some(Errno::AGAIN));
        assert_eq!(recv(near, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT).unwrap().0, 4);
        send(near, b"more", SendFlags::NOSIGNAL).unwrap();
        assert_eq!(recv(&self.far, &mut bytes, RecvFlags::DONTWAIT).unwrap().0, 4);
    }

    fn is_open_in_a_child(&self) -> bool {
        // SAFETY: the child makes one system call and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(libc::fcntl(self.number, libc::F_GETFD) == -1)) }
        }
        let mut status = 0;
        // SAFETY: a child of this test.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status == 0
    }
}

/// Takes the numbers that are sockets of the library since `before`.
fn take_from_library(before: &BTreeSet<RawFd>, peer: &Peer, kind: SocketType) -> Vec<Taken> {
    let mut numbers = sockets();
    numbers.retain(|number| !before.contains(number));
    numbers.retain(|number| ![peer.broker.as_raw_fd(), peer.stream.as_raw_fd()].contains(number));
    assert_eq!(numbers.len(), 2, "the stream and the broker's connection");
    numbers.into_iter().map(|number| Taken::new(number, kind)).collect()
}

fn check<K>(start: impl Fn() -> (K, Arc<Session>, Peer), call: fn(&Session) -> NtStatus) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
        let before = sockets();
        let (listener, session, peer) = start();
        drop(listener);
        let taken = take_from_library(&before, &peer, kind);
        let (sender, answers) = mpsc::channel();
        let calling = session.clone();
        thread::spawn(move || sender.send(call(&calling)));
        let answer = answers.recv_timeout(Duration::from_secs(20)).expect("the call returns");
        assert_eq!((answer, session.is_lost()), (TRANSPORT_LOST, true));
        taken.iter().for_each(Taken::assert_untouched);
        assert!(taken.iter().all(Taken::is_open_in_a_child));
        drop(session);
        taken.iter().for_each(Taken::assert_untouched);
        for taken in taken {
            // SAFETY: the test's socket.
            unsafe { libc::close(taken.number) };
        }
    }
}

fn plain() -> ((), Arc<Session>, Peer) {
    let (session, peer) = connect(welcome(), 64);
    ((), session, peer)
}

fn device_state(session: &Session) -> NtStatus {
    block_on(session.device_state(DEVICE, 1)).status
}

#[test]
fn a_call_that_uses_the_stream_loses_the_session() {
    check(plain, device_state);
}

#[test]
fn a_call_that_asks_the_broker_loses_the_session() {
    check(plain, |session| session.port().make_nt_handle().unwrap_err());
}

#[test]
fn a_session_that_could_be_resumed_is_lost() {
    check(connect_resumable, device_state);
}

#[test]
fn the_number_of_an_armed_event_is_left_to_the_program_that_takes_descriptors() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, events_before) = (sockets(), open_files(EVENT));
    let (session, mut peer, fences) = connect_with_fences(welcome(), &[0]);
    let event = new_event();
    let caller = CallerEvent::from_handle(event.as_raw_fd() as u64).unwrap();
    let (waiting, fence) = (session.clone(), fences[0].object);
    let wait = thread::spawn(move || {
        let no_flags = WaitFromCpuFlags::empty();
        block_on(waiting.wait_from_cpu(DEVICE, &[fence], &[1], no_flags, Some(caller)))
    });
    let (request, _) = peer.wait_call();
    peer.answer_wait(request, WaitOutcome::Registered);
    assert_eq!(wait.join().unwrap(), NtStatus::SUCCESS);
    let armed = open_files(EVENT);
    assert_eq!(armed.len() - events_before.len(), 2, "the program's event, and the library's duplicate");
    let taken = take_from_library(&before, &peer, SocketType::STREAM);
    assert_eq!(device_state(&session), TRANSPORT_LOST);
    assert!(is_set(&event));
    assert_eq!(open_files(EVENT), armed);
    for taken in taken {
        // SAFETY: the test's socket.
        unsafe { libc::close(taken.number) };
    }
}
