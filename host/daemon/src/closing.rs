//! Closes descriptors whose close a client can delay.
//!
//! The last close of an open file may take as long as the file's creator likes: a TCP socket lingers for the time that
//! its owner has set, and a file system in user space answers when it pleases. A client can make the daemon close such
//! a file: it sends it, or leaves it unread in a socket whose other end the daemon closes. So such descriptors are
//! closed by threads for which nothing waits, one for each client that has any:
//!
//! ```text
//!   ClientFd dropped ─┬─ a socket of the daemon, hung up, with nothing unread ──▶ closed at once
//!                     └─ anything else ──▶ queue of its client ──▶ its closing thread, which exits after the last
//! ```
//! A descriptor counts in its client's share until it is closed, also one that came with a message. While some of a
//! client's wait and it is over its share, its messages with descriptors are not read; those without any are. If the
//! system has no thread for a client, the next thread that has closed all of its own client's takes over.
//!
//! Large memory that is no longer accessed is unmapped by one more such thread: a client cannot delay that, but each piece
//! takes a system call, which frees the piece's pages. It counts in its client's shares until then.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use vsock_device::locks::{Rank, Ranked};

use super::backing::{BackingPages, ProcessBacking};
use super::limits::CLOSING_PER_PEER_MAX;
use super::memory::FenceMemory;
use super::peer::Peer;
use super::receive::{Accepted, Received, has_nothing_unread, read_all_in_band, receive, receive_behind};
use super::shares::{Budget, OverShare, Share};

/// Mappings that the thread that ends a process unmaps itself.
const UNMAPPED_AT_ONCE_MAX: usize = 32;
/// Bytes of these: their pages are freed then, about 100 us for each MiB.
const BYTES_UNMAPPED_AT_ONCE_MAX: usize = 1 << 20;

/// Memory that is no longer accessed: of a process that is gone, or detached.
#[derive(Debug)]
pub(super) struct FreedMemory {
    backing: ProcessBacking,
    _fences: Option<FenceMemory>,
}

impl FreedMemory {
    /// Without fences: only pages that had outlived the process.
    pub fn new(backing: ProcessBacking, fences: Option<FenceMemory>) -> FreedMemory {
        FreedMemory { backing, _fences: fences }
    }

    /// One piece that a process has detached.
    pub fn piece(address: u64, pages: BackingPages) -> FreedMemory {
        let mut backing = ProcessBacking::default();
        backing.add(address, pages);
        FreedMemory::new(backing, None)
    }

    /// Whether unmapping it delays the thread that does it.
    fn is_large(&self) -> bool {
        self.backing.pieces() > UNMAPPED_AT_ONCE_MAX
            || self.backing.mapped_bytes() > BYTES_UNMAPPED_AT_ONCE_MAX
    }
}

/// A piece of work for a closing thread.
enum Closing {
    /// A descriptor, and its part of its client's share; `None` of a socket of the daemon's own process.
    Descriptor(OwnedFd, Option<Share>),
    /// Mappings: each takes a system call, which frees the pages.
    Memory(FreedMemory),
}

/// Key of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LaneKey {
    /// Descriptors of one client.
    Client(Peer),
    /// Memory of all processes: no client can delay it, so one thread unmaps it.
    Memory,
}

/// One queue.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Closing>,
    has_thread: bool,
}

/// The queues and threads that close descriptors of clients, and unmap their memory.
pub struct Closers {
    lanes: Ranked<BTreeMap<LaneKey, Lane>>,
    /// Length of all queues, readable without the lock.
    waiting: AtomicUsize,
    /// Where descriptors count that clients send.
    descriptors: Arc<Budget>,
    close: Box<dyn Fn(OwnedFd) + Send + Sync>,
    start: fn(Run) -> io::Result<()>,
}

/// What a closing thread runs.
type Run = Box<dyn FnOnce() + Send>;

fn start_thread(run: Run) -> io::Result<()> {
    std::thread::Builder::new().name("closer".into()).spawn(run).map(drop)
}

impl fmt::Debug for Closers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closers").finish_non_exhaustive()
    }
}

impl Closers {
    pub fn new(descriptors: &Arc<Budget>) -> Arc<Closers> {
        Closers::that_close(descriptors, drop)
    }

    /// The same, with a function that closes.
    pub(super) fn that_close(
        descriptors: &Arc<Budget>,
        close: impl Fn(OwnedFd) + Send + Sync + 'static,
    ) -> Arc<Closers> {
        let (lanes, waiting) = (Ranked::new(Rank::Closing, BTreeMap::new()), AtomicUsize::new(0));
        let descriptors = Arc::clone(descriptors);
        Arc::new(Closers { lanes, waiting, descriptors, close: Box::new(close), start: start_thread })
    }

