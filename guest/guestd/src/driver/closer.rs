//! Closes descriptors that clients sent, in threads where a slow close delays no other user.
//!
//! The creator of a descriptor decides how long its close takes: a socket with SO_LINGER waits for its peer, a FUSE
//! file for its server, and a memfd of gigabytes frees them, also one whose size is that of an NT handle. The broker's one thread
//! closes only what cannot block: its own descriptors, eventfds, and connections in which nothing unread carries a descriptor.
//! It asks a foreign descriptor for its name only, because the server of a FUSE file answers `fstat`. All others are closed by
//! one thread for each user of the guest: a stuck thread blocks its own user's descriptors only. It ends once its
//! user has none left, so only users with a stuck one keep a thread.
//!
//! The descriptors that a stuck thread can keep are bounded: received descriptors by [`UNCLOSED_PER_USER_MAX`], above which
//! the user's clients are not read; connections with unread descriptors by the user's RLIMIT_NOFILE, up to which the
//! kernel allows descriptors in flight.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recv, recvmsg, shutdown, sockopt};

use crate::broker::Uid;
use crate::console::say;
use crate::limits::{CLOSERS_MAX, DISCARDED_PACKETS_MAX, UNCLOSED_PER_USER_MAX};
use crate::thread_kind::ThreadKind;

/// The queues and closing threads of the guest's users.
pub(super) struct Closer {
    queues: Arc<Queues>,
}

struct Queues {
    users: Mutex<BTreeMap<Uid, Queue>>,
    /// Set when a user with too many unclosed descriptors has fewer, or need no longer share a queue that has.
    freed: OwnedFd,
    close: fn(OwnedFd),
}

/// Descriptors of one user.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<OwnedFd>,
    /// Those that wait, and the one that is being closed.
    unclosed: usize,
    has_thread: bool,
}

impl Closer {
    pub fn new() -> Result<Self, Errno> {
        // A socket without other descriptors then closes without waiting for its peer; other files fail here.
        Self::that_closes(|descriptor| {
            let _ = sockopt::set_socket_linger(&descriptor, None);
        })
    }

    /// The same, with a function that closes.
    fn that_closes(close: fn(OwnedFd)) -> Result<Self, Errno> {
        let freed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { queues: Arc::new(Queues { users: Mutex::default(), freed, close }) })
    }

    /// Readable when a user may have room again; [`Closer::acknowledge`] resets it.
    pub fn freed(&self) -> BorrowedFd<'_> {
        self.queues.freed.as_fd()
    }

    pub fn acknowledge(&self) {
        let _ = rustix::io::read(&self.queues.freed, &mut [0; 8]);
    }

    /// Whether nothing more should be received from this user for now.
    pub fn is_full(&self, user: Uid) -> bool {
        let users = self.queues.lock();
        users.get(&key(&users, user)).is_some_and(|queue| queue.unclosed >= UNCLOSED_PER_USER_MAX)
    }

    /// Closes a descriptor that a client of this user sent.
    pub fn close(&self, user: Uid, descriptor: OwnedFd) {
        if is_eventfd(descriptor.as_fd()) {
            return;
        }
        let mut users = self.queues.lock();
        let key = key(&users, user);
        let queue = users.entry(key).or_default();
        queue.unclosed += 1;
        queue.waiting.push_back(descriptor);
        if queue.has_thread {
            return;
        }
        match start(&self.queues, key) {
            Ok(()) => queue.has_thread = true,
            // The broker's thread must not wait for the close.
            Err(error) if queue.unclosed == 1 => {
                say(&format!(
                    "what user {} sends is closed later, by the next closing thread: {error}",
                    key.0
                ));
            }
            Err(_) => {}
        }
    }

    /// Closes a client's connection. The client sees the end at once, after what it was sent.
    pub fn close_connection(&self, user: Uid, connection: OwnedFd) {
        // From here on nothing more can be sent into it.
        let _ = shutdown(&connection, Shutdown::Both);
        if !is_drained(&connection) {
            self.close(user, connection);
        }
    }
}

/// The key of a user's queue: users beyond the limit share one.
fn key(users: &BTreeMap<Uid, Queue>, user: Uid) -> Uid {
    const OTHERS: Uid = Uid(u32::MAX);
    if users.contains_key(&user) || users.len() < CLOSERS_MAX { user } else { OTHERS }
}

