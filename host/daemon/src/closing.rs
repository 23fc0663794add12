//! The close of descriptors in which clients have a say.
//!
//! The last close of an open file may take as long as whoever made the file likes: a TCP socket lingers for the time that
//! its owner has set, a file system in user space answers when it pleases. A client can have us close such a file: it sends
//! it to us, or leaves it unread in a socket whose other end we close. So these are closed by threads that nobody waits
//! for, one for each client that has any:
//!
//! ```text
//!   ClientFd dropped ─┬─ a socket of ours, hung up, with nothing unread ──▶ closed there and then
//!                     └─ anything else ──▶ queue of its client ──▶ its closing thread, which ends with the last
//! ```
//! What waits to be closed is in its client's share of descriptors until it is. Nothing more of a client is read while so
//! many of its descriptors wait that one more message could not be held. Memory that a process had lent in many pieces is
//! unmapped by the same threads: nobody has a say in that, but it takes a system call for each piece.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use vsock_device::locks::{Rank, Ranked};

use super::backing::ProcessBacking;
use super::limits::CLOSING_PER_PEER_MAX;
use super::peer::Peer;
use super::receive::{Received, has_nothing_unread, read_all_in_band, receive, receive_behind};
use super::shares::Share;

/// Mappings that whoever ends a process unmaps itself.
const UNMAPPED_AT_ONCE_MAX: usize = 32;

/// A piece of work for a closing thread.
enum Closing {
    /// A descriptor, and what it takes of its client's share.
    Descriptor(OwnedFd, Option<Share>),
    /// Mappings of memory that the client has lent: each takes a system call.
    Memory(ProcessBacking),
}

/// What waits to be closed of one client.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Closing>,
    has_thread: bool,
}

/// See the module.
pub struct Closers {
    lanes: Ranked<BTreeMap<Peer, Lane>>,
    /// Of all clients, for a look without the lock.
    waiting: AtomicUsize,
    close: Box<dyn Fn(OwnedFd) + Send + Sync>,
}

impl fmt::Debug for Closers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closers").finish_non_exhaustive()
    }
}

impl Closers {
    pub fn new() -> Arc<Closers> {
        Closers::that_close(drop)
    }

    /// The same with a way to close of one's own.
    pub(super) fn that_close(close: impl Fn(OwnedFd) + Send + Sync + 'static) -> Arc<Closers> {
        let lanes = Ranked::new(Rank::Closing, BTreeMap::new());
        Arc::new(Closers { lanes, waiting: AtomicUsize::new(0), close: Box::new(close) })
    }

    /// Whether messages of a client may be read, which may bring more descriptors: not while too many of it wait.
    pub fn may_send(&self, peer: Peer) -> bool {
        // As a rule none of anybody do.
        self.waiting.load(Ordering::Relaxed) == 0
            || self
                .lanes
                .lock_or_abort()
                .get(&peer)
                .is_none_or(|lane| lane.waiting.len() < CLOSING_PER_PEER_MAX)
    }

    /// Has memory unmapped that a process has lent, which has ended.
    pub(super) fn unmap(self: &Arc<Self>, peer: Peer, backing: ProcessBacking) {
        if backing.pieces() > UNMAPPED_AT_ONCE_MAX {
            self.close(peer, Closing::Memory(backing));
        }
    }

    /// Has it closed; never waits for that.
    fn close(self: &Arc<Self>, peer: Peer, closing: Closing) {
        let mut lanes = self.lanes.lock_or_abort();
        let lane = lanes.entry(peer).or_default();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        lane.waiting.push_back(closing);
        if !lane.has_thread {
            let own = Arc::clone(self);
            let thread = std::thread::Builder::new().name("closer".into()).spawn(move || own.run(peer));
            // Without one it waits for the next that is to be closed: better than to wait here.
            lane.has_thread = thread.is_ok();
        }
    }