    /// Whether messages of a client may have descriptors: not while some of its wait and it is over its share, nor while
    /// too many of its wait, nor while all clients together have all.
    pub fn may_send_descriptors(&self, peer: Peer) -> bool {
        if !self.descriptors.has_room(peer) {
            return false;
        }
        // Usually all queues are empty.
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return true;
        }
        match self.lanes.lock_or_abort().get(&LaneKey::Client(peer)) {
            None => true,
            Some(lane) => lane.waiting.len() < CLOSING_PER_PEER_MAX && self.descriptors.check(peer).is_ok(),
        }
    }

    /// Unmaps memory that is no longer accessed, or queues that. Call it without the kernel lock.
    pub(super) fn unmap(self: &Arc<Self>, freed: FreedMemory) {
        if freed.is_large() {
            self.close(LaneKey::Memory, Closing::Memory(freed));
        }
    }

    /// Queues memory from here on, but starts no thread that unmaps it.
    #[cfg(test)]
    pub fn hold_memory(&self) {
        self.lanes.lock_or_abort().entry(LaneKey::Memory).or_default().has_thread = true;
    }

    /// Pieces of work that wait for the thread that unmaps memory.
    #[cfg(test)]
    pub fn memory_waiting(&self) -> usize {
        self.lanes.lock_or_abort().get(&LaneKey::Memory).map_or(0, |lane| lane.waiting.len())
    }

    /// Queues a close. Waits for none, except for memory if the system has no thread for it.
    fn close(self: &Arc<Self>, key: LaneKey, closing: Closing) {
        let mut lanes = self.lanes.lock_or_abort();
        let lane = lanes.entry(key).or_default();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        lane.waiting.push_back(closing);
        if !lane.has_thread {
            let closers = Arc::clone(self);
            lane.has_thread = (self.start)(Box::new(move || closers.run(key))).is_ok();
            // Without a thread, a descriptor stays queued until the client's next close or until another thread takes
            // over, so that this thread does not wait. Memory is unmapped here, because a next process may never end.
            if !lane.has_thread && key == LaneKey::Memory {
                drop(lanes);
                while self.close_next(key) {}
            }
        }
    }

    /// What a closing thread does: it empties one queue, then those that have no thread.
    fn run(&self, first: LaneKey) {
        let mut next = Some(first);
        while let Some(key) = next {
            while self.close_next(key) {}
            let mut lanes = self.lanes.lock_or_abort();
            next = lanes.iter_mut().find(|(_, lane)| !lane.has_thread).map(|(key, lane)| {
                lane.has_thread = true;
                *key
            });
        }
    }

    /// Does the first piece of work of a queue. False if it had none, and is removed.
    fn close_next(&self, key: LaneKey) -> bool {
        let mut lanes = self.lanes.lock_or_abort();
        let Some(closing) = lanes.get_mut(&key).and_then(|lane| lane.waiting.pop_front()) else {
            lanes.remove(&key);
            return false;
        };
        drop(lanes);
        match closing {
            Closing::Descriptor(descriptor, share) => {
                (self.close)(descriptor);
                drop(share);
            }
            Closing::Memory(freed) => drop(freed),
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        true
    }
}

/// How a descriptor may be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One end of a Unix socket pair that the daemon created, or a connection that it accepted: closed at once if
    /// nothing is unread.
    Socket,
    /// A descriptor from a client's message.
    Foreign,
}

/// A descriptor whose close a client can delay. Dropping it queues the close.
#[derive(Debug)]
pub struct ClientFd {
    /// `Some` until dropped.
    descriptor: Option<OwnedFd>,
    kind: Kind,
    peer: Peer,
    share: Option<Share>,
    closers: Arc<Closers>,
}

impl ClientFd {
    /// The daemon's end of a Unix socket whose other end a client has.
    pub fn socket(descriptor: OwnedFd, peer: Peer, share: Option<Share>, closers: &Arc<Closers>) -> ClientFd {
        // A system without this option has no out-of-band bytes either.
        let _ = read_all_in_band(descriptor.as_fd());
        let closers = Arc::clone(closers);
        ClientFd { descriptor: Some(descriptor), kind: Kind::Socket, peer, share, closers }
    }