/// Starts a thread that closes what waits in a queue.
fn start(queues: &Arc<Queues>, key: Uid) -> io::Result<()> {
    let queues = Arc::clone(queues);
    let thread = thread::Builder::new().name(format!("close-{}", key.0)).stack_size(64 * 1024);
    let run = move || {
        sandbox::enter(ThreadKind::Closer);
        queues.run(key);
    };
    thread.spawn(run).map(drop)
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uid, Queue>> {
        // No code panics while it has the lock.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what waits in a queue, then in those without a thread.
    fn run(&self, first: Uid) {
        let mut next = Some(first);
        while let Some(key) = next {
            while self.close_next(key) {}
            let mut users = self.lock();
            next = users.iter_mut().find(|(_, queue)| !queue.has_thread).map(|(key, queue)| {
                queue.has_thread = true;
                *key
            });
        }
    }

    /// Closes the first descriptor of a queue. False if it has none, and is removed.
    fn close_next(&self, key: Uid) -> bool {
        let mut users = self.lock();
        let Some(descriptor) = users.get_mut(&key).and_then(|queue| queue.waiting.pop_front()) else {
            users.remove(&key);
            if users.len() == CLOSERS_MAX - 1 {
                // A user that had to share a queue gets its own.
                self.tell_freed();
            }
            return false;
        };
        drop(users);
        (self.close)(descriptor);
        let mut users = self.lock();
        let Some(queue) = users.get_mut(&key) else { return false };
        queue.unclosed -= 1;
        if queue.unclosed == UNCLOSED_PER_USER_MAX - 1 {
            self.tell_freed();
        }
        true
    }

    fn tell_freed(&self) {
        let _ = rustix::io::write(&self.freed, &1_u64.to_ne_bytes());
    }
}

/// Whether the descriptor is an eventfd. Asks no file system.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex, PoisonError};

    use rustix::pipe::pipe;

    use super::*;

    /// Closes that have begun, and whether they may return.
    static STUCK: AtomicUsize = AtomicUsize::new(0);
    static MAY_RETURN: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn stuck_close(descriptor: OwnedFd) {
        STUCK.fetch_add(1, Ordering::Relaxed);
        let (may_return, changed) = &MAY_RETURN;
        let guard = may_return.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(guard, |may_return| !*may_return));
        drop(descriptor);
    }

    fn wait_until(condition: impl Fn() -> bool) {
        const LOOKS_MAX: usize = 50_000_000;
        let is_met = || {
            thread::yield_now();
            condition()
        };
        assert!((0..LOOKS_MAX).any(|_| is_met()), "it never holds");
    }

    #[test]
    fn a_user_whose_descriptors_are_closed_gives_its_thread_to_another() {
        let closer = Closer::new().unwrap();
        for user in 0..2 * CLOSERS_MAX as u32 {
            closer.close(Uid(user), pipe().unwrap().0);
            wait_until(|| closer.queues.lock().is_empty());
            assert_eq!(key(&closer.queues.lock(), Uid(user)), Uid(user));
        }
    }

    #[test]
    fn a_stuck_close_keeps_its_users_thread_and_no_other_and_all_end_with_the_last_descriptor() {
        let closer = Closer::that_closes(stuck_close).unwrap();
        for user in 0..CLOSERS_MAX as u32 {
            closer.close(Uid(user), pipe().unwrap().0);
        }
        wait_until(|| STUCK.load(Ordering::Relaxed) == CLOSERS_MAX);
        for user in [1000, 1001] {
            (0..UNCLOSED_PER_USER_MAX / 2).for_each(|_| closer.close(Uid(user), pipe().unwrap().0));
        }
        assert!(closer.is_full(Uid(1002)), "users beyond the limit share a queue");
        assert!(!closer.is_full(Uid(0)));
        assert_eq!(closer.queues.lock().len(), CLOSERS_MAX + 1);
        *MAY_RETURN.0.lock().unwrap() = true;
        MAY_RETURN.1.notify_all();
        wait_until(|| closer.queues.lock().is_empty());
        let mut freed = [0; 8];
        rustix::io::read(closer.freed(), &mut freed).unwrap();
        assert_eq!(
            u64::from_ne_bytes(freed),
            2,
            "the shared queue had room, and then each user one of its own"
        );
        wait_until(|| Arc::strong_count(&closer.queues) == 1);
    }

    /// A FUSE file's server need not answer, and a file with the size of an NT handle may have gigabytes behind its end.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_brokers_thread_asks_no_file_system_about_a_descriptor_and_closes_no_foreign_one() {
        use rustix::fs::{MemfdFlags, SealFlags};
        use sandbox::{Filters, Kind as _};

        let token = b"GPUPVNT10123456789abcdef";
        let handle = rustix::fs::memfd_create("handle", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::io::write(&handle, token).unwrap();
        rustix::fs::fcntl_add_seals(
            &handle,
            SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
        )
        .unwrap();
        let asking = [libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_fstatfs];
        let filters = Filters::forbid(asking.map(|call| Ok((call, Vec::new())))).unwrap();
        let ended = sandbox::testing::in_child(&filters, ThreadKind::ENDING, || {
            let closer = Closer::that_closes(|_| {
                loop {
                    thread::park();
                }
            });
            let Ok(closer) = closer else { return 1 };
            for descriptor in [pipe().map(|pipe| pipe.0), rustix::io::dup(&handle)] {
                descriptor.into_iter().for_each(|descriptor| closer.close(Uid(7), descriptor));
            }
            closer.queues.lock().get(&Uid(7)).map_or(2, |queue| i32::from(queue.unclosed != 2))
        });
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    }

    #[test]
    fn a_queue_without_a_thread_is_emptied_by_the_next_thread_that_ends() {
        let closer = Closer::new().unwrap();
        let without_thread =
            Queue { waiting: VecDeque::from([pipe().unwrap().0]), unclosed: 1, has_thread: false };
        closer.queues.lock().insert(Uid(1), without_thread);
        closer.close(Uid(2), pipe().unwrap().0);
        wait_until(|| closer.queues.lock().is_empty());
    }
}
