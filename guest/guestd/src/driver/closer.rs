//! Closes descriptors that clients sent, in threads where a slow close delays no other user.
//!
//! The creator of a descriptor decides how long its close takes: a socket with SO_LINGER waits for its peer, a FUSE
//! file for its server, and a memfd of gigabytes frees them. The broker's one thread closes only what cannot block: its
//! own descriptors, eventfds, NT handles, and connections in which nothing unread carries a descriptor. All others are
//! closed by one thread for each user of the guest: a stuck thread blocks its own user's descriptors only.
//!
//! The descriptors that a stuck thread can keep are bounded: received descriptors by [`UNCLOSED_PER_USER_MAX`], above which
//! the user's clients are not read; connections with unread descriptors by the user's RLIMIT_NOFILE, up to which the
//! kernel allows descriptors in flight.

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
use crate::thread_kind::ThreadKind;

/// The closing threads of the guest's users.
pub(super) struct Closer {
    users: BTreeMap<Uid, User>,
    /// Set when a user with too many unclosed descriptors has fewer.
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

    /// Readable when a user may have room again; [`Closer::acknowledge`] resets it.
    pub fn freed(&self) -> BorrowedFd<'_> {
        self.freed.as_fd()
    }

    pub fn acknowledge(&self) {
        let _ = rustix::io::read(&*self.freed, &mut [0; 8]);
    }

    /// Whether nothing more should be received from this user for now.
    pub fn is_full(&self, user: Uid) -> bool {
        let unclosed = |user: &User| user.unclosed.load(Ordering::Acquire);
        self.users.get(&key(&self.users, user)).map_or(0, unclosed) >= UNCLOSED_PER_USER_MAX
    }

    /// Closes a descriptor that a client of this user sent.
    pub fn close(&mut self, user: Uid, descriptor: OwnedFd) {
        if is_eventfd(descriptor.as_fd()) || nt_handle::token_of(descriptor.as_fd()).is_some() {
            return;
        }
        let key = key(&self.users, user);
        let freed = Arc::clone(&self.freed);
        let user = self.users.entry(key).or_insert_with(|| User::start(key, freed));
        user.unclosed.fetch_add(1, Ordering::AcqRel);
        if user.descriptors.send(descriptor).is_err() {
            // Its thread could not be started: dropping the error closes the descriptor here.
            user.unclosed.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Closes a client's connection. The client sees the end at once, after what it was sent.
    pub fn close_connection(&mut self, user: Uid, connection: OwnedFd) {
        // From here on nothing more can be sent into it.
        let _ = shutdown(&connection, Shutdown::Both);
        if !is_drained(&connection) {
            self.close(user, connection);
        }
    }
}

/// The key of a user's thread: users beyond the limit share one.
fn key(users: &BTreeMap<Uid, User>, user: Uid) -> Uid {
    const OTHERS: Uid = Uid(u32::MAX);
    if users.contains_key(&user) || users.len() < CLOSERS_MAX { user } else { OTHERS }
}

impl User {
    fn start(Uid(user): Uid, freed: Arc<OwnedFd>) -> Self {
        let (descriptors, received) = channel();
        let unclosed = Arc::new(AtomicUsize::new(0));
        let unclosed_count = Arc::clone(&unclosed);
        let started =
            thread::Builder::new().name(format!("close-{user}")).stack_size(64 * 1024).spawn(move || {
                sandbox::enter(ThreadKind::Closer);
                close_all(&received, &unclosed_count, &freed);
            });
        if let Err(error) = started {
            say(&format!("what user {user} sends is closed by the broker's thread, which may wait: {error}"));
        }
        Self { descriptors, unclosed }
    }
}

fn close_all(descriptors: &Receiver<OwnedFd>, unclosed: &AtomicUsize, freed: &OwnedFd) {
    for descriptor in descriptors {
        // A socket without other descriptors then closes without waiting for its peer; other files fail here.
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

/// Discards the unread data of a connection that gets nothing more. False if some of it carries a descriptor, because
/// discarding that would close it.
fn is_drained(connection: &OwnedFd) -> bool {
    // With credentials an empty packet differs from the end of the connection, and the buffer has no room for
    // descriptors.
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