    /// A descriptor from a client's message. It counts from here on, also if its client is over its share then.
    pub fn foreign(descriptor: OwnedFd, peer: Peer, closers: &Arc<Closers>) -> ClientFd {
        let share = Some(closers.descriptors.count(peer, 1));
        let closers = Arc::clone(closers);
        ClientFd { descriptor: Some(descriptor), kind: Kind::Foreign, peer, share, closers }
    }

    /// Returns a descriptor from a client's message for as long as the daemon wants, if its client is not over its share.
    /// It must be known that its close never blocks.
    pub fn keep(mut self) -> Result<(OwnedFd, Share), OverShare> {
        self.share.as_ref().map_or(Ok(()), Share::check)?;
        let kept = self.descriptor.take().zip(self.share.take());
        Ok(kept.expect("a descriptor from a message counts until it is dropped"))
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Reads a message of the client, if there is one.
    pub fn receive(&self, to: &mut [u8]) -> Result<(usize, Vec<ClientFd>), Errno> {
        self.checked(|socket, descriptors| receive(socket, to, descriptors))
    }

    /// The same, appended to a vector within its capacity.
    pub fn receive_behind(&self, to: &mut Vec<u8>) -> Result<(usize, Vec<ClientFd>), Errno> {
        self.checked(|socket, descriptors| receive_behind(socket, to, descriptors))
    }

    /// Refuses a message that has descriptors with `EMFILE` while the client may not send any.
    fn checked(
        &self,
        read: impl FnOnce(BorrowedFd<'_>, Accepted) -> Result<Received, Errno>,
    ) -> Result<(usize, Vec<ClientFd>), Errno> {
        let may = self.closers.may_send_descriptors(self.peer);
        let accepted = if may { Accepted::Descriptors } else { Accepted::Bytes };
        let Received { bytes, descriptors } = read(self.as_fd(), accepted)?;
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
            // Nothing can be sent into it from here on.
            let _ = shutdown(&descriptor, Shutdown::Both);
            if has_nothing_unread(descriptor.as_fd()) {
                return drop(descriptor);
            }
        }
        self.closers.close(LaneKey::Client(self.peer), Closing::Descriptor(descriptor, self.share.take()));
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd as _;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send,
        sendmsg, socketpair,
    };

    use super::*;
    use crate::backing::LocalPages;
    use crate::limits::OWNER_PART;

    const SLOW: Peer = Peer::Uid(1);
    const QUICK: Peer = Peer::Uid(2);

    /// Closers whose first close blocks until something is sent.
    struct Held {
        closers: Arc<Closers>,
        descriptors: Arc<Budget>,
        /// Descriptor numbers whose close has begun.
        closing: Receiver<i32>,
        resume: Sender<()>,
    }

    fn held() -> Held {
        let (close_sender, closing) = channel();
        let (resume, wait) = channel();
        let wait = Mutex::new(Some(wait));
        let descriptors = Budget::new("descriptors", "have more", 2 * CLOSING_PER_PEER_MAX);
        let closers = Closers::that_close(&descriptors, move |descriptor| {
            close_sender.send(descriptor.as_raw_fd()).unwrap();
            let wait = wait.lock().unwrap().take();
            if let Some(wait) = wait {
                let _: Result<(), _> = wait.recv();
            }
        });
        Held { closers, descriptors, closing, resume }
    }

    fn event(peer: Peer, closers: &Arc<Closers>) -> ClientFd {
        ClientFd::foreign(eventfd(0, EventfdFlags::CLOEXEC).unwrap(), peer, closers)
    }

    fn wait_until_all_are_closed(closers: &Closers) {
        while !closers.lanes.lock().is_empty() {
            std::thread::yield_now();
        }
    }

    /// A connection of a client, and the client's end.
    fn connection(peer: Peer, closers: &Arc<Closers>) -> (ClientFd, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        (ClientFd::socket(ours, peer, None, closers), theirs)
    }

    /// Sends a byte with so many descriptors.
    fn send_with(to: &OwnedFd, descriptors: usize) {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let rights = vec![event.as_fd(); descriptors];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CLOSING_PER_PEER_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(descriptors == 0 || ancillary.push(SendAncillaryMessage::ScmRights(&rights)));
        sendmsg(to, &[io::IoSlice::new(b"x")], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    }

    #[test]
    fn a_blocking_close_delays_neither_its_caller_nor_another_client() {
        let Held { closers, descriptors, closing, resume } = held();
        let slow = event(SLOW, &closers);
        let number = slow.as_fd().as_raw_fd();
        drop(slow);
        assert_eq!(closing.recv().unwrap(), number, "its thread is in the close, and this one is not");
        drop(event(SLOW, &closers));
        drop(event(QUICK, &closers));
        assert!(closing.recv().is_ok(), "another client's is closed");
        assert_eq!(closers.lanes.lock()[&LaneKey::Client(SLOW)].waiting.len(), 1);
        while closers.lanes.lock().len() > 1 {
            std::thread::yield_now();
        }
        assert_eq!(descriptors.figures().1, 2, "what waits is in its client's share");
        resume.send(()).unwrap();
        assert!(closing.recv().is_ok());
        wait_until_all_are_closed(&closers);
        assert_eq!(descriptors.figures().1, 0);
    }

    #[test]
    fn descriptors_of_a_message_are_in_the_share_of_their_client_until_they_are_closed() {
        let Held { closers, descriptors, closing, resume } = held();
        let (slow, theirs) = connection(SLOW, &closers);
        send_with(&theirs, 200);
        let (bytes, received) = slow.receive(&mut [0; 8]).unwrap();
        assert_eq!((bytes, received.len(), descriptors.figures().1), (1, 200, 200));
        drop(received);
        assert!(closing.recv().is_ok());
        assert_eq!(descriptors.figures().1, 200, "none is closed yet");
        resume.send(()).unwrap();
        wait_until_all_are_closed(&closers);
        assert_eq!(descriptors.figures().1, 0);
    }

    #[test]
    fn a_client_whose_descriptors_are_not_closed_sends_no_more_of_them_over_its_share_and_goes_on() {
        let Held { closers, descriptors, closing, resume } = held();
        let ((slow, theirs), (quick, other)) = (connection(SLOW, &closers), connection(QUICK, &closers));
        let _more = descriptors.take(SLOW, 200).unwrap();
        send_with(&theirs, 200);
        drop(slow.receive(&mut [0; 8]).unwrap());
        assert!(closing.recv().is_ok());
        assert_eq!(event(SLOW, &closers).keep().map(drop).unwrap_err(), descriptors.check(SLOW).unwrap_err());
        send_with(&theirs, 0);
        [&theirs, &other].into_iter().for_each(|end| send_with(end, 1));
        assert_eq!(slow.receive(&mut [0; 8]).unwrap().0, 1, "a message without any");
        assert_eq!(slow.receive(&mut [0; 8]).unwrap_err(), Errno::MFILE);
        assert_eq!(quick.receive(&mut [0; 8]).unwrap().1.len(), 1, "another client is not over its share");
        resume.send(()).unwrap();
        wait_until_all_are_closed(&closers);
        assert_eq!(slow.receive(&mut [0; 8]).unwrap().1.len(), 1);
    }

    #[test]
    fn a_client_within_its_share_has_so_many_descriptors_to_be_closed_and_then_sends_none() {
        let Held { closers, descriptors, closing, resume } = held();
        // The first one is being closed, so it does not wait.
        for waiting in 0..=CLOSING_PER_PEER_MAX {
            assert!(closers.may_send_descriptors(SLOW), "{waiting} wait");
            drop(event(SLOW, &closers));
            if waiting == 0 {
                closing.recv().unwrap();
            }
        }
        assert!(descriptors.check(SLOW).is_ok());
        assert!(!closers.may_send_descriptors(SLOW) && closers.may_send_descriptors(QUICK));
        resume.send(()).unwrap();
        wait_until_all_are_closed(&closers);
        assert!(closers.may_send_descriptors(SLOW));
    }

    /// Such a byte, and its descriptor, would not be seen otherwise.
    #[test]
    fn a_socket_in_which_a_descriptor_is_out_of_band_is_closed_by_a_thread() {
        let Held { closers, closing, resume, .. } = held();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let socket = ClientFd::socket(ours, SLOW, None, &closers);
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights = [event.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&rights)));
        let flags = SendFlags::NOSIGNAL | SendFlags::OOB;
        if let Err(error) = sendmsg(&theirs, &[io::IoSlice::new(b"x")], &mut ancillary, flags) {
            return eprintln!("this system sends no out-of-band bytes: {error}");
        }
        let number = socket.as_fd().as_raw_fd();
        drop(socket);
        assert!(!closers.lanes.lock().is_empty(), "this thread does not close it");
        assert_eq!(closing.recv().unwrap(), number);
        resume.send(()).unwrap();
    }