    fn run(&self, peer: Peer) {
        loop {
            let mut lanes = self.lanes.lock_or_abort();
            let Some(closing) = lanes.get_mut(&peer).and_then(|lane| lane.waiting.pop_front()) else {
                lanes.remove(&peer);
                return;
            };
            drop(lanes);
            match closing {
                Closing::Descriptor(descriptor, share) => {
                    (self.close)(descriptor);
                    drop(share);
                }
                Closing::Memory(backing) => drop(backing),
            }
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Whether its close can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One end of a pair of Unix sockets that we made, or a connection that we accepted.
    Socket,
    /// A descriptor that came with a client's message.
    Foreign,
}

/// A descriptor in whose close a client has a say. Dropping it has it closed.
#[derive(Debug)]
pub struct ClientFd {
    /// There until it is dropped.
    descriptor: Option<OwnedFd>,
    kind: Kind,
    peer: Peer,
    share: Option<Share>,
    closers: Arc<Closers>,
}

impl ClientFd {
    /// Our end of a Unix socket whose other end a client has.
    pub fn socket(descriptor: OwnedFd, peer: Peer, share: Option<Share>, closers: &Arc<Closers>) -> ClientFd {
        // A system without it has nothing out of band either.
        let _ = read_all_in_band(descriptor.as_fd());
        let closers = Arc::clone(closers);
        ClientFd { descriptor: Some(descriptor), kind: Kind::Socket, peer, share, closers }
    }

    /// What came along with a client's message.
    pub fn foreign(descriptor: OwnedFd, peer: Peer, closers: &Arc<Closers>) -> ClientFd {
        let closers = Arc::clone(closers);
        ClientFd { descriptor: Some(descriptor), kind: Kind::Foreign, peer, share: None, closers }
    }

    /// The descriptor itself, once it is known to be of a kind whose close never blocks.
    pub fn known_harmless(mut self) -> OwnedFd {
        self.descriptor.take().expect("it is there until it is dropped")
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Reads a message of the client that has the other end, if there is one.
    pub fn receive(&self, to: &mut [u8]) -> Result<(usize, Vec<ClientFd>), Errno> {
        self.checked(|socket| receive(socket, to))
    }

    /// The same, behind what is there, as far as there is room.
    pub fn receive_behind(&self, to: &mut Vec<u8>) -> Result<(usize, Vec<ClientFd>), Errno> {
        self.checked(|socket| receive_behind(socket, to))
    }

    /// Of a client of which too much waits to be closed nothing is read: its connection is as if it were broken.
    fn checked(
        &self,
        read: impl FnOnce(BorrowedFd<'_>) -> Result<Received, Errno>,
    ) -> Result<(usize, Vec<ClientFd>), Errno> {
        if !self.closers.may_send(self.peer) {
            return Err(Errno::MFILE);
        }
        let Received { bytes, descriptors } = read(self.as_fd())?;
        let foreign = |descriptor| ClientFd::foreign(descriptor, self.peer, &self.closers);
        Ok((bytes, descriptors.into_iter().map(foreign).collect()))
    }
}

impl AsFd for ClientFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for ClientFd {
    fn drop(&mut self) {
        let Some(descriptor) = self.descriptor.take() else { return };
        if self.kind == Kind::Socket {
            // Nothing is put into it from here on.
            let _ = shutdown(&descriptor, Shutdown::Both);
            if has_nothing_unread(descriptor.as_fd()) {
                return drop(descriptor);
            }
        }
        self.closers.close(self.peer, Closing::Descriptor(descriptor, self.share.take()));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;
    use crate::shares::Budget;

    const SLOW: Peer = Peer::Uid(1);
    const QUICK: Peer = Peer::Uid(2);

    /// Closers whose first thread is held until something is sent.
    struct Held {
        closers: Arc<Closers>,
        /// Numbers of what is being closed.
        begun: Receiver<i32>,
        go_on: Sender<()>,
    }

    fn held() -> Held {
        let (began, begun) = channel();
        let (go_on, wait) = channel();
        let wait = Mutex::new(Some(wait));
        let closers = Closers::that_close(move |descriptor| {
            began.send(descriptor.as_raw_fd()).unwrap();
            let wait = wait.lock().unwrap().take();
            if let Some(wait) = wait {
                let _: Result<(), _> = wait.recv();
            }
        });
        Held { closers, begun, go_on }
    }

    fn event(peer: Peer, share: Option<Share>, closers: &Arc<Closers>) -> ClientFd {
        let mut event = ClientFd::foreign(eventfd(0, EventfdFlags::CLOEXEC).unwrap(), peer, closers);
        event.share = share;
        event
    }

    #[test]
    fn a_close_that_blocks_holds_up_neither_who_asked_for_it_nor_another_client() {
        let Held { closers, begun, go_on } = held();
        let budget = Budget::new("descriptors", "have more", 100);
        let slow = event(SLOW, Some(budget.take(SLOW, 1).unwrap()), &closers);
        let number = slow.as_fd().as_raw_fd();
        drop(slow);
        assert_eq!(begun.recv().unwrap(), number, "its thread is in the close, and this one is not");
        drop(event(SLOW, Some(budget.take(SLOW, 1).unwrap()), &closers));
        drop(event(QUICK, None, &closers));
        assert!(begun.recv().is_ok(), "another client's is closed");
        assert_eq!(closers.lanes.lock()[&SLOW].waiting.len(), 1);
        assert_eq!(budget.figures().1, 2, "what waits is in its client's share");
        go_on.send(()).unwrap();
        assert!(begun.recv().is_ok());
        while !closers.lanes.lock().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(budget.figures().1, 0);
    }

    #[test]
    fn nothing_is_read_of_a_client_while_too_much_of_it_waits_to_be_closed() {
        let Held { closers, begun, go_on } = held();
        let pair =
            || socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let ((ours, theirs), (others, other)) = (pair(), pair());
        let (slow, quick) =
            (ClientFd::socket(ours, SLOW, None, &closers), ClientFd::socket(others, QUICK, None, &closers));
        // One is in the close, and so many wait.
        (0..=CLOSING_PER_PEER_MAX).for_each(|_| drop(event(SLOW, None, &closers)));
        assert!(begun.recv().is_ok());
        for end in [&theirs, &other] {
            send(end, b"x", SendFlags::empty()).unwrap();
        }
        assert_eq!(slow.receive(&mut [0; 8]).unwrap_err(), Errno::MFILE);
        assert_eq!(quick.receive(&mut [0; 8]).unwrap().0, 1);
        go_on.send(()).unwrap();
        while !closers.lanes.lock().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(slow.receive(&mut [0; 8]).unwrap().0, 1);
    }

    #[test]
    fn a_socket_is_closed_by_a_thread_only_if_something_is_unread_in_it() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let Held { closers, begun, go_on } = held();
            let pair = || socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            let (ours, _theirs) = pair();
            drop(ClientFd::socket(ours, SLOW, None, &closers));
            assert!(begun.try_recv().is_err() && closers.lanes.lock().is_empty());
            let (ours, theirs) = pair();
            // A packet of no bytes is one, and hides another behind it.
            let bytes: &[u8] = if kind == SocketType::SEQPACKET { b"" } else { b"x" };
            send(&theirs, bytes, SendFlags::empty()).unwrap();
            let number = ours.as_raw_fd();
            drop(ClientFd::socket(ours, SLOW, None, &closers));
            assert_eq!(begun.recv().unwrap(), number);
            assert!(send(&theirs, b"y", SendFlags::NOSIGNAL).is_err(), "it is hung up already");
            go_on.send(()).unwrap();
        }
    }
}
