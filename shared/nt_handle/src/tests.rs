use std::io::IoSlice;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// A token that no other running test uses: the file of a sync file has its name for an instant.
fn fresh_token() -> ShareToken {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut bytes = token(NEXT.fetch_add(1, Ordering::Relaxed)).0;
    bytes[4..8].copy_from_slice(&std::process::id().to_le_bytes());
    ShareToken(bytes)
}

/// Waits until a close is reported, and returns the closed tokens.
fn next_closed(handles: &mut NtHandles) -> Vec<ShareToken> {
    poll(&mut [PollFd::from_borrowed_fd(handles.descriptor(), PollFlags::IN)], None).unwrap();
    handles.closed()
}

#[test]
fn a_handle_gives_its_token_back_and_cannot_be_changed() {
    covers!("W-002", "W-124");
    let handle = NtHandles::new().unwrap().make(token(7)).unwrap();
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
    let mut handles = NtHandles::new().unwrap();
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
    let mut handles = NtHandles::new().unwrap();
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
    let mut handles = NtHandles::new().unwrap();
    let kept = handles.make(token(0)).unwrap();
    // Two events each.
    let expected: BTreeSet<[u8; 16]> = (1..=many / 2 + 100)
        .map(|number| {
            drop(handles.make(token(number)).unwrap());
            token(number).0
        })
        .collect();
    let closed = handles.closed();
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

#[test]
fn a_sync_file_is_readable_from_its_signal_on_in_whoever_has_it() {
    let token = fresh_token();
    let mut handles = NtHandles::new().unwrap();
    let sync_file = handles.make_sync_file(token).unwrap();
    let copy = rustix::io::dup(&sync_file).unwrap();
    assert_eq!(token_of(copy.as_fd()), Some(token));
    assert!(rustix::io::fcntl_getfd(&sync_file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    assert_eq!((revents(copy.as_fd()), handles.closed()), (PollFlags::empty(), vec![]));
    handles.signal_of(token).unwrap().raise();
    assert_eq!(revents(copy.as_fd()), PollFlags::IN | PollFlags::HUP);
    // A reader cannot take it away from the others.
    assert_eq!(rustix::io::read(&sync_file, &mut [0; 8]), Ok(1));
    assert_eq!(revents(copy.as_fd()), PollFlags::HUP);
    drop(sync_file);
    assert_eq!((handles.closed(), handles.len()), (vec![], 1), "a copy is open");
    drop(copy);
    assert_eq!((handles.closed(), handles.len()), (vec![token], 0));
    assert!(handles.signal_of(token).is_none());
}

#[test]
fn the_last_close_is_seen_before_the_signal_and_the_signal_then_has_no_effect() {
    let token = fresh_token();
    let mut handles = NtHandles::new().unwrap();
    let sync_file = handles.make_sync_file(token).unwrap();
    let signal = handles.signal_of(token).unwrap().clone();
    drop(sync_file);
    assert_eq!(handles.closed(), [token]);
    signal.raise();
    assert_eq!(handles.closed(), []);
}

#[test]
fn a_broker_that_takes_over_raises_the_signal_of_its_predecessors_sync_file() {
    let token = fresh_token();
    let mut before = NtHandles::new().unwrap();
    let sync_file = before.make_sync_file(token).unwrap();
    // As if it were killed: it raises nothing.
    std::mem::forget(before);
    let mut handles = NtHandles::new().unwrap();
    for _ in 0..2 {
        assert_eq!(handles.adopt(sync_file.as_fd()).unwrap(), Some(token));
    }
    assert_eq!(revents(sync_file.as_fd()), PollFlags::empty());
    handles.signal_of(token).unwrap().raise();
    assert!(revents(sync_file.as_fd()).contains(PollFlags::IN));
    drop(sync_file);
    assert_eq!(handles.closed(), [token]);
}

/// A FIFO of the right name is refused where its mode is not a broker's, as any process could have made it.
#[test]
fn a_fifo_that_no_broker_made_is_not_adopted() {
    let token = fresh_token();
    let mut handles = NtHandles::new().unwrap();
    let (made, _signal) = sync_file::create(token).unwrap();
    assert_eq!(token_of(made.as_fd()), Some(token));
    assert!(matches!(handles.adopt(made.as_fd()), Err(NotMade::Descriptor(Errno::PERM))));
    sync_file::protect(made.as_fd()).unwrap();
    assert_eq!(handles.adopt(made.as_fd()).unwrap(), Some(token));
}

#[test]
fn sync_files_of_a_broker_that_ends_become_readable() {
    let token = fresh_token();
    let mut handles = NtHandles::new().unwrap();
    let sync_file = handles.make_sync_file(token).unwrap();
    drop(handles);
    assert!(revents(sync_file.as_fd()).contains(PollFlags::IN));
}

#[test]
fn other_fifos_are_no_sync_files() {
    let folder = std::env::temp_dir().join(format!("nt_handle-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let digits = "5c".repeat(16);
    let names = [
        format!("gpupv-sync-file-{digits}"),
        format!("gpupv-sync-file-{}", &digits[1..]),
        format!("gpupv-sync-file-{}", "zz".repeat(16)),
        format!("other-{digits}"),
    ];
    for (at, name) in names.iter().enumerate() {
        let path = folder.join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let fifo = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(token_of(fifo.as_fd()), None, "{name} still has a name");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(token_of(fifo.as_fd()).is_some(), at == 0, "{name}");
    }
    std::fs::remove_dir(&folder).unwrap();
}