    #[test]
    fn no_client_sends_descriptors_while_all_are_taken_and_root_does() {
        let Held { closers, descriptors, .. } = held();
        let total = descriptors.figures().0;
        let all = descriptors.count(SLOW, total - total / OWNER_PART + 1);
        let (connections, ends): (Vec<_>, Vec<_>) =
            [QUICK, Peer::Uid(0)].map(|peer| connection(peer, &closers)).into_iter().unzip();
        ends.iter().for_each(|end| send_with(end, 1));
        assert_eq!(connections[0].receive(&mut [0; 8]).unwrap_err(), Errno::MFILE);
        assert_eq!(connections[1].receive(&mut [0; 8]).unwrap().1.len(), 1);
        drop(all);
        assert_eq!(connections[0].receive(&mut [0; 8]).unwrap().1.len(), 1);
    }

    #[test]
    fn a_thread_that_has_closed_all_of_its_client_takes_over_from_one_that_could_not_be_started() {
        let Held { mut closers, closing, resume, .. } = held();
        let start = std::mem::replace(&mut Arc::get_mut(&mut closers).unwrap().start, |_| {
            Err(io::ErrorKind::WouldBlock.into())
        });
        drop((event(QUICK, &closers), event(SLOW, &closers)));
        assert_eq!(closers.lanes.lock().len(), 2, "both wait");
        let run = Arc::clone(&closers);
        closers.lanes.lock().get_mut(&LaneKey::Client(SLOW)).unwrap().has_thread = true;
        start(Box::new(move || run.run(LaneKey::Client(SLOW)))).unwrap();
        assert!(closing.recv().is_ok());
        resume.send(()).unwrap();
        assert!(closing.recv().is_ok(), "the other client's is closed by the same thread");
        wait_until_all_are_closed(&closers);
    }

