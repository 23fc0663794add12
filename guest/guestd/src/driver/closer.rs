//! Closes what clients sent, where waiting for it harms nobody else.
//!
//! A close may take as long as the one who made the descriptor likes: a socket with SO_LINGER waits for its peer, a file of
//! FUSE for its server, a memfd of gigabytes frees them. The broker's one thread closes only what cannot: its own
//! descriptors, eventfds, NT handles, and connections in which nothing unread carries a descriptor. All else is closed by a
//! thread for each user of the guest: one that is stuck keeps its user's descriptors, and nobody else's.
//!
//! What a stuck thread can keep is bounded: received descriptors by [`UNCLOSED_PER_USER_MAX`], beyond which the user's
//! clients are not read; connections with unread descriptors by the user's RLIMIT_NOFILE, up to which the kernel lets
//! descriptors be under way.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recv, recvmsg, shutdown, sockopt};

use crate::broker::Uid;
use crate::console::say;
use crate::limits::{CLOSERS_MAX, DISCARDED_PACKETS_MAX, UNCLOSED_PER_USER_MAX};

/// See the module.
pub(super) struct Closer {
    users: BTreeMap<Uid, User>,
    /// Set when a user that had too many has fewer.
    freed: Arc<OwnedFd>,
}

struct User {
    descriptors: Sender<OwnedFd>,
    unclosed: Arc<AtomicUsize>,
}

impl Closer {
    pub fn new() -> Result<Self, Errno> {
        let freed = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { users: BTreeMap::new(), freed })
    }

    /// Readable when a user may have room again; [`Closer::acknowledge`] takes that back.
    pub fn freed(&self) -> BorrowedFd<'_> {
        self.freed.as_fd()
    }

    pub fn acknowledge(&self) {
        let _ = rustix::io::read(&*self.freed, &mut [0; 8]);
    }

    /// Nothing more is to be received from this user for now.
    pub fn is_full(&self, user: Uid) -> bool {
        let unclosed = |user: &User| user.unclosed.load(Ordering::Acquire);
        self.users.get(&key(&self.users, user)).map_or(0, unclosed) >= UNCLOSED_PER_USER_MAX
    }

    /// Closes what came from a client of this user.
    pub fn close(&mut self, user: Uid, descriptor: OwnedFd) {
        if is_eventfd(descriptor.as_fd()) || nt_handle::token_of(descriptor.as_fd()).is_some() {
            return;
        }
        let key = key(&self.users, user);
        let freed = Arc::clone(&self.freed);
        let user = self.users.entry(key).or_insert_with(|| User::start(key, freed));
        user.unclosed.fetch_add(1, Ordering::AcqRel);
        if user.descriptors.send(descriptor).is_err() {
            // Its thread could not be started: the descriptor is closed here, by the error's end.
            user.unclosed.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Closes a connection of a client's. The client sees the end of it at once, behind what it was sent.
    pub fn close_connection(&mut self, user: Uid, connection: OwnedFd) {
        // From here on nothing more gets into it.
        let _ = shutdown(&connection, Shutdown::Both);
        if !is_drained(&connection) {
            self.close(user, connection);
        }
    }
}

/// Of the thread for a user: those that come last have one together.
fn key(users: &BTreeMap<Uid, User>, user: Uid) -> Uid {
    const OTHERS: Uid = Uid(u32::MAX);
    if users.contains_key(&user) || users.len() < CLOSERS_MAX { user } else { OTHERS }
}

impl User {
    fn start(Uid(user): Uid, freed: Arc<OwnedFd>) -> Self {
        let (descriptors, received) = channel();
        let unclosed = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&unclosed);
        let started = thread::Builder::new()
            .name(format!("close-{user}"))
            .stack_size(64 * 1024)
            .spawn(move || close_all(&received, &left, &freed));
        if let Err(error) = started {
            say(&format!("what user {user} sends is closed by the broker's thread, which may wait: {error}"));
        }
        Self { descriptors, unclosed }
    }
}

fn close_all(descriptors: &Receiver<OwnedFd>, unclosed: &AtomicUsize, freed: &OwnedFd) {
    for descriptor in descriptors {
        // A socket that nobody else has any more closes without waiting for its peer; what is none says so.
        let _ = sockopt::set_socket_linger(&descriptor, None);
        drop(descriptor);
        if unclosed.fetch_sub(1, Ordering::AcqRel) == UNCLOSED_PER_USER_MAX {
            let _ = rustix::io::write(freed, &1_u64.to_ne_bytes());
        }
    }
}

/// Whether the descriptor is an eventfd.
pub(super) fn is_eventfd(descriptor: BorrowedFd<'_>) -> bool {
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", descriptor.as_raw_fd()), Vec::new());
    link.is_ok_and(|link| link.as_bytes() == b"anon_inode:[eventfd]")
}

/// Throws away what is unread in a connection that gets nothing more. False if something in it carries a descriptor: to
/// throw that away is to close it.
fn is_drained(connection: &OwnedFd) -> bool {
    // With credentials a packet of no bytes differs from the end, and a descriptor has no room beside them.
    if sockopt::set_socket_passcred(connection, true).is_err() {
        return false;
    }
    for _ in 0..DISCARDED_PACKETS_MAX {
        let (mut byte, mut space) = ([0; 1], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(connection, &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
            Ok(packet) if packet.flags.contains(ReturnFlags::CTRUNC) => return false,
            Ok(packet) if packet.bytes == 0 && control.drain().next().is_none() => return true,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return true,
        }
        let _ = recv(connection, &mut byte, RecvFlags::DONTWAIT);
    }
    false
}
