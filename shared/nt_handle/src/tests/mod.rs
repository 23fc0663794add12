use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use covers::covers;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::*;

fn token(number: u32) -> ShareToken {
    let mut bytes = [0x5C; 16];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    ShareToken(bytes)
}

/// The socket of a broker in a folder of its own.
struct TestSocket(tempfile::TempDir);

impl TestSocket {
    fn new() -> TestSocket {
        TestSocket(tempfile::tempdir().unwrap())
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("broker.sock")
    }

    /// The NT handles of a broker without a successor.
    fn fresh(&self) -> NtHandles {
        NtHandles::new(SyncFileFolder::fresh(&self.socket())).unwrap()
    }

    /// The NT handles of a broker that may be resumed.
    fn resumed(&self) -> NtHandles {
        NtHandles::new(SyncFileFolder::resumed(&self.socket())).unwrap()
    }

    /// Files of the folder beside the socket.
    fn left(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.0.path().to_owned()];
        let mut left = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry.clone());
                }
                left.push(entry);
            }
        }
        left
    }
}

/// Waits until a close is reported, and returns the closed tokens.
fn next_closed(handles: &mut NtHandles) -> Vec<ShareToken> {
    poll(&mut [PollFd::from_borrowed_fd(handles.descriptor(), PollFlags::IN)], None).unwrap();
    handles.closed()
}

/// The closed handles, of as many calls as it takes.
fn all_closed(handles: &mut NtHandles) -> Vec<ShareToken> {
    let mut closed = handles.closed();
    while handles.has_more() {
        closed.extend(handles.closed());
    }
    closed
}

#[test]
fn a_call_does_a_limited_amount_of_work_and_says_that_there_is_more() {
    let place = TestSocket::new();
    for mut handles in [place.fresh(), place.resumed()] {
        let kept = handles.make_sync_file(token(0)).unwrap();
        let many = 2 * EXAMINED_AT_ONCE_MAX as u32;
        (1..=many).for_each(|number| drop(handles.make_sync_file(token(number)).unwrap()));
        for _ in 0..2 {
            assert_eq!(handles.closed().len(), EXAMINED_AT_ONCE_MAX);
        }
        assert_eq!((all_closed(&mut handles), handles.len()), (vec![], 1));
        let many = 2 * EVENTS_AT_ONCE_MAX as u32;
        (1..=many).for_each(|number| drop(handles.make(token(number)).unwrap()));
        let first = handles.closed().len();
        assert!(first <= EVENTS_AT_ONCE_MAX && handles.has_more(), "{first} at once");
        assert_eq!(all_closed(&mut handles).len(), many as usize - first);
        drop(kept);
        assert_eq!(next_closed(&mut handles), [token(0)]);
    }
}

#[test]
fn a_handle_gives_its_token_back_and_cannot_be_changed() {
    covers!("W-002", "W-124");
    let handle = TestSocket::new().fresh().make(token(7)).unwrap();
    for _ in 0..2 {
        assert_eq!(token_of(handle.as_fd()), Some(token(7)));
    }
    assert_eq!(rustix::io::write(&handle, b"x"), Err(Errno::PERM));
    assert_eq!(handle.as_raw_fd() as u32 & 0xC000_0000, 0);
    let flags = rustix::io::fcntl_getfd(&handle).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn other_descriptors_are_no_handles() {
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let plain = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC).unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    // The right content without the seals: any process may have written it.
    let forged = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::io::write(&forged, b"GPUPVNT10123456789abcdef").unwrap();
    for other in [event, plain, reader, writer, forged] {
        assert_eq!(token_of(other.as_fd()), None);
    }
}

#[test]
fn a_handle_lives_as_long_as_any_descriptor_of_it() {
    let mut handles = TestSocket::new().fresh();
    let handle = handles.make(token(1)).unwrap();
    let copy = rustix::io::dup(&handle).unwrap();
    let opened_again = std::fs::File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())).unwrap();
    let (near, far) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sent = [handle.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
    rustix::net::sendmsg(&near, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
    drop(handle);
    assert_eq!(handles.closed(), []);
    drop(copy);
    assert_eq!(handles.closed(), []);
    drop(opened_again);
    assert_eq!((handles.closed(), handles.len()), (vec![], 1), "it is in flight");
    drop((near, far));
    assert_eq!((next_closed(&mut handles), handles.len()), (vec![token(1)], 0));
}

#[test]
fn a_killed_process_closes_its_handles_and_no_others() {
    let mut handles = TestSocket::new().fresh();
    let (kept, passed) = (handles.make(token(1)).unwrap(), handles.make(token(2)).unwrap());
    // As its standard input a child has it over an exec.
    let mut child = Command::new("sleep").arg("1000").stdin(Stdio::from(passed)).spawn().unwrap();
    assert_eq!(handles.closed(), []);
    child.kill().unwrap();
    child.wait().unwrap();
    // Closed before the process could be waited for.
    assert_eq!(handles.closed(), [token(2)]);
    drop(kept);
    assert_eq!(handles.closed(), [token(1)]);
}

#[test]
fn no_close_is_lost_when_more_are_closed_than_the_queue_holds() {
    let queue = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let many: u32 = queue.trim().parse().unwrap();
    let mut handles = TestSocket::new().fresh();
    let kept = handles.make(token(0)).unwrap();
    // Two events each.
    let expected: BTreeSet<[u8; 16]> = (1..=many / 2 + 100)
        .map(|number| {
            drop(handles.make(token(number)).unwrap());
            token(number).0
        })
        .collect();
    let closed = all_closed(&mut handles);
    assert_eq!(closed.len(), expected.len());
    assert_eq!(closed.iter().map(|token| token.0).collect::<BTreeSet<_>>(), expected);
    assert_eq!((handles.len(), handles.closed()), (1, vec![]));
    drop(kept);
    assert_eq!(handles.closed(), [token(0)]);
}

fn revents(descriptor: BorrowedFd<'_>) -> PollFlags {
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut polled, Some(&now)).unwrap();
    polled[0].revents()
}

mod sync_files;