    #[test]
    fn a_socket_is_closed_by_a_thread_only_if_something_is_unread_in_it() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let Held { closers, closing, resume, .. } = held();
            let pair = || socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            let (ours, _theirs) = pair();
            drop(ClientFd::socket(ours, SLOW, None, &closers));
            assert!(closing.try_recv().is_err() && closers.lanes.lock().is_empty());
            let (ours, theirs) = pair();
            // A packet of no bytes counts, and hides another behind it.
            let bytes: &[u8] = if kind == SocketType::SEQPACKET { b"" } else { b"x" };
            send(&theirs, bytes, SendFlags::empty()).unwrap();
            let number = ours.as_raw_fd();
            drop(ClientFd::socket(ours, SLOW, None, &closers));
            assert_eq!(closing.recv().unwrap(), number);
            assert!(send(&theirs, b"y", SendFlags::NOSIGNAL).is_err(), "it is hung up already");
            resume.send(()).unwrap();
        }
    }

    fn freed(pieces: u64, pages: u32) -> FreedMemory {
        let mut backing = ProcessBacking::default();
        for number in 0..pieces {
            let address = 0x10_0000 + number * u64::from(pages) * 0x1000;
            backing.add(address, BackingPages::Local(LocalPages::create(pages).unwrap().0));
        }
        FreedMemory::new(backing, None)
    }

    #[test]
    fn memory_in_many_pieces_or_of_many_bytes_is_unmapped_by_a_thread() {
        assert!(!freed(UNMAPPED_AT_ONCE_MAX as u64, 1).is_large() && !freed(1, 256).is_large());
        assert!(freed(UNMAPPED_AT_ONCE_MAX as u64 + 1, 1).is_large() && freed(1, 257).is_large());
        let Held { closers, .. } = held();
        closers.unmap(freed(2, 4096));
        wait_until_all_are_closed(&closers);
    }

    #[test]
    fn memory_is_unmapped_although_no_thread_can_be_started() {
        let budget = Budget::new("mappings", "have more", 100);
        let mut closers = Closers::new(&budget);
        Arc::get_mut(&mut closers).unwrap().start = |_| Err(io::ErrorKind::WouldBlock.into());
        let mut backing = ProcessBacking::default();
        let pages = LocalPages::create(4096).unwrap().0;
        let pages = pages.charged_to([budget.take(SLOW, 1).unwrap(), budget.take(SLOW, 1).unwrap()]);
        backing.add(0x10_0000, BackingPages::Local(pages));
        closers.unmap(FreedMemory::new(backing, None));
        assert_eq!(budget.figures().1, 0, "it is unmapped, and no longer in its client's share");
        assert!(closers.lanes.lock().is_empty() && closers.may_send_descriptors(SLOW));
        drop(event(SLOW, &closers));
        assert_eq!(closers.lanes.lock().len(), 1, "a descriptor waits for the next close");
    }
}
