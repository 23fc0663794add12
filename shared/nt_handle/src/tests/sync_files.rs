//! Sync files: both kinds of brokers, their deaths, and what is left behind.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use super::*;

/// What a child process of these tests does.
const ROLE: &str = "GPUPV_TEST_ROLE";

fn is_readable(file: &OwnedFd) -> bool {
    revents(file.as_fd()).intersects(PollFlags::IN | PollFlags::HUP)
}

fn opened_by_root(file: &OwnedFd) -> Option<OwnedFd> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    rustix::fs::open(sync_file::path_of(file.as_fd()), flags, rustix::fs::Mode::empty()).ok()
}

/// As if the broker were killed: its descriptors are closed, and it raises nothing.
fn kill(handles: NtHandles) {
    handles.live.values().filter_map(|live| live.signal.as_ref()).for_each(Signal::lose);
    std::mem::forget(handles);
}

#[test]
fn a_sync_file_is_readable_from_its_signal_on_in_whoever_has_it() {
    let place = TestSocket::new();
    for mut handles in [place.fresh(), place.resumed()] {
        let sync_file = handles.make_sync_file(token(1)).unwrap();
        let copy = rustix::io::dup(&sync_file).unwrap();
        assert_eq!(token_of(copy.as_fd()), Some(token(1)));
        assert!(rustix::io::fcntl_getfd(&sync_file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!((revents(copy.as_fd()), handles.closed()), (PollFlags::empty(), vec![]));
        handles.signal_of(token(1)).unwrap().raise();
        assert_eq!(revents(copy.as_fd()), PollFlags::IN | PollFlags::HUP);
        // A reader cannot take it away from the others.
        assert_eq!(rustix::io::read(&sync_file, &mut [0; 8]), Ok(1));
        assert_eq!(revents(copy.as_fd()), PollFlags::HUP);
        drop(sync_file);
        assert_eq!((handles.closed(), handles.len()), (vec![], 1), "a copy is open");
        drop(copy);
        assert_eq!((handles.closed(), handles.len()), (vec![token(1)], 0));
        assert!(handles.signal_of(token(1)).is_none());
    }
}

#[test]
fn the_last_close_is_seen_before_the_signal_and_the_signal_then_has_no_effect() {
    let place = TestSocket::new();
    for mut handles in [place.fresh(), place.resumed()] {
        let sync_file = handles.make_sync_file(token(1)).unwrap();
        let signal = handles.signal_of(token(1)).unwrap().clone();
        drop(sync_file);
        assert_eq!(handles.closed(), [token(1)]);
        signal.raise();
        assert_eq!(handles.closed(), []);
    }
}

/// A child that examines a state is a copy of the process with its descriptors.
#[test]
fn a_copied_writer_of_a_forgotten_sync_file_wakes_nobody() {
    let place = TestSocket::new();
    for mut handles in [place.fresh(), place.resumed()] {
        let sync_file = handles.make_sync_file(token(1)).unwrap();
        let copied =
            handles.signal_of(token(1)).unwrap().with_writer(|writer| rustix::io::dup(writer).unwrap());
        drop(sync_file);
        assert_eq!(next_closed(&mut handles), [token(1)]);
        // Events of its watch may be left.
        let is_quiet = |handles: &mut NtHandles| {
            assert_eq!(handles.closed(), []);
            revents(handles.descriptor()) == PollFlags::empty()
        };
        assert!((0..100).any(|_| is_quiet(&mut handles)), "the writer stays in the set");
        drop(copied);
    }
}

/// The events of closes that follow each other collapse into one, so counting them would lose the last.
#[test]
fn the_last_close_is_seen_also_if_root_opened_the_file_again() {
    covers!("FEN-147");
    let place = TestSocket::new();
    for is_raised in [false, true] {
        for mut handles in [place.fresh(), place.resumed()] {
            let file = handles.make_sync_file(token(1)).unwrap();
            // Only root can.
            let Some(again) = opened_by_root(&file) else { return };
            let more = opened_by_root(&file);
            if is_raised {
                handles.signal_of(token(1)).unwrap().raise();
            }
            drop((file, again));
            assert_eq!((handles.closed(), handles.len()), (vec![], 1), "one is open");
            drop(more);
            assert_eq!((next_closed(&mut handles), handles.len()), (vec![token(1)], 0));
        }
    }
}

#[test]
fn no_close_of_a_sync_file_is_lost_when_the_queue_overflows() {
    covers!("FEN-147");
    let queue = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let many: u32 = queue.trim().parse().unwrap();
    let place = TestSocket::new();
    let mut handles = place.resumed();
    let (kept, closed, raised) = (
        handles.make_sync_file(token(0)).unwrap(),
        handles.make_sync_file(token(1)).unwrap(),
        handles.make_sync_file(token(2)).unwrap(),
    );
    handles.signal_of(token(2)).unwrap().raise();
    for number in 3..=many / 2 + 100 {
        drop(handles.make(token(number)).unwrap());
    }
    drop((closed, raised));
    let seen: BTreeSet<[u8; 16]> = all_closed(&mut handles).iter().map(|token| token.0).collect();
    assert!(seen.contains(&token(1).0) && seen.contains(&token(2).0));
    assert_eq!((handles.len(), is_readable(&kept)), (1, false));
    drop(kept);
    assert_eq!(next_closed(&mut handles), [token(0)]);
}

#[test]
fn a_broker_that_takes_over_raises_the_signal_of_its_predecessors_sync_file() {
    let place = TestSocket::new();
    let mut before = place.resumed();
    let sync_file = before.make_sync_file(token(1)).unwrap();
    kill(before);
    let mut handles = place.resumed();
    for _ in 0..2 {
        assert_eq!(handles.adopt(sync_file.as_fd()).unwrap().map(|adopted| adopted.token), Some(token(1)));
    }
    assert!(!is_readable(&sync_file));
    handles.signal_of(token(1)).unwrap().raise();
    assert!(revents(sync_file.as_fd()).contains(PollFlags::IN));
    drop(sync_file);
    assert_eq!(handles.closed(), [token(1)]);
}

#[test]
fn sync_files_that_nobody_presents_are_recovered_by_name_while_a_process_has_them_open() {
    covers!("FEN-146");
    let place = TestSocket::new();
    let mut before = place.resumed();
    let [polled, presented, closed] = [1, 2, 3].map(|number| before.make_sync_file(token(number)).unwrap());
    kill(before);
    drop(closed);
    let mut handles = place.resumed();
    let recovered: BTreeSet<[u8; 16]> = handles.recover().iter().map(|token| token.0).collect();
    assert_eq!(recovered, [1, 2, 3].map(|number| token(number).0).into());
    assert_eq!(handles.adopt(presented.as_fd()).unwrap().map(|adopted| adopted.token), Some(token(2)));
    assert_eq!(handles.unopened(), [token(3)]);
    assert_eq!((handles.unopened(), handles.closed(), handles.len()), (vec![], vec![], 2));
    assert!(!is_readable(&polled) && !is_readable(&presented));
    handles.signal_of(token(1)).unwrap().raise();
    assert!(is_readable(&polled) && !is_readable(&presented));
    drop(polled);
    assert_eq!(handles.closed(), [token(1)]);
    drop(presented);
    assert_eq!(handles.closed(), [token(2)]);
    assert_eq!(place.left(), [place.0.path().join("broker.sock.sync-files")]);
    drop(handles);
    assert_eq!(place.left(), [] as [PathBuf; 0]);
}

/// A FIFO of the right name is refused where its mode is not a broker's, as any process could have made it.
#[test]
fn a_fifo_that_no_broker_made_is_not_adopted() {
    let place = TestSocket::new();
    let mut handles = place.resumed();
    let (made, _signal) = SyncFileFolder::resumed(&place.socket()).create(token(1)).unwrap();
    assert_eq!(token_of(made.as_fd()), Some(token(1)));
    assert!(matches!(handles.adopt(made.as_fd()), Err(NotMade::NotOwn)));
    assert!(!is_readable(&made));
    sync_file::while_readable(made.as_fd(), || Ok(())).unwrap();
    assert_eq!(handles.adopt(made.as_fd()).unwrap().map(|adopted| adopted.token), Some(token(1)));
}

/// The kill comes while the file is watched, by the first broker or by its successor.
#[test]
fn a_sync_file_whose_broker_was_killed_while_the_owner_could_read_it_is_recovered_and_not_signaled() {
    covers!("FEN-146");
    let place = TestSocket::new();
    let mut before = place.resumed();
    let sync_file = before.make_sync_file(token(1)).unwrap();
    kill(before);
    let readable_by_owner = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::chmod(sync_file::path_of(sync_file.as_fd()), readable_by_owner).unwrap();
    // Half made: no process has it.
    drop(SyncFileFolder::resumed(&place.socket()).create(token(2)).unwrap());
    let mut handles = place.resumed();
    assert_eq!(handles.recover().len(), 2);
    assert!(!is_readable(&sync_file), "its value is not reached");
    assert_eq!(handles.unopened(), [token(2)]);
    handles.signal_of(token(1)).unwrap().raise();
    assert!(is_readable(&sync_file));
}

#[test]
fn a_sync_file_that_cannot_be_watched_is_signaled_by_its_name_and_not_before() {
    covers!("FEN-146");
    let place = TestSocket::new();
    let mut before = place.resumed();
    let files = [1, 2].map(|number| before.make_sync_file(token(number)).unwrap());
    kill(before);
    let mut handles = place.resumed();
    // As if watches were used up.
    let no_watches = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let watch = std::mem::replace(&mut handles.watch, no_watches);
    assert_eq!((handles.recover().len(), handles.len()), (2, 0));
    assert!(files.iter().all(|file| !is_readable(file)));
    assert!(handles.adopt(files[0].as_fd()).is_err());
    assert_eq!(handles.unopened(), []);
    handles.signal_of(token(1)).unwrap().raise();
    assert!(is_readable(&files[0]) && !is_readable(&files[1]));
    handles.watch = watch;
    assert_eq!((handles.recover(), handles.len()), (vec![token(2)], 1), "the other is watched now");
    assert_eq!((handles.recover(), is_readable(&files[1])), (vec![], false));
    drop(files);
    assert_eq!(handles.closed(), [token(2)]);
}

#[test]
fn sync_files_of_a_broker_that_ends_become_readable() {
    let place = TestSocket::new();
    for mut handles in [place.fresh(), place.resumed()] {
        let sync_file = handles.make_sync_file(token(1)).unwrap();
        drop(handles);
        assert!(revents(sync_file.as_fd()).contains(PollFlags::IN));
        assert_eq!(place.left(), [] as [PathBuf; 0]);
    }
}

/// A process that makes a sync file, passes it on through its standard input, a socket, and waits to be killed.
struct Broker {
    child: std::process::Child,
    file: OwnedFd,
    /// The child exits when this is closed.
    socket: UnixStream,
}

impl Broker {
    fn start(place: &TestSocket, role: &str) -> Broker {
        let (near, far) = UnixStream::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::sync_files::the_broker_of_the_tests_below", "--nocapture"])
            .env(ROLE, format!("{role}={}", place.socket().display()))
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(&near, &mut into, &mut control, rustix::net::RecvFlags::CMSG_CLOEXEC).unwrap();
        let file = control.drain().find_map(|message| match message {
            rustix::net::RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        Broker { child, file: file.expect("a descriptor came"), socket: near }
    }

    /// Kills it. Returns the sync file.
    fn kill(mut self) -> OwnedFd {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.file
    }
}

#[test]
fn the_broker_of_the_tests_below() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, socket) = role.split_once('=').unwrap();
    let folder = match role {
        "fresh" => SyncFileFolder::fresh(Path::new(socket)),
        _ => SyncFileFolder::resumed(Path::new(socket)),
    };
    let mut handles = NtHandles::new(folder.clone()).unwrap();
    let file = handles.make_sync_file(token(1)).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sent = [file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
    let socket = rustix::stdio::stdin();
    rustix::net::sendmsg(socket, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
    drop(file);
    if role == "used up" {
        let all = all_descriptors();
        handles.signal_of(token(1)).unwrap().raise();
        // The descriptor that the writer needed is free again.
        let last = rustix::io::dup(socket).unwrap();
        assert!(rustix::io::dup(socket).is_err() && handles.make_sync_file(token(2)).is_err());
        drop((all, last));
        assert!(!folder.path_of(token(2)).exists(), "a sync file is left that nobody got");
        rustix::io::write(socket, b"x").unwrap();
    }
    let _ = std::io::stdin().read(&mut [0]);
}

/// Uses up all descriptors that this process may have.
fn all_descriptors() -> Vec<OwnedFd> {
    let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    std::iter::from_fn(|| rustix::io::dup(rustix::stdio::stdin()).ok()).collect()
}

#[test]
fn a_broker_without_a_free_descriptor_raises_a_signal_and_leaves_no_file_that_it_could_not_make() {
    let place = TestSocket::new();
    let mut broker = Broker::start(&place, "used up");
    assert_eq!(broker.socket.read(&mut [0]).unwrap(), 1, "the broker has failed");
    assert!(revents(broker.file.as_fd()).contains(PollFlags::IN));
    broker.kill();
}

#[test]
fn a_kill_of_a_broker_without_a_successor_makes_its_sync_files_readable() {
    covers!("FEN-145");
    let place = TestSocket::new();
    let broker = Broker::start(&place, "fresh");
    assert!(!is_readable(&broker.file));
    let file = broker.kill();
    assert_eq!(revents(file.as_fd()), PollFlags::HUP);
    assert_eq!(rustix::io::read(&file, &mut [0; 8]), Ok(0));
    // The empty folder is what it leaves; the next broker at this socket removes it.
    assert_eq!(place.left(), [place.0.path().join("broker.sock.sync-files")]);
    SyncFileFolder::fresh(&place.socket());
    assert_eq!(place.left(), [] as [PathBuf; 0]);
}

#[test]
fn a_kill_of_a_broker_that_may_be_resumed_signals_nothing_and_its_successor_does() {
    let place = TestSocket::new();
    let file = Broker::start(&place, "resumed").kill();
    assert!(!is_readable(&file));
    let mut handles = place.resumed();
    assert_eq!((handles.recover(), handles.unopened()), (vec![token(1)], vec![]));
    assert!(!is_readable(&file));
    handles.signal_of(token(1)).unwrap().raise();
    assert!(is_readable(&file));
}

#[test]
fn a_killed_broker_without_a_successor_leaves_nothing_that_the_next_does_not_remove() {
    let place = TestSocket::new();
    // As if it were killed between mkfifo and unlink.
    let (_file, _signal) = SyncFileFolder::resumed(&place.socket()).create(token(1)).unwrap();
    assert_eq!(place.left().len(), 2);
    let mut handles = place.fresh();
    assert_eq!(place.left(), [] as [PathBuf; 0]);
    handles.make_sync_file(token(1)).unwrap();
}

#[test]
fn a_folder_that_others_may_enter_is_not_used() {
    let place = TestSocket::new();
    let folder = place.0.path().join("broker.sock.sync-files");
    rustix::fs::mkdir(&folder, rustix::fs::Mode::RWXU).unwrap();
    rustix::fs::chmod(&folder, rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    assert_eq!(place.fresh().make_sync_file(token(1)).unwrap_err(), NotMade::SyncFile(Errno::PERM));
    assert_eq!(place.left(), [folder], "it is not this broker's to remove");
}

#[test]
fn other_fifos_are_no_sync_files() {
    let place = TestSocket::new();
    let digits = "5c".repeat(16);
    let names = [
        format!("gpupv-sync-file-{digits}"),
        format!("gpupv-sync-file-{}", &digits[1..]),
        format!("gpupv-sync-file-{}", "zz".repeat(16)),
        format!("other-{digits}"),
    ];
    for (at, name) in names.iter().enumerate() {
        let path = place.0.path().join(name);
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let fifo = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(token_of(fifo.as_fd()).is_some(), at == 0, "{name}");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(token_of(fifo.as_fd()).is_some(), at == 0, "{name} without a name");
    }
}
